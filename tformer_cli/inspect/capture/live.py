"""The attention maps of a hypothesis as the search that found it computed them.

`forced.capture_maps` runs a hypothesis through the decoder once more; here the rows are gathered
while the search is at work, on its cache, beside every other hypothesis of every sentence of the
batch. To a search a `RecordingModel` is the model: it hands everything on and records what passes
by. At each step it keeps every row's weights, the token the row read, and the row of the step
before that it continues (the back-pointer, which the search tells its cache). The maps of a
hypothesis are the rows on its way back to the begin of sentence. That these are what the model used
is measured at each of its rows, as in `forced`.

Everything that a search may still come back to is kept: about W·T·(S + T) numbers a head.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tformer_cli.inspect.capture.forced import (
    AttentionMaps,
    Place,
    TappedAttention,
    joined,
    recomputed,
    tapped_attentions,
)
from tformer_cli.inspect.capture.search_tree import SearchStep, SearchTree, grow_tree
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, ended_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tformer_cli.heads.names import Kind
    from tformer_cli.model.attention import AttentionTap
    from tformer_cli.model.cache import DecoderCache
    from tformer_cli.model.operations import Product
    from tformer_cli.model.stacks import DecoderLayer, Stack
    from tformer_cli.model.transformer import Transformer
    from tformer_cli.search.config import DecodingConfig


ENCODER: tuple[Kind, ...] = ("enc",)
DECODER: tuple[Kind, ...] = ("dec", "cross")


@dataclass(frozen=True, kw_only=True)
class _Step(SearchStep):
    """One step of a search, with the attention of its R rows."""

    sentences: list[int]
    """(R) the encoded sentence that each row belongs to."""
    tapped: dict[Place, TappedAttention]
    """Weights (R, H, K) and errors (R, H) of each attention."""


@dataclass
class _Search:
    """Recording of one search."""

    sources: list[tuple[int, ...]]
    """(B) source tokens, the end of sentence last."""
    encoder: dict[Place, TappedAttention]
    steps: list[_Step] = field(default_factory=list)

    def rows_of(self, source: tuple[int, ...], target_input: tuple[int, ...]) -> list[int] | None:
        """(T) the row of each step on the way to a hypothesis; None if this search never took it.

        Args:
            source: (S) source tokens, the end of sentence last.
            target_input: (T) the begin of sentence and the hypothesis.
        """
        if len(target_input) > len(self.steps):
            return None
        last = self.steps[len(target_input) - 1]
        for row, sentence in enumerate(last.sentences):
            if self.sources[sentence] == source:
                rows = self._way_back(row, target_input)
                if rows is not None:
                    return rows
        return None

    def _way_back(self, row: int, target_input: tuple[int, ...]) -> list[int] | None:
        """Follows the back-pointers from a row, as long as the tokens are those of a hypothesis."""
        rows = []
        for step, token in zip(
            reversed(self.steps[: len(target_input)]), reversed(target_input), strict=True
        ):
            if step.tokens[row] != token:
                return None
            rows.append(row)
            row = step.parents[row]
        return rows[::-1]


class _RecordingCache:
    """A decoder's cache; it knows which row of the step before each row continues."""

    def __init__(self, cache: DecoderCache, search: _Search, sentences: list[int]) -> None:
        """Starts with rows that continue nothing, one for each of the `sentences`."""
        self.cache = cache
        self.search = search
        self.sentences = sentences
        self.parents = list(range(len(sentences)))

    @property
    def beam_size(self) -> int:
        return self.cache.beam_size

    def reorder(self, rows: Tensor, sentences: Tensor) -> None:
        self.cache.reorder(rows, sentences)
        # a search may reorder more than once between two steps
        self.parents = [self.parents[row] for row in rows.tolist()]
        self.sentences = [self.sentences[row] for row in rows.tolist()]


class NotSearchedError(LookupError):
    """No search that was recorded went through a hypothesis."""


class RecordingModel:
    """Hands everything on to a model and records the attention of searches that run on it."""

    def __init__(self, model: Transformer, n_candidates: int = 0) -> None:
        self._model = model
        self._n_candidates = n_candidates
        self._searches: list[_Search] = []
        self._sources: list[tuple[int, ...]] = []
        self._encoder: dict[Place, TappedAttention] = {}

    def __call__(self, *arguments: Tensor) -> Tensor:
        """Computes logits in one pass, which is not a search; see `Transformer.forward`."""
        return self._model(*arguments)

    @property
    def vocab_size(self) -> int:
        return self._model.vocab_size

    @property
    def max_positions(self) -> int:
        return self._model.max_positions

    @property
    def source_eos(self) -> bool:
        return self._model.source_eos

    @property
    def decoder(self) -> Stack[DecoderLayer]:
        return self._model.decoder

    @property
    def output_product(self) -> Product | None:
        return self._model.output_product

    def forget(self) -> None:
        self._searches.clear()

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        with tapped_attentions(self._model, ENCODER) as tapped:
            memory = self._model.encode(source, source_mask)
        self._encoder = tapped
        self._sources = [
            tuple(ids[mask].tolist()) for ids, mask in zip(source, source_mask, strict=True)
        ]
        return memory

    def start_cache(
        self, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int
    ) -> _RecordingCache:
        cache = self._model.start_cache(memory, source_mask, beam_size, max_length)
        search = _Search(self._sources, self._encoder)
        self._searches.append(search)
        # a search may repeat each sentence that was encoded, one after the other
        n_rows, n_encoded = len(memory) * beam_size, len(self._sources)
        return _RecordingCache(cache, search, [row * n_encoded // n_rows for row in range(n_rows)])

    def decode_step(self, tokens: Tensor, cache: _RecordingCache) -> Tensor:
        with tapped_attentions(self._model, DECODER, recompute=_own_past) as tapped:
            logits = self._model.decode_step(tokens, cache.cache)
        values, candidates, ends = _candidates(logits, self._n_candidates)
        cache.search.steps.append(
            _Step(
                tokens=tokens.tolist(),
                parents=cache.parents,
                next_tokens=candidates,
                next_log_probabilities=values,
                end_log_probabilities=ends,
                sentences=cache.sentences,
                tapped=tapped,
            )
        )
        cache.parents = list(range(len(cache.sentences)))
        return logits

    def maps_of(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> AttentionMaps:
        """Gathers the maps of a hypothesis that a search went through to its end of sentence."""
        source, target_input = self._read(source_ids), (BOS_ID, *target_ids)
        return _gathered(*self._search_of(source, target_input), source, target_input)

    def tree_of(
        self, source_ids: Sequence[int], target_ids: Sequence[int], config: DecodingConfig
    ) -> SearchTree | None:
        """Draws up the tree of the search that found a hypothesis."""
        source, target_input = self._read(source_ids), (BOS_ID, *target_ids)
        search, rows = self._search_of(source, target_input)
        return grow_tree(
            search.steps,
            rows[0],
            target_ids,
            config,
            n_source_tokens=len(source_ids),
            max_positions=self._model.max_positions,
        )

    def _read(self, source_ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(ended_source(source_ids, eos=self.source_eos))

    def _search_of(
        self, source: tuple[int, ...], target_input: tuple[int, ...]
    ) -> tuple[_Search, list[int]]:
        """The last search that went through a hypothesis, and its row at each step."""
        for search in reversed(self._searches):
            rows = search.rows_of(source, target_input)
            if rows is not None:
                return search, rows
        raise NotSearchedError("no search visited this hypothesis")


def _candidates(logits: Tensor, n: int) -> tuple[list[list[float]], list[list[int]], list[float]]:
    """The n most probable next tokens of (R, V) logits, and their end of sentence.

    Returns:
        (R, n) log-probabilities and tokens, best first; (R) log-probabilities of the end.
    """
    if n == 0:
        return [], [], []
    log_probabilities = logits.float().log_softmax(dim=-1)
    allowed = log_probabilities[:, EOS_ID:]  # no search generates the ids before
    values, tokens = allowed.topk(min(n, allowed.shape[1]))
    return values.tolist(), (tokens + EOS_ID).tolist(), log_probabilities[:, EOS_ID].tolist()


def _own_past(tap: AttentionTap) -> TappedAttention:
    """Recomputes one position of B·W rows; in self-attention only what is a row's own past.

    There all W hypotheses of a sentence share their keys, position after position, and the mask
    says which of them a row descends from: one a position.
    """
    weights, errors = recomputed(tap)
    n_sentences, n_heads, beam_size, _ = weights.shape
    if tap.mask is not None and tap.mask.shape[-2] == beam_size > 1:
        # (B, 1, W, K) -> (B·W·T) -> (B, 1, W, T)
        own = tap.mask.cpu().nonzero()[:, -1].view(n_sentences, 1, beam_size, -1)
        weights = weights.gather(3, own.expand(-1, n_heads, -1, -1))
    # (B, H, W, K) -> (B, W, H, K) -> (B·W, H, K)
    rows = weights.transpose(1, 2).flatten(0, 1)
    return TappedAttention(rows, errors.transpose(1, 2).flatten(0, 1))


def _gathered(
    search: _Search, rows: Sequence[int], source: tuple[int, ...], target_input: tuple[int, ...]
) -> AttentionMaps:
    """Joins the rows of a hypothesis to maps, without padding."""
    n_source, n_target = len(source), len(target_input)
    steps = list(zip(search.steps, rows, strict=False))  # the search may have continued
    sentence = steps[0][0].sentences[rows[0]]
    own: dict[Place, TappedAttention] = {}
    for place, tapped in search.encoder.items():
        weights = tapped.weights[sentence, :, :n_source, :n_source].clone()
        own[place] = TappedAttention(weights, tapped.errors[sentence, :, :n_source])
    for place in search.steps[0].tapped:
        n_keys = n_target if place[0] == "dec" else n_source
        tapped_rows = [step.tapped[place] for step, _ in steps]
        # (T, H, K), what a row could not see yet is 0
        weights = tapped_rows[0].weights.new_zeros(
            n_target, tapped_rows[0].weights.shape[1], n_keys
        )
        for position, (tapped, row) in enumerate(zip(tapped_rows, rows, strict=True)):
            seen = tapped.weights[row, :, :n_keys]
            weights[position, :, : seen.shape[-1]] = seen
        errors = torch.stack([h.errors[row] for h, row in zip(tapped_rows, rows, strict=True)])
        # (T, H, K) -> (H, T, K) and (T, H) -> (H, T)
        own[place] = TappedAttention(weights.transpose(0, 1).contiguous(), errors.transpose(0, 1))
    return joined(own, source, target_input)
