"""Source words of each word of an inspected translation, by the best head known.

What `inspect-align --save` stored in the model directory is the best by gold alignments. Where
nothing is stored, the cross-attention head with the most confident rows of this very sentence is
read, each row as the position that predicts.
"""

from dataclasses import dataclass

from tformer_cli.data.pharaoh import Link
from tformer_cli.data.tokenizer import Tokenizer
from tformer_cli.inspection.alignment.links import (
    Convention,
    LinkRule,
    head_mean,
    linked,
    links_of,
    word_weights,
)
from tformer_cli.inspection.alignment.words import spelled_words, words_of_ids
from tformer_cli.inspection.capture.forced import AttentionMaps
from tformer_cli.inspection.capture.heads import HeadId


@dataclass(frozen=True, kw_only=True)
class StoredHeads:
    """The heads that a model directory says align best."""

    name: str
    """Their selection."""
    heads: tuple[HeadId, ...]
    """The heads; of several the mean."""
    convention: Convention
    """Convention: the row that is a target token's."""


@dataclass(frozen=True, kw_only=True)
class AlignedWords:
    """The words of a sentence and its translation, and which go together."""

    heads: str
    """Head or layer whose weights were used."""
    convention: Convention
    """Convention: the row that was read as a target token's."""
    is_stored: bool
    """True if the heads were stored as the best; else they are the most confident here."""
    source: tuple[str, ...]
    """Source words, between white space."""
    target: tuple[str, ...]
    """Target words."""
    links: frozenset[Link]
    """Pairs of a source and a target word, from 0; words that look most at the end of sentence have
    none."""

    @property
    def by_target(self) -> list[tuple[str, str]]:
        """Each target word that is linked with its source word, in the order of the target."""
        ordered = sorted(self.links, key=lambda link: link[::-1])
        return [(self.target[target], self.source[source]) for source, target in ordered]


def align_words(
    tokenizer: Tokenizer, maps: AttentionMaps, stored: StoredHeads | None
) -> AlignedWords | None:
    """Aligns the words of a captured pair.

    Args:
        tokenizer: the model's.
        maps: the pair's maps.
        stored: the heads to read, if they are known.

    Returns:
        The alignment; None where a side has no word or the model no cross-attention head.
    """
    if stored is None:
        head = most_confident_cross(maps)
        if head is None:
            return None
        heads, name, convention = [head], str(head), _NAIVE
    else:
        heads, name, convention = list(stored.heads), stored.name, stored.convention
    source = words_of_ids(tokenizer.source, maps.source_tokens)
    target = words_of_ids(tokenizer.target, maps.target_ids[:-1])
    if not (source.n_words and target.n_words):
        return None
    weights = word_weights(head_mean(maps, heads), source, target, convention)
    return AlignedWords(
        heads=name,
        convention=convention,
        is_stored=stored is not None,
        source=spelled_words(tokenizer.source, source.ids).texts,
        target=spelled_words(tokenizer.target, target.ids).texts,
        links=frozenset(links_of(linked(weights, LinkRule()))),
    )


def most_confident_cross(maps: AttentionMaps) -> HeadId | None:
    """The cross-attention head whose rows have the largest weights, the end of sentence excluded.

    Returns:
        The first of equals; None if there is no such head, or no source token.
    """
    found: list[tuple[float, HeadId]] = []
    for layer, weights in enumerate(maps.cross):
        if weights.numel() and maps.source_tokens:
            # (H, T, S) -> (H)
            confidence = weights[..., : len(maps.source_tokens)].amax(dim=-1).mean(dim=-1).tolist()
            found += [(mean, HeadId("cross", layer, head)) for head, mean in enumerate(confidence)]
    return max(found, key=lambda item: item[0])[1] if found else None


_NAIVE: Convention = "naive"
