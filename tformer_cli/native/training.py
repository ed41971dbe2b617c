"""What training computes by the kernels: dropout, attention and the loss, with their gradients.

Each is a function of torch's automatic differentiation. In float32 and bfloat16 alike, numbers are
float32 while they are computed with.
"""

from __future__ import annotations

import ctypes
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.dropout import Dropout

if TYPE_CHECKING:
    from torch import Tensor

    from tformer_cli.model.transformer import Transformer
    from tformer_cli.model.unpadded import Spans

_KINDS = {torch.float32: 0, torch.bfloat16: 1}
_LEVELS = 1 << 16
_MOST_DROPPED = 1 << 33
"""Values of a tensor that have random bits of their own: 2³² counters for two each."""


class _Dropout(ctypes.Structure):
    """The struct `Dropout` of dropout.h."""

    _fields_ = (
        ("n_values", ctypes.c_int64),
        ("values", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("values_kind", ctypes.c_int32),
        ("result_kind", ctypes.c_int32),
        ("seed", ctypes.c_uint32 * 2),
        ("threshold", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("n_threads", ctypes.c_int64),
    )


class _HeadRows(ctypes.Structure):
    """The struct `HeadRows` of attention_training.h."""

    _fields_ = (
        ("numbers", ctypes.c_void_p),
        ("row_stride", ctypes.c_int64),
    )


class _Attention(ctypes.Structure):
    """The struct `AttentionPass` of attention_training.h."""

    _fields_ = (
        ("n_sentences", ctypes.c_int64),
        ("n_heads", ctypes.c_int64),
        ("head_width", ctypes.c_int64),
        ("kind", ctypes.c_int32),
        ("is_causal", ctypes.c_int32),
        ("query", _HeadRows),
        ("key", _HeadRows),
        ("value", _HeadRows),
        ("query_starts", ctypes.c_void_p),
        ("key_starts", ctypes.c_void_p),
        ("weight_starts", ctypes.c_void_p),
        ("most_queries", ctypes.c_int64),
        ("most_keys", ctypes.c_int64),
        ("weights", ctypes.c_void_p),
        ("context", _HeadRows),
        ("query_gradient", _HeadRows),
        ("key_gradient", _HeadRows),
        ("value_gradient", _HeadRows),
        ("n_threads", ctypes.c_int64),
    )


class _Loss(ctypes.Structure):
    """The struct `RowLoss` of loss.h."""

    _fields_ = (
        ("n_rows", ctypes.c_int64),
        ("vocab_size", ctypes.c_int64),
        ("logits", ctypes.c_void_p),
        ("kind", ctypes.c_int32),
        ("writes_slope", ctypes.c_int32),
        ("targets", ctypes.c_void_p),
        ("target_weight", ctypes.c_float),
        ("normaliser", ctypes.c_void_p),
        ("right", ctypes.c_void_p),
        ("n_threads", ctypes.c_int64),
    )


class NativeOperations:
    """The operations of `tformer_cli.model.operations`, by the kernels."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Takes the library's functions."""
        self._dropout = library.tformer_dropout
        self._dropout.argtypes = [ctypes.c_void_p]
        self._dropout.restype = None
        self._attend = library.tformer_attend
        self._attend_backward = library.tformer_attend_backward
        self._loss = library.tformer_loss
        for function in (self._attend, self._attend_backward, self._loss):
            function.argtypes = [ctypes.c_void_p]
            function.restype = ctypes.c_bool
        self._weights_stride = library.tformer_weights_stride
        self._weights_stride.argtypes = [ctypes.c_int64]
        self._weights_stride.restype = ctypes.c_int64
        library.tformer_use_threads.argtypes = [ctypes.c_void_p]
        library.tformer_use_threads.restype = None
        start_threads = threads_of_torch()
        library.tformer_use_threads(start_threads)
        self.has_threads = start_threads is not None
        """Whether it computes with as many threads as torch, or else with one."""

    def __deepcopy__(self, memo: dict[int, Any]) -> NativeOperations:
        """Copies of a model share what it computes with."""
        return self

    def dropout(self, values: Tensor, rate: float) -> Tensor:
        """Zeroes each value with chance `rate` and scales the rest by 1 / (1 - rate)."""
        if not _is_known(values):
            raise TypeError(f"values must be float32 or bfloat16 on the CPU, not {values.dtype}")
        result: Tensor = _DropoutFunction.apply(self, values, None, rate)  # type: ignore[no-untyped-call]
        return result

    def add_dropout(self, hidden: Tensor, values: Tensor, rate: float) -> Tensor:
        """Computes hidden + dropout(values); `hidden` and the result are float32."""
        if not (_is_known(values) and hidden.dtype == torch.float32):
            raise TypeError(f"hidden must be float32, not {hidden.dtype}")
        result: Tensor = _DropoutFunction.apply(self, values, hidden, rate)  # type: ignore[no-untyped-call]
        return result

    def attention(self, query: Tensor, memory: Tensor | None, n_heads: int, spans: Spans) -> Tensor:
        """Attends with all heads, in sentences that lie one after the other.

        Args:
            query: (1, Q, H·E) queries; or (1, Q, 3·H·E) queries, keys and values.
            memory: (1, K, 2·H·E) keys and values; None: `query` has them.
            n_heads: H.
            spans: which rows belong together; the others give zeros.

        Returns:
            (1, Q, H·E) the weighted values.
        """
        context: Tensor = _AttentionFunction.apply(self, query, memory, n_heads, spans)  # type: ignore[no-untyped-call]
        return context

    def loss(
        self, logits: Tensor, targets: Tensor, target_weight: float, *, writes_slope: bool
    ) -> tuple[Tensor, Tensor]:
        """Computes the parts of a cross-entropy, and its gradient in place of the logits.

        Args:
            logits: (N, V); becomes softmax - target_weight·onehot if `writes_slope`.
            targets: (N) token ids; rows with a negative one count for nothing.
            target_weight: 1 - ε of label smoothing.
            writes_slope: whether the logits are replaced.

        Returns:
            ln Σ exp of the logits and the target's logit, (N) each, float32.
        """
        normaliser, right = torch.empty(2, len(targets)).unbind()
        loss = _Loss(
            n_rows=len(targets),
            vocab_size=logits.shape[1],
            logits=logits.data_ptr(),
            kind=_KINDS[logits.dtype],
            writes_slope=writes_slope,
            targets=targets.data_ptr(),
            target_weight=target_weight,
            normaliser=normaliser.data_ptr(),
            right=right.data_ptr(),
            n_threads=torch.get_num_threads(),
        )
        _succeed(self._loss(ctypes.byref(loss)))
        return normaliser, right

    def drop(
        self,
        values: Tensor,
        residual: Tensor | None,
        rate: float,
        seed: tuple[int, int],
        dtype: torch.dtype,
    ) -> Tensor:
        """Computes residual + dropout(values) with the mask of a seed, without gradients."""
        if values.numel() > _MOST_DROPPED:
            raise ValueError("a tensor has more values than dropout has random numbers")
        result = torch.empty(values.shape, dtype=dtype)
        threshold = round(rate * _LEVELS)
        drop = _Dropout(
            n_values=values.numel(),
            values=values.data_ptr(),
            residual=None if residual is None else residual.data_ptr(),
            result=result.data_ptr(),
            values_kind=_KINDS[values.dtype],
            result_kind=_KINDS[dtype],
            seed=seed,
            threshold=threshold,
            scale=_LEVELS / (_LEVELS - threshold) if threshold < _LEVELS else 0.0,
            n_threads=torch.get_num_threads(),
        )
        self._dropout(ctypes.byref(drop))
        return result

    def weights_stride(self, n_keys: int) -> int:
        """Floats between two rows of attention weights."""
        return int(self._weights_stride(n_keys))

    def attend(self, attention: _Attention) -> None:
        """Runs the forward pass.

        Raises:
            MemoryError: if there is not enough.
        """
        _succeed(self._attend(ctypes.byref(attention)))

    def attend_backward(self, attention: _Attention) -> None:
        """Runs the backward pass.

        Raises:
            MemoryError: if there is not enough.
        """
        _succeed(self._attend_backward(ctypes.byref(attention)))


def use_native_operations(model: Transformer, library: ctypes.CDLL) -> bool:
    """Lets a model on the CPU train by the kernels.

    Returns:
        Whether it does: not if its weights are not float32 on the CPU, or if one thread would have
        to do what torch divides among several.
    """
    for weight in model.parameters():
        if not (weight.dtype == torch.float32 and weight.device.type == "cpu"):
            return False
    operations = NativeOperations(library)
    if torch.get_num_threads() > 1 and not operations.has_threads:
        return False
    model.operations = operations
    for module in model.modules():
        if isinstance(module, Dropout | MultiHeadAttention):
            module.operations = operations
    return True


class _DropoutFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  # what torch hands over has no public type
        operations: NativeOperations,
        values: Tensor,
        hidden: Tensor | None,
        rate: float,
    ) -> Tensor:
        # one number of torch's generator: the run's random state is the generator's, as ever
        first, second = torch.randint(0, 1 << 32, (2,)).tolist()
        ctx.operations, ctx.rate, ctx.seed, ctx.dtype = (
            operations,
            rate,
            (first, second),
            values.dtype,
        )
        dtype = values.dtype if hidden is None else hidden.dtype
        residual = None if hidden is None else hidden.contiguous()
        return operations.drop(values.contiguous(), residual, rate, ctx.seed, dtype)

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401
        gradient: Tensor,
    ) -> tuple[None, Tensor, Tensor | None, None]:
        dropped = ctx.operations.drop(gradient.contiguous(), None, ctx.rate, ctx.seed, ctx.dtype)
        return None, dropped, gradient if ctx.needs_input_grad[2] else None, None


class _AttentionFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        operations: NativeOperations,
        query: Tensor,
        memory: Tensor | None,
        n_heads: int,
        spans: Spans,
    ) -> Tensor:
        query = query.contiguous()
        memory = None if memory is None else memory.contiguous()
        joined = query.shape[2] // (3 if memory is None else 1)
        layout = _Layout(operations, spans, n_heads)
        weights = torch.empty(layout.n_weights)
        context = query.new_empty(1, query.shape[1], joined)
        context[:, layout.n_queries :] = 0.0
        operations.attend(layout.attention(query, memory, weights, context))
        ctx.operations, ctx.layout = operations, layout
        ctx.save_for_backward(query, memory, weights)
        return context

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401
        gradient: Tensor,
    ) -> tuple[None, Tensor, Tensor | None, None, None]:
        query, memory, weights = ctx.saved_tensors
        layout: _Layout = ctx.layout
        query_gradient = torch.empty_like(query)
        query_gradient[:, layout.n_queries :] = 0.0
        memory_gradient = None
        if memory is not None:
            memory_gradient = torch.empty_like(memory)
            memory_gradient[:, layout.n_keys :] = 0.0
        attention = layout.attention(query, memory, weights, gradient := gradient.contiguous())
        parts = _parts(query_gradient, memory_gradient, gradient.shape[2])
        attention.query_gradient, attention.key_gradient, attention.value_gradient = parts
        ctx.operations.attend_backward(attention)
        return None, query_gradient, memory_gradient, None, None


class _Layout:
    """Where the sentences of an attention lie, and their weights."""

    def __init__(self, operations: NativeOperations, spans: Spans, n_heads: int) -> None:
        self._n_heads, self._is_causal = n_heads, spans.is_causal
        self._queries, self._keys = spans.queries.contiguous(), spans.keys.contiguous()
        n_queries, n_keys = self._queries.diff(), self._keys.diff()
        self._most = int(n_queries.max()), int(n_keys.max())
        self.n_queries, self.n_keys = int(self._queries[-1]), int(self._keys[-1])
        lanes = operations.weights_stride(1)
        strides = (n_keys + (lanes - 1)) // lanes * lanes
        self._weights = functional.pad((n_heads * n_queries * strides).cumsum(0), (1, 0))
        self.n_weights = int(self._weights[-1])

    def attention(
        self, query: Tensor, memory: Tensor | None, weights: Tensor, context: Tensor
    ) -> _Attention:
        """Says where everything lies; all tensors must stay alive until the pass is over."""
        joined = context.shape[2]
        attention = _Attention(
            n_sentences=len(self._queries) - 1,
            n_heads=self._n_heads,
            head_width=joined // self._n_heads,
            kind=_KINDS[query.dtype],
            is_causal=self._is_causal,
            query_starts=self._queries.data_ptr(),
            key_starts=self._keys.data_ptr(),
            weight_starts=self._weights.data_ptr(),
            most_queries=self._most[0],
            most_keys=self._most[1],
            weights=weights.data_ptr(),
            context=_head_rows(context, 0, joined),
            n_threads=torch.get_num_threads(),
        )
        attention.query, attention.key, attention.value = _parts(query, memory, joined)
        return attention


def _parts(query: Tensor, memory: Tensor | None, joined: int) -> tuple[_HeadRows, ...]:
    """Queries, keys and values, which are columns of one tensor or two."""
    if memory is None:
        return tuple(_head_rows(query, part, joined) for part in range(3))
    return (
        _head_rows(query, 0, joined),
        _head_rows(memory, 0, joined),
        _head_rows(memory, 1, joined),
    )


def _head_rows(tensor: Tensor, part: int, joined: int) -> _HeadRows:
    start = tensor.data_ptr() + part * joined * tensor.element_size()
    return _HeadRows(start, tensor.stride(1))


def _is_known(values: Tensor) -> bool:
    return values.dtype in _KINDS and values.device.type == "cpu"


def _succeed(has_succeeded: bool) -> None:
    if not has_succeeded:
        raise MemoryError("there is not enough memory for a part of the training step")


def threads_of_torch() -> ctypes.c_void_p | None:
    """Finds OpenMP's entry point in the very library that torch computes with.

    The loader looks a name up in a library and in all that this one was loaded with. None where
    torch has no OpenMP, or one without the name that GNU's has.
    """
    folder = Path(torch.__file__).parent / "lib"
    found = itertools.chain(*(folder.glob(f"libtorch_cpu.{end}") for end in ("so", "dylib")))
    for path in found:
        try:
            function = ctypes.CDLL(str(path)).GOMP_parallel
        except (OSError, AttributeError):
            continue
        return ctypes.cast(function, ctypes.c_void_p)
    return None
