"""The attention maps of a hypothesis as the search that found it computed them.

`forced.capture_maps` runs a hypothesis through the decoder once more; here the rows are gathered
while the search runs, on its cache, along with every other hypothesis of every sentence of the
batch. For a search, a `RecordingModel` is the model: it passes every call on and records the
values. At each step it keeps every row's weights, the token the row read, and the row of the step
before that it continues (the back-pointer, which the search tells its cache). The maps of a
hypothesis are the rows on its way back to the begin of sentence. That these are what the model used
is measured at each of its rows, as in `forced`.

Everything that a search may still come back to is kept: about W·T·(S + T) numbers a head.

The tree of a beam search: which hypotheses it kept at each step, dropped, and finished.

The nodes come from what a `live.RecordingModel` recorded: the most probable next tokens of
every row, and the back-pointers. At each step all continuations of the live hypotheses stand in the
order of their log-probabilities; the first ones take the slots that are left, and one that ends the
sentence takes its slot with it (see `decoding.search.beam_search`). That the search did just this
is checked: each kept hypothesis must have a row in its next step. So there is a tree only for plain
beam search and greedy search; where another rule decides, there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tformer_cli.inspect.capture.forced import recompute_weights, tapped_attentions
from tformer_cli.inspect.capture.maps import AttentionMaps, Place, TappedAttention, join_maps
from tformer_cli.search.config import is_beam_search
from tformer_cli.search.hypothesis import length_divisor, longest_translation
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, ended_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tformer_cli.heads.names import Kind
    from tformer_cli.model.attention import AttentionTap
    from tformer_cli.model.cache import DecoderCache
    from tformer_cli.model.transformer import Transformer
    from tformer_cli.search.config import DecodingConfig


NodeState = Literal["kept", "finished", "dropped"]  # Dropped ones had no slot
N_DROPPED = 3  # Continuations of a step without a slot that a tree has, the best ones


@dataclass(frozen=True, kw_only=True)
class SearchNode:
    """A hypothesis of a search: its last token and where it comes from."""

    parent: int | None  # Number of the node it continues; None: it is the begin of sentence
    step: int  # Tokens of the hypothesis, the begin of sentence not counted
    token: int
    log_probability: float
    state: NodeState
    score: float | None  # Its log-probability after the length penalty, if it is finished


@dataclass(frozen=True, kw_only=True)
class SearchTree:
    """Tree of one search for one sentence."""

    nodes: tuple[SearchNode, ...]  # Parents before children; of a step the best ones first
    path: tuple[int, ...]  # The nodes of the hypothesis that is looked at, begin to end
    beam_size: int  # W, hypotheses kept at once
    length_penalty: float  # The exponent of the length penalty; 0: scores are log-probabilities


@dataclass(frozen=True, kw_only=True)
class SearchStep:
    """One step of a search as it was recorded, for its R rows."""

    tokens: list[int]  # (R) the token that each row read
    parents: list[int]  # (R) the row of the step before that each row continues
    next_tokens: list[list[int]]  # (R, C) most probable next tokens, best first; C may be 0
    next_log_probabilities: list[list[float]]  # (R, C) their log-probabilities
    end_log_probabilities: list[float]  # (R) of the end of sentence
    sentences: list[int]  # (R) the encoded sentence that each row belongs to
    tapped: dict[Place, TappedAttention]  # Weights (R, H, K) and errors (R, H) of each attention


def n_candidates(config: DecodingConfig) -> int:
    return config.beam_size + N_DROPPED


class _Live(NamedTuple):
    """A live hypothesis."""

    node: int
    row: int
    log_probability: float


@dataclass
class _Growth:
    """A tree that grows, step by step."""

    config: DecodingConfig
    nodes: list[SearchNode] = field(default_factory=list)

    def choose(
        self, live: Sequence[_Live], recorded: SearchStep, n_slots: int, *, is_last: bool
    ) -> list[int]:
        """Adds the continuations of a step; returns the nodes that have a slot."""
        continuations = []
        for hypothesis in live:
            tokens = recorded.next_tokens[hypothesis.row]
            gains = recorded.next_log_probabilities[hypothesis.row]
            if is_last:  # as long as a translation may be: only its end remains
                tokens, gains = [EOS_ID], [recorded.end_log_probabilities[hypothesis.row]]
            continuations += [
                (hypothesis.log_probability + min(gain, 0.0), hypothesis.node, token)
                for token, gain in zip(tokens, gains, strict=True)
            ]
        continuations.sort(key=lambda item: -item[0])
        kept = []
        for place, (total, parent, token) in enumerate(continuations[: n_slots + N_DROPPED]):
            step = self.nodes[parent].step + 1
            state: NodeState = "dropped"
            if place < n_slots:
                state = "finished" if token == EOS_ID else "kept"
                kept.append(len(self.nodes))
            score = total / length_divisor(step, self.config) if state == "finished" else None
            self.nodes.append(
                SearchNode(
                    parent=parent,
                    step=step,
                    token=token,
                    log_probability=total,
                    state=state,
                    score=score,
                )
            )
        return kept


def grow_tree(
    steps: Sequence[SearchStep],
    first_row: int,
    target_ids: Sequence[int],
    config: DecodingConfig,
    *,
    n_source_tokens: int,
    max_positions: int,
    forced: Sequence[float] = (),
    n_given: int = 0,
) -> SearchTree | None:
    """Grows the tree from the steps of a search; the first tokens may have been forced.

    `steps` begin after them, and `forced` are their log-probabilities: nothing was chosen there,
    so the tree begins with their last one. No limit of length counts `n_given` of them.
    """
    if not is_beam_search(config):
        return None
    limit = longest_translation(n_source_tokens, config, max_positions, n_given)
    begin = SearchNode(
        parent=None,
        step=len(forced),
        token=steps[0].tokens[first_row],
        log_probability=sum(forced, 0.0),
        state="kept",
        score=None,
    )
    growth = _Growth(config, [begin])
    live, n_slots = [_Live(0, first_row, begin.log_probability)], config.beam_size
    for number, recorded in enumerate(steps, len(forced)):
        kept = growth.choose(live, recorded, n_slots, is_last=number == limit)
        unfinished = [node for node in kept if growth.nodes[node].state == "kept"]
        n_slots -= len(kept) - len(unfinished)
        if number + 1 == len(forced) + len(steps):
            break
        rows = _rows_of(unfinished, growth.nodes, live, steps[number + 1 - len(forced)])
        if rows is None:
            return None
        live = rows
        if not live:
            break
    path = _path(growth.nodes, [*target_ids[len(forced) :], EOS_ID], len(forced))
    if path is None:
        return None
    return SearchTree(
        nodes=tuple(growth.nodes),
        path=path,
        beam_size=config.beam_size,
        length_penalty=config.length_penalty,
    )


def _rows_of(
    nodes: Sequence[int], tree: Sequence[SearchNode], live: Sequence[_Live], recorded: SearchStep
) -> list[_Live] | None:
    """Finds the row that each kept hypothesis has in the next step; None if one has none.

    A sentence that is done has no rows any more; then nothing is live.
    """
    row_of = {hypothesis.node: hypothesis.row for hypothesis in live}
    places = {
        place: row
        for row, place in reversed(
            list(enumerate(zip(recorded.parents, recorded.tokens, strict=True)))
        )
    }
    rows = []
    for node in nodes:
        parent = tree[node].parent
        row = None if parent is None else places.get((row_of[parent], tree[node].token))
        if row is not None:
            rows.append(_Live(node, row, tree[node].log_probability))
    return rows if len(rows) in (0, len(nodes)) else None


def _path(
    nodes: Sequence[SearchNode], tokens: Sequence[int], n_forced: int
) -> tuple[int, ...] | None:
    """The nodes of a finished hypothesis; None if the tree does not have it."""
    for number, node in enumerate(nodes):
        if node.state != "finished" or node.step != n_forced + len(tokens):
            continue
        way, at = [], number
        while (parent := nodes[at].parent) is not None:
            way.append(at)
            at = parent
        if [nodes[place].token for place in reversed(way)] == list(tokens):
            return (at, *reversed(way))
    return None


ENCODER: tuple[Kind, ...] = ("enc",)
DECODER: tuple[Kind, ...] = ("dec", "cross")


@dataclass
class _Search:
    """Recording of one search."""

    sources: list[tuple[int, ...]]  # (B) source tokens, the end of sentence last
    encoder: dict[Place, TappedAttention]
    steps: list[SearchStep] = field(default_factory=list)

    def rows_of(self, source: tuple[int, ...], target_input: tuple[int, ...]) -> list[int] | None:
        """(T) rows of the steps on the way to a hypothesis; None if this search never took it."""
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

    def reorder(self, rows: Tensor, sentences: Sequence[int]) -> None:
        self.cache.reorder(rows, sentences)
        # a search may reorder more than once between two steps
        self.parents = [self.parents[row] for row in rows.tolist()]
        self.sentences = [self.sentences[row] for row in rows.tolist()]


class NotSearchedError(LookupError):
    """No search that was recorded went through a hypothesis."""


class RecordingModel:
    """Hands everything on to a model and records the attention of searches that run on it."""

    is_watched = True
    """No search goes a step too far."""

    def __init__(self, model: Transformer, n_candidates: int = 0, n_start: int = 0) -> None:
        self._model = model
        self._n_candidates = n_candidates
        self._n_start = n_start  # see `Sentence.n_start`
        self._searches: list[_Search] = []
        self._sources: list[tuple[int, ...]] = []
        self._encoder: dict[Place, TappedAttention] = {}
        # what else a search reads of a model
        self.vocab_size, self.max_positions = model.vocab_size, model.max_positions
        self.source_eos, self.decoder = model.source_eos, model.decoder
        self.output_product = model.output_product

    def __call__(self, *arguments: Tensor) -> Tensor:
        """Computes logits in one pass, which is not a search; see `Transformer.forward`."""
        return self._model(*arguments)

    def forget(self) -> None:
        self._searches.clear()

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        with tapped_attentions(self._model, recompute_weights, ENCODER) as tapped:
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
        with tapped_attentions(self._model, _own_past, DECODER) as tapped:
            logits = self._model.decode_step(tokens, cache.cache)
        values, candidates, ends = _candidates(logits, self._n_candidates)
        cache.search.steps.append(
            SearchStep(
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
        source, target_input = self._read(source_ids), (BOS_ID, *target_ids)
        return _gather_maps(*self._search_of(source, target_input), source, target_input)

    def tree_of(
        self,
        source_ids: Sequence[int],
        target_ids: Sequence[int],
        config: DecodingConfig,
        forced: Sequence[float] = (),
    ) -> SearchTree | None:
        source, target_input = self._read(source_ids), (BOS_ID, *target_ids)
        search, rows = self._search_of(source, target_input)
        return grow_tree(
            search.steps[len(forced) :],
            rows[len(forced)],
            target_ids,
            config,
            n_source_tokens=len(source_ids),
            max_positions=self._model.max_positions,
            forced=forced,
            n_given=max(0, len(forced) - self._n_start),
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
    """Finds the n most probable next tokens (R, n) of (R, V) logits, and ln p of the end (R)."""
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
    weights, errors = recompute_weights(tap)
    n_sentences, _, beam_size, _ = weights.shape
    if tap.mask is not None and tap.mask.shape[-2] == beam_size > 1:
        # (B, 1, W, K) -> (B·W·T) -> (B, 1, W, T)
        own = tap.mask.cpu().nonzero()[:, -1].view(n_sentences, 1, beam_size, -1).numpy()
        weights = np.take_along_axis(weights, own, axis=3)
    # (B, H, W, K) -> (B, W, H, K) -> (B·W, H, K)
    rows, errors = weights.swapaxes(1, 2), errors.swapaxes(1, 2)
    shape = n_sentences * beam_size, *rows.shape[2:]
    return TappedAttention(rows.reshape(shape), errors.reshape(shape[:2]))


def _gather_maps(
    search: _Search, rows: Sequence[int], source: tuple[int, ...], target_input: tuple[int, ...]
) -> AttentionMaps:
    n_source, n_target = len(source), len(target_input)
    steps = list(zip(search.steps, rows, strict=False))  # the search may have continued
    sentence = steps[0][0].sentences[rows[0]]
    own: dict[Place, TappedAttention] = {}
    for place, tapped in search.encoder.items():
        weights = tapped.weights[sentence, :, :n_source, :n_source].copy()
        own[place] = TappedAttention(weights, tapped.errors[sentence, :, :n_source])
    for place in search.steps[0].tapped:
        n_keys = n_target if place[0] == "dec" else n_source
        tapped_rows = [step.tapped[place] for step, _ in steps]
        # (T, H, K), 0 where a row could not see yet
        weights = np.zeros((n_target, tapped_rows[0].weights.shape[1], n_keys), np.float32)
        for position, (tapped, row) in enumerate(zip(tapped_rows, rows, strict=True)):
            seen = tapped.weights[row, :, :n_keys]
            weights[position, :, : seen.shape[-1]] = seen
        errors = np.stack([h.errors[row] for h, row in zip(tapped_rows, rows, strict=True)])
        # (T, H, K) -> (H, T, K) and (T, H) -> (H, T)
        own[place] = TappedAttention(np.ascontiguousarray(weights.swapaxes(0, 1)), errors.T)
    return join_maps(own, source, target_input)
