"""Word alignments from cross-attention weights.

The decoder reads ``<s>``, y₁ … y_T, so a map has T + 1 rows; row i has read y_i and predicts
y_{i+1}. Which row is target token y_t's is a convention:

=====  =========  ==============================================================================
naive  row t − 1  the row that predicts it (attention with output, AWO)
shift  row t      the row that has read it (attention with input, AWI; SHIFT-ATT, Chen et al. 2020)
=====  =========  ==============================================================================

Tokens become words by the sum over a source word's tokens and the mean over a target word's (Clark
et al. 2019, section 4). A target word is then linked with its heaviest source word, or, with a
threshold, with every word whose weight reaches it.

Joining the alignments of two directions into one (Och & Ney 2003; Koehn et al. 2003).

The links of both directions are given source first. The intersection is precise, the union is
complete; grow-diag starts from the first and takes from the second what touches it and links two
words that are both still free. (Moses is content with one free word, which takes in far more: 5,953
links instead of 5,072 from GIZA++'s two directions of the WPT 2003 test set.)

Published outputs of grow-diag differ in a line out of a hundred, because the result depends on the
order in which links are looked at. Here the order is fixed: rounds over the links by source word,
then target word, and round each link its neighbors in the order of `NEIGHBORS`; what is added
counts at once. Rounds continue until one adds nothing.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from tformer_cli.errors import UsageError
from tformer_cli.heads.names import HeadId, HeadLayout, Kind
from tformer_cli.heads.selectors import select_heads
from tformer_cli.inspect.alignment.words import Numbers, WordTokens
from tformer_cli.inspect.capture.forced import AttentionMaps
from tformer_cli.text.pharaoh import Link

Convention = Literal["naive", "shift"]
CONVENTIONS: tuple[Convention, ...] = ("naive", "shift")
ALIGNING: tuple[Kind, ...] = ("cross",)
"""Attentions that see both sentences."""


@dataclass(frozen=True, kw_only=True)
class LinkRule:
    """Rule by which weights between words become links."""

    threshold: float | None = None
    """Link every pair of words from this weight on; None: a target word's heaviest source word."""
    keeps_eos: bool = False
    """True if a target word whose heaviest weight is on the end of sentence stays without link."""


def cross_heads(selections: Sequence[str], layout: HeadLayout) -> list[HeadId]:
    """Selects heads that can align."""
    heads = select_heads(selections, layout)
    for head in heads:
        if head.kind not in ALIGNING:
            raise UsageError(
                f'--heads: "{",".join(selections)}" selects {head}, but only cross-attention '
                "sees both sentences; select cross heads"
            )
    return heads


def default_selection(layout: HeadLayout) -> str:
    """The heads to align by where nothing better is known: the last half of the layers.

    Their mean has fewer errors than any head or layer of the models measured here, and includes the
    last layer but one, where Garg et al. 2019 begin. Layers whose heads are all pruned are not
    counted.
    """
    layers = [layer for layer, n_heads in enumerate(layout.cross) if n_heads]
    if not layers:
        raise UsageError(
            "MODEL: has no cross-attention head left to align words with; use the unpruned model"
        )
    first, last = layers[len(layers) // 2], layers[-1]
    return f"cross.{first}" if first == last else f"cross.{first}-{last}"


def head_mean(maps: AttentionMaps, heads: Sequence[HeadId]) -> Numbers:
    """(T, S) mean of the weights of heads; the begin and end of sentence are counted."""
    chosen = torch.stack([maps.weights(head) for head in heads])
    mean: Numbers = chosen.double().mean(dim=0).numpy()
    return mean


def word_weights(
    weights: Numbers, source: WordTokens, target: WordTokens, convention: Convention
) -> Numbers:
    """Turns weights between tokens into weights between words.

    Args:
        weights: (…, T + 1, S + 1) cross-attention of any number of heads: T target tokens and the
            begin of sentence, S source tokens and the end of sentence; (…, T + 1, S) of a model
            that does not read the latter.
        source: the S source tokens.
        target: the T target tokens.
        convention: which row is a target token's.
    """
    rows = weights[..., :-1, :] if convention == "naive" else weights[..., 1:, :]
    n_tokens = len(source.shares)
    at_end = rows[..., n_tokens:] if rows.shape[-1] > n_tokens else np.zeros_like(rows[..., :1])
    # (…, T, S) · (S, source words) -> (…, T, source words)
    on_words = np.concatenate([rows[..., :n_tokens] @ source.shares, at_end], axis=-1)
    means = target.shares / np.maximum(target.shares.sum(axis=0), 1e-12)
    combined: Numbers = means.T @ on_words
    return combined


def linked(weights: Numbers, rule: LinkRule) -> NDArray[np.bool_]:
    """Decides which words are linked."""
    on_words = weights[..., :-1]
    if on_words.shape[-1] == 0:
        return on_words > 0
    if rule.threshold is not None:
        return (on_words >= rule.threshold) & (on_words > 0)
    heaviest = on_words.argmax(axis=-1)[..., None]
    links = np.zeros(on_words.shape, dtype=bool)
    np.put_along_axis(links, heaviest, values=True, axis=-1)
    links &= on_words > 0  # a word without tokens has no heaviest
    if rule.keeps_eos:
        links &= on_words >= weights[..., -1:]
    return links


def links_of(is_linked: NDArray[np.bool_]) -> set[Link]:
    """The links of a (target words, source words) matrix, source first."""
    return {(int(source), int(target)) for target, source in np.argwhere(is_linked)}


NEIGHBORS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))
"""Steps (source, target) to the neighbors of a link: sides first, then corners."""

Symmetrization = Literal["intersection", "union", "grow-diag", "grow-diag-final-and"]


def symmetrize(
    method: Symmetrization, forward: AbstractSet[Link], reverse: AbstractSet[Link]
) -> set[Link]:
    return METHODS[method](forward, reverse)


def grow_diag(forward: AbstractSet[Link], reverse: AbstractSet[Link]) -> set[Link]:
    """Grows the intersection by neighbors from the union that link two free words."""
    links, union = set(forward & reverse), forward | reverse
    free = _FreeWords(links)
    is_growing = True
    while is_growing:
        near = [(s + a, t + b) for s, t in sorted(links) for a, b in NEIGHBORS]
        new = {link for link in near if link in union and free.take(link)}
        links |= new
        is_growing = bool(new)
    return links


def grow_diag_final_and(forward: AbstractSet[Link], reverse: AbstractSet[Link]) -> set[Link]:
    """Adds to grow-diag the links of two free words anywhere, those of `forward` first."""
    links = grow_diag(forward, reverse)
    free = _FreeWords(links)
    return links | {link for link in (*sorted(forward), *sorted(reverse)) if free.take(link)}


class _FreeWords:
    """The words that no link has taken yet."""

    def __init__(self, links: AbstractSet[Link]) -> None:
        self._sources = {source for source, _ in links}
        self._targets = {target for _, target in links}

    def take(self, link: Link) -> bool:
        """Takes both words of a link; says whether both were free."""
        source, target = link
        if source in self._sources or target in self._targets:
            return False
        self._sources.add(source)
        self._targets.add(target)
        return True


METHODS: dict[Symmetrization, Callable[[AbstractSet[Link], AbstractSet[Link]], set[Link]]] = {
    "intersection": lambda forward, reverse: set(forward & reverse),
    "union": lambda forward, reverse: set(forward | reverse),
    "grow-diag": grow_diag,
    "grow-diag-final-and": grow_diag_final_and,
}
"""Every method by its name."""
