"""Products of 8-bit integers: int8 weights, and activations that are quantized as they come.

A matrix W (N, K) becomes integers from -127 to 127 and one scale s a row (an output channel); a
row x of activations becomes such integers and one scale r:

    W[n] ≈ s[n]·W̃[n]    s[n] = max|W[n]| / 127        x ≈ r·x̃    r = max|x| / 127
    x·Wᵀ + b ≈ r·(x̃·W̃ᵀ)·s + b

Symmetric per-channel weights and dynamic activations are what Krishnamoorthi 2018, "Quantizing deep
convolutional networks for efficient inference", sections 3.1 and 3.2 recommends; a scale for each
row of activations, instead of one for all, is what makes a sentence independent of its batch.

The sums of x̃·W̃ᵀ are integers and exact, so they are the same whatever kernel adds them up, in
whatever order and with however many rows. Two kernels are used:

========  ========================================================================================
integer   oneDNN's, where the processor multiplies 8-bit integers (VNNI, AMX)
float32   elsewhere the integers are multiplied as float32 numbers. A sum of K products is below
          K·127², which float32 holds exactly up to K = 1040; longer rows are summed in parts
========  ========================================================================================

Without VNNI 8-bit instructions add pairs of products in 16 bits, which overflows (127·255·2 is over
32,767); so the integer kernel is tried with the largest numbers before it is trusted.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from tformer_cli.model.operations import ALL_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGEST = 127
"""Largest integer on either side of 0; -128 is not used."""
SHIFT = 128
"""Added to activations for oneDNN's kernel, which takes them unsigned."""
EXACT_COLUMNS = 1024
"""Products of this many pairs of integers add up exactly in float32: 1024·127² < 2²⁴."""


class QuantizedMatrix(NamedTuple):
    """A matrix in integers."""

    integers: Tensor
    """(N, K) int8, from -127 to 127."""
    scale: Tensor
    """(N) float32; row n stands for scale[n]·integers[n]."""

    def dequantize(self) -> Tensor:
        """Returns the (N, K) float32 matrix that it stands for."""
        return self.integers.float() * self.scale.unsqueeze(1)


def quantize_matrix(matrix: Tensor) -> QuantizedMatrix:
    """Rounds a (N, K) matrix to integers, each row by its largest element."""
    if 0 in matrix.shape:  # of a layer whose heads were all pruned
        return QuantizedMatrix(matrix.to(torch.int8), torch.ones(len(matrix)))
    largest = matrix.float().abs().amax(dim=1)
    # A row of zeros has no largest element to divide by
    scale = torch.where(largest > 0, largest, 1.0) / LARGEST
    return QuantizedMatrix((matrix / scale.unsqueeze(1)).round().to(torch.int8), scale)


def quantize_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Rounds each row of activations (…, K) to integers by its largest element."""
    # By row, so that a sentence is independent of its batch; never by 0
    scale = values.abs().amax(dim=-1, keepdim=True).clamp_(min=1e-30).div_(LARGEST)
    return (values / scale).round_(), scale


class QuantizedProduct:
    """Multiplies activations, quantized as they come, by a quantized matrix."""

    def __init__(self, matrix: QuantizedMatrix, bias: Tensor | None) -> None:
        """Takes a matrix (N, K) and a bias (N), on the CPU."""
        self.matrix = matrix
        self._bias = matrix.scale.new_zeros(len(matrix.scale)) if bias is None else bias.float()
        # Without VNNI sums overflow, so the integer kernel is tried before it is trusted
        self._prepare = (
            _IntegerKernel if integers_are_exact(matrix.integers.shape[1]) else _FloatKernel
        )
        self._parts: dict[tuple[int | None, int | None], _Part] = {}

    def __call__(self, values: Tensor, rows: slice = ALL_ROWS, *, relu: bool = False) -> Tensor:
        """Multiplies (…, K) by the named n rows; returns (…, n)."""
        part = self._parts.get((rows.start, rows.stop)) or self._part(rows)
        integers, scale = quantize_rows(values)
        sums = part.kernel(integers).mul_(scale)
        result = torch.addcmul(part.bias, sums, part.scale)
        return result.relu_() if relu else result

    def _part(self, rows: slice) -> _Part:
        matrix = self.matrix
        part = _Part(self._prepare(matrix.integers[rows]), matrix.scale[rows], self._bias[rows])
        self._parts[rows.start, rows.stop] = part
        return part


class _Part(NamedTuple):
    """Some rows of a matrix, ready to multiply by."""

    kernel: _IntegerKernel | _FloatKernel
    scale: Tensor
    bias: Tensor


class _FloatKernel:
    """Multiplies integers that are written as float32 numbers."""

    def __init__(self, integers: Tensor) -> None:
        self._pieces: Sequence[Tensor] = torch.split_with_sizes(
            integers.float(), _piece_sizes(integers.shape[1]), dim=1
        )

    def __call__(self, integers: Tensor) -> Tensor:
        """Multiplies float32 integers (…, K); returns their sums (…, n) in float32."""
        if len(self._pieces) == 1:
            return functional.linear(integers, self._pieces[0])
        columns = torch.split_with_sizes(integers, _piece_sizes(integers.shape[-1]), dim=-1)
        sums = functional.linear(columns[0], self._pieces[0])
        for part, piece in zip(columns[1:], self._pieces[1:], strict=True):
            # In float32 only the sum of a piece is exact, whatever the order of its products
            sums += functional.linear(part, piece)
        return sums


def _piece_sizes(n_columns: int) -> list[int]:
    """Columns of the pieces whose sums are exact."""
    n_whole, rest = divmod(n_columns, EXACT_COLUMNS)
    return [EXACT_COLUMNS] * n_whole + [rest] * (rest > 0)


class _IntegerKernel:
    """Multiplies 8-bit integers with oneDNN's kernel."""

    def __init__(self, integers: Tensor) -> None:
        n_rows = len(integers)
        self._packed = torch.ops.onednn.qlinear_prepack(integers.contiguous(), None)
        self._ones, self._zeros = torch.ones(n_rows), torch.zeros(n_rows, dtype=torch.int64)

    def __call__(self, integers: Tensor) -> Tensor:
        """Multiplies float32 integers (…, K); returns their sums (…, n) in float32."""
        sums: Tensor = torch.ops.onednn.qlinear_pointwise(
            # The kernel takes them unsigned, and takes the shift off again
            (integers + SHIFT).to(torch.uint8),
            1.0,
            SHIFT,
            self._packed,
            self._ones,
            self._zeros,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        return sums


@functools.cache
def integers_are_exact(width: int = 256) -> bool:
    """Returns whether oneDNN's integer kernel is there and right with the largest sums."""
    try:
        for n_rows, n_columns in ((3, 16), (3, 256), (32, min(width | 1, 1023))):
            weights = torch.full((32, n_columns), LARGEST, dtype=torch.int8)
            # Largest numbers of both signs overflow kernels that add pairs in 16 bits
            weights[1] = -LARGEST
            # With many rows AMX takes the shift off again in float32, which rounds wide sums
            rows = torch.full((n_rows, n_columns), float(LARGEST))
            rows[1] = -LARGEST
            if not torch.equal(_IntegerKernel(weights)(rows), rows @ weights.float().T):
                return False
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return True
