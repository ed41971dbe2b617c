"""A model as the files that Marian loads: the inverse of `marian`.

What Marian computes it computes in one way alone: its own sinusoids, an epsilon of 1e-9, a start of
zeros, no padding among the tokens. So it can hold the models that were imported from it, and those
that were trained from them.
"""

from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tformer_cli.allow_list import ANY, unknown_setting
from tformer_cli.artifacts.model_directory import ModelDirectory
from tformer_cli.artifacts.weights_file import SCALE, StoredWeights
from tformer_cli.converters.assembly import NEVER, UNUSED, Integers, foreign_names, original_piece
from tformer_cli.converters.formats.lazy_arrays import Array
from tformer_cli.converters.formats.marian_binary import SETTINGS
from tformer_cli.converters.formats.yaml_text import write_yaml
from tformer_cli.converters.marian import EOS_PIECE, EPSILON, UNK_PIECE, table_of
from tformer_cli.converters.positions import tensor2tensor_halves
from tformer_cli.data.sentencepiece.languages import NO_LANGUAGES
from tformer_cli.data.sentencepiece.spm_file import read_spm
from tformer_cli.data.sentencepiece.tokenizer import SentencePieceSide, SentencePieceTokenizer
from tformer_cli.data.tokenizer import BOS_ID, PAD_ID
from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import directory_aside, write_text
from tformer_cli.model.config import WITH_DECODER, WITH_ENCODER, ModelConfig, parameter_shapes

KNOWN: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("d_model", "n_heads", "d_ff", "max_positions"),
            ANY,
        ),
        "n_encoder_layers": WITH_ENCODER,
        "n_decoder_layers": WITH_DECODER,
        # of language models alone
        "target_bos": (True,),
        "target_eos": (True,),
        # of classifiers alone
        "n_labels": (0,),
        "pooling": ("mean",),
        **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), ANY),
        "norm": ("post", "pre"),
        "norm_epsilon": (EPSILON,),
        "activation": ("relu", "swish"),
        "positions": ("table",),
        "similarity": ("scaled",),
        # of other positions alone
        **dict.fromkeys(("rotary_base", "relative_buckets", "relative_distance"), ANY),
        "tied_embeddings": ("all", "decoder", "none"),
        **dict.fromkeys(("bias", "output_bias", "scale_embeddings"), (True,)),
        "embedding_norm": (False,),
        "decoder_cell": ("attention", "ssru"),
        "final_norm": ("pre-norm", "always"),
        "source_vocab_size": ANY,
        "source_eos": (True,),
        # numbers that differ from layer to layer are refused with a message of their own
        **dict.fromkeys(("encoder_heads", "decoder_heads", "cross_heads", "bias_heads"), ANY),
    }
)
"""Settings of models that Marian can hold."""
MODEL, DECODER = "model.npz", "decoder.yml"
"""Files of an export, beside its vocabularies."""
_VERSION = "v1.12.0"
"""Version of Marian whose settings these are."""
_ROUNDING = 1e-6
"""Sines of two libraries differ by less."""


class _Vocabulary(NamedTuple):
    """A vocabulary as Marian numbers it."""

    order: NDArray[np.int64]
    """Our id of each of Marian's."""
    pieces: tuple[str, ...]
    """The piece of each."""
    is_spm: bool
    """True if the SentencePiece model numbers its pieces so."""


def export_marian(directory: ModelDirectory, weights: StoredWeights, path: Path) -> None:
    """Writes a directory for Marian, whole or not at all.

    Args:
        directory: the model.
        weights: its weights; those in integers are written as the float32 numbers that they stand
            for.
        path: folder to write; it must not exist, or be empty.

    Raises:
        UsageError: if the model has a setting, weights or a tokenizer that Marian cannot hold.
        ArtifactError: if the folder cannot be written.
    """
    reason = _unsupported(directory.config, weights.arrays)
    tokenizer = directory.tokenizer
    if reason is not None or not isinstance(tokenizer, SentencePieceTokenizer):
        raise _refusal(directory, reason or "tokenizer of tformer's own, only SentencePiece's")
    if tokenizer.new_tokens:
        raise UsageError(
            f"--format: Marian would cut the new tokens {', '.join(tokenizer.new_tokens)}; export "
            "with --format ctranslate2"
        )
    if tokenizer.languages != NO_LANGUAGES:
        raise _refusal(directory, "tokens that name languages")
    sides = [_vocabulary(directory, side) for side in (tokenizer.source, tokenizer.target)]
    names, files = _vocabulary_files(tokenizer, sides)
    arrays = dict(_arrays(directory.config, weights.arrays, sides))
    settings = write_yaml(_settings(directory.config, [len(side.order) for side in sides]))
    arrays[SETTINGS] = np.frombuffer(settings.encode() + b"\0", np.int8)
    with directory_aside(path) as aside:
        np.savez(aside / MODEL, allow_pickle=False, **arrays)
        for name, content in files.items():
            (aside / name).write_bytes(content)
        write_text(aside / DECODER, write_yaml(_decoder(directory, names)))


def _refusal(directory: ModelDirectory, what: str) -> UsageError:
    return UsageError(
        f"{directory.path}: Marian has no {what}; --format marian writes models that were imported "
        "from Marian or trained from such a model, the others export with --format huggingface or "
        "ctranslate2"
    )


def _unsupported(config: ModelConfig, arrays: Mapping[str, Array]) -> str | None:
    """Says what a model has that Marian has not; None if there is nothing."""
    unknown = unknown_setting(config, KNOWN)
    if unknown is not None:
        return unknown
    if {n for layers in config.layer_heads for n in layers} != {config.n_heads}:
        return "pruned heads: it needs the same number in every layer"
    table = tensor2tensor_halves(config.max_positions, config.d_model)
    for side in ("encoder", "decoder"):
        if np.abs(arrays[f"{side}_input.positions.table"] - table).max() > _ROUNDING:
            return "positions other than its own sinusoids"
    start = (
        "source_embedding.weight" if config.tied_embeddings == "all" else "target_embedding.weight"
    )
    if arrays[start][BOS_ID].any():
        return "embedding of <s>: a translation starts from zeros"
    if max(arrays["output_bias"][token] for token in (PAD_ID, BOS_ID)) > NEVER / 2:
        return "probability of <pad> and <s>"
    return None


def _vocabulary(directory: ModelDirectory, side: SentencePieceSide) -> _Vocabulary:
    """Numbers a side's pieces as its SentencePiece model does, or else behind `</s>` and `<unk>`.

    Rows that stand for no piece keep their places behind the others.
    """
    ours = dict(enumerate(side.vocabulary.pieces))
    del ours[PAD_ID], ours[BOS_ID]
    ids = {original_piece(piece): token for token, piece in ours.items()}
    pieces = read_spm(side.file.data, str(directory.path)).pieces
    rest = [piece for piece in ids if piece not in {*pieces}]
    is_spm = all(piece in ids for piece in pieces) and all(
        piece.startswith(UNUSED) for piece in rest
    )
    found = [*pieces, *rest] if is_spm else [EOS_PIECE, UNK_PIECE]
    if not is_spm:
        found += [piece for piece in ids if piece not in (EOS_PIECE, UNK_PIECE)]
    return _Vocabulary(np.array([ids[piece] for piece in found]), tuple(found), is_spm)


def _vocabulary_files(
    tokenizer: SentencePieceTokenizer, sides: list[_Vocabulary]
) -> tuple[list[str], dict[str, bytes]]:
    """Returns the names of the vocabularies, and the contents of all files that they need."""
    spms = [tokenizer.source.file.data, tokenizer.target.file.data]
    is_same = spms[0] == spms[1] and sides[0].pieces == sides[1].pieces
    stems = ["vocab", "vocab"] if is_same else ["source", "target"]
    files = {f"{stem}.spm": spm for stem, spm in zip(stems, spms, strict=True)}
    if all(side.is_spm for side in sides):
        return [f"{stem}.spm" for stem in stems], files
    for stem, side in zip(stems, sides, strict=True):
        pieces = [piece for piece in side.pieces if not piece.startswith(UNUSED)]
        files[f"{stem}.yml"] = write_yaml({piece: n for n, piece in enumerate(pieces)}).encode()
    return [f"{stem}.yml" for stem in stems], files


def _arrays(
    config: ModelConfig, arrays: Mapping[str, Array], sides: list[_Vocabulary]
) -> Iterator[tuple[str, Array]]:
    """Yields the weights under Marian's names, as matrices of products x·W."""

    def real(name: str) -> Array:
        scale = arrays.get(f"{name}{SCALE}")
        return arrays[name] if scale is None else Integers(arrays[name], scale).real()

    source, target = (side.order for side in sides)
    if config.tied_embeddings == "all":
        yield "Wemb", real("source_embedding.weight")[target]
    else:
        yield "encoder_Wemb", real("source_embedding.weight")[source]
        yield "decoder_Wemb", real("target_embedding.weight")[target]
    if config.tied_embeddings == "none":
        yield (
            "decoder_ff_logit_out_W",
            np.ascontiguousarray(real("output_projection.weight")[target].T),
        )
    yield "decoder_ff_logit_out_b", arrays["output_bias"][target][None]
    table = table_of(config)
    for name in parameter_shapes(config, len(target)):
        names = foreign_names(name, table)
        # queries, keys and values are rows of one matrix here, three matrices there
        for foreign, part in zip(
            names, np.split(real(name), len(names)) if names else (), strict=True
        ):
            yield foreign, part[None] if part.ndim == 1 else np.ascontiguousarray(part.T)


def _settings(config: ModelConfig, sizes: list[int]) -> dict[str, Any]:
    """The options that Marian reads from a model."""
    is_pre = config.norm == "pre"
    is_tied = config.tied_embeddings
    return {
        "version": _VERSION,
        "type": "transformer",
        "dim-vocabs": sizes,
        "dim-emb": config.d_model,
        "enc-depth": config.n_encoder_layers,
        "dec-depth": config.n_decoder_layers,
        "transformer-heads": config.n_heads,
        "transformer-dim-ffn": config.d_ff,
        "transformer-ffn-depth": 2,
        "transformer-ffn-activation": config.activation,
        "transformer-preprocess": "n" if is_pre else "",
        "transformer-postprocess": "da" if is_pre else "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": "n" if config.has_final_norm else "",
        "transformer-decoder-autoreg": "rnn" if config.decoder_cell == "ssru" else "self-attention",
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
        "transformer-train-position-embeddings": False,
        "transformer-pool": False,
        "transformer-tied-layers": [],
        "layer-normalization": False,
        "skip": False,
        "right-left": False,
        "lemma-dim-emb": 0,
        "ulr": False,
        "input-types": [],
    }


def _decoder(directory: ModelDirectory, names: list[str]) -> dict[str, Any]:
    """The settings of the search; Marian's length normalization divides by L^normalize."""
    decoding = directory.decoding
    is_average = decoding.length_normalization == "average"
    return {
        "relative-paths": True,
        "models": [MODEL],
        "vocabs": names,
        "beam-size": decoding.beam_size,
        "normalize": 1.0 if is_average else decoding.length_penalty,
        "word-penalty": 0.0,
        "max-length-factor": decoding.max_length_ratio,
    }
