"""An encoder alone with a label for the whole text or image: a classifier."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.attention import EVERYTHING, key_mask
from tformer_cli.model.base import Model
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.operations import repeatable_linear
from tformer_cli.model.patches import PatchedImages
from tformer_cli.model.transformer import initialize, make_encoder, make_input


class Classifier(Model):
    """The encoder of a Transformer, pooled to one vector that is compared with one row a label.

    To training it is a model whose target is one token, its label: the pooled vector is the hidden
    state that predicts it.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        """Creates a model with fresh weights, drawn from torch's global generator.

        Args:
            config: the model's shape, with its number of labels.
            vocab_size: V, entries of the vocabulary of texts.

        Raises:
            ValueError: if the shape is not that of a classifier.
        """
        super().__init__(config, vocab_size)
        if not config.is_encoder_only or not config.n_labels:
            raise ValueError("n_labels: a classifier has n_decoder_layers = 0 and some labels")
        if not config.reads_images:
            self.source_embedding = nn.Embedding(vocab_size, config.d_model)
        self.output_projection = nn.Linear(config.pooled_width, config.n_labels, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.n_labels)) if config.bias else None
        self.encoder_input = make_input(config, is_causal=False)
        self.encoder = make_encoder(config, self.encoder_input.positions)
        initialize(self)

    @property
    def output_matrix(self) -> Tensor:
        """(L, D) a row for each label."""
        return self.output_projection.weight

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Encodes texts or images.

        Args:
            source: (B, S) token ids; of images (B, H·W·C) ids of pixels.
            source_mask: (B, S) True where a position is a token and not padding; of images (B, N)
                for N patches, none of which is padding.

        Returns:
            (B, S, D) hidden states; of images those of the class token, if any, and the patches.
        """
        is_text = not self.config.reads_images
        mask = key_mask(source_mask) if is_text else EVERYTHING
        return self.encoder(self.embed(source), mask)

    def embed(self, source: Tensor) -> Tensor:
        """Embeds sources; see `encode`: (B, S, D) what the encoder reads."""
        if isinstance(self.encoder_input, PatchedImages):
            return self.encoder_input(source)
        return self.encoder_input(source, self.source_embedding.weight)

    def pool(self, hidden: Tensor, source_mask: Tensor) -> Tensor:
        """Turns the hidden states (B, S, D) of texts or images into a vector (B, D) for each.

        That is their mean over the tokens, or the first of them (BERT's class token). Of images a
        class token is not part of the mean; both may be asked for, then the vector has 2·D.
        """
        if self.config.pooling == "first":
            return hidden[:, 0]
        if self.config.reads_images:
            mean = hidden[:, int(self.config.class_token) :].mean(dim=1)
            is_joined = self.config.pooling == "first-and-mean"
            return torch.cat((hidden[:, 0], mean), dim=1) if is_joined else mean
        n_tokens = source_mask.sum(dim=1, keepdim=True)
        return (hidden * source_mask.unsqueeze(2)).sum(dim=1) / n_tokens

    def target_hidden(self, source: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        """See `Model`: the pooled vectors (B, 1, D), whatever the target begins with."""
        del target_input
        return self.pool(self.encode(source, source_mask), source_mask).unsqueeze(1)

    def forward(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Computes logits (B, L) of the labels; see `encode`."""
        return self.project(self.pool(self.encode(source, source_mask), source_mask))

    def project(self, pooled: Tensor) -> Tensor:
        """Compares pooled vectors (..., D) with the labels' rows: logits (..., L)."""
        if torch.is_grad_enabled():
            return functional.linear(pooled, self.output_matrix, self.output_bias)
        return repeatable_linear(pooled, self.output_matrix, self.output_bias)

    if TYPE_CHECKING:
        __call__ = forward
