"""Marian's own models, and Bergamot's (Firefox) among them: `.npz` and `.bin` files.

Matrices are of products x·W, so they are transposed here. Sinusoids are tensor2tensor's, a
translation starts from a row of zeros, and vocabularies have neither padding nor a start token.
Next to vocabularies in YAML lie the SentencePiece models that texts are cut with, or a tokenizer of
tformer's, whose labels are then the pieces. `layout` names the source.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

import numpy as np

from tformer_cli.artifacts.config_file import AlignmentInfo
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import (
    ForeignModel,
    Integers,
    Reader,
    VocabularyOrder,
    Weight,
    build_weights,
    model_config,
    names_of_rows,
    output_bias,
    reorder_vocabulary,
    tensor2tensor_halves,
)
from tformer_cli.foreign.formats.mapped_file import Array, LazyArrays
from tformer_cli.foreign.keys import check_settings, number, read_bytes, read_shape
from tformer_cli.foreign.readers import ConvertAs, ModelReader
from tformer_cli.foreign.side_tokenizers import spm_tokenizer
from tformer_cli.model.config import ModelConfig
from tformer_cli.plugins.interchange.marian.binary import (
    SETTINGS,
    parse_yaml,
    read_marian_binary,
    read_npz,
    read_yaml,
)
from tformer_cli.plugins.interchange.marian.layout import (
    EOS_PIECE,
    EPSILONS,
    POSITIONS,
    SHAPE,
    TOKENIZER,
    UNK_PIECE,
    Kind,
    MarianSource,
    find_source,
    read_shortlist,
    table_of,
)
from tformer_cli.search.config import LARGEST_LENGTH_PENALTY, DecodingConfig
from tformer_cli.text.sentencepiece.spm_file import read_spm
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, Tokenizer, TokenizerSide, read_tokenizer

OFF, _YES_NO = ("false",), ("false", "true")
_COMMON: Mapping[str, Any] = MappingProxyType(
    {
        "transformer-preprocess": ("", "n"),
        "transformer-postprocess": ("dan", "da"),
        "transformer-postprocess-top": ("", "n"),
        "transformer-ffn-depth": ("2",),
        "transformer-decoder-dim-ffn": ("0",),
        "transformer-decoder-ffn-depth": ("0",),
        "transformer-attention-mask": ("default",),
        "transformer-disable-position-embeddings": OFF,
        "transformer-no-affine": OFF,
        "transformer-no-bias": OFF,
        "transformer-no-projection": OFF,
        "transformer-rnn-projection": OFF,
        "dec-cell": ("gru", "ssru"),
        "transformer-tied-layers": ([],),
        "transformer-pool": OFF,
        "transformer-aan-activation": ("swish", "relu"),
        "output-omit-bias": OFF,
        "factors-combine": ("sum",),
        "lemma-dim-emb": ("0",),
        "tied-embeddings-src": OFF,
        "input-types": ([], ["sequence"]),
        "layer-normalization": _YES_NO,  # of recurrent models
        "skip": _YES_NO,  # the same
    }
)
KNOWN: Mapping[Kind, Mapping[str, Any]] = MappingProxyType(
    {
        "transformer": {
            **_COMMON,
            "transformer-postprocess-emb": ("d", ""),
            "transformer-train-position-embeddings": OFF,
        },
        "transformer-new": {
            **_COMMON,
            "transformer-postprocess-emb": ("d", "", "n", "nd"),
            "transformer-train-position-embeddings": _YES_NO,
        },
    }
)
MAX_POSITIONS = 1024
GUIDED = "transformer-guided-alignment-layer"
_STATIC = "_QuantMultA"  # ends the name of a scale of activations, which tformer computes from them


def convert(
    source: MarianSource, weights: Literal["float32", "int8"] | None = None
) -> ForeignModel:
    arrays, multipliers, text = _read(source.model)
    where = str(source.model)
    settings = parse_yaml(text, where)
    if not isinstance(settings, dict):
        raise ArtifactError(f"{where}: has no settings ({SETTINGS}); use a model of Marian 1.7 on")
    check_settings(source.model, settings, {"type": (*KNOWN,)})
    kind = cast("Kind", settings.get("type", "transformer"))
    check_settings(source.model, settings, KNOWN[kind])
    in_integers = bool(multipliers) and weights != "float32"
    reader = Reader(arrays, where)
    rows, tokenizer, files = read_vocabularies(source, settings)
    positions = {}  # where they are sinusoids, they are computed
    if settings.get("transformer-train-position-embeddings") == "true":
        positions = {side: reader.take(name) for side, name in POSITIONS.items()}
    config = _config(source, settings, rows, positions)

    def scale_matrix(name: str, array: Array) -> Weight:
        if name not in multipliers:
            return array
        matrix = Integers(array, np.full(len(array), 1 / multipliers[name], np.float32))
        return matrix if in_integers else matrix.real()

    def read(name: str) -> Weight:
        array = reader.take(name)
        return array.ravel() if array.shape[:1] == (1,) else scale_matrix(name, array.T)

    def embedding(name: str) -> Weight:
        return scale_matrix(name, reader.take(name))

    outer_weights = _outer(reader, config, rows, embedding, positions)
    table = table_of(config, kind)
    tensors = build_weights(config, len(rows[1].pieces), table, read, outer_weights, where)
    reader.ignore(name for name in arrays if name.endswith(_STATIC) or name.startswith("special:"))
    reader.check_all_taken()
    shortlist_file, shortlist = read_shortlist(source, rows)
    decoding, notes = _decoding(source.settings)
    if source.decoder is not None:  # one that was cut short lacks the last of its settings
        lacking = [name for name in ("beam-size", "normalize") if name not in source.settings]
        notes += tuple(
            f"{source.decoder.name} names no {name}, so a default is taken" for name in lacking
        )
    pair = re.match(r"model\.([a-z]{2})([a-z]{2})\.", source.model.name)  # as Firefox names it
    return ForeignModel(
        kind="Bergamot (Firefox)" if multipliers else "Marian",
        config=config,
        weights=tensors,
        tokenizer=tokenizer,
        decoding=decoding,
        files=(source.model, *files, *shortlist_file),
        shortlist=shortlist,
        notes=notes,
        ids=rows[1].foreign,
        weight_type="int8" if in_integers else "float32",
        alignment=_alignment(source.model, settings, config.n_decoder_layers),
        languages=(pair[1], pair[2]) if pair else ("", ""),
    )


def _read(path: Path) -> tuple[LazyArrays, Mapping[str, float], bytes]:
    if path.suffix == ".bin":
        file = read_marian_binary(path)
        return file.arrays, file.multipliers, file.settings
    arrays = read_npz(path)
    text = arrays[SETTINGS].tobytes() if SETTINGS in arrays else b""
    return arrays, {}, text.split(b"\0")[0]


def _config(
    source: MarianSource,
    settings: Mapping[str, Any],
    rows: tuple[VocabularyOrder, VocabularyOrder],
    positions: Mapping[str, Array],
) -> ModelConfig:
    path, kind = source.model, cast("Kind", settings.get("type", "transformer"))
    is_pre = settings.get("transformer-preprocess") == "n"
    if is_pre != (settings.get("transformer-postprocess") == "da"):
        raise ArtifactError(
            f"{path}: has norms both before and after its sub-layers, which is not supported; "
            "import another model"
        )
    shape = read_shape(path, settings, SHAPE)
    # the cells of "transformer-new" have this kind regardless of the setting
    cell = settings.get("dec-cell")
    if shape["decoder_cell"] == "ssru" and kind == "transformer" and cell != "ssru":
        raise ArtifactError(f"{path}: dec-cell = {cell} is not supported; import another model")
    has_top = settings.get("transformer-postprocess-top") == "n"
    if is_pre and not has_top:
        raise ArtifactError(f"{path}: is pre-norm without final norms, which is not supported")
    is_joint = settings.get("tied-embeddings-all") == "true"
    tied = settings.get("tied-embeddings") == "true"
    return model_config(
        path,
        **shape,
        norm="pre" if is_pre else "post",
        final_norm="always" if has_top and not is_pre else "pre-norm",
        norm_epsilon=EPSILONS[kind],
        positions="learned" if positions else "table",
        max_positions=len(positions["encoder"]) if positions else MAX_POSITIONS,
        scale_embeddings=not positions,
        embedding_norm="n" in settings.get("transformer-postprocess-emb", ""),
        tied_embeddings="all" if is_joint else "decoder" if tied else "none",
        source_vocab_size=0 if is_joint else len(rows[0].pieces),
        output_bias=True,
    )


def _outer(
    reader: Reader,
    config: ModelConfig,
    rows: tuple[VocabularyOrder, VocabularyOrder],
    embedding: Callable[[str], Weight],
    positions: Mapping[str, Array],
) -> dict[str, Weight]:
    weights: dict[str, Weight] = {}
    if config.tied_embeddings == "all":
        weights["source_embedding.weight"] = rows[1].of(embedding("Wemb"))
    else:
        weights["source_embedding.weight"] = rows[0].of(embedding("encoder_Wemb"))
        weights["target_embedding.weight"] = rows[1].of(embedding("decoder_Wemb"))
    if config.tied_embeddings == "none":
        plain, turned = "decoder_ff_logit_out_W", "decoder_ff_logit_out_Wt"
        matrix = embedding(turned) if turned in reader else reader.take(plain).T
        weights["output_projection.weight"] = rows[1].of(matrix)
    weights["output_bias"] = output_bias(rows[1], reader.take("decoder_ff_logit_out_b"))
    if not positions:
        table = tensor2tensor_halves(config.max_positions, config.d_model)
        positions = dict.fromkeys(("encoder", "decoder"), table)
    start = weights.get("target_embedding.weight", weights["source_embedding.weight"])
    scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
    for side, table in positions.items():
        weights[f"{side}_input.positions.table"] = table
    # A translation starts from zeros, so the first position's vector takes back what a row of `<s>`
    # would add.
    rows_of_start = start.real() if isinstance(start, Integers) else start
    first = np.array(positions["decoder"])
    first[0] -= np.float32(scale) * rows_of_start[BOS_ID]
    weights["decoder_input.positions.table"] = first
    return weights


def _alignment(path: Path, settings: Mapping[str, Any], n_layers: int) -> AlignmentInfo | None:
    """Finds the head that guided alignment trains, and Marian's own alignments come from.

    It is the first of a layer, whose row predicts a token; layers are counted from 1.
    """
    if GUIDED not in settings:
        return None
    layer = n_layers if settings[GUIDED] == "last" else number(path, settings, GUIDED)
    if not 1 <= layer <= n_layers:
        raise ArtifactError(
            f"{path}: {GUIDED} = {layer}, but the decoder has {n_layers} layers; use this model's "
            "own settings"
        )
    return AlignmentInfo(heads=f"cross.{layer - 1}.0", convention="naive")


def _decoding(settings: Mapping[str, Any]) -> tuple[DecodingConfig, tuple[str, ...]]:
    beams = str(settings.get("beam-size", 4))
    try:  # the exponent of the length that Marian divides a log-probability by
        exponent = float(settings.get("normalize", 0.0))
    except (TypeError, ValueError):
        exponent = math.nan
    decoding = DecodingConfig(
        beam_size=min(max(int(beams), 1), 1000) if beams.isdecimal() and len(beams) < 5 else 4,
        length_normalization="average" if exponent else "gnmt",
        length_penalty=1.0 if exponent else 0.0,
    )
    if exponent in (0.0, 1.0):
        return decoding, ()
    value = json.dumps(settings["normalize"])[:60]
    advice = ""
    if 0.0 < exponent <= LARGEST_LENGTH_PENALTY:
        advice = f"; --length-normalization gnmt --length-penalty {exponent:g} comes near it"
    return decoding, (f"normalize = {value} is taken as 1, division by the length{advice}",)


# rows of source and target, the tokenizer, and the files
Read = tuple[tuple[VocabularyOrder, VocabularyOrder], Tokenizer, list[Path]]


def read_vocabularies(source: MarianSource, settings: Mapping[str, Any]) -> Read:
    files = list(dict.fromkeys(source.vocabularies))
    tokenizer_file = files[0].with_name(TOKENIZER)
    if files[0].suffix == ".yml" and tokenizer_file.is_file():
        return _by_labels(source, settings, tokenizer_file)
    spms = [_spm_of(file) for file in source.vocabularies]
    sizes = settings.get("dim-vocabs")
    rows = []
    for place, (file, spm) in enumerate(zip(source.vocabularies, spms, strict=True)):
        pieces = _pieces(file, spm)
        size = number(source.model, {"dim-vocabs": _at(sizes, place)}, "dim-vocabs")
        pieces = names_of_rows({piece: n for n, piece in enumerate(pieces)}, size, file)
        if EOS_PIECE not in pieces or UNK_PIECE not in pieces:
            raise ArtifactError(f"{file}: lacks {EOS_PIECE} or {UNK_PIECE}; use another model")
        eos, unk = pieces.index(EOS_PIECE), pieces.index(UNK_PIECE)
        rows.append(reorder_vocabulary(pieces, None, unk, None, eos))
    first, last = rows[0], rows[-1]
    tokenizer = spm_tokenizer((spms[0], spms[-1]), (first, last))
    return (first, last), tokenizer, list(dict.fromkeys([*files, *spms]))


def _by_labels(source: MarianSource, settings: Mapping[str, Any], file: Path) -> Read:
    """Reads vocabularies whose pieces are the labels of a tokenizer of tformer's."""
    tokenizer = read_tokenizer(file)
    sizes = settings.get("dim-vocabs")
    sides = (tokenizer.source, tokenizer.target)
    paths = (source.vocabularies[0], source.vocabularies[-1])
    rows = []
    for place, (path, side) in enumerate(zip(paths, sides, strict=True)):
        pieces = _list_pieces(path)
        size = number(source.model, {"dim-vocabs": _at(sizes, place)}, "dim-vocabs")
        if size != len(pieces):
            raise ArtifactError(
                f"{path}: has {len(pieces):,} pieces, but the model {size:,}; use its own "
                "vocabulary"
            )
        rows.append(_order_pieces(side, pieces, path))
    return (rows[0], rows[1]), tokenizer, [*dict.fromkeys([*paths, file])]


def _order_pieces(side: TokenizerSide, pieces: list[str], path: Path) -> VocabularyOrder:
    """Orders the rows of pieces as a tokenizer's; tokens without one are never written."""
    labels = side.pieces(range(side.vocab_size))
    ids = {piece: n for n, piece in enumerate(pieces)}
    foreign = tuple(ids.get(label, -1) for label in labels)
    if foreign[EOS_ID] < 0:
        raise ArtifactError(f"{path}: lacks {EOS_PIECE}; use this model's own")
    if len(ids) > sum(n >= 0 for n in foreign):
        raise ArtifactError(
            f"{path}: has pieces that {TOKENIZER} next to it lacks; use this model's own"
        )
    return VocabularyOrder(foreign, tuple(labels), tuple(t for t, n in enumerate(foreign) if n < 0))


def _at(sizes: object, place: int) -> object:
    return sizes[place] if isinstance(sizes, list) and place < len(sizes) else None


def _spm_of(vocabulary: Path) -> Path:
    """Finds the SentencePiece model of a vocabulary: itself, or a single one next to it."""
    if vocabulary.suffix == ".spm":
        return vocabulary
    side = "target" if "trg" in vocabulary.name or "target" in vocabulary.name else "source"
    beside = sorted(vocabulary.parent.glob("*.spm"))
    candidates = [spm for spm in beside if side in spm.name] or beside
    if len(candidates) != 1:
        raise ArtifactError(
            f"{vocabulary}: needs the SentencePiece model ({side}.spm) that its texts were cut "
            "with; put it next to it"
        )
    return candidates[0]


def _pieces(vocabulary: Path, spm: Path) -> list[str]:
    if vocabulary == spm:
        return list(read_spm(read_bytes(spm), str(spm)).pieces)
    return _list_pieces(vocabulary)


def _list_pieces(vocabulary: Path) -> list[str]:
    """Reads the pieces of a vocabulary in YAML in the order of their ids."""
    content = read_yaml(vocabulary)
    if not isinstance(content, dict):
        raise ArtifactError(f"{vocabulary}: is not a vocabulary; use this model's own")
    ids = {piece: number(vocabulary, {piece: n}, piece) for piece, n in content.items()}
    pieces = {n: piece for piece, n in ids.items()}
    if sorted(pieces) != list(range(len(ids))):
        raise ArtifactError(f"{vocabulary}: its ids are not 0, 1, 2, …; use this model's own")
    return [pieces[n] for n in range(len(pieces))]


def find_model(path: Path) -> ConvertAs | None:
    """Finds what converts a model of Marian or Bergamot; None: there is none."""
    source = find_source(path)
    return None if source is None else lambda weights: convert(source, weights)


READER = ModelReader(find_packed=find_model)
