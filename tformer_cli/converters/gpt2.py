"""GPT-2 models: directories of Hugging Face, and checkpoints of nanoGPT.

Pre-norm decoders with learned positions and one matrix for embeddings and logits. Texts begin with
their first token; `<|endoftext|>` stands between them, and is the prompt of an empty one. Hugging
Face's matrices are (in, out). Sources: transformers 5.23, models/gpt2/modeling_gpt2.py; nanoGPT,
model.py and data/shakespeare_char/prepare.py.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from tformer_cli.converters.assembly import (
    MOST_ROWS,
    UNUSED,
    Reader,
    Rows,
    Weight,
    arranged,
    assembled,
    names_of_rows,
    output_bias,
)
from tformer_cli.converters.foreign_model import (
    ForeignModel,
    model_config,
    number,
    read_bytes,
    read_json_file,
    shown,
)
from tformer_cli.converters.formats.lazy_arrays import Array, LazyArrays
from tformer_cli.converters.formats.pickles import PickleError, PickleReader
from tformer_cli.converters.formats.torch_checkpoint import named_tensors
from tformer_cli.converters.formats.weight_files import read_weights_of
from tformer_cli.converters.hugging_face.generation import (
    IN_CONFIG,
    Generation,
    read_generation,
)
from tformer_cli.converters.hugging_face.keys import (
    CONFIG_ROWS,
    ROLES,
    TOKENIZER,
    added_of,
    added_tokens,
    check_added,
    check_surrounding,
    read_tokenizer_files,
    rows_of,
    tokenizer_config,
    whole_tokenizer,
)
from tformer_cli.converters.keys import USED, Keys, Parts, no_effect, noted, only
from tformer_cli.converters.keys import Rows as KeyRows
from tformer_cli.data.foreign_pieces import BytePieceTokenizer
from tformer_cli.data.joint_tokenizer import UNKNOWN_PIECE, blank_tokenizer
from tformer_cli.data.tokenizer import SPECIAL_PIECES, UNK_ID, Tokenizer
from tformer_cli.data.tokenizer_file import parse_tokenizer
from tformer_cli.decoding.config import DecodingConfig
from tformer_cli.errors import ArtifactError
from tformer_cli.model.config import ModelConfig

_BLOCK = "transformer.h.{n}."
TABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "self_attention.in_projection": (f"{_BLOCK}attn.c_attn.{{part}}",),
        "self_attention.out_projection": (f"{_BLOCK}attn.c_proj.{{part}}",),
        "self_attention_norm": (f"{_BLOCK}ln_1.{{part}}",),
        "feed_forward.inner": (f"{_BLOCK}mlp.c_fc.{{part}}",),
        "feed_forward.outer": (f"{_BLOCK}mlp.c_proj.{{part}}",),
        "feed_forward_norm": (f"{_BLOCK}ln_2.{{part}}",),
        "final_norm": ("transformer.ln_f.{part}",),
    }
)
"""Foreign names of the modules of a layer and of the final norm."""
_TOKENIZERS = (
    *("GPT2Tokenizer", "GPT2TokenizerFast"),
    *("PreTrainedTokenizerFast", "TokenizersBackend"),
)
ACTIVATIONS = {
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "swish",
    "swish": "swish",
}
CONFIG = Keys(
    "config.json",
    "GPT-2",
    {
        **CONFIG_ROWS,
        **IN_CONFIG,
        **rows_of("n_positions n_embd n_layer n_head n_inner layer_norm_epsilon", USED),
        "activation_function": only(*ACTIVATIONS),
        "tokenizer_class": only(None, *_TOKENIZERS),
        "add_cross_attention": only(False),
        "is_encoder_decoder": only(False),
        "is_decoder": only(False, True),
        "reorder_and_upcast_attn": only(False, True),
        "scale_attn_weights": only(True),
        "scale_attn_by_inverse_layer_idx": only(False),
        "tie_word_embeddings": only(False, True),
        "vocab_size": no_effect("the embedding says it"),
        "n_ctx": no_effect("n_positions says it"),
        **rows_of(
            "summary_type summary_use_proj summary_activation summary_proj_to_labels"
            " summary_first_dropout n_special predict_special_tokens",
            no_effect("of heads that are not imported"),
        ),
    },
)
TOKENIZER_CONFIG = tokenizer_config(
    "GPT-2",
    ("GPT2Tokenizer",),
    **rows_of("add_prefix_space add_bos_token add_eos_token", only(None, False)),
    clean_up_tokenization_spaces=noted("texts keep the spaces that their pieces have", False),
)
BYTE_PIECES: dict[str, KeyRows | Parts] = {
    "normalizer": Parts({None: {}}),
    "pre_tokenizer": Parts(
        {
            "ByteLevel": {
                "add_prefix_space": only(False),
                "use_regex": only(True),
                "trim_offsets": no_effect("where pieces stand in a text"),
            }
        }
    ),
    "model": {
        **rows_of("vocab merges", USED),
        "type": only("BPE"),
        "dropout": only(None, 0.0),
        "unk_token": no_effect("every byte is a piece"),
        **rows_of("continuing_subword_prefix end_of_word_suffix", only(None, "")),
        "byte_fallback": only(False),
        "ignore_merges": only(False),
        "fuse_unk": no_effect("every byte is a piece"),
    },
}
"""Sections of a tokenizer.json with the values that GPT-2's cutting of text has."""
WHOLE = whole_tokenizer("GPT-2", **BYTE_PIECES)
END = "<|endoftext|>"
_LARGEST_MERGES = 1 << 26
_TRANSPOSED = re.compile(r".*\.(c_attn|c_proj|c_fc)\.weight")
_IGNORED = re.compile(r".*\.attn\.(bias|masked_bias)")
_COMPILED = "_orig_mod."
MODEL_ARGS = ("block_size", "n_embd", "n_head", "n_layer")
"""Settings of nanoGPT's checkpoints that are needed."""
NANO_EPSILON = 1e-5
"""Of the norms of nanoGPT and minGPT."""


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Pieces by their foreign ids, and what cuts text into them."""

    pieces: Mapping[str, int]
    """Ids of the pieces."""
    merges: tuple[tuple[str, str], ...] | None
    """Merges of BPE on bytes; None: the pieces are those of a pipeline without merges."""
    files: tuple[Path, ...]
    """Files that were read."""
    algorithm: Literal["char", "word"] = "char"
    """That pipeline."""
    notes: tuple[str, ...] = ()
    """About settings that are omitted."""

    @property
    def end(self) -> int | None:
        """Id of what stands between texts, if there is such a token."""
        return self.pieces.get(END)

    def rows(self, size: int, where: str) -> Rows:
        """Orders the rows of a model."""
        names = names_of_rows(self.pieces, size, where)
        rows = arranged(names, None, -1, self.end, self.end)
        unused = [n for n, name in enumerate(rows.pieces) if name.startswith(UNUSED)]
        ends = [] if self.end is not None else [3]
        return Rows(rows.foreign, rows.pieces, (*rows.banned, UNK_ID, *ends, *unused))

    def tokenizer(self, rows: Rows, where: str) -> Tokenizer:
        """Makes the tokenizer of a model whose rows are in this order."""
        if self.merges is not None:
            return BytePieceTokenizer(rows.pieces, self.merges, where)
        blank = blank_tokenizer(self.algorithm)
        places = {piece: place for place, piece in enumerate(rows.pieces)}
        blank.model = type(blank.model)(vocab=places, unk_token=UNKNOWN_PIECE)
        blank.add_special_tokens(list(SPECIAL_PIECES))
        return parse_tokenizer(blank.to_str(), where)


@dataclass(frozen=True, kw_only=True)
class NanoGptSource:
    """A checkpoint of nanoGPT, opened."""

    path: Path
    """Its file."""
    settings: Mapping[str, Any]
    """Its model_args."""
    arrays: LazyArrays
    """Its weights."""


def is_gpt2(path: Path) -> bool:
    """Returns whether a directory holds a GPT-2 model of Hugging Face."""
    file = path / "config.json"
    return file.is_file() and read_json_file(file).get("model_type") == "gpt2"


def convert_directory(path: Path) -> ForeignModel:
    """Converts a directory of Hugging Face."""
    file = path / "config.json"
    settings = read_json_file(file)
    notes = CONFIG.read(file, settings)
    generation = read_generation(path, settings)
    arrays, weight_files = read_weights_of(path)
    width = number(file, settings, "n_embd")
    inner = number(file, settings, "n_inner") if settings.get("n_inner") else 4 * width
    vocabulary = _with_tokenizer_files(path, _read_vocabulary(path))
    _check_end(file, settings, generation, vocabulary)
    generation.check_forced(-1 if vocabulary.end is None else vocabulary.end)
    if (path / TOKENIZER).is_file():
        check_surrounding(path / TOKENIZER, read_json_file(path / TOKENIZER), (), ())
    decoding, of_search = generation.generator(number(file, settings, "n_positions"))
    model = converted(
        "Hugging Face GPT-2",
        Reader(_prefixed(arrays), str(path)),
        file,
        {
            "d_model": width,
            "d_ff": inner,
            "n_heads": number(file, settings, "n_head"),
            "n_decoder_layers": number(file, settings, "n_layer"),
            "max_positions": number(file, settings, "n_positions"),
            "activation": ACTIVATIONS[settings.get("activation_function", "gelu_new")],
            "norm_epsilon": settings.get("layer_norm_epsilon", 1e-5),
        },
        vocabulary,
        (file, *weight_files, *vocabulary.files, *generation.files),
        is_transposed=True,
        banned=generation.banned,
    )
    return replace(
        model, decoding=decoding, notes=(*notes, *generation.notes, *of_search, *model.notes)
    )


def _check_end(
    file: Path, settings: Mapping[str, Any], generation: Generation, vocabulary: Vocabulary
) -> None:
    """Refuses a model whose texts end with another token than those here do."""
    end = {**settings, **generation.special_ids}.get("eos_token_id")
    is_piece = type(end) is int and end in vocabulary.pieces.values()
    if isinstance(end, list) or (is_piece and end != vocabulary.end):
        raise ArtifactError(
            f"{file}: eos_token_id = {shown(end)} is not that of {END}, which ends texts here; "
            "import another model"
        )


def _with_tokenizer_files(path: Path, vocabulary: Vocabulary) -> Vocabulary:
    """Adds what the files beside a vocabulary say."""
    own, notes, files = read_tokenizer_files(path, TOKENIZER_CONFIG)
    roles = {str(own[role]) for role in ROLES if role in own}
    check_added(path, added_tokens(path, own), vocabulary.pieces, {END, *roles})
    return replace(vocabulary, files=(*vocabulary.files, *files), notes=tuple(notes))


def open_source(path: Path, checkpoint: Any) -> NanoGptSource | None:  # noqa: ANN401
    """Recognizes a checkpoint of nanoGPT."""
    if not isinstance(checkpoint, dict) or not {"model", "model_args"} <= checkpoint.keys():
        return None
    arrays = named_tensors(checkpoint["model"])
    renamed = {name.removeprefix(_COMPILED): name for name in arrays}
    if not isinstance(checkpoint["model_args"], dict) or "transformer.wte.weight" not in renamed:
        return None
    return NanoGptSource(
        path=path, settings=checkpoint["model_args"], arrays=_renamed(arrays, renamed)
    )


def convert(source: NanoGptSource) -> ForeignModel:
    """Converts a checkpoint of nanoGPT, whose vocabulary lies beside it."""
    path, settings = source.path, source.settings
    if not settings.keys() & set(MODEL_ARGS):
        names = ", ".join(sorted(map(str, settings))[:8]) or "empty"
        raise ArtifactError(
            f"{path}: its model_args are {names}, not {', '.join(MODEL_ARGS)}, so it is of another "
            "program; checkpoints of nanoGPT and minGPT are read, and Hugging Face's directories"
        )
    width = number(path, settings, "n_embd")
    vocabulary = _read_vocabulary(path.parent)
    return converted(
        "nanoGPT",
        Reader(source.arrays, str(path)),
        path,
        {
            "d_model": width,
            "d_ff": 4 * width,
            "n_heads": number(path, settings, "n_head"),
            "n_decoder_layers": number(path, settings, "n_layer"),
            "max_positions": number(path, settings, "block_size"),
            "activation": "gelu",
            "norm_epsilon": NANO_EPSILON,
            "bias": "transformer.ln_f.bias" in source.arrays,
        },
        vocabulary,
        (path, *vocabulary.files),
        is_transposed=False,
    )


def _prefixed(arrays: LazyArrays) -> LazyArrays:
    """Gives arrays their prefix, which files of the model without its output lack."""
    own = ("transformer.", "lm_head.")
    return _renamed(arrays, {n if n.startswith(own) else f"transformer.{n}": n for n in arrays})


def _renamed(arrays: LazyArrays, names: Mapping[str, str]) -> LazyArrays:
    """Gives arrays other names; none is read yet."""
    return LazyArrays({new: partial(arrays.__getitem__, old) for new, old in names.items()})


def converted(
    kind: str,
    reader: Reader,
    file: Path,
    shape: Mapping[str, Any],
    vocabulary: Vocabulary,
    files: tuple[Path, ...],
    *,
    is_transposed: bool,
    banned: Callable[[Rows], Rows] = lambda rows: rows,
) -> ForeignModel:
    """Puts a model together."""
    embedding = reader.take("transformer.wte.weight")
    if embedding.ndim != 2:
        raise ArtifactError(f"{file}: the embedding is no matrix; download the model again")
    rows = banned(vocabulary.rows(len(embedding), str(file)))
    output = reader.take("lm_head.weight") if "lm_head.weight" in reader else embedding
    is_tied = np.array_equal(output, embedding)
    config = model_config(
        file,
        n_encoder_layers=0,
        norm="pre",
        positions="learned",
        tied_embeddings="decoder" if is_tied else "none",
        output_bias=True,
        scale_embeddings=False,
        target_bos=False,
        target_eos=vocabulary.end is not None,
        **shape,
    )
    given: dict[str, Weight] = {
        "target_embedding.weight": rows.of(embedding),
        "output_projection.weight": rows.of(output),
        "output_bias": output_bias(rows, None),
        "decoder_input.positions.table": reader.take("transformer.wpe.weight"),
    }

    def read(name: str) -> Array:
        array = reader.take(name)
        return array.T if is_transposed and _TRANSPOSED.fullmatch(name) else array

    weights = assembled(config, len(rows.pieces), TABLE, read, given, str(file))
    reader.ignore([name for name in reader.arrays if _IGNORED.fullmatch(name)])
    reader.check_all_taken()
    return ForeignModel(
        kind=kind,
        config=config,
        weights=weights,
        tokenizer=vocabulary.tokenizer(rows, str(file)),
        decoding=DecodingConfig(beam_size=1, sampling=True),
        files=files,
        ids=rows.foreign,
        notes=_notes(config, vocabulary),
    )


def _notes(config: ModelConfig, vocabulary: Vocabulary) -> tuple[str, ...]:
    if vocabulary.end is not None or config.target_bos:
        return vocabulary.notes
    return (
        *vocabulary.notes,
        "its texts have no beginning: generate needs a prompt to go on from",
    )


def _read_vocabulary(path: Path) -> Vocabulary:
    vocabulary = find_vocabulary(path)
    if vocabulary is None:
        raise ArtifactError(
            f"{path}: has no vocabulary; put vocab.json and merges.txt, or nanoGPT's meta.pkl, "
            "beside the model"
        )
    return vocabulary


def find_vocabulary(path: Path) -> Vocabulary | None:
    """Reads the vocabulary in a directory: GPT-2's files, or nanoGPT's list of characters.

    Where there is a tokenizer.json, it counts, and the other files must agree with it.
    """
    pieces, merges, whole = (path / n for n in ("vocab.json", "merges.txt", "tokenizer.json"))
    listed = None
    if pieces.is_file() and merges.is_file():
        text = read_bytes(merges, _LARGEST_MERGES).decode("utf-8", "replace")
        lines = text.split("\n", MOST_ROWS)
        pairs = [
            line.rstrip("\r").split(" ") for line in lines if line and line[0:9] != "#version:"
        ]
        listed = _vocabulary(read_json_file(pieces), pairs, (pieces, merges))
    if not whole.is_file():
        found = listed
    else:
        found = _read_whole(whole)
        if listed is not None:
            _check_same(whole, found, listed)
    if found is not None:
        return found
    characters = path / "meta.pkl"
    return _read_characters(characters) if characters.is_file() else None


def _read_whole(file: Path) -> Vocabulary:
    """Reads a tokenizer.json that cuts text as GPT-2 does."""
    parts = read_json_file(file)
    if not isinstance(parts.get("pre_tokenizer"), dict):
        raise ArtifactError(
            f"{file}: has no pre_tokenizer, but GPT-2 cuts text into words; import another model"
        )
    notes = WHOLE.read(file, parts)
    model = parts.get("model")
    model = model if isinstance(model, dict) else {}
    found = model.get("merges", [])
    pairs = [one.split(" ") if isinstance(one, str) else one for one in found]
    vocabulary = _vocabulary(model.get("vocab"), pairs, (file,))
    return replace(
        vocabulary,
        pieces={**vocabulary.pieces, **added_of(parts, file)},
        notes=tuple(notes),
    )


def _check_same(file: Path, whole: Vocabulary, listed: Vocabulary) -> None:
    """Refuses a tokenizer.json beside a vocab.json and merges.txt of another tokenizer."""
    other = next((one for one, n in listed.pieces.items() if whole.pieces.get(one) != n), None)
    if other is not None:
        what = f"vocab.json has another id of {json.dumps(other)[:40]}"
    elif whole.merges != listed.merges:
        what = "merges.txt has other merges"
    else:
        return
    raise ArtifactError(f"{file}: {what}; use the files of one tokenizer")


def _vocabulary(pieces: Any, pairs: list[Any], files: tuple[Path, ...]) -> Vocabulary:  # noqa: ANN401
    is_sound = isinstance(pieces, dict) and all(
        type(place) is int and place >= 0 for place in pieces.values()
    )
    if not is_sound or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ArtifactError(
            f"{files[0]}: is not a vocabulary of BPE on bytes; use this model's own files"
        )
    return Vocabulary(
        pieces=pieces, merges=tuple((str(left), str(right)) for left, right in pairs), files=files
    )


def _read_characters(file: Path) -> Vocabulary:
    """Reads nanoGPT's meta.pkl as data: nothing in it is run."""
    import io

    try:
        found = PickleReader(io.BytesIO(read_bytes(file, 1 << 24))).read()
    except (PickleError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ArtifactError(f"{file}: is damaged ({reason}); prepare the data again") from None
    pieces = found.get("stoi") if isinstance(found, dict) else None
    if not isinstance(pieces, dict) or not all(
        isinstance(piece, str) and len(piece) == 1 and type(place) is int and place >= 0
        for piece, place in pieces.items()
    ):
        raise ArtifactError(f"{file}: holds no characters and their ids; prepare the data again")
    return Vocabulary(pieces=pieces, merges=None, files=(file,))
