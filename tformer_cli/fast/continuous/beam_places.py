"""Beam search whose every step is the same operations on the same memory.

It finds what `beam_search` finds, by the same rules, for P sentences in as many places. But no
step asks the device anything: each place is at a length of its own, finished hypotheses are kept
where the place has them, and a place that is done continues without effect until the hypotheses are
taken out and another sentence is `put` there. So steps can be sent ahead of the device.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch

from tformer_cli.data.tokenizer import BOS_ID, EOS_ID
from tformer_cli.decoding.hypothesis import Hypothesis, is_certain, length_divisor
from tformer_cli.decoding.search.beam_search import IMPOSSIBLE, top_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tformer_cli.decoding.config import DecodingConfig
    from tformer_cli.fast.continuous.fixed_cache import FixedCache
    from tformer_cli.model.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class BeamPlaces:
    """State of the search's places; every tensor's first dimension is P.

    Hypotheses that are found have W numbers in the order found, and number W takes what is none.
    """

    last: Tensor
    """(P, W) the token that each live hypothesis ends with."""
    totals: Tensor
    """(P, W) float64, log-probability of the live hypotheses; -inf where there is none."""
    tokens: Tensor
    """(P, W, L) tokens of the live hypotheses."""
    steps: Tensor
    """(P, W, L) log-probabilities of these tokens."""
    limits: Tensor
    """(P) most tokens of a translation, the end of sentence not counted."""
    largest_divisors: Tensor
    """(P) float64, length penalty of the longest translation."""
    slots_left: Tensor
    """(P) slots that no finished hypothesis has taken."""
    is_active: Tensor
    """(P) whether a sentence is still searched there."""
    n_found: Tensor
    """(P) hypotheses found."""
    found_tokens: Tensor
    """(P, W + 1, L) tokens of the hypotheses that are found."""
    found_steps: Tensor
    """(P, W + 1, L) log-probabilities of these tokens."""
    found_ends: Tensor
    """(P, W + 1) log-probability of the end of sentence."""
    found_lengths: Tensor
    """(P, W + 1) tokens, the end of sentence not counted."""
    found_totals: Tensor
    """(P, W + 1) float64, log-probabilities."""
    found_scores: Tensor
    """(P, W + 1) float64, what they are ranked by; -inf where there is none yet."""
    found_own_ends: Tensor
    """(P, W + 1) whether the model ended there by itself."""

    @classmethod
    def empty(cls, n_places: int, beam_size: int, longest: int, device: torch.device) -> BeamPlaces:
        """Makes places without sentences.

        Args:
            n_places: P.
            beam_size: W.
            longest: L, most tokens of any translation, the end of sentence not counted.
            device: where.
        """
        slots, numbers = (n_places, beam_size), (n_places, beam_size + 1)

        def integers(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        def floats(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        def booleans(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.bool, device=device)

        return cls(
            last=integers(*slots),
            totals=floats(*slots),
            tokens=integers(*slots, longest + 1),
            steps=floats(*slots, longest + 1, dtype=torch.float32),
            limits=integers(n_places),
            largest_divisors=floats(n_places) + 1.0,
            slots_left=integers(n_places),
            is_active=booleans(n_places),
            n_found=integers(n_places),
            found_tokens=integers(*numbers, longest + 1),
            found_steps=floats(*numbers, longest + 1, dtype=torch.float32),
            found_ends=floats(*numbers, dtype=torch.float32),
            found_lengths=integers(*numbers),
            found_totals=floats(*numbers),
            found_scores=floats(*numbers),
            found_own_ends=booleans(*numbers),
        )

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by their names."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def put(self, places: Tensor, limits: Tensor, largest_divisors: Tensor) -> None:
        """Starts sentences: the empty hypothesis is in the first slot.

        Args:
            places: (N) where.
            limits: (N) most tokens of each translation.
            largest_divisors: (N) float64, length penalty of the longest.
        """
        self.last.index_fill_(0, places, BOS_ID)
        self.totals.index_fill_(0, places, IMPOSSIBLE)
        self.totals[:, 0].index_fill_(0, places, 0.0)
        self.limits.index_copy_(0, places, limits)
        self.largest_divisors.index_copy_(0, places, largest_divisors)
        self.slots_left.index_fill_(0, places, self.last.shape[1])
        self.is_active.index_fill_(0, places, value=True)
        self.n_found.index_fill_(0, places, 0)
        self.found_scores.index_fill_(0, places, IMPOSSIBLE)

    def found(self, places: Tensor) -> list[Tensor]:
        """Copies of what was found in some places (N), for `hypotheses`."""
        return [
            tensor.index_select(0, places)
            for name, tensor in self.tensors().items()
            if name == "n_found" or name.startswith("found_")
        ]


@torch.inference_mode()
def search_step(
    model: Transformer, places: BeamPlaces, cache: FixedCache, divisors: Tensor, n_searched: int
) -> None:
    """Lets every live hypothesis of every place grow by one token; asks the device nothing.

    Args:
        model: in evaluation mode.
        places: the search's state.
        cache: the model's.
        divisors: (≥ L + 2) float64, length penalty of each length, the end of sentence counted.
        n_searched: a sentence ends as soon as no live hypothesis can be among that many best.
    """
    beam_size = places.last.shape[1]
    logits = model.decode_step(places.last.flatten(), cache).float()
    gains, tokens, own_ends = _candidates(logits, places, cache.positions)
    # (P, W, 1) + (P, W, C) -> (P, W·C): all continuations of a sentence compete; the sort is
    # stable, so that equal ones keep the order of slots, and those of empty slots (-inf) come last
    n_candidates = gains.shape[2]
    totals = (places.totals.unsqueeze(2) + gains).flatten(1)
    totals, order = totals.sort(dim=1, descending=True, stable=True)
    totals, order = totals[:, :beam_size], order[:, :beam_size]
    slots = order // n_candidates  # (P, W) which hypothesis each one continues
    gains, tokens = (part.flatten(1).gather(1, order) for part in (gains, tokens))
    # As many are kept as there are slots left: a finished hypothesis has taken its slot for good
    ranks = torch.arange(totals.shape[1], device=totals.device)
    is_kept = (ranks < places.slots_left.unsqueeze(1)) & totals.isfinite()
    is_kept &= places.is_active.unsqueeze(1)
    is_end = is_kept & (tokens == EOS_ID)
    histories = [_of_slots(history, slots) for history in (places.tokens, places.steps)]
    scores = totals / divisors[cache.positions + 1].unsqueeze(1)
    _record(places, is_end, histories, gains, totals, scores, own_ends.gather(1, slots),
            cache.positions)  # fmt: skip
    # Live ones first, in their order, then empty slots, which repeat whatever is there
    is_live = is_kept & ~is_end
    order = (~is_live).to(torch.int8).sort(dim=1, stable=True).indices
    totals = totals.masked_fill(~is_live, IMPOSSIBLE).gather(1, order)
    slots, gains, tokens = (part.gather(1, order) for part in (slots, gains, tokens))
    # A sentence is done without a live hypothesis or slot, or when its best ones are certain
    best = places.found_scores[:, :beam_size].sort(dim=1, descending=True).values
    is_over = is_certain(best[:, n_searched - 1], totals[:, 0], places.largest_divisors)
    is_continued = totals[:, 0].isfinite() & (places.slots_left > 0) & ~is_over
    places.is_active.logical_and_(is_continued)
    # The state is overwritten where it lies: (P, W, L) histories take the new token at its position
    here = cache.positions[:, None, None].expand(-1, beam_size, 1)
    for kept, history, new in zip(
        (places.tokens, places.steps), histories, (tokens, gains), strict=True
    ):
        kept.copy_(_of_slots(history, order)).scatter_(2, here, new.unsqueeze(2))
    places.totals.copy_(totals)
    places.last.copy_(tokens)
    cache.follow(slots, places.is_active)


def _candidates(
    logits: Tensor, places: BeamPlaces, positions: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Finds the best next tokens of each hypothesis.

    Args:
        logits: (P·W, V) float32; changed in place.
        places: the search's state.
        positions: (P) tokens that the hypotheses of a place have.

    Returns:
        Log-probabilities (P, W, C) and tokens (P, W, C), best first; (P, W) whether a hypothesis
        that is as long as it may be would have ended by itself.
    """
    n_places, beam_size = places.last.shape
    n_candidates = min(beam_size, logits.shape[1] - EOS_ID)
    # Normalized over the whole vocabulary, before the ids that are never generated are skipped
    normalizer = logits.logsumexp(dim=-1, keepdim=True)
    ends = (logits[:, EOS_ID, None] - normalizer).clamp_(max=0.0)
    logits[:, :EOS_ID] = IMPOSSIBLE
    values, tokens = top_tokens(logits, n_candidates)
    gains = (values - normalizer).clamp_(max=0.0)
    # (P·W, C) -> (P, W, C)
    gains, tokens, ends = (part.view(n_places, beam_size, -1) for part in (gains, tokens, ends))
    # Of a hypothesis that is as long as it may be only the end of sentence remains
    is_full = (positions == places.limits)[:, None, None]
    is_first = torch.arange(n_candidates, device=gains.device) == 0
    own_ends = (tokens[:, :, :1] == EOS_ID) | ~is_full
    gains = torch.where(is_full, torch.where(is_first, ends, IMPOSSIBLE), gains)
    tokens = torch.where(is_full & is_first, EOS_ID, tokens)
    return gains, tokens, own_ends.squeeze(2)


def _of_slots(history: Tensor, slots: Tensor) -> Tensor:
    """Chooses slots (P, C) of a history (P, W, L): (P, C, L)."""
    return history.gather(1, slots.unsqueeze(2).expand(-1, -1, history.shape[2]))


def _record(
    places: BeamPlaces,
    is_end: Tensor,
    histories: Sequence[Tensor],
    gains: Tensor,
    totals: Tensor,
    scores: Tensor,
    own_ends: Tensor,
    lengths: Tensor,
) -> None:
    """Keeps the hypotheses that end now (`is_end`, (P, W)) and takes their slots."""
    # The next free numbers, in order of rank; what does not end goes to the dump, number W
    numbers = places.n_found.unsqueeze(1) + is_end.cumsum(dim=1) - 1
    numbers = torch.where(is_end, numbers, places.last.shape[1])
    by_history = numbers.unsqueeze(2).expand_as(histories[0])
    places.found_tokens.scatter_(1, by_history, histories[0])
    places.found_steps.scatter_(1, by_history, histories[1])
    places.found_ends.scatter_(1, numbers, gains)
    places.found_lengths.scatter_(1, numbers, lengths.unsqueeze(1).expand_as(numbers))
    places.found_totals.scatter_(1, numbers, totals)
    places.found_scores.scatter_(1, numbers, scores)
    places.found_own_ends.scatter_(1, numbers, own_ends)
    n_ended = is_end.sum(dim=1)
    places.n_found.add_(n_ended)
    places.slots_left.sub_(n_ended)


def hypotheses(found: Sequence[Tensor], n_searched: int) -> list[list[Hypothesis]]:
    """Turns what `BeamPlaces.found` gave, brought to the host, into hypotheses, best first."""
    results = []
    for n_found, tokens, steps, ends, lengths, totals, scores, own_ends in zip(
        *(tensor.tolist() for tensor in found), strict=True
    ):
        of_place = [
            Hypothesis(
                tuple(tokens[i][: lengths[i]]),
                totals[i],
                scores[i],
                (*steps[i][: lengths[i]], ends[i]),
                own_ends[i],
            )
            for i in range(n_found)
        ]
        of_place.sort(key=lambda hypothesis: -hypothesis.score)
        results.append(of_place[:n_searched])
    return results


def divisor_table(longest: int, config: DecodingConfig, device: torch.device) -> Tensor:
    """(longest + 2) float64, the length penalty of each length, the end of sentence counted."""
    values = [length_divisor(n, config) if n else 1.0 for n in range(longest + 2)]
    return torch.tensor(values, dtype=torch.float64, device=device)
