"""LLaMA models: directories of Hugging Face, and the single files of llama2.c.

Pre-norm decoders with RMS norms, gated feed-forward layers, rotary positions and no biases; heads
may share keys and values. Sources: transformers 5.23, models/llama/modeling_llama.py; llama2.c,
export.py (version 0), tokenizer.py and run.c, whose texts end where the next begins, at `<s>`.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tformer_cli.converters.assembly import (
    Reader,
    Rows,
    arranged,
    assembled,
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
from tformer_cli.converters.formats.mapped_file import MappedFile
from tformer_cli.converters.formats.weight_files import read_weights_of
from tformer_cli.converters.hugging_face.generation import IN_CONFIG, read_generation
from tformer_cli.converters.hugging_face.keys import (
    CONFIG_ROWS,
    ROLES,
    added_tokens,
    check_added,
    read_tokenizer_files,
    rows_of,
    tokenizer_config,
)
from tformer_cli.converters.hugging_face.sentencepiece_json import LLAMA_WHOLE, check_whole
from tformer_cli.converters.keys import USED, Keys, no_effect, noted, only
from tformer_cli.data.sentencepiece.spm_file import (
    BYTE,
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    USER_DEFINED,
    SpmModel,
    read_spm,
    write_spm,
)
from tformer_cli.data.sentencepiece.tokenizer import SentencePieceTokenizer
from tformer_cli.decoding.config import DecodingConfig
from tformer_cli.errors import ArtifactError

_LAYER = "model.layers.{n}."
TABLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "self_attention.in_projection": tuple(
            f"{_LAYER}self_attn.{name}_proj.{{part}}" for name in "qkv"
        ),
        "self_attention.out_projection": (f"{_LAYER}self_attn.o_proj.{{part}}",),
        "self_attention_norm": (f"{_LAYER}input_layernorm.{{part}}",),
        "feed_forward.gate": (f"{_LAYER}mlp.gate_proj.{{part}}",),
        "feed_forward.inner": (f"{_LAYER}mlp.up_proj.{{part}}",),
        "feed_forward.outer": (f"{_LAYER}mlp.down_proj.{{part}}",),
        "feed_forward_norm": (f"{_LAYER}post_attention_layernorm.{{part}}",),
        "final_norm": ("model.norm.{part}",),
    }
)
"""Foreign names of the modules of a layer and of the final norm."""
_TOKENIZERS = ("LlamaTokenizer",)
_ONLY_DEFAULT_ROPE = {
    "rope_type": only("default"),
    "type": only("default"),
    "rope_theta": USED,
    "partial_rotary_factor": only(1.0),
}
CONFIG = Keys(
    "config.json",
    "LLaMA",
    {
        **CONFIG_ROWS,
        **IN_CONFIG,
        **rows_of("hidden_size intermediate_size num_hidden_layers num_attention_heads", USED),
        **rows_of("num_key_value_heads max_position_embeddings head_dim rms_norm_eps", USED),
        "rope_theta": USED,
        "rope_parameters": _ONLY_DEFAULT_ROPE,
        "rope_scaling": only(None),
        "rope_interleaved": only(False),
        "hidden_act": only("silu"),
        "attention_bias": only(False),
        "mlp_bias": only(False),
        "pretraining_tp": no_effect("how the library splits the same products"),
        "tie_word_embeddings": only(False, True),
        "is_decoder": no_effect("a decoder it is"),
        "is_encoder_decoder": only(False),
        "add_cross_attention": only(False),
        "tokenizer_class": tokenizer_config("", _TOKENIZERS).rows["tokenizer_class"],
        "vocab_size": no_effect("the embedding says it"),
        "max_sequence_length": no_effect("max_position_embeddings says it"),
        "is_llama_config": no_effect("the origin of the model"),
    },
)
TOKENIZER_CONFIG = tokenizer_config(
    "LLaMA",
    _TOKENIZERS,
    **rows_of("add_bos_token add_prefix_space add_dummy_prefix_space", only(None, True)),
    add_eos_token=only(None, False),
    sp_model_kwargs=only(None, {}),
    unk_id=no_effect("the SentencePiece model has it"),
    clean_up_tokenization_spaces=noted("texts keep the spaces that their pieces have", False),
)
_HEADER = struct.Struct("<7i")
_FILE_EPSILON = 1e-5
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
            ("model.embed_tokens.weight", (self.vocab_size, d)),
            ("input_layernorm", (n, d)),
            ("self_attn.q_proj", (n, d, d)),
            ("self_attn.k_proj", (n, keys, d)),
            ("self_attn.v_proj", (n, keys, d)),
            ("self_attn.o_proj", (n, d, d)),
            ("post_attention_layernorm", (n, d)),
            ("mlp.gate_proj", (n, f, d)),
            ("mlp.down_proj", (n, d, f)),
            ("mlp.up_proj", (n, f, d)),
            ("model.norm.weight", (d,)),
            # cosines and sines, which are computed here
            ("frequencies", (self.max_positions * e,)),
        ]
        return found if self.is_tied else [*found, ("lm_head.weight", (self.vocab_size, d))]

    @property
    def n_bytes(self) -> int:
        """Size of the whole file."""
        return _HEADER.size + 4 * sum(int(np.prod(shape)) for _, shape in self.arrays())


def is_llama(path: Path) -> bool:
    """Returns whether a directory holds a LLaMA model of Hugging Face."""
    file = path / "config.json"
    return file.is_file() and read_json_file(file).get("model_type") == "llama"


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


def convert_directory(path: Path) -> ForeignModel:
    """Converts a directory of Hugging Face with a SentencePiece model."""
    file, spm = path / "config.json", path / "tokenizer.model"
    settings = read_json_file(file)
    notes = CONFIG.read(file, settings)
    generation = read_generation(path, settings)
    rope = settings.get("rope_parameters") or {}
    width, heads = (number(file, settings, n) for n in ("hidden_size", "num_attention_heads"))
    if heads < 1 or (settings.get("head_dim") or width // heads) * heads != width:
        raise ArtifactError(f"{file}: head_dim is not hidden_size / heads; import another model")
    shared = {"num_key_value_heads": heads, **_given(settings)}
    arrays, weight_files = read_weights_of(path)
    data = read_bytes(spm)
    start = number(file, settings, "bos_token_id")
    end = number(file, {**settings, **generation.special_ids}, "eos_token_id")
    more, files = _check_tokenizer(path, data, start)
    decoding, of_search = generation.generator(number(file, settings, "max_position_embeddings"))
    model = _converted(
        "Hugging Face LLaMA",
        Reader(arrays, str(path)),
        file,
        {
            "d_model": width,
            "d_ff": number(file, settings, "intermediate_size"),
            "n_heads": heads,
            "n_key_heads": number(file, shared, "num_key_value_heads"),
            "n_decoder_layers": number(file, settings, "num_hidden_layers"),
            "max_positions": number(file, settings, "max_position_embeddings"),
            "rotary_base": float(rope.get("rope_theta", settings.get("rope_theta", 10000.0))),
            "norm_epsilon": settings.get("rms_norm_eps", 1e-6),
        },
        data,
        (start, end),
        (file, *weight_files, spm, *files, *generation.files),
        generation.banned,
    )
    forced = generation.check_forced(end)
    notes = [*notes, *more, *generation.notes, *of_search, *forced]
    return replace(model, decoding=decoding, notes=tuple(notes))


def _given(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _check_tokenizer(path: Path, data: bytes, start: int) -> tuple[list[str], list[Path]]:
    """Checks the files beside a SentencePiece model; returns notes, and the files."""
    own, notes, files = read_tokenizer_files(path, TOKENIZER_CONFIG)
    model = read_spm(data, str(path / "tokenizer.model"))
    roles = {str(own[role]) for role in ROLES if role in own}
    added = added_tokens(path, own)
    special = model.of_type(UNKNOWN, CONTROL, USER_DEFINED)
    ids = {piece: place for place, piece in enumerate(model.pieces)}
    check_added(path, added, ids, {*special, *roles})
    ids |= {token: place for token, place in added.items() if place is not None}
    first = own.get("bos_token", model.pieces[start] if start < len(model.pieces) else "")
    if ids.get(first, start) != start:
        raise ArtifactError(
            f"{path}: its tokenizer begins texts with {shown(first)}, but bos_token_id = {start} "
            "is another token; correct one of the two"
        )
    more, whole = check_whole(path, LLAMA_WHOLE, model, ids, ((first,), ()))
    return [*notes, *more], [*files, *whole]


def convert_file(path: Path, shape: Shape) -> ForeignModel:
    """Converts a file of llama2.c; its tokenizer lies beside it."""
    names = (f"tok{shape.vocab_size}.bin", "tokenizer.bin")
    tokenizer = next((path.parent / n for n in names if (path.parent / n).is_file()), None)
    if tokenizer is None:
        raise ArtifactError(f"{path}: its tokenizer is missing; put {' or '.join(names)} beside it")
    data = _spm_of(*_read_pieces(tokenizer, shape.vocab_size))
    return _converted(
        "llama2.c",
        Reader(_arrays(path, shape), str(path)),
        path,
        {
            "d_model": shape.d_model,
            "d_ff": shape.d_ff,
            "n_heads": shape.n_heads,
            "n_key_heads": shape.n_key_heads,
            "n_decoder_layers": shape.n_layers,
            "max_positions": shape.max_positions,
            "norm_epsilon": _FILE_EPSILON,
        },
        data,
        (1, 1),
        (path, tokenizer),
    )


def _converted(
    kind: str,
    reader: Reader,
    file: Path,
    shape: dict[str, Any],
    spm: bytes,
    ends: tuple[int, int],
    files: tuple[Path, ...],
    banned: Callable[[Rows], Rows] = lambda rows: rows,
) -> ForeignModel:
    """Puts a model together; `shape` are its settings by tformer's names."""
    where = str(next(path for path in files if path.name.startswith("tok")))
    if shape["n_key_heads"] == shape["n_heads"]:
        shape["n_key_heads"] = 0
    embedding = reader.take("model.embed_tokens.weight")
    output = reader.take("lm_head.weight") if "lm_head.weight" in reader else embedding
    model = read_spm(spm, where)
    n_rows = len(embedding)
    if n_rows != len(model.pieces):
        raise ArtifactError(
            f"{where}: has {len(model.pieces):,} pieces, but the model has {n_rows:,} rows; use "
            "this model's own files, or, if the other rows are padding, remove them "
            f"(resize_token_embeddings({len(model.pieces)}))"
        )
    if max(ends) >= n_rows:
        raise ArtifactError(
            f"{file}: texts begin and end with the ids {ends[0]} and {ends[1]}, but the model has "
            f"{n_rows:,} rows; use this model's own files"
        )
    rows = banned(arranged(model.pieces, None, model.unknown, *ends))
    config = model_config(
        file,
        n_encoder_layers=0,
        norm="pre",
        norm_kind="rms",
        activation="swish",
        gated=True,
        bias=False,
        positions="rotary",
        tied_embeddings="decoder" if np.array_equal(output, embedding) else "none",
        output_bias=True,
        scale_embeddings=False,
        **shape,
    )
    given = {
        "target_embedding.weight": rows.of(embedding),
        "output_projection.weight": rows.of(output),
        "output_bias": output_bias(rows, None),
    }
    weights = assembled(config, len(rows.pieces), TABLE, reader.take, given, str(file))
    reader.ignore([name for name in reader.arrays if name.endswith("rotary_emb.inv_freq")])
    reader.check_all_taken()
    return ForeignModel(
        kind=kind,
        config=config,
        weights=weights,
        tokenizer=SentencePieceTokenizer.build(spm, None, rows.pieces, where=where),
        decoding=DecodingConfig(beam_size=1, sampling=True),
        files=files,
        ids=rows.foreign,
    )


def _arrays(path: Path, shape: Shape) -> LazyArrays:
    """Opens the arrays of a file of llama2.c under Hugging Face's names."""
    file = MappedFile(path, "a file of llama2.c")
    readers: dict[str, Any] = {}
    at = _HEADER.size
    for name, dimensions in shape.arrays():
        if name.startswith(("model.", "lm_head.")):
            readers[name] = partial(file.array_at, at, "<f4", list(dimensions))
        elif name != "frequencies":
            inner = dimensions[1:]
            for layer in range(shape.n_layers):
                start = at + 4 * layer * int(np.prod(inner))
                read = partial(file.array_at, start, "<f4", list(inner))
                if name.endswith(("q_proj", "k_proj")):
                    read = partial(_in_halves, read, shape.head_width)
                readers[f"model.layers.{layer}.{name}.weight"] = read
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
