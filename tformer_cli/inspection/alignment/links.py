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
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from tformer_cli.data.pharaoh import Link
from tformer_cli.errors import UsageError
from tformer_cli.inspection.alignment.words import Numbers, WordTokens
from tformer_cli.inspection.capture.forced import AttentionMaps
from tformer_cli.inspection.capture.heads import HeadId, HeadLayout, Kind
from tformer_cli.inspection.heads.selectors import select_heads

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
    """Selects heads that can align.

    Raises:
        UsageError: if the selection cannot be read, or names heads of self-attention.
    """
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

    Raises:
        UsageError: if the model has no cross-attention head.
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

    Returns:
        (…, target words, source words + 1); the last column is the end of sentence. Rows sum to 1
        but for what lies on white space; words that have no token have zeros.
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
    """Decides which words are linked.

    Args:
        weights: (…, target words, source words + 1) from `word_weights`.
        rule: what makes a link.

    Returns:
        (…, target words, source words), True where there is a link.
    """
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
