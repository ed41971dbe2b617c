"""Float32 products on matrices that lie in oneDNN's own order.

oneDNN multiplies by blocks. Given a matrix in rows it copies it into blocks at every call, which
for the few rows of a decoding step costs more than the product. Here the copy is made once. The
kernel and the order of its sums are those of the unpacked product, so every bit is.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from tformer_cli.model.operations import ALL_ROWS, OneDnnProducts, by_rows

if TYPE_CHECKING:
    from torch import Tensor


@functools.cache
def can_pack() -> bool:
    """Returns whether packed products give every bit of unpacked ones here; measured, not guessed.

    They do where oneDNN's products are exact, unless the processor's kernels for packed matrices
    round otherwise.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    generator = torch.Generator().manual_seed(1)
    matrix, bias = (torch.randn(shape, generator=generator) for shape in ((320, 256), (320,)))
    try:
        with torch.inference_mode(), OneDnnProducts():
            packed = PackedProduct(matrix, bias)
            return all(
                torch.equal(packed(rows), functional.linear(rows, matrix, bias))
                for rows in (torch.randn(n, 256, generator=generator) for n in (5, 64))
            )
    except (AttributeError, RuntimeError, NotImplementedError):
        return False


class PackedProduct:
    """Multiplies by a packed copy of a matrix, or of some of its rows; packs when first asked."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Remembers a matrix (N, K) and a bias (N), float32 on the CPU; neither may change."""
        self._weight, self._bias = weight, bias
        self._packed: dict[tuple[int | None, int | None], tuple[Tensor, Tensor | None]] = {}

    def __call__(self, values: Tensor, rows: slice = ALL_ROWS, *, relu: bool = False) -> Tensor:
        """Multiplies (…, K) by the named n rows; returns (…, n)."""
        found = self._packed.get((rows.start, rows.stop))
        weight, bias = self._pack(rows) if found is None else found
        post = "relu" if relu else "none"
        multiply = torch.ops.mkldnn._linear_pointwise
        return by_rows(lambda few: multiply(few, weight, bias, post, [], ""), values)

    def _pack(self, rows: slice) -> tuple[Tensor, Tensor | None]:
        bias = None if self._bias is None else self._bias[rows].contiguous()
        weight = torch.ops.mkldnn._reorder_linear_weight(self._weight[rows].contiguous(), None)
        self._packed[rows.start, rows.stop] = weight, bias
        return weight, bias
