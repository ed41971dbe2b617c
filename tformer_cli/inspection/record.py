"""One inspected sentence: its tokens, its maps and the chosen heads, ready to be shown."""

from dataclasses import dataclass, field
from typing import Literal

from tformer_cli.inspection.capture import AttentionMaps
from tformer_cli.inspection.heads import KINDS, HeadId, Kind
from tformer_cli.inspection.metrics import metrics_of

SCHEMA = "tformer.heads/1"
CONVENTIONS = (
    "Row = query, column = key; rows sum to 1 and cells that a position may not see are exactly 0. "
    "In dec and cross, row i is the decoder position that predicts target token i+1. "
    "Layers and heads count from 0."
)
"""How to read a map; stands in everything that is written."""
AXES: dict[Kind, tuple[str, str]] = {
    "enc": ("source.pieces", "source.pieces"),
    "dec": ("target.pieces", "target.input_pieces"),
    "cross": ("target.pieces", "source.pieces"),
}
"""What labels the rows and the columns of each kind."""


CaptureMode = Literal["forced", "live"]
"""One pass over the finished hypothesis, or the rows of the search that found it."""


@dataclass(frozen=True, kw_only=True)
class ModelSummary:
    """Which model a record is of."""

    name: str
    """Name of its directory."""
    n_encoder_layers: int
    """Encoder layers."""
    n_decoder_layers: int
    """Decoder layers."""
    n_heads: int
    """Heads of a layer."""
    step: int
    """Optimizer steps it was trained for."""


@dataclass(frozen=True, kw_only=True)
class HeadsRecord:
    """The heads of a model on one sentence and its translation."""

    index: int
    """Number of the sentence, from 0."""
    model: ModelSummary
    """The model."""
    source: str
    """The source sentence."""
    target: str
    """Its translation, or the target that was given."""
    is_forced: bool
    """Whether the target was given rather than found by the model."""
    score: float | None
    """The translation's score; None for a given target."""
    source_pieces: tuple[str, ...]
    """(S) labels of the source tokens, ``</s>`` last; empty for a blank line."""
    target_pieces: tuple[str, ...]
    """(T) labels of the tokens that the decoder's rows predict, ``</s>`` last."""
    input_pieces: tuple[str, ...]
    """(T) labels of the tokens that the decoder reads, ``<s>`` first."""
    maps: AttentionMaps | None
    """The maps; None for a blank line."""
    heads: tuple[HeadId, ...]
    """The selected heads; none for a blank line."""
    mode: CaptureMode = "forced"
    """How the maps were captured."""
    rank: int | None = None
    """Which of the model's translations it is, 1 the best; None for a given target."""
    metrics: dict[HeadId, dict[str, float]] = field(init=False)
    """Metrics of the selected heads."""

    def __post_init__(self) -> None:
        metrics = {} if self.maps is None else metrics_of(self.maps, list(self.heads))
        object.__setattr__(self, "metrics", metrics)

    @property
    def captured(self) -> AttentionMaps:
        """The maps of a sentence that is not blank."""
        if self.maps is None:
            raise ValueError("a blank line has no attention maps")
        return self.maps

    def row_labels(self, kind: Kind) -> tuple[str, ...]:
        """Labels of the rows of a kind's maps: the query, or what it predicts."""
        return self.source_pieces if kind == "enc" else self.target_pieces

    def column_labels(self, kind: Kind) -> tuple[str, ...]:
        """Labels of the columns of a kind's maps: the keys."""
        return self.input_pieces if kind == "dec" else self.source_pieces

    def most_confident(self, kind: Kind) -> HeadId | None:
        """The selected head of a kind with the highest confidence, if there is one."""
        heads = [head for head in self.heads if head.kind == kind]
        return max(heads, key=lambda head: self.metrics[head].get("confidence", 0.0), default=None)

    def clearest_head(self) -> HeadId:
        """The head to show if only one is shown: the most confident cross-attention head."""
        for kind in reversed(KINDS):
            if (head := self.most_confident(kind)) is not None:
                return head
        raise ValueError("a blank line has no heads")
