"""Results of an ablation: each head's effect, the pruning curve, and how both were measured."""

import math
from dataclasses import dataclass, field

from tformer_cli.artifacts.config_file import TaskKind
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.views.ablation import AblationSettings
from tformer_cli.metrics.significance import PairedDifference


@dataclass(frozen=True, kw_only=True)
class HeadEffect:
    """Effect of removing a head."""

    head: HeadId
    rank: int
    """By what heads are removed by; 0: the most important, which is removed last."""
    loss_rank: int
    loss: PairedDifference
    """Loss per target token without it, against that with all heads."""
    importance: float
    """I_h = E |∂L/∂ξ_h|, in nats a target token."""
    layer_importance: float
    """I_h divided by the ℓ₂ norm of its layer's."""
    scores: tuple[PairedDifference, ...] = ()
    """BLEU and chrF2 without it, if they were measured; of a classifier the accuracy."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """The model without its k least important heads."""

    n_removed: int
    head: HeadId | None
    """The head that was removed last; None at k = 0."""
    loss: float
    scores: tuple[PairedDifference, ...] = ()
    """BLEU and chrF2, if they were measured; of a classifier the accuracy."""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """The effects of the heads of a model on a text."""

    model: str
    n_lines: int
    n_tokens: int
    """Target tokens, ends of sentence included; of a classifier labels."""
    loss: float
    settings: AblationSettings
    task: TaskKind = "translate"
    effects: tuple[HeadEffect, ...]
    curve: tuple[CurvePoint, ...] = ()
    """k = 0, 1, … all the heads looked at."""
    scores: dict[str, float] = field(default_factory=dict)
    """BLEU and chrF2 with all heads, if they were measured; of a classifier the accuracy."""
    signatures: dict[str, str] = field(default_factory=dict)

    pruning: "Pruning | None" = None
    """A model directory without the least important heads, if one was written."""

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss)

    @property
    def by_loss(self) -> list[HeadEffect]:
        return sorted(self.effects, key=lambda effect: effect.loss_rank)


@dataclass(frozen=True, kw_only=True)
class WithoutHeads:
    """Translations of one sentence without each head, and without each layer's heads."""

    source: str
    whole: str
    without: dict[str, str]
    """Translation without a head or a layer's heads, by their names, such as cross.0.1, cross.0."""


@dataclass(frozen=True, kw_only=True)
class ModelCost:
    """A model's size, speed and quality, measured on the same text as another's."""

    n_heads: int
    n_parameters: int
    n_bytes: int
    lines_per_second: float
    """Lines translated in a second, in the same run as the other's."""
    loss: float
    scores: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """A model directory with fewer heads, beside the one it was made from."""

    directory: str
    removed: tuple[HeadId, ...]
    """The heads that were taken out, by their names in the whole model."""
    before: ModelCost
    after: ModelCost
    scores: tuple[PairedDifference, ...]
    """The pruned model's BLEU and chrF2 against the whole model's."""
