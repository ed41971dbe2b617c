"""The vector that an encoder alone pools: of which states, which row of a map, and in words."""

from typing import NamedTuple

import torch
from torch import Tensor

from tformer_cli.model.config import ModelConfig


class Pooled(NamedTuple):
    """The vector that an encoder alone makes of its last hidden states; see `EncoderOnly.pool`."""

    config: ModelConfig

    @property
    def _first(self) -> int:
        """The first state of the mean: the class token of an image is not part of it."""
        return int(self.config.class_token)

    @property
    def unit(self) -> str:
        """What the states are of."""
        return "patches" if self.config.reads_images else "tokens"

    def of(self, states: Tensor) -> Tensor:
        """Pools states (S, D): the first (D), their mean (D), or both in a row (2D)."""
        mean = states[self._first :].mean(dim=0)
        if self.config.pooling == "first-and-mean":
            return torch.cat((states[0], mean))
        return states[0] if self.config.pooling == "first" else mean

    def row(self, rows: Tensor) -> Tensor:
        """Takes the vector's row (S) out of a map (S, S); the mean of both where there are two."""
        if self.config.pooling == "first-and-mean":
            return self.of(rows).view(2, -1).mean(dim=0)
        return self.of(rows)

    @property
    def row_name(self) -> str:
        """Says which row that is, of images."""
        names = {"first": "class token", "first-and-mean": "class token and mean of the patches"}
        if self.config.pooling == "first" and not self.config.class_token:
            return "first patch"
        return names.get(self.config.pooling, "mean of the patches")

    def formula(self, n_states: int) -> str:
        """Writes how p is made of so many states."""
        n_tokens = n_states - self._first
        mean = f"1/{n_tokens} · Σ_i h_i" + (", i > 0" if self._first else "")
        if self.config.pooling == "first-and-mean":
            return f"p = [h_0, {mean}]"
        return "p = h_0" if self.config.pooling == "first" else f"p = {mean}"

    def says(self, n_states: int) -> str:
        """Says the same in words."""
        mean = f"the mean over the {n_states - self._first} {self.unit}"
        token = "first patch" if self.config.reads_images else "first token"
        first = f"that of the {'class token' if self._first else token}"
        if self.config.pooling == "first-and-mean":
            return f"{first}, then {mean}"
        return first if self.config.pooling == "first" else mean
