"""One inspected sentence: its tokens, its maps and the chosen heads, ready to be shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tformer_cli.artifacts.config_file import TASKS, TaskKind
from tformer_cli.errors import UsageError
from tformer_cli.heads.names import KINDS, CaptureMode, HeadId, Kind
from tformer_cli.heads.roles import UNKNOWN, RareTokens, Role, role_of
from tformer_cli.inspect.heads.metrics import metrics_of
from tformer_cli.inspect.sentence_record import SentenceRecord
from tformer_cli.inspect.weighting import ALPHA, Weighting

if TYPE_CHECKING:
    from tformer_cli.inspect.alignment import AlignedWords, SpelledWords
    from tformer_cli.inspect.capture.live import SearchTree
    from tformer_cli.inspect.capture.maps import AttentionMaps, HeadVectors, Weights
    from tformer_cli.kinds.kind import FilledGap


@dataclass(frozen=True, kw_only=True)
class ModelSummary:
    """Model of a record."""

    name: str
    n_encoder_layers: int
    n_decoder_layers: int
    n_heads: int
    step: int
    n_key_heads: int = 0  # Heads of keys and values; 0: every head has its own
    task: TaskKind = "translate"
    reads_images: bool = False  # True if its sources are images, whose patches are the tokens

    @property
    def sharing(self) -> str:
        """Tells which heads of a layer share keys and values; empty if none do."""
        if not self.n_key_heads:
            return ""
        size = self.n_heads // self.n_key_heads
        groups = [f"{first}-{first + size - 1}" for first in range(0, self.n_heads, size)]
        return f"heads {', '.join(groups)} share keys and values"


@dataclass(frozen=True, kw_only=True)
class PageExtras:
    """Data that a page shows of a sentence besides its maps."""

    source_words: SpelledWords
    target_words: SpelledWords
    vectors: HeadVectors  # Queries and keys of every head, and what makes scores of them
    search: SearchTree | None  # None: no tap was set, or it is not plain beam search
    search_pieces: dict[int, str]


class OfSentence(Protocol):
    """A record of one sentence."""

    @property
    def sentence(self) -> HeadsRecord:
        """The sentence and its translation."""


@dataclass(frozen=True, kw_only=True, repr=False)
class HeadsRecord(SentenceRecord):
    """The heads of a model on one sentence and its translation."""

    index: int  # Number of the sentence, from 0
    model: ModelSummary
    source: str  # The source sentence, or a text that a classifier reads
    target: str  # Translation or given target; the label, or the text with its gaps filled
    is_forced: bool  # True if the target was given rather than found by the model
    score: float | None = None  # The translation's score; None for a given target
    probability: float | None = None  # A classifier's probability of the label
    gaps: tuple[FilledGap, ...] = ()  # Filled gaps, or labeled words
    source_pieces: tuple[str, ...] = ()  # (S) labels of the source, ``</s>`` last; none if blank
    target_pieces: tuple[
        str, ...
    ] = ()  # (T) labels of the tokens that the decoder predicts, ``</s>`` last
    input_pieces: tuple[
        str, ...
    ] = ()  # (T) labels of the tokens that the decoder reads, ``<s>`` first
    maps: AttentionMaps | None = None  # The maps; None for a blank line
    heads: tuple[HeadId, ...] = ()  # The selected heads, or layers; none for a blank line
    weighting: Weighting = ALPHA
    mode: CaptureMode = "forced"  # Way in which the maps were captured
    rank: int | None = None  # Among the translations, 1 the best; None for a given target
    aligned: AlignedWords | None = None  # By the heads that are shown first
    rare: RareTokens = UNKNOWN  # By these rare-word heads are judged
    extras: PageExtras | None = None  # Data that only a page shows; None if it was not asked for
    metrics: dict[HeadId, dict[str, float]] = field(init=False)
    largest: float = field(init=False)  # Maps are shaded relative to it; 1 of shares

    def __post_init__(self) -> None:
        metrics, largest = {}, 0.0
        if self.maps is not None:
            scales_rows = self.weighting != ALPHA
            metrics = metrics_of(
                self.maps, list(self.heads), scales_rows=scales_rows, rare=self.rare.positions
            )
        if self.maps is not None and not self.weighting.is_share:
            largest = max((float(self.maps.weights(h).max()) for h in self.heads), default=0.0)
        object.__setattr__(self, "metrics", metrics)
        object.__setattr__(self, "largest", largest or 1.0)

    @property
    def sentence(self) -> HeadsRecord:
        return self

    @property
    def texts(self) -> list[tuple[str, str]]:
        """The source and the target, each with its name; else the text, and its label."""
        if not self.model.n_encoder_layers:
            return [("text", self.target)]
        if not self.model.n_decoder_layers:
            from tformer_cli.text.images.named import short_name

            read = ("image", short_name(self.source)) if self.is_image else ("text", self.source)
            label = [("label", self.labeled)] if self.probability is not None else []
            name = "labels" if self.gives_labels else "filled"
            filled = [(name, self.target)] if self.gaps else []
            return [read, *label, *filled]
        name = "given target" if self.is_forced else "translation"
        if (self.rank or 1) > 1:
            name = f"translation {self.rank}"
        return [("source", self.source), (name, self.target)]

    @property
    def has_both_sides(self) -> bool:
        return self.model.n_encoder_layers > 0 and self.model.n_decoder_layers > 0

    @property
    def gives_labels(self) -> bool:
        """True of a model that predicts labels and not tokens."""
        return TASKS[self.model.task].has_labels

    @property
    def is_labeled(self) -> bool:
        """True for a classifier, which gives one label."""
        return TASKS[self.model.task].head == "labels"

    @property
    def is_pooled(self) -> bool:
        """True if one vector is made of all tokens: by a classifier or an encoder."""
        return self.is_labeled or not TASKS[self.model.task].predicts

    @property
    def lacks_gaps(self) -> bool:
        """True of a text in which a masked language model has nothing to fill in."""
        return self.maps is not None and self.has_places and not self.gaps

    @property
    def has_places(self) -> bool:
        """True of a model that predicts something at some positions of a text, its `gaps`."""
        return TASKS[self.model.task].at_places

    @property
    def is_image(self) -> bool:
        return self.model.reads_images

    @property
    def labeled(self) -> str:
        return f"{self.target} ({self.probability:.4f})"

    @property
    def shown_target(self) -> str:
        return self.target if self.probability is None else self.labeled

    @property
    def is_live(self) -> bool:
        return self.mode == "live"

    @property
    def captured(self) -> AttentionMaps:
        if self.maps is None:
            raise ValueError("a blank line has no attention maps")
        return self.maps

    def weights(self, head: HeadId | str) -> Weights:
        """Returns the map (Q, K) of one of `heads`, which may be given by its name.

        Raises:
            UsageError: if the record does not hold the head.
        """
        names = {str(each): each for each in self.heads}
        if str(head) not in names:
            shown = f"one of {', '.join(names)}" if names else "none: the line is blank"
            raise UsageError(f'head: "{head}" is not in the record, which has {shown}')
        return self.captured.weights(names[str(head)])

    def row_labels(self, kind: Kind) -> tuple[str, ...]:
        """Labels of the rows of a kind's maps: the query, or its prediction."""
        return self.source_pieces if kind == "enc" else self.target_pieces

    def column_labels(self, kind: Kind) -> tuple[str, ...]:
        """Labels of the columns of a kind's maps: the keys."""
        return self.input_pieces if kind == "dec" else self.source_pieces

    def shades(self, head: HeadId) -> Weights:
        """(Q, K) numbers of a head between 0 and 1, to be drawn."""
        return self.captured.weights(head) / self.largest

    def role(self, head: HeadId) -> Role | None:
        """The role of a selected head; None for a layer, as only heads have roles."""
        return None if self.weighting.is_of_layers else role_of(self.metrics[head])

    def order_heads(self, kind: Kind) -> list[HeadId]:
        """The selected heads of a kind, the most telling one first.

        In cross-attention, those that align the words come first, see `alignment.chosen`; in
        self-attention, and where no words are aligned, the most confident.
        """
        heads = [head for head in self.heads if head.kind == kind]
        heads.sort(key=lambda head: -self.metrics[head].get("confidence", 0.0))
        if kind == "cross" and self.aligned is not None:
            heads.sort(key=self.aligned.order.index)
        return heads

    def first_head(self) -> HeadId:
        """The head to show if only one is shown: of cross-attention, if it is selected.

        Of layers, the last one: it holds all that went before.
        """
        if self.weighting.is_of_layers and self.heads:
            return self.heads[-1]
        for kind in reversed(KINDS):
            if heads := self.order_heads(kind):
                return heads[0]
        raise ValueError("a blank line has no heads")
