"""A model's weights in the format of the CTranslate2 engine.

The engine's own package writes its files; here its specification of a Transformer is filled in. The
two agree part for part: W_Q, W_K and W_V lie in one matrix here and there, embeddings are scaled by
√D, and positions are exported as a table, so that no formula has to agree.
"""

import json
from collections.abc import Container, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from tformer_cli.allow_list import ANY, unknown_setting
from tformer_cli.artifacts.config_file import TOKENIZER, WEIGHTS
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.data.tokenizer import BOS_ID, EOS_ID, UNK_ID
from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import directory_aside, write_text
from tformer_cli.files.hashes import hash_file
from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.model.config import PLAIN_TRANSLATION
from tformer_cli.model.embedding import PositionedEmbedding
from tformer_cli.model.feed_forward import FeedForward

EXPORT = "ctranslate2"
"""Folder of the export inside a model directory, unless another one is named."""
ORIGIN = "origin.json"
"""File with the hashes of the exported weights and their tokenizer."""
KNOWN_MODELS: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **PLAIN_TRANSLATION,
        **dict.fromkeys(
            ("d_model", "n_heads", "d_ff", "norm_epsilon", "max_positions",
             "rotary_base"),
            ANY,
        ),
        # only for training
        **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), ANY),
        "norm": ("post", "pre"),
        "activation": ("relu", "gelu", "swish"),
        "positions": ("sinusoidal", "learned", "rotary", "table"),
        **dict.fromkeys(("relative_buckets", "relative_distance"), ANY),  # of others alone
        "tied_embeddings": ("all", "decoder", "none"),
        **dict.fromkeys(
            ("bias", "output_bias", "embedding_norm", "scale_embeddings", "source_eos"),
            (False, True),
        ),
        "final_norm": ("pre-norm",),
        "source_vocab_size": ANY,
        # numbers that differ from layer to layer are refused with a message of their own
        **dict.fromkeys(("encoder_heads", "decoder_heads", "cross_heads", "bias_heads"), ANY),
    }
)  # fmt: skip
"""Settings of models that can be exported."""


def import_ctranslate2() -> Any:  # noqa: ANN401  # the package has no types
    """Returns the package of the engine."""
    try:
        import ctranslate2
    except ImportError:
        raise UsageError(
            "--format ctranslate2: the package is not installed; pip install 'tformer[ctranslate2]'"
        ) from None
    return ctranslate2


def export_ctranslate2(directory: ModelDirectory, path: Path, quantization: str) -> None:
    """Writes a model for the engine, whole or not at all; an earlier export is replaced."""
    specs = import_ctranslate2().specs
    config = directory.model.config
    unknown = unknown_setting(config, KNOWN_MODELS)
    if unknown is not None:
        raise UsageError(
            f"{directory.path}: the export to CTranslate2 does not know {unknown}; use "
            "`tformer translate`"
        )
    if {n for layers in config.layer_heads for n in layers} != {config.n_heads}:
        raise UsageError(
            f"{directory.path}: some heads are pruned, but CTranslate2 needs the same number "
            "in every layer; export the unpruned model"
        )
    # the engine and the model give activations the same names
    activation = getattr(specs.Activation, config.activation.upper(), None)
    if activation is None:
        raise UsageError(
            f'{directory.path}: CTranslate2 has no activation "{config.activation}"; use '
            "`tformer translate`"
        )
    spec = specs.TransformerSpec.from_config(
        (config.n_encoder_layers, config.n_decoder_layers),
        config.n_heads,
        pre_norm=config.norm == "pre",
        activation=activation,
        layernorm_embedding=config.embedding_norm,
    )
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = config.scale_embeddings
    # The engine turns halves of a head's width, as the model does, not neighboring pairs
    if config.positions == "rotary":
        for layer in (*spec.encoder.layer, *spec.decoder.layer):
            turned = specs.attention_spec.MultiHeadAttentionSpec(
                self_attention=True,
                rotary_dim=config.head_width,
                rotary_interleave=False,
                rotary_base=config.rotary_base,
            )
            layer.self_attention = turned
    _set_vocabulary(spec, directory)
    _fill(spec, directory)
    # Missing or misshapen weights are found here, before anything is written
    spec.validate()
    spec.optimize(quantization)
    hashes = {name: hash_file(directory.path / name) for name in (WEIGHTS, TOKENIZER)}
    with directory_aside(path) as aside:
        spec.save(str(aside))
        write_text(aside / TOKENIZER, directory.tokenizer.to_json())
        write_text(aside / ORIGIN, json.dumps(hashes) + "\n")


def _set_vocabulary(spec: Any, directory: ModelDirectory) -> None:  # noqa: ANN401 - the engine's
    """Sets the vocabularies, the special tokens and the norm's epsilon."""
    tokenizer = directory.tokenizer
    # Labels, not pieces: the engine's vocabulary files hold one readable token a line
    vocabulary = tokenizer.target.pieces(range(tokenizer.vocab_size))
    source = tokenizer.source
    spec.register_source_vocabulary(source.pieces(range(source.vocab_size)))
    spec.register_target_vocabulary(vocabulary)
    spec.config.add_source_eos = directory.config.source_eos
    spec.config.bos_token, spec.config.eos_token = vocabulary[BOS_ID], vocabulary[EOS_ID]
    spec.config.unk_token = vocabulary[UNK_ID]
    spec.config.decoder_start_token = vocabulary[BOS_ID]
    spec.config.layer_norm_epsilon = directory.config.norm_epsilon


def _fill(spec: Any, directory: ModelDirectory) -> None:  # noqa: ANN401
    model = directory.model
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_matrix)
    _fill_linear(spec.decoder.projection, model.output_matrix, model.output_bias)
    inputs = ((spec.encoder, model.encoder_input), (spec.decoder, model.decoder_input))
    for side, stack_input in inputs:
        _fill_positions(side.position_encodings, stack_input, model.config.d_model)
        if stack_input.norm is not None:
            _fill_norm(side.layernorm_embedding, stack_input.norm)
    if model.config.norm == "pre":
        _fill_norm(spec.encoder.layer_norm, model.encoder.final_norm)
        _fill_norm(spec.decoder.layer_norm, model.decoder.final_norm)
    for layer_spec, layer in zip(spec.encoder.layer, model.encoder.layers, strict=True):
        _fill_self_attention(layer_spec.self_attention, layer.self_attention)
        _fill_norm(layer_spec.self_attention.layer_norm, layer.self_attention_norm)
        _fill_feed_forward(layer_spec.ffn, layer.feed_forward)
        _fill_norm(layer_spec.ffn.layer_norm, layer.feed_forward_norm)
    for layer_spec, decoder_layer in zip(spec.decoder.layer, model.decoder.layers, strict=True):
        _fill_self_attention(layer_spec.self_attention, decoder_layer.self_attention)
        _fill_norm(layer_spec.self_attention.layer_norm, decoder_layer.self_attention_norm)
        _fill_cross_attention(layer_spec.attention, decoder_layer.cross_attention)
        _fill_norm(layer_spec.attention.layer_norm, decoder_layer.cross_attention_norm)
        _fill_feed_forward(layer_spec.ffn, decoder_layer.feed_forward)
        _fill_norm(layer_spec.ffn.layer_norm, decoder_layer.feed_forward_norm)


def _fill_positions(spec: Any, embedding: PositionedEmbedding, d_model: int) -> None:  # noqa: ANN401
    rows = embedding.positions.rows(0, embedding.max_positions, torch.device("cpu"))
    if rows is None:  # the engine adds some in any case
        rows = torch.zeros(embedding.max_positions, d_model)
    spec.encodings = _array(rows)


def _fill_self_attention(spec: Any, attention: MultiHeadAttention) -> None:  # noqa: ANN401
    _fill_linear(spec.linear[0], attention.in_projection.weight, attention.in_projection.bias)
    _fill_linear(spec.linear[1], attention.out_projection.weight, attention.out_projection.bias)


def _fill_cross_attention(spec: Any, attention: MultiHeadAttention) -> None:  # noqa: ANN401
    weight, bias = attention.in_projection.weight, attention.in_projection.bias
    d_model = weight.shape[1]
    # (3·D, D): the queries' rows, then those of keys and values
    _fill_linear(spec.linear[0], weight[:d_model], None if bias is None else bias[:d_model])
    _fill_linear(spec.linear[1], weight[d_model:], None if bias is None else bias[d_model:])
    _fill_linear(spec.linear[2], attention.out_projection.weight, attention.out_projection.bias)


def _fill_feed_forward(spec: Any, feed_forward: FeedForward) -> None:  # noqa: ANN401
    _fill_linear(spec.linear_0, feed_forward.inner.weight, feed_forward.inner.bias)
    _fill_linear(spec.linear_1, feed_forward.outer.weight, feed_forward.outer.bias)


def _fill_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:  # noqa: ANN401
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _fill_norm(spec: Any, norm: Any) -> None:  # noqa: ANN401  # an Identity where there is none
    spec.gamma = _array(norm.weight)
    # the engine's norms always have a bias
    spec.beta = _array(norm.weight.new_zeros(len(norm.weight)) if norm.bias is None else norm.bias)


def _array(tensor: Tensor) -> Any:  # noqa: ANN401  # numpy's, which only the engine looks at
    return tensor.detach().float().cpu().contiguous().numpy()
