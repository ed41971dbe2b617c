"""Word alignment by a model's cross-attention."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tformer_cli.data.pharaoh import Link, format_links
from tformer_cli.decoding.hypothesis import longest_source
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.inspection.alignment.chosen import HeadChoice, choose_heads
from tformer_cli.inspection.alignment.links import (
    ALIGNING,
    CONVENTIONS,
    Convention,
    LinkRule,
    linked,
    links_of,
    word_weights,
)
from tformer_cli.inspection.alignment.words import Numbers, WordTokens, words_of_ids, words_of_text
from tformer_cli.inspection.capture.batches import capture_pairs
from tformer_cli.inspection.capture.heads import head_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tformer_cli.artifacts.model_directory import ModelDirectory
    from tformer_cli.data.tokenizer import TokenizerSide
    from tformer_cli.decoding.translator import TranslatedText, Translation

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
        """The links as Pharaoh text."""
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
        """Chooses the heads.

        Args:
            directory: an opened model directory.
            heads: cross-attention heads, of several the mean; none: those stored in the directory,
                else the mean of the last half of the layers.
            convention: which row is a target token's; None: see `choose_heads`.
            rule: which weights become links.

        Raises:
            UsageError: if the heads cannot align.
            ArtifactError: if what the directory stores names no heads of this model.
        """
        self.tokenizer = directory.tokenizer
        self.longest = longest_source(directory.model.config.max_positions)
        self.choice = _choice(directory, heads, convention)
        self.compared = CONVENTIONS if convention is None else (convention,)
        self.model = directory.model
        self.rule = rule or LinkRule()

    def align_translations(self, translations: Sequence[Translation]) -> list[list[WordAlignment]]:
        """Aligns every hypothesis of translations: one forced pass over exactly its tokens.

        Returns:
            For each translation an alignment a hypothesis; those of blank lines have no words.
        """
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
        """Aligns given sentence pairs."""
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
        """Encodes a line and finds its words; what is too long for the model is skipped.

        Args:
            side: of `tokenizer`, the one of the line's language.
            line: the text.
            words: its words, where they are not what stands between spaces.
            where: what messages call the line.
        """
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
