"""Where a distillation shows how far it is."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tformer_cli.kinds.training import Progress
    from tformer_cli.recipe import Recipe
    from tformer_cli.training.events import TrainingObserver
    from tformer_cli.workflows.distillation.stages import Stage, State


class Display(Protocol):
    """Receives what happens."""

    def stage(self, stage: Stage, state: State) -> None:
        """Receives each stage before anything is done."""

    def say(self, text: str) -> None:
        """Receives a line about what takes long."""

    def lines(self, what: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Gives what is called with the number of lines done, of a total if it is known."""

    def training(
        self, recipe: Recipe
    ) -> AbstractContextManager[tuple[Sequence[TrainingObserver], Progress | None]]:
        """Gives observers of a training, and what is told of the preparation of its data."""


class Silent:
    """Shows nothing."""

    def stage(self, stage: Stage, state: State) -> None:
        """Takes no notice."""

    def say(self, text: str) -> None:
        """Takes no notice."""

    @contextmanager
    def lines(self, what: str, total: int | None) -> Iterator[Callable[[int], None]]:  # noqa: ARG002
        """Takes no notice of progress."""
        yield lambda n_lines: None  # noqa: ARG005

    @contextmanager
    def training(
        self,
        recipe: Recipe,  # noqa: ARG002
    ) -> Iterator[tuple[Sequence[TrainingObserver], Progress | None]]:
        """Observes nothing."""
        yield (), None
