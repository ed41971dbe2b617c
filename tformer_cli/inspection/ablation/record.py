"""Results of an ablation: each head's effect, the pruning curve, and how both were measured."""

from dataclasses import dataclass, field
from typing import Literal

from tformer_cli.evaluation.significance import RESAMPLES, PairedDifference
from tformer_cli.inspection.ablation.importance import Granularity
from tformer_cli.inspection.capture.heads import HeadId

RankBy = Literal["importance", "layer-importance", "delta"]


@dataclass(frozen=True, kw_only=True)
class AblationSettings:
    """Measures and their settings."""

    heads: tuple[str, ...] = ()
    """Selected heads, by the grammar of `inspection.heads.selectors`; none means all."""
    granularity: Granularity = "sentence"
    """Derivatives whose absolute values make the importance: each sentence's, or each token's."""
    rank_by: RankBy = "importance"
    """In which order heads are removed, the least first: by importance, by importance within the
    layer, or by Δ loss alone."""
    curve: bool = True
    """True if heads are also removed one after the other, the least important first."""
    n_scored: int = 0
    """Translate with each of the N heads with the largest Δ loss off, and score."""
    curve_scores: bool = False
    """Translate at every point of the curve, and score."""
    n_resamples: int = RESAMPLES
    """Draws of the bootstrap."""
    seed: int = 1
    """Seed of the draws."""

    def __post_init__(self) -> None:
        if self.n_scored < 0:
            raise ValueError(f"n_scored: must be at least 0, but is {self.n_scored}")
        if self.n_resamples < 1:
            raise ValueError(f"n_resamples: must be at least 1, but is {self.n_resamples}")
        if self.curve_scores and not self.curve:
            raise ValueError("curve_scores: needs the curve")


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
    """BLEU and chrF2 without it, if they were measured."""


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
    """BLEU and chrF2, if they were measured."""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """The effects of the heads of a model on a text."""

    model: str
    """Name of its directory."""
    n_lines: int
    """Sentence pairs."""
    n_tokens: int
    """Target tokens, ends of sentence included."""
    loss: float
    """Loss per target token with all heads."""
    settings: AblationSettings
    """Settings of the measurement."""
    effects: tuple[HeadEffect, ...]
    """By kind, layer and head."""
    curve: tuple[CurvePoint, ...] = ()
    """k = 0, 1, … all the heads looked at."""
    scores: dict[str, float] = field(default_factory=dict)
    """BLEU and chrF2 with all heads, if they were measured."""
    signatures: dict[str, str] = field(default_factory=dict)
    """Signatures of the scores."""

    @property
    def by_loss(self) -> list[HeadEffect]:
        """The effects, the largest Δ loss first."""
        return sorted(self.effects, key=lambda effect: effect.loss_rank)


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
