"""Layers compiled by torch for training, and as they are for all else."""

from contextlib import AbstractContextManager, nullcontext

import torch

from tformer_cli.model.base import Model
from tformer_cli.model.stacks import Layer


def compile_layers(model: Model) -> None:
    """Lets torch compile the layers of all stacks for training, for batches of all shapes."""
    # Layer by layer: they are alike, so each kind is compiled once. Single steps of the decoder and
    # whoever listens to a layer continue as before.
    for layer in _layers(model):
        layer.compile(dynamic=True)


def uncompiled(model: Model) -> AbstractContextManager[object]:
    """Makes the context in which compiled layers compute as others do."""
    # Without gradients they would be compiled once more, for a few passes.
    if all(layer._compiled_call_impl is None for layer in _layers(model)):
        return nullcontext()  # and torch's compiler is not imported
    context: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return context


def _layers(model: Model) -> list[Layer]:
    return [module for module in model.modules() if isinstance(module, Layer)]
