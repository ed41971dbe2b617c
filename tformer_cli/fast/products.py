"""Making a model ready to translate: faster products in place of torch's own."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.fast.quantized import QuantizedMatrix, QuantizedProduct, quantize_matrix
from tformer_cli.model.operations import ALL_ROWS, Linear, OneDnnProducts, by_rows

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.model.base import Model
    from tformer_cli.model.transformer import Transformer


def pack_layers(model: Model) -> None:
    """Lets the layers of a float32 model on the CPU multiply by packed matrices.

    No result changes. The weights must stay as they are from then on. Each matrix is copied when it
    is first used.
    """
    for linear in _linears(model).values():
        linear.product = PackedProduct(linear.weight, linear.bias)


def pack(model: Transformer) -> None:
    """Lets a model do so with its output matrix, too; see `pack_layers`."""
    pack_layers(model)
    model.output_product = PackedProduct(model.output_matrix, model.output_bias)


def unpack(model: Transformer) -> None:
    """Undoes `pack` and `use_bfloat16`."""
    for linear in _linears(model).values():
        linear.product = None
    model.output_product = None


class RoundedProduct:
    """Multiplies in bfloat16 by a matrix that was rounded once, as autocast does at every call."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Rounds a matrix (N, K) and a bias (N)."""
        self._weight = weight.detach().to(torch.bfloat16)
        self._bias = None if bias is None else bias.detach().to(torch.bfloat16)

    def __call__(self, values: Tensor, rows: slice = ALL_ROWS, *, relu: bool = False) -> Tensor:
        """Multiplies (…, K) by the named n rows; returns (…, n) bfloat16."""
        bias = None if self._bias is None else self._bias[rows]
        result = functional.linear(values.to(torch.bfloat16), self._weight[rows], bias)
        return result.relu_() if relu else result


def use_bfloat16(model: Transformer) -> None:
    """Lets a model multiply by matrices that were rounded once; `unpack` undoes it.

    Its weights must stay as they are from then on.
    """
    for linear in _linears(model).values():
        linear.product = RoundedProduct(linear.weight, linear.bias)
    model.output_product = RoundedProduct(model.output_matrix, model.output_bias)


def quantized_matrices(weights: dict[str, Tensor]) -> dict[str, QuantizedMatrix]:
    """Quantizes the matrices among a model's weights: those of all products, and the embeddings.

    Biases, norms and learned positions stay real numbers.
    """
    return {name: quantize_matrix(weights[name]) for name in weights if is_quantized(name, weights)}


def is_quantized(name: str, weights: dict[str, Tensor]) -> bool:
    """Returns whether a weight is a matrix that int8 models hold in integers."""
    return name.endswith(".weight") and weights[name].dim() == 2


def use_integers(model: Transformer, matrices: dict[str, QuantizedMatrix]) -> None:
    """Lets a model on the CPU multiply by integers; it can translate and score, and not train.

    The embeddings become what the integers stand for; where one of them is the output projection,
    too, both use the same integers. The float32 matrices of the other products are given up: their
    shapes are left, on the meta device, where nothing can be computed with them by mistake.
    """
    for name, linear in _linears(model).items():
        linear.product = QuantizedProduct(matrices[f"{name}.weight"], linear.bias)
        # Without numbers: nothing can be computed with them by mistake
        linear.weight = nn.Parameter(linear.weight.to("meta"), requires_grad=False)
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            matrix = matrices[f"{name}.weight"].dequantize()
            module.weight = nn.Parameter(matrix, requires_grad=False)
    model.output_product = QuantizedProduct(matrices[_output_name(model)], model.output_bias)
    if model.output_projection is not None:
        weight = model.output_projection.weight.to("meta")
        model.output_projection.weight = nn.Parameter(weight, requires_grad=False)


def encode_in_integers(model: Model, matrices: dict[str, QuantizedMatrix]) -> None:
    """Lets the layers of an encoder on the CPU multiply by integers; see `use_integers`.

    Its embedding and its head become what the integers stand for: a text has one vector, or a few,
    so products of integers would save nothing there.
    """
    layers = _linears(model)
    for name, matrix in matrices.items():
        owner = model.get_submodule(name.removesuffix(".weight"))
        weight = matrix.dequantize()
        if name.startswith("encoder.") and owner in layers.values():
            linear = cast("Linear", owner)
            linear.product = QuantizedProduct(matrix, linear.bias)
            weight = weight.to("meta")  # nothing can be computed with it by mistake
        owner.weight = nn.Parameter(weight, requires_grad=False)


def _linears(model: Model) -> dict[str, Linear]:
    """The products of the layers, without those of layers that have lost all heads."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, Linear) and 0 not in module.weight.shape
    }


def _output_name(model: Transformer) -> str:
    if model.output_projection is not None:
        return "output_projection.weight"
    # Tied to an embedding, the output uses that one's integers
    is_shared = model.target_embedding is None
    return "source_embedding.weight" if is_shared else "target_embedding.weight"


# Float32 products on matrices that lie in oneDNN's own order.
#
# oneDNN multiplies by blocks. Given a matrix in rows it copies it into blocks at every call, which
# for the few rows of a decoding step costs more than the product. Here the copy is made once. The
# kernel and the order of its sums are those of the unpacked product, so every bit is.


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
                # A few rows as in decoding and many as in encoding: kernels may differ
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
        packed = self._packed.get((rows.start, rows.stop))
        weight, bias = self._pack(rows) if packed is None else packed
        post = "relu" if relu else "none"
        multiply = torch.ops.mkldnn._linear_pointwise
        return by_rows(lambda few: multiply(few, weight, bias, post, [], ""), values)

    def _pack(self, rows: slice) -> tuple[Tensor, Tensor | None]:
        bias = None if self._bias is None else self._bias[rows].contiguous()
        weight = torch.ops.mkldnn._reorder_linear_weight(self._weight[rows].contiguous(), None)
        # Kept: packing costs more than a product of few rows
        self._packed[rows.start, rows.stop] = weight, bias
        return weight, bias
