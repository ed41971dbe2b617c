"""Encoders without a decoder: their vectors, a label for each text or image, masked tokens."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.attention import EVERYTHING, Mask, key_mask
from tformer_cli.model.base import Model
from tformer_cli.model.config import Head, ModelConfig
from tformer_cli.model.feed_forward import activation_function
from tformer_cli.model.methods import POOLINGS, Pooling
from tformer_cli.model.norms import make_norm
from tformer_cli.model.operations import Dropout, Linear, by_rows, repeatable_linear
from tformer_cli.model.patches import PatchedImages
from tformer_cli.model.transformer import Transformer, initialize, make_encoder, make_input


class EncoderOnly(Model):
    """The encoder of a Transformer; what stands on it is up to the classes made of it."""

    source_embedding: nn.Embedding
    """Embeddings of the tokens of texts; a model of images has none."""

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
            raise ValueError("n_decoder_layers: must be 0 for an encoder-only model")
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
        row = POOLINGS[pooling or self.config.pooling]
        if not row.has_mean:
            return hidden[:, 0]
        if self.config.reads_images:
            # Behind the class token, which is none of the patches
            mean = hidden[:, int(self.config.class_token) :].mean(dim=1)
            return torch.cat((hidden[:, 0], mean), dim=1) if row.has_first else mean
        # Padding has states, too, which the mean must not see
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
        del target_input  # a target is predicted from the source only
        return self.predicting(self.encode(source, source_mask), source_mask)

    def forward(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Computes vectors (B, D); see `encode`."""
        return self.predicting(self.encode(source, source_mask), source_mask).squeeze(1)

    if TYPE_CHECKING:
        __call__ = forward


class PositionPredictor(EncoderOnly):
    """The encoder of a Transformer that predicts something at positions of what it reads.

    To training, a target has the length of its source, and padding wherever nothing is to be
    predicted.
    """

    @property
    def output_matrix(self) -> Tensor:
        """(V, D) a row for each token or label."""
        raise NotImplementedError

    def transform_hidden(self, hidden: Tensor) -> Tensor:
        """Turns the encoder's states (…, D) into those that rows are compared with."""
        return hidden

    def predicting(self, hidden: Tensor, source_mask: Tensor) -> Tensor:
        """See `EncoderOnly`: (B, S, D), position i for what stands at position i."""
        del source_mask
        return self.transform_hidden(hidden)

    def forward(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Computes logits (B, S, V) of the tokens or labels at every position; see `encode`."""
        return self.project(self.target_hidden(source, source_mask, source))

    def project(self, hidden: Tensor) -> Tensor:
        """Compares transformed states (…, D) with the rows: logits (…, V)."""
        # Outside training a text must not depend on the others of its batch, to the last bit
        product = functional.linear if torch.is_grad_enabled() else repeatable_linear
        return product(hidden, self.output_matrix, self.output_bias)

    if TYPE_CHECKING:
        __call__ = forward


class MaskedLanguageModel(PositionPredictor):
    """The encoder of a Transformer, its states transformed and compared with one row a token.

    The transformation is norm(f(W·x + b)) with the activation of the layers (Devlin et al. 2019,
    section 3.1 and the authors' code).
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

    def transform_hidden(self, hidden: Tensor) -> Tensor:
        """Turns the encoder's states (…, D) into those that tokens are compared with."""
        if torch.is_grad_enabled():
            return self._transform_states(hidden)
        return by_rows(self._transform_states, hidden)

    def _transform_states(self, hidden: Tensor) -> Tensor:
        normed: Tensor = self.transform_norm(
            activation_function(self.config.activation)(self.transform(hidden))
        )
        return normed


POOLERS: Mapping[Literal["tanh", "relu"], Callable[[Tensor], Tensor]] = MappingProxyType(
    {"tanh": torch.tanh, "relu": functional.relu}
)
"""Functions behind the product of a pooler."""


class Classifier(EncoderOnly):
    """The encoder of a Transformer, pooled to one vector that is compared with one row a label.

    To training it is a model whose target is one token, its label: the pooled vector is the hidden
    state that predicts it.
    """

    def make_head(self) -> None:
        """See `EncoderOnly`: a row for each label, and perhaps a pooler before them."""
        config, width = self.config, self.config.pooled_width
        if not config.n_outputs:
            raise ValueError("n_labels: a classifier has n_decoder_layers = 0 and some labels")
        # Its bias is `output_bias`
        self.output_projection = nn.Linear(width, config.n_labels, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.n_labels)) if config.bias else None
        has_pooler = config.pooler != "none"
        self.pooler = Linear(width, width, bias=config.bias) if has_pooler else None
        self.pooler_dropout = Dropout(config.dropout)

    @property
    def output_matrix(self) -> Tensor:
        """(L, D) a row for each label."""
        return self.output_projection.weight

    def summarize(self, pooled: Tensor) -> Tensor:
        """Turns pooled vectors (B, D) into those that labels are compared with.

        They are the same without a pooler; with one dropout(f(W·x + b)) (Devlin et al. 2019,
        section 4.1, as the authors' and later code has it).
        """
        pooler, kind = self.pooler, self.config.pooler
        if pooler is None or kind == "none":
            return pooled

        def apply_pooler(rows: Tensor) -> Tensor:
            return POOLERS[kind](pooler(rows))

        if torch.is_grad_enabled():
            return self.pooler_dropout(apply_pooler(pooled))
        return by_rows(apply_pooler, pooled)

    def predicting(self, hidden: Tensor, source_mask: Tensor) -> Tensor:
        """See `EncoderOnly`: the summaries (B, 1, D)."""
        return self.summary(hidden, source_mask).unsqueeze(1)

    def summary(self, hidden: Tensor, source_mask: Tensor) -> Tensor:
        """Turns hidden states (B, S, D) into the vectors (B, D) that labels are compared with."""
        return self.summarize(self.pool(hidden, source_mask))

    def forward(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Computes logits (B, L) of the labels; see `encode`."""
        return self.project(self.summary(self.encode(source, source_mask), source_mask))

    def project(self, pooled: Tensor) -> Tensor:
        """Compares vectors (..., D) with the labels' rows: logits (..., L)."""
        if torch.is_grad_enabled():
            return functional.linear(pooled, self.output_matrix, self.output_bias)
        return repeatable_linear(pooled, self.output_matrix, self.output_bias)

    if TYPE_CHECKING:
        __call__ = forward


class Tagger(PositionPredictor):
    """The encoder of a Transformer, the states of words compared with one row a label.

    A word's state is that of its first token, whose state has read the others, too; they are no
    targets (Devlin et al. 2019, section 5.3).
    """

    def make_head(self) -> None:
        """See `EncoderOnly`: a row for each label."""
        config = self.config
        if config.head != "tags" or not config.n_labels:
            raise ValueError('n_labels: a tagger has head = "tags" and some labels')
        self.output_projection = nn.Linear(config.d_model, config.n_labels, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.n_labels)) if config.bias else None

    @property
    def output_matrix(self) -> Tensor:
        """(L, D) a row for each label."""
        return self.output_projection.weight


HEADS: Mapping[Head, type[EncoderOnly]] = MappingProxyType(
    {"labels": Classifier, "tags": Tagger, "tokens": MaskedLanguageModel, "none": EncoderOnly}
)
"""Encoders by what stands on them."""


def model_of(config: ModelConfig, vocab_size: int) -> Transformer | EncoderOnly:
    """Makes a model of a shape, with fresh weights drawn from torch's global generator."""
    kind = HEADS[config.head] if config.is_encoder_only else Transformer
    return kind(config, vocab_size)
