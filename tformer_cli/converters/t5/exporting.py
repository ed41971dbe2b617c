"""Models with T5's layers as directories that Hugging Face's library loads, the way back."""

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from tformer_cli.allow_list import ANY
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.converters.assembly import NEVER, foreign_names
from tformer_cli.converters.hugging_face.layout import Layout
from tformer_cli.converters.t5.importing import BIASES, PROJECTIONS, TABLES
from tformer_cli.errors import UsageError
from tformer_cli.model.config import PLAIN_TRANSLATION, ModelConfig
from tformer_cli.model.weight_shapes import parameter_shapes

T5: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **PLAIN_TRANSLATION,
        **dict.fromkeys(
            (
                *("d_model", "n_heads", "d_head", "d_ff", "max_positions", "norm_epsilon"),
                *("dropout", "attention_dropout", "activation_dropout"),
                *("relative_buckets", "relative_distance"),
                # of other positions alone
                "rotary_base",
                # biases of tokens that are never written; others are refused with a message
                "output_bias",
                # numbers that differ from layer to layer are refused with a message of their own
                *("encoder_heads", "decoder_heads", "cross_heads", "bias_heads"),
            ),
            ANY,
        ),
        "norm": ("pre",),
        "norm_kind": ("rms",),
        "gated": (False, True),
        "activation": frozenset(activation for activation, _ in PROJECTIONS.values()),
        "positions": ("relative",),
        "similarity": ("dot", "scaled"),
        "tied_embeddings": ("all", "inputs"),
        "bias": (False,),
        "final_norm": ("pre-norm", "always"),
        "embedding_norm": (False,),
        "scale_embeddings": (False,),
        "source_vocab_size": (0,),
        "source_eos": (True,),
    }
)
"""Settings of models that `T5ForConditionalGeneration` can hold."""


def is_like_t5(config: ModelConfig) -> bool:
    """Returns whether a translation model comes nearest to T5."""
    return config.positions == "relative"


def settings_of(directory: ModelDirectory, layout: Layout) -> dict[str, Any]:
    """Returns what config.json says of a model besides its special tokens."""
    config = directory.config
    wanted = config.activation, config.gated
    names = [name for name, found in PROJECTIONS.items() if found == wanted]
    if not names:
        raise UsageError(
            f'{directory.path}: T5 of Hugging Face has no activation = "{config.activation}" with '
            "a gate; export with --format int8"
        )
    return {
        "is_encoder_decoder": True,
        "vocab_size": layout.sizes[1],
        "tie_word_embeddings": config.tied_embeddings == "all",
        "d_model": config.d_model,
        "d_kv": config.head_width,
        "d_ff": config.d_ff,
        "num_layers": config.n_encoder_layers,
        "num_decoder_layers": config.n_decoder_layers,
        "num_heads": config.n_heads,
        "relative_attention_num_buckets": config.relative_buckets,
        "relative_attention_max_distance": config.relative_distance,
        "feed_forward_proj": names[-1],
        "layer_norm_epsilon": config.norm_epsilon,
        "dropout_rate": config.dropout,
        "n_positions": config.max_positions,
        "dtype": "float32",
    }


def never_written(directory: ModelDirectory, layout: Layout) -> set[int]:
    """Returns the exported ids of tokens that are never written."""
    bias = directory.model.output_bias
    never = [] if bias is None else torch.nonzero(bias == NEVER).flatten().tolist()
    return {layout.ids[token] for token in never}


def weights_of(directory: ModelDirectory, layout: Layout) -> dict[str, Tensor]:
    """Returns the weights under the library's names, in its shapes."""
    model, config = directory.model, directory.config
    bias = model.output_bias
    if bias is not None and bool(bias[bias != NEVER].any()):
        raise UsageError(
            f"{directory.path}: its logits have biases, which T5 of Hugging Face lacks; train it "
            'again with model.frozen = ["output_bias"], or export with --format int8'
        )
    found = {"shared.weight": layout.ordered(model.target_matrix)}
    if config.tied_embeddings == "inputs":
        found["lm_head.weight"] = layout.ordered(model.output_matrix)
    weights, table = dict(model.state_dict()), TABLES[config.gated]
    if config.tied_embeddings == "all":  # the class multiplies by what is folded into this norm
        weights["decoder.final_norm.weight"] = (
            weights["decoder.final_norm.weight"] * config.d_model**0.5
        )
    for side in ("encoder", "decoder"):
        found[BIASES.format(side=side)] = weights[f"{side}_input.positions.table"]
    for name in parameter_shapes(config, model.vocab_size):
        foreign, weight = foreign_names(name, table), weights[name]
        if len(foreign) == 3:
            query, key, value = weight.chunk(3)
            if config.similarity == "scaled":  # which the class does not do
                query = query * config.head_width**-0.5
            found.update(zip(foreign, (query, key, value), strict=True))
        elif foreign:
            found[foreign[0]] = weight
    return {name: tensor.detach().clone().contiguous() for name, tensor in found.items()}
