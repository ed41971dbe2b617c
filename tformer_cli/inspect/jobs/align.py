"""Word alignment by the cross-attention of a model, or of two models in both directions.

Heads are scored against gold alignments. Built-in corpora have gold links, so a run on them ends
with its best heads stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.artifacts.config_file import AlignmentInfo
from tformer_cli.artifacts.model_directory import load_model_directory, store_alignment
from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.heads.names import HeadId, HeadLayout, head_layout, layout_of
from tformer_cli.inspect.alignment import (
    ALIGNING,
    CONVENTIONS,
    METHODS,
    Convention,
    HeadChoice,
    LinkRule,
    Numbers,
    Symmetrization,
    WordTokens,
    choose_heads,
    cross_heads,
    default_selection,
    head_mean,
    link_words,
    links_of,
    symmetrize,
    word_weights,
    words_of_ids,
    words_of_text,
)
from tformer_cli.inspect.views.corpus import AlignmentScore, AlignmentScores
from tformer_cli.metrics.alignment_error import (
    AlignmentCounts,
    best_single_links,
    diagonal_links,
)
from tformer_cli.search.hypothesis import longest_source
from tformer_cli.sockets import load_place
from tformer_cli.text.lines import buffers
from tformer_cli.text.pharaoh import GoldLinks, Link, format_links, parse_links
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.inspect.capture.maps import AttentionMaps
    from tformer_cli.model.transformer import Transformer
    from tformer_cli.recipe import Recipe
    from tformer_cli.search.hypothesis import SourceAttention
    from tformer_cli.search.translator import Translation, Translator
    from tformer_cli.text.tokenizer import TokenizerSide

DECIMALS = 4  # Of soft alignments as they are written


@dataclass(frozen=True)
class WordAlignment:
    """Alignment of the words of a translation with those of its source."""

    weights: Numbers  # (target words, source words + 1); the last column is the end
    links: frozenset[Link]  # Links, source first

    @property
    def pharaoh(self) -> str:
        return format_links(self.links)

    @property
    def soft(self) -> list[list[float]]:
        rounded: list[list[float]] = np.round(self.weights, DECIMALS).tolist()
        return rounded


class Aligner:
    """Aligns words by some heads of one model.

    Attention that a search recorded is read without torch; other pairs take forced passes.
    """

    def __init__(
        self,
        directory: ModelDirectory,
        heads: Sequence[str] = (),
        convention: Convention | None = None,
        rule: LinkRule | None = None,
    ) -> None:
        self._directory = directory
        self.tokenizer = directory.tokenizer
        self.longest = longest_source(directory.config.max_positions)
        self.choice = _choice(directory, heads, convention)
        self.compared = CONVENTIONS if convention is None else (convention,)
        self.heads = tuple((layer, head) for _, layer, head in self.choice.members)
        self.rule = rule or LinkRule()

    @property
    def model(self) -> Transformer:
        """The model, which is made of its weights when it is first asked for."""
        return self._directory.model

    def listening(
        self, translator: Translator, is_needed: Callable[[str], bool] | None = None
    ) -> Translator:
        """Makes a translator whose search listens to the heads, so that no second pass is needed.

        Of an ensemble, which has no heads of its own, hypotheses come without, and are aligned by
        the first model. It may be needed for some lines only.
        """
        return translator.listening(self.heads, is_needed)

    def align_translations(self, translations: Sequence[Translation]) -> list[list[WordAlignment]]:
        """Aligns every hypothesis of translations, by attention of its search or a forced pass."""
        pairs: list[tuple[WordTokens, WordTokens]] = []
        attentions: list[SourceAttention | None] = []
        n_parts = []
        for translation in translations:
            source: list[WordTokens] = []
            if translation.n_parts:
                source = words_of_text(
                    self.tokenizer.source,
                    translation.source,
                    parts=translation.parts,
                    longest=self.longest,
                )
            for hypothesis in translation.hypotheses:
                ends = accumulate(hypothesis.part_lengths, initial=0)
                parts = [
                    words_of_ids(self.tokenizer.target, hypothesis.token_ids[start:end])
                    for start, end in (pairwise(ends) if source else ())
                ]
                pairs += zip(source, parts, strict=True)
                attentions += hypothesis.attention or [None] * len(parts)
                n_parts.append(len(parts))
        weights = iter(self.heard_weights(pairs, attentions))
        aligned = (self._join_parts([next(weights) for _ in range(n)]) for n in n_parts)
        return [[next(aligned) for _ in t.hypotheses] for t in translations]

    def heard_weights(
        self,
        pairs: Sequence[tuple[WordTokens, WordTokens]],
        attentions: Sequence[SourceAttention | None],
    ) -> list[Numbers]:
        """Turns recorded attention of pairs into weights of words; others take a forced pass."""
        weights = self.search_weights(pairs, attentions)
        missing = [index for index in range(len(pairs)) if index not in weights]
        if missing:
            others = self.word_weights([pairs[index] for index in missing])
            weights |= zip(missing, others, strict=True)
        return [weights[index] for index in range(len(pairs))]

    def search_weights(
        self,
        pairs: Sequence[tuple[WordTokens, WordTokens]],
        attentions: Sequence[SourceAttention | None],
    ) -> dict[int, Numbers]:
        """Turns recorded attention of pairs, by number, into weights of words, without torch."""
        weights_of: dict[int, Numbers] = {}
        for index, ((source, target), attention) in enumerate(zip(pairs, attentions, strict=True)):
            # Only attention of these heads for these very tokens
            if attention is None or attention.heads != self.heads:
                continue
            n_rows, n_columns = attention.weights.shape
            if n_rows != len(target.ids) + 1 or n_columns - len(source.ids) not in (0, 1):
                continue
            weights = attention.weights.astype(np.float64)
            convention = self.choice.read_by(weights, source.ids, target.ids, self.tokenizer)
            weights_of[index] = word_weights(weights, source, target, convention)
        return weights_of

    def align_pairs(self, pairs: Sequence[tuple[WordTokens, WordTokens]]) -> list[WordAlignment]:
        return [self._join_parts([weights]) for weights in self.word_weights(pairs)]

    def word_weights(self, pairs: Sequence[tuple[WordTokens, WordTokens]]) -> list[Numbers]:
        """For each pair the (target words, source words + 1) weights of the chosen heads."""
        # Not at the top: it loads torch
        from tformer_cli.inspect.capture.forced import capture_pairs

        by_pair: list[Any] = [None] * len(pairs)
        ids = [(source.ids, target.ids) for source, target in pairs]
        for index, maps in capture_pairs(self.model, ids, ALIGNING):
            weights, convention = self.choice.weights(maps, self.tokenizer)
            by_pair[index] = word_weights(weights, *pairs[index], convention)
        return by_pair

    def _join_parts(self, parts: Sequence[Numbers]) -> WordAlignment:
        """Puts the parts of a line below each other: their columns are all the line's words."""
        if not parts:
            return WordAlignment(np.zeros((0, 1)), frozenset())
        weights = np.concatenate(parts)
        return WordAlignment(weights, frozenset(links_of(link_words(weights, self.rule))))


def _choice(
    directory: ModelDirectory, heads: Sequence[str], convention: Convention | None
) -> HeadChoice:
    stored = directory.info.alignment
    try:
        return choose_heads(layout_of(directory.config), stored, heads, convention)
    except UsageError as error:
        if heads or stored is None:
            raise
        raise ArtifactError(
            f"{directory.path}: alignment.heads: {error}; run inspect-align --save again"
        ) from None


BUFFER_LINES = 1024  # Pairs that are sorted by length and captured together


@dataclass(frozen=True, slots=True)
class PairTexts:
    """A sentence pair of the input."""

    index: int
    source: str
    target: str
    source_words: tuple[str, ...] | None = None  # None: what white space separates
    target_words: tuple[str, ...] | None = None

    @property
    def is_blank(self) -> bool:
        return is_blank(self.source) or is_blank(self.target)


@dataclass(frozen=True, kw_only=True)
class Bidirectional:
    """Way of joining the links of a second model."""

    reverse: Aligner  # Aligner of a model that translates the other way
    method: Symmetrization = "grow-diag"  # Joins the links of both directions

    def join_links(
        self, forward: list[set[Link]], pairs: Sequence[PairTexts], report: AlignmentReport
    ) -> list[set[Link]]:
        """Joins the links of pairs with those of the reverse direction."""
        back = directed_links(self.reverse, pairs, report, is_reverse=True)
        return [symmetrize(self.method, *both) for both in zip(forward, back, strict=True)]


@dataclass
class AlignmentReport:
    """Counts of a stream of alignments; they grow as the stream continues."""

    lines: int = 0
    truncated: int = 0  # Pairs with a side that is longer than a model takes

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
    lines_of = dict(zip(names, (sources, targets, source_words, target_words), strict=True))
    files = {name: lines for name, lines in lines_of.items() if lines is not None}
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
    pairs: Iterable[PairTexts], gold_links: Iterable[GoldLinks], option: str
) -> Iterator[tuple[PairTexts, GoldLinks]]:
    links = iter(gold_links)
    index = -1
    for index, pair in enumerate(pairs):
        gold = next(links, None)
        if gold is None:
            raise DataError(
                f"{option}: has {index} lines, but there are more pairs; give one for each"
            )
        yield pair, gold
    if next(links, None) is not None:
        raise DataError(f"{option}: has more than {index + 1} lines; give one for each pair")


def check_links(
    links: GoldLinks,
    sides: tuple[WordTokens, WordTokens],
    index: int,
    option: str,
    units: str = "words",
) -> None:
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
    for buffer in buffers(pairs, buffer_lines):
        links = directed_links(aligner, buffer, report, is_reverse=False)
        if bidirectional is not None:
            links = bidirectional.join_links(links, buffer, report)
        report.lines += len(buffer)
        yield from links


def align_translations(
    aligner: Aligner,
    translator: Translator,
    lines: Iterable[str],
    bidirectional: Bidirectional | None = None,
    report: AlignmentReport | None = None,
    buffer_lines: int = BUFFER_LINES,
) -> Iterator[set[Link]]:
    report = report or AlignmentReport()
    for buffer in aligner.listening(translator).buffers(lines, buffer_lines):
        aligned = aligner.align_translations(buffer)
        links: list[set[Link]] = [set(alignments[0].links) for alignments in aligned]
        if bidirectional is not None:
            pairs = [PairTexts(t.index, t.source, t.text) for t in buffer]
            links = bidirectional.join_links(links, pairs, report)
        report.lines += len(buffer)
        report.truncated += sum(translation.is_truncated for translation in buffer)
        yield from links


def word_tokens(
    aligner: Aligner, pair: PairTexts, *, is_reverse: bool = False
) -> tuple[WordTokens, WordTokens]:
    def split(side: TokenizerSide, line: str, words: Sequence[str] | None, name: str) -> WordTokens:
        where, longest = f"{name}, line {pair.index + 1}", aligner.longest
        return words_of_text(side, line, words=words, longest=longest, where=where)[0]

    sides = [aligner.tokenizer.source, aligner.tokenizer.target]
    ours, theirs = reversed(sides) if is_reverse else sides
    return (
        split(ours, pair.source, pair.source_words, "source"),
        split(theirs, pair.target, pair.target_words, "target"),
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
    by_index: dict[int, set[Link]] = {}
    for pair, alignment in zip(written, aligner.align_pairs(tokens), strict=True):
        links = set(alignment.links)
        by_index[pair.index] = {(s, t) for t, s in links} if is_reverse else links
    return [by_index.get(pair.index, set()) for pair in pairs]


Tokens = tuple["WordTokens", "WordTokens"]


def candidates_of(layout: HeadLayout) -> dict[str, Sequence[HeadId]]:
    """Names every cross-attention head, every layer for its mean, and the default's mean."""
    candidates: dict[str, Sequence[HeadId]] = {}
    for layer, n_heads in enumerate(layout.cross):
        heads = [HeadId("cross", layer, head) for head in range(n_heads)]
        candidates |= {str(head): [head] for head in heads}
        candidates[f"cross.{layer}"] = heads
    name = default_selection(layout)
    return candidates | {name: cross_heads([name], layout)}


def score_model(
    aligner: Aligner, pairs: Iterable[PairTexts], gold: Iterable[GoldLinks], report: AlignmentReport
) -> Iterator[AlignmentScores]:
    from tformer_cli.inspect.capture.forced import capture_pairs

    is_given = aligner.choice.reason == "given"
    tally = _Tally(
        {aligner.choice.heads: aligner.choice.members}
        if is_given
        else candidates_of(head_layout(aligner.model)),
        aligner.compared,
        aligner.rule,
    )
    bounds = _Bounds()
    for buffer in buffers(with_links(pairs, gold, "--gold"), BUFFER_LINES):
        tokens = [word_tokens(aligner, pair) for pair, _ in buffer]
        for sides, (pair, answer) in zip(tokens, buffer, strict=True):
            bounds.add(sides, answer, pair.index)
        report.add(tokens)
        ids = [(source.ids, target.ids) for source, target in tokens]
        for place, maps in capture_pairs(aligner.model, ids, ALIGNING):
            tally.add(maps, tokens[place], buffer[place][1])
        yield AlignmentScores(scores=tally.scores(), floor=bounds.floor, ceiling=bounds.ceiling)


def score_directions(
    aligner: Aligner,
    reverse: Aligner,
    pairs: Iterable[PairTexts],
    gold: Iterable[GoldLinks],
    report: AlignmentReport,
) -> Iterator[AlignmentScores]:
    counts = {name: AlignmentCounts() for name in ("forward", "reverse", *METHODS)}
    bounds = _Bounds()
    for buffer in buffers(with_links(pairs, gold, "--gold"), BUFFER_LINES):
        texts = [pair for pair, _ in buffer]
        forward = directed_links(aligner, texts, report, is_reverse=False)
        backward = directed_links(reverse, texts, report, is_reverse=True)
        for (pair, answer), there, back in zip(buffer, forward, backward, strict=True):
            bounds.add(word_tokens(aligner, pair), answer, pair.index)
            counts["forward"].add(there, answer)
            counts["reverse"].add(back, answer)
            for method in METHODS:
                counts[method].add(symmetrize(method, there, back), answer)
        report.lines += len(buffer)
        scores = [AlignmentScore(name=n, convention=None, counts=c) for n, c in counts.items()]
        yield AlignmentScores(scores=scores, floor=bounds.floor, ceiling=bounds.ceiling)


class _Bounds:
    """Bounds that the scores are compared with."""

    def __init__(self) -> None:
        self.floor, self.ceiling = AlignmentCounts(), AlignmentCounts()

    def add(self, sides: Tokens, gold: GoldLinks, index: int) -> None:
        check_links(gold, sides, index, "--gold")
        n_source, n_target = (side.n_words for side in sides)
        self.floor.add(diagonal_links(n_source, n_target), gold)
        self.ceiling.add(best_single_links(gold), gold)


class _Tally:
    """The sums of every candidate in every convention."""

    def __init__(
        self,
        candidates: Mapping[str, Sequence[HeadId]],
        conventions: Sequence[Convention],
        rule: LinkRule,
    ) -> None:
        self._candidates, self._conventions, self._rule = candidates, conventions, rule
        # found, found and sure, found and possible
        self._sums = np.zeros((3, len(candidates), len(conventions)), dtype=np.int64)
        self._n_sure = 0

    def add(self, maps: AttentionMaps, sides: Tokens, gold: GoldLinks) -> None:
        source, target = sides
        answers = np.zeros((3, target.n_words, source.n_words), dtype=bool)
        answers[0] = True
        for place, links in enumerate(gold, 1):
            for s, t in links:
                answers[place, t, s] = True
        self._n_sure += len(gold.sure)
        weights = np.stack([head_mean(maps, heads) for heads in self._candidates.values()])
        for column, convention in enumerate(self._conventions):
            links_found = link_words(word_weights(weights, source, target, convention), self._rule)
            # (candidates, target words, source words), three times -> (3, candidates)
            self._sums[:, :, column] += (links_found & answers[:, None]).sum(axis=(2, 3))

    def scores(self) -> list[AlignmentScore]:
        return [
            AlignmentScore(
                name=name,
                convention=convention,
                counts=AlignmentCounts(
                    n_links=int(self._sums[0, row, column]),
                    sure=self._n_sure,
                    found_sure=int(self._sums[1, row, column]),
                    found_possible=int(self._sums[2, row, column]),
                ),
            )
            for row, name in enumerate(self._candidates)
            for column, convention in enumerate(self._conventions)
        ]


GOLD_PAIRS = "tformer_cli.plugins.built_in.gold_pairs:gold_pairs"


def store_measured_heads(recipe: Recipe, run: Path) -> AlignmentScore | None:
    """Stores which cross-attention heads of a run align best, if its corpus has gold links."""
    if recipe.task.kind != "translate":
        return None
    pairs = [pair for corpus in recipe.data.train[:1] for pair in load_place(GOLD_PAIRS)(corpus)]
    if not pairs:
        return None
    directory = load_model_directory(run)
    if directory.info.alignment is not None or not any(head_layout(directory.model).cross):
        return None
    texts, gold = zip(*pairs, strict=True)
    *_, scores = score_model(Aligner(directory), texts, gold, AlignmentReport())
    best = scores.best
    store_alignment(run, AlignmentInfo(heads=best.name, convention=best.convention or "naive"))
    return best
