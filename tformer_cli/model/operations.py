"""What a model in training lets others compute faster; without them torch computes everything."""

from typing import Protocol

from torch import Tensor

from tformer_cli.model.unpadded import Spans


class Operations(Protocol):
    """Operations on the CPU, each with its gradient, that give what the model's own formulas give.

    Dropout alone differs in which values are dropped: its random numbers are made in another way.
    """

    def dropout(self, values: Tensor, rate: float) -> Tensor:
        """Zeroes each value with chance `rate` and scales the rest by 1 / (1 - rate)."""

    def add_dropout(self, hidden: Tensor, values: Tensor, rate: float) -> Tensor:
        """Computes hidden + dropout(values), float32 like `hidden`."""

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
