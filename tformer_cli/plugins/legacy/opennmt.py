"""Translation models of OpenNMT-py, a checkpoint (`.pt`), and of Eole, a directory.

Models are pre-norm; sources have no `</s>`. Newer checkpoints may have no biases, and their weights
next to them as `.safetensors`. Eole has the same models under other names; its config.json has only
the settings that were given, those of encoder and decoder before those of the model. Sources:
OpenNMT-py 3.5, onmt/models/model_saver.py, onmt/encoders/transformer.py,
onmt/decoders/transformer.py; Eole 0.6, eole/config/models.py, eole/models/model_saver.py.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import (
    ForeignModel,
    Reader,
    VocabularyOrder,
    model_config,
    name_table,
    reorder_vocabulary,
)
from tformer_cli.foreign.formats.mapped_file import LazyArrays, rename_arrays
from tformer_cli.foreign.formats.weight_files import named_tensors, plain, read_safetensors
from tformer_cli.foreign.keys import (
    USED,
    KeyRows,
    Keys,
    Setting,
    check_settings,
    no_effect,
    number,
    only,
    read_json_file,
    read_shape,
    rows_of,
)
from tformer_cli.foreign.readers import ModelReader
from tformer_cli.model.config import ModelConfig
from tformer_cli.plugins.legacy.torch_family import Names, flag, read_model, values_of

# those of encoder layers as in decoder layers
_ATTENTION = "{0}.linear_query {0}.linear_keys {0}.linear_values"
TABLE = name_table(
    "{side}.transformer_layers.{n}.",
    {
        "self_attention.in_projection": _ATTENTION.format("self_attn"),
        "self_attention.out_projection": "self_attn.final_linear",
        "self_attention_norm": "layer_norm_1",
        "cross_attention.in_projection": _ATTENTION.format("context_attn"),
        "cross_attention.out_projection": "context_attn.final_linear",
        "cross_attention_norm": "layer_norm_2",
        "feed_forward.inner": "feed_forward.w_1",
        "feed_forward.outer": "feed_forward.w_2",
        "feed_forward_norm": "feed_forward.layer_norm",
    },
    final_norm="{side}.layer_norm",
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
_SETTINGS = (
    Setting("n_encoder_layers", "enc_layers"),
    Setting("n_decoder_layers", "dec_layers"),
    Setting("n_heads", "heads"),
    Setting("d_ff", "transformer_ff"),
    Setting("norm_epsilon", "norm_eps", 1e-6),
    Setting("activation", "pos_ffn_activation_fn", "relu", {"relu": "relu", "gelu": "gelu"}),
)
KNOWN: Mapping[str, tuple[Any, ...]] = {
    "model_type": ("text", None),
    "model_task": ("seq2seq", None),
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash", None),
    "layer_norm": ("standard", None),
    "position_encoding": (True,),
    **values_of(
        "max_relative_positions relative_positions_buckets sliding_window num_kv num_experts"
        " n_src_feats",
        (0, None),
    ),
    **values_of(
        "multiquery parallel_residual shared_layer_norm copy_attn coverage_attn lora_embedding",
        (False, None),
    ),
    **values_of("lora_layers quant_layers", ([], None)),
    "generator_function": ("softmax", None),
    "context_gate": (None,),
}
# settings that are the width of the model; older ones say rnn_size
_WIDTHS = (
    *("enc_hid_size", "enc_rnn_size", "dec_hid_size", "dec_rnn_size"),
    *("src_word_vec_size", "tgt_word_vec_size"),
)
MAX_POSITIONS = 1024  # positions that are imported; the table has 5,000
PAD, UNK, START, EOS = "<blank>", "<unk>", "<s>", "</s>"
_ENCODER_LAYER = re.compile(r"encoder\.transformer\.(\d+)\.(.+)")
_OLD_NORM = re.compile(r"(.+\.)([ab])_2")
_MOST_NESTED = 6  # objects that a vocabulary of torchtext lies in


def open_source(path: Path, checkpoint: Any) -> Callable[[], ForeignModel] | None:  # noqa: ANN401
    if not isinstance(checkpoint, dict) or not {"opt", "vocab"} <= checkpoint.keys():
        return None
    settings = plain(checkpoint["opt"])
    if not isinstance(settings, dict):
        return None
    files = [path]
    if "model" in checkpoint:
        arrays = named_tensors(checkpoint["model"])
        generator = named_tensors(checkpoint.get("generator"))
        arrays |= rename_arrays(generator, lambda name: f"generator.{name}")
    else:
        files.append(path.with_suffix(".safetensors"))
        arrays = read_safetensors(files[1])
    reader = Reader(rename_arrays(arrays, _present), str(path))
    return partial(_convert, files, settings, checkpoint["vocab"], reader)


def _present(name: str) -> str:
    """The name of a weight in newer checkpoints, with encoder layers named as decoder layers."""
    if match := _OLD_NORM.fullmatch(name):
        name = f"{match[1]}{'weight' if match[2] == 'a' else 'bias'}"
    name = name.replace("generator.0.", "generator.")
    if match := _ENCODER_LAYER.fullmatch(name):
        inner = re.sub(r"^layer_norm\.", "layer_norm_1.", match[2])
        return f"encoder.transformer_layers.{match[1]}.{inner}"
    return name


def _convert(
    files: Sequence[Path],
    settings: Mapping[str, Any],
    vocabulary: Any,  # noqa: ANN401
    reader: Reader,
) -> ForeignModel:
    path = files[0]
    check_settings(path, settings, KNOWN)
    entries, start = _vocabularies(path, vocabulary)
    sides = vocabulary_sides(path, entries, start)
    widths = {name: number(path, settings, name) for name in _WIDTHS if name in settings}
    if len({*widths.values()}) != 1:
        sizes = (
            ", ".join(f"{name} = {width}" for name, width in widths.items()) or "no enc_hid_size"
        )
        raise ArtifactError(f"{path}: has {sizes}, but must have one width; import another model")
    shape = {"d_model": max(widths.values()), **read_shape(path, settings, _SETTINGS)}
    config = _config(path, settings, sides, shape)
    return read_model(
        "OpenNMT-py", NAMES, reader, config, sides, directory=path.parent, files=files
    )


def vocabulary_sides(
    path: Path, entries: tuple[list[str], list[str]], start: str, pad: str = PAD
) -> tuple[VocabularyOrder, VocabularyOrder]:
    orders = []
    for pieces in entries:
        ids = {piece: n for n, piece in enumerate(pieces)}
        is_target = pieces == entries[1]
        missing = next((p for p in (UNK, EOS, start) if p not in ids and is_target), None)
        if missing or UNK not in ids or len(ids) < len(pieces):
            raise ArtifactError(
                f"{path}: its vocabulary lacks {missing or UNK}, or has an entry twice; import "
                "another model"
            )
        first = ids.get(pad), ids[UNK], ids.get(start), ids.get(EOS)
        orders.append(reorder_vocabulary(pieces, *first))
    return orders[0], orders[1]


def _config(
    path: Path,
    settings: Mapping[str, Any],
    sides: tuple[VocabularyOrder, VocabularyOrder],
    shape: Mapping[str, Any],
) -> ModelConfig:
    is_joint = flag(path, settings, "share_embeddings")
    is_tied = flag(path, settings, "share_decoder_embeddings")
    return model_config(
        path,
        norm="pre",
        positions="table",
        max_positions=MAX_POSITIONS,
        tied_embeddings="none" if not is_tied else "all" if is_joint else "decoder",
        source_vocab_size=0 if is_joint else len(sides[0].pieces),
        output_bias=True,
        source_eos=False,
        **shape,
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
    vocabularies = []
    for side in ("src", "tgt"):
        entries = _entries(saved.get(side), _MOST_NESTED)
        if entries is None or not all(isinstance(entry, str) for entry in entries):
            raise ArtifactError(
                f"{path}: its vocabulary has an unknown format; save it with OpenNMT-py 1 to 3"
            )
        vocabularies.append(entries)
    start = saved.get("decoder_start_token", START)
    if not isinstance(start, str):
        raise ArtifactError(f"{path}: decoder_start_token is not a text; import another model")
    return (vocabularies[0], vocabularies[1]), start


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
    ".layer_norm_1.": ".input_layernorm.",
    ".layer_norm_2.": ".precontext_layernorm.",
    ".feed_forward.layer_norm.": ".post_attention_layernorm.",
    ".feed_forward.w_1.": ".mlp.gate_up_proj.",
    ".feed_forward.w_2.": ".mlp.down_proj.",
}


def _rename_template(template: str) -> str:
    for theirs, ours in _EOLE_WORDS.items():
        template = template.replace(theirs, ours)
    return template


EOLE_NAMES = replace(
    NAMES,
    layers={module: tuple(map(_rename_template, templates)) for module, templates in TABLE.items()},
    source="src_emb.embeddings.weight",
    target="tgt_emb.embeddings.weight",
    positions={"encoder": "src_emb.pe.pe", "decoder": "tgt_emb.pe.pe"},
)
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish"}
_BOTH = ("encoder", "decoder")
_EOLE_SETTINGS = (
    Setting("n_encoder_layers", "encoder_layers", 2),
    Setting("n_decoder_layers", "decoder_layers", 2),
    *(Setting("d_model", f"{side}_hidden_size", 512) for side in _BOTH),
    *(Setting("n_heads", f"{side}_heads", 8) for side in _BOTH),
    *(Setting("d_ff", f"{side}_transformer_ff", 2048) for side in _BOTH),
    *(Setting("norm_epsilon", f"{side}_norm_eps", 1e-5) for side in _BOTH),
    *(Setting("activation", f"{side}_mlp_activation_fn", "relu", _ACTIVATIONS) for side in _BOTH),
)
_HERE_UNUSED = no_effect("absent from such a model, or given by its tensors")
_EOLE_ROWS: KeyRows = {
    "architecture": only("transformer", "custom"),
    **rows_of("encoder_type decoder_type", only("transformer")),
    "embedding_type": only("standard"),
    "position_encoding_type": only("SinusoidalInterleaved", "SinusoidalConcat"),
    "mlp_activation_fn": only(*_ACTIVATIONS),
    "layer_norm": only("standard", "standardFP32"),
    "encoder_layer_style": only("standard"),
    **rows_of("final_encoder_layer_norm with_cross_attn", only(True)),
    "generator_function": only("softmax"),
    **rows_of("head_dim attn_scaling heads_kv layer_types interpolate_mode", only(None)),
    **rows_of(
        "normalize embedding_layer_norm shared_layer_norm ffn_layernorm query_norm key_norm"
        " value_norm qk_norm_post_rope q_gating parallel_residual coverage_attn add_estimator"
        " left_pad mtp_emb_norm shared_expert_gate aan_useffn",
        only(False, None),
    ),
    **rows_of(
        "position_shift token_type_vocab_size sliding_window num_experts"
        " relative_positions_buckets num_shared_experts num_mtp_heads",
        only(0, None),
    ),
    **rows_of("hidden_size layers heads transformer_ff norm_eps share_embeddings", USED),
    **rows_of("share_decoder_embeddings word_vec_size src_word_vec_size tgt_word_vec_size", USED),
    **rows_of(
        "add_qkvbias add_key_bias add_final_linear_bias add_ffnbias generator_bias"
        " position_encoding n_positions max_position_embeddings rope_config freeze_word_vecs_enc"
        " freeze_word_vecs_dec alignment_layer alignment_heads full_context_alignment lambda_align"
        " lambda_coverage mtp_lambda LM_type global_attention global_attention_function input_feed"
        " dim_per_head num_experts_per_tok moe_transformer_ff moe_softmax_after moe_renormalize"
        " first_k_dense_replace huggingface_model eole_version adapter_bias projector_activation_fn"
        " spatial_merge_size estimator_type",
        _HERE_UNUSED,
    ),
}
EOLE = Keys(
    "config.json", "Eole", {**_EOLE_ROWS, **rows_of("encoder decoder embeddings", _EOLE_ROWS)}
)


def find_eole(path: Path) -> Callable[[], ForeignModel] | None:
    return partial(convert_eole, path) if path.is_dir() and is_eole(path) else None


def is_eole(path: Path) -> bool:
    files = (path / "config.json", path / "vocab.json")
    if not all(file.is_file() for file in files):
        return False
    return isinstance(read_json_file(files[0]).get("model"), dict)


def convert_eole(path: Path) -> ForeignModel:
    file = path / "config.json"
    model = read_json_file(file)["model"]
    EOLE.read(file, model)
    stacks = {
        f"{side}_{name}": value
        for side in _BOTH
        for name, value in {**model, **(model.get(side) or {})}.items()
    }
    vocabulary_file = path / "vocab.json"
    sides = _sides(vocabulary_file)
    config = _config(file, model, sides, read_shape(file, stacks, _EOLE_SETTINGS))
    weight_files = sorted(path.glob("model*.safetensors"))
    if not weight_files:
        raise ArtifactError(f"{path}: has no model.00.safetensors; download the whole model")
    arrays = LazyArrays({})
    for weight_file in weight_files:
        arrays |= read_safetensors(weight_file)
    reader = Reader(arrays, str(path))
    # other models have factors of layers' outputs
    for name in arrays:
        if name.endswith(".layer_scalar") and (reader.take(name) != 1).any():
            raise ArtifactError(
                f"{path}: {name} is not 1, which is not supported; import another model"
            )
    files = (file, vocabulary_file, *weight_files)
    return read_model("Eole", EOLE_NAMES, reader, config, sides, directory=path, files=files)


def _sides(file: Path) -> tuple[VocabularyOrder, VocabularyOrder]:
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


READER = ModelReader(find_eole, open_source)
