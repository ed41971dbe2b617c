"""Layers compiled by torch for training, and as they are for all else."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from tformer_cli.model.transformer import Transformer


def compile_layers(model: Transformer) -> None:
    """Lets torch compile the layers of both stacks for training, for batches of all shapes.

    Layer by layer: they are alike, so each kind is compiled once. Single steps of the decoder and
    whoever listens to a layer continue as before.
    """
    for layer in _layers(model):
        layer.compile(dynamic=True)


def uncompiled(model: Transformer) -> AbstractContextManager[object]:
    """Makes the context in which compiled layers compute as others do.

    Without gradients they would be compiled once more, for a few passes.
    """
    if all(layer._compiled_call_impl is None for layer in _layers(model)):
        return nullcontext()  # and torch's compiler is not imported
    context: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return context


def _layers(model: Transformer) -> list[nn.Module]:
    encoder = () if model.config.is_decoder_only else model.encoder.layers
    return [*encoder, *model.decoder.layers]
