"""Search with one hypothesis at a time: greedy, and sampling (temperature, top-k, nucleus).

Every hypothesis has its own stream of random numbers, made from the seed, its line and its place
among the line's candidates, and is computed as a separate sentence. So a line's samples do not
depend on other lines, nor the first candidate on how many follow.

As in beam search the device chooses, and the host reads a step late where the device is another.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import torch

from tformer_cli.model.cache import fill_from_end
from tformer_cli.model.transfer import copy_numbers, copy_to_device
from tformer_cli.search.fetch import Fetch, steps_late
from tformer_cli.search.hypothesis import Hypothesis, scored_hypothesis
from tformer_cli.search.processors import ScoreProcessor, StepRows, process
from tformer_cli.search.source_batches import longest_translations
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from tformer_cli.search.config import DecodingConfig
    from tformer_cli.search.engine import DecodingModel


class Choice(NamedTuple):
    """Next tokens of R hypotheses, and log-probabilities by the model; (R) each."""

    token: Tensor
    log_probability: Tensor
    end_log_probability: Tensor
    """That of the end of sentence."""


@torch.inference_mode()
def greedy_search(
    model: DecodingModel, source: Tensor, source_mask: Tensor, config: DecodingConfig
) -> list[list[Hypothesis]]:
    """Translates a batch (B, S) with its mask, one hypothesis a sentence."""
    limits = longest_translations(source, source_mask, config, model.max_positions)
    memory = model.encode(source, source_mask)
    hypotheses = _write(model, memory, source_mask, config, limits, _most_probable)
    return [[hypothesis] for hypothesis in hypotheses]


def _most_probable(logits: Tensor, numbers: Tensor) -> Choice:  # noqa: ARG001 - all are alike
    # the ids before the end of sentence (padding, unknown, beginning) are never generated
    best_logits, best = logits[:, EOS_ID:].max(dim=-1)
    normalizer = logits.logsumexp(dim=-1)
    return Choice(
        best.add(EOS_ID),
        (best_logits - normalizer).clamp(max=0.0),
        (logits[:, EOS_ID] - normalizer).clamp(max=0.0),
    )


def _write(
    model: DecodingModel,
    memory: Tensor,
    source_mask: Tensor,
    config: DecodingConfig,
    limits: Sequence[int],
    choose: Callable[[Tensor, Tensor], Choice],
) -> list[Hypothesis]:
    """Writes N hypotheses token by token, given memories (N, S, D), masks and most tokens.

    `choose` gets logits (R, V) and numbers (R) of the R hypotheses that go on.
    """
    device = memory.device
    cache = model.start_cache(memory, source_mask, 1, max(limits) + 1)
    hypotheses: list[Hypothesis | None] = [None] * len(limits)
    tokens: list[list[int]] = [[] for _ in limits]
    steps: list[list[float]] = [[] for _ in limits]
    unread: deque[tuple[list[int], Fetch]] = deque()

    def read(active: list[int], fetch: Fetch) -> None:
        for number, token, step, end_step in zip(active, *fetch.wait().tolist(), strict=True):
            if hypotheses[number] is not None:
                continue
            if token != EOS_ID and len(tokens[number]) < limits[number]:
                tokens[number].append(int(token))
                steps[number].append(step)
                continue
            # at its limit a hypothesis ends, whatever was chosen
            hypotheses[number] = scored_hypothesis(
                tokens[number], [*steps[number], end_step], config, is_finished=token == EOS_ID
            )

    lag, length = steps_late(model, device), 0
    active = list(range(len(limits)))
    (numbers,) = copy_to_device([torch.arange(len(limits))], device)
    last = torch.full((len(active),), BOS_ID, device=device)
    while active:
        choice = choose(model.decode_step(last, cache).float(), numbers)
        unread.append((active, Fetch(torch.stack([part.double() for part in choice]))))
        while len(unread) > lag:
            read(*unread.popleft())
        last = choice.token
        kept = [
            row
            for row, number in enumerate(active)
            if hypotheses[number] is None and limits[number] > length
        ]
        if kept and len(kept) < len(active):
            kept = fill_from_end(kept)
            rows = copy_numbers(kept, device)
            cache.reorder(rows, kept)
            last, numbers = last[rows], numbers[rows]
        active = [active[row] for row in kept]
        length += 1
    while unread:
        read(*unread.popleft())
    return [hypothesis for hypothesis in hypotheses if hypothesis is not None]


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
    device = source.device
    names = torch.arange(len(limits), device=device).repeat_interleave(n_drawn)
    streams = _streams(keys, n_drawn, device)
    # (N, T) what each has so far, for rules
    written = torch.empty(len(names), 0, dtype=torch.int64, device=device)

    def choose(logits: Tensor, numbers: Tensor) -> Choice:
        nonlocal written
        # rules change the draws, not these
        own = logits.log_softmax(dim=-1)
        rows = StepRows(written[numbers], names[numbers], own)
        length = written.shape[1]
        scores = process(processors, rows)
        drawn = draw(scores, config, uniforms(streams[numbers], length))
        column = drawn.unsqueeze(1)
        grown = written.new_full((len(names), 1), EOS_ID)
        written = torch.cat((written, grown.index_copy_(0, numbers, column)), dim=1)
        return Choice(drawn, own.gather(1, column).squeeze(1), own[:, EOS_ID])

    most = [limit for limit in limits for _ in range(n_drawn)]
    hypotheses = _write(model, memory, mask, config, most, choose)
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


def _streams(keys: Sequence[int], n_drawn: int, device: torch.device) -> Tensor:
    """(B·N) a number for each candidate of each sentence."""
    candidates = torch.arange(n_drawn) * INCREMENT
    return _mix_bits((torch.tensor(keys).unsqueeze(1) ^ candidates).flatten()).to(device)


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
