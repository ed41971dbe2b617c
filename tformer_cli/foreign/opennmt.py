"""Translation models of OpenNMT-py: a checkpoint (`.pt`) that holds its vocabularies, too.

Models are pre-norm with norms of an epsilon of 1e-6; sources have no `</s>`. Newer ones may have no
biases, and their weights beside the checkpoint as `.safetensors`. Source: OpenNMT-py 3.5,
onmt/models/model_saver.py, onmt/encoders/transformer.py, onmt/decoders/transformer.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.assembly import Reader, Rows, arranged
from tformer_cli.foreign.foreign_model import (
    ForeignModel,
    check_settings,
    model_config,
    number,
    shown,
)
from tformer_cli.foreign.formats.lazy_arrays import LazyArrays
from tformer_cli.foreign.formats.torch_checkpoint import named_tensors, plain
from tformer_cli.foreign.formats.weight_files import read_safetensors
from tformer_cli.foreign.torch_family import Names, flag, read_model
from tformer_cli.model.config import ModelConfig

_LAYER = "{side}.transformer_layers.{n}."
_ATTENTION = ("linear_query", "linear_keys", "linear_values")
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
"""Foreign names of the modules of a layer and of the final norms, those of encoder layers as in
decoder layers."""
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
"""Settings that could change what is computed, with the values that are known."""
_WIDTHS = tuple(
    f"{side}_{name}"
    for side, name in (
        *((side, name) for side in ("enc", "dec") for name in ("hid_size", "rnn_size")),
        *((side, "word_vec_size") for side in ("src", "tgt")),
    )
)
"""Settings that are the width of the model; older ones say rnn_size."""
_EPSILON = 1e-6
MAX_POSITIONS = 1024
"""Positions that are imported; the table has 5,000."""
PAD, UNK, START, EOS = "<blank>", "<unk>", "<s>", "</s>"
_ENCODER_LAYER = re.compile(r"encoder\.transformer\.(\d+)\.(.+)")
_OLD_NORM = re.compile(r"(.+\.)([ab])_2")
_MOST_NESTED = 6
"""Objects that a vocabulary of torchtext lies in."""


@dataclass(frozen=True, kw_only=True)
class OpenNmtSource:
    """A checkpoint, opened."""

    path: Path
    """Its file."""
    files: tuple[Path, ...]
    """It and the file of its weights, if that is another."""
    settings: Mapping[str, Any]
    """Settings of its training run."""
    vocabulary: Any
    """Its vocabularies as they were saved."""
    arrays: LazyArrays
    """Its weights, those of encoder layers under the names of decoder layers."""


def open_source(path: Path, checkpoint: Any) -> OpenNmtSource | None:  # noqa: ANN401
    """Recognizes a checkpoint of OpenNMT-py."""
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
    """Orders the rows of source and target."""
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
