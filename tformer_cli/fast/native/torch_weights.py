"""Weights of a model of torch's for the kernels, and which models of torch's they do not know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from tformer_cli.fast.native.search import NativeModel
from tformer_cli.fast.native.weights import OUTPUT, SCALE, unsupported_shape
from tformer_cli.fast.products import PackedProduct
from tformer_cli.fast.quantized import QuantizedProduct
from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.base import Model
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.model.operations import Linear
from tformer_cli.model.transformer import Transformer

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

    from tformer_cli.fast.native.weights import Array


def unsupported_reason(model: object) -> str | None:
    """Reason why the kernels cannot run a model; None if they can."""
    # Not by `isinstance`: a subclass may compute something else
    if not isinstance(model, Model) or type(model) not in (Transformer, Classifier):
        return "it is not a single Transformer"
    linears = [module for module in model.modules() if isinstance(module, Linear)]
    output_product = getattr(model, "output_product", None)
    for product in (*(linear.product for linear in linears), output_product):
        if not (product is None or isinstance(product, (PackedProduct, QuantizedProduct))):
            return "the weights are neither float32 nor int8"
    in_integers = {
        id(linear.weight) for linear in linears if isinstance(linear.product, QuantizedProduct)
    }
    reason = unsupported_shape(model.config, model.vocab_size, in_integers=bool(in_integers))
    if reason is not None:
        return reason
    projection = getattr(model, "output_projection", None)
    if isinstance(output_product, QuantizedProduct) and projection is not None:
        in_integers.add(id(projection.weight))
    for weight in model.parameters():
        if id(weight) in in_integers:  # only their shapes are left
            continue
        if weight.dtype != torch.float32:
            return "the weights are neither float32 nor int8"
        if weight.device.type != "cpu":
            return "the weights are not on the CPU"
    return unsupported_state(list(model.modules()))


def unsupported_state(modules: Sequence[nn.Module]) -> str | None:
    """Describes a setting of a model that the kernels would ignore; None if there is none.

    A fraction of the work of `unsupported_reason`, for models it has found nothing against before.
    """
    if torch.is_autocast_enabled("cpu"):
        return "another precision is set for torch"
    for module in modules:
        # Only the matrix is packed
        if isinstance(module, Linear) and module.low_ranks is not None:
            return "it has adapters"
        if isinstance(module, MultiHeadAttention) and (module.is_edited or module.has_taps):
            return "attention is tapped or gated"
        if isinstance(module, MultiHeadAttention) and not module.is_scaled_product:
            return "queries and keys are not compared by a scaled product"
        if module._forward_hooks or module._forward_pre_hooks:
            return "hooks are set on the model"
        # Dropout is part of training, and the kernels have none here
        if module.training:
            return "the model is in training mode"
    return None


def versions(modules: Sequence[nn.Module]) -> list[tuple[int, int]]:
    """Tells the present weights of modules from later ones.

    Each is known by where it lies and by torch's count of how often it was written to.
    """
    return [
        # Torch does not count what is written to tensors of inference mode
        (weight.data_ptr(), 0 if weight.is_inference() else weight._version)
        for module in modules
        for weight in (*module._parameters.values(), *module._buffers.values())
        if weight is not None
    ]


def native_model(library: ctypes.CDLL, model: Model) -> NativeModel:
    """Packs a supported model; its weights must stay as they are from then on."""
    return NativeModel(library, model.config, model.vocab_size, named_arrays(model))


def named_arrays(model: Model) -> dict[str, Array]:
    """Returns the weights of a supported model, as `PackedModel` takes them.

    The arrays are the model's own memory.
    """
    tensors = {name: tensor for name, tensor in model.state_dict().items() if not tensor.is_meta}
    products = {
        f"{name}.weight": module.product
        for name, module in model.named_modules()
        if isinstance(module, Linear)
    }
    # Where an embedding is the output matrix, too, only this one is multiplied by integers
    products[OUTPUT] = getattr(model, "output_product", None)
    for name, product in products.items():
        if isinstance(product, QuantizedProduct):
            tensors[name], tensors[f"{name}{SCALE}"] = product.matrix
    return {name: tensor.contiguous().numpy() for name, tensor in tensors.items()}
