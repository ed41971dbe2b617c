"""An encoder alone: hidden states of texts or images, and a vector for each."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.attention import EVERYTHING, Mask, key_mask
from tformer_cli.model.base import Model
from tformer_cli.model.config import ModelConfig, Pooling
from tformer_cli.model.patches import PatchedImages
from tformer_cli.model.transformer import initialize, make_encoder, make_input


class EncoderOnly(Model):
    """The encoder of a Transformer; what stands on it is up to the classes made of it."""

    source_embedding: nn.Embedding
    """Of the tokens of texts; a model of images has none."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        """Creates a model with fresh weights, drawn from torch's global generator.

        Args:
            config: the model's shape.
            vocab_size: V, entries of the vocabulary of texts.

        Raises:
            ValueError: if the shape has a decoder, or another head than the class.
        """
        super().__init__(config, vocab_size)
        if not config.is_encoder_only:
            raise ValueError("n_decoder_layers: must be 0 for an encoder alone")
        if not config.reads_images:
            self.source_embedding = nn.Embedding(vocab_size, config.d_model)
        self.make_head()  # weights are drawn in this order
        self.encoder_input = make_input(config, is_causal=False)
        self.encoder = make_encoder(config, self.encoder_input.positions)
        initialize(self)

    def make_head(self) -> None:
        """Makes the modules of the head.

        Raises:
            ValueError: if the shape asks for another one.
        """
        if self.config.head != "none":
            raise ValueError(f'head: must be "none" for a bare encoder, but is {self.config.head}')
        self.output_bias = None

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Encodes texts or images.

        Args:
            source: (B, S) token ids; of images (B, H·W·C) ids of pixels.
            source_mask: (B, S) True where a position is a token and not padding; of images (B, N)
                for N patches, none of which is padding.

        Returns:
            (B, S, D) hidden states; of images those of the class token, if any, and the patches.
        """
        return self.encoder(self.embed(source), self.mask_of(source_mask))

    def mask_of(self, source_mask: Tensor) -> Mask:
        """Makes the mask of the encoder's attention; nothing of images is padding."""
        return EVERYTHING if self.config.reads_images else key_mask(source_mask)

    def embed(self, source: Tensor) -> Tensor:
        """Embeds sources; see `encode`: (B, S, D) what the encoder reads."""
        if isinstance(self.encoder_input, PatchedImages):
            return self.encoder_input(source)
        return self.encoder_input(source, self.source_embedding.weight)

    def pool(self, hidden: Tensor, source_mask: Tensor, pooling: Pooling | None = None) -> Tensor:
        """Turns the hidden states (B, S, D) of texts or images into a vector (B, D) for each.

        That is their mean over the tokens, or the first of them (BERT's class token). Of images a
        class token is not part of the mean; both may be asked for, then the vector has 2·D.

        Args:
            hidden: (B, S, D) from `encode`.
            source_mask: see `encode`.
            pooling: which vector; None: that of the model's settings.
        """
        kind = pooling or self.config.pooling
        if kind == "first":
            return hidden[:, 0]
        if self.config.reads_images:
            mean = hidden[:, int(self.config.class_token) :].mean(dim=1)
            return torch.cat((hidden[:, 0], mean), dim=1) if kind == "first-and-mean" else mean
        n_tokens = source_mask.sum(dim=1, keepdim=True)
        return (hidden * source_mask.unsqueeze(2)).sum(dim=1) / n_tokens

    def predicting(self, hidden: Tensor, source_mask: Tensor) -> Tensor:
        """Turns hidden states (B, S, D) into those (B, T, D) that targets are predicted from.

        Of a bare encoder, which predicts nothing, these are its vectors, and T is 1.
        """
        pooled = self.pool(hidden, source_mask)
        vectors = functional.normalize(pooled, dim=1) if self.config.unit_length else pooled
        return vectors.unsqueeze(1)

    def target_hidden(self, source: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        """See `Model`: what `predicting` gives, whatever the target begins with."""
        del target_input
        return self.predicting(self.encode(source, source_mask), source_mask)

    def forward(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Computes vectors (B, D); see `encode`."""
        return self.predicting(self.encode(source, source_mask), source_mask).squeeze(1)

    if TYPE_CHECKING:
        __call__ = forward
