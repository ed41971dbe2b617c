"""A kind of model: the parts of opening, verbs and training in which kinds differ.

At most ten members; what only one kind needs stays in its module. Adding a kind takes its name in
`artifacts.config_file`, its module here, and the command of a new verb. All of training but what a
`Training` says is common: an example is a pair of token sequences for every kind, so that one
cache, loader and loss serve.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from tformer_cli.settings import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import torch

    from tformer_cli.artifacts.config_file import TaskKind, Verb
    from tformer_cli.kinds.lines.classify import ScoredLabel
    from tformer_cli.kinds.lines.job import Damaged
    from tformer_cli.kinds.serving import Serving
    from tformer_cli.kinds.stored_model import Opened, Opening
    from tformer_cli.model.config import Head, Precision
    from tformer_cli.recipe import Recipe
    from tformer_cli.text.config import CorpusConfig
    from tformer_cli.text.corpora import SentencePair
    from tformer_cli.text.masking import Masking
    from tformer_cli.text.tokenizer import Tokenizer
    from tformer_cli.trainer.validation import Scorer

MACHINE = frozenset({"device", "precision", "threads", "tell", "before_torch"})
"""Settings of opening that have nothing to do with a search."""
WITHOUT_VALIDATION = (
    "data.valid: names no corpus, so no step is validated and the best cannot be chosen; hold out "
    "some of the data for it"
)
Progress = Callable[[str, int], None]
"""Called with the name of the data in preparation, and the number of its pairs that are done."""


class Examples(NamedTuple):
    """Words for the examples of a kind and their parts."""

    example: str
    read: str
    written: str
    right: str
    has_two_sides: bool = True
    are_texts: bool = True
    """False: the input has no vocabulary."""
    are_translated: bool = False
    """True: what the model has read decides how `translate` cuts and checks its input."""


class HeldOut(NamedTuple):
    """Validation examples, and what a model of a run computes them with."""

    recipe: Recipe
    pairs: Sequence[SentencePair]
    tokenizer: Tokenizer
    device: torch.device
    precision: Precision


class Training(ABC):
    """Training of one kind of model. Defaults fit most kinds; at most ten members."""

    examples: ClassVar[Examples]
    head: ClassVar[Head | None] = None
    """The head that a run puts on an encoder that it starts from; None: it keeps its own."""

    def complete_recipe(self, recipe: Recipe, progress: Progress | None) -> Recipe:  # noqa: ARG002 - nothing is read
        """Adds settings of the kind and its training data; the stored recipe stays as given."""
        return recipe

    @abstractmethod
    def texts(self, pair: SentencePair) -> Iterable[str]:
        """Returns the texts of an example that a tokenizer is trained on."""

    def make_tokenizer(self, recipe: Recipe, make: Callable[[], Tokenizer]) -> Tokenizer:  # noqa: ARG002
        """Returns the tokenizer of a run; `make` makes those of texts."""
        return make()

    def sides(self, tokenizer: Tokenizer, labels: Sequence[str]) -> Tokenizer:  # noqa: ARG002
        """Returns what turns both sides of examples into ids, given the tokenizer of the run."""
        return tokenizer

    def masking(self, tokenizer: Tokenizer) -> Masking | None:  # noqa: ARG002 - nothing is hidden
        """Returns how tokens are hidden from the model, if they are."""
        return None

    @abstractmethod
    def scorer(self, held: HeldOut) -> Scorer:
        """Returns the validation scorer."""

    def doubts(self, recipe: Recipe) -> Iterable[str]:
        """Returns doubts about the training data, a sentence each."""
        return () if recipe.data.valid else (WITHOUT_VALIDATION,)


def with_fields(recipe: Recipe, complete: Callable[[CorpusConfig], CorpusConfig]) -> Recipe:
    train, valid = (
        tuple(map(complete, corpora)) for corpora in (recipe.data.train, recipe.data.valid)
    )
    return replace(recipe, data=replace(recipe.data, train=train, valid=valid))


@dataclass(frozen=True, kw_only=True)
class FilledGap:
    """A gap of a text with its most probable token, or the first token of a word with its label."""

    position: int
    piece: str
    id: int
    probability: float


class PlacePredictor(Protocol):
    """Reads a text and predicts something at some of its tokens: words for gaps, or labels."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes texts as ids."""

    def predict_places(self, text: str, ids: Sequence[int]) -> tuple[str, tuple[FilledGap, ...]]:
        """Returns a text as it is predicted, and the most probable token or label of each place."""


class LineComputation(NamedTuple):
    """A verb of whole lines, as the command, Python and the service compute it."""

    compute: Callable[..., list[Any]]
    """Takes lines, `first_index` and settings; returns a result for each."""
    settings: Mapping[str, Any] = {}
    """Settings that a request may name, with their types."""


class Kind(ABC):
    """A kind of model; its module has one instance, `KIND`."""

    name: ClassVar[TaskKind]
    """Its name in recipes."""
    verbs: ClassVar[tuple[Verb, ...]]
    """The commands that take such models."""
    searches: ClassVar[bool] = False
    """True if it writes text, so that the settings of a search apply."""

    measured_by: ClassVar[Literal["translations", "labels", "text", "gaps"]] = "translations"
    """The output that `tformer evaluate` compares with references."""
    training: ClassVar[Training | None] = None
    """Its training; None: such models are only imported."""

    @abstractmethod
    def open_model(self, opening: Opening) -> Opened:
        """Connects a stored model with what computes."""

    def predictor(self, opened: Opened) -> PlacePredictor | None:  # noqa: ARG002 - most have none
        """Returns the predictor of gaps or word labels; None if the kind has none."""
        return None

    def scored_labels(
        self, opened: Opened, pairs: Sequence[tuple[str, str]], damaged: Damaged
    ) -> Iterator[list[ScoredLabel]]:
        """Scores the right labels of each text or image, given with a line of them."""
        raise NotImplementedError

    def line_computation(self, opened: Opened, verb: Verb) -> LineComputation:
        """Returns the computation of a verb whose results do not depend on other lines."""
        raise NotImplementedError

    @abstractmethod
    def serving(self, opened: Opened, verb: Verb) -> Serving:
        """Returns what serves a verb, for lines of several requests at once."""
