"""Directories of T5, T5 1.1, mT5, ByT5 and MADLAD-400 as Hugging Face's library has them.

Pre-norm stacks with RMS norms and no biases; scores are not divided by √d_k, and a table of biases
by distance, one for each stack, takes the place of positions. T5 has one matrix for embeddings and
output and multiplies the last hidden states by d_model^-0.5, which is folded into the weights of
the decoder's final norm; the others have an output matrix of their own. Sources: Raffel et al.
2020; Shazeer 2020, "GLU Variants"; transformers 5.23, models/t5/modeling_t5.py.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tformer_cli.converters.assembly import Reader, Rows, assembled, output_bias
from tformer_cli.converters.foreign_model import (
    ForeignModel,
    model_config,
    number,
    read_json_file,
    shown,
)
from tformer_cli.converters.formats.weight_files import read_weights_of
from tformer_cli.converters.hugging_face.generation import IN_CONFIG, read_generation
from tformer_cli.converters.hugging_face.keys import CONFIG_ROWS, rows_of
from tformer_cli.converters.keys import USED, Keys, no_effect, only
from tformer_cli.converters.t5.tokenizers import CLASSES, read_vocabulary
from tformer_cli.errors import ArtifactError
from tformer_cli.model.config import ModelConfig, TiedEmbeddings

_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "silu": "swish",
    "swish": "swish",
}
PROJECTIONS: Mapping[str, tuple[str, bool]] = MappingProxyType(
    {
        **{name: (ours, False) for name, ours in _ACTIVATIONS.items()},
        **{f"gated-{name}": (ours, True) for name, ours in _ACTIVATIONS.items()},
        "gated-gelu": ("gelu-tanh", True),  # the library's exception
    }
)
"""Activation of each feed_forward_proj, and whether it is gated."""
_CLASSES = ("T5ForConditionalGeneration", "MT5ForConditionalGeneration", "T5WithLMHeadModel")
CONFIG = Keys(
    "config.json",
    "T5, mT5, ByT5, MADLAD",
    {
        **CONFIG_ROWS,
        **IN_CONFIG,
        "architectures": only(None, [], *([name] for name in _CLASSES)),
        "is_encoder_decoder": only(True),
        "is_decoder": only(False),
        "add_cross_attention": no_effect("its decoder has it"),
        "tie_word_embeddings": only(False, True),
        "scale_decoder_outputs": only(False, True),
        "feed_forward_proj": only(*PROJECTIONS),
        "transformers_version": USED,
        "task_specific_params": USED,
        "tokenizer_class": CLASSES,
        **rows_of("vocab_size d_model d_kv d_ff num_layers num_decoder_layers num_heads", USED),
        **rows_of("relative_attention_num_buckets relative_attention_max_distance", USED),
        **rows_of("layer_norm_epsilon n_positions dense_act_fn is_gated_act", USED),
    },
)
_TITLES = {"t5": "T5", "mt5": "mT5"}
BIASES = "{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
"""Foreign name of the biases of distances of a stack."""
_IGNORED = "EncDecAttention.relative_attention_bias.weight"
"""Ends the name of a tensor of older files that nothing reads."""


def _table(*, is_gated: bool) -> dict[str, tuple[str, ...]]:
    """Names the parts of layers and the norms around them."""
    sublayers = {
        "encoder.self_attention": (0, "SelfAttention"),
        "decoder.self_attention": (0, "SelfAttention"),
        "decoder.cross_attention": (1, "EncDecAttention"),
        "encoder.feed_forward": (1, "DenseReluDense"),
        "decoder.feed_forward": (2, "DenseReluDense"),
    }
    inner = {"gate": ["wi_0"], "inner": ["wi_1"]} if is_gated else {"inner": ["wi"]}
    parts: dict[str, dict[str, list[str]]] = {
        "attention": {"in_projection": ["q", "k", "v"], "out_projection": ["o"]},
        "forward": {**inner, "outer": ["wo"]},
    }
    found: dict[str, tuple[str, ...]] = {"final_norm": ("{side}.final_layer_norm.{part}",)}
    for ours, (place, theirs) in sublayers.items():
        layer = f"{{side}}.block.{{n}}.layer.{place}"
        found[f"{ours}_norm"] = (f"{layer}.layer_norm.{{part}}",)
        for part, names in parts[ours.rpartition("_")[2]].items():
            found[f"{ours}.{part}"] = tuple(f"{layer}.{theirs}.{name}.{{part}}" for name in names)
    return found


TABLES: Mapping[bool, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {is_gated: MappingProxyType(_table(is_gated=is_gated)) for is_gated in (False, True)}
)
"""Foreign names of the modules of a layer and of the norms, without a gate and with one."""


def is_t5(path: Path) -> bool:
    """Returns whether a directory holds a model of T5's family."""
    file = path / "config.json"
    kind = read_json_file(file).get("model_type") if file.is_file() else None
    return isinstance(kind, str) and kind in _TITLES


def convert(path: Path) -> ForeignModel:
    """Converts a directory."""
    file = path / "config.json"
    settings = read_json_file(file)
    notes = CONFIG.read(file, settings)
    generation = read_generation(path, settings, _translation(settings))
    arrays, weight_files = read_weights_of(path)
    reader = Reader(arrays, str(path))
    size = number(file, settings, "vocab_size")
    vocabulary = read_vocabulary(path, settings, size)
    ids = {"pad_token_id": 0, "eos_token_id": 1, **_special_ids(settings), **generation.special_ids}
    ids = {"decoder_start_token_id": ids["pad_token_id"], **ids}
    pad, start, end = (number(file, ids, f"{n}_token_id") for n in ("pad", "decoder_start", "eos"))
    rows = generation.banned(vocabulary.rows(size, pad, start, end, str(file)))
    forced = generation.check_forced(end)
    given, tied = _outer(reader, settings, rows)
    config = _config(file, settings, tied)
    is_scaled = _is_scaled(settings)
    if is_scaled:
        norm = reader.take("decoder.final_layer_norm.weight")
        given["decoder.final_norm.weight"] = norm * np.float32(config.d_model**-0.5)
    table = TABLES[config.gated]
    weights = assembled(config, len(rows.pieces), table, reader.take, given, str(path))
    reader.ignore([name for name in arrays if name.endswith(_IGNORED)])
    reader.check_all_taken()
    decoding, of_search = generation.search(config)
    notes += [*vocabulary.notes, *generation.notes, *of_search, *forced]
    if is_scaled:
        notes.append("the factor d_model^-0.5 of its logits is in the decoder's final norm")
    return ForeignModel(
        kind=f"Hugging Face {_TITLES[settings['model_type']]}",
        config=config,
        weights=weights,
        tokenizer=vocabulary.tokenizer(rows),
        decoding=decoding,
        files=(file, *weight_files, *vocabulary.files, *generation.files),
        ids=rows.foreign,
        notes=tuple(notes),
    )


def _is_scaled(settings: Mapping[str, Any]) -> bool:
    """Returns whether the last hidden states are multiplied by d_model^-0.5.

    Version 5 of the library writes that all models are tied and says of T5 by a setting of its own
    whether they are scaled; of mT5 it scales none.
    """
    is_tied = bool(settings.get("tie_word_embeddings", settings["model_type"] == "t5"))
    version = str(settings.get("transformers_version", ""))
    if settings["model_type"] == "mt5" and version.partition(".")[0] == "5":
        return False
    return bool(settings.get("scale_decoder_outputs", is_tied))


def _outer(
    reader: Reader, settings: Mapping[str, Any], rows: Rows
) -> tuple[dict[str, Any], TiedEmbeddings]:
    """Reads the weights around the stacks, and finds what is tied."""
    names = ["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
    embedding = reader.take_first(names)
    output = embedding
    if "lm_head.weight" in reader or settings.get("tie_word_embeddings") is False:
        output = reader.take("lm_head.weight")
    given: dict[str, Any] = {
        "source_embedding.weight": rows.of(embedding),
        "output_bias": output_bias(rows, None),
    }
    for side in ("encoder", "decoder"):
        given[f"{side}_input.positions.table"] = reader.take(BIASES.format(side=side))
    if np.array_equal(output, embedding):
        return given, "all"
    given["output_projection.weight"] = rows.of(output)
    return given, "inputs"


def _config(file: Path, settings: Mapping[str, Any], tied: TiedEmbeddings) -> ModelConfig:
    default = "gated-gelu" if settings["model_type"] == "mt5" else "relu"
    projection = settings.get("feed_forward_proj", default)
    activation, is_gated = PROJECTIONS[projection]
    own = "gelu_new" if projection == "gated-gelu" else projection.removeprefix("gated-")
    for name, implied in (("dense_act_fn", own), ("is_gated_act", is_gated)):
        if settings.get(name, implied) != implied:
            raise ArtifactError(
                f"{file}: {name} = {shown(settings[name])}, but feed_forward_proj = "
                f"{shown(projection)}; correct one of the two"
            )
    n_layers = number(file, settings, "num_layers")
    width, heads = (number(file, settings, name) for name in ("d_model", "num_heads"))
    head_width = number(file, settings, "d_kv")
    return model_config(
        file,
        d_model=width,
        n_heads=heads,
        d_head=0 if heads * head_width == width else head_width,
        d_ff=number(file, settings, "d_ff"),
        n_encoder_layers=n_layers,
        n_decoder_layers=settings.get("num_decoder_layers") or n_layers,
        norm="pre",
        norm_kind="rms",
        norm_epsilon=settings.get("layer_norm_epsilon", 1e-6),
        activation=activation,
        gated=is_gated,
        bias=False,
        positions="relative",
        relative_buckets=settings.get("relative_attention_num_buckets", 32),
        relative_distance=settings.get("relative_attention_max_distance", 128),
        similarity="dot",
        max_positions=settings.get("n_positions") or ModelConfig.max_positions,
        tied_embeddings=tied,
        output_bias=True,
        scale_embeddings=False,
    )


def _special_ids(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in settings.items() if k.endswith("_token_id") and v is not None}


def _translation(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the search that T5's config.json has for a translation."""
    tasks = settings.get("task_specific_params")
    found = tasks.get("translation_en_to_de") if isinstance(tasks, dict) else None
    return found if isinstance(found, dict) else {}
