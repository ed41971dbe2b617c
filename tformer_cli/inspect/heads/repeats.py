"""Heads of a language model on random tokens that come twice: what they look at by content.

A block of random tokens, all different, is read twice: x_1 … x_L x_1 … x_L, behind `<s>` if texts
begin so. No text has taught the model what comes next, so in the second copy only what stood in the
first one helps. A_ij is the weight of key j for query i, which reads x_i. Means run over the rows
of the second copy:

========= ======================== ==============================================================
previous  mean A_{i,i−1}           the token before
duplicate mean A_{i,i−L}           the earlier occurrence of the token that is read
induction mean A_{i,i−L+1}         the token after that: what came next the last time (Olsson et
                                   al. 2022, "In-context Learning and Induction Heads")
first     mean A_{i,0}             the first position, a place to rest (Xiao et al. 2023,
                                   "attention sink")
========= ======================== ==============================================================

Intervals are of the bootstrap over blocks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tformer_cli.errors import UsageError
from tformer_cli.heads.names import HeadId, Kind
from tformer_cli.inspect.capture.forced import tapped_attentions
from tformer_cli.inspect.data import jsonable, to_json
from tformer_cli.metrics.resampling import PERCENTILES, RESAMPLES, draws
from tformer_cli.model.attention import AttentionTap
from tformer_cli.model.base import N_SPECIAL_TOKENS
from tformer_cli.model.transformer import Transformer
from tformer_cli.text.tokenizer import BOS_ID

SCHEMA = "tformer.repeats/1"
RepeatRole = Literal["previous", "duplicate", "induction", "first", "other"]
SCORES: tuple[RepeatRole, ...] = ("previous", "duplicate", "induction", "first")
ROLE_MASS = 0.5
"""A head has the role of its largest score if that is above this: of positions as Clark et al. 2019
have it, of the others ours."""
LONGEST_BLOCK = 64  # Most tokens of a block
SHORTEST_BLOCK = 4  # With fewer the scores would be of places more than of tokens
BLOCKS_AT_ONCE = 8
DECODER: tuple[Kind, ...] = ("dec",)


@dataclass(frozen=True, kw_only=True)
class HeadRepeats:
    """The scores of one head."""

    head: HeadId
    scores: dict[str, float]
    intervals: dict[str, tuple[float, float]]

    @property
    def role(self) -> RepeatRole:
        largest = max(SCORES, key=lambda name: self.scores[name])
        return largest if self.scores[largest] > ROLE_MASS else "other"


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """The heads of a language model on blocks of random tokens."""

    model: str
    n_blocks: int
    length: int  # L, tokens of a block
    losses: tuple[float, float]  # Mean -ln p of a token in the first and in the second copy
    heads: tuple[HeadRepeats, ...]

    def describe(self, repeats: HeadRepeats) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "model": self.model,
            **to_json(repeats, "*head.data role scores ci95=intervals"),
            **to_json(self, "n_blocks length"),
            "loss": jsonable(dict(zip(("first", "second"), self.losses, strict=True))),
        }


def block_length(model: Transformer) -> int:
    room = (model.config.max_positions - model.config.target_bos) // 2
    length = min(LONGEST_BLOCK, room, model.vocab_size - N_SPECIAL_TOKENS)
    if length < SHORTEST_BLOCK:
        raise UsageError(
            f"--repeats: needs blocks of {SHORTEST_BLOCK} different tokens, twice, but the model "
            f"takes {max(length, 0)}; omit it"
        )
    return length


def repeated_blocks(model: Transformer, n_blocks: int, length: int, seed: int) -> Tensor:
    """Draws blocks: (N, T) ids, each block twice, `<s>` first if texts begin so."""
    rng = np.random.default_rng(seed)
    tokens = np.arange(N_SPECIAL_TOKENS, model.vocab_size)
    blocks = np.stack([rng.permutation(tokens)[:length] for _ in range(n_blocks)])
    begin = np.full((n_blocks, int(model.config.target_bos)), BOS_ID)
    return torch.from_numpy(np.concatenate((begin, blocks, blocks), axis=1))


def repeat_scores(weights: Tensor, length: int) -> Tensor:
    """Computes (B, H, 4) `SCORES` of weights (B, H, T, T); the second copy is the last L rows."""
    rows = weights[:, :, -length:].double()
    n_keys = rows.shape[-1]
    queries = torch.arange(n_keys - length, n_keys, device=rows.device)
    offsets = queries - 1, queries - length, queries - length + 1, torch.zeros_like(queries)
    # (B, H, L, K) -> (B, H, L) -> (B, H): the scored key of each row
    means = [
        rows.gather(-1, keys.view(1, 1, -1, 1).expand(*rows.shape[:2], -1, 1)).mean(dim=(2, 3))
        for keys in offsets
    ]
    return torch.stack(means, dim=-1)


@torch.inference_mode()
def measure_repeats(
    model: Transformer, name: str, heads: Sequence[HeadId], n_blocks: int, seed: int
) -> Iterator[int | Repeats]:
    length = block_length(model)
    device = next(model.parameters()).device
    ids = repeated_blocks(model, n_blocks, length, seed)
    parts_of: dict[HeadId, list[Tensor]] = {head: [] for head in heads}
    sums = np.zeros(2)

    def scores_of(tap: AttentionTap) -> Tensor:
        return repeat_scores(tap.weights(torch.float32), length).cpu()

    for start in range(0, n_blocks, BLOCKS_AT_ONCE):
        batch = ids[start : start + BLOCKS_AT_ONCE].to(device)
        nothing = batch[:, :1]
        with tapped_attentions(model, scores_of, DECODER) as tapped:
            hidden = model.target_hidden(nothing, torch.ones_like(nothing).bool(), batch)
        sums += _losses(model, hidden, batch, length)
        for head in heads:
            parts_of[head].append(tapped["dec", head.layer][:, head.head])
        yield start + len(batch)
    n_first = length - 1 + int(model.config.target_bos)
    yield Repeats(
        model=name,
        n_blocks=n_blocks,
        length=length,
        losses=(sums[0] / (n_first * n_blocks), sums[1] / (length * n_blocks)),
        heads=_summed_up(parts_of, n_blocks, seed),
    )


def _losses(model: Transformer, hidden: Tensor, ids: Tensor, length: int) -> NDArray[np.float64]:
    """Sums -ln p of the tokens (B, T) of the first and of the second copies."""
    rows = torch.log_softmax(model.project(hidden[:, :-1]).double(), dim=-1)
    losses = -rows.gather(-1, ids[:, 1:, None]).squeeze(-1)
    sums = losses[:, :-length].sum(), losses[:, -length:].sum()
    return np.array([loss.item() for loss in sums])


def _summed_up(
    parts_of: dict[HeadId, list[Tensor]], n_blocks: int, seed: int
) -> tuple[HeadRepeats, ...]:
    if not parts_of:
        return ()
    # for each head N times (B, 4) -> (N, heads, 4)
    scores = torch.stack([torch.cat(parts) for parts in parts_of.values()], dim=1).numpy()
    counts = np.stack(list(draws(n_blocks, RESAMPLES, seed)))
    drawn = np.tensordot(counts / n_blocks, scores, axes=1)
    means, (low, high) = scores.mean(axis=0), np.percentile(drawn, PERCENTILES, axis=0)
    return tuple(
        HeadRepeats(
            head=head,
            scores={name: float(means[n, s]) for s, name in enumerate(SCORES)},
            intervals={
                name: (float(low[n, s]), float(high[n, s])) for s, name in enumerate(SCORES)
            },
        )
        for n, head in enumerate(parts_of)
    )
