"""Results of methods, which are computed as they are read, and are a sequence as well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from tformer_cli.search.hypothesis import Several
from tformer_cli.show.notebook import html_table
from tformer_cli.text.pharaoh import format_links

if TYPE_CHECKING:
    from collections.abc import Callable

    from tformer_cli.text.pharaoh import Link

T = TypeVar("T")
_END = object()


class Results(Sequence[T], Iterator[T]):
    """Results of lines, in order: computed while they are read, and a sequence as well.

    A loop gets each result when its buffer is done, and nothing is kept; another loop computes them
    again. Indexing, `len` and printing compute and keep all of them. If the lines are themselves a
    stream, such as a generator, results taken by a loop are gone.
    """

    again: Callable[[], Results[T]] | None = None
    """Recomputes the same results; None if the lines can be read only once."""

    def __init__(
        self,
        results: Iterator[T],
        page: Callable[[Sequence[T]], str] | None = None,
        printed: Callable[[Sequence[T]], str] | None = None,
    ) -> None:
        """Takes the function that computes them, and perhaps what renders all as HTML, as text."""
        self._unread: Iterator[T] | None = results
        self._rest: Iterator[T] | None = None  # Being read by `next`, or by any loop over a stream
        self._n_taken = 0
        self._kept: list[T] | None = None
        self._page, self._printed = page, printed

    def _fresh(self) -> Iterator[T]:
        iterator, self._unread = self._unread, None
        if iterator is None:
            if self.again is None:
                raise RuntimeError("two loops read the same stream")
            iterator = self.again()._fresh()
        return iterator

    def __next__(self) -> T:
        if self._kept is not None:
            if self._n_taken == len(self._kept):
                raise StopIteration
            result = self._kept[self._n_taken]
        else:
            if self._rest is None:
                self._rest = self._fresh()
            result = next(self._rest)
        self._n_taken += 1
        return result

    def __iter__(self) -> Iterator[T]:  # noqa: PYI034 - loops do not share their place
        # A generator: list() asks for the length first, which would compute everything
        if self._kept is not None:
            yield from self._kept
        elif self._rest is None and self.again is not None:
            yield from self._fresh()
        else:
            while (result := next(self, _END)) is not _END:
                yield cast("T", result)

    def _all(self) -> list[T]:
        if self._kept is None:
            if self._rest is not None and self.again is None:
                # A TypeError, which list() ignores: it has the rest
                raise TypeError(
                    f"a loop has consumed {self._n_taken} of the results, and a stream of lines "
                    "cannot be read again; keep them in a list() first"
                )
            self._kept = list(self._fresh())
        return self._kept

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        return self._all()[place]

    def __repr__(self) -> str:
        # Debuggers ask for it at any moment, so nothing is computed
        if self._kept is None:
            return f"<results: {self._n_taken} taken; print, index or iterate to compute>"
        return repr(self._kept)

    def __str__(self) -> str:
        results = self._all()
        return "\n".join(map(str, results)) if self._printed is None else self._printed(results)

    def __reduce__(self) -> tuple[Callable[..., Results[T]], tuple[object, ...]]:
        # A process that computed them may return them
        return restore_results, (self._all(), self._page, self._printed)

    @property
    def text(self) -> str:
        """The text that `print` shows: for translations, one a line."""
        return str(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ANN401, ARG002
        """Shows the results in IPython, where a repr would only say that they are pending."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        results = self._all()
        if self._page is not None:
            return self._page(results)
        return "\n".join(result._repr_html_() for result in results)  # type: ignore[attr-defined]


def restore_results(results: list[T], *shown: Any) -> Results[T]:  # noqa: ANN401 - as of `Results`
    """Makes pickled results again."""
    again: Results[T] = Results(iter(results), *shown)
    again._kept = results
    return again


@dataclass(frozen=True, kw_only=True)
class AlignedPair(Several["Link"]):
    """A sentence pair and its aligned words; white space separates words."""

    index: int
    source: str
    target: str
    """The translation, or the given target."""
    links: tuple[Link, ...]
    """A source word and a target word, numbered from 0."""

    @property
    def _held(self) -> tuple[Link, ...]:
        return self.links

    @property
    def text(self) -> str:
        """The translation, or the given target."""
        return self.target

    @property
    def words(self) -> list[tuple[str, str]]:
        """The aligned words."""
        source, target = self.source.split(), self.target.split()
        return [(source[s], target[t]) for s, t in self.links]

    def __str__(self) -> str:
        return format_links(self.links)

    def _repr_html_(self) -> str:
        return html_table(self.source, ("source", "target"), self.words)


@dataclass(frozen=True)
class TokenizedText(Several[str]):
    """A text and its tokens."""

    index: int
    text: str
    pieces: tuple[str, ...]
    """Readable labels of the tokens, as `tformer tokenize encode` writes them."""
    ids: tuple[int, ...]

    @property
    def _held(self) -> tuple[str, ...]:
        return self.pieces

    def __str__(self) -> str:
        return " ".join(self.pieces)

    def _repr_html_(self) -> str:
        return html_table(self.text, self.pieces, [self.ids])
