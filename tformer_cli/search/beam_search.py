"""Beam search over a batch of sentences, on the decoder's cache.

Every sentence starts with W slots. At each step the best continuations of its live hypotheses by
one token are kept, as many as it has slots; those that end the sentence are finished and take
their slot with them, the others live on. All live hypotheses of a sentence have the same length,
so the length penalty does not matter for this choice, only for the ranking of finished ones. With
one slot this is greedy search; with as many slots as there are sequences it is exhaustive search.

A hypothesis as long as the limit allows is ended there: its end of sentence is scored like any
other token. So the search looks for the best among all token sequences up to the limit, and every
score can be reproduced by feeding the hypothesis through the decoder.

A sentence is done when it has no slots left, or as soon as no live hypothesis can come among its
first `n_searched` any more (`hypothesis.is_certain`, which changes no result).

The device chooses, and the host keeps the hypotheses: of each step it gets five numbers for every
continuation in one copy. It reads them a step late where the device is another, and meanwhile the
device computes the next step; what that step adds to a sentence that is done is dropped.

Padding, unknown token and beginning of sentence are never generated. A sentence that is done
leaves the batch. The number of slots computed stays W for all, finished or not, because kernels
may sum in another order for another number of queries, and a translation must not depend, even in
its last bit, on when its neighbors finish.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from tformer_cli.model.cache import fill_from_end
from tformer_cli.model.transfer import copy_numbers, copy_to_device
from tformer_cli.search.fetch import Fetch, steps_late
from tformer_cli.search.hypothesis import (
    Hypothesis,
    is_certain,
    length_divisor,
    worst_wanted,
)
from tformer_cli.search.processors import ScoreProcessor, StepRows, process
from tformer_cli.search.source_batches import longest_translations
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.engine import DecodingCache, DecodingModel

IMPOSSIBLE = float("-inf")
BLOCK = 64
"""Tokens of a block; a block whose best is not among the k best holds none of the k best tokens."""
LEAST_TOKENS = 2048
"""From this many tokens on two stages are faster than torch's own `topk`."""


DROPPED, LIVE, ENDED, CUT = range(4)
"""Fates of a continuation: it has no slot; lives on; ends; ends at its limit, where the
model preferred to continue."""


@dataclass
class BeamSentence:
    """Hypotheses that a sentence has found so far."""

    limit: int
    """Most tokens of a translation, the end of sentence not counted."""
    largest_divisor: float
    """Length penalty of the longest translation possible; no score is divided by more."""
    n_slots: int
    hypotheses: list[Hypothesis] = field(default_factory=list)
    worst_wanted: float = IMPOSSIBLE
    """Score of the last of the first `n_searched` found; -inf while there are fewer."""
    is_done: bool = False


@dataclass(frozen=True)
class StepNumbers:
    """Choices of a step for its B sentences, on their way to the host."""

    sentences: list[int]
    """(B)."""
    numbers: Fetch
    """(5, B, C) of C continuations each: total, log-probability of the token, token, slot that is
    continued, and what becomes of it."""


@dataclass(frozen=True)
class PastStep:
    """Live hypotheses after a step: (B, W) arrays."""

    rows: dict[int, int]
    """Row of each sentence."""
    tokens: NDArray[np.float64]
    log_probabilities: NDArray[np.float64]
    slots: NDArray[np.float64]
    """Slots of the step before that they continue."""


@dataclass
class Continuations:
    """The best continuations of each sentence, best first; (B, C) each, C at most W."""

    total: Tensor
    """Rank value of the hypothesis with its new token; -inf where there is none."""
    token_log_probability: Tensor
    """Log-probability of the new token, by the model."""
    token: Tensor
    """The new token."""
    slot: Tensor
    """The slot of the hypothesis that it continues."""


@dataclass
class Candidates:
    """The best next tokens of each row; (B·W, C) each, best first."""

    gain: Tensor
    """Gain of the token for its hypothesis's rank value."""
    log_probability: Tensor
    """Log-probability of the token, by the model."""
    token: Tensor
    own_ends: Tensor | None
    """(B·W) where rows are as long as they may be: whether the model ends there by itself."""


@torch.inference_mode()
def beam_search(
    model: DecodingModel,
    source: Tensor,
    source_mask: Tensor,
    config: DecodingConfig,
    *,
    processors: Sequence[ScoreProcessor] = (),
    n_prefixes: Sequence[int] = (),
    stops_early: bool = True,
) -> list[list[Hypothesis]]:
    """Translates a batch: (B, S) ids that end with `</s>`, and their mask.

    `n_prefixes` are the tokens of each translation that limits of length do not count.
    """
    search = BeamSearch(model, config, processors, stops_early=stops_early)
    search.start(source, source_mask, n_prefixes)
    while search.is_running:
        search.step()
    return search.finish()


class BeamSearch:
    """The search's state: `start` once, `step` while `is_running`, then `finish`."""

    def __init__(
        self,
        model: DecodingModel,
        config: DecodingConfig,
        processors: Sequence[ScoreProcessor] = (),
        *,
        stops_early: bool = True,
    ) -> None:
        self._model = model
        self._config = config
        self._processors = processors
        self._stops_early = stops_early
        # Enough continuations of each row to fill every slot from a single hypothesis
        self._n_candidates = min(config.beam_size, model.vocab_size - EOS_ID)

    def start(self, source: Tensor, source_mask: Tensor, n_prefixes: Sequence[int] = ()) -> None:
        """Encodes sources (B, S) and puts the empty hypothesis in each sentence's first slot."""
        limits = longest_translations(
            source, source_mask, self._config, self._model.max_positions, n_prefixes
        )
        device = source.device
        self._lag = steps_late(self._model, device)
        self._sentences = [self._new_sentence(limit) for limit in limits]
        self._active = list(range(len(self._sentences)))
        self._length = 0
        self._unread: deque[StepNumbers] = deque()
        self._past: list[PastStep] = []
        n = len(self._active)
        memory = self._model.encode(source, source_mask)
        # One row a sentence for the first step: all hypotheses still are the empty one
        self._cache: DecodingCache = self._model.start_cache(
            memory, source_mask, 1, max(limits, default=0) + 1
        )
        self._names, self._limits = copy_to_device(
            [torch.arange(n), torch.tensor(limits, dtype=torch.int64)], device
        )
        self._last = torch.full((n,), BOS_ID, dtype=torch.int64, device=device)
        # In float64, so that a long sum still separates hypotheses that differ in one step
        self._totals = torch.zeros(n, 1, dtype=torch.float64, device=device)
        self._slots_left = torch.full((n,), self._config.beam_size, device=device)
        # (B, W, T) tokens of the live hypotheses, for rules
        self._tokens = torch.empty(n, 1, 0, dtype=torch.int64, device=device)

    @property
    def is_running(self) -> bool:
        """True if any sentence still has live hypotheses that matter."""
        return bool(self._active)

    def step(self) -> None:
        """Lets every live hypothesis of every sentence grow by one token."""
        logits = self._model.decode_step(self._last, self._cache)
        best, own_ends = self._choose(logits.float())
        is_kept = self._is_kept(best)
        is_end = is_kept & (best.token == EOS_ID)
        self._send(best, is_kept, is_end, own_ends)
        # A finished hypothesis takes its slot with it: a sentence without slots is done
        self._slots_left = self._slots_left - is_end.sum(dim=1)
        self._advance(best, is_kept & ~is_end)

    def _send(
        self, best: Continuations, is_kept: Tensor, is_end: Tensor, own_ends: Tensor | None
    ) -> None:
        """Sends a step's numbers to the host, and reads those that have come."""
        fate = is_kept.double()
        if own_ends is None:
            fate += is_end
        else:  # an end that the limit has forced is not the model's own
            fate += torch.where(own_ends.gather(1, best.slot), 1, 2) * is_end
        parts = (best.total, best.token_log_probability, best.token, best.slot, fate)
        numbers = Fetch(torch.stack([part.double() for part in parts]))
        self._unread.append(StepNumbers(self._active, numbers))
        while len(self._unread) > self._lag:
            self._read(self._unread.popleft())

    def finish(self) -> list[list[Hypothesis]]:
        """Returns each sentence's hypotheses, best first, equal scores in the order found."""
        while self._unread:
            self._read(self._unread.popleft())
        return [
            sorted(sentence.hypotheses, key=_by_score)[: self._config.n_searched]
            for sentence in self._sentences
        ]

    def _new_sentence(self, limit: int) -> BeamSentence:
        # The end of sentence is a token to the length penalty
        divisor = length_divisor(limit + 1, self._config)
        return BeamSentence(limit, divisor, self._config.beam_size)

    def _choose(self, logits: Tensor) -> tuple[Continuations, Tensor | None]:
        """Finds the best continuations of each sentence; see `_best_continuations`."""
        return self._best_continuations(self._row_candidates(logits))

    def _is_kept(self, best: Continuations) -> Tensor:
        """(B, C) which continuations have a slot."""
        ranks = torch.arange(best.token.shape[1], device=best.token.device)
        # -inf is no hypothesis: rules may leave fewer continuations than there are slots
        return (ranks < self._slots_left.unsqueeze(1)) & best.total.isfinite()

    def _row_candidates(self, logits: Tensor) -> Candidates:
        """Finds the best next tokens of each row of logits (B·W, V), which it changes in place.

        Normalized over the whole vocabulary, so that a log-probability is the model's own; the
        first three ids (padding, unknown, beginning) are skipped.
        """
        normalizer = logits.logsumexp(dim=-1, keepdim=True)
        if self._processors:
            # Rounding may put the certain event a hair above 0
            own = (logits - normalizer).clamp_(max=0.0)
            scores = process(self._processors, StepRows(self._history(), self._row_names(), own))
            gains, tokens = top_tokens(scores, self._n_candidates)
            # Rules only decide the ranks; reported numbers stay the model's own
            values = own.gather(1, tokens)
        else:
            # Only after normalization, so that a log-probability stays the model's own
            logits[:, :EOS_ID] = IMPOSSIBLE
            values, tokens = top_tokens(logits, self._n_candidates)
            values = gains = (values - normalizer).clamp_(max=0.0)
        if all(self._sentences[sentence].limit > self._length for sentence in self._active):
            return Candidates(gains, values, tokens, None)
        # Hypotheses of the maximum length may only end, whatever the rank of the end of sentence
        at_limit = (self._limits == self._length).repeat_interleave(self._cache.beam_size)
        own_ends = (tokens[:, 0] == EOS_ID) | ~at_limit
        ends = (logits[:, EOS_ID] - normalizer[:, 0]).clamp_(max=0.0)
        # In all columns: a row at its limit continues in one way only, its first column
        gains.masked_fill_(at_limit.unsqueeze(1), IMPOSSIBLE)
        for column in (gains, values):
            column[:, 0] = torch.where(at_limit, ends, column[:, 0])
        tokens[:, 0].masked_fill_(at_limit, EOS_ID)
        return Candidates(gains, values, tokens, own_ends)

    def _history(self) -> Tensor:
        """(B·W, T) tokens of the live hypotheses."""
        return self._tokens.flatten(0, 1)

    def _row_names(self) -> Tensor:
        """(B·W) which sentence of the batch each row belongs to."""
        return self._names.repeat_interleave(self._tokens.shape[1])

    def _best_continuations(self, candidates: Candidates) -> tuple[Continuations, Tensor | None]:
        """Merges the candidates of each sentence's slots, best first.

        Where some hypotheses are as long as they may be, only their end of sentence remains: a
        (B, W) boolean then says where the model would have ended by itself.
        """
        shape = (len(self._active), -1, self._n_candidates)
        totals = self._totals.unsqueeze(-1) + candidates.gain.view(shape)
        # (B, W, C) -> (B, W·C); stable, so that equal ones keep the order of slots
        totals, order = totals.flatten(1).sort(dim=1, descending=True, stable=True)
        totals, order = (part[:, : self._config.beam_size] for part in (totals, order))
        best = Continuations(
            totals,
            candidates.log_probability.view(shape).flatten(1).gather(1, order),
            candidates.token.view(shape).flatten(1).gather(1, order),
            order // self._n_candidates,
        )
        own_ends = candidates.own_ends
        return best, None if own_ends is None else own_ends.view(len(self._active), -1)

    def _read(self, step: StepNumbers) -> None:
        """Keeps the hypotheses that end in a step, and notes which sentences are done."""
        numbers = step.numbers.wait().numpy()
        fates = numbers[4]
        for row, column in np.argwhere(fates >= ENDED).tolist():
            sentence = self._sentences[step.sentences[row]]
            if not sentence.is_done:
                self._record(sentence, step.sentences[row], numbers[:, row, column])
        # Live ones first, in their order, as `_advance` arranges them
        order = np.argsort(fates != LIVE, axis=1, kind="stable")
        totals, log_probabilities, tokens, slots, _ = (
            np.take_along_axis(part, order, axis=1) for part in numbers
        )
        has_live = (fates == LIVE).any(axis=1)
        for sentence_number, is_live, total in zip(
            step.sentences, has_live.tolist(), totals[:, 0].tolist(), strict=True
        ):
            sentence = self._sentences[sentence_number]
            sentence.is_done |= (
                not is_live
                or sentence.n_slots < 1
                or (
                    self._stops_early
                    and is_certain(sentence.worst_wanted, total, sentence.largest_divisor)
                )
            )
        rows = {sentence: row for row, sentence in enumerate(step.sentences)}
        self._past.append(PastStep(rows, tokens, log_probabilities, slots))

    def _record(
        self, sentence: BeamSentence, number: int, continuation: NDArray[np.float64]
    ) -> None:
        """Keeps a hypothesis that ends, with its score."""
        total, last_step, _, slot, fate = continuation.tolist()
        tokens, steps = self._way_back(number, int(slot))
        steps.append(last_step)
        # rules change only the ranks; reported numbers stay the model's own
        log_probability = math.fsum(steps) if self._processors else total
        # the end of sentence counts
        score = total / length_divisor(len(steps), self._config)
        sentence.n_slots -= 1
        sentence.hypotheses.append(
            Hypothesis(tuple(tokens), log_probability, score, tuple(steps), fate == ENDED)
        )
        scores = (hypothesis.score for hypothesis in sentence.hypotheses)
        sentence.worst_wanted = worst_wanted(scores, self._config.n_searched)

    def _way_back(self, sentence: int, slot: int) -> tuple[list[int], list[float]]:
        """Returns tokens and log-probabilities of the live hypothesis in a slot."""
        tokens, steps = [], []
        for past in reversed(self._past):
            place = past.rows[sentence], slot
            tokens.append(int(past.tokens[place]))
            steps.append(float(past.log_probabilities[place]))
            slot = int(past.slots[place])
        return tokens[::-1], steps[::-1]

    def _advance(self, best: Continuations, is_live: Tensor) -> None:
        """Makes kept continuations (B, C) live hypotheses and drops finished sentences."""
        # A hypothesis at the limit has ended, whether or not the host has read so
        kept = [
            row
            for row, sentence in enumerate(map(self._sentences.__getitem__, self._active))
            if not sentence.is_done and sentence.limit > self._length
        ]
        # Live ones first, in their order, then empty slots, which repeat whatever is there
        order = (~is_live).to(torch.int8).sort(dim=1, stable=True).indices
        totals = best.total.masked_fill(~is_live, IMPOSSIBLE).gather(1, order)
        parts = [totals, best.slot.gather(1, order), best.token.gather(1, order)]
        parts += [self._slots_left, self._names, self._limits]
        if len(kept) < len(self._active):
            kept = fill_from_end(kept)
            self._active = [self._active[row] for row in kept]
            if not kept:
                return
            sentences = copy_numbers(kept, order.device)
            parts = [part.index_select(0, sentences) for part in parts]
        else:
            sentences = torch.arange(len(kept), device=order.device)
        self._totals, slots, tokens, self._slots_left, self._names, self._limits = parts
        # A sentence's rows follow each other: old row = old sentence · old W + slot
        rows = (sentences.unsqueeze(1) * self._cache.beam_size + slots).flatten()
        self._cache.reorder(rows, kept)
        if self._processors:
            self._tokens = self._grow_history(self._tokens, rows, tokens)
        self._last = tokens.flatten()
        self._length += 1

    @staticmethod
    def _grow_history(grid: Tensor, rows: Tensor, column: Tensor) -> Tensor:
        """Reorders a history (B, W, T) by rows and adds a column, giving (B', W', T + 1)."""
        history = grid.flatten(0, 1)[rows].view(*column.shape, -1)
        return torch.cat((history, column.unsqueeze(-1)), dim=-1)


def _by_score(hypothesis: Hypothesis) -> float:
    """Sorts best first."""
    return -hypothesis.score


def top_tokens(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Finds the k largest of scores (R, V) and their ids, (R, k) each, largest first.

    The largest of each block comes first; then only the k best blocks are looked into.
    """
    n_blocks = scores.shape[1] // BLOCK
    # With fewer than k blocks, k cannot be chosen
    if scores.shape[1] < LEAST_TOKENS or n_blocks < k:
        return scores.topk(k, dim=1)
    n_whole = n_blocks * BLOCK
    # (R, V) -> (R, V / 64, 64), the rest is searched whole
    blocks = scores[:, :n_whole].view(-1, n_blocks, BLOCK)
    chosen = blocks.amax(dim=2).topk(k, dim=1).indices
    inside = blocks.gather(1, chosen.unsqueeze(2).expand(-1, -1, BLOCK)).flatten(1)
    values, places = torch.cat((inside, scores[:, n_whole:]), dim=1).topk(k, dim=1)
    n_inside = k * BLOCK
    # Places in the rest come after all blocks; the clamp keeps them in range here
    block = chosen.gather(1, (places // BLOCK).clamp_(max=k - 1))
    tokens = torch.where(
        places < n_inside, block * BLOCK + places % BLOCK, places - n_inside + n_whole
    )
    return values, tokens


@torch.inference_mode()
def diverse_beam_search(
    model: DecodingModel,
    source: Tensor,
    source_mask: Tensor,
    config: DecodingConfig,
    processors: Sequence[ScoreProcessor] = (),
    n_prefixes: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Translates a batch with `config.diversity_groups` groups of hypotheses."""
    n_groups = config.diversity_groups
    search = _GroupSearch(model, config, processors)
    # The search treats a group as a sentence: only the penalty connects the groups of a sentence
    search.start(
        source.repeat_interleave(n_groups, dim=0),
        source_mask.repeat_interleave(n_groups, dim=0),
        [n for n in n_prefixes for _ in range(n_groups)],
    )
    while search.is_running:
        search.step()
    groups = search.finish()
    return [
        _merge_groups(groups[first : first + n_groups], config)
        for first in range(0, len(groups), n_groups)
    ]


class _Diversity:
    """Subtracts λ from a token for each hypothesis of an earlier group that continues with it."""

    def __init__(self, penalty: float, n_groups: int) -> None:
        self._penalty = penalty
        self._n_groups = n_groups
        self._counts: Tensor | None = None

    def __call__(self, scores: Tensor, rows: StepRows) -> Tensor:
        """See `ScoreProcessor`."""
        if self._counts is None:
            return scores
        return scores.sub_(self._counts[rows.sentences // self._n_groups], alpha=self._penalty)

    def start(self, n_sentences: int, vocab_size: int, device: torch.device) -> None:
        """Forgets the groups of the step before."""
        self._counts = torch.zeros(n_sentences, vocab_size, device=device)

    def count(self, sentences: Tensor, tokens: Tensor, is_kept: Tensor) -> None:
        """Remembers the kept tokens (B', C) that a group continues with, in sentences (B')."""
        if self._counts is not None:
            # A continuation without a slot counts 0, since no hypothesis continues it
            weights = is_kept.to(self._counts.dtype)
            index = sentences.unsqueeze(1).expand_as(tokens)
            self._counts.index_put_((index, tokens), weights, accumulate=True)


class _GroupSearch(BeamSearch):
    """Beam search over pseudo-sentences, the groups of a sentence one after the other."""

    def __init__(
        self, model: DecodingModel, config: DecodingConfig, processors: Sequence[ScoreProcessor]
    ) -> None:
        self._n_groups = config.diversity_groups
        self._diversity = _Diversity(config.diversity_penalty, self._n_groups)
        size = config.beam_size // self._n_groups
        # Every group gives all that it finds, because `_merge_groups` ranks them together. So it
        # ends when its slots are used up, which the device knows before a host that reads late
        shared = replace(config, beam_size=size, n_best=size, diversity_groups=1)
        # Last, so that diversity takes its penalty off what the rules have left
        super().__init__(model, shared, [*processors, self._diversity])

    def _choose(self, logits: Tensor) -> tuple[Continuations, Tensor | None]:
        sentences, groups = self._names // self._n_groups, self._names % self._n_groups
        n_sentences = len(self._sentences) // self._n_groups
        self._diversity.start(n_sentences, logits.shape[1], logits.device)
        chosen, own_ends = super()._choose(logits)
        for group in range(1, self._n_groups):
            # Groups choose in turn, each knowing the choices before it (Vijayakumar et al. 2018)
            before = (groups == group - 1).unsqueeze(1)
            self._diversity.count(sentences, chosen.token, self._is_kept(chosen) & before)
            # With rules `_row_candidates` leaves the logits as they are, so they serve every group
            later, later_ends = super()._choose(logits)
            is_later = (groups >= group).unsqueeze(1)
            chosen = Continuations(
                torch.where(is_later, later.total, chosen.total),
                torch.where(is_later, later.token_log_probability, chosen.token_log_probability),
                torch.where(is_later, later.token, chosen.token),
                torch.where(is_later, later.slot, chosen.slot),
            )
            if own_ends is not None and later_ends is not None:
                own_ends = torch.where(is_later, later_ends, own_ends)
        return chosen, own_ends


def _merge_groups(
    groups: Sequence[Sequence[Hypothesis]], config: DecodingConfig
) -> list[Hypothesis]:
    """Joins the groups of a sentence, ranked by the model's log-probabilities."""
    # Groups may find the same tokens, which a list of translations holds once
    different = {hypothesis.token_ids: hypothesis for group in groups for hypothesis in group}
    scored = [
        # The penalty only served diversity, so it must not decide between groups
        replace(
            hypothesis,
            score=hypothesis.log_probability / length_divisor(hypothesis.n_tokens, config),
        )
        for hypothesis in different.values()
    ]
    return sorted(scored, key=lambda hypothesis: -hypothesis.score)[: config.n_searched]
