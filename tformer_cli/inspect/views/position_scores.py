"""Mean scores of heads by how far a key is from the query, where positions turn both.

Rotary positions add no number to scores: what they do depends on queries and keys. So it is
measured, on texts of random tokens, in which no content is at one distance rather than another:
whatever differs by distance is the positions' doing. Scores are those that the softmax is taken
of; as it does not change if all keys of a query have the same number added, each curve has the
mean 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tformer_cli.inspect.views.position_biases import PositionBiases, stack_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.heads.names import Inspected, Kind
    from tformer_cli.model.attention import AttentionTap

N_TEXTS = 8
"""Texts of random tokens."""
N_QUERIES = 16
"""Queries of each text, of which all offsets are seen."""
SEED = 1
"""Of the tokens."""
KINDS: dict[str, Kind] = {"encoder": "enc", "decoder": "dec"}


def read_scores(model: Inspected, n_positions: int) -> tuple[PositionBiases, ...]:
    """Measures the mean scores of all layers whose positions turn queries and keys."""
    import torch

    from tformer_cli.inspect.capture.forced import forced_pass, ids_read, tapped_attentions
    from tformer_cli.model.base import N_SPECIAL_TOKENS

    config = model.config
    turned = [stack for stack, given in stack_inputs(model) if given.positions.turns]
    room = config.max_positions - 1  # for the end or the begin of sentence
    last = min(n_positions - 1, (room - 1) // 2)
    if not turned or config.reads_images or last < 1:
        return ()
    length = min(room, 2 * last + N_QUERIES)
    drawn = torch.Generator().manual_seed(SEED)
    sums: dict[tuple[Kind, int], Tensor] = {}
    for _ in range(N_TEXTS):
        source, target = (
            torch.randint(N_SPECIAL_TOKENS, size, (length,), generator=drawn).tolist()
            for size in (config.source_vocab_size or model.vocab_size, model.vocab_size)
        )
        kinds = [KINDS[stack] for stack in turned]
        with torch.inference_mode(), tapped_attentions(model, kinds, recompute=_scores) as tapped:
            forced_pass(model, *ids_read(model, source, target))
        for place, scores in tapped.items():
            is_causal = place[0] == "dec"
            first = int(is_causal and config.target_bos)  # <s> is no random token
            seen = scores[:, first:, first:]
            means = _by_offset(seen, last, length, is_causal=is_causal)
            sums[place] = sums.get(place, torch.zeros_like(means)) + means
    found = []
    for (kind, layer), total in sums.items():
        stack = "encoder" if kind == "enc" else "decoder"
        offsets = range(-last, 1 if kind == "dec" else last + 1)
        means = total / N_TEXTS
        centered = means - means.mean(dim=1, keepdim=True)
        found.append(PositionBiases(stack, tuple(offsets), centered, layer=layer))
    return tuple(found)


def _scores(tap: AttentionTap) -> Tensor:
    """Computes (H, Q, K) the scores of a call for one text that the softmax is taken of."""
    query, key = tap.query[0].cpu().double(), tap.key[0].cpu().double()
    scores = tap.scale * query @ key.transpose(-2, -1)
    return scores if tap.bias is None else scores + tap.bias[0].cpu().double()


def _by_offset(scores: Tensor, last: int, length: int, *, is_causal: bool) -> Tensor:
    """Averages scores (H, Q, K) at each offset over the queries that see all: (H, offsets)."""
    import torch

    stop = length if is_causal else length - last
    behind = 1 if is_causal else last + 1
    rows = [scores[:, q, q - last : q + behind] for q in range(last, stop)]
    return torch.stack(rows).mean(dim=0)
