"""Training steps computed by the kernels.

Matrix products, dropout, layer norm, attention and the loss, with their gradients, and Muon's
matrices. What has gradients is a function of torch's automatic differentiation. In float32 and
bfloat16 alike, numbers are float32 while they are computed with.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

from tformer_cli.fast.native.attention import NativeAttention
from tformer_cli.fast.native.linear import NativeLinear
from tformer_cli.fast.native.operations import (
    NativeDropout,
    NativeLoss,
    NativeOrthogonal,
    NativeResidualNorm,
)
from tformer_cli.fast.native.threads import threads_of_torch
from tformer_cli.fast.unpadded import (
    attend_within,
    hidden_unpadded,
    pooled_unpadded,
    remove_padding,
    trains_unpadded,
)
from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.model.feed_forward import FeedForward
from tformer_cli.model.operations import Dropout, Linear
from tformer_cli.model.transformer import Transformer

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.model.base import Model
    from tformer_cli.model.operations import Spans


class NativeOperations:
    """The operations of `tformer_cli.model.operations`, by the kernels."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Takes the library's functions; they compute with torch's threads."""
        library.tformer_use_threads.argtypes = [ctypes.c_void_p]
        library.tformer_use_threads.restype = None
        start_threads = threads_of_torch()
        library.tformer_use_threads(start_threads)
        self.has_threads = start_threads is not None
        """True if there are as many threads as torch has, or else one."""
        self.products = NativeLinear(library)
        self.linear = self.products.linear
        self.feed_forward = self.products.feed_forward
        self.masked_dropout = NativeDropout(library)
        self.add_dropout_norm = NativeResidualNorm(library)
        self.attention = NativeAttention(library)
        self.loss = NativeLoss(library)
        self.orthogonalize = NativeOrthogonal(library)

    def __deepcopy__(self, memo: dict[int, Any]) -> NativeOperations:
        """Copies of a model share its operations."""
        return self

    def hidden_states(
        self,
        model: Model,
        source: tuple[Tensor, Tensor],
        target_input: tuple[Tensor, Tensor],
    ) -> Tensor | None:
        """See `Operations.hidden_states`."""
        longest = max(source[0].shape[1], target_input[0].shape[1])
        if not trains_unpadded(model, longest):
            return None
        if isinstance(model, Classifier):
            return model.summarize(pooled_unpadded(model, remove_padding(*source)))
        if not isinstance(model, Transformer):
            return None
        return hidden_unpadded(model, remove_padding(*source), remove_padding(*target_input))

    def attend_within(
        self, layer: MultiHeadAttention, hidden: Tensor, memory: Tensor | None, spans: Spans
    ) -> Tensor:
        """See `Operations.attend_within`."""
        return attend_within(self.attention, layer, hidden, memory, spans)

    def dropout(self, values: Tensor, rate: float) -> Tensor:
        """See `Operations.dropout`."""
        return self.masked_dropout(values, None, rate)

    def add_dropout(self, hidden: Tensor, values: Tensor, rate: float) -> Tensor:
        """See `Operations.add_dropout`."""
        return self.masked_dropout(values, hidden, rate)


def use_native_operations(model: Model, library: ctypes.CDLL) -> bool:
    """Lets a model on the CPU train by the kernels."""
    for weight in model.parameters():
        # Master weights are float32; the kernels read the CPU's memory
        if not (weight.dtype == torch.float32 and weight.device.type == "cpu"):
            return False
    operations = NativeOperations(library)
    # Without torch's threads the kernels would have one where torch has several
    if torch.get_num_threads() > 1 and not operations.has_threads:
        return False
    model.operations = operations
    for module in model.modules():
        if isinstance(module, Dropout | FeedForward | Linear | MultiHeadAttention):
            module.operations = operations
    return True
