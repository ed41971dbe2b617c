"""A foreign model put together: its weights under the names and in the shapes of tformer's."""

import math
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tformer_cli.artifacts.config_file import AlignmentInfo
from tformer_cli.artifacts.weights_file import SCALE, all_finite
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.formats.mapped_file import Array, LazyArrays
from tformer_cli.model.config import PLAIN_TRANSLATION, ModelConfig
from tformer_cli.model.methods import POSITION_SETTINGS
from tformer_cli.model.weight_shapes import parameter_shapes
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import Shortlist
from tformer_cli.settings import ANY
from tformer_cli.text.tokenizer import SPECIAL_PIECES, Tokenizer

BANNED_BIAS = -1e9  # bias of a token that is never written
MOST_ROWS = 1 << 20  # of a vocabulary's embedding
UNUSED = "<unused "  # begins the name of a row without a piece
_NAME = re.compile(r"(encoder|decoder)(?:\.layers\.(\d+)\.|\.|_(?=input\.norm))(.+)\.(weight|bias)")
_WEIGHT = {"part": "weight", "W": "W", "scale": "scale", "gamma": "gamma", "layer_part": "weight"}
# words of the names of weights and of biases in the tables of families
_BIAS = {"part": "bias", "W": "b", "scale": "bias", "gamma": "beta", "layer_part": "bias"}
MOST_SHOWN = 4


# settings that every export can hold, or that change none of its numbers
HELD_BY_EXPORTS: Mapping[str, Container[Any]] = {
    **PLAIN_TRANSLATION,
    **dict.fromkeys(("d_model", "n_heads", "d_ff", "max_positions"), ANY),
    # dropout changes training, and no output
    **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), ANY),
    **dict.fromkeys(POSITION_SETTINGS, ANY),
    # numbers that differ from layer to layer are refused with a message of their own
    **dict.fromkeys(("encoder_heads", "decoder_heads", "cross_heads", "bias_heads"), ANY),
}


class Integers(NamedTuple):
    """A matrix in 8-bit integers."""

    integers: NDArray[np.int8]  # (N, K), from -127 to 127
    scale: NDArray[np.float32]  # (N) row n stands for scale[n]·integers[n]

    def real(self) -> Array:
        return self.integers.astype(np.float32) * self.scale[:, None]


Weight = Array | Integers


class Reader:
    """Reads a foreign model's arrays and remembers which are left over."""

    def __init__(
        self, arrays: LazyArrays, where: str, shown: Callable[[str], str] = lambda name: name
    ) -> None:
        """Takes the arrays, and for messages the name of their file and what names them there."""
        self.arrays, self.where, self._shown = arrays, where, shown
        self._left = set(arrays)

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def take(self, name: str) -> Array:
        if name not in self.arrays:
            raise ArtifactError(
                f"{self.where}: has no tensor {self._shown(name)}; download the model's own files "
                "again"
            )
        self._left.discard(name)
        return self.arrays[name]

    def take_first(self, names: Iterable[str]) -> Array:
        """Reads the first of several names of the same array; the others must be equal."""
        # tools store a tied matrix under one name or several; an edit of one would be lost
        there = [name for name in names if name in self.arrays]
        first = self.take(there[0] if there else next(iter(names)))
        for name in there[1:]:
            if not np.array_equal(first, self.take(name)):
                copy, original = self._shown(name), self._shown(there[0])
                raise ArtifactError(
                    f"{self.where}: {copy} differs from {original}, but the model has one matrix "
                    "for both; convert the model anew"
                )
        return first

    def is_taken(self, name: str) -> bool:
        return name not in self._left

    def ignore(self, names: Iterable[str]) -> None:
        """Forgets arrays that decide nothing."""
        self._left.difference_update(names)

    def check_all_taken(self) -> None:
        """Refuses a model with arrays that nothing here knows."""
        if self._left:
            shown = ", ".join(sorted(map(self._shown, self._left))[:MOST_SHOWN])
            rest = len(self._left) - MOST_SHOWN
            more = f" and {rest} more" if rest > 0 else ""
            raise ArtifactError(
                f"{self.where}: has tensors that are not supported: {shown}{more}; import another "
                "model"
            )


@dataclass(frozen=True)
class VocabularyOrder:
    """The rows of a vocabulary in the order of tformer's ids."""

    foreign: tuple[int, ...]  # the foreign id of each id; -1: a row of zeros
    pieces: tuple[str, ...]
    banned: tuple[int, ...] = ()

    def of(self, weight: Weight) -> Weight:
        """Puts the rows of an embedding matrix (V, D), or of a bias (V), in order."""
        order = np.array(self.foreign)
        if isinstance(weight, Integers):
            parts = [_reorder_rows(part, order) for part in weight]
            # a row of zeros has no scale of its own; one of 0 would be taken for damaged
            parts[1][order < 0] = 1.0
            return Integers(parts[0], parts[1])
        return _reorder_rows(weight, order)


def _reorder_rows(array: Array, order: NDArray[np.int64]) -> Array:
    if array.ndim == 0 or len(array) <= order.max():
        raise ValueError(
            f"an embedding or bias has the shape {list(array.shape)}, but the vocabulary "
            f"{order.max() + 1:,} entries"
        )
    rows: Array = array[order]
    rows[order < 0] = 0
    return rows


def reorder_vocabulary(
    pieces: Sequence[str], pad: int | None, unk: int, start: int | None, eos: int | None
) -> VocabularyOrder:
    """Orders a vocabulary so that padding, unknown, start and end have the ids 0 to 3.

    The foreign ids of the four are given; None is a row of zeros. Where the start is another token,
    too, such as `</s>`, its row stands twice.
    """
    first = [-1 if number is None else number for number in (pad, unk, start, eos)]
    rest = [n for n in range(len(pieces)) if n not in first]
    names = [f"<foreign {piece}>" if piece in SPECIAL_PIECES else piece for piece in pieces]
    # a padding or start that is no token of its own would take probability from the others
    banned = [n for n in (0, 2) if first[n] == -1 or first.count(first[n]) > 1]
    return VocabularyOrder(
        (*first, *rest), (*SPECIAL_PIECES, *(names[n] for n in rest)), tuple(banned)
    )


def names_of_rows(pieces: Mapping[str, int], size: int, where: object) -> list[str]:
    """Names the rows of a model: by their pieces, those without one by their numbers."""
    if not pieces or max(pieces.values()) >= size or size > MOST_ROWS:
        raise ArtifactError(
            f"{where}: the vocabulary does not fit into the {size:,} rows of the model; use this "
            "model's own files"
        )
    # tools pad matrices to multiples of 8 or 64, so rows without a piece are common
    names = [f"{UNUSED}{place}>" for place in range(size)]
    for piece, place in pieces.items():
        names[place] = piece
    return names


def original_piece(piece: str) -> str:
    """Returns the name of a piece before `reorder_vocabulary` renamed those named as specials."""
    inner = piece.removeprefix("<foreign ").removesuffix(">")
    return inner if inner != piece and inner in SPECIAL_PIECES else piece


def output_bias(rows: VocabularyOrder, bias: Array | None) -> Array:
    """Returns the bias of the logits (V) in the order of rows, with banned tokens banned."""
    plain = np.zeros(max(rows.foreign) + 1, np.float32) if bias is None else bias.ravel()
    # -inf would make NaN of the softmax of a row whose tokens are all banned
    plain = np.where(plain == -np.inf, BANNED_BIAS, plain)
    numbers = _reorder_rows(plain.astype(np.float32), np.array(rows.foreign))
    numbers[list(rows.banned)] = BANNED_BIAS
    return numbers


def build_weights(
    config: ModelConfig,
    vocab_size: int,
    table: Mapping[str, Sequence[str]],
    read: Callable[[str], Weight],
    outer: Mapping[str, Weight],
    where: str,
) -> dict[str, Array]:
    """Puts the weights of a model together; of int8 matrices also the scales.

    `table` has for each module of a layer (``self_attention.in_projection``) the foreign names of
    the parts that are stacked: templates of ``{side}``, ``{n}`` and of the word for a weight or
    bias. Where the sides differ, the module's name begins with its side. `read` returns an array,
    (out, in) if it is a matrix; `outer` are weights that no table names.
    """
    arrays: dict[str, Array] = {}
    for name, shape in parameter_shapes(config, vocab_size).items():
        weight: Weight = np.zeros(shape, np.float32)
        if name in outer or not lacks_bias(name, table):
            weight = outer[name] if name in outer else _stack_weights(name, table, read)
        matrix = weight.integers if isinstance(weight, Integers) else weight
        # files of two models of one family differ here first
        if matrix.shape != shape:
            raise ArtifactError(
                f"{where}: {name} would have the shape {list(matrix.shape)}, but the settings ask "
                f"for {list(shape)}; use the weights and settings of one model"
            )
        if isinstance(weight, Integers):
            arrays[name] = np.array(weight.integers, order="C")
            name = f"{name}{SCALE}"
            weight = weight.scale
        if weight.dtype.kind != "f":
            raise ArtifactError(f"{where}: {name} would be of integers; import another model")
        with np.errstate(over="ignore"):  # of float64; float32 is not copied, to be there once
            arrays[name] = np.asarray(weight, np.float32, order="C")
        if not all_finite(arrays[name]):
            raise ArtifactError(
                f"{where}: {name} would contain NaN or infinity; download the model again, or use "
                "another one"
            )
    return arrays


def name_table(layer: str, names: Mapping[str, str], **outer: str) -> dict[str, tuple[str, ...]]:
    """The table of a stack: names inside a layer, several where their rows are stacked."""
    table = {
        ours: tuple(f"{layer}{name}.{{part}}" for name in theirs.split())
        for ours, theirs in names.items()
    }
    return {**table, **{ours: (f"{theirs}.{{part}}",) for ours, theirs in outer.items()}}


def foreign_names(name: str, table: Mapping[str, Sequence[str]]) -> list[str]:
    """Names the foreign arrays that, stacked, are one of tformer's."""
    match = _NAME.fullmatch(name)
    side, number, module, part = match.groups() if match else ("", None, name, "")
    words: dict[str, Any] = _WEIGHT if part == "weight" else _BIAS
    templates = table.get(f"{side}.{module}", table.get(module, ()))
    if part == "bias":  # a name that is the same for weight and bias is a weight's only
        templates = [template for template in templates if not template.endswith(".weight")]
    places = {"side": side, "n": int(number or 0), "n1": int(number or 0) + 1}
    return [template.format(**places, **words) for template in templates]


def lacks_bias(name: str, table: Mapping[str, Sequence[str]]) -> bool:
    """Returns whether a weight is a bias that a family lacks, though it has the module."""
    stem = name.removesuffix(".bias")
    has_module = stem != name and bool(foreign_names(f"{stem}.weight", table))
    return has_module and not foreign_names(name, table)


def _stack_weights(
    name: str, table: Mapping[str, Sequence[str]], read: Callable[[str], Weight]
) -> Weight:
    parts = [read(foreign) for foreign in foreign_names(name, table)]
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, Integers) for part in parts):
        columns = zip(*parts, strict=True)
        integers, scale = (np.concatenate(column) for column in columns)
        return Integers(integers, scale)
    return np.concatenate([part.real() if isinstance(part, Integers) else part for part in parts])


@dataclass(frozen=True, kw_only=True)
class ForeignModel:
    """A foreign model, converted."""

    kind: str
    config: ModelConfig
    weights: Mapping[str, Array]
    tokenizer: Tokenizer
    decoding: DecodingConfig
    files: tuple[Path, ...]
    ids: tuple[int, ...]  # the foreign id of each id of the target; -1: none
    languages: tuple[str, str] = ("", "")
    labels: tuple[str, ...] = ()  # labels of a classifier in the order of its outputs
    # sentences about differences from the foreign tool
    notes: tuple[str, ...] = field(default=())
    shortlist: Shortlist | None = None  # its lexical shortlist in tformer's ids, if it has one
    weight_type: str = "float32"  # type of the matrices: "float32" or "int8"
    spare_rows: int = 0  # rows without a piece that all models of the family have
    # heads that its own tool aligns words with, if the files name them
    alignment: AlignmentInfo | None = None


def model_config(path: Path, **values: Any) -> ModelConfig:  # noqa: ANN401
    try:
        return ModelConfig(dropout=0.0, **values)
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"{path}: {error}; use this model's own settings") from None


MOST_NUMBERS = 1 << 25  # numbers of a table, far beyond any in use: a hostile file may ask for any


def paper_halves(n_positions: int, d_model: int) -> Array:
    """The paper's frequencies 10000^(-2i/D), as Hugging Face's Marian and Pegasus have them."""
    _check_size(n_positions, d_model)
    exponents = 2 * (np.arange(d_model) // 2) / d_model
    angles = np.arange(n_positions)[:, None] / np.power(10000, exponents)
    halves = [np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])]
    return np.concatenate(halves, axis=1).astype(np.float32)


def tensor2tensor_halves(n_positions: int, d_model: int, first: int = 0) -> Array:
    """The frequencies 10000^(-i/(D/2 - 1)) of tensor2tensor, fairseq, Marian and CTranslate2."""
    _check_size(n_positions, d_model)
    half = d_model // 2
    step = np.float32(-math.log(10000) / max(half - 1, 1))
    frequencies = np.exp(np.arange(half, dtype=np.float32) * step)
    places = np.arange(first, first + n_positions, dtype=np.float32)
    angles = places[:, None] * frequencies
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.pad(table, ((0, 0), (0, d_model - 2 * half)))


def _check_size(n_positions: int, d_model: int) -> None:
    if n_positions * d_model > MOST_NUMBERS:
        raise ValueError(
            f"{n_positions:,} positions of {d_model:,} numbers are more than any model has"
        )
