"""One way of looking into a model: its input, its JSON, its terminal text, its tab of the page.

A view is one file below `views/` that ends in ``VIEW = …``: a function that reads, and blocks for
the terminal, a page and a figure. A ``tab_NAME.js`` in `page/`, or a script of its own, makes an
interactive page instead. The command ``tformer inspect-NAME``, the report and its page
list `views.VIEWS`; nothing else has to know it. Importing a view does not import torch.

JSON of an inspected sentence, schema `tformer.heads/1`, is made here, too: one object a sentence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Protocol, TypeVar

from tformer_cli.artifacts.config_file import TASKS
from tformer_cli.errors import DataError
from tformer_cli.heads.names import CaptureMode, HeadId, Inspected  # noqa: TC001 - at run time
from tformer_cli.inspect.data import jsonable, round6, to_json
from tformer_cli.settings import Option, dataclass
from tformer_cli.show.document import Room, Text, text
from tformer_cli.show.figure_files import FIGURES
from tformer_cli.sockets import load_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rich.console import Console

    from tformer_cli.artifacts.config_file import TaskKind
    from tformer_cli.heads.names import Kind
    from tformer_cli.inspect.record import HeadsRecord, ModelSummary, OfSentence
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.translator import Translator
    from tformer_cli.show.document import Block
    from tformer_cli.text.lines import LineCounts
    from tformer_cli.text.tokenizer import Tokenizer

R = TypeVar("R")


Rank = Annotated[
    int, Option(help="Inspect the N-th best translation; 1 is the best.", metavar="N", min=1)
]
Selections = Annotated[
    tuple[str, ...],
    Option(
        help="Heads to inspect, such as enc.0.3, cross.last or '!enc.0'; `tformer inspect-heads "
        "--help` has the whole syntax. Repeatable.",
        metavar="HEADS",
        shown_default="all heads",
    ),
]
Untuned = Annotated[
    bool,
    Option(help="Read layers as they are, without maps from inspect-layers --tune."),
]
TextsArgument = Annotated[
    list[str] | None,
    Option("Source sentences; without any, reads -i or stdin.", metavar="TEXT", is_argument=True),
]
SourceOption = Annotated[
    str | None,
    Option(
        "Source sentences, or names of images, one per line; - is stdin.",
        names=("-i",),
        shown_default="stdin",
        role="reads_file",
    ),
]
EVERY_TASK: tuple[TaskKind, ...] = tuple(TASKS)
WITHOUT_SOURCE: tuple[TaskKind, ...] = tuple(
    kind for kind, row in TASKS.items() if row.reads == "texts" and row.head is None
)
WITH_OUTPUT: tuple[TaskKind, ...] = tuple(kind for kind, row in TASKS.items() if row.predicts)
"""Tasks whose models predict something."""
CAPTURED = ("rank", "mode", "heads", "weights", "for_page")  # These decide which maps are captured


@dataclass(frozen=True)
class NoOptions:
    """Options of a view that has none."""


@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """Options that decide which translation is read, and how its maps are captured."""

    rank: Rank = 1
    mode: Annotated[
        CaptureMode,
        Option(
            help=(
                "forced: one forward pass over the finished translation. live: attention recorded "
                "during the search, followed along its back-pointers."
            )
        ),
    ] = "forced"


@dataclass(frozen=True)
class Subject:
    """The model that a view reads."""

    load: Callable[[], Inspected]  # Gives the model
    summary: ModelSummary  # Its name and size
    labels: Sequence[str]  # (V) a label for every token; of a classifier its labels
    path: Path | None = None  # Its directory
    translator: Translator | None = None  # Its search, for a view that translates again
    tokenizer: Tokenizer | None = None  # Both sides of its tokenizer
    cached: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def model(self) -> Inspected:
        return self.load()


@dataclass(frozen=True, kw_only=True)
class ReportOptions(CaptureOptions):
    """Options of a report: its contents, and its required precision."""

    heads: Selections = ()
    step: Annotated[
        tuple[str, ...],
        Option(
            help="Work through this head for this token, as `tformer inspect-step` does, such as "
            "cross.0.1:word. Repeatable.",
            metavar="HEAD:TOKEN",
            shown_default="the first head of each kind",
        ),
    ] = ()
    ablation: Annotated[
        bool,
        Option(
            help=(
                "Measure each sentence's loss without each head, and the causes of one of the "
                "model's decisions; slow for large models."
            )
        ),
    ] = True
    tolerance: Annotated[
        float,
        Option(
            help="Exit with status 1 if maps or steps differ from the model's own numbers by more "
            "than X.",
            names=("--verify",),
            metavar="X",
            min=0.0,
        ),
    ] = 1e-4
    for_page: bool = True  # True to capture also what only a page shows
    steps: tuple[tuple[HeadId, str], ...] = ()  # `step`, as the report has read it
    n_positions: int = 32  # The report sets as many as its longest sentence has


WIDE = Room(width=1000)
"""Room of a page or a figure, where all columns stand next to each other."""


class View(ABC, Generic[R]):
    """Base class of views; R is the type that one reads.

    See `SentenceView`, `CorpusView` and `ModelView`.
    """

    name: ClassVar[str]  # Name of its command, ``inspect-NAME``, and of its data on the page
    title: ClassVar[str]  # Title of a page that shows only this view
    help: ClassVar[str] = ""  # Help of its command; empty: another command, or a report, has it
    Options: ClassVar[type] = NoOptions  # Frozen settings with a default for each; see `Option`
    Inputs: ClassVar[type] = NoOptions  # Arguments and options that name what a `CorpusView` reads
    tasks: ClassVar[tuple[TaskKind, ...]] = EVERY_TASK  # Tasks whose models it shows
    formats: ClassVar[tuple[str, ...]] = ("text", "jsonl", "html", *FIGURES)
    """Its formats; the second is a pipe's."""
    draws_svg: ClassVar[bool] = True  # False if it puts pixels together by itself
    terms: ClassVar[Mapping[str, tuple[str, str]]] = {}  # Plain name and meaning of its numbers
    needs_model: ClassVar[bool] = True  # False if it reads nothing but the maps of sentences
    script: ClassVar[str] = ""  # Adds its tab, where no ``page/tab_NAME.js`` does
    job: ClassVar[str] = ""  # MODULE:NAME of its work, which makes its records and needs torch

    def load_job(self) -> Callable[..., Any]:
        """Imports the work of the view."""
        work: Callable[..., Any] = load_place(self.job)
        return work

    def json(self, record: R) -> dict[str, Any]:
        """Makes the data of a record, for JSON Lines as for the page; some views have none."""
        raise NotImplementedError(self.name)

    def line(self, record: R) -> dict[str, Any]:
        """The JSON object of one output line; by default `json(record)`."""
        return self.json(record)

    def lines(self, record: R, options: Any) -> Iterable[dict[str, Any] | str]:
        """Makes the objects of the lines of a record, or these lines: by default one object."""
        return [self.line(record)]

    def blocks(self, record: R, options: Any, room: Room) -> Iterable[Block]:
        """Makes what people read; a view that only reports have has none."""
        raise NotImplementedError(self.name)

    def text(self, console: Console, record: R, options: Any) -> None:
        from tformer_cli.show.terminal import room_of, show_blocks

        show_blocks(console, self.blocks(record, options, room_of(console)))

    def tab(self, record: R, options: Any, *, is_alone: bool) -> Any:
        """Makes the data of its tab; one that is alone on its page has room for all."""
        return self.json(record)

    def page(self, records: Sequence[R], options: Any) -> str | None:
        """Makes a page of its own; None: its tab, or else its blocks (`pages.render_view`)."""
        return None

    def figure_blocks(self, record: R, options: Any) -> Iterable[Block]:
        """Makes the blocks of its figure: by default what people read."""
        return self.blocks(record, options, WIDE)

    def figure(self, record: R, options: Any = None) -> str:
        """Renders a figure as SVG."""
        from tformer_cli.show.figure import render_figure

        return render_figure(self.title, self.figure_blocks(record, options or self.Options()))

    def file(self, record: R, output_format: str, options: Any = None) -> bytes | str:
        """Renders a record in one of its other formats: by default its figure."""
        return FIGURES[output_format].render(self.figure(record, options))


S = TypeVar("S", bound="OfSentence")


class SentenceView(View[S]):
    """A view of a sentence and its translation, or its given target."""

    @abstractmethod
    def read(self, subject: Subject, sentence: HeadsRecord, options: Any) -> S:
        """Reads a sentence; a blank one, whose `maps` are None, has an empty record."""

    def report(self, subject: Subject, sentence: HeadsRecord, options: ReportOptions) -> Any:
        """Reads a sentence for the report, one record or several; None: there is no such tab."""
        return self.read(subject, sentence, self.Options())

    def line(self, record: S) -> dict[str, Any]:
        """Joins its data with those that every object about a sentence has."""
        described = describe(record.sentence)
        del described["axes"], described["residual"], described["weighting"]
        return described | self.json(record)


def with_half(value: float, low: float, high: float) -> Text:
    half = f"{(high - low) / 2:.2f}".removeprefix("0")
    return text(f"{value:.2f}", (f"±{half}", "dim"))


def check_gaps(sentence: HeadsRecord) -> None:
    """Raises DataError if a text for a masked language model has no gap."""
    if sentence.lacks_gaps:
        raise DataError(
            f"line {sentence.index + 1}: has no gap to fill; write [MASK] in place of a word"
        )


class Request(Protocol):
    """A program's request for a `CorpusView`: its models, its files and its display."""

    @property
    def model(self) -> Path: ...

    @property
    def seed(self) -> int: ...

    @property
    def counts(self) -> LineCounts: ...

    def open(self, model: Path | None = None) -> Opened:
        """Opens the model of the request, or another one."""

    def lines(self, file: str | None, texts: Sequence[str] | None = None) -> Iterator[str]:
        """Returns the lines of texts, or of a file; a missing file is an error now, not later."""

    def tell(self, message: str) -> None:
        """Shows a message."""

    def progress(self, what: str) -> AbstractContextManager[Callable[[int], None]]:
        """Yields a function that shows how many lines are done."""

    def steps(self, what: str) -> AbstractContextManager[Callable[[], None]]:
        """Yields a function that shows how often it has been called."""


class CorpusView(View[R]):
    """A view of sentences that are read together, such as a corpus."""

    @abstractmethod
    def read(self, request: Request, inputs: Any, options: Any) -> R:
        """Reads all inputs; names their files before it opens a model."""


class ModelView(View[R]):
    """A view of a model by itself."""

    @abstractmethod
    def read(self, subject: Subject, options: Any) -> R:
        """Reads the model."""

    def report(self, subject: Subject, options: ReportOptions) -> R | None:
        """Reads the model for the report; None: the report has no such tab."""
        return self.read(subject, self.Options())


SCHEMA = "tformer.heads/1"
AXES: dict[Kind, tuple[str, str]] = {
    "enc": ("source.pieces", "source.pieces"),
    "dec": ("target.pieces", "target.input_pieces"),
    "cross": ("target.pieces", "source.pieces"),
}
"""Labels of the rows and columns of each kind."""
ALIGNED = (
    "heads=choice.heads convention is_stored=choice.is_stored source_words=source "
    "target_words=target pharaoh"
)


def describe(record: HeadsRecord) -> dict[str, Any]:
    maps = record.maps
    label = {"label": record.target or None, "probability": jsonable(record.probability)}
    return {
        "schema": SCHEMA,
        "index": record.index,
        "model": vars(record.model),
        "source": {
            "text": record.source,
            "pieces": list(record.source_pieces),
            # images have pixels, not pieces
            "ids": [] if maps is None or record.is_image else list(maps.source_ids),
        },
        **(label if record.is_pooled else {}),
        **({"gaps": jsonable(record.gaps)} if record.has_places else {}),
        "target": {
            "text": record.target,
            "pieces": list(record.target_pieces),
            "ids": [] if maps is None else list(maps.target_ids),
            "input_pieces": list(record.input_pieces),
            "input_ids": [] if maps is None else list(maps.target_input_ids),
            "is_forced": record.is_forced,
            "rank": record.rank,
            "score": jsonable(record.score),
        },
        "align": None if record.aligned is None else to_json(record.aligned, ALIGNED),
        "weighting": to_json(record.weighting, "name of meaning source residual"),
        "conventions": record.weighting.conventions,
        "axes": {kind: list(labels) for kind, labels in AXES.items()},
        "rare": {"positions": list(record.rare.positions), "reason": record.rare.reason or None},
        "mode": record.mode,
        "residual": None if maps is None else round6(maps.residual),
        **({"segment": maps.segment} if maps is not None and maps.segment else {}),
    }
