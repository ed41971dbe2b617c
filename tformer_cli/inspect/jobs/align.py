"""Word alignment by the cross-attention of a model, or of two models in both directions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, islice, pairwise, zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.heads.names import head_layout
from tformer_cli.inspect.alignment.chosen import HeadChoice, choose_heads
from tformer_cli.inspect.alignment.links import (
    ALIGNING,
    CONVENTIONS,
    Convention,
    LinkRule,
    Symmetrization,
    linked,
    links_of,
    symmetrize,
    word_weights,
)
from tformer_cli.inspect.alignment.words import Numbers, WordTokens, words_of_ids, words_of_text
from tformer_cli.inspect.capture.batches import capture_pairs
from tformer_cli.search.hypothesis import longest_source
from tformer_cli.text.pharaoh import Link, format_links, parse_links

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.search.translator import TranslatedText, Translation, Translator
    from tformer_cli.text.pharaoh import GoldLinks
    from tformer_cli.text.tokenizer import TokenizerSide

DECIMALS = 4
"""Of soft alignments as they are written."""


@dataclass(frozen=True)
class WordAlignment:
    """Alignment of the words of a translation with those of its source."""

    weights: Numbers
    """(target words, source words + 1) attention of each target word; the last column is the end
    of sentence."""
    links: frozenset[Link]
    """Links, source first."""

    @property
    def pharaoh(self) -> str:
        return format_links(self.links)

    @property
    def soft(self) -> list[list[float]]:
        """The weights, rounded to `DECIMALS`."""
        rounded: list[list[float]] = np.round(self.weights, DECIMALS).tolist()
        return rounded


class Aligner:
    """Aligns words by some heads of one model, with batched teacher-forced passes."""

    def __init__(
        self,
        directory: ModelDirectory,
        heads: Sequence[str] = (),
        convention: Convention | None = None,
        rule: LinkRule | None = None,
    ) -> None:
        self.tokenizer = directory.tokenizer
        self.longest = longest_source(directory.model.config.max_positions)
        self.choice = _choice(directory, heads, convention)
        self.compared = CONVENTIONS if convention is None else (convention,)
        self.model = directory.model
        self.rule = rule or LinkRule()

    def align_translations(self, translations: Sequence[Translation]) -> list[list[WordAlignment]]:
        """Aligns every hypothesis of translations: one forced pass over exactly its tokens."""
        pairs: list[tuple[WordTokens, WordTokens]] = []
        n_parts = []
        for translation in translations:
            source = self._source_parts(translation)
            for hypothesis in translation.hypotheses:
                parts = self._hypothesis_parts(hypothesis) if source else []
                pairs += zip(source, parts, strict=True)
                n_parts.append(len(parts))
        weights = iter(self.word_weights(pairs))
        aligned = (self._joined([next(weights) for _ in range(n)]) for n in n_parts)
        return [[next(aligned) for _ in t.hypotheses] for t in translations]

    def align_pairs(self, pairs: Sequence[tuple[WordTokens, WordTokens]]) -> list[WordAlignment]:
        return [self._joined([weights]) for weights in self.word_weights(pairs)]

    def word_weights(self, pairs: Sequence[tuple[WordTokens, WordTokens]]) -> list[Numbers]:
        """For each pair the (target words, source words + 1) weights of the chosen heads."""
        found: list[Any] = [None] * len(pairs)
        ids = [(source.ids, target.ids) for source, target in pairs]
        for index, maps in capture_pairs(self.model, ids, ALIGNING):
            weights, convention = self.choice.weights(maps, self.tokenizer)
            found[index] = word_weights(weights, *pairs[index], convention)
        return found

    def words(
        self,
        side: TokenizerSide,
        line: str,
        words: Sequence[str] | None = None,
        where: str = "the line",
    ) -> WordTokens:
        """Encodes a line and finds its words; what is too long for the model is skipped."""
        found = words_of_text(side, line, words=words, longest=self.longest, where=where)
        return found[0]

    def _source_parts(self, translation: Translation) -> list[WordTokens]:
        if not translation.n_parts:
            return []
        return words_of_text(
            self.tokenizer.source, translation.source, parts=translation.parts, longest=self.longest
        )

    def _hypothesis_parts(self, hypothesis: TranslatedText) -> list[WordTokens]:
        ends = accumulate(hypothesis.part_lengths, initial=0)
        return [
            words_of_ids(self.tokenizer.target, hypothesis.token_ids[start:end])
            for start, end in pairwise(ends)
        ]

    def _joined(self, parts: Sequence[Numbers]) -> WordAlignment:
        """Puts the parts of a line below each other: their columns are all the line's words."""
        if not parts:
            return WordAlignment(np.zeros((0, 1)), frozenset())
        weights = np.concatenate(parts)
        return WordAlignment(weights, frozenset(links_of(linked(weights, self.rule))))


def _choice(
    directory: ModelDirectory, heads: Sequence[str], convention: Convention | None
) -> HeadChoice:
    stored = directory.info.alignment
    try:
        return choose_heads(head_layout(directory.model), stored, heads, convention)
    except UsageError as error:
        if heads or stored is None:
            raise
        raise ArtifactError(
            f"{directory.path}: alignment.heads: {error}; run inspect-align --save again"
        ) from None


BUFFER_LINES = 1024
"""Pairs that are sorted by length and captured together."""
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class PairTexts:
    """A sentence pair as it is read."""

    index: int
    source: str
    target: str
    source_words: tuple[str, ...] | None = None
    """Words that spell the source; None: what white space separates."""
    target_words: tuple[str, ...] | None = None

    @property
    def is_blank(self) -> bool:
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
    truncated: int = 0
    """Pairs with a side that is longer than a model takes."""

    def add(self, pairs: Sequence[tuple[WordTokens, WordTokens]]) -> None:
        self.lines += len(pairs)
        self.truncated += sum(source.is_cut or target.is_cut for source, target in pairs)


def read_pairs(
    sources: Iterable[str],
    targets: Iterable[str],
    source_words: Iterable[str] | None = None,
    target_words: Iterable[str] | None = None,
) -> Iterator[PairTexts]:
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
    for number, line in enumerate(lines, 1):
        yield parse_links(line, f"{name}:{number}", is_one_based=is_one_based)


def with_links(
    pairs: Iterable[PairTexts], given: Iterable[GoldLinks], option: str
) -> Iterator[tuple[PairTexts, GoldLinks]]:
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
    """Makes sure that given links are between words that are there."""
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
    """Encodes both sides of a pair and finds their words."""
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
    items = iter(items)
    while buffer := list(islice(items, size)):
        yield buffer
