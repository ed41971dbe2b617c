"""Projection to the vocabulary and loss in one, without ever holding all logits.

The logits of a batch are its largest tensor by far: 4,096 tokens times 8,000 words in float32 are
131 MB, and the plain formula keeps several copies of them for the backward pass. Here rows go
through in chunks. The gradient of a chunk is computed at once, while its probabilities still lie in
the cache, and only what the layers below need is kept: (N, D) and (V, D).

With p = softmax(h·Wᵀ), q the smoothed targets and w̄ the mean row of W,

    loss      = Σ lse - (1 - ε)·logit_target - ε·h·w̄ - H(q)        lse = ln Σ exp logit
    ∂/∂logits = p - q,  the ε/V of q taken out of the products:
    ∂/∂h      = (p - (1 - ε)·onehot)·W - ε·w̄
    ∂/∂W      = (p - (1 - ε)·onehot)ᵀ·h - ε/V·Σ h  for every row

The definitions that this must agree with are in tests/oracles/plain_loss.py.

R-Drop: two passes through dropout shall agree (Liang et al. 2021, section 2.2).

A batch goes through the model twice, each time with other dropout, which gives every token two
distributions p₁ and p₂. With C the cross-entropy, here with smoothed labels as in the authors' own
translation experiments, equation 4 is

    C₁ + C₂ + α/2·[KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁)]

a token. Half of it is minimized here: without dropout both passes are one, and what is left is the
ordinary loss. α keeps the paper's meaning (5 for translation), and so do the learning rate and the
norm that gradients are clipped to.

With r = ln p₁ - ln p₂ the gradients of J = KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁) by the logits are

    ∂J/∂z₁ = p₁·(r - KL(p₁ ‖ p₂)) + p₁ - p₂
    ∂J/∂z₂ = -p₂·(r + KL(p₂ ‖ p₁)) + p₂ - p₁
"""

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from tformer_cli.model.base import Model
from tformer_cli.model.operations import ROW_MULTIPLE, Operations

NEVER = -1e8
"""An output bias below this, about -1e9 in imported models, keeps a token from ever being written.
Label smoothing gives it nothing, for its share of the loss would be a million nats."""


class Loss(NamedTuple):
    """Sums over the target tokens of a batch, in nats."""

    smoothed: Tensor
    """Minimized loss: Σ KL(q ‖ p), with R-Drop's term if any; its gradient flows. Reports add H(q)
    a token: the cross-entropy with label smoothing of torch, fairseq and Marian."""
    negative_log_likelihood: Tensor
    """-Σ ln p(token), without smoothing or gradient; perplexity is exp of its mean.

    With R-Drop, the mean of both passes.
    """


def smoothing_entropy(label_smoothing: float, vocab_size: int) -> float:
    """Entropy, in nats, of the smoothed target distribution q."""
    # q gives 1 - ε + ε/V to the right token and ε/V to each other one.
    if label_smoothing == 0.0:
        return 0.0
    rest = label_smoothing / vocab_size
    right = 1.0 - label_smoothing + rest
    return -(right * math.log(right) + (vocab_size - 1) * rest * math.log(rest))


def count_targets(model: Model) -> int:
    """Counts the tokens that a model may write, among which label smoothing shares."""
    bias = model.output_bias
    return len(model.output_matrix) if bias is None else int((bias > NEVER).sum())


class ChunkLoss(Protocol):
    """Computes the loss of some rows as `Operations.loss` does, in place of their logits."""

    def __call__(
        self, logits: Tensor, targets: Tensor, target_weight: float, *, writes_gradient: bool
    ) -> tuple[Tensor, Tensor]: ...


CHUNK_CELLS = {"cpu": 1 << 22, "cuda": 1 << 27}
"""Logits at a time: on a CPU about what its caches hold, on a GPU enough to keep it busy."""


def projected_loss(
    hidden: Tensor,
    matrix: Tensor,
    targets: Tensor,
    label_smoothing: float,
    r_drop: float = 0.0,
    operations: Operations | None = None,
    bias: Tensor | None = None,
    loss: ChunkLoss | None = None,
) -> Loss:
    """Computes Σ KL(q ‖ softmax(hidden·matrixᵀ + bias)), with R-Drop's term if enabled.

    The constant H(q) changes no gradient, but makes 0 the best possible value (Szegedy et al. 2016,
    section 7; Vaswani et al. 2017, section 5.4).

    Under autocast the products are computed in its precision, as `functional.linear` would; sums,
    probabilities and the gradients handed on are float32.

    Args:
        hidden: (N, D) hidden states of N target tokens, padding excluded; for R-Drop (2N, D), the
            two passes of each token one after the other.
        matrix: (V, D) rows that hidden states are compared with.
        targets: (N) token ids. With `operations` the last may be -1: these rows count for nothing.
        label_smoothing: ε.
        r_drop: α (0: one pass).
        operations: what computes the loss of a chunk; None, or with R-Drop: torch does.
        bias: (V) added to the logits; q gives nothing to tokens whose bias is below `NEVER`.
        loss: what computes the loss of a chunk where `operations` do not; None: `torch_loss`.
    """
    loss = loss or torch_loss
    if r_drop:
        targets, loss = targets.repeat_interleave(2), None
    elif operations is not None:
        loss = operations.loss
    pads = operations is not None and not r_drop
    has_backward = torch.is_grad_enabled()
    smoothed, likelihood = _ProjectedLoss.apply(  # type: ignore[no-untyped-call]
        hidden, matrix, bias, targets, label_smoothing, r_drop, loss, pads, has_backward
    )
    return Loss(smoothed / 2.0, likelihood / 2.0) if r_drop else Loss(smoothed, likelihood)


@dataclass
class _Gradients:
    """Gradients of the summed loss, collected chunk by chunk."""

    hidden: Tensor
    """(N, D)."""
    matrix: Tensor
    """(V, D) float32."""
    bias: Tensor | None
    """(V) float32; None without a bias."""

    @classmethod
    def zeros(cls, hidden: Tensor, matrix: Tensor, bias: Tensor | None) -> "_Gradients":
        own_bias = None if bias is None else torch.zeros_like(bias)
        return cls(torch.empty_like(hidden), torch.zeros_like(matrix), own_bias)

    def add(self, rows: slice, by_logits: Tensor, hidden: Tensor, matrix: Tensor) -> None:
        """Adds those of a chunk of n rows, given its logits' (n, V) and its states (n, D)."""
        self.hidden[rows] = by_logits @ matrix
        if by_logits.dtype == self.matrix.dtype:
            self.matrix.addmm_(by_logits.t(), hidden)
        else:
            self.matrix += by_logits.t() @ hidden
        if self.bias is not None:
            self.bias += by_logits.sum(dim=0, dtype=self.bias.dtype)

    def smooth(
        self, label_smoothing: float, uniform: "_Uniform", sum_hidden: Tensor, n: int
    ) -> None:
        """Subtracts smoothing's uniform share of n tokens with hidden states of sum (D)."""
        self.hidden[:n] -= label_smoothing * uniform.row
        if uniform.share is None:
            self.matrix -= (label_smoothing / len(self.matrix)) * sum_hidden
            return
        self.matrix.addr_(uniform.share, sum_hidden, alpha=-label_smoothing)
        if self.bias is not None:
            self.bias -= label_smoothing * n * uniform.share


class _Uniform(NamedTuple):
    """Label smoothing's even share of the tokens that may come."""

    share: Tensor | None
    """(V) 1/n of n tokens and 0 of the others; None: 1/V of each."""
    n_tokens: int | Tensor
    """V, or n."""
    row: Tensor
    """(D) mean row of the matrix."""
    bias: float | Tensor

    @classmethod
    def of(cls, matrix: Tensor, bias: Tensor | None) -> "_Uniform":
        if bias is None:
            return cls(None, len(matrix), matrix.mean(dim=0), 0.0)
        may_come = bias > NEVER
        n_tokens = may_come.sum(dtype=torch.float64)  # not fetched: nothing waits for a GPU
        share = may_come.to(matrix.dtype) / n_tokens.to(matrix.dtype)
        return cls(share, n_tokens, share @ matrix, share @ bias.where(may_come, 0.0))

    def entropy(self, label_smoothing: float) -> float | Tensor:
        if isinstance(self.n_tokens, int):
            return smoothing_entropy(label_smoothing, self.n_tokens)
        rest = label_smoothing / self.n_tokens
        target = 1.0 - label_smoothing + rest
        return -(torch.xlogy(target, target) + (self.n_tokens - 1) * torch.xlogy(rest, rest))

    def smooth_loss(
        self, label_smoothing: float, likelihood: Tensor, evenly: Tensor, n: int
    ) -> Tensor:
        """Mixes the loss of n tokens with their mean -ln p over the vocabulary, less H(q)."""
        constant = self.entropy(label_smoothing) * n
        return (1.0 - label_smoothing) * likelihood + label_smoothing * evenly - constant


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401  # what torch hands over has no public type
        hidden: Tensor,
        matrix: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        r_drop: float,
        loss: ChunkLoss | None,
        pads: bool,
        has_backward: bool,
    ) -> tuple[Tensor, Tensor]:
        n_rows, vocab_size = len(hidden), len(matrix)
        n_tokens = int((targets >= 0).sum()) if pads else n_rows
        device, dtype = hidden.device.type, hidden.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        low_hidden, low_matrix = hidden.to(dtype), matrix.to(dtype)
        low_bias = None if bias is None else bias.to(dtype)
        uniform = _Uniform.of(matrix, bias)
        needs_gradients = has_backward and any(ctx.needs_input_grad[:3])
        gradients = _Gradients.zeros(hidden, matrix, bias) if needs_gradients else None
        likelihood = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        normalizer, disagreement = likelihood.clone(), likelihood.clone()
        # Compiled, a chunk has no copy in float32
        cells = CHUNK_CELLS.get(device, CHUNK_CELLS["cuda"]) * (4 if loss is compiled_loss else 1)
        chunk, share = _rows_of_a_chunk(cells, vocab_size, r_drop), 1.0 - label_smoothing
        # logits of all chunks lie in the same memory, which is not asked for again for each of them
        room = low_hidden.new_empty(min(chunk, n_rows), vocab_size)
        with torch.autocast(device, enabled=False):
            for start in range(0, n_rows, chunk):
                rows = slice(start, start + chunk)
                states, wanted = low_hidden[rows], targets[rows]
                logits = room[: len(states)]
                if low_bias is None:
                    torch.mm(states, low_matrix.t(), out=logits)
                else:
                    torch.addmm(low_bias, states, low_matrix.t(), out=logits)
                if loss is None:
                    lse, target_logit, difference = _r_drop_loss(logits, wanted, share, r_drop)
                    disagreement += difference
                else:
                    writes_gradient = gradients is not None
                    lse, target_logit = loss(logits, wanted, share, writes_gradient=writes_gradient)
                normalizer += lse.sum()
                likelihood += (lse - target_logit).sum()
                if gradients is not None:
                    gradients.add(rows, logits, states, low_matrix)
        sum_hidden = hidden[:n_tokens].sum(dim=0)
        if gradients is not None:
            gradients.smooth(label_smoothing, uniform, sum_hidden, n_tokens)
        ctx.gradients = gradients
        ctx.mark_non_differentiable(likelihood)
        smoothed = likelihood
        if label_smoothing:
            evenly = normalizer - sum_hidden @ uniform.row - n_tokens * uniform.bias
            smoothed = uniform.smooth_loss(label_smoothing, likelihood, evenly, n_tokens)
        return smoothed + disagreement, likelihood

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401
        gradient: Tensor,
        _likelihood: Tensor,
    ) -> tuple[Tensor | None, ...]:
        gradients: _Gradients = ctx.gradients
        for part in (gradients.hidden, gradients.matrix, gradients.bias):
            if part is not None:
                part.mul_(gradient)
        return gradients.hidden, gradients.matrix, gradients.bias, *[None] * 6


def _rows_of_a_chunk(cells: int, vocab_size: int, r_drop: float) -> int:
    """Returns how many rows of logits are computed at a time."""
    chunk = max(1, cells // vocab_size)
    if chunk > ROW_MULTIPLE:  # so that the last one, too, has a size that comes again
        return chunk - chunk % ROW_MULTIPLE
    # both passes of a token lie in the same chunk
    return chunk + chunk % 2 if r_drop else chunk


def torch_loss(
    logits: Tensor, targets: Tensor, target_weight: float, *, writes_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Computes `Operations.loss` by torch."""
    lse, target_logit, probabilities = _statistics(logits, targets[:, None])
    if writes_gradient:
        logits.copy_(_less_targets(probabilities, targets, target_weight))
    return lse, target_logit


def compiled_loss(
    logits: Tensor, targets: Tensor, target_weight: float, *, writes_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Computes `Operations.loss` by kernels that torch compiles, which keep nothing of its size."""
    if len(logits) == 1:  # a shape of its own to the compiler
        return torch_loss(logits, targets, target_weight, writes_gradient=writes_gradient)
    for tensor in (logits, targets):
        torch._dynamo.mark_dynamic(tensor, 0)
    return _compile_loss()(logits, targets, target_weight, writes_gradient=writes_gradient)


@functools.cache
def _compile_loss() -> ChunkLoss:
    return torch.compile(_fusable_loss)


def _fusable_loss(
    logits: Tensor, targets: Tensor, target_weight: float, *, writes_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Computes `Operations.loss` such that a compiler needs two passes over the logits."""
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    lse = precise.logsumexp(dim=-1)
    target_logit = precise.gather(1, targets[:, None]).squeeze(1)
    if writes_gradient:
        is_target = torch.arange(logits.shape[1], device=logits.device) == targets[:, None]
        logits.copy_((precise - lse[:, None]).exp() - target_weight * is_target)
    return lse, target_logit


def _r_drop_loss(
    logits: Tensor, targets: Tensor, target_weight: float, r_drop: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes `Operations.loss` of both passes, and α/2·ΣJ, with the gradient of both."""
    lse, target_logit, by_logits = _statistics(logits, targets[:, None])
    disagreement = add_disagreement(by_logits, logits, lse, r_drop)
    logits.copy_(_less_targets(by_logits, targets, target_weight))
    return lse, target_logit, disagreement


def _less_targets(probabilities: Tensor, targets: Tensor, target_weight: float) -> Tensor:
    weight = probabilities.new_full((len(targets), 1), -target_weight)
    return probabilities.scatter_add_(1, targets[:, None], weight)


def _statistics(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Computes ln Σ exp, the target's logit and all probabilities of some rows."""
    precise = torch.promote_types(logits.dtype, torch.float32)
    probabilities = torch.softmax(logits, dim=-1, dtype=precise)
    largest, place = logits.max(dim=-1, keepdim=True)
    # ln p of the likeliest token is at least -ln V, so nothing is lost to rounding
    lse = largest.to(precise) - probabilities.gather(1, place).log()
    return lse.squeeze(1), logits.gather(1, targets).squeeze(1).to(precise), probabilities


def add_disagreement(
    probabilities: Tensor, logits: Tensor, normalizer: Tensor, r_drop: float
) -> Tensor:
    """Computes α/2·ΣJ, and adds its gradient by the logits."""
    weight = r_drop / 2.0
    # (2n, V) -> two views (n, V) of the same memory
    first, second = probabilities[0::2], probabilities[1::2]
    ratio = logits[0::2].to(probabilities.dtype) - logits[1::2].to(probabilities.dtype)
    ratio -= (normalizer[0::2] - normalizer[1::2]).unsqueeze(1)
    difference = first - second
    forward = (first * ratio).sum(1, keepdim=True)  # KL(p₁ ‖ p₂)
    backward = -(second * ratio).sum(1, keepdim=True)  # KL(p₂ ‖ p₁)
    first.addcmul_(first, ratio - forward, value=weight).add_(difference, alpha=weight)
    second.addcmul_(second, ratio + backward, value=-weight).sub_(difference, alpha=weight)
    return weight * (forward + backward).sum()
