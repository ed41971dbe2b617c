"""A model as a directory that Hugging Face's library loads: the inverse of `hugging_face`.

Post-norm models become a `MarianMTModel`, pre-norm ones a `PegasusForConditionalGeneration`. Both
read their positions from the weights file if it has them, so that no formula has to agree, and both
add `final_logits_bias`. One of tformer's tokenizers is stored in the format of Hugging Face
`tokenizers`, which needs no SentencePiece. What was imported as M2M-100, NLLB or mBART becomes that
again, as long as it has its positions and no more biases. Other tasks: see `decoders`,
`encoders` and `images`.
"""

import json
from collections.abc import Container, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from tformer_cli.allow_list import ANY, unknown_setting
from tformer_cli.artifacts.config_file import CONFIG, WEIGHTS
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.artifacts.tensors import save_tensors
from tformer_cli.converters.assembly import NEVER, foreign_names
from tformer_cli.converters.hugging_face import decoders, encoders, images
from tformer_cli.converters.hugging_face.importing import ACTIVATIONS, OFFSET, TABLE
from tformer_cli.converters.hugging_face.layout import Layout, layout_of
from tformer_cli.converters.hugging_face.model_card import model_card
from tformer_cli.converters.positions import tensor2tensor_halves
from tformer_cli.converters.t5 import exporting as t5
from tformer_cli.data.tokenizer import EOS_ID, SPECIAL_PIECES
from tformer_cli.decoding.config import DecodingConfig
from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import directory_aside, write_text
from tformer_cli.model.config import PLAIN_TRANSLATION, ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.model.weight_shapes import parameter_shapes

CPU = torch.device("cpu")
_NORM_EPSILON = 1e-5
"""What the classes add to the variance; none has a setting for it."""
_ROUNDING = 1e-6
"""Sines of two libraries differ by less."""
_COMMON: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **PLAIN_TRANSLATION,
        **dict.fromkeys(
            ("d_model", "n_heads", "d_ff", "max_positions"),
            ANY,
        ),
        **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), ANY),
        "norm": ("post", "pre"),
        "norm_epsilon": (_NORM_EPSILON,),
        "activation": frozenset(ACTIVATIONS.values()),
        "positions": ("sinusoidal", "learned", "table"),
        # of other positions alone
        **dict.fromkeys(("rotary_base", "relative_buckets", "relative_distance"), ANY),
        **dict.fromkeys(("bias", "output_bias", "scale_embeddings"), (False, True)),
        "embedding_norm": (False,),
        "final_norm": ("pre-norm",),
        "source_eos": (True,),
        # numbers that differ from layer to layer are refused with a message of their own
        **dict.fromkeys(("encoder_heads", "decoder_heads", "cross_heads", "bias_heads"), ANY),
    }
)
MARIAN: Mapping[str, Container[Any]] = MappingProxyType(
    {**_COMMON, "tied_embeddings": ("all", "decoder"), "source_vocab_size": ANY}
)
"""Settings of models that `MarianMTModel` can hold."""
PEGASUS: Mapping[str, Container[Any]] = MappingProxyType(
    {**_COMMON, "tied_embeddings": ("all",), "source_vocab_size": (0,)}
)
"""Settings of models that `PegasusForConditionalGeneration` can hold."""
MBART: Mapping[str, Container[Any]] = MappingProxyType({**PEGASUS, "embedding_norm": (False, True)})
"""Settings of models that `MBartForConditionalGeneration` can hold."""
_CLASSES = {
    "marian": ("MarianMTModel", MARIAN),
    "pegasus": ("PegasusForConditionalGeneration", PEGASUS),
    "m2m_100": ("M2M100ForConditionalGeneration", PEGASUS),
    "mbart": ("MBartForConditionalGeneration", MBART),
    "t5": ("T5ForConditionalGeneration", t5.T5),
}
"""Class of each model_type, and the settings that it can hold."""


def export_hugging_face(directory: ModelDirectory, path: Path) -> str:
    """Writes a directory for Hugging Face's library, whole or not at all."""
    kind, name = _class_of(directory)
    config = directory.config
    files: Mapping[str, bytes] = {}
    layout: Layout | decoders.Vocabulary | None = None
    generation: dict[str, Any] | None = None
    if config.reads_images:
        files = {images.PREPARATION: images.preparation_of(directory)}
        settings = images.settings_of(directory, kind)
        weights = images.weights_of(directory, kind)
    elif config.is_encoder_only:
        layout = encoders.vocabulary_of(directory)
        settings = encoders.settings_of(directory, kind, layout)
        weights = encoders.weights_of(directory, kind, layout)
    elif config.is_decoder_only:
        layout = decoders.vocabulary_of(directory)
        settings = decoders.settings_of(kind, config, layout)
        generation = decoders.generation_of(directory.model, layout)
        weights = decoders.weights_of(directory, kind, layout)
    else:
        layout = layout_of(directory, kind)
        generation = _generation(directory.decoding, config, layout)
        if kind == "t5":
            settings = {**t5.settings_of(directory, layout), **_special_ids(layout)}
            never = t5.never_written(directory, layout) | {*generation["suppress_tokens"]}
            generation["suppress_tokens"] = sorted(never)
            weights = t5.weights_of(directory, layout)
        else:
            settings = _settings(config, layout)
            weights = _weights(directory, layout, kind)
    texts = {
        CONFIG: _json({"architectures": [name], "model_type": kind, **settings}),
        "README.md": model_card(directory, name),
    }
    if layout is not None:
        files = layout.files
        texts["tokenizer_config.json"] = _json({**layout.settings, **_limits(config)})
    if generation is not None:
        texts["generation_config.json"] = _json(generation)
    with directory_aside(path) as aside:
        for file, content in files.items():
            (aside / file).write_bytes(content)
        for file, text in texts.items():
            write_text(aside / file, text)
        save_tensors(aside / WEIGHTS, weights, {"format": "pt"})
    return name


def _class_of(directory: ModelDirectory) -> tuple[str, str]:
    """Returns model_type and class of a model."""
    config = directory.config
    known: Mapping[str, Container[Any]]
    if config.is_encoder_only:
        module = images if config.reads_images else encoders
        kind, name = module.class_of(directory)
        known = module.KNOWN
    else:
        kind = decoders.kind_of(config) if config.is_decoder_only else _kind(directory)
        name, known = (decoders.CLASSES if config.is_decoder_only else _CLASSES)[kind]
    unknown = unknown_setting(config, known)
    if unknown is not None:
        # CTranslate2's format is written of translation models alone
        way = "export with --format ctranslate2"
        if config.is_encoder_only or config.is_decoder_only:
            way = "use it here"
        raise UsageError(f"{directory.path}: {name} of Hugging Face has no {unknown}; {way}")
    if {n for layers in config.layer_heads for n in layers} != {config.n_heads}:
        raise UsageError(
            f"{directory.path}: some heads are pruned, but {name} of Hugging Face needs the same "
            "number in every layer; export the unpruned model"
        )
    return kind, name


def _kind(directory: ModelDirectory) -> str:
    """Returns the model_type of the class that holds a model, or comes nearest."""
    config = directory.config
    if t5.is_like_t5(config):
        return "t5"
    if config.norm == "post":
        return "marian"
    if config.embedding_norm:
        return "mbart"
    return "m2m_100" if _is_m2m(directory.model) else "pegasus"


def _is_m2m(model: Transformer) -> bool:
    """Returns whether a model has M2M-100's positions, which no file holds, and no output bias."""
    bias, config = model.output_bias, model.config
    has_bias = bias is not None and bool(bias[bias != NEVER].any())
    if config.positions != "table" or config.tied_embeddings != "all" or has_bias:
        return False
    table = tensor2tensor_halves(config.max_positions, config.d_model, OFFSET)
    rows = [
        one.positions.rows(0, len(table), CPU) for one in (model.encoder_input, model.decoder_input)
    ]
    return all(one is not None and np.abs(one.numpy() - table).max() < _ROUNDING for one in rows)


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _settings(config: ModelConfig, layout: Layout) -> dict[str, Any]:
    sides = {
        f"{side}_{name}": value
        for side, n_layers in (
            ("encoder", config.n_encoder_layers),
            ("decoder", config.n_decoder_layers),
        )
        for name, value in (
            ("layers", n_layers),
            ("attention_heads", config.n_heads),
            ("ffn_dim", config.d_ff),
            ("layerdrop", 0.0),
        )
    }
    is_shared = config.tied_embeddings == "all"
    return {
        "is_encoder_decoder": True,
        "vocab_size": layout.sizes[0],
        **({} if config.norm == "pre" else {"decoder_vocab_size": layout.sizes[1]}),
        **({} if is_shared else {"share_encoder_decoder_embeddings": False}),
        "tie_word_embeddings": True,
        "d_model": config.d_model,
        **sides,
        "activation_function": config.activation,
        "scale_embedding": config.scale_embeddings,
        "max_position_embeddings": config.max_positions,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        **_special_ids(layout),
        "dtype": "float32",
    }


def _special_ids(layout: Layout) -> dict[str, int | None]:
    pad, _, bos, eos = layout.ids[: len(SPECIAL_PIECES)]
    return {
        "pad_token_id": pad,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "decoder_start_token_id": bos,
        # the classes' default may be another token
        "forced_eos_token_id": None,
    }


def _generation(decoding: DecodingConfig, config: ModelConfig, layout: Layout) -> dict[str, Any]:
    """Defaults of the search, as far as the library has them."""
    is_average = decoding.length_normalization == "average"
    # the first of the library's tokens is the start
    longest = min(decoding.max_length + 1, config.max_positions)
    return {
        **_special_ids(layout),
        "max_length": longest if decoding.max_length else config.max_positions,
        "num_beams": decoding.beam_size,
        "length_penalty": 1.0 if is_average else decoding.length_penalty,
        "no_repeat_ngram_size": decoding.no_repeat_ngram,
        # tformer's search never writes them, either
        "suppress_tokens": sorted({*layout.ids[:EOS_ID]} - {layout.ids[EOS_ID]}),
        **({} if layout.first_token is None else {"forced_bos_token_id": layout.first_token}),
        **({"renormalize_logits": True} if layout.renormalizes else {}),
    }


def _limits(config: ModelConfig) -> dict[str, Any]:
    return {
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": config.max_positions,
        "clean_up_tokenization_spaces": False,
    }


def _weights(directory: ModelDirectory, layout: Layout, kind: str) -> dict[str, Tensor]:
    """The weights under the library's names, in its shapes."""
    model, config = directory.model, directory.config
    ours = model.state_dict()
    found: dict[str, Tensor] = {}
    sources = layout.ordered_source(model.source_embedding.weight)
    if config.tied_embeddings == "all":
        found["model.shared.weight"] = sources
    else:
        found["model.encoder.embed_tokens.weight"] = sources
        found["model.decoder.embed_tokens.weight"] = layout.ordered(model.target_matrix)
    if kind != "m2m_100":  # which has neither
        bias = torch.zeros(model.vocab_size) if model.output_bias is None else model.output_bias
        found["final_logits_bias"] = layout.ordered(bias)[None]
        for side, given in (("encoder", model.encoder_input), ("decoder", model.decoder_input)):
            # None only where positions are rotary, which is refused
            rows = cast("Tensor", given.positions.rows(0, config.max_positions, CPU))
            before = rows.new_zeros(OFFSET if kind == "mbart" else 0, config.d_model)
            found[f"model.{side}.embed_positions.weight"] = torch.cat([before, rows])
    # the classes have biases everywhere; those that the model lacks are zero
    for name, shape in parameter_shapes(replace(config, bias=True), model.vocab_size).items():
        names = foreign_names(name, TABLE)
        if names:
            weight = ours[name] if name in ours else torch.zeros(shape)
            # queries, keys and values are rows of one matrix here, three matrices there
            found.update(zip(names, weight.chunk(len(names)), strict=True))
    return {name: tensor.detach().clone() for name, tensor in found.items()}
