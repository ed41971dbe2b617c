"""Tokens and their positions as vectors."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.norms import Norm
from tformer_cli.model.operations import Dropout
from tformer_cli.model.positions import Places, Positions


class PositionedEmbedding(nn.Module):
    """√D · embedding + position, then dropout (Vaswani et al. 2017, sections 3.4, 3.5 and 5.4).

    Some models leave out the factor; some have a layer norm of the sum, before dropout.

    The matrix of embeddings is handed in at each call, because models share it between the encoder,
    the decoder and the output projection.
    """

    def __init__(
        self,
        d_model: int,
        max_positions: int,
        positions: Positions,
        *,
        scales: bool = True,
        norm: Norm | None = None,
        dropout: float = 0.0,
    ) -> None:
        """Creates the input of a stack.

        Args:
            d_model: D.
            max_positions: tokens of the longest sentence.
            positions: what is added to embeddings; may be nothing.
            scales: whether embeddings are multiplied by √D.
            norm: of the sum.
            dropout: rate of the sum.
        """
        super().__init__()
        self.scale = math.sqrt(d_model) if scales else 1.0
        self.max_positions = max_positions
        self.positions = positions
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, matrix: Tensor, at: Places | None = None) -> Tensor:
        """Embeds tokens.

        Args:
            tokens: (B, T) token ids.
            matrix: (V, D) embeddings.
            at: positions of the tokens, a slice or (B, T) or (T); None: 0, 1, …. On a GPU those of
                a tensor have to be below `max_positions`.

        Returns:
            (B, T, D) hidden states.

        Raises:
            ValueError: if there are more positions than `max_positions`.
        """
        return self.add_positions(functional.embedding(tokens, matrix) * self.scale, at)

    def add_positions(self, embedded: Tensor, at: Places | None = None) -> Tensor:
        """Adds positions to embeddings (B, T, D); see `forward`."""
        rows = self._rows(slice(0, embedded.shape[1]) if at is None else at, embedded.device)
        hidden = embedded if rows is None else embedded + rows
        return self.dropout(hidden if self.norm is None else self.norm(hidden))

    def _rows(self, at: Places, device: torch.device) -> Tensor | None:
        if isinstance(at, slice):
            return self._some_rows(at.start, at.stop, device)
        # Looking for the last one would wait for a GPU: there all rows are taken
        stop = int(at.max()) + 1 if at.device.type == "cpu" else self.max_positions
        rows = self._some_rows(0, stop, device)
        if rows is None:
            return None
        # (…) -> (…, D)
        return rows.index_select(0, at.flatten()).view(*at.shape, -1)

    def _some_rows(self, start: int, stop: int, device: torch.device) -> Tensor | None:
        if stop > self.max_positions:
            raise ValueError(
                f"a sentence may have at most max_positions = {self.max_positions} tokens, "
                f"but has {stop}"
            )
        return self.positions.rows(start, stop, device)

    if TYPE_CHECKING:
        __call__ = forward
