"""Marian's own models, and Bergamot's (Firefox) among them: `.npz` and `.bin` files.

Matrices are of products x·W, so they are transposed here. Norms have an epsilon of 1e-9, positions
are tensor2tensor's, a translation starts from a row of zeros, and vocabularies have neither padding
nor a start token. Source: Marian 1.12, src/models/transformer.h.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from tformer_cli.converters.assembly import (
    UNUSED,
    Integers,
    Reader,
    Rows,
    Weight,
    arranged,
    assembled,
    output_bias,
)
from tformer_cli.converters.foreign_model import (
    ForeignModel,
    check_settings,
    model_config,
    number,
    read_bytes,
)
from tformer_cli.converters.formats.lazy_arrays import LazyArrays
from tformer_cli.converters.formats.lexical_shortlist import (
    LexicalShortlist,
    read_binary_shortlist,
    read_text_shortlist,
)
from tformer_cli.converters.formats.marian_binary import SETTINGS, read_marian_binary
from tformer_cli.converters.formats.npz import read_npz
from tformer_cli.converters.formats.yaml_text import parse_yaml, read_yaml
from tformer_cli.converters.positions import tensor2tensor_halves
from tformer_cli.data.sentencepiece.spm_file import read_spm
from tformer_cli.data.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.data.tokenizer import UNK_ID
from tformer_cli.decoding.config import DecodingConfig
from tformer_cli.decoding.shortlist import Shortlist
from tformer_cli.errors import ArtifactError
from tformer_cli.model.config import ModelConfig

TABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "self_attention.in_projection": tuple(f"{{side}}_l{{n1}}_self_{{W}}{x}" for x in "qkv"),
        "self_attention.out_projection": ("{side}_l{n1}_self_{W}o",),
        "self_attention_norm": ("{side}_l{n1}_self_Wo_ln_{scale}{pre}",),
        "recurrence.input": ("{side}_l{n1}_rnn_W",),
        "recurrence.forget": ("{side}_l{n1}_rnn_{W}f",),
        "recurrence_norm": ("{side}_l{n1}_rnn_ffn_ln_{scale}{pre}",),
        "cross_attention.in_projection": tuple(f"{{side}}_l{{n1}}_context_{{W}}{x}" for x in "qkv"),
        "cross_attention.out_projection": ("{side}_l{n1}_context_{W}o",),
        "cross_attention_norm": ("{side}_l{n1}_context_Wo_ln_{scale}{pre}",),
        "feed_forward.inner": ("{side}_l{n1}_ffn_{W}1",),
        "feed_forward.outer": ("{side}_l{n1}_ffn_{W}2",),
        "feed_forward_norm": ("{side}_l{n1}_ffn_ffn_ln_{scale}{pre}",),
        "final_norm": ("{side}_top_ln_{scale}",),
    }
)
"""Foreign names of the modules of a layer and of the final norms; "pre" is "_pre" in pre-norm."""
_YES_NO = ("false", "true")
KNOWN = {
    "type": ("transformer",),
    "transformer-preprocess": ("", "n"),
    "transformer-postprocess": ("dan", "da"),
    "transformer-postprocess-top": ("", "n"),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-ffn-depth": ("2",),
    "transformer-ffn-activation": ("relu", "swish"),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "dec-cell": ("gru", "ssru"),
    "transformer-tied-layers": ([],),
    "transformer-train-position-embeddings": ("false",),
    "transformer-no-projection": ("false",),
    "transformer-pool": ("false",),
    "transformer-aan-activation": ("swish", "relu"),
    "output-omit-bias": ("false",),
    "factors-combine": ("sum",),
    "lemma-dim-emb": ("0",),
    "tied-embeddings-src": ("false",),
    "input-types": ([], ["sequence"]),
    "layer-normalization": _YES_NO,  # of recurrent models
    "skip": _YES_NO,  # the same
}
"""Settings that could change what is computed, with the values that are known."""
EPSILON = 1e-9
MAX_POSITIONS = 1024
EOS_PIECE, UNK_PIECE = "</s>", "<unk>"
_STATIC = "_QuantMultA"
"""Ends the name of a scale of activations, which tformer computes from them."""


@dataclass(frozen=True, kw_only=True)
class MarianSource:
    """Files of a model."""

    model: Path
    """The `.npz` or `.bin`."""
    vocabularies: tuple[Path, ...]
    """Of source and target: `.spm`, or `.yml` with an `.spm` beside it."""
    settings: Mapping[str, Any]
    """The decoder's settings, if there is such a file."""


def find_source(path: Path) -> MarianSource | None:
    """Finds the files of a Marian model in a directory, or beside a model's file.

    Returns:
        The files; None if there is no such model.

    Raises:
        ArtifactError: if it is unclear which files belong to the model.
    """
    directory = path if path.is_dir() else path.parent
    if path.is_file():
        models = [path] if path.suffix in (".npz", ".bin") else []
    else:
        models = [*directory.glob("*.npz"), *directory.glob("model.*.bin")]
    if not models:
        return None
    decoder = [*directory.glob("*decoder.yml"), *directory.glob("config*.yml")]
    own = path.with_name(f"{path.name}.decoder.yml")  # as training writes one of each model
    decoder = [own] if own in decoder else decoder
    settings = read_yaml(decoder[0]) if len(decoder) == 1 else {}
    settings = settings if isinstance(settings, dict) else {}
    named = [directory / name for name in _names(settings, "models")]
    model = next((one for one in named if one in models), None)
    if model is None and len(models) > 1:
        raise ArtifactError(
            f"{directory}: holds {len(models)} models; name the file of one of them"
        )
    vocabularies = [directory / name for name in _names(settings, "vocabs")]
    if len(vocabularies) != 2:
        vocabularies = sorted(directory.glob("*.spm")) or sorted(directory.glob("*vocab*.yml"))
    if not 1 <= len(vocabularies) <= 2:
        raise ArtifactError(
            f"{directory}: has no decoder.yml that names two vocabularies; add them to it"
        )
    return MarianSource(
        model=model or models[0], vocabularies=tuple(vocabularies), settings=settings
    )


def convert(
    source: MarianSource, weights: Literal["float32", "int8"] | None = None
) -> ForeignModel:
    """Converts a model.

    Args:
        source: its files.
        weights: type of the matrices; None: as they are.

    Raises:
        ArtifactError: if it is damaged, incomplete, or has what tformer has not.
    """
    arrays, multipliers, text = _read(source.model)
    where = str(source.model)
    settings = parse_yaml(text, where)
    if not isinstance(settings, dict):
        raise ArtifactError(f"{where}: has no settings ({SETTINGS}); use a model of Marian 1.7 on")
    check_settings(source.model, settings, KNOWN)
    in_integers = bool(multipliers) and weights != "float32"
    reader = Reader(arrays, where)
    rows, tokenizer, files = _vocabularies(source, settings)
    config = _config(source.model, settings, rows)

    def read(name: str) -> Weight:
        array = reader.take(name)
        if name in multipliers:
            scale = np.full(array.shape[1], 1 / multipliers[name], np.float32)
            matrix = Integers(array.T, scale)
            return matrix if in_integers else matrix.real()
        return array.ravel() if array.shape[:1] == (1,) else array.T

    def embedding(name: str) -> Weight:
        array = reader.take(name)
        if name not in multipliers:
            return array
        matrix = Integers(array, np.full(len(array), 1 / multipliers[name], np.float32))
        return matrix if in_integers else matrix.real()

    given = _outer(reader, config, rows, embedding)
    table = table_of(config)
    found = assembled(config, len(rows[1].pieces), table, read, given, where)
    reader.ignore(name for name in arrays if name.endswith(_STATIC) or name.startswith("special:"))
    reader.check_all_taken()
    shortlist_file, shortlist = _shortlist(source, rows)
    return ForeignModel(
        kind="Bergamot (Firefox)" if multipliers else "Marian",
        config=config,
        weights=found,
        tokenizer=tokenizer,
        decoding=_decoding(source.settings),
        files=(source.model, *files, *shortlist_file),
        shortlist=shortlist,
        ids=rows[1].foreign,
        weight_type="int8" if in_integers else "float32",
    )


def table_of(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Returns `TABLE` with the names that norms have in a model."""
    pre = "_pre" if config.norm == "pre" else ""
    return {
        ours: tuple(name.replace("{pre}", pre) for name in theirs) for ours, theirs in TABLE.items()
    }


def _read(path: Path) -> tuple[LazyArrays, Mapping[str, float], bytes]:
    if path.suffix == ".bin":
        file = read_marian_binary(path)
        return file.arrays, file.multipliers, file.settings
    arrays = read_npz(path)
    text = arrays[SETTINGS].tobytes() if SETTINGS in arrays else b""
    return arrays, {}, text.split(b"\0")[0]


def _config(path: Path, settings: Mapping[str, Any], rows: tuple[Rows, Rows]) -> ModelConfig:
    is_pre = settings.get("transformer-preprocess") == "n"
    if is_pre != (settings.get("transformer-postprocess") == "da"):
        raise ArtifactError(
            f"{path}: has norms both before and after its sub-layers, which is not supported; "
            "import another model"
        )
    is_recurrent = settings.get("transformer-decoder-autoreg") == "rnn"
    if is_recurrent and settings.get("dec-cell") != "ssru":
        raise ArtifactError(
            f"{path}: dec-cell = {settings.get('dec-cell')} is not supported; import another model"
        )
    has_top = settings.get("transformer-postprocess-top") == "n"
    if is_pre and not has_top:
        raise ArtifactError(f"{path}: is pre-norm without final norms, which is not supported")
    is_joint = settings.get("tied-embeddings-all") == "true"
    tied = settings.get("tied-embeddings") == "true"
    return model_config(
        path,
        d_model=number(path, settings, "dim-emb"),
        n_heads=number(path, settings, "transformer-heads"),
        d_ff=number(path, settings, "transformer-dim-ffn"),
        n_encoder_layers=number(path, settings, "enc-depth"),
        n_decoder_layers=number(path, settings, "dec-depth"),
        norm="pre" if is_pre else "post",
        final_norm="always" if has_top and not is_pre else "pre-norm",
        norm_epsilon=EPSILON,
        activation=settings.get("transformer-ffn-activation", "swish"),
        positions="table",
        max_positions=MAX_POSITIONS,
        tied_embeddings="all" if is_joint else "decoder" if tied else "none",
        source_vocab_size=0 if is_joint else len(rows[0].pieces),
        output_bias=True,
        decoder_cell="ssru" if is_recurrent else "attention",
    )


def _outer(
    reader: Reader,
    config: ModelConfig,
    rows: tuple[Rows, Rows],
    embedding: Any,  # noqa: ANN401 - a function
) -> dict[str, Any]:
    """Reads the weights around the stacks."""
    given: dict[str, Any] = {}
    if config.tied_embeddings == "all":
        given["source_embedding.weight"] = rows[1].of(embedding("Wemb"))
    else:
        given["source_embedding.weight"] = rows[0].of(embedding("encoder_Wemb"))
        given["target_embedding.weight"] = rows[1].of(embedding("decoder_Wemb"))
    if config.tied_embeddings == "none":
        plain, turned = "decoder_ff_logit_out_W", "decoder_ff_logit_out_Wt"
        matrix = embedding(turned) if turned in reader else reader.take(plain).T
        given["output_projection.weight"] = rows[1].of(matrix)
    given["output_bias"] = output_bias(rows[1], reader.take("decoder_ff_logit_out_b"))
    table = tensor2tensor_halves(config.max_positions, config.d_model)
    for side in ("encoder", "decoder"):
        given[f"{side}_input.positions.table"] = table
    return given


def _vocabularies(
    source: MarianSource, settings: Mapping[str, Any]
) -> tuple[tuple[Rows, Rows], SentencePieceTokenizer, list[Path]]:
    """Reads the vocabularies, and orders their rows."""
    files = list(dict.fromkeys(source.vocabularies))
    spms = [_spm_of(file) for file in source.vocabularies]
    sizes = settings.get("dim-vocabs")
    rows = []
    for place, (file, spm) in enumerate(zip(source.vocabularies, spms, strict=True)):
        pieces = _pieces(file, spm)
        size = number(source.model, {"dim-vocabs": _at(sizes, place)}, "dim-vocabs")
        if size < len(pieces) or size > 1 << 20:
            raise ArtifactError(
                f"{file}: has {len(pieces):,} pieces, but the model {size:,}; use its own "
                "vocabulary"
            )
        pieces += [f"{UNUSED}{n}>" for n in range(len(pieces), size)]
        if EOS_PIECE not in pieces or UNK_PIECE not in pieces:
            raise ArtifactError(f"{file}: lacks {EOS_PIECE} or {UNK_PIECE}; use another model")
        eos, unk = pieces.index(EOS_PIECE), pieces.index(UNK_PIECE)
        rows.append(arranged(pieces, None, unk, None, eos))
    first, last = rows[0], rows[-1]
    is_same = first.pieces == last.pieces
    tokenizer = SentencePieceTokenizer.build(
        read_bytes(spms[0]),
        None if spms[0] == spms[-1] else read_bytes(spms[-1]),
        first.pieces,
        None if is_same else last.pieces,
        where=str(spms[0]),
    )
    return (first, last), tokenizer, list(dict.fromkeys([*files, *spms]))


def _names(settings: Mapping[str, Any], key: str) -> list[str]:
    """The files that a setting lists, by their names alone: they lie beside the model."""
    listed = settings.get(key)
    texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    return [Path(text.replace("\0", "")).name for text in texts]


def _at(sizes: object, place: int) -> object:
    return sizes[place] if isinstance(sizes, list) and place < len(sizes) else None


def _spm_of(vocabulary: Path) -> Path:
    """Finds the SentencePiece model of a vocabulary: itself, or a single one beside it."""
    if vocabulary.suffix == ".spm":
        return vocabulary
    side = "target" if "trg" in vocabulary.name or "target" in vocabulary.name else "source"
    beside = sorted(vocabulary.parent.glob("*.spm"))
    found = [spm for spm in beside if side in spm.name] or beside
    if len(found) != 1:
        raise ArtifactError(
            f"{vocabulary}: needs the SentencePiece model ({side}.spm) that its texts were cut "
            "with; put it beside it"
        )
    return found[0]


def _pieces(vocabulary: Path, spm: Path) -> list[str]:
    if vocabulary == spm:
        return list(read_spm(read_bytes(spm), str(spm)).pieces)
    found = read_yaml(vocabulary)
    if not isinstance(found, dict):
        raise ArtifactError(f"{vocabulary}: is no vocabulary; use this model's own")
    ids = {piece: number(vocabulary, {piece: n}, piece) for piece, n in found.items()}
    pieces = {n: piece for piece, n in ids.items()}
    if sorted(pieces) != list(range(len(ids))):
        raise ArtifactError(f"{vocabulary}: its ids are not 0, 1, 2, …; use this model's own")
    return [pieces[n] for n in range(len(pieces))]


def _shortlist(
    source: MarianSource, rows: tuple[Rows, Rows]
) -> tuple[tuple[Path, ...], Shortlist | None]:
    """Reads the shortlist that the decoder's settings name, in tformer's ids.

    Where both sides have one vocabulary, Marian lets every source token be copied.

    Returns:
        Its file, and the shortlist; nothing and None if there is none beside the model.
    """
    named = _names(source.settings, "shortlist")
    path = source.model.parent / (named[0] if named else "")
    if not named or not path.is_file():
        return (), None
    sources, targets = (np.array(side.foreign) for side in rows)
    n_targets = int(targets.max()) + 1
    if path.suffix == ".bin":
        read = read_binary_shortlist(path, n_targets)
    else:
        read = _text_shortlist(path, named[1:], rows)
    if len(read.offsets) - 1 < int(sources.max()) + 1:
        raise ArtifactError(f"{path}: is of another vocabulary; use this model's own")
    ours = np.empty(n_targets, np.int32)
    places = np.flatnonzero(targets >= 0)
    ours[targets[places]] = places
    is_joint = rows[0].pieces == rows[1].pieces
    lists = []
    for place, n in enumerate(sources.tolist()):
        own = ours[read.targets[read.offsets[n] : read.offsets[n + 1]]] if n >= 0 else ours[:0]
        lists.append(np.unique(np.append(own, place) if is_joint and n >= 0 else own))
    # the first foreign ids are among the first of ours: those of special tokens stand before
    first = int(ours[: read.n_frequent].max(initial=-1)) + 1
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return (path,), Shortlist(first, offsets, np.concatenate(lists).astype(np.int32))


def _text_shortlist(
    path: Path, settings: Sequence[str], rows: tuple[Rows, Rows]
) -> LexicalShortlist:
    """Reads a shortlist in text, in foreign ids.

    Args:
        path: its file.
        settings: the number of frequent targets, that of the best ones for a source token, and the
            probability that they must exceed, as far as they are given.
        rows: the vocabularies.

    Raises:
        ArtifactError: if a setting is not a number.
    """
    given = dict(zip(("n_frequent", "n_best", "threshold"), settings, strict=False))
    try:
        n_frequent, n_best = (int(given.get(name, 100)) for name in ("n_frequent", "n_best"))
        threshold = float(given.get("threshold", 0.0))
    except ValueError:
        raise ArtifactError(
            f"{path}: its settings ({', '.join(settings)}) are not numbers; correct the decoder's "
            "settings"
        ) from None
    ids = [dict(zip(side.pieces, side.foreign, strict=True)) for side in rows]
    unknown = [side.foreign[UNK_ID] for side in rows]
    return read_text_shortlist(
        path,
        lambda piece: ids[0].get(piece, unknown[0]),
        lambda piece: ids[1].get(piece, unknown[1]),
        max(rows[0].foreign) + 1,
        n_frequent=n_frequent,
        n_best=n_best,
        threshold=threshold,
    )


def _decoding(settings: Mapping[str, Any]) -> DecodingConfig:
    """Turns the decoder's settings into defaults of the search."""
    beams = str(settings.get("beam-size", 4))
    normalize = str(settings.get("normalize", 0.0))
    return DecodingConfig(
        beam_size=min(max(int(beams), 1), 1000) if beams.isdecimal() and len(beams) < 5 else 4,
        length_normalization="average" if normalize not in ("0", "0.0") else "gnmt",
        length_penalty=1.0 if normalize not in ("0", "0.0") else 0.0,
    )
