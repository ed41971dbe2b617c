"""Translation models of fairseq: a checkpoint (`.pt`) with its dictionaries (`dict.*.txt`).

A checkpoint holds weights and the settings of its training run. Positions are tensor2tensor's or
learned ones, from row 2, and a translation starts from `</s>`. Source: fairseq 0.12,
fairseq/models/transformer, fairseq/data/dictionary.py.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import (
    MOST_ROWS,
    ForeignModel,
    Reader,
    VocabularyOrder,
    model_config,
    reorder_vocabulary,
    tensor2tensor_halves,
)
from tformer_cli.foreign.formats.mapped_file import Array, LazyArrays
from tformer_cli.foreign.formats.weight_files import named_tensors, plain
from tformer_cli.foreign.hugging_face.families import MARIAN
from tformer_cli.foreign.hugging_face.tokenizers import FAIRSEQ_FIRST
from tformer_cli.foreign.keys import (
    Setting,
    check_settings,
    number,
    quote,
    read_shape,
    read_text,
)
from tformer_cli.foreign.readers import ModelReader
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.methods import IS_BEFORE, POSITIONS
from tformer_cli.plugins.legacy.torch_family import DECODING, Names, flag, read_model, values_of

TABLE = MARIAN.modules  # the library took the names of its Marian from fairseq
NAMES = Names(
    layers=TABLE,
    source="encoder.embed_tokens.weight",
    target="decoder.embed_tokens.weight",
    output="decoder.output_projection.weight",
)
_SIDES = ("encoder", "decoder")
_ACTIVATIONS = {name: name for name in ("relu", "gelu", "swish")}
_SETTINGS = (
    *(Setting("d_model", f"{side}_embed_dim") for side in _SIDES),
    *(Setting("d_ff", f"{side}_ffn_embed_dim") for side in _SIDES),
    *(Setting("n_heads", f"{side}_attention_heads") for side in _SIDES),
    Setting("n_encoder_layers", "encoder_layers"),
    Setting("n_decoder_layers", "decoder_layers"),
    *(
        Setting("norm", f"{side}_normalize_before", False, {False: "post", True: "pre"})
        for side in _SIDES
    ),
    *(
        Setting("positions", f"{side}_learned_pos", False, {False: "table", True: "learned"})
        for side in _SIDES
    ),
    Setting("activation", "activation_fn", "relu", _ACTIVATIONS),
    Setting("embedding_norm", "layernorm_embedding", False, {False: False, True: True}),
    Setting("scale_embeddings", "no_scale_embedding", False, {False: True, True: False}),
)
KNOWN = {
    "task": ("translation", None),
    **{
        f"{side}_{name}": values
        for side in _SIDES
        for name, values in {
            "layers_to_keep": (None,),
            "recurrent_stacking": (None, 1),
            "add_adapters": (False, None),
            "factorized_embed_dim": (None,),
            "xformers_att_config": (None,),
        }.items()
    },
    **values_of(
        "no_token_positional_embeddings no_decoder_final_norm no_cross_attention"
        " cross_self_attention adaptive_input merge_src_tgt_embed use_factorized_embedding"
        " char_inputs scale_attn scale_heads scale_fc scale_resids prepend_bos",
        (False, None),
    ),
    **values_of("base_layers quant_noise_scalar", (None, 0, False)),
    **values_of("adaptive_softmax_cutoff langs lang_pairs", (None,)),
    "truncate_source": (False, True, None),
}
# tasks of models of many languages
_MULTILINGUAL = (
    "multilingual_translation",
    "multilingual_translation_latent_depth",
    "translation_multi_simple_epoch",
    "translation_from_pretrained_bart",
)
# names of the Transformers that have only these settings
_ARCHITECTURE = re.compile(
    r"transformer(_tiny|_iwslt_de_en|(_vaswani)?_wmt_en_(de|fr)(_big(_t2t)?)?|_[124]x(_v0)?)?"
)
_OFFSET = 2  # position of the first token: after that of padding, 1
# longest sentences: for models without the setting, and for imported ones
_DEFAULT_POSITIONS, _MOST_POSITIONS = 1024, 1 << 14
_PAD, _EOS, _UNK = 1, 2, 3
_VERSION = 3  # of stacks that end with a norm if they are pre-norm
_FUSED = re.compile(r"(.+\.)in_proj_(weight|bias)")
_NUMBERED = re.compile(r"((?:en|de)coder)(\..+\.)layer_norms\.(\d)\.(weight|bias)")
_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
# tensors that decide nothing, or that are checked apart
_IGNORED = re.compile(r"(en|de)coder\.(version|embed_positions\.(_float_tensor|weights))")


def open_source(path: Path, checkpoint: Any) -> Callable[[], ForeignModel] | None:  # noqa: ANN401
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
        return None
    settings = plain(checkpoint.get("args"))
    if not isinstance(settings, dict):
        parts = plain(checkpoint.get("cfg"))
        if not isinstance(parts, dict):
            return None
        tables = [plain(parts.get(name)) for name in ("task", "model")]
        settings = {k: v for part in tables if isinstance(part, dict) for k, v in part.items()}
        settings["task"] = (tables[0] or {}).get("_name")
        settings.setdefault("arch", settings.get("_name"))
    return partial(_convert, path, _flat(settings), _rename(named_tensors(checkpoint["model"])))


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of newer checkpoints lie in tables: ``encoder.layers`` is ``encoder_layers``."""
    flat = dict(settings)
    for table in ("encoder", "decoder", "quant_noise"):
        inner = plain(settings.get(table))
        if isinstance(inner, dict):
            del flat[table]
            flat |= {f"{table}_{name}": value for name, value in inner.items()}
    return flat


def _rename(arrays: LazyArrays) -> LazyArrays:
    """Gives the weights of older checkpoints their present names.

    Once queries, keys and values had one matrix, norms had numbers, and the output's embedding
    another name.
    """
    readers: dict[str, Callable[[], Array]] = {}
    for name in arrays:
        if match := _FUSED.fullmatch(name):
            for place, letter in enumerate("qkv"):
                read = partial(_third, arrays, name, place)
                readers[f"{match[1]}{letter}_proj.{match[2]}"] = read
        else:
            readers[_present(name)] = partial(arrays.__getitem__, name)
    return LazyArrays(readers)


def _present(name: str) -> str:
    if name == "decoder.embed_out":
        return "decoder.output_projection.weight"
    match = _NUMBERED.fullmatch(name)
    if match is None or int(match[3]) >= len(_NORMS[match[1]]):
        return name
    return f"{match[1]}{match[2]}{_NORMS[match[1]][int(match[3])]}.{match[4]}"


def _third(arrays: LazyArrays, name: str, place: int) -> Array:
    array = arrays[name]
    n_rows = len(array) // 3
    return array[place * n_rows : (place + 1) * n_rows]


def _convert(path: Path, settings: Mapping[str, Any], arrays: LazyArrays) -> ForeignModel:
    if settings.get("task") in _MULTILINGUAL:
        raise ArtifactError(
            f"{path}: is a multilingual model (task = {quote(settings['task'])}), whose "
            "language tokens depend on options of fairseq's commands; import it "
            "from Hugging Face (M2M-100, NLLB, mBART), or a model of two languages"
        )
    check_settings(path, settings, KNOWN)
    architecture = settings.get("arch")
    if not isinstance(architecture, str) or not _ARCHITECTURE.fullmatch(architecture):
        raise ArtifactError(
            f"{path}: arch = {quote(architecture)} is not supported, only transformer models of "
            "translation are; import another model"
        )
    reader = Reader(arrays, str(path))
    languages, files = _languages(settings), _dictionaries(path, settings)
    pieces = [_read_dictionary(file) for file in files]
    source, target = (reorder_vocabulary(some, _PAD, _UNK, _EOS, _EOS) for some in pieces)
    sides = source, target
    config, tables = _config(path, settings, reader, sides)
    reader.ignore(name for name in arrays if _IGNORED.fullmatch(name))
    return read_model(
        "fairseq",
        NAMES,
        reader,
        config,
        sides,
        directory=path.parent,
        files=(path, *dict.fromkeys(files)),
        positions=tables,
        languages=languages,
        decoding=replace(DECODING, max_length=200),
    )


def _languages(settings: Mapping[str, Any]) -> tuple[str, str]:
    codes = [settings.get(f"{side}_lang") for side in ("source", "target")]
    source, target = (code if isinstance(code, str) else "" for code in codes)
    return source, target


def _dictionaries(path: Path, settings: Mapping[str, Any]) -> tuple[Path, Path]:
    names = [f"dict.{code}.txt" if code else "dict.txt" for code in _languages(settings)]
    files = [path.parent / name for name in names]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is None:
        return files[0], files[1]
    joint = path.parent / "dict.txt"
    if joint.is_file():
        return joint, joint
    raise ArtifactError(
        f"{missing}: no such file; put the dictionaries that the model was trained with next to it"
    )


def _read_dictionary(file: Path) -> list[str]:
    """Reads the entries of a dictionary: special tokens, then one a line, before its count."""
    lines = read_text(file).removesuffix("\n").split("\n", MOST_ROWS)
    pieces = list(FAIRSEQ_FIRST)
    for place, line in enumerate(lines):
        entry, _, count = line.rstrip().rpartition(" ")
        if not entry or not count.isdecimal():
            raise ArtifactError(
                f"{file}: line {place + 1} is not an entry and its count; use the model's own "
                "dictionary"
            )
        pieces.append(entry)
    if len({*pieces}) < len(pieces):
        raise ArtifactError(f"{file}: has an entry twice; use the model's own dictionary")
    return pieces


def _config(
    path: Path,
    settings: Mapping[str, Any],
    reader: Reader,
    sides: tuple[VocabularyOrder, VocabularyOrder],
) -> tuple[ModelConfig, dict[str, Array]]:
    shape = read_shape(path, settings, _SETTINGS)
    for name in ("decoder_input_dim", "decoder_output_dim"):
        check_settings(path, settings, {name: (shape["d_model"], None)})
    _check_versions(reader, is_pre=IS_BEFORE[shape["norm"]])
    tables = _tables(path, settings, reader, shape)
    is_joint = flag(path, settings, "share_all_embeddings")
    is_tied = is_joint or flag(path, settings, "share_decoder_input_output_embed")
    config = model_config(
        path,
        **shape,
        max_positions=len(tables["encoder"]),
        tied_embeddings="all" if is_joint else "decoder" if is_tied else "none",
        source_vocab_size=0 if is_joint else len(sides[0].pieces),
        output_bias=True,
    )
    return config, tables


def _check_versions(reader: Reader, *, is_pre: bool) -> None:
    """Refuses pre-norm models from before their stacks ended with a norm."""
    for side in ("encoder", "decoder"):
        name = f"{side}.version"
        version = reader.arrays[name].ravel()[:1].tolist() if name in reader else [1]
        if is_pre and version != [_VERSION]:
            raise ArtifactError(
                f"{reader.where}: {name} is not {_VERSION}, and a pre-norm model of that age has "
                "no final norms, which is not supported; import another model"
            )


def _tables(
    path: Path, settings: Mapping[str, Any], reader: Reader, shape: Mapping[str, Any]
) -> dict[str, Array]:
    """Returns the positions of both sides, as many as both have."""
    sides = (("encoder", "source"), ("decoder", "target"))
    if not POSITIONS[shape["positions"]].is_fixed:
        read = {s: reader.take(f"{s}.embed_positions.weight")[_OFFSET:] for s, _ in sides}
        n_positions = min(map(len, read.values()))
    else:
        n_positions = min(_max_positions(path, settings, name) for _, name in sides)
        table = tensor2tensor_halves(n_positions, shape["d_model"], _OFFSET)
        read = dict.fromkeys((side for side, _ in sides), table)
    return {side: rows[:n_positions] for side, rows in read.items()}


def _max_positions(path: Path, settings: Mapping[str, Any], side: str) -> int:
    name = f"max_{side}_positions"
    if settings.get(name) is None:
        return _DEFAULT_POSITIONS
    return min(number(path, settings, name), _MOST_POSITIONS)


READER = ModelReader(open_checkpoint=open_source)
