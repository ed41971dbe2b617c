"""The heads that align words, and which words of an inspected pair they link.

Every view asks here which heads to begin with. Heads stored in the model directory come first:
measured against gold alignments, or named by the model file that was imported. Else it is the mean
of the last half of the layers, whose rows are read as words that stand unchanged in both sentences
say they have to be.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tformer_cli.artifacts.config_file import AlignmentInfo
from tformer_cli.heads.names import HeadId, HeadLayout
from tformer_cli.inspect.alignment.links import (
    Convention,
    LinkRule,
    cross_heads,
    default_selection,
    head_mean,
    linked,
    links_of,
    word_weights,
)
from tformer_cli.inspect.alignment.words import Numbers, spelled_words, words_of_ids
from tformer_cli.inspect.capture.forced import AttentionMaps
from tformer_cli.text.pharaoh import Link
from tformer_cli.text.tokenizer import Tokenizer

SHIFTED_FROM = 0.2
"""Weight on unchanged tokens that rows have to gain from being read one later; ours. In a sentence
or two of a hundred less is chance: 0 costs 0.3 to 0.7 points of the alignment error rate."""


@dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """Heads that align, how they are read, and the reason for them."""

    heads: str
    members: tuple[HeadId, ...]
    """Its heads; of several the mean aligns."""
    convention: Convention | None
    """Row that is a target token's; None: found for each sentence."""
    reason: Literal["given", "stored", "default"]

    def __str__(self) -> str:
        return f"{self.heads} ({', '.join(filter(None, (self.convention, self.reason)))})"

    @property
    def said(self) -> str:
        """The heads in words, for people who look at one sentence."""
        name = f"mean of {self.heads}" if len(self.members) > 1 else self.heads
        return f"{name} ({'stored' if self.reason == 'stored' else 'not measured'})"

    def weights(self, maps: AttentionMaps, tokenizer: Tokenizer) -> tuple[Numbers, Convention]:
        """(T, S) mean of the heads' weights for a pair, and the convention to read it by."""
        mean = head_mean(maps, self.members)
        return mean, self.convention or found_convention(mean, maps, tokenizer)


def choose_heads(
    layout: HeadLayout,
    stored: AlignmentInfo | None,
    given: Sequence[str] = (),
    convention: Convention | None = None,
) -> HeadChoice:
    """Chooses the heads to align by."""
    reason: Literal["given", "stored", "default"] = "default"
    selection = ""
    if given:
        reason, selection, convention = "given", ",".join(given), convention or "naive"
    elif stored is not None:
        reason, selection = "stored", stored.heads
        convention = convention or stored.convention
    selection = selection or default_selection(layout)
    members = tuple(cross_heads([selection], layout))
    return HeadChoice(heads=selection, members=members, convention=convention, reason=reason)


def found_convention(weights: Numbers, maps: AttentionMaps, tokenizer: Tokenizer) -> Convention:
    """Finds which rows of a map are the target tokens', by tokens that stay as they are.

    A name, a number or a mark that occurs once on either side translates itself. Some decoders look
    at it while they predict it, others when they have read it, a row later.

    Args:
        weights: (T, S) mean of some heads.
        maps: the pair's, for its tokens.
        tokenizer: the model's.
    """
    source, target = (
        [side.piece_bytes[token].strip() for token in ids]
        for side, ids in (
            (tokenizer.source, maps.source_tokens),
            (tokenizer.target, maps.target_ids[:-1]),
        )
    )
    counts = Counter(source), Counter(target)
    unchanged = [
        (target.index(piece), source.index(piece))
        for piece in counts[0]
        if piece and counts[0][piece] == counts[1][piece] == 1
    ]
    gain = sum(float(weights[row + 1, key] - weights[row, key]) for row, key in unchanged)
    return "shift" if gain > SHIFTED_FROM else "naive"


@dataclass(frozen=True, kw_only=True)
class AlignedWords:
    """The words of a sentence and its translation, and which go together."""

    choice: HeadChoice
    convention: Convention
    """Convention: the row that was read as a target token's."""
    source: tuple[str, ...]
    target: tuple[str, ...]
    links: frozenset[Link]
    """Pairs of a source and a target word, from 0; words that look most at the end of sentence have
    none."""
    order: tuple[HeadId, ...]
    """All cross-attention heads: those of the choice first, and of these the one with the largest
    weights on the links."""

    @property
    def by_target(self) -> list[tuple[str, str]]:
        """Each target word that is linked with its source word, in the order of the target."""
        ordered = sorted(self.links, key=lambda link: link[::-1])
        return [(self.target[target], self.source[source]) for source, target in ordered]


def align_words(
    tokenizer: Tokenizer, maps: AttentionMaps, choice: HeadChoice | None
) -> AlignedWords | None:
    """Aligns the words of a captured pair."""
    source = words_of_ids(tokenizer.source, maps.source_tokens)
    target = words_of_ids(tokenizer.target, maps.target_ids[:-1])
    if choice is None or not (source.n_words and target.n_words):
        return None
    mean, convention = choice.weights(maps, tokenizer)
    is_linked = linked(word_weights(mean, source, target, convention), LinkRule())
    heads = [
        HeadId("cross", layer, n) for layer, one in enumerate(maps.cross) for n in range(len(one))
    ]
    each = np.concatenate([layer.double().numpy() for layer in maps.cross])
    # (heads, target words, source words + 1) -> (heads)
    weights = word_weights(each, source, target, convention)
    agrees = (linked(weights, LinkRule()) & is_linked).sum(axis=(1, 2))
    on_links = (weights[..., :-1] * is_linked).sum(axis=(1, 2))
    worth = dict(zip(heads, zip(agrees.tolist(), on_links.tolist(), strict=True), strict=True))
    return AlignedWords(
        choice=choice,
        convention=convention,
        source=spelled_words(tokenizer.source, source.ids).texts,
        target=spelled_words(tokenizer.target, target.ids).texts,
        links=frozenset(links_of(is_linked)),
        order=tuple(
            sorted(heads, key=lambda head: (head in choice.members, worth[head]), reverse=True)
        ),
    )
