"""Tokens and their positions as vectors."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.dropout import Dropout
from tformer_cli.model.positions import LearnedPositions, SinusoidalPositions
from tformer_cli.model.unpadded import Unpadded


class PositionedEmbedding(nn.Module):
    """√D · embedding + position, then dropout (Vaswani et al. 2017, sections 3.4, 3.5 and 5.4).

    The matrix of embeddings is handed in at each call, because models share it between the encoder,
    the decoder and the output projection.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.max_positions = config.max_positions
        self.positions: SinusoidalPositions | LearnedPositions = (
            SinusoidalPositions(config)
            if config.positions == "sinusoidal"
            else LearnedPositions(config)
        )
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor, matrix: Tensor, start: int | Tensor = 0) -> Tensor:
        """Embeds tokens that stand at positions start, start + 1, ….

        Args:
            tokens: (B, T) token ids.
            matrix: (V, D) embeddings.
            start: position of the first token; or (B) that of each row's only one (T = 1), which
                has to be below `max_positions`.

        Returns:
            (B, T, D) hidden states.

        Raises:
            ValueError: if there are more positions than `max_positions`.
        """
        if isinstance(start, Tensor):
            positions = self._rows(0, self.max_positions, tokens.device)[start].unsqueeze(1)
        else:
            positions = self._rows(start, start + tokens.shape[1], tokens.device)
        embedded = functional.embedding(tokens, matrix) * self.scale
        return self.dropout(embedded + positions)

    def unpadded(self, sentences: Unpadded, matrix: Tensor) -> Tensor:
        """Embeds sentences that lie one after the other.

        Args:
            sentences: their token ids.
            matrix: (V, D) embeddings.

        Returns:
            (1, N, D) hidden states.

        Raises:
            ValueError: if one has more tokens than `max_positions`.
        """
        longest = int(sentences.positions.max()) + 1
        rows = self._rows(0, longest, sentences.tokens.device)
        embedded = functional.embedding(sentences.tokens, matrix) * self.scale
        return self.dropout(embedded + rows.index_select(0, sentences.positions))

    def _rows(self, start: int, stop: int, device: torch.device) -> Tensor:
        if stop > self.max_positions:
            raise ValueError(
                f"a sentence may have at most max_positions = {self.max_positions} tokens, "
                f"but has {stop}"
            )
        return self.positions.rows(start, stop, device)

    if TYPE_CHECKING:
        __call__ = forward
