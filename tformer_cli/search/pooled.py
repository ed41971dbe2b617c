"""Heads of encoder-only models for the hidden states of one text, without torch.

The same as `model.encoder_only`, `model.classifier` and `model.masked` compute for a batch, in
float32; the order of sums depends only on the text.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from tformer_cli.model.methods import NORMS, POOLINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from tformer_cli.model.config import ModelConfig
    from tformer_cli.model.methods import Activation, Pooling

    Floats = NDArray[np.float32]
    Candidates = list[tuple[int, float]]

_POOLERS: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType(
    {"tanh": np.tanh, "relu": lambda values: np.maximum(values, np.float32(0.0))}
)


def pool_states(hidden: Floats, pooling: Pooling, *, unit_length: bool = False) -> Floats:
    """Turns the hidden states (S, D) of a text into a vector (D)."""
    row = POOLINGS[pooling]
    if row.is_joined:
        raise ValueError(f"pooling: {pooling} is not for texts")
    vector: Floats = hidden[0] if row.has_first else hidden.sum(axis=0) / np.float32(len(hidden))
    if unit_length:
        length = np.sqrt((vector * vector).sum())
        # Zeros have no direction: without a least length they would become NaN
        vector = vector / np.maximum(length, np.float32(1e-12))
    return vector


class LabelHead:
    """The head of a classifier: perhaps a pooler, and a row for each label."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, NDArray[np.generic]]) -> None:
        """Copies the head's weights."""
        self._config = config
        names = ("pooler.weight", "pooler.bias", "output_projection.weight", "output_bias")
        self._weights = {
            name: np.array(weights[name], np.float32) for name in names if name in weights
        }

    def probabilities(self, hidden: Floats) -> list[float]:
        """Computes the probability of every label (L) from a text's hidden states (S, D)."""
        vector = pool_states(hidden, self._config.pooling)
        if self._config.pooler != "none":
            vector = _POOLERS[self._config.pooler](self._multiply_vector(vector, "pooler.weight"))
        shares: list[float] = _softmax(
            self._multiply_vector(vector, "output_projection.weight")
        ).tolist()
        return shares

    def _multiply_vector(self, vector: Floats, name: str) -> Floats:
        bias = {"pooler.weight": "pooler.bias"}.get(name, "output_bias")
        return _product(self._weights[name], self._weights.get(bias), vector)


class TokenHead:
    """The head of a masked language model: a transformation, and a row for each token."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, NDArray[np.generic]]) -> None:
        """Takes the head's weights, which are not copied."""
        self._config = config
        parts = ("transform.weight", "transform.bias", "transform_norm.weight")
        names = (*parts, "transform_norm.bias", "output_bias")
        self._weights = {
            name: np.asarray(weights[name], np.float32) for name in names if name in weights
        }
        # A model without its own output matrix shares the embeddings
        own = "output_projection.weight"
        self._rows = np.asarray(
            weights[own if own in weights else "source_embedding.weight"], np.float32
        )

    def log_probabilities(self, hidden: Floats) -> NDArray[np.float64]:
        """Computes ln p of every token (V) where the encoder's state is `hidden` (D)."""
        logits = self._logits(hidden).astype(np.float64)
        # The largest becomes 0, so that no exponential overflows
        logits -= logits.max()
        log_probabilities: NDArray[np.float64] = logits - np.log(np.exp(logits).sum())
        return log_probabilities

    def candidates(self, hidden: Floats, top: int, never: Sequence[int] = ()) -> Candidates:
        """Finds the most probable tokens of a gap with the state (D), most probable first.

        The ids of `never` have a share of the probability, but are no candidates.
        """
        shares = _softmax(self._logits(hidden))
        # Below every probability, so that they come last; the others keep their shares
        shares[list(never)] = -1.0
        most = max(0, min(top, len(shares) - len(set(never))))
        # Ids in order and a stable sort: of equals the smaller one comes first
        ids = np.sort(np.argpartition(-shares, most - 1)[:most]) if most else np.empty(0, np.intp)
        ids = ids[np.argsort(-shares[ids], kind="stable")]
        return list(zip(ids.tolist(), shares[ids].tolist(), strict=True))

    def _logits(self, hidden: Floats) -> Floats:
        weights, config = self._weights, self._config
        values = _product(weights["transform.weight"], weights.get("transform.bias"), hidden)
        values = _ACTIVATIONS[config.activation](values)
        if NORMS[config.norm_kind].is_centered:
            values = values - values.mean()
        scale = np.sqrt((values * values).mean() + np.float32(config.norm_epsilon))
        values = values / scale * weights["transform_norm.weight"]
        if "transform_norm.bias" in weights:
            values = values + weights["transform_norm.bias"]
        return _product(self._rows, weights.get("output_bias"), values)


def _product(matrix: Floats, bias: Floats | None, vector: Floats) -> Floats:
    """Multiplies a vector (K) by a matrix (N, K)."""
    # Not `@`: what BLAS adds up in which order depends on its threads
    product: Floats = np.einsum("nk,k->n", matrix, vector)
    return product if bias is None else product + bias


def _softmax(logits: Floats) -> NDArray[np.float64]:
    shares = np.exp(logits.astype(np.float64) - logits.max())
    probabilities: NDArray[np.float64] = shares / shares.sum()
    return probabilities


def _gelu(values: Floats) -> Floats:
    half = [0.5 * math.erfc(-value / math.sqrt(2.0)) for value in values.tolist()]
    return values * np.array(half, np.float32)


def _swish(values: Floats) -> Floats:
    # x·σ(x): by tanh, which does not overflow
    shares: Floats = np.tanh(values * np.float32(0.5)) + np.float32(1.0)
    return values * shares * np.float32(0.5)


def _gelu_tanh(values: Floats) -> Floats:
    inner = values * (np.float32(1.0) + np.float32(0.044715) * values * values)
    shares: Floats = np.tanh(inner * np.float32(math.sqrt(2.0 / math.pi))) + np.float32(1.0)
    return values * shares * np.float32(0.5)


_ACTIVATIONS: Mapping[Activation, Callable[[Floats], Floats]] = MappingProxyType(
    {
        "relu": lambda values: np.maximum(values, np.float32(0.0)),
        "gelu": _gelu,
        "swish": _swish,
        "gelu-tanh": _gelu_tanh,
    }
)
"""As in `model.feed_forward`."""
