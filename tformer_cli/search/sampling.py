"""Random sampling of translations: temperature, top-k and nucleus sampling.

Every hypothesis has its own stream of random numbers, made from the seed, its line and its place
among the line's candidates, and is computed as a separate sentence. So a line's samples do not
depend on other lines, nor the first candidate on how many follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tformer_cli.model.cache import fill_from_end
from tformer_cli.search.hypothesis import Hypothesis, scored_hypothesis
from tformer_cli.search.processors import ScoreProcessor, StepRows, process
from tformer_cli.search.source_batches import longest_translations
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.engine import DecodingModel


@torch.inference_mode()
def greedy_search(
    model: DecodingModel, source: Tensor, source_mask: Tensor, config: DecodingConfig
) -> list[list[Hypothesis]]:
    """Translates a batch (B, S) with its mask, one hypothesis a sentence."""
    limits = longest_translations(source, source_mask, config, model.max_positions)
    memory = model.encode(source, source_mask)
    cache = model.start_cache(memory, source_mask, 1, max(limits) + 1)
    hypotheses: list[Hypothesis | None] = [None] * len(limits)
    tokens: list[list[int]] = [[] for _ in limits]
    steps: list[list[float]] = [[] for _ in limits]
    active = list(range(len(limits)))
    last = torch.full((len(active),), BOS_ID, device=source.device)
    while active:
        logits = model.decode_step(last, cache).float()
        # the ids before the end of sentence (padding, unknown, beginning) are never generated
        best_logits, best = logits[:, EOS_ID:].max(dim=-1)
        normalizer = logits.logsumexp(dim=-1)
        eos = (logits[:, EOS_ID] - normalizer).clamp(max=0.0).tolist()
        best_log_probabilities = (best_logits - normalizer).clamp(max=0.0).tolist()
        continuing = []
        for row, (sentence, token) in enumerate(
            zip(active, best.add(EOS_ID).tolist(), strict=True)
        ):
            if token != EOS_ID and len(tokens[sentence]) < limits[sentence]:
                tokens[sentence].append(token)
                steps[sentence].append(best_log_probabilities[row])
                continuing.append(row)
            else:
                steps[sentence].append(eos[row])
                hypotheses[sentence] = scored_hypothesis(
                    tokens[sentence], steps[sentence], config, is_finished=token == EOS_ID
                )
        last = best.add(EOS_ID)
        if continuing and len(continuing) < len(active):
            continuing = fill_from_end(continuing)
            rows = torch.tensor(continuing, device=source.device)
            cache.reorder(rows, rows)
            last = last[rows]
        active = [active[row] for row in continuing]
    return [[hypothesis] for hypothesis in hypotheses if hypothesis is not None]


# Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators": splitmix64's
# constants, as signed 64-bit numbers, because torch's products wrap around in those
INCREMENT = 0x9E3779B97F4A7C15 - 2**64
FACTORS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))


@torch.inference_mode()
def sample(
    model: DecodingModel,
    source: Tensor,
    source_mask: Tensor,
    config: DecodingConfig,
    keys: Sequence[int],
    processors: Sequence[ScoreProcessor] = (),
    n_prefixes: Sequence[int] = (),
) -> list[list[Hypothesis]]:
    """Draws `config.n_candidates` translations of each sentence of a batch."""
    n_drawn = config.n_candidates
    limits = longest_translations(source, source_mask, config, model.max_positions, n_prefixes)
    # (B, …) -> (B·N, …): a candidate is a separate sentence
    memory = model.encode(source, source_mask).repeat_interleave(n_drawn, dim=0)
    mask = source_mask.repeat_interleave(n_drawn, dim=0)
    cache = model.start_cache(memory, mask, 1, max(limits) + 1)
    device = source.device
    names = torch.arange(len(limits), device=device).repeat_interleave(n_drawn)
    state = _Drawn.empty(len(names), device)
    limit_of = torch.tensor(limits, device=device)
    streams = _streams(keys, n_drawn, device)
    by_number: dict[int, Hypothesis] = {}
    last = torch.full((len(memory),), BOS_ID, device=device)
    while len(state.numbers):
        logits = model.decode_step(last, cache).float()
        # (R, V) for the R candidates that have not ended; rules change the draws, not these
        own = logits.log_softmax(dim=-1)
        rows = StepRows(state.tokens, names[state.numbers], own)
        length = state.tokens.shape[1]
        drawn = draw(process(processors, rows), config, uniforms(streams[state.numbers], length))
        # At its limit a candidate ends, whatever was drawn
        is_end = drawn == EOS_ID
        ends = is_end | (limit_of[rows.sentences] <= length)
        state = state.add_tokens(drawn.masked_fill(ends, EOS_ID), own)
        for row in ends.nonzero().flatten().tolist():
            by_number[int(state.numbers[row])] = state.hypothesis(row, bool(is_end[row]), config)
        continuing = (~ends).nonzero().flatten()
        if len(continuing) == 0:
            break
        if len(continuing) < len(ends):
            state = state.keep_rows(continuing)
            cache.reorder(continuing, continuing)
        last = state.tokens[:, -1]
    hypotheses = [by_number[number] for number in range(len(names))]
    return [hypotheses[i : i + n_drawn] for i in range(0, len(hypotheses), n_drawn)]


def draw(scores: Tensor, config: DecodingConfig, uniform: Tensor) -> Tensor:
    """Draws a token a row by the inverse of the distribution function.

    Takes log-probabilities (R, V) and numbers (R) in [0, 1).
    """
    tokens = None
    if config.top_k:
        scores, tokens = scores.topk(min(config.top_k, scores.shape[1]), dim=1)
    elif config.top_p < 1.0:
        # A nucleus needs the order that top-k gives anyway
        scores, tokens = scores.sort(dim=1, descending=True, stable=True)
    # In float64, so that sums over a vocabulary keep its rare tokens
    probabilities = (scores.double() / config.temperature).softmax(dim=1)
    if config.top_p < 1.0:
        # What is before a token decides: the one that reaches top_p belongs to the nucleus
        before = probabilities.cumsum(dim=1) - probabilities
        probabilities = probabilities.masked_fill(before >= config.top_p, 0.0)
    reached = probabilities.cumsum(dim=1)
    total = reached[:, -1]
    # Below the total, so that the drawn token has a probability above 0
    wanted = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    places = torch.searchsorted(reached, wanted.unsqueeze(1), right=True)
    return (places if tokens is None else tokens.gather(1, places)).squeeze(1)


def uniforms(streams: Tensor, step: int) -> Tensor:
    """Returns the number of this step of each stream, (R) from 0 to below 1, in float64."""
    mixed = _mix_bits(streams + _wrap_number((step + 1) * INCREMENT))
    # 53 bits: as many as float64 holds, so that 1 is never reached
    return _shift_right(mixed, 11).double() * 2.0**-53


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The R hypotheses that are still drawn."""

    numbers: Tensor
    """(R) sentence · N + candidate."""
    tokens: Tensor
    """(R, T) what was drawn."""
    steps: Tensor
    """(R, T) log-probabilities by the model."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> _Drawn:
        """Begins n hypotheses."""
        return cls(
            numbers=torch.arange(n, device=device),
            tokens=torch.empty(n, 0, dtype=torch.int64, device=device),
            steps=torch.empty(n, 0, dtype=torch.float64, device=device),
        )

    def add_tokens(self, tokens: Tensor, own: Tensor) -> _Drawn:
        """Adds a token (R) to each, given its log-probabilities (R, V)."""
        column = tokens.unsqueeze(1)
        steps = torch.cat((self.steps, own.gather(1, column).double()), dim=1)
        return _Drawn(self.numbers, torch.cat((self.tokens, column), dim=1), steps)

    def keep_rows(self, rows: Tensor) -> _Drawn:
        """Keeps some."""
        return _Drawn(self.numbers[rows], self.tokens[rows], self.steps[rows])

    def hypothesis(self, row: int, is_finished: bool, config: DecodingConfig) -> Hypothesis:
        """Returns one that has ended."""
        tokens, steps = self.tokens[row, :-1].tolist(), self.steps[row].tolist()
        return scored_hypothesis(tokens, steps, config, is_finished=is_finished)


def _streams(keys: Sequence[int], n_drawn: int, device: torch.device) -> Tensor:
    """(B·N) a number for each candidate of each sentence."""
    candidates = torch.arange(n_drawn, device=device) * INCREMENT
    return _mix_bits((torch.tensor(keys, device=device).unsqueeze(1) ^ candidates).flatten())


def _mix_bits(numbers: Tensor) -> Tensor:
    for shift, factor in FACTORS:
        numbers = (numbers ^ _shift_right(numbers, shift)) * factor
    return numbers ^ _shift_right(numbers, 31)


def _shift_right(numbers: Tensor, shift: int) -> Tensor:
    """Shifts to the right, zeros from the left."""
    # A shift of signed numbers repeats the sign, and splitmix64's are unsigned
    return (numbers >> shift) & ((1 << (64 - shift)) - 1)


def _wrap_number(number: int) -> int:
    """Wraps a number around into 64 bits with a sign."""
    return (number + 2**63) % 2**64 - 2**63
