"""A kind of model: the parts of opening, verbs and training in which kinds differ.

At most ten members; what only one kind needs stays in its module. Adding a kind takes its name in
`artifacts.config_file`, its module here, and the command of a new verb.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tformer_cli.artifacts.config_file import TaskKind, Verb
    from tformer_cli.kinds.lines.classify import ScoredLabel
    from tformer_cli.kinds.lines.job import Damaged
    from tformer_cli.kinds.serving import Serving
    from tformer_cli.kinds.stored_model import Opened, Opening
    from tformer_cli.kinds.training import Training

MACHINE = frozenset({"device", "precision", "threads", "tell", "before_torch"})
"""Settings of opening that have nothing to do with a search."""


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
        """Makes the ids of texts."""

    def predicted(self, text: str, ids: Sequence[int]) -> tuple[str, tuple[FilledGap, ...]]:
        """Returns a text as it is predicted, and the most probable token or label of each place."""


class Kind(ABC):
    """A kind of model; its module has one instance, `KIND`."""

    name: ClassVar[TaskKind]
    """Its name in recipes."""
    verbs: ClassVar[tuple[Verb, ...]]
    """The commands that take such models."""
    methods: ClassVar[tuple[str, ...]]
    """The methods of a loaded model that work, `heads` besides."""
    searches: ClassVar[bool] = False
    """True if it writes text, so that the settings of a search apply."""

    measured_by: ClassVar[Literal["translations", "labels", "text", "gaps"]] = "translations"
    """The output that `tformer evaluate` compares with references."""
    training: ClassVar[Training | None] = None
    """How it is trained; None: only imports make such models."""

    @abstractmethod
    def opened(self, opening: Opening) -> Opened:
        """Connects a stored model with what computes."""

    def predictor(self, opened: Opened) -> PlacePredictor | None:  # noqa: ARG002 - most have none
        """Makes what predicts something at places of texts, of an opened model that does."""
        return None

    def scored_labels(
        self, opened: Opened, pairs: Sequence[tuple[str, str]], damaged: Damaged
    ) -> Iterator[list[ScoredLabel]]:
        """Scores the right labels of each text or image, given with a line of them."""
        raise NotImplementedError

    def serving(self, opened: Opened, verb: Verb) -> Serving:
        """Makes what computes a verb for a service, lines of several requests at once."""
        from tformer_cli.kinds.serving import WholeLines

        return WholeLines(opened, verb)

    def methods_in_words(self) -> str:
        """Lists the methods that work, for messages."""
        *others, last = (f"{name}()" for name in (*self.methods, "heads"))
        return f"{', '.join(others)} or {last}"
