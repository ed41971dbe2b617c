"""The single files of llama2.c.

Source: llama2.c, export.py (version 0), tokenizer.py and run.c, whose texts end where the next
begins, at `<s>`.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.assembly import Reader
from tformer_cli.foreign.foreign_model import ForeignModel, read_bytes
from tformer_cli.foreign.formats.lazy_arrays import Array, LazyArrays
from tformer_cli.foreign.formats.mapped_file import MappedFile
from tformer_cli.foreign.hugging_face.decoders import SpmVocabulary, put_together
from tformer_cli.foreign.hugging_face.families import FAMILIES
from tformer_cli.text.sentencepiece.spm_file import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    SpmModel,
    write_spm,
)

_HEADER = struct.Struct("<7i")
_EPSILON = 1e-5
_MOST_LAYERS, _LARGEST = 1000, 1 << 24


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Shape of a model in a file of llama2.c."""

    d_model: int
    d_ff: int
    n_layers: int
    n_heads: int
    n_key_heads: int
    vocab_size: int
    max_positions: int
    is_tied: bool

    @property
    def head_width(self) -> int:
        """E."""
        return self.d_model // self.n_heads

    def arrays(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the arrays in the order of the file, as one for all layers."""
        d, f, n, e = self.d_model, self.d_ff, self.n_layers, self.head_width
        keys = self.n_key_heads * e
        found: list[tuple[str, tuple[int, ...]]] = [
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
        return found if self.is_tied else [*found, ("lm_head.weight", (self.vocab_size, d))]

    @property
    def n_bytes(self) -> int:
        """Size of the whole file."""
        return _HEADER.size + 4 * sum(int(np.prod(shape)) for _, shape in self.arrays())


def find_file(path: Path) -> Shape | None:
    """Reads the shape of a file of llama2.c; None: it is none, for its size is another."""
    if not path.is_file() or path.suffix != ".bin":
        return None
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    d_model, d_ff, n_layers, n_heads, n_key_heads, n_entries, n_positions = _HEADER.unpack(header)
    sizes = (d_model, d_ff, n_layers, n_heads, n_key_heads, abs(n_entries), n_positions)
    if min(sizes) < 1 or max(sizes) > _LARGEST or n_layers > _MOST_LAYERS or d_model % n_heads:
        return None
    shape = Shape(
        d_model=d_model,
        d_ff=d_ff,
        n_layers=n_layers,
        n_heads=n_heads,
        n_key_heads=n_key_heads,
        vocab_size=abs(n_entries),
        max_positions=n_positions,
        is_tied=n_entries > 0,
    )
    return shape if path.stat().st_size == shape.n_bytes else None


def convert_file(path: Path, shape: Shape) -> ForeignModel:
    """Converts a file of llama2.c; its tokenizer lies beside it."""
    names = (f"tok{shape.vocab_size}.bin", "tokenizer.bin")
    tokenizer = next((path.parent / n for n in names if (path.parent / n).is_file()), None)
    if tokenizer is None:
        raise ArtifactError(f"{path}: its tokenizer is missing; put {' or '.join(names)} beside it")
    data = _spm_of(*_read_pieces(tokenizer, shape.vocab_size))
    family = FAMILIES["llama"]
    n_key_heads = 0 if shape.n_key_heads == shape.n_heads else shape.n_key_heads
    return put_together(
        "llama2.c",
        family,
        Reader(_arrays(path, shape), str(path)),
        path,
        {
            **family.fixed,
            "d_model": shape.d_model,
            "d_ff": shape.d_ff,
            "n_heads": shape.n_heads,
            "n_key_heads": n_key_heads,
            "n_decoder_layers": shape.n_layers,
            "max_positions": shape.max_positions,
            "norm_epsilon": _EPSILON,
        },
        SpmVocabulary(data=data, file=tokenizer, ends=(1, 1), texts={}),
        (path, tokenizer),
    )


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
        raise ArtifactError(
            f"{file}: has more than {size:,} pieces; use this model's own tokenizer"
        )
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
