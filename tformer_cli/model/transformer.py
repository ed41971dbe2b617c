"""The Transformer: encoder and decoder, or only a decoder, with embeddings and output projection.

Without encoder layers (`n_encoder_layers = 0`) it is a language model. It has the same methods: its
memory is empty, and nothing attends to it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from tformer_cli.model.attention import (
    MultiHeadAttention,
    causal_mask,
    key_mask,
    segment_mask,
)
from tformer_cli.model.base import Model
from tformer_cli.model.cache import DecoderCache
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.embedding import PositionedEmbedding
from tformer_cli.model.feed_forward import FeedForward
from tformer_cli.model.norms import Norm, make_norm
from tformer_cli.model.operations import Product, repeatable_linear
from tformer_cli.model.patches import PatchedImages
from tformer_cli.model.positions import Positions, SegmentTerms, make_positions
from tformer_cli.model.recurrence import Recurrence
from tformer_cli.model.similarity import make_similarity
from tformer_cli.model.stacks import AnyLayer, DecoderLayer, Layer, Stack


class Transformer(Model):
    """The Transformer of Vaswani et al. 2017 and its common variants."""

    source_embedding: nn.Embedding
    """Embeddings of source tokens; a language model has neither this nor the next two."""
    encoder_input: PositionedEmbedding
    """Its positions."""
    encoder: Stack[Layer]
    """Layers that read the source."""
    output_product: Product | None = None
    """Product with the output matrix while no gradient is needed; None: torch's function.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        """Creates a model with fresh weights, drawn from torch's global generator.

        Args:
            config: the model's shape.
            vocab_size: V, entries of the joint vocabulary, or only of the target's.
        """
        super().__init__(config, vocab_size)
        tied, is_alone = config.tied_embeddings, config.is_decoder_only
        n_sources = config.source_vocab_size or vocab_size
        if not is_alone:  # weights are drawn in this order
            self.source_embedding = nn.Embedding(n_sources, config.d_model)
        self.target_embedding = (
            nn.Embedding(vocab_size, config.d_model)
            if is_alone or tied in ("decoder", "none")
            else None
        )
        self.output_projection = (
            nn.Linear(config.d_model, vocab_size, bias=False)
            if tied in ("inputs", "none")
            else None
        )
        self.output_bias = nn.Parameter(torch.zeros(vocab_size)) if config.output_bias else None
        if not is_alone:
            self.encoder_input = make_input(config, is_causal=False)
        self.decoder_input = make_input(config, is_causal=True)
        if not is_alone:
            self.encoder = make_encoder(config, self.encoder_input.positions)
        self.decoder = make_decoder(config, self.decoder_input.positions)
        initialize(self)

    @property
    def target_matrix(self) -> Tensor:
        """(V, D) embeddings of target tokens."""
        embedding = (
            self.source_embedding if self.target_embedding is None else self.target_embedding
        )
        return embedding.weight

    @property
    def output_matrix(self) -> Tensor:
        """(V, D) rows that hidden states are compared with to give logits."""
        if self.output_projection is None:
            return self.target_matrix
        return self.output_projection.weight

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Encodes source sentences.

        Args:
            source: (B, S) token ids.
            source_mask: (B, S) True where a position is a token and not padding.

        Returns:
            (B, S, D) memory; (B, S, 0) of a language model.
        """
        if self.config.is_decoder_only:
            return self.output_matrix.new_empty(*source.shape, 0)  # nothing attends to it
        hidden = self.encoder_input(source, self.source_embedding.weight)
        return self.encoder(hidden, key_mask(source_mask))

    def decode_hidden(self, target_input: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Computes the decoder's last hidden states for whole target sentences.

        Args:
            target_input: (B, T) token ids; row i may see positions 0 … i.
            memory: (B, S, D) encoder output.
            source_mask: (B, S) True where a source position is a token.

        Returns:
            (B, T, D) hidden states; position i is the one that predicts token i + 1.
        """
        if self.config.memory:
            return self.read_on(target_input)[0]
        hidden = self.decoder_input(target_input, self.target_matrix)
        causal = causal_mask(target_input.shape[1], target_input.device)
        kind = target_input.device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            # Rounded once, and not by each layer
            memory = memory.to(torch.get_autocast_dtype(kind))
        return self.decoder(hidden, causal, memory, key_mask(source_mask))

    def read_on(
        self, tokens: Tensor, earlier: Sequence[Tensor] = (), segment: int = 0
    ) -> tuple[Tensor, list[Tensor]]:
        """Computes the hidden states of a text that goes on, with a memory of what was before.

        Args:
            tokens: (B, T) token ids; the first begins a segment.
            earlier: what the call for the tokens before has returned; empty at the beginning.
            segment: tokens of a segment (0: `max_positions`), of which T may be several.

        Returns:
            (B, T, D) hidden states; and for each layer (B, M, D) what has entered it last, without
            gradients, M at most `memory`.
        """
        n_earlier = earlier[0].shape[1] if earlier else 0
        segment = segment or self.config.max_positions
        hidden = self.decoder_input(tokens, self.target_matrix)
        mask = segment_mask(n_earlier, tokens.shape[1], segment, self.config.memory, tokens.device)
        entering: list[Tensor] = []
        hidden = self.decoder(hidden, mask, earlier=earlier, entering=entering)
        most = self.config.memory
        remembered = [
            # Detached: no gradient reaches the segment before (Dai et al. 2019, section 3.2)
            torch.cat((*earlier[layer : layer + 1], states.detach()), dim=1)[:, -most:]
            for layer, states in enumerate(entering)
        ]
        return hidden, remembered

    def target_hidden(self, source: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        """See `Model`."""
        return self.decode_hidden(target_input, self.encode(source, source_mask), source_mask)

    def project(self, hidden: Tensor) -> Tensor:
        """Turns hidden states (…, D) into logits (…, V)."""
        if self.output_product is not None and not torch.is_grad_enabled():
            return self.output_product(hidden)
        if torch.is_grad_enabled():
            return functional.linear(hidden, self.output_matrix, self.output_bias)
        # A line must not depend on the others of its batch, to the last bit
        return repeatable_linear(hidden, self.output_matrix, self.output_bias)

    def decode(self, target_input: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Computes logits (B, T, V) for whole target sentences; see `decode_hidden`."""
        return self.project(self.decode_hidden(target_input, memory, source_mask))

    def forward(self, source: Tensor, source_mask: Tensor, target_input: Tensor) -> Tensor:
        """Computes logits (B, T, V) of each next target token.

        Args:
            source: (B, S) token ids.
            source_mask: (B, S) True where a position is a token and not padding.
            target_input: (B, T) token ids, the sentence's start first.
        """
        return self.decode(target_input, self.encode(source, source_mask), source_mask)

    def start_cache(
        self, memory: Tensor, source_mask: Tensor, beam_size: int, max_length: int
    ) -> DecoderCache:
        """Prepares decoding step by step.

        Args:
            memory: (B, S, D) encoder output.
            source_mask: (B, S) True where a source position is a token.
            beam_size: W, rows for each sentence.
            max_length: positions that will be decoded at most.
        """
        return self.decoder.start_cache(memory, source_mask, beam_size, max_length)

    def decode_step(self, tokens: Tensor, cache: DecoderCache) -> Tensor:
        """Decodes one more position for every row of the cache.

        Args:
            tokens: (B·W) the token at position `cache.length` of every row.
            cache: from `start_cache`, and it grows by one position.

        Returns:
            (B·W, V) logits of the next token.
        """
        if self.config.memory:
            segment = self.config.max_positions
            # A segment sees as many positions before its first as in training
            cache.forget(cache.length // segment * segment - self.config.memory)
        at = slice(cache.length, cache.length + 1)
        hidden = self.decoder_input(tokens.unsqueeze(1), self.target_matrix, at)
        # (B·W, 1, D) -> (B·W, D) -> (B·W, V)
        return self.project(self.decoder.step(hidden, cache).squeeze(1))

    if TYPE_CHECKING:
        __call__ = forward


def make_input(config: ModelConfig, *, is_causal: bool) -> PositionedEmbedding:
    """Makes what embeds the tokens of a stack; a causal one attends only to what was before."""
    positions = make_positions(config, is_causal=is_causal)
    norm = None
    if config.embedding_norm:
        norm = make_norm(config.norm_kind, config.d_model, config.norm_epsilon, bias=config.bias)
    if config.reads_images:
        return PatchedImages(config, positions, norm)
    return PositionedEmbedding(
        config.d_model,
        config.longest_text,
        positions,
        scales=config.scale_embeddings,
        norm=norm,
        dropout=config.dropout,
    )


def make_attention(
    config: ModelConfig,
    n_heads: int,
    positions: Positions | None = None,
    bias_heads: tuple[int, ...] = (),
) -> MultiHeadAttention:
    """Makes an attention with `n_heads` heads, self-attention if there are positions.

    Raises:
        ValueError: if positions have biases for other heads.
    """
    # A pruned head keeps the bias that it was trained with
    has_all = n_heads == config.n_heads or bias_heads
    if positions is not None and positions.biases and n_heads and not has_all:
        raise ValueError(
            f"bias_heads: must say which heads of {config.n_heads} are left where positions add a "
            "bias for each"
        )
    return MultiHeadAttention(
        config.d_model,
        n_heads,
        config.head_width,
        n_key_heads=config.n_key_heads,
        has_projections=config.projections,
        similarity=make_similarity(config.similarity, n_heads, config.head_width),
        positions=positions,
        bias_heads=bias_heads,
        dropout=config.attention_dropout,
        bias=config.bias,
    )


def make_feed_forward(config: ModelConfig) -> FeedForward:
    """Makes the feed-forward part of a layer."""
    return FeedForward(
        config.d_model,
        config.d_ff,
        activation=config.activation,
        gated=config.gated,
        dropout=config.activation_dropout,
        bias=config.bias,
    )


def make_layer(
    kind: type[AnyLayer],
    config: ModelConfig,
    first: MultiHeadAttention | Recurrence,
    cross: MultiHeadAttention | None = None,
) -> AnyLayer:
    """Makes a layer of self-attention or a recurrent unit, perhaps of cross-attention."""
    return kind(
        first,
        make_feed_forward(config),
        cross,
        is_pre_norm=config.is_pre_norm,
        norm_kind=config.norm_kind,
        norm_epsilon=config.norm_epsilon,
        dropout=config.dropout,
        bias=config.bias,
    )


def make_encoder(config: ModelConfig, positions: Positions) -> Stack[Layer]:
    """Makes the encoder."""
    heads, (biases, _) = config.layer_heads, config.self_attention_biases()
    layers = (
        make_layer(Layer, config, make_attention(config, n_heads, positions, bias_heads))
        for n_heads, bias_heads in zip(heads.encoder, biases, strict=True)
    )
    return Stack(layers, has_final_norm=config.has_final_norm)


def make_decoder(config: ModelConfig, positions: Positions) -> Stack[DecoderLayer]:
    """Makes the decoder; that of a language model has no cross-attention."""
    heads, (_, biases) = config.layer_heads, config.self_attention_biases()
    layers = []
    for number in range(config.n_decoder_layers):
        own: MultiHeadAttention | Recurrence  # made first: weights are drawn in this order
        if config.decoder_cell == "ssru":
            own = Recurrence(config.d_model, bias=config.bias)
        else:
            own = make_attention(config, heads.decoder[number], positions, biases[number])
        cross = make_attention(config, heads.cross[number]) if heads.cross else None
        if cross is None:
            layers.append(cast("DecoderLayer", make_layer(Layer, config, own)))
        else:
            layers.append(make_layer(DecoderLayer, config, own, cross))
    return Stack(layers, has_final_norm=config.has_final_norm)


@torch.no_grad()
def initialize(model: Model) -> None:
    """Draws all weights of a model, in one place.

    ==================================  =====================================================
    projections, feed-forward, cells,   Xavier uniform (Glorot & Bengio 2010); W_Q, W_K and W_V
    patches, heads of encoders          each by itself although they share a matrix
    embeddings, output projection,      normal with deviation D^-1/2, so that √D·embedding has
    class token                         unit variance and logits start near it
    learned and relative positions      normal with deviation D^-1/2
    what segments compare               W_R of all heads as W_K; u and v 0
    similarities                        as their classes say
    norms                               1, biases 0 everywhere
    ==================================  =====================================================
    """
    deviation = model.config.d_model**-0.5
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            if module.has_projections:
                for part in module.in_projection.weight.split_with_sizes(module.row_counts):
                    nn.init.xavier_uniform_(part)
                nn.init.xavier_uniform_(module.out_projection.weight)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=deviation)
        elif isinstance(module, Positions | SegmentTerms):
            module.draw(deviation)
        elif isinstance(module, Norm):
            nn.init.ones_(module.weight)
    for name, parameter in model.named_parameters():
        if name.endswith(
            ("inner.weight", "outer.weight", "gate.weight", "input.weight", "forget.weight",
             "patches.weight", "pooler.weight", "transform.weight")
        ):  # fmt: skip
            nn.init.xavier_uniform_(parameter)
        elif name == "output_projection.weight" or name.endswith("class_token"):
            nn.init.normal_(parameter, std=deviation)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


@torch.no_grad()
def zero_outputs(model: Model) -> None:
    """Sets W_O of attention and W₂ of feed-forward layers to 0, whatever was drawn for them.

    Each layer then begins as the identity, but for post-norm's norms (Zhang et al. 2019, "Fixup",
    section 3): the first steps need not undo what random layers do to the embeddings.
    """
    for module in model.modules():
        if isinstance(module, FeedForward):
            nn.init.zeros_(module.outer.weight)
        elif isinstance(module, MultiHeadAttention) and module.has_projections:
            nn.init.zeros_(module.out_projection.weight)
