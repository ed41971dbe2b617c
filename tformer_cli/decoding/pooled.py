"""What stands on an encoder alone, for the hidden states of one text. Free of torch.

The same as `model.encoder_only` and `model.classifier` compute for a batch, in float32; sums are in
an order that depends on the text alone.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tformer_cli.model.config import ModelConfig, Pooling

    Floats = NDArray[np.float32]

_POOLERS: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType(
    {"tanh": np.tanh, "relu": lambda values: np.maximum(values, np.float32(0.0))}
)


def pooled(hidden: Floats, pooling: Pooling, *, unit_length: bool = False) -> Floats:
    """Turns the hidden states (S, D) of a text into a vector (D).

    Args:
        hidden: of all tokens, padding not among them.
        pooling: their "mean", or the "first" one's.
        unit_length: whether the vector is divided by its length.

    Raises:
        ValueError: if the pooling is of images.
    """
    if pooling == "first":
        vector: Floats = hidden[0]
    elif pooling == "mean":
        vector = hidden.sum(axis=0) / np.float32(len(hidden))
    else:
        raise ValueError(f"pooling: {pooling} is not of texts")
    if unit_length:
        length = np.sqrt((vector * vector).sum())
        vector = vector / np.maximum(length, np.float32(1e-12))
    return vector


class LabelHead:
    """The head of a classifier: perhaps a pooler, and a row for each label."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, NDArray[np.generic]]) -> None:
        """Copies the head's weights.

        Args:
            config: of the classifier.
            weights: float32 arrays by their names in a model directory.
        """
        self._config = config
        names = ("pooler.weight", "pooler.bias", "output_projection.weight", "output_bias")
        self._weights = {
            name: np.array(weights[name], np.float32) for name in names if name in weights
        }

    def probabilities(self, hidden: Floats) -> list[float]:
        """Computes the probability of every label (L) from a text's hidden states (S, D)."""
        vector = pooled(hidden, self._config.pooling)
        if self._config.pooler != "none":
            vector = _POOLERS[self._config.pooler](self._multiplied(vector, "pooler.weight"))
        logits = self._multiplied(vector, "output_projection.weight").astype(np.float64)
        shares = np.exp(logits - logits.max())
        found: list[float] = (shares / shares.sum()).tolist()
        return found

    def _multiplied(self, vector: Floats, name: str) -> Floats:
        # Not `@`: what BLAS adds up in which order depends on its threads
        product: Floats = np.einsum("nk,k->n", self._weights[name], vector)
        bias = self._weights.get({"pooler.weight": "pooler.bias"}.get(name, "output_bias"))
        return product if bias is None else product + bias
