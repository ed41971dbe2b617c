"""Translation models of Eole: a directory of config.json, vocab.json and safetensors files.

They are those of OpenNMT-py under other names. config.json has only the settings that were given;
those of encoder and decoder stand before those of the model. Source: Eole 0.6,
eole/config/models.py, eole/models/model_saver.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign import opennmt
from tformer_cli.foreign.assembly import Reader, Rows
from tformer_cli.foreign.foreign_model import (
    ForeignModel,
    check_settings,
    number,
    read_json_file,
    shown,
)
from tformer_cli.foreign.formats.lazy_arrays import LazyArrays
from tformer_cli.foreign.formats.weight_files import read_safetensors
from tformer_cli.foreign.opennmt import PAD, START, family_config, vocabulary_sides
from tformer_cli.foreign.torch_family import read_model
from tformer_cli.model.config import ModelConfig

_NAMES = {
    "layer_norm_1.": "input_layernorm.",
    "layer_norm_2.": "precontext_layernorm.",
    "feed_forward.layer_norm.": "post_attention_layernorm.",
    "feed_forward.w_1.": "mlp.gate_up_proj.",
    "feed_forward.w_2.": "mlp.down_proj.",
}


def _renamed(template: str) -> str:
    for theirs, ours in _NAMES.items():
        template = template.replace(f".{theirs}", f".{ours}")
    return template


TABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {module: tuple(map(_renamed, templates)) for module, templates in opennmt.TABLE.items()}
)
"""Foreign names of the modules of a layer and of the final norms."""
NAMES = replace(
    opennmt.NAMES,
    layers=TABLE,
    source="src_emb.embeddings.weight",
    target="tgt_emb.embeddings.weight",
    positions={"encoder": "src_emb.pe.pe", "decoder": "tgt_emb.pe.pe"},
)
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish"}
_NO, _ZERO, _NONE = (False, None), (0, None), (None,)
KNOWN: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "architecture": ("transformer", "custom"),
        "encoder_type": ("transformer",),
        "decoder_type": ("transformer",),
        "embedding_type": ("standard",),
        "position_encoding_type": ("SinusoidalInterleaved", "SinusoidalConcat"),
        "mlp_activation_fn": tuple(_ACTIVATIONS),
        "layer_norm": ("standard", "standardFP32"),
        "encoder_layer_style": ("standard",),
        "final_encoder_layer_norm": (True,),
        "with_cross_attn": (True,),
        "generator_function": ("softmax",),
        "head_dim": _NONE,
        "attn_scaling": _NONE,
        "heads_kv": _NONE,
        "layer_types": _NONE,
        "interpolate_mode": _NONE,
        **dict.fromkeys(
            (
                *("normalize", "embedding_layer_norm", "shared_layer_norm", "ffn_layernorm"),
                *("query_norm", "key_norm", "value_norm", "qk_norm_post_rope", "q_gating"),
                *(
                    "parallel_residual",
                    "coverage_attn",
                    "add_estimator",
                    "left_pad",
                    "mtp_emb_norm",
                ),
                *("shared_expert_gate", "aan_useffn"),
            ),
            _NO,
        ),
        **dict.fromkeys(
            (
                *("position_shift", "token_type_vocab_size", "sliding_window", "num_experts"),
                *("relative_positions_buckets", "num_shared_experts", "num_mtp_heads"),
            ),
            _ZERO,
        ),
    }
)
"""Settings that could change what is computed, with the values that are known."""
READ = frozenset(
    {
        *("encoder", "decoder", "embeddings", "hidden_size", "layers", "heads", "transformer_ff"),
        *("norm_eps", "share_embeddings", "share_decoder_embeddings", "word_vec_size"),
        *("src_word_vec_size", "tgt_word_vec_size"),
    }
)
"""Settings that are read apart."""
WITHOUT_EFFECT = frozenset(
    {
        *("add_qkvbias", "add_key_bias", "add_final_linear_bias", "add_ffnbias", "generator_bias"),
        *("position_encoding", "n_positions", "max_position_embeddings", "rope_config"),
        *("freeze_word_vecs_enc", "freeze_word_vecs_dec", "alignment_layer", "alignment_heads"),
        *("full_context_alignment", "lambda_align", "lambda_coverage", "mtp_lambda", "LM_type"),
        *("global_attention", "global_attention_function", "input_feed", "dim_per_head"),
        *("num_experts_per_tok", "moe_transformer_ff", "moe_softmax_after", "moe_renormalize"),
        *("first_k_dense_replace", "huggingface_model", "eole_version", "adapter_bias"),
        *("projector_activation_fn", "spatial_merge_size", "estimator_type"),
    }
)
"""Settings of what such a model does not have, or that its tensors tell."""
_EPSILON = 1e-5


def is_eole(path: Path) -> bool:
    """Returns whether a directory holds a model of Eole."""
    files = (path / "config.json", path / "vocab.json")
    if not all(file.is_file() for file in files):
        return False
    return isinstance(read_json_file(files[0]).get("model"), dict)


def convert(path: Path) -> ForeignModel:
    file = path / "config.json"
    model = read_json_file(file)["model"]
    tables = _tables(file, model)
    vocabulary_file = path / "vocab.json"
    sides = _sides(vocabulary_file)
    config = _config(file, model, tables, sides)
    arrays, weight_files = _weights(path)
    reader = Reader(arrays, str(path))
    _check_scalars(reader)
    files = (file, vocabulary_file, *weight_files)
    return read_model("Eole", NAMES, reader, config, sides, directory=path, files=files)


def _tables(file: Path, model: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the settings of encoder, decoder and embeddings, all of them known."""
    found = {}
    for name in ("encoder", "decoder", "embeddings"):
        table = model.get(name, {})
        if not isinstance(table, dict):
            raise ArtifactError(f"{file}: {name} = {shown(table)} is not supported; import another")
        found[name] = table
    for table in (model, *found.values()):
        unknown = sorted(table.keys() - KNOWN.keys() - READ - WITHOUT_EFFECT)
        if unknown:
            raise ArtifactError(
                f"{file}: has the setting {unknown[0][:60]}, which is not supported; import "
                "another model"
            )
        check_settings(file, table, KNOWN)
    return {name: {**model, **table} for name, table in found.items()}


def _config(
    file: Path,
    model: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Any]],
    sides: tuple[Rows, Rows],
) -> ModelConfig:
    encoder, decoder = tables["encoder"], tables["decoder"]
    for name, default in _DEFAULTS.items():
        if encoder.get(name, default) != decoder.get(name, default):
            raise ArtifactError(
                f"{file}: encoder and decoder differ in {name}, which is not supported; import "
                "another model"
            )
    settings = {**_DEFAULTS, **{k: v for k, v in encoder.items() if v is not None}}
    return family_config(
        file,
        model,
        sides,
        epsilon=settings["norm_eps"],
        d_model=number(file, settings, "hidden_size"),
        n_heads=number(file, settings, "heads"),
        d_ff=number(file, settings, "transformer_ff"),
        n_encoder_layers=number(file, {"layers": 2, **encoder}, "layers"),
        n_decoder_layers=number(file, {"layers": 2, **decoder}, "layers"),
        activation=_ACTIVATIONS[settings["mlp_activation_fn"]],
    )


_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "hidden_size": 512,
        "heads": 8,
        "transformer_ff": 2048,
        "norm_eps": _EPSILON,
        "mlp_activation_fn": "relu",
    }
)
"""Settings that both stacks must share, with Eole's defaults."""


def _sides(file: Path) -> tuple[Rows, Rows]:
    saved = read_json_file(file)
    entries = [saved.get(side) for side in ("src", "tgt")]
    special = saved.get("specials", {})
    for side in entries:
        if not isinstance(side, list) or not all(isinstance(entry, str) for entry in side):
            raise ArtifactError(f"{file}: lacks a list of entries; download it again")
    check_settings(
        file,
        special if isinstance(special, dict) else {},
        {"unk_token": ("<unk>",), "eos_token": ("</s>",), "pad_token": (PAD, "<pad>")},
    )
    start, pad = saved.get("decoder_start_token", START), PAD
    if isinstance(special, dict):
        pad = special.get("pad_token", PAD)
    if not isinstance(start, str):
        raise ArtifactError(f"{file}: decoder_start_token is not a text; download it again")
    source, target = entries
    return vocabulary_sides(file, (source or [], target or []), start, pad)


def _weights(path: Path) -> tuple[LazyArrays, list[Path]]:
    files = sorted(path.glob("model*.safetensors"))
    if not files:
        raise ArtifactError(f"{path}: has no model.00.safetensors; download the whole model")
    arrays = LazyArrays({})
    for file in files:
        arrays |= read_safetensors(file)
    return arrays, files


def _check_scalars(reader: Reader) -> None:
    """Refuses factors of layers' outputs that are not 1, which other models have."""
    names = [name for name in reader.arrays if name.endswith(".layer_scalar")]
    values = list(chain.from_iterable(reader.take(name).ravel().tolist() for name in names))
    if not np.array_equal(values, np.ones(len(values))):
        raise ArtifactError(
            f"{reader.where}: {names[0]} is not 1, which is not supported; import another model"
        )
