"""Sentences in, word alignments out: by the heads of a model, or of two in both directions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, TypeVar

from tformer_cli.data.pharaoh import Link, parse_links
from tformer_cli.errors import DataError
from tformer_cli.inspection.alignment.symmetrization import Symmetrization, symmetrize

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tformer_cli.data.pharaoh import GoldLinks
    from tformer_cli.decoding.translator import Translator
    from tformer_cli.inspection.alignment.words import WordTokens
    from tformer_cli.workflows.inspection.aligner import Aligner

BUFFER_LINES = 1024
"""Pairs that are sorted by length and captured together."""
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class PairTexts:
    """A sentence pair as it is read."""

    index: int
    """Number of the pair, from 0."""
    source: str
    """The source sentence."""
    target: str
    """The target sentence."""
    source_words: tuple[str, ...] | None = None
    """Words that spell the source; None: what white space separates."""
    target_words: tuple[str, ...] | None = None
    """Words that spell the target."""

    @property
    def is_blank(self) -> bool:
        """True if a side has nothing to align."""
        return not (self.source.strip() and self.target.strip())


@dataclass(frozen=True, kw_only=True)
class Bidirectional:
    """Way of joining the links of a second model."""

    reverse: Aligner
    """Aligner of a model that translates the other way."""
    method: Symmetrization = "grow-diag"
    """Way in which the links of both directions become one alignment."""


@dataclass
class AlignmentReport:
    """Counts of a stream of alignments; they grow as the stream continues."""

    lines: int = 0
    """Lines aligned."""
    truncated: int = 0
    """Pairs with a side that is longer than a model takes."""

    def add(self, pairs: Sequence[tuple[WordTokens, WordTokens]]) -> None:
        """Counts pairs that are aligned as they are given."""
        self.lines += len(pairs)
        self.truncated += sum(source.is_cut or target.is_cut for source, target in pairs)


def read_pairs(
    sources: Iterable[str],
    targets: Iterable[str],
    source_words: Iterable[str] | None = None,
    target_words: Iterable[str] | None = None,
) -> Iterator[PairTexts]:
    """Joins files line by line.

    Raises:
        DataError: if one ends before another.
    """
    names = ("the sources", "the targets", "the source words", "the target words")
    given = dict(zip(names, (sources, targets, source_words, target_words), strict=True))
    files = {name: lines for name, lines in given.items() if lines is not None}
    for index, row in enumerate(zip_longest(*files.values())):
        lines = dict(zip(files, row, strict=True))
        ended = next((name for name, line in lines.items() if line is None), None)
        if ended is not None:
            raise DataError(
                f"line {index + 1}: {ended} end before the other lines; give one for each"
            )
        words = [
            None if lines.get(name) is None else tuple(str(lines[name]).split())
            for name in names[2:]
        ]
        yield PairTexts(index, str(lines[names[0]]), str(lines[names[1]]), *words)


def read_gold(
    lines: Iterable[str], name: str, *, is_one_based: bool = False
) -> Iterator[GoldLinks]:
    """Reads gold alignments, a line a pair.

    Raises:
        DataError: naming the line that holds no links.
    """
    for number, line in enumerate(lines, 1):
        yield parse_links(line, f"{name}:{number}", is_one_based=is_one_based)


def with_links(
    pairs: Iterable[PairTexts], given: Iterable[GoldLinks], option: str
) -> Iterator[tuple[PairTexts, GoldLinks]]:
    """Puts its given links beside each pair.

    Args:
        pairs: the pairs.
        given: links of each.
        option: the option that names their file.

    Raises:
        DataError: if there are more or fewer than pairs.
    """
    links = iter(given)
    index = -1
    for index, pair in enumerate(pairs):
        found = next(links, None)
        if found is None:
            raise DataError(
                f"{option}: has {index} lines, but there are more pairs; give one for each"
            )
        yield pair, found
    if next(links, None) is not None:
        raise DataError(f"{option}: has more than {index + 1} lines; give one for each pair")


def check_links(
    links: GoldLinks,
    sides: tuple[WordTokens, WordTokens],
    index: int,
    option: str,
    units: str = "words",
) -> None:
    """Makes sure that given links are between words that are there.

    Args:
        links: the links of a pair.
        sides: its source and target.
        index: number of the pair, from 0.
        option: the option that names the links' file.
        units: name of what the links count.

    Raises:
        DataError: if a link is not.
    """
    n_source, n_target = (side.n_words for side in sides)
    for source, target in sorted(links.possible):
        if source >= n_source or target >= n_target:
            advice = (
                "give the words it counts by --source-words and --target-words"
                if units == "words"
                else "count those that `tformer tokenize encode` writes"
            )
            raise DataError(
                f"line {index + 1}: {option} links {source}-{target}, but there are "
                f"{n_source} and {n_target} {units}; {advice}"
            )


def align_pairs(
    aligner: Aligner,
    pairs: Iterable[PairTexts],
    bidirectional: Bidirectional | None = None,
    report: AlignmentReport | None = None,
    buffer_lines: int = BUFFER_LINES,
) -> Iterator[set[Link]]:
    """Aligns the words of given pairs.

    Args:
        aligner: of the model from source to target.
        pairs: the pairs.
        bidirectional: a second direction.
        report: is told of every buffer before its links are yielded.
        buffer_lines: pairs that are captured together.

    Yields:
        The links of each pair, in order; a pair with a blank side has none.
    """
    report = report or AlignmentReport()
    for buffer in in_buffers(pairs, buffer_lines):
        found = directed_links(aligner, buffer, report, is_reverse=False)
        if bidirectional is not None:
            back = directed_links(bidirectional.reverse, buffer, report, is_reverse=True)
            found = _joined(bidirectional.method, found, back)
        report.lines += len(buffer)
        yield from found


def align_translations(
    aligner: Aligner,
    translator: Translator,
    lines: Iterable[str],
    bidirectional: Bidirectional | None = None,
    report: AlignmentReport | None = None,
    buffer_lines: int = BUFFER_LINES,
) -> Iterator[set[Link]]:
    """Translates lines and aligns each with its best translation; see `align_pairs`."""
    report = report or AlignmentReport()
    for buffer in translator.buffers(lines, buffer_lines):
        aligned = aligner.align_translations(buffer)
        found: list[set[Link]] = [set(alignments[0].links) for alignments in aligned]
        if bidirectional is not None:
            pairs = [PairTexts(t.index, t.source, t.text) for t in buffer]
            back = directed_links(bidirectional.reverse, pairs, report, is_reverse=True)
            found = _joined(bidirectional.method, found, back)
        report.lines += len(buffer)
        report.truncated += sum(translation.is_truncated for translation in buffer)
        yield from found


def word_tokens(
    aligner: Aligner, pair: PairTexts, *, is_reverse: bool = False
) -> tuple[WordTokens, WordTokens]:
    """Encodes both sides of a pair and finds their words.

    Args:
        aligner: of the model whose tokens they are to be.
        pair: the two lines.
        is_reverse: true if the model translates the target into the source.
    """
    where = f"line {pair.index + 1}"
    sides = [aligner.tokenizer.source, aligner.tokenizer.target]
    ours, theirs = reversed(sides) if is_reverse else sides
    return (
        aligner.words(ours, pair.source, pair.source_words, f"source, {where}"),
        aligner.words(theirs, pair.target, pair.target_words, f"target, {where}"),
    )


def directed_links(
    aligner: Aligner, pairs: Sequence[PairTexts], report: AlignmentReport, *, is_reverse: bool
) -> list[set[Link]]:
    """The links of one model, source first whichever way it translates."""
    written = [pair for pair in pairs if not pair.is_blank]
    tokens = [word_tokens(aligner, pair, is_reverse=is_reverse) for pair in written]
    report.truncated += sum(source.is_cut or target.is_cut for source, target in tokens)
    if is_reverse:
        tokens = [(target, source) for source, target in tokens]
    found: dict[int, set[Link]] = {}
    for pair, alignment in zip(written, aligner.align_pairs(tokens), strict=True):
        links = set(alignment.links)
        found[pair.index] = {(s, t) for t, s in links} if is_reverse else links
    return [found.get(pair.index, set()) for pair in pairs]


def _joined(
    method: Symmetrization, forward: Sequence[set[Link]], reverse: Sequence[set[Link]]
) -> list[set[Link]]:
    return [symmetrize(method, there, back) for there, back in zip(forward, reverse, strict=True)]


def in_buffers(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yields items in groups of that many."""
    items = iter(items)
    while buffer := list(islice(items, size)):
        yield buffer
