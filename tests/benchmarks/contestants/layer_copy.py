"""Weights of one of our models into layers named as fairseq named them.

Hugging Face's translation models descend from fairseq's and kept the names of their parts.
"""

from typing import Any

from torch import nn

from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer


def check_copyable(config: ModelConfig) -> None:
    """Refuses what neither library has a model for."""
    if config.tied_embeddings != "all" or not config.bias:
        raise ValueError("only models with one matrix of embeddings, and with biases, have a copy")
    if {n for layers in config.layer_heads for n in layers} != {config.n_heads}:
        raise ValueError("models whose layers have lost heads have no copy")


def copy_stacks(encoder: Any, decoder: Any, model: Transformer) -> None:
    """Copies both stacks of layers, and the norms behind them where the model has any.

    Call it without gradients.
    """
    for their, our in zip(encoder.layers, model.encoder.layers, strict=True):
        _copy_layer(their, our)
    for their, decoder_layer in zip(decoder.layers, model.decoder.layers, strict=True):
        _copy_attention(their.encoder_attn, decoder_layer.cross_attention)
        _copy_norm(their.encoder_attn_layer_norm, decoder_layer.cross_attention_norm)
        _copy_layer(their, decoder_layer)
    if model.config.norm == "pre":
        _copy_norm(encoder.layer_norm, model.encoder.final_norm)
        _copy_norm(decoder.layer_norm, model.decoder.final_norm)


def _copy_layer(their: Any, our: Any) -> None:
    _copy_attention(their.self_attn, our.self_attention)
    _copy_norm(their.self_attn_layer_norm, our.self_attention_norm)
    their.fc1.load_state_dict(our.feed_forward.inner.state_dict())
    their.fc2.load_state_dict(our.feed_forward.outer.state_dict())
    _copy_norm(their.final_layer_norm, our.feed_forward_norm)


def _copy_attention(their: Any, our: MultiHeadAttention) -> None:
    # (3·D, D): the rows of queries, keys and values
    weights, biases = our.in_projection.weight.chunk(3), our.in_projection.bias.chunk(3)
    parts = (their.q_proj, their.k_proj, their.v_proj)
    for part, weight, bias in zip(parts, weights, biases, strict=True):
        part.weight.copy_(weight)
        part.bias.copy_(bias)
    their.out_proj.load_state_dict(our.out_projection.state_dict())


def _copy_norm(their: nn.LayerNorm, our: Any) -> None:
    their.load_state_dict(our.state_dict())
    their.eps = our.eps
