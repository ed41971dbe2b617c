"""Operations that faster kernels may take over in training; without them torch computes all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from tformer_cli.model.masks import Spans
    from tformer_cli.model.transformer import Transformer

ROW_MULTIPLE = 64
"""Rows are filled up to a multiple of this: a library that prepares each product for its sizes
then has seen most of them after a few steps, and freed memory fits what is asked for next."""


class Operations(Protocol):
    """Operations on the CPU that give what the plain formulas give, the model's with gradients.

    Dropout alone differs in which values are dropped: its random numbers are made in another way.
    """

    def hidden_states(
        self,
        model: Transformer,
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
        """Computes hidden + dropout(values) and its layer norm.

        Args:
            hidden: (…, D) float32.
            values: (…, D).
            rate: chance of dropping a value; 0: none is.
            norm: over D.
            rounds: whether the norm may be rounded to the precision of autocast at once, for it is
                only multiplied by matrices.

        Returns:
            Both (…, D), the sum in float32.
        """

    def linear(self, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Computes values·weightᵀ + bias.

        Args:
            values: (…, K).
            weight: (N, K).
            bias: (N), or None.

        Returns:
            (…, N), under autocast in its precision.
        """

    def feed_forward(
        self,
        values: Tensor,
        inner: tuple[Tensor, Tensor | None],
        outer: tuple[Tensor, Tensor | None],
    ) -> Tensor:
        """Computes FFN(x) = max(0, x·W₁ᵀ + b₁)·W₂ᵀ + b₂.

        Args:
            values: (…, D).
            inner: W₁ (F, D) and b₁ (F), or None for it.
            outer: W₂ (D, F) and b₂ (D), or None for it.

        Returns:
            (…, D), under autocast in its precision.
        """

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

    def orthogonalized(
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
