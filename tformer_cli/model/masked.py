"""An encoder alone that predicts the tokens at masked positions: a masked language model."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.encoder_only import EncoderOnly
from tformer_cli.model.feed_forward import ACTIVATIONS
from tformer_cli.model.norms import make_norm
from tformer_cli.model.operations import Linear, by_rows, repeatable_linear


class MaskedLanguageModel(EncoderOnly):
    """The encoder of a Transformer, its states transformed and compared with one row a token.

    The transformation is norm(f(W·x + b)) with the activation of the layers (Devlin et al. 2019,
    section 3.1 and the authors' code). To training, a target has the length of its source, and
    padding wherever nothing is to be predicted.
    """

    def make_head(self) -> None:
        """See `EncoderOnly`: the transformation, and a row for each token."""
        config = self.config
        if config.head != "tokens":
            raise ValueError(
                f'head: must be "tokens" for a masked language model, but is {config.head}'
            )
        is_tied = config.tied_embeddings == "all"
        self.output_projection = (
            None if is_tied else nn.Linear(config.d_model, self.vocab_size, bias=False)
        )
        self.output_bias = nn.Parameter(torch.zeros(self.vocab_size)) if config.bias else None
        self.transform = Linear(config.d_model, config.d_model, bias=config.bias)
        self.transform_norm = make_norm(
            config.norm_kind, config.d_model, config.norm_epsilon, bias=config.bias
        )

    @property
    def output_matrix(self) -> Tensor:
        """(V, D) a row for each token."""
        if self.output_projection is None:
            return self.source_embedding.weight
        return self.output_projection.weight

    def transformed(self, hidden: Tensor) -> Tensor:
        """Turns the encoder's states (…, D) into those that tokens are compared with."""
        if torch.is_grad_enabled():
            return self._transformed(hidden)
        return by_rows(self._transformed, hidden)

    def _transformed(self, hidden: Tensor) -> Tensor:
        normed: Tensor = self.transform_norm(
            ACTIVATIONS[self.config.activation](self.transform(hidden))
        )
        return normed

    def predicting(self, hidden: Tensor, source_mask: Tensor) -> Tensor:
        """See `EncoderOnly`: (B, S, D), position i for the token of the source at position i."""
        del source_mask
        return self.transformed(hidden)

    def forward(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Computes logits (B, S, V) of the tokens at every position.

        Args:
            source: (B, S) token ids.
            source_mask: (B, S) True where a position is a token and not padding.
        """
        return self.project(self.target_hidden(source, source_mask, source))

    def project(self, hidden: Tensor) -> Tensor:
        """Compares transformed states (…, D) with the tokens' rows: logits (…, V)."""
        product = functional.linear if torch.is_grad_enabled() else repeatable_linear
        return product(hidden, self.output_matrix, self.output_bias)

    if TYPE_CHECKING:
        __call__ = forward
