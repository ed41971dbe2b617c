"""Results in a program's hands: sequences of what they hold, and tables in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

T = TypeVar("T")


class Several(ABC, Generic[T]):
    """A result that holds several of something, and is indexed, counted and iterated as they are.

    It is no `Sequence` of the standard library, whose method `index` hides the field of that name.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def _held(self) -> Sequence[T]:
        """The parts that it holds."""

    def __len__(self) -> int:
        return len(self._held)

    def __bool__(self) -> bool:
        # A result is there, of a blank line too, which has no label
        return True

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T]: ...
    def __getitem__(self, place: int | slice) -> T | Sequence[T]:
        return self._held[place]

    def __iter__(self) -> Iterator[T]:
        return iter(self._held)


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Makes a table; notebooks bring the style. A number has four decimal places."""
    from html import escape  # its table of names takes long to load

    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    # dir: each text runs in the direction of its own script
    return (
        f'<table dir="auto"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
