"""The attention maps of many sentences as arrays: shards of a dump, schema `tformer.headdump/1`.

A shard holds N sentence pairs. Of a pair, S counts the source tokens and the end of sentence, T the
decoder's positions; a map has r rows and c columns, (S, S) in enc, (T, T) in dec, (T, S) in cross.

=========================  ===========  ===================================================
array                      type         content
=========================  ===========  ===================================================
`index`                    i64 [N]      number of each pair's line in the corpus, from 0
`src_len`, `tgt_len`       i32 [N]      S and T
`src_ids`                  i32 [ΣS]     source tokens, pair after pair, ``</s>`` last; 0 of images
`tgt_ids`                  i32 [ΣT]     what the decoder's rows predict, ``</s>`` last
`residual`                 f32 [N]      by how much the pair's weights miss what the model
                                        used, the largest of all heads
`KIND.off`                 i64 [N+1]    where each pair begins in the arrays of a kind's
                                        layers, the same for all of them: in numbers of a
                                        dense shard, in rows of a sparse one
`KIND.L.w`                 f16 [H,Σrc]  dense: each pair's maps, row after row
`KIND.L.idx`               u16 [H,R,K]  sparse: the columns of the K largest weights of each
                                        of the R = Σr rows, largest first, the first of
                                        equal ones first; 65535 where a row has fewer
`KIND.L.w`                 f16 [H,R,K]  their weights
`KIND.L.rest`              f16 [H,R]    the sum of the row's other weights
=========================  ===========  ===================================================

H counts the chosen heads of the layer, which the manifest names. Half precision keeps 11 bits: a
weight is off by at most 2⁻¹² of the power of two above it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from tformer_cli.heads.names import KINDS, HeadId, Kind
from tformer_cli.inspect.capture.forced import AttentionMaps

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEMA = "tformer.headdump/1"
NO_COLUMN = 65535
"""Stands in `idx` where a row has fewer than K columns; so no map may be as wide."""
ARRAYS = {
    "index": "i64 [N] line of each pair, from 0",
    "src_len, tgt_len": "i32 [N] S and T: tokens with the end of sentence; decoder positions",
    "src_ids, tgt_ids": "i32 tokens of all pairs; tgt_ids are what the decoder's rows predict",
    "residual": "f32 [N] max |A·V - context| over the pair's heads",
    "KIND.off": "i64 [N+1] where pairs begin: in numbers (dense) or rows (sparse)",
    "KIND.L.w": "f16 [H, sum of rows x columns], row after row; sparse [H, rows, K]",
    "KIND.L.idx": "u16 [H, rows, K] columns of the K largest weights; 65535: none",
    "KIND.L.rest": "f16 [H, rows] sum of the other weights",
}
"""The schema in short, for manifests."""


@dataclass(frozen=True, kw_only=True)
class DumpLayout:
    """Numbers of a pair that a dump keeps."""

    heads: tuple[HeadId, ...]
    top_k: int | None = None
    """Largest weights that are kept of each row; None: all."""

    @property
    def by_layer(self) -> dict[tuple[Kind, int], list[int]]:
        layers: dict[tuple[Kind, int], list[int]] = {}
        for head in self.heads:
            layers.setdefault((head.kind, head.layer), []).append(head.head)
        return layers

    @property
    def kinds(self) -> list[Kind]:
        chosen = {head.kind for head in self.heads}
        return [kind for kind in KINDS if kind in chosen]

    def n_bytes(self, n_source: int, n_target: int) -> int:
        """Bytes that a pair takes in a shard."""
        per_head = {
            kind: 2 * rows * columns if self.top_k is None else rows * (4 * self.top_k + 2)
            for kind, (rows, columns) in _shapes(n_source, n_target).items()
        }
        weights = sum(per_head[head.kind] for head in self.heads)
        return weights + 8 + 8 + 4 + 4 * (n_source + n_target) + 8 * len(self.kinds)


class ShardArrays:
    """The arrays of a shard, which fill as its pairs are captured in any order."""

    def __init__(
        self, layout: DumpLayout, indices: Sequence[int], lengths: Sequence[tuple[int, int]]
    ) -> None:
        """Makes room.

        Args:
            layout: which numbers are kept.
            indices: (N) number of each pair's line.
            lengths: (N) each pair's S and T.
        """
        self._layout = layout
        sizes = np.array(lengths, dtype=np.int32).reshape(-1, 2)
        self._token_offsets = np.pad(sizes.cumsum(axis=0, dtype=np.int64), ((1, 0), (0, 0)))
        n_source_tokens, n_target_tokens = self._token_offsets[-1].tolist()
        self.arrays: dict[str, NDArray[Any]] = {"index": np.array(indices, dtype=np.int64)}
        """Arrays for `artifacts.weights_file`: wider types first, so that each array is aligned."""
        for kind in layout.kinds:
            shapes = [_shapes(*pair)[kind] for pair in sizes.tolist()]
            n_items = [r if layout.top_k is not None else r * c for r, c in shapes]
            self.arrays[f"{kind}.off"] = np.cumsum([0, *n_items], dtype=np.int64)
        self.arrays |= {
            "src_len": sizes[:, 0].copy(),
            "tgt_len": sizes[:, 1].copy(),
            "src_ids": np.zeros(n_source_tokens, dtype=np.int32),
            "tgt_ids": np.zeros(n_target_tokens, dtype=np.int32),
            "residual": np.zeros(len(sizes), dtype=np.float32),
        }
        for (kind, layer), heads in layout.by_layer.items():
            name, n_items_of_all = f"{kind}.{layer}", int(self.arrays[f"{kind}.off"][-1])
            shape = (len(heads), n_items_of_all)
            if layout.top_k is None:
                self.arrays[f"{name}.w"] = np.zeros(shape, dtype=np.float16)
                continue
            wide = (*shape, layout.top_k)
            self.arrays[f"{name}.idx"] = np.full(wide, NO_COLUMN, dtype=np.uint16)
            self.arrays[f"{name}.w"] = np.zeros(wide, dtype=np.float16)
            self.arrays[f"{name}.rest"] = np.zeros(shape, dtype=np.float16)

    def add(self, number: int, maps: AttentionMaps) -> None:
        """Puts in the maps of the pair with this number in the shard."""
        arrays = self.arrays
        source, target = (
            slice(start, stop)
            for start, stop in zip(*self._token_offsets[number : number + 2], strict=True)
        )
        if source.stop - source.start == len(maps.source_ids):
            arrays["src_ids"][source] = maps.source_ids
        arrays["tgt_ids"][target] = maps.target_ids
        arrays["residual"][number] = maps.residual
        for (kind, layer), heads in self._layout.by_layer.items():
            name = f"{kind}.{layer}"
            start, stop = arrays[f"{kind}.off"][number : number + 2].tolist()
            weights = maps.layers(kind)[layer][heads]
            if self._layout.top_k is None:
                # (H, r, c) -> (H, r·c)
                arrays[f"{name}.w"][:, start:stop] = weights.flatten(1).numpy()
                continue
            columns, top, rest = largest(weights, self._layout.top_k)
            n_kept = top.shape[-1]
            arrays[f"{name}.idx"][:, start:stop, :n_kept] = columns.numpy()
            arrays[f"{name}.w"][:, start:stop, :n_kept] = top.numpy()
            arrays[f"{name}.rest"][:, start:stop] = rest.numpy()


def largest(weights: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Splits rows into their k largest weights and the rest.

    Args:
        weights: (H, r, c) rows.
        k: how many; of shorter rows all.

    Returns:
        (H, r, k') columns, largest weight first, (H, r, k') weights, (H, r) sums of the others.
    """
    ordered, columns = weights.sort(dim=-1, descending=True, stable=True)
    return columns[..., :k], ordered[..., :k], ordered[..., k:].sum(dim=-1)


def _shapes(n_source: int, n_target: int) -> dict[Kind, tuple[int, int]]:
    return {
        "enc": (n_source, n_source),
        "dec": (n_target, n_target),
        "cross": (n_target, n_source),
    }
