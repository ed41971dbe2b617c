"""Products, dropout and residual sums: what layers compute with, and what may take it over.

Without gradients a row, or a sentence in attention, has the same bits whatever is computed with
it: in float32 a line's translation must not depend on its neighbors. The libraries that torch calls
choose their kernels by shapes and addresses, so some shapes round differently. Measured with MKL
and oneDNN on a processor with AVX2 and without AVX-512, on 1 to 32 threads:

===================================  ===========================================================
fewer than 4 rows times a matrix     have special kernels; with several threads, so have the
                                     few that are left when rows are divided among them; with MKL
                                     on a processor with AVX-512, so have fewer than 16
fewer than 11 columns of a result    have a kernel that is chosen by the number of rows
vectors that are not 4·n wide        lie at addresses that are not multiples of 16 bytes, and which
                                     of them do depends on the place in the batch
a single pair of matrices            is divided among the threads, where several are shared out
products of whole batches            are oneDNN's or not by the size of the batch
===================================  ===========================================================

So rows, columns and widths are padded with zeros, which add nothing, a single pair is computed
twice, and attention leaves oneDNN aside.

Faster code takes over in two ways, and torch computes what it is not given: a `Product` multiplies
by one matrix where no gradient is asked for, `Operations` compute with gradients.
"""

from __future__ import annotations

import functools
import math
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tformer_cli.model.adapter_config import AdaptedPart, AdapterConfig
    from tformer_cli.model.norms import Norm


FEW_ROWS = 1024
"""Below this number, rows are padded: with more no thread is left with too few of them."""
FEWEST_COLUMNS = 16
"""Results with fewer columns are padded to this many."""
WIDTH = 4
"""Vectors are padded to a multiple of this many numbers."""
ROW_MULTIPLE = 64
"""Rows of a training step are filled up to a multiple of this: a library that prepares each product
for its sizes then has seen most of them after a few steps, and freed memory fits what is asked for
next."""
ALL_ROWS = slice(None)
"""The whole matrix."""
_DROPOUT_LEVELS = 1 << 16


class _Products:
    """A setting of torch's float32 products on the CPU while it is entered.

    torch's switch is the whole process's, so the threads that have entered are counted, and the
    last to leave puts back what was before. Where both settings are entered the inner one holds,
    which is always `StandardProducts`.
    """

    _entered: ClassVar[dict[str, int]] = {"ieee": 0, "bf16": 0}
    """Number of times each value of the switch was entered; the first that was is the inner one."""
    _before: ClassVar[str] = ""
    _lock: ClassVar[threading.Lock] = threading.Lock()
    _value: ClassVar[str]

    def __enter__(self) -> None:
        self._count(1)

    def __exit__(self, *details: object) -> None:
        self._count(-1)

    def _count(self, n: int) -> None:
        matmul = matmul_settings()
        if matmul is None:
            return
        with _Products._lock:
            if not any(self._entered.values()):
                _Products._before = matmul.fp32_precision
            self._entered[self._value] += n
            inner = (value for value, entered in self._entered.items() if entered)
            matmul.fp32_precision = next(inner, self._before)


class StandardProducts(_Products):
    """While entered, float32 products take torch's standard path and not oneDNN's.

    The many small products of attention while decoding are faster there, and their bits depend on
    the shapes of one sentence: oneDNN is entered or not by the size of the whole batch.
    """

    _value = "ieee"


class OneDnnProducts(_Products):
    """While entered, float32 products are oneDNN's where those are exact.

    They are faster than the default ones on many processors, and they give a row of a result the
    same bits whatever the number of other rows.
    """

    _value = "bf16"

    def _count(self, n: int) -> None:
        if has_exact_onednn():
            super()._count(n)


def matmul_settings() -> Any:  # noqa: ANN401  # not in torch's types
    """Returns torch's settings of oneDNN's products; None where it has none."""
    return getattr(torch.backends.mkldnn, "matmul", None)


@functools.cache
def has_exact_onednn() -> bool:
    """Returns whether oneDNN multiplies in float32 here; measured, not guessed.

    torch reaches its products by a switch named for bfloat16. A processor whose matrix units would
    really round to bfloat16 shows it by its errors, of about 4e-3 of the largest result.
    """
    matmul = matmul_settings()
    if matmul is None or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    generator = torch.Generator().manual_seed(1)
    left = torch.randn(64, 256, generator=generator)
    right = torch.randn(256, 256, generator=generator)
    exact = left.double() @ right.double().T
    with _Products._lock:
        before = matmul.fp32_precision
        matmul.fp32_precision = "bf16"
        try:
            computed = functional.linear(left, right).double()
        finally:
            matmul.fp32_precision = before
    return ((computed - exact).abs().max() / exact.abs().max()).item() < 1e-5


@functools.cache
def _row_multiple() -> int:
    """Returns what the number of rows of a product is padded to a multiple of."""
    # MKL's products are in use only where oneDNN's are not exact: on processors with AMX
    return 4 if has_exact_onednn() else 16


def by_rows(product: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Applies a product, (R, K) to (R, N), to bitwise independent rows of (…, K)."""
    n_rows = values.shape[:-1].numel()
    is_few = n_rows < FEW_ROWS and values.device.type == "cpu"
    n_missing = -n_rows % _row_multiple() if is_few else 0
    if not n_missing:
        return product(values)
    rows = functional.pad(values.reshape(n_rows, -1), (0, 0, 0, n_missing))
    return product(rows)[:n_rows].view(*values.shape[:-1], -1)


def by_sentence(
    attention: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_rate: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Applies plain or fused attention; sentences are bitwise independent of each other."""
    if query.device.type != "cpu":
        return attention(query, key, value, mask, dropout_rate, scale=scale)
    n_sentences, n_heads, _, width = query.shape
    scale = width**-0.5 if scale is None else scale  # of the width before it is padded
    if missing := -width % WIDTH:
        query, key, value = (functional.pad(part, (0, missing)) for part in (query, key, value))
    if n_sentences * n_heads == 1:
        # A single pair of matrices would be divided among the threads; see above
        query, key, value = (part.expand(2, -1, -1, -1) for part in (query, key, value))
    with StandardProducts():
        context = attention(query, key, value, mask, dropout_rate, scale=scale)
    return context[:n_sentences, ..., :width]


def repeatable_linear(values: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Computes values·weightᵀ + bias, (…, K) to (…, N), each row by itself to the last bit."""
    if values.device.type != "cpu":
        return functional.linear(values, weight, bias)
    n_outputs, width = weight.shape
    more_outputs, more_width = max(0, FEWEST_COLUMNS - n_outputs), -width % WIDTH
    if more_outputs or more_width:  # of unusual models only: it costs a copy of the matrix
        values = functional.pad(values, (0, more_width))
        weight = functional.pad(weight, (0, more_width, 0, more_outputs))
        bias = None if bias is None else functional.pad(bias, (0, more_outputs))
    result = by_rows(lambda rows: functional.linear(rows, weight, bias), values)
    return result[..., :n_outputs]


class Product(Protocol):
    """Multiplies by a fixed (N, K) matrix and adds a fixed bias."""

    def __call__(self, values: Tensor, rows: slice = ..., *, relu: bool = False) -> Tensor:
        """Maps (…, K) to (…, n), as `Linear.part` does."""


class LowRank(nn.Module):
    """Adapter of some rows of a matrix."""

    def __init__(self, part: AdaptedPart, config: AdapterConfig) -> None:
        """Draws A as Hu et al.'s own code does, uniform in ±1/√(n_inputs); B is 0."""
        super().__init__()
        self.first, self.last = part.first, part.last
        self.scale = config.scale
        self.dropout = Dropout(config.dropout)
        self.lora_A = nn.Parameter(torch.empty(config.rank, part.n_inputs))
        self.lora_B = nn.Parameter(torch.zeros(part.last - part.first, config.rank))
        # With a = √5 this is uniform in ±1/√n_inputs
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, values: Tensor) -> Tensor:
        """Maps (…, n_inputs) to what is added to the rows of the product, (…, rows)."""
        low = functional.linear(self.dropout(values), self.lora_A)
        return functional.linear(low, self.lora_B) * self.scale

    if TYPE_CHECKING:
        __call__ = forward


class Linear(nn.Linear):
    """x·Wᵀ + b like torch's, for all rows of W or some, by a `Product` where one is set."""

    product: Product | None = None
    """Function used while no gradient is needed; None: torch's own."""
    operations: Operations | None = None
    """Operations used where gradients are needed; None: torch's own function."""
    low_ranks: nn.ModuleDict | None
    """The modules of `adapters` by name; None: there are none."""

    def __init__(self, n_inputs: int, n_outputs: int, *, bias: bool = True) -> None:
        super().__init__(n_inputs, n_outputs, bias=bias)
        self.low_ranks = None

    def forward(self, values: Tensor) -> Tensor:
        """Maps (…, K) to (…, N)."""
        return self.part(values)

    def part(self, values: Tensor, rows: slice = ALL_ROWS, *, relu: bool = False) -> Tensor:
        """Maps (…, K) to (…, n), with the n rows of W that are named.

        Args:
            values: (…, K) what is multiplied.
            rows: which rows of W and of the bias.
            relu: whether negative results become 0.
        """
        if self.low_ranks is None:
            return self._compute_part(values, rows, relu=relu)
        # Without ReLU, which has to see the adapted sums
        result = self._add_adapters(self._compute_part(values, rows), values, rows)
        return functional.relu(result) if relu else result

    @property
    def adapters(self) -> list[LowRank]:
        """Adapters of rows of W, which do not overlap; most models have none."""
        return [] if self.low_ranks is None else cast("list[LowRank]", [*self.low_ranks.values()])

    def _add_adapters(self, result: Tensor, values: Tensor, rows: slice) -> Tensor:
        """Adds what the adapters of the named rows compute."""
        first, last, _ = rows.indices(self.out_features)
        adapters = [
            adapter for adapter in self.adapters if first <= adapter.first and adapter.last <= last
        ]
        places = {first, last}.union(*((adapter.first, adapter.last) for adapter in adapters))
        starts = sorted(places)
        # Split and joined once: slices would each have a gradient of the whole width
        parts = result.split_with_sizes([end - start for start, end in pairwise(starts)], dim=-1)
        by_start = dict(zip(starts, parts, strict=False))
        for adapter in adapters:
            by_start[adapter.first] = by_start[adapter.first] + adapter(values)
        return torch.cat(list(by_start.values()), dim=-1)

    def _compute_part(self, values: Tensor, rows: slice, *, relu: bool = False) -> Tensor:
        """Computes `part` without adapters."""
        if self.product is not None and not torch.is_grad_enabled():
            return self.product(values, rows, relu=relu)
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if rows != ALL_ROWS:
            weight, bias = weight[rows], None if bias is None else bias[rows]
        if self.operations is not None and torch.is_grad_enabled():
            result = self.operations.linear(values, weight, bias)
            return functional.relu(result) if relu else result
        if not torch.is_grad_enabled():
            result = repeatable_linear(values, weight, bias)
            return result.relu_() if relu else result
        if not relu:
            return functional.linear(values, weight, bias)
        # No one else needs the sums, so they are replaced; in a matrix, for torch would copy a view
        rows_of_values = values.reshape(-1, values.shape[-1])
        result = functional.linear(rows_of_values, weight, bias).relu_()
        return result.view(*values.shape[:-1], weight.shape[0])

    if TYPE_CHECKING:
        __call__ = forward


def keep_mask(shape: torch.Size, rate: float) -> Tensor:
    """Draws a boolean mask on the CPU that is False with chance `rate`, from torch's generator.

    torch's own dropout draws one random number for every value; at translation's sizes this is a
    sixth of a training step. Here a 64-bit draw serves four values: each 16-bit part is compared
    with the rate, so that the rate is met to 1/65536.
    """
    n_values = shape.numel()
    draws = torch.empty((n_values + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    threshold = round(rate * _DROPOUT_LEVELS) - _DROPOUT_LEVELS // 2
    return (draws.view(torch.int16)[:n_values] >= threshold).view(shape)


def dropout(values: Tensor, rate: float) -> Tensor:
    """Zeroes each value with chance `rate` and scales the rest by 1 / (1 - rate)."""
    if rate == 0.0:
        return values
    if values.device.type != "cpu":
        return functional.dropout(values, rate)
    # The rate that 16-bit draws really have, so that sums keep their mean
    kept_share = 1.0 - round(rate * _DROPOUT_LEVELS) / _DROPOUT_LEVELS
    return values * keep_mask(values.shape, rate).to(values.dtype).div_(kept_share)


class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014): active while training, the identity otherwise."""

    operations: Operations | None = None
    """Operations used in training; None: torch's."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """Drops values of a tensor of any shape."""
        if not self.training or self.rate == 0.0:
            return values
        if self.operations is not None:
            return self.operations.dropout(values, self.rate)
        return dropout(values, self.rate)

    def add_residual(self, hidden: Tensor, values: Tensor) -> Tensor:
        """Computes hidden + dropout(values), the residual sum of a sub-layer."""
        if self.training and self.rate > 0.0 and self.operations is not None:
            return self.operations.add_dropout(hidden, values, self.rate)
        return hidden + self(values)

    def add_and_normalize(
        self, hidden: Tensor, values: Tensor, norm: Norm, *, rounds: bool
    ) -> tuple[Tensor, Tensor]:
        """Computes hidden + dropout(values) and its norm; see `Operations`."""
        trains = self.training and torch.is_grad_enabled()
        # Faster code has an operation for layer norms only
        if trains and self.operations is not None and isinstance(norm, nn.LayerNorm):
            return self.operations.add_dropout_norm(hidden, values, self.rate, norm, rounds=rounds)
        summed = self.add_residual(hidden, values)
        return summed, norm(summed)

    if TYPE_CHECKING:
        __call__ = forward


class Spans(NamedTuple):
    """Sentences that lie one after the other in a single row: each attends within its own."""

    queries: Tensor
    """(B + 1) where the queries of each sentence begin, and where the last one ends."""
    keys: Tensor
    """(B + 1) the same of the keys."""
    is_causal: bool
    """True if query i sees only keys 0 … i."""
    positions: Tensor | None = None
    """(Q) place of each query in its sentence, from 0, for recurrent units; None in encoders and
    cross-attention."""


class Operations(Protocol):
    """Operations on the CPU that give what the plain formulas give, the model's with gradients.

    Only dropout differs, in which values are dropped: its random numbers are made in another way.
    Under autocast, products have its precision.
    """

    def hidden_states(
        self,
        model: Any,  # noqa: ANN401 - a `Model`, which is defined in terms of these
        source: tuple[Tensor, Tensor],
        target_input: tuple[Tensor, Tensor],
    ) -> Tensor | None:
        """Computes the decoder's last hidden states of whole sentences without their padding.

        Args:
            model: while it trains.
            source: (B, S) token ids, and (B, S) True where a position is a token.
            target_input: (B, T) token ids, the sentence's start first, and the same.

        Returns:
            (N', D), the states of the N target tokens and perhaps rows that only fill up; None if
            the model has to compute them with padding.
        """

    def dropout(self, values: Tensor, rate: float) -> Tensor:
        """Zeroes each value with chance `rate` and scales the rest by 1 / (1 - rate)."""

    def add_dropout(self, hidden: Tensor, values: Tensor, rate: float) -> Tensor:
        """Computes hidden + dropout(values), float32 like `hidden`."""

    def add_dropout_norm(
        self, hidden: Tensor, values: Tensor, rate: float, norm: nn.LayerNorm, *, rounds: bool
    ) -> tuple[Tensor, Tensor]:
        """Computes hidden + dropout(values) and its layer norm over D, the sum in float32.

        Args:
            hidden: (…, D) float32.
            values: (…, D).
            rate: chance of dropping a value; 0: none is.
            norm: the layer norm.
            rounds: whether the norm may be rounded to the precision of autocast at once, for it is
                only multiplied by matrices.
        """

    def linear(self, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Computes values·weightᵀ + bias: (…, K) by (N, K) to (…, N)."""

    def feed_forward(
        self,
        values: Tensor,
        inner: tuple[Tensor, Tensor | None],
        outer: tuple[Tensor, Tensor | None],
    ) -> Tensor:
        """Computes FFN(x) = max(0, x·W₁ᵀ + b₁)·W₂ᵀ + b₂, (…, D) to (…, D).

        Args:
            values: (…, D).
            inner: W₁ (F, D) and b₁ (F), or None for it.
            outer: W₂ (D, F) and b₂ (D), or None for it.
        """

    def attend_within(
        self,
        layer: Any,  # noqa: ANN401 - a `MultiHeadAttention`, likewise
        hidden: Tensor,
        memory: Tensor | None,
        spans: Spans,
    ) -> Tensor:
        """Computes what `layer`, which `is_plain`, does in sentences one after the other.

        Args:
            layer: the layer.
            hidden: (1, Q, D) where the queries come from.
            memory: (1, K, D) where keys and values come from; None: `hidden`.
            spans: which rows belong together; nothing is attended to in the others.

        Returns:
            (1, Q, D) output of the projection W_O.
        """

    def loss(
        self, logits: Tensor, targets: Tensor, target_weight: float, *, writes_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        """Computes the parts of a cross-entropy, and its gradient in place of the logits.

        Args:
            logits: (N, V); becomes softmax - target_weight·onehot if `writes_gradient`.
            targets: (N) token ids; rows with a negative one count for nothing.
            target_weight: 1 - ε of label smoothing.
            writes_gradient: whether the logits are replaced.

        Returns:
            ln Σ exp of the logits and the target's logit, (N) each, float32.
        """

    def orthogonalize(
        self,
        matrices: Tensor,
        coefficients: Sequence[tuple[float, float, float]],
        cushion: float,
        smallest_norm: float,
    ) -> Tensor:
        """Applies polynomials to the singular values of matrices, for the optimizer Muon.

        Args:
            matrices: (N, R, C) float32 matrices X, first divided by (cushion·‖X·Xᵀ‖)^½.
            coefficients: a, b, c of each polynomial a·x + b·x³ + c·x⁵, one after the other.
            cushion: see `matrices`.
            smallest_norm: a smaller ‖X·Xᵀ‖ counts as this.

        Returns:
            (N, R, C) float32.
        """


class IdentityProjection(nn.Module):
    """Hands on what it is given, several times side by side: a product without weights.

    Attention without projections compares hidden states themselves, each head its own numbers of
    them. Whoever reads the matrix finds identities below each other.
    """

    bias: None = None
    """It has none."""

    def __init__(self, width: int, n_copies: int) -> None:
        super().__init__()
        self.in_features, self.n_copies = width, n_copies

    @property
    def weight(self) -> Tensor:
        """(n_copies·width, width) the matrix that it stands for."""
        return torch.eye(self.in_features).repeat(self.n_copies, 1)

    def forward(self, values: Tensor) -> Tensor:
        """Maps (…, K) to (…, n_copies·K)."""
        return self.part(values)

    def part(self, values: Tensor, rows: slice = ALL_ROWS) -> Tensor:
        """Maps (…, K) to (…, n), with the n rows of the matrix that are named; whole copies."""
        first, last, _ = rows.indices(self.n_copies * self.in_features)
        return torch.cat([values] * ((last - first) // self.in_features), dim=-1)

    if TYPE_CHECKING:
        __call__ = forward
