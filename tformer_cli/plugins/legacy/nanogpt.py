"""Language models of nanoGPT (`ckpt.pt`), minGPT (`model.pt`, `config.json`) and llama2.c (`.bin`).

The first two are GPT-2's, minGPT's with the activation by tanh; minGPT stores no vocabulary. Those
of llama2.c are LLaMA's; texts end where the next begins, at `<s>`. Sources: nanoGPT, model.py;
minGPT, mingpt/model.py, mingpt/utils.py (`setup_logging`) and projects/chargpt/chargpt.py;
llama2.c, export.py (version 0), tokenizer.py and run.c.
"""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.foreign_model import ForeignModel, Reader
from tformer_cli.foreign.formats.mapped_file import Array, LazyArrays, MappedFile, rename_arrays
from tformer_cli.foreign.formats.weight_files import named_tensors
from tformer_cli.foreign.hugging_face.byte_pieces import (
    ByteVocabulary,
    find_vocabulary,
    read_vocabulary,
)
from tformer_cli.foreign.hugging_face.decoders import SpmVocabulary, assembled_model
from tformer_cli.foreign.hugging_face.families import FAMILIES
from tformer_cli.foreign.hugging_face.family import Family, Source
from tformer_cli.foreign.keys import number, read_bytes, read_json_file
from tformer_cli.foreign.readers import ModelReader
from tformer_cli.text.sentencepiece.spm_file import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    SpmModel,
    write_spm,
)

# settings of nanoGPT's checkpoints that are needed
MODEL_ARGS = ("block_size", "n_embd", "n_head", "n_layer")
# heads of the models that minGPT has names for
HEADS: Mapping[str, int] = {
    "openai-gpt": 12,
    "gpt2": 12,
    "gpt2-medium": 16,
    "gpt2-large": 20,
    "gpt2-xl": 25,
    "gopher-44m": 16,
    "gpt-mini": 6,
    "gpt-micro": 4,
    "gpt-nano": 3,
}
# Linear layers of both are (out, in), in contrast to GPT-2's in the library
_FAMILY = replace(FAMILIES["gpt2"], transposed=False)
_EPSILON = 1e-5
_LAYER = re.compile(r"h\.(\d+)\.attn\.c_attn\.weight")
_MASK = "h.0.attn.bias"
_COMPILED = "_orig_mod."
_LARGEST_TEXT = 1 << 30


def open_source(path: Path, checkpoint: Any) -> Callable[[], ForeignModel] | None:  # noqa: ANN401
    """Recognizes a checkpoint of nanoGPT or minGPT by its names; returns what converts it."""
    if isinstance(checkpoint, dict) and {"model", "model_args"} <= checkpoint.keys():
        arrays = _short(named_tensors(checkpoint["model"]))
        if not isinstance(checkpoint["model_args"], dict) or "wte.weight" not in arrays:
            return None
        return partial(_nanogpt, path, checkpoint["model_args"], arrays)
    arrays = _short(named_tensors(checkpoint))
    # minGPT saves the causal mask
    is_mingpt = {"wte.weight", "lm_head.weight", _MASK} <= set(arrays)
    return partial(_mingpt, path, arrays) if is_mingpt else None


def _short(arrays: LazyArrays) -> LazyArrays:
    return rename_arrays(arrays, lambda n: n.removeprefix(_COMPILED).removeprefix(_FAMILY.prefix))


def _nanogpt(path: Path, settings: Mapping[str, Any], arrays: LazyArrays) -> ForeignModel:
    if not settings.keys() & set(MODEL_ARGS):
        names = ", ".join(sorted(map(str, settings))[:8]) or "empty"
        raise ArtifactError(
            f"{path}: its model_args are {names}, not {', '.join(MODEL_ARGS)}, so another "
            "program wrote it; tformer reads nanoGPT and minGPT, and Hugging Face directories"
        )
    width = number(path, settings, "n_embd")
    vocabulary = read_vocabulary(path.parent)
    shape = {
        "d_model": width,
        "d_ff": 4 * width,
        "n_heads": number(path, settings, "n_head"),
        "n_decoder_layers": number(path, settings, "n_layer"),
        "max_positions": number(path, settings, "block_size"),
        "activation": "gelu",
        "norm_epsilon": _EPSILON,
        "bias": "ln_f.bias" in arrays,
    }
    return assembled_model(
        _source(path, _FAMILY, arrays), {**_FAMILY.fixed, **shape}, vocabulary, kind="nanoGPT"
    )


def _source(path: Path, family: Family, arrays: LazyArrays, *files: Path) -> Source:
    """A file whose arrays have the names of one of the library's families."""
    return Source(
        file=path,
        settings={"tie_word_embeddings": family.outer["output"] + ".weight" not in arrays},
        family=family,
        reader=Reader(arrays, str(path)),
        weight_files=[*files],
        notes=[],
    )


def _mingpt(path: Path, arrays: LazyArrays) -> ForeignModel:
    file = path.parent / "config.json"
    positions, width = _shape(arrays, "wpe.weight", path)
    n_rows, _ = _shape(arrays, "wte.weight", path)
    found_vocabulary = find_vocabulary(path.parent) or _characters(path.parent, n_rows)
    vocabulary = found_vocabulary or _numbers(n_rows)
    shape = {
        "d_model": width,
        "d_ff": 4 * width,
        "n_heads": _n_heads(file, width),
        "n_decoder_layers": sum(_LAYER.fullmatch(name) is not None for name in arrays),
        "max_positions": positions,
        "activation": "gelu-tanh",
        "norm_epsilon": _EPSILON,
    }
    source = _source(path, _FAMILY, arrays, file)
    model = assembled_model(source, {**_FAMILY.fixed, **shape}, vocabulary, kind="minGPT")
    if found_vocabulary is not None:
        return model
    note = f"has no vocabulary next to it: a text is the numbers of its tokens, 0 to {n_rows - 1}"
    return replace(model, notes=(*model.notes, note))


def _shape(arrays: LazyArrays, name: str, path: Path) -> tuple[int, int]:
    shape = arrays[name].shape if name in arrays else ()
    if len(shape) != 2:
        raise ArtifactError(f"{path}: {name} is not a matrix; save the model again")
    return shape[0], shape[1]


def _n_heads(file: Path, width: int) -> int:
    """Reads how many heads there are, which the weights do not tell."""
    settings = read_json_file(file).get("model")
    if not isinstance(settings, dict):
        raise ArtifactError(f"{file}: has no settings of a model; put minGPT's own file there")
    stored = settings.get("n_embd")
    if stored is not None and number(file, settings, "n_embd") != width:
        raise ArtifactError(
            f"{file}: n_embd is {stored}, but the weights are {width} wide; put the file of the "
            "same run there"
        )
    named = settings.get("model_type")
    if settings.get("n_head") is None and isinstance(named, str) and named in HEADS:
        return HEADS[named]
    return number(file, settings, "n_head")


def _characters(path: Path, n_rows: int) -> ByteVocabulary | None:
    """Makes the vocabulary that chargpt makes of its text, in order of the code points."""
    file = path / "input.txt"
    if not file.is_file():
        return None
    text = read_bytes(file, _LARGEST_TEXT).decode("utf-8", "replace")
    characters = sorted(set(text.replace("\r\n", "\n").replace("\r", "\n")))
    if len(characters) != n_rows:
        raise ArtifactError(
            f"{file}: has {len(characters):,} different characters, but the model {n_rows:,}; put "
            "the text that it was trained on there, or none"
        )
    return ByteVocabulary(
        pieces={piece: place for place, piece in enumerate(characters)}, merges=None, files=(file,)
    )


def _numbers(n_rows: int) -> ByteVocabulary:
    """Names tokens by their numbers, as words."""
    pieces = {f"Ġ{place}": place for place in range(n_rows)}
    return ByteVocabulary(pieces=pieces, merges=None, files=(), algorithm="word")


_HEADER = struct.Struct("<7i")
_MOST_LAYERS, _LARGEST = 1000, 1 << 24


class Shape(NamedTuple):
    """Shape of a model in a file of llama2.c, as its header has it."""

    d_model: int
    d_ff: int
    n_layers: int
    n_heads: int
    n_key_heads: int
    n_entries: int  # of the vocabulary; negative where the output has a matrix of its own
    max_positions: int

    @property
    def vocab_size(self) -> int:
        return abs(self.n_entries)

    @property
    def head_width(self) -> int:
        return self.d_model // self.n_heads

    def arrays(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the arrays in the order of the file, as one for all layers."""
        d, f, n, e = self.d_model, self.d_ff, self.n_layers, self.head_width
        keys = self.n_key_heads * e
        shapes: list[tuple[str, tuple[int, ...]]] = [
            ("embed_tokens.weight", (self.vocab_size, d)),
            ("input_layernorm", (n, d)),
            ("self_attn.q_proj", (n, d, d)),
            ("self_attn.k_proj", (n, keys, d)),
            ("self_attn.v_proj", (n, keys, d)),
            ("self_attn.o_proj", (n, d, d)),
            ("post_attention_layernorm", (n, d)),
            ("mlp.gate_proj", (n, f, d)),
            ("mlp.down_proj", (n, d, f)),
            ("mlp.up_proj", (n, f, d)),
            ("norm.weight", (d,)),
            # cosines and sines, which are computed here
            ("frequencies", (self.max_positions * e,)),
        ]
        return shapes if self.n_entries > 0 else [*shapes, ("lm_head.weight", (self.vocab_size, d))]

    @property
    def n_bytes(self) -> int:
        return _HEADER.size + 4 * sum(int(np.prod(shape)) for _, shape in self.arrays())


def find_file(path: Path) -> Shape | None:
    """Reads the shape of a file of llama2.c; None: it is none, for its size is another."""
    if not path.is_file() or path.suffix != ".bin":
        return None
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    shape = Shape(*_HEADER.unpack(header))
    sizes = shape._replace(n_entries=shape.vocab_size)
    if min(sizes) < 1 or max(sizes) > _LARGEST or shape.n_layers > _MOST_LAYERS:
        return None
    is_whole = shape.d_model % shape.n_heads == 0 and path.stat().st_size == shape.n_bytes
    return shape if is_whole else None


def find(path: Path) -> Callable[[], ForeignModel] | None:
    shape = find_file(path)
    return None if shape is None else partial(convert_file, path, shape)


def convert_file(path: Path, shape: Shape) -> ForeignModel:
    """Converts a file of llama2.c; its tokenizer lies next to it."""
    names = (f"tok{shape.vocab_size}.bin", "tokenizer.bin")
    tokenizer = next((path.parent / n for n in names if (path.parent / n).is_file()), None)
    if tokenizer is None:
        raise ArtifactError(
            f"{path}: its tokenizer is missing; put {' or '.join(names)} next to it"
        )
    data = _spm_of(*_read_pieces(tokenizer, shape.vocab_size))
    family = FAMILIES["llama"]
    settings = {
        **family.fixed,
        "d_model": shape.d_model,
        "d_ff": shape.d_ff,
        "n_heads": shape.n_heads,
        "n_key_heads": 0 if shape.n_key_heads == shape.n_heads else shape.n_key_heads,
        "n_decoder_layers": shape.n_layers,
        "max_positions": shape.max_positions,
        "norm_epsilon": _EPSILON,
    }
    vocabulary = SpmVocabulary(data=data, file=tokenizer, ends=(1, 1), texts={}, files=(tokenizer,))
    source = _source(path, family, _arrays(path, shape))
    return assembled_model(source, settings, vocabulary, kind="llama2.c")


def _arrays(path: Path, shape: Shape) -> LazyArrays:
    """Opens the arrays of a file of llama2.c under Hugging Face's names."""
    file = MappedFile(path, "a file of llama2.c")
    readers: dict[str, Any] = {}
    at = _HEADER.size
    for name, dimensions in shape.arrays():
        if name.endswith(".weight"):
            readers[name] = partial(file.array_at, at, "<f4", list(dimensions))
        elif name != "frequencies":
            inner = dimensions[1:]
            for layer in range(shape.n_layers):
                start = at + 4 * layer * int(np.prod(inner))
                read = partial(file.array_at, start, "<f4", list(inner))
                if name.endswith(("q_proj", "k_proj")):
                    read = partial(_in_halves, read, shape.head_width)
                readers[f"layers.{layer}.{name}.weight"] = read
        at += 4 * int(np.prod(dimensions))
    return LazyArrays(readers)


def _in_halves(read: Any, head_width: int) -> Array:  # noqa: ANN401
    """Puts the rows of each head in order: llama2.c turns pairs of neighbors, tformer halves."""
    matrix: Array = read()
    # (H·E, D) -> (H, E/2, 2, D) -> (H, 2, E/2, D) -> (H·E, D)
    split = matrix.reshape(-1, head_width // 2, 2, matrix.shape[1])
    return split.transpose(0, 2, 1, 3).reshape(matrix.shape)


def _read_pieces(file: Path, size: int) -> tuple[list[str], list[float]]:
    """Reads a tokenizer of llama2.c: the score and the bytes of each piece."""
    data, at = read_bytes(file, 1 << 26), 4
    pieces, scores = [], []
    try:
        for place in range(size):
            score, length = struct.unpack_from("<fi", data, at)
            (raw,) = struct.unpack_from(f"<{length}s", data, at + 8)
            piece = raw.decode()
            at += 8 + length
            special = ("<unk>", "<s>", "</s>")[place : place + 1]
            pieces.append(special[0] if special else piece.replace(" ", SPACE))
            scores.append(score)
        rest = data[at:]
    except (ValueError, struct.error) as error:
        reason = " ".join(str(error).split())[:100]
        raise ArtifactError(
            f"{file}: is not a tokenizer of {size:,} pieces ({reason}); use this model's own file"
        ) from None
    if rest:
        raise ArtifactError(f"{file}: has more than {size:,} pieces; use this model's own file")
    return pieces, scores


def _spm_of(pieces: Sequence[str], scores: Sequence[float]) -> bytes:
    """Writes a SentencePiece model of merges: what llama2.c's tokenizers are made of."""
    first = (UNKNOWN, CONTROL, CONTROL)
    n_rest = max(len(pieces) - len(first) - 256, 0)
    types = bytes([*first, *[BYTE] * 256, *[NORMAL] * n_rest])[: len(pieces)]
    # a space before the text, and all spaces kept
    return write_spm(
        SpmModel(
            list(pieces),
            list(scores),
            types,
            "bpe",
            byte_fallback=True,
            remove_extra_whitespaces=False,
        )
    )


READER = ModelReader(find, open_source)
