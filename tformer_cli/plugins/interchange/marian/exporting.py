"""A model as the files that Marian loads: the inverse of `importing`.

What was imported from Marian, or trained from such a model, becomes its ``transformer`` again: that
has sinusoids of its own, a start of zeros and no padding among the tokens. Every other model
becomes a ``transformer-new`` with tables of positions, and what Marian computes otherwise is folded
into its weights: it does not multiply embeddings by √D, and its start of zeros leaves the embedding
of `<s>` to the first position's vector.
"""

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tformer_cli.artifacts import config_file, shortlist_file
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.artifacts.weights_file import SCALE, Arrays
from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import directory_aside, write_text
from tformer_cli.foreign.foreign_model import (
    BANNED_BIAS,
    HELD_BY_EXPORTS,
    UNUSED,
    Integers,
    foreign_names,
    original_piece,
    tensor2tensor_halves,
)
from tformer_cli.foreign.formats.mapped_file import Array
from tformer_cli.model import methods
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.weight_shapes import parameter_shapes
from tformer_cli.plugins.interchange.marian.binary import SETTINGS, write_yaml
from tformer_cli.plugins.interchange.marian.layout import (
    EPSILONS,
    POSITIONS,
    SHAPE,
    TOKENIZER,
    Kind,
    binary_shortlist,
    renumber_shortlist,
    table_of,
)
from tformer_cli.settings import ANY, unknown_setting
from tformer_cli.text.sentencepiece.spm_file import read_spm
from tformer_cli.text.sentencepiece.tokenizer import (
    NO_LANGUAGES,
    SentencePieceSide,
    SentencePieceTokenizer,
)
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, TokenizerSide

_COMMON: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **HELD_BY_EXPORTS,
        "norm": ("post", "pre"),
        **{s.ours: frozenset(s.values.values()) for s in SHAPE if s.values is not None},
        "tied_embeddings": ("all", "decoder", "none"),
        "final_norm": ("pre-norm", "always"),
        "source_vocab_size": ANY,
        "source_eos": (True,),
    }
)
# settings of models that each of Marian's kinds can hold
KNOWN: Mapping[Kind, Mapping[str, Container[Any]]] = MappingProxyType(
    {
        "transformer": {
            **_COMMON,
            "norm_epsilon": (EPSILONS["transformer"],),
            "positions": ("table",),
            **dict.fromkeys(("bias", "output_bias", "scale_embeddings"), (True,)),
            "embedding_norm": (False,),
        },
        "transformer-new": {
            **_COMMON,
            "norm_epsilon": (EPSILONS["transformer-new"],),
            "positions": ("sinusoidal", "learned", "none", "table"),
            **dict.fromkeys(("bias", "output_bias", "scale_embeddings"), (False, True)),
            "embedding_norm": (False, True),
        },
    }
)
# files of an export, next to its vocabularies
MODEL, DECODER, SHORTLIST = "model.npz", "decoder.yml", "lex.s2t.bin"
_VERSION = "v1.12.0"  # version of Marian whose settings these are
_ROUNDING = 1e-6  # sines of two libraries differ by less


class _Vocabulary(NamedTuple):
    order: NDArray[np.int64]
    pieces: tuple[str, ...]
    is_spm: bool  # true if the SentencePiece model numbers its pieces so


def export_marian(directory: ModelDirectory, weights: Arrays, path: Path) -> None:
    tokenizer = directory.tokenizer
    if isinstance(tokenizer, SentencePieceTokenizer):
        if tokenizer.new_tokens:
            raise UsageError(
                f"--format: Marian would cut the new tokens {', '.join(tokenizer.new_tokens)}; "
                "export with --format ctranslate2"
            )
        if tokenizer.languages != NO_LANGUAGES:
            raise _refusal(directory, "tokens that name languages")
    reals = _reals(weights)
    kind = _kind(directory, reals)
    unwritten = _never_written(reals)
    sides = [
        _vocabulary(directory, side, unwritten) for side in (tokenizer.source, tokenizer.target)
    ]
    names, files = _vocabulary_files(directory, sides)
    folded = reals if kind == "transformer" else _fold_weights(directory, reals)
    arrays = dict(_arrays(directory.config, folded, sides, kind))
    sizes = [len(side.order) for side in sides]
    settings = write_yaml(_settings(directory.config, sizes, kind))
    arrays[SETTINGS] = np.frombuffer(settings.encode() + b"\0", np.int8)
    decoder = _decoder(directory, names, kind)
    listed = _shortlist(directory, sides)
    if listed is not None:
        files[SHORTLIST] = listed
        decoder["shortlist"] = [SHORTLIST, 0]  # its checksum is not to be checked
    with directory_aside(path) as aside:
        np.savez(aside / MODEL, allow_pickle=False, **arrays)
        for name, content in files.items():
            (aside / name).write_bytes(content)
        write_text(aside / DECODER, write_yaml(decoder))


def _refusal(directory: ModelDirectory, what: str) -> UsageError:
    return UsageError(
        f"{directory.path}: Marian has no {what}; export with --format int8, or try huggingface or "
        "ctranslate2"
    )


def _reals(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Returns a model's weights; for integers the numbers that they stand for."""
    return {
        name: Integers(array, arrays[f"{name}{SCALE}"]).real()
        if f"{name}{SCALE}" in arrays
        else array
        for name, array in arrays.items()
        if not name.endswith(SCALE)
    }


def _kind(directory: ModelDirectory, weights: Mapping[str, Array]) -> Kind:
    config = directory.config
    if {n for layers in config.layer_heads for n in layers} != {config.n_heads}:
        raise _refusal(directory, "pruned heads: it needs the same number in every layer")
    reason = _unlike_its_own(directory, weights)
    if reason is None:
        return "transformer"
    unknown = unknown_setting(config, KNOWN["transformer-new"])
    if unknown is None:
        return "transformer-new"
    is_nearly = config.norm_epsilon == EPSILONS["transformer"]
    raise _refusal(directory, reason if is_nearly else unknown)


def _unlike_its_own(directory: ModelDirectory, weights: Mapping[str, Array]) -> str | None:
    """Names a property of a model that Marian's common kind lacks; None: there is none."""
    config = directory.config
    unknown = unknown_setting(config, KNOWN["transformer"])
    if unknown is not None:
        return unknown
    table = tensor2tensor_halves(config.max_positions, config.d_model)
    for side in POSITIONS:
        if np.abs(weights[f"{side}_input.positions.table"] - table).max() > _ROUNDING:
            return "positions other than its own sinusoids"
    if weights[_target_embedding(config)][BOS_ID].any():
        return "embedding of <s>: a translation starts from zeros"
    if _never_written(weights) != {PAD_ID, BOS_ID}:
        return "probability of <pad> and <s>"
    if not isinstance(directory.tokenizer, SentencePieceTokenizer):
        return "tokenizer of another kind than SentencePiece's"
    return None


def _target_embedding(config: ModelConfig) -> str:
    side = "source" if config.tied_embeddings == "all" else "target"
    return f"{side}_embedding.weight"


def _never_written(weights: Mapping[str, Array]) -> set[int]:
    """Returns which of `<pad>` and `<s>` have no probability, so that Marian can do without them.

    The others have to stay: a model's probabilities sum to 1 with theirs.
    """
    bias = weights.get("output_bias", np.zeros(BOS_ID + 1))
    return {token for token in (PAD_ID, BOS_ID) if bias[token] <= BANNED_BIAS / 2}


def _vocabulary(directory: ModelDirectory, side: TokenizerSide, unwritten: set[int]) -> _Vocabulary:
    """Numbers a side's pieces as its SentencePiece model does, or else after `</s>` and `<unk>`.

    Rows without a piece keep their places after the others.
    """
    if isinstance(side, SentencePieceSide):
        names = [original_piece(piece) for piece in side.vocabulary.pieces]
    else:
        names = side.pieces(range(side.vocab_size))
    ours = [token for token in range(len(names)) if token not in unwritten]
    ids = {names[token]: token for token in ours}
    if len(ids) < len(ours):
        raise _refusal(directory, "two pieces of one name")
    if isinstance(side, SentencePieceSide):
        pieces = read_spm(side.file.data, str(directory.path)).pieces
        known = {*pieces}
        rest = [piece for piece in ids if piece not in known]
        if all(piece in ids for piece in pieces) and all(p.startswith(UNUSED) for p in rest):
            entries = (*pieces, *rest)
            return _Vocabulary(np.array([ids[piece] for piece in entries]), entries, is_spm=True)
    order = [EOS_ID, UNK_ID, *(token for token in ours if token not in (EOS_ID, UNK_ID))]
    return _Vocabulary(np.array(order), tuple(names[token] for token in order), is_spm=False)


def _vocabulary_files(
    directory: ModelDirectory, sides: list[_Vocabulary]
) -> tuple[list[str], dict[str, bytes]]:
    tokenizer = directory.tokenizer
    stems, files = ["source", "target"], {TOKENIZER: tokenizer.source_json().encode()}
    is_same = sides[0].pieces == sides[1].pieces
    if isinstance(tokenizer, SentencePieceTokenizer):
        spms = [tokenizer.source.file.data, tokenizer.target.file.data]
        is_same = is_same and spms[0] == spms[1]
        stems = ["vocab", "vocab"] if is_same else stems
        files = {f"{stem}.spm": spm for stem, spm in zip(stems, spms, strict=True)}
    stems = ["vocab", "vocab"] if is_same else stems
    if all(side.is_spm for side in sides):
        return [f"{stem}.spm" for stem in stems], files
    for stem, side in zip(stems, sides, strict=True):
        pieces = [piece for piece in side.pieces if not piece.startswith(UNUSED)]
        files[f"{stem}.yml"] = write_yaml({piece: n for n, piece in enumerate(pieces)}).encode()
    return [f"{stem}.yml" for stem in stems], files


def _shortlist(directory: ModelDirectory, sides: list[_Vocabulary]) -> bytes | None:
    file = directory.path / config_file.SHORTLIST
    if not file.is_file():
        return None
    sizes = [s.vocab_size for s in (directory.tokenizer.source, directory.tokenizer.target)]
    shortlist = shortlist_file.read_shortlist(file, *sizes)
    return binary_shortlist(renumber_shortlist(shortlist, *(side.order for side in sides)))


def _fold_weights(directory: ModelDirectory, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the weights of a ``transformer-new`` that computes the same as a model.

    It adds positions to embeddings as they are, so √D becomes part of them. Where the output
    projection shares them, the last norm takes √D back. What the model has no bias for is zeros.
    """
    config = directory.config
    shapes = _shapes(config, directory.tokenizer.vocab_size)
    arrays = {
        name: weights[name] if name in weights else np.zeros(shape, np.float32)
        for name, shape in shapes.items()
    }
    factor = np.float32(math.sqrt(config.d_model) if config.scale_embeddings else 1.0)
    for name in {"source_embedding.weight", _target_embedding(config)}:
        arrays[name] = arrays[name] * factor
    if config.tied_embeddings != "none":
        last = f"decoder.layers.{config.n_decoder_layers - 1}.feed_forward_norm"
        last = "decoder.final_norm" if config.has_final_norm else last
        for part in ("weight", "bias"):
            arrays[f"{last}.{part}"] = arrays[f"{last}.{part}"] / factor
    if methods.POSITIONS[config.positions].is_formula:
        from tformer_cli.model.positions import sinusoids

        table = sinusoids(config.max_positions, config.d_model).numpy()
        arrays |= {f"{side}_input.positions.table": table for side in POSITIONS}
    start = np.array(arrays["decoder_input.positions.table"])
    start[0] += arrays[_target_embedding(config)][BOS_ID]
    arrays["decoder_input.positions.table"] = start
    return arrays


def _shapes(config: ModelConfig, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Names what Marian has of a model: every bias, and tables of positions."""
    full = replace(config, bias=True, output_bias=True, positions="learned")
    return parameter_shapes(full, vocab_size)


def _arrays(
    config: ModelConfig, weights: Mapping[str, Array], sides: list[_Vocabulary], kind: Kind
) -> Iterator[tuple[str, Array]]:
    """Yields the weights under Marian's names, as matrices of products x·W."""
    source, target = (side.order for side in sides)
    if config.tied_embeddings == "all":
        yield "Wemb", weights["source_embedding.weight"][target]
    else:
        yield "encoder_Wemb", weights["source_embedding.weight"][source]
        yield "decoder_Wemb", weights["target_embedding.weight"][target]
    if config.tied_embeddings == "none":
        matrix = weights["output_projection.weight"][target]
        yield "decoder_ff_logit_out_W", np.ascontiguousarray(matrix.T)
    yield "decoder_ff_logit_out_b", weights["output_bias"][target][None]
    is_new = kind == "transformer-new"
    if is_new:
        for side, name in POSITIONS.items():
            yield name, weights[f"{side}_input.positions.table"]
    table = table_of(config, kind)
    for name in _shapes(config, len(target)):
        names = foreign_names(name, table)
        # queries, keys and values are rows of one matrix here, three matrices there
        for foreign, part in zip(
            names, np.split(weights[name], len(names)) if names else (), strict=True
        ):
            vector = part if is_new else part[None]
            yield foreign, vector if part.ndim == 1 else np.ascontiguousarray(part.T)


def _settings(config: ModelConfig, sizes: list[int], kind: Kind) -> dict[str, Any]:
    is_pre, is_tied, is_new = config.is_pre_norm, config.tied_embeddings, kind != "transformer"
    # Marian reads as many positions as it allows tokens, and crops longer sources
    of_tables = {"max-length": config.max_positions, "max-length-crop": True}
    return {
        "version": _VERSION,
        "type": kind,
        "dim-vocabs": sizes,
        **{setting.theirs: setting.write(getattr(config, setting.ours)) for setting in SHAPE},
        "transformer-ffn-depth": 2,
        "transformer-preprocess": "n" if is_pre else "",
        "transformer-postprocess": "da" if is_pre else "dan",
        "transformer-postprocess-emb": "nd" if config.embedding_norm else "d",
        "transformer-postprocess-top": "n" if config.has_final_norm else "",
        "dec-cell": "ssru",
        "dec-cell-base-depth": 2,
        "dec-cell-high-depth": 1,
        "enc-cell": "gru",
        "enc-cell-depth": 1,
        "enc-type": "bidirectional",
        "dim-rnn": 1024,
        "tied-embeddings": is_tied == "decoder",
        "tied-embeddings-all": is_tied == "all",
        "tied-embeddings-src": False,
        "transformer-no-projection": False,
        "transformer-train-position-embeddings": is_new,
        "transformer-pool": False,
        "transformer-tied-layers": [],
        "layer-normalization": False,
        "skip": False,
        "right-left": False,
        "lemma-dim-emb": 0,
        "ulr": False,
        "input-types": [],
        **(of_tables if is_new else {}),
    }


def _decoder(directory: ModelDirectory, names: list[str], kind: Kind) -> dict[str, Any]:
    """The settings of the search; Marian's length normalization divides by L^normalize."""
    decoding = directory.decoding
    is_average = decoding.length_normalization == "average"
    # On a CPU, Marian 1.12 ignores the padding of the new kind's batches of some widths
    alone = {"mini-batch": 1, "maxi-batch": 1} if kind == "transformer-new" else {}
    return {
        "relative-paths": True,
        "models": [MODEL],
        "vocabs": names,
        "beam-size": decoding.beam_size,
        "normalize": 1.0 if is_average else decoding.length_penalty,
        "word-penalty": 0.0,
        "max-length-factor": decoding.max_length_ratio,
        **alone,
    }
