"""Results of an ablation: each head's effect, the pruning curve, and how both were measured."""

import math
from dataclasses import dataclass, field

from tformer_cli.artifacts.config_file import TaskKind
from tformer_cli.evaluation.significance import PairedDifference
from tformer_cli.inspection.capture.heads import HeadId
from tformer_cli.inspection.views.ablation import AblationSettings


@dataclass(frozen=True, kw_only=True)
class HeadEffect:
    """Effect of removing a head."""

    head: HeadId
    """The head."""
    rank: int
    """By what heads are removed by; 0: the most important, which is removed last."""
    loss_rank: int
    """By Δ loss; 0: the largest."""
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
    """k."""
    head: HeadId | None
    """The head that was removed last; None at k = 0."""
    loss: float
    """Loss per target token."""
    scores: tuple[PairedDifference, ...] = ()
    """BLEU and chrF2, if they were measured; of a classifier the accuracy."""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """The effects of the heads of a model on a text."""

    model: str
    """Name of its directory."""
    n_lines: int
    """Sentence pairs, or lines of text."""
    n_tokens: int
    """Target tokens, ends of sentence included; of a classifier labels."""
    loss: float
    """Loss per target token with all heads."""
    settings: AblationSettings
    """Settings of the measurement."""
    task: TaskKind = "translate"
    """Task of the model."""
    effects: tuple[HeadEffect, ...]
    """By kind, layer and head."""
    curve: tuple[CurvePoint, ...] = ()
    """k = 0, 1, … all the heads looked at."""
    scores: dict[str, float] = field(default_factory=dict)
    """BLEU and chrF2 with all heads, if they were measured; of a classifier the accuracy."""
    signatures: dict[str, str] = field(default_factory=dict)
    """Signatures of the scores."""

    pruning: "Pruning | None" = None
    """A model directory without the least important heads, if one was written."""

    @property
    def perplexity(self) -> float:
        """The perplexity of a token, e^loss."""
        return math.exp(self.loss)

    @property
    def by_loss(self) -> list[HeadEffect]:
        """The effects, the largest Δ loss first."""
        return sorted(self.effects, key=lambda effect: effect.loss_rank)


@dataclass(frozen=True, kw_only=True)
class WithoutHeads:
    """Translations of one sentence without each head, and without each layer's heads."""

    source: str
    """The sentence."""
    whole: str
    """Its translation with all heads."""
    without: dict[str, str]
    """Translation without a head or a layer's heads, by their names, such as cross.0.1, cross.0."""


@dataclass(frozen=True, kw_only=True)
class ModelCost:
    """A model's size, speed and quality, measured on the same text as another's."""

    n_heads: int
    """Heads of all kinds."""
    n_parameters: int
    """Parameters."""
    n_bytes: int
    """Size of `model.safetensors`."""
    lines_per_second: float
    """Lines translated in a second, in the same run as the other's."""
    loss: float
    """Loss per target token."""
    scores: dict[str, float]
    """BLEU and chrF2."""


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """A model directory with fewer heads, beside the one it was made from."""

    directory: str
    """Directory that it was written to."""
    removed: tuple[HeadId, ...]
    """The heads that were taken out, by their names in the whole model."""
    before: ModelCost
    """The whole model."""
    after: ModelCost
    """The pruned one."""
    scores: tuple[PairedDifference, ...]
    """The pruned model's BLEU and chrF2 against the whole model's."""
