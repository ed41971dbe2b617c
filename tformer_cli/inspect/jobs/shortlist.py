"""A lexical shortlist for a model, of the tokens that are aligned in a corpus."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, product
from typing import TYPE_CHECKING, Literal

import numpy as np

from tformer_cli.inspect.alignment.lexicon import Lexicon
from tformer_cli.inspect.alignment.words import WordTokens, words_of_text
from tformer_cli.inspect.jobs.align import (
    BUFFER_LINES,
    AlignmentReport,
    PairTexts,
    check_links,
    in_buffers,
    with_links,
)
from tformer_cli.search.hypothesis import longest_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.inspect.jobs.align import Aligner
    from tformer_cli.search.translator import Translator
    from tformer_cli.text.pharaoh import GoldLinks, Link
    from tformer_cli.text.tokenizer import Tokenizer, TokenizerSide

    LinkedTokens = tuple[Sequence[int], Sequence[int], Iterable[Link]]
    """Token ids of a source and of its target, and the links between their positions."""

Units = Literal["words", "pieces"]
N_FREQUENT = 100
"""Number of frequent tokens, as is Marian's default."""


def linked_by_model(
    aligner: Aligner, pairs: Iterable[PairTexts], report: AlignmentReport
) -> Iterator[LinkedTokens]:
    """Links each target token with the source token that it attends to most."""
    # Words are not asked for: not every language separates them by spaces.
    tokenizer = aligner.tokenizer
    for buffer in in_buffers(pairs, BUFFER_LINES):
        written = [pair for pair in buffer if not pair.is_blank]
        sources = tokenizer.source.encode_batch([pair.source for pair in written])
        targets = tokenizer.target.encode_batch([pair.target for pair in written])
        fitting = [
            (_as_words(source), _as_words(target))
            for source, target in zip(sources, targets, strict=True)
            if max(len(source), len(target)) <= aligner.longest
        ]
        report.truncated += len(written) - len(fitting)
        found = aligner.align_pairs(fitting)
        report.lines += len(buffer)
        for (source, target), alignment in zip(fitting, found, strict=True):
            yield source.ids, target.ids, alignment.links


def linked_as_given(
    directory: ModelDirectory,
    pairs: Iterable[PairTexts],
    links: Iterable[GoldLinks],
    units: Units,
    report: AlignmentReport,
) -> Iterator[LinkedTokens]:
    """Links tokens as given alignments do, possible links included."""
    tokenizer, longest = directory.tokenizer, longest_source(directory.config.max_positions)
    for pair, given in with_links(pairs, links, "--alignments"):
        report.lines += 1
        if pair.is_blank:
            continue
        source, target = sides = _sides(tokenizer, pair, units, longest)
        if source.is_cut or target.is_cut:
            report.truncated += 1
            continue
        check_links(given, sides, pair.index, "--alignments", units)
        yield source.ids, target.ids, _between_tokens(given.possible, sides)


def translated_pairs(translator: Translator, lines: Iterable[str]) -> Iterator[PairTexts]:
    for translation in translator.stream(lines):
        yield PairTexts(translation.index, translation.source, translation.text)


def lexicon_of(tokenizer: Tokenizer) -> Lexicon:
    """Makes a lexicon of a model's vocabularies, without counts."""
    return Lexicon(tokenizer.source.vocab_size, tokenizer.target.vocab_size)


def lexicon_lines(lexicon: Lexicon, tokenizer: Tokenizer, n_best: int) -> Iterator[str]:
    """Yields the lines ``target source probability`` that Marian reads as a shortlist."""
    sources, targets = (
        side.pieces(range(side.vocab_size)) for side in (tokenizer.source, tokenizer.target)
    )
    for source, target, probability in lexicon.entries(n_best):
        yield f"{targets[target]} {sources[source]} {probability:.7f}"


def _sides(
    tokenizer: Tokenizer, pair: PairTexts, units: Units, longest: int
) -> tuple[WordTokens, WordTokens]:
    def encoded(
        side: TokenizerSide, line: str, words: Sequence[str] | None, name: str
    ) -> WordTokens:
        if units == "words":
            where = f"{name}, line {pair.index + 1}"
            return words_of_text(side, line, words=words, longest=longest, where=where)[0]
        ids = side.encode(line)
        return replace(_as_words(ids[:longest]), is_cut=len(ids) > longest)

    return (
        encoded(tokenizer.source, pair.source, pair.source_words, "source"),
        encoded(tokenizer.target, pair.target, pair.target_words, "target"),
    )


def _as_words(ids: Sequence[int]) -> WordTokens:
    return WordTokens(tuple(ids), np.eye(len(ids)))


def _between_tokens(links: Iterable[Link], sides: tuple[WordTokens, WordTokens]) -> Iterator[Link]:
    source, target = ([np.flatnonzero(word).tolist() for word in side.shares.T] for side in sides)
    return chain.from_iterable(product(source[i], target[j]) for i, j in links)
