"""A model's weights, packed once in the order in which the kernels read them."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING

import torch
from torch import nn

from tformer_cli.fast.native.structs import Shape
from tformer_cli.fast.packed import PackedProduct
from tformer_cli.fast.quantized import QuantizedProduct
from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.linear import Linear
from tformer_cli.model.transformer import Transformer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from tformer_cli.model.embedding import PositionedEmbedding
    from tformer_cli.model.feed_forward import FeedForward
    from tformer_cli.model.linear import Product

MOST_POSITION_FLOATS = 1 << 25
"""Of positions as vectors, 128 MiB: the kernels have them all, torch those that are used."""
MOST_INTEGER_INPUTS = (2**31 - 1) // 127**2
"""Products of 8-bit integers that are summed in 32 bits: 133,144."""
N_SPECIAL_TOKENS = 4
"""Padding, unknown, beginning and end of sentence; the kernels know their ids."""


def unsupported(model: nn.Module) -> str | None:
    """Gives the reason why the kernels cannot compute what a model computes; None if they can."""
    if type(model) is not Transformer:
        return "it is not a single Transformer"
    if model.vocab_size < N_SPECIAL_TOKENS:
        return "the vocabulary has no end-of-sentence token"
    if model.config.max_positions * model.config.d_model > MOST_POSITION_FLOATS:
        return "the table of all its positions would be too large"
    linears = [module for module in model.modules() if isinstance(module, Linear)]
    for product in (*(linear.product for linear in linears), model.output_product):
        if not (product is None or isinstance(product, (PackedProduct, QuantizedProduct))):
            return "the weights are neither float32 nor int8"
    in_integers = {
        id(linear.weight) for linear in linears if isinstance(linear.product, QuantizedProduct)
    }
    if in_integers and max(model.config.d_ff, model.config.d_model) > MOST_INTEGER_INPUTS:
        return "the layers are too wide for sums in 32 bits"
    if isinstance(model.output_product, QuantizedProduct) and model.output_projection is not None:
        in_integers.add(id(model.output_projection.weight))
    for weight in model.parameters():
        if id(weight) in in_integers:  # only their shapes are left
            continue
        if weight.dtype != torch.float32:
            return "the weights are neither float32 nor int8"
        if weight.device.type != "cpu":
            return "the weights are not on the CPU"
    return interference(list(model.modules()))


def interference(modules: Sequence[nn.Module]) -> str | None:
    """Describes what is set on a model that the kernels would ignore; None: nothing is.

    A fraction of the work of `unsupported`, for models it has found nothing against before.

    Args:
        modules: all modules of the model, itself included.
    """
    for module in modules:
        if isinstance(module, MultiHeadAttention) and (module.gate is not None or module.has_taps):
            return "attention is tapped or gated"
        if module._forward_hooks or module._forward_pre_hooks:
            return "hooks are set on the model"
        if module.training:
            return "the model is in training mode"
    return None


def versions(modules: Sequence[nn.Module]) -> list[tuple[int, int]]:
    """Tells the present weights of modules from later ones.

    Each is known by where it lies and by torch's count of how often it was written to.
    """
    return [
        (weight.data_ptr(), 0 if weight.is_inference() else weight._version)
        for module in modules
        for weight in module._parameters.values()
        if weight is not None
    ]


class PackedModel:
    """A model's weights as the kernels read them."""

    def __init__(self, library: ctypes.CDLL, model: Transformer) -> None:
        """Packs a model; its weights must stay as they are from then on.

        Args:
            library: the compiled kernels.
            model: one that is not `unsupported`.

        Raises:
            MemoryError: if there is not enough.
        """
        self.vocab_size = model.vocab_size
        self.max_positions = model.config.max_positions
        # Embeddings, positions and norms are read where they are and must not be freed
        self._weights = [
            None if weight is None else weight.detach().contiguous() for weight in _weights(model)
        ]
        pointers = (ctypes.c_void_p * len(self._weights))(
            *(None if weight is None else weight.data_ptr() for weight in self._weights)
        )
        library.tformer_new_model.restype = ctypes.c_void_p
        library.tformer_new_model.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.tformer_free_model.restype = None
        library.tformer_free_model.argtypes = [ctypes.c_void_p]
        shape = _shape(model)
        self.pointer = library.tformer_new_model(ctypes.byref(shape), pointers)
        if not self.pointer:
            raise MemoryError("there is not enough memory for the packed weights")
        weakref.finalize(self, library.tformer_free_model, self.pointer)


def _shape(model: Transformer) -> Shape:
    config = model.config
    heads = [(ctypes.c_int64 * len(some))(*some) for some in config.layer_heads]
    return Shape(
        config.d_model,
        config.head_width,
        config.d_ff,
        model.vocab_size,
        config.max_positions,
        config.n_encoder_layers,
        config.n_decoder_layers,
        *(ctypes.cast(some, ctypes.POINTER(ctypes.c_int64)) for some in heads),
        config.norm_epsilon,
        config.norm == "pre",
        config.activation == "gelu",
    )


def _weights(model: Transformer) -> Iterator[Tensor | None]:
    """All weights in the order that model.h names; None where there is no bias or norm."""
    yield model.source_embedding.weight
    yield model.target_matrix
    yield _positions(model.encoder_input)
    yield _positions(model.decoder_input)
    yield from _matrix(model.output_product, model.output_matrix, None)
    for encoder_layer in model.encoder.layers:
        yield from _attention(encoder_layer.self_attention)
        yield from _weight_and_bias(encoder_layer.self_attention_norm)
        yield from _feed_forward(encoder_layer.feed_forward)
        yield from _weight_and_bias(encoder_layer.feed_forward_norm)
    yield from _weight_and_bias(model.encoder.final_norm)
    for layer in model.decoder.layers:
        yield from _attention(layer.self_attention)
        yield from _weight_and_bias(layer.self_attention_norm)
        yield from _attention(layer.cross_attention)
        yield from _weight_and_bias(layer.cross_attention_norm)
        yield from _feed_forward(layer.feed_forward)
        yield from _weight_and_bias(layer.feed_forward_norm)
    yield from _weight_and_bias(model.decoder.final_norm)


def _positions(embedding: PositionedEmbedding) -> Tensor:
    # A sinusoids' table stays as it is: when the module needs more rows, it makes another one
    return embedding.positions.rows(0, embedding.max_positions, torch.device("cpu"))


def _attention(attention: MultiHeadAttention) -> Iterator[Tensor | None]:
    yield from _projection(attention.in_projection)
    yield from _projection(attention.out_projection)


def _feed_forward(layer: FeedForward) -> Iterator[Tensor | None]:
    yield from _projection(layer.inner)
    yield from _projection(layer.outer)


def _projection(linear: Linear) -> Iterator[Tensor | None]:
    yield from _matrix(linear.product, linear.weight, linear.bias)


def _matrix(
    product: Product | None, weight: Tensor, bias: Tensor | None
) -> Iterator[Tensor | None]:
    """A matrix, its bias, and its scale if it is in integers."""
    if isinstance(product, QuantizedProduct):
        yield from (product.matrix.integers, bias, product.matrix.scale)
    else:
        yield from (weight, bias, None)


def _weight_and_bias(module: nn.Module) -> Iterator[Tensor | None]:
    yield getattr(module, "weight", None)
    yield getattr(module, "bias", None)
