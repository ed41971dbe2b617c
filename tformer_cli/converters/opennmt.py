"""Translation models of OpenNMT-py, a checkpoint (`.pt`), and of Eole, a directory.

Models are pre-norm; sources have no `</s>`. Newer checkpoints may have no biases, and their weights
beside them as `.safetensors`. Eole has the same models under other names; its config.json has only
the settings that were given, those of encoder and decoder before those of the model. Sources:
OpenNMT-py 3.5, onmt/models/model_saver.py, onmt/encoders/transformer.py,
onmt/decoders/transformer.py; Eole 0.6, eole/config/models.py, eole/models/model_saver.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tformer_cli.converters.foreign_model import ForeignModel, Reader, Rows, arranged, model_config
from tformer_cli.converters.formats.mapped_file import LazyArrays
from tformer_cli.converters.formats.weight_files import named_tensors, plain, read_safetensors
from tformer_cli.converters.keys import check_settings, number, read_json_file, shown
from tformer_cli.converters.torch_family import Names, flag, read_model
from tformer_cli.errors import ArtifactError
from tformer_cli.model.config import ModelConfig

_LAYER = "{side}.transformer_layers.{n}."
_ATTENTION = ("linear_query", "linear_keys", "linear_values")
# Foreign names of the modules of a layer and of the final norms, those of encoder layers as in
# decoder layers.
TABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "self_attention.in_projection": tuple(
            f"{_LAYER}self_attn.{name}.{{part}}" for name in _ATTENTION
        ),
        "self_attention.out_projection": (f"{_LAYER}self_attn.final_linear.{{part}}",),
        "self_attention_norm": (f"{_LAYER}layer_norm_1.{{part}}",),
        "cross_attention.in_projection": tuple(
            f"{_LAYER}context_attn.{name}.{{part}}" for name in _ATTENTION
        ),
        "cross_attention.out_projection": (f"{_LAYER}context_attn.final_linear.{{part}}",),
        "cross_attention_norm": (f"{_LAYER}layer_norm_2.{{part}}",),
        "feed_forward.inner": (f"{_LAYER}feed_forward.w_1.{{part}}",),
        "feed_forward.outer": (f"{_LAYER}feed_forward.w_2.{{part}}",),
        "feed_forward_norm": (f"{_LAYER}feed_forward.layer_norm.{{part}}",),
        "final_norm": ("{side}.layer_norm.{part}",),
    }
)
NAMES = Names(
    layers=TABLE,
    source="encoder.embeddings.make_embedding.emb_luts.0.weight",
    target="decoder.embeddings.make_embedding.emb_luts.0.weight",
    output="generator.weight",
    output_bias="generator.bias",
    positions={side: f"{side}.embeddings.make_embedding.pe.pe" for side in ("encoder", "decoder")},
    lacks_biases=True,
)
_NO, _ZERO = (False, None), (0, None)
KNOWN: Mapping[str, tuple[Any, ...]] = {
    "model_type": ("text", None),
    "model_task": ("seq2seq", None),
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash", None),
    "pos_ffn_activation_fn": ("relu", "gelu"),
    "layer_norm": ("standard", None),
    "position_encoding": (True,),
    "max_relative_positions": _ZERO,
    "relative_positions_buckets": _ZERO,
    "sliding_window": _ZERO,
    "num_kv": _ZERO,
    "num_experts": _ZERO,
    "n_src_feats": _ZERO,
    "multiquery": _NO,
    "parallel_residual": _NO,
    "shared_layer_norm": _NO,
    "copy_attn": _NO,
    "coverage_attn": _NO,
    "lora_embedding": _NO,
    "lora_layers": ([], None),
    "quant_layers": ([], None),
    "generator_function": ("softmax", None),
    "context_gate": (None,),
}
# settings that are the width of the model; older ones say rnn_size
_WIDTHS = tuple(
    f"{side}_{name}"
    for side, name in (
        *((side, name) for side in ("enc", "dec") for name in ("hid_size", "rnn_size")),
        *((side, "word_vec_size") for side in ("src", "tgt")),
    )
)
_EPSILON = 1e-6
MAX_POSITIONS = 1024  # positions that are imported; the table has 5,000
PAD, UNK, START, EOS = "<blank>", "<unk>", "<s>", "</s>"
_ENCODER_LAYER = re.compile(r"encoder\.transformer\.(\d+)\.(.+)")
_OLD_NORM = re.compile(r"(.+\.)([ab])_2")
_MOST_NESTED = 6  # objects that a vocabulary of torchtext lies in


@dataclass(frozen=True, kw_only=True)
class OpenNmtSource:
    """A checkpoint, opened."""

    path: Path
    files: tuple[Path, ...]  # it and the file of its weights, if that is another
    settings: Mapping[str, Any]
    vocabulary: Any
    arrays: LazyArrays  # its weights, those of encoder layers under the names of decoder layers


def open_source(path: Path, checkpoint: Any) -> OpenNmtSource | None:  # noqa: ANN401
    if not isinstance(checkpoint, dict) or not {"opt", "vocab"} <= checkpoint.keys():
        return None
    settings = plain(checkpoint["opt"])
    if not isinstance(settings, dict):
        return None
    files = [path]
    if "model" in checkpoint:
        arrays = named_tensors(checkpoint["model"])
        generator = named_tensors(checkpoint.get("generator"))
        arrays |= LazyArrays(
            {f"generator.{name}": partial(generator.__getitem__, name) for name in generator}
        )
    else:
        files.append(path.with_suffix(".safetensors"))
        arrays = read_safetensors(files[1])
    return OpenNmtSource(
        path=path,
        files=tuple(files),
        settings=settings,
        vocabulary=checkpoint["vocab"],
        arrays=LazyArrays({_present(name): partial(arrays.__getitem__, name) for name in arrays}),
    )


def _present(name: str) -> str:
    """The name of a weight in newer checkpoints, with encoder layers named as decoder layers."""
    if match := _OLD_NORM.fullmatch(name):
        name = f"{match[1]}{'weight' if match[2] == 'a' else 'bias'}"
    name = name.replace("generator.0.", "generator.")
    if match := _ENCODER_LAYER.fullmatch(name):
        inner = re.sub(r"^layer_norm\.", "layer_norm_1.", match[2])
        return f"encoder.transformer_layers.{match[1]}.{inner}"
    return name


def convert(source: OpenNmtSource) -> ForeignModel:
    path, settings = source.path, source.settings
    check_settings(path, settings, KNOWN)
    entries, start = _vocabularies(path, source.vocabulary)
    sides = vocabulary_sides(path, entries, start)
    config = _config(source, sides)
    reader = Reader(source.arrays, str(path))
    return read_model(
        "OpenNMT-py", NAMES, reader, config, sides, directory=path.parent, files=source.files
    )


def vocabulary_sides(
    path: Path, entries: tuple[list[str], list[str]], start: str, pad: str = PAD
) -> tuple[Rows, Rows]:
    found = []
    for pieces in entries:
        ids = {piece: n for n, piece in enumerate(pieces)}
        is_target = pieces == entries[1]
        missing = next((p for p in (UNK, EOS, start) if p not in ids and is_target), None)
        if missing or UNK not in ids or len(ids) < len(pieces):
            raise ArtifactError(
                f"{path}: its vocabulary lacks {missing or UNK}, or has an entry twice; import "
                "another model"
            )
        found.append(arranged(pieces, ids.get(pad), ids[UNK], ids.get(start), ids.get(EOS)))
    return found[0], found[1]


def _config(source: OpenNmtSource, sides: tuple[Rows, Rows]) -> ModelConfig:
    path, settings = source.path, source.settings
    widths = {name: number(path, settings, name) for name in _WIDTHS if name in settings}
    if len({*widths.values()}) != 1:
        said = ", ".join(f"{name} = {width}" for name, width in widths.items()) or "no enc_hid_size"
        raise ArtifactError(f"{path}: has {said}, but must have one width; import another model")
    return family_config(
        path,
        settings,
        sides,
        epsilon=settings.get("norm_eps", _EPSILON),
        d_model=next(iter(widths.values())),
        n_encoder_layers=number(path, settings, "enc_layers"),
        n_decoder_layers=number(path, settings, "dec_layers"),
        n_heads=number(path, settings, "heads"),
        d_ff=number(path, settings, "transformer_ff"),
        activation=settings.get("pos_ffn_activation_fn", "relu"),
    )


def family_config(
    path: Path,
    settings: Mapping[str, Any],
    sides: tuple[Rows, Rows],
    *,
    epsilon: object,
    **values: Any,  # noqa: ANN401
) -> ModelConfig:
    """Makes the settings of a model of OpenNMT-py or of Eole, which came from it."""
    if not isinstance(epsilon, float):
        raise ArtifactError(
            f"{path}: norm_eps = {shown(epsilon)} is not a number; import another model"
        )
    is_joint = flag(path, settings, "share_embeddings")
    is_tied = flag(path, settings, "share_decoder_embeddings")
    return model_config(
        path,
        norm="pre",
        norm_epsilon=epsilon,
        positions="table",
        max_positions=MAX_POSITIONS,
        tied_embeddings="none" if not is_tied else "all" if is_joint else "decoder",
        source_vocab_size=0 if is_joint else len(sides[0].pieces),
        output_bias=True,
        source_eos=False,
        **values,
    )


def _vocabularies(path: Path, saved: Any) -> tuple[tuple[list[str], list[str]], str]:  # noqa: ANN401
    """Reads the entries of source and target by their ids, and the start of translations."""
    if isinstance(saved, list):  # pairs of a name and a vocabulary, before 1.0
        saved = {
            pair[0]: pair[1]
            for pair in saved
            if isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)
        }
    if not isinstance(saved, dict):
        saved = {}
    check_settings(path, saved, {"data_task": ("seq2seq", None), "src_feats": ([], None)})
    found = []
    for side in ("src", "tgt"):
        entries = _entries(saved.get(side), _MOST_NESTED)
        if entries is None or not all(isinstance(entry, str) for entry in entries):
            raise ArtifactError(
                f"{path}: its vocabulary is of a kind that is not known; save it with OpenNMT-py 1 "
                "to 3"
            )
        found.append(entries)
    start = saved.get("decoder_start_token", START)
    if not isinstance(start, str):
        raise ArtifactError(f"{path}: decoder_start_token is not a text; import another model")
    return (found[0], found[1]), start


def _entries(saved: Any, depth: int) -> list[str] | None:  # noqa: ANN401
    """Finds the list of entries: itself, or that of a vocabulary of torchtext.

    A field of torchtext holds a vocabulary, and a field of several texts holds fields; more than
    one of them are features of words, which are not read.
    """
    if isinstance(saved, list) and saved and isinstance(saved[0], str):
        return saved
    attributes = plain(saved)
    if not isinstance(attributes, dict) or depth < 1:
        return None
    fields = attributes.get("fields")
    if isinstance(fields, list) and len(fields) == 1 and isinstance(fields[0], tuple):
        return _entries(fields[0][-1], depth - 1)
    return _entries(attributes.get("itos", attributes.get("vocab")), depth - 1)


_EOLE_WORDS = {
    "layer_norm_1.": "input_layernorm.",
    "layer_norm_2.": "precontext_layernorm.",
    "feed_forward.layer_norm.": "post_attention_layernorm.",
    "feed_forward.w_1.": "mlp.gate_up_proj.",
    "feed_forward.w_2.": "mlp.down_proj.",
}


def _renamed(template: str) -> str:
    for theirs, ours in _EOLE_WORDS.items():
        template = template.replace(f".{theirs}", f".{ours}")
    return template


# foreign names of the modules of a layer and of the final norms
EOLE_TABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {module: tuple(map(_renamed, templates)) for module, templates in TABLE.items()}
)
EOLE_NAMES = replace(
    NAMES,
    layers=EOLE_TABLE,
    source="src_emb.embeddings.weight",
    target="tgt_emb.embeddings.weight",
    positions={"encoder": "src_emb.pe.pe", "decoder": "tgt_emb.pe.pe"},
)
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish"}
_NONE = (None,)
EOLE_KNOWN: Mapping[str, tuple[Any, ...]] = MappingProxyType(
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
READ = frozenset(
    {
        *("encoder", "decoder", "embeddings", "hidden_size", "layers", "heads", "transformer_ff"),
        *("norm_eps", "share_embeddings", "share_decoder_embeddings", "word_vec_size"),
        *("src_word_vec_size", "tgt_word_vec_size"),
    }
)
# settings of what such a model does not have, or that its tensors tell
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
_EOLE_EPSILON = 1e-5


def is_eole(path: Path) -> bool:
    files = (path / "config.json", path / "vocab.json")
    if not all(file.is_file() for file in files):
        return False
    return isinstance(read_json_file(files[0]).get("model"), dict)


def convert_eole(path: Path) -> ForeignModel:
    file = path / "config.json"
    model = read_json_file(file)["model"]
    tables = _tables(file, model)
    vocabulary_file = path / "vocab.json"
    sides = _sides(vocabulary_file)
    config = _eole_config(file, model, tables, sides)
    arrays, weight_files = _weights(path)
    reader = Reader(arrays, str(path))
    _check_scalars(reader)
    files = (file, vocabulary_file, *weight_files)
    return read_model("Eole", EOLE_NAMES, reader, config, sides, directory=path, files=files)


def _tables(file: Path, model: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the settings of encoder, decoder and embeddings, all of them known."""
    found = {}
    for name in ("encoder", "decoder", "embeddings"):
        table = model.get(name, {})
        if not isinstance(table, dict):
            raise ArtifactError(f"{file}: {name} = {shown(table)} is not supported; import another")
        found[name] = table
    for table in (model, *found.values()):
        unknown = sorted(table.keys() - EOLE_KNOWN.keys() - READ - WITHOUT_EFFECT)
        if unknown:
            raise ArtifactError(
                f"{file}: has the setting {unknown[0][:60]}, which is not supported; import "
                "another model"
            )
        check_settings(file, table, EOLE_KNOWN)
    return {name: {**model, **table} for name, table in found.items()}


def _eole_config(
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


# settings that both stacks must share, with Eole's defaults
_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "hidden_size": 512,
        "heads": 8,
        "transformer_ff": 2048,
        "norm_eps": _EOLE_EPSILON,
        "mlp_activation_fn": "relu",
    }
)


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
