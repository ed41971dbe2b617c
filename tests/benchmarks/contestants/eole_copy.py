"""Eole's Transformer with the weights of one of ours: the same function, computed by it."""

import math
from typing import Any

import torch
from eole.config.models import TransformerDecoderConfig, TransformerEncoderConfig
from eole.decoders.transformer import TransformerDecoder
from eole.encoders.transformer import TransformerEncoder
from eole.models.model import EncoderDecoderModel
from eole.modules.embeddings import Embeddings
from layer_copy import check_copyable
from torch import nn

from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.transformer import Transformer
from tformer_cli.text.tokenizer import PAD_ID


def eole_copy(model: Transformer) -> Any:
    """Makes Eole's model, in evaluation mode.

    Args:
        model: of one vocabulary matrix, with norms before the sub-layers, biases and all heads.

    Raises:
        ValueError: if the library has no such model.
    """
    config = model.config
    check_copyable(config)
    if config.norm != "pre":
        raise ValueError("Eole's decoder has its norms before the sub-layers")
    shape: Any = {
        "hidden_size": config.d_model,
        "heads": config.n_heads,
        "transformer_ff": config.d_ff,
        "mlp_activation_fn": config.activation,
        "norm_eps": config.norm_epsilon,
        "add_qkvbias": True,
        "add_final_linear_bias": True,
        "add_ffnbias": True,
    }
    theirs = EncoderDecoderModel(
        encoder=TransformerEncoder(
            TransformerEncoderConfig(layers=config.n_encoder_layers, **shape)
        ),
        decoder=TransformerDecoder(
            TransformerDecoderConfig(layers=config.n_decoder_layers, with_cross_attn=True, **shape)
        ),
        src_emb=_embeddings(model, model.encoder_input),
        tgt_emb=_embeddings(model, model.decoder_input),
        hidden_size=config.d_model,
    )
    theirs.generator = nn.Linear(config.d_model, model.vocab_size, bias=False)
    theirs.generator.weight = theirs.src_emb.embeddings.weight
    with torch.no_grad():
        for stack, ours in ((theirs.encoder, model.encoder), (theirs.decoder, model.decoder)):
            for their, our in zip(stack.transformer_layers, ours.layers, strict=True):
                _copy_layer(their, our)
            _copy(stack.layer_norm, ours.final_norm)
        for their, our in zip(theirs.decoder.transformer_layers, model.decoder.layers, strict=True):
            _copy_attention(their.context_attn, our.cross_attention)
            _copy(their.precontext_layernorm, our.cross_attention_norm)
    return theirs.eval().requires_grad_(requires_grad=False)


def _embeddings(model: Transformer, our: Any) -> Embeddings:
    their = Embeddings(model.config.d_model, model.vocab_size, PAD_ID)
    with torch.no_grad():
        their.embeddings.weight.copy_(model.source_embedding.weight)
        table = our.positions.rows(0, our.max_positions, torch.device("cpu"))
        their.pe.pe[: len(table), 0].copy_(table)
    if not math.isclose(our.scale, math.sqrt(their.pe.dim)):
        raise ValueError("Eole scales embeddings otherwise")
    return their


def _copy_layer(their: Any, our: Any) -> None:
    _copy_attention(their.self_attn, our.self_attention)
    _copy(their.input_layernorm, our.self_attention_norm)
    _copy(their.post_attention_layernorm, our.feed_forward_norm)
    _copy(their.mlp.gate_up_proj, our.feed_forward.inner)
    _copy(their.mlp.down_proj, our.feed_forward.outer)


def _copy_attention(their: Any, our: MultiHeadAttention) -> None:
    # (3·D, D): the rows of queries, keys and values
    weights, biases = our.in_projection.weight.chunk(3), our.in_projection.bias.chunk(3)
    parts = (their.linear_query, their.linear_keys, their.linear_values)
    for part, weight, bias in zip(parts, weights, biases, strict=True):
        part.weight.copy_(weight)
        part.bias.copy_(bias)
    _copy(their.final_linear, our.out_projection)


def _copy(their: nn.Module, our: Any) -> None:
    their.load_state_dict(our.state_dict())
