"""A model's weights, packed once in the order in which the kernels read them. Free of torch.

Weights are arrays by the names they have in a model directory, numpy's or memoryviews, which need
no numpy. A matrix in integers is int8, and its scales (N) are stored under its name and `SCALE`.
"""

from __future__ import annotations

import ctypes
import weakref
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from tformer_cli.errors import ModelMemoryError
from tformer_cli.fast.native.structs import Shape
from tformer_cli.model.config import PLAIN_TRANSLATION, Head
from tformer_cli.model.methods import POSITION_SETTINGS
from tformer_cli.settings import ANY, unknown_setting

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from tformer_cli.model.config import ModelConfig

    Array = NDArray[Any] | memoryview[Any]

ACTIVATIONS = MappingProxyType({"relu": 0, "gelu": 1, "swish": 2, "gelu-tanh": 3})
"""Activations by their number in layers.c."""
NORM_KINDS = MappingProxyType({"layer": 0, "rms": 1})
"""Norms by whether they are RMS norms."""
DECODER_CELLS = MappingProxyType({"attention": 0, "ssru": 1})
"""Cells of decoder layers by their number in model.h."""
SCALE = "_scale"
"""Suffix of the scales of an int8 matrix, after the matrix's name."""
OUTPUT = "output_projection.weight"
"""Name of the output matrix where it is not an embedding, too."""
MOST_POSITION_FLOATS = 1 << 25
"""Most numbers of position vectors, 128 MiB: the kernels hold them all, torch only those in use."""
MOST_INTEGER_INPUTS = (2**31 - 1) // 127**2
"""Products of 8-bit integers that are summed in 32 bits: 133,144."""
ROWS_AT_A_TIME = 1024
"""Rows that are quantized at a time: floats of a whole vocabulary take as much memory again."""
N_SPECIAL_TOKENS = 4
"""Padding, unknown, beginning and end of sentence; the kernels know their ids."""


def sinusoids(
    library: ctypes.CDLL, n_positions: int, d_model: int, base: float = 10_000.0
) -> memoryview[Any]:
    """Computes the position vectors (P, D) of `tformer_cli.model.positions.sinusoids`."""
    table = memoryview(bytearray(4 * n_positions * d_model)).cast("f", (n_positions, d_model))
    fill = library.tformer_sinusoids
    fill.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p]
    fill.restype = None
    fill(n_positions, d_model, base, address_of(table))
    return table


def address_of(memory: Any) -> int:  # noqa: ANN401 - whatever has a buffer, as numpy's arrays
    """Returns where numbers lie; they must be writable and in C's order."""
    return ctypes.addressof((ctypes.c_char * 0).from_buffer(memory))


def _turns(library: ctypes.CDLL, config: ModelConfig, _: Mapping[str, Array], __: str) -> Array:
    """(max_positions, E) cosines, then sines, that turn the heads of a stack."""
    import numpy as np

    table = np.asarray(
        sinusoids(library, config.max_positions, config.head_width, config.rotary_base)
    )
    return np.concatenate((table[:, 1::2], table[:, 0::2]), axis=1)


class _Positions(NamedTuple):
    """How the kernels use positions."""

    changes: int
    """Number of what they change in layers.c."""
    rows: Callable[[ctypes.CDLL, ModelConfig, Mapping[str, Array], str], Array | None]
    """(max_positions, D) of a stack, or what turns its heads; None: there are none."""


_STORED = _Positions(0, lambda _, __, weights, side: weights[f"{side}_input.positions.table"])
POSITIONS = MappingProxyType(
    {
        "sinusoidal": _Positions(
            0,
            lambda library, config, _, __: sinusoids(library, config.max_positions, config.d_model),
        ),
        "learned": _STORED,
        "table": _STORED,
        "none": _Positions(0, lambda *_: None),
        "rotary": _Positions(1, _turns),
    }
)
"""Positions that the kernels know."""

KNOWN_MODELS: Mapping[str, Container[Any]] = MappingProxyType(
    {
        **PLAIN_TRANSLATION,
        **dict.fromkeys(
            ("d_model", "n_heads", "d_head", "d_ff", "norm_epsilon", "max_positions",
             "encoder_heads", "decoder_heads", "cross_heads"),
            ANY,
        ),
        # language models and encoder-only models, which are not searched as translators are
        "n_encoder_layers": ANY,
        "n_decoder_layers": ANY,
        **dict.fromkeys(("target_bos", "target_eos"), (False, True)),
        "n_labels": ANY,
        "pooling": ("mean", "first"),
        # the kernels compute the states of an encoder; its head is computed elsewhere
        "head": get_args(Head),
        "pooler": ("none", "tanh", "relu"),
        "unit_length": (False, True),
        "n_key_heads": ANY,
        "norm_kind": NORM_KINDS,
        "gated": (False, True),
        # only for training
        **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), ANY),
        "norm": ("post", "pre"),
        "activation": ACTIVATIONS,
        "positions": POSITIONS,
        **dict.fromkeys((*POSITION_SETTINGS, "bias_heads"), ANY),
        "tied_embeddings": ("all", "decoder", "inputs", "none"),
        "bias": (False, True),
        "decoder_cell": DECODER_CELLS,
        "output_bias": (False, True),
        "final_norm": ("pre-norm", "always"),
        "embedding_norm": (False, True),
        "scale_embeddings": (False, True),
        "source_vocab_size": ANY,
        "source_eos": (False, True),
    }
)  # fmt: skip
"""Settings of models that the kernels compute: a new one is named here with its C code."""


def unsupported_shape(config: ModelConfig, vocab_size: int, *, in_integers: bool) -> str | None:
    """Reason why the kernels cannot compute any model of a shape; None if they can."""
    unknown = unknown_setting(config, KNOWN_MODELS)
    if unknown is not None:
        return f"they do not know {unknown}"
    if vocab_size < N_SPECIAL_TOKENS:
        return "the vocabulary has no end-of-sentence token"
    if config.max_positions * config.d_model > MOST_POSITION_FLOATS:
        return "the table of all its positions would be too large"
    if in_integers and max(config.d_ff, config.d_model) > MOST_INTEGER_INPUTS:
        return "the layers are too wide for sums in 32 bits"
    return None


def in_integers(weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Quantizes float32 matrices, bit for bit as `tformer_cli.fast.quantized.quantize_matrix`."""
    import numpy as np

    result = {}
    # Stored weights are read one by one: not all of them are in memory in floats
    for name, matrix in weights.items():
        result[name] = matrix
        if name.endswith(".weight") and matrix.ndim == 2 and matrix.size:
            values = np.asarray(matrix, np.float32)
            result[name] = integers = np.empty(matrix.shape, np.int8)
            result[f"{name}{SCALE}"] = scale = np.empty(len(matrix), np.float32)
            for first in range(0, len(matrix), ROWS_AT_A_TIME):
                rows = slice(first, first + ROWS_AT_A_TIME)
                _quantize(values[rows], integers[rows], scale[rows])
    return result


def _quantize(
    values: NDArray[np.float32], integers: NDArray[np.int8], scale: NDArray[np.float32]
) -> None:
    """Writes the integers (N, K) and the scales (N) of some rows (N, K)."""
    import numpy as np

    # Without `abs`, which would copy the matrix
    largest = np.maximum(values.max(axis=1), -values.min(axis=1))
    scale[:] = np.where(largest > 0, largest, np.float32(1.0)) / np.float32(127.0)
    # Divided, not multiplied by 1 / scale: torch's bits are those of a division
    rounded = values / scale[:, None]
    integers[:] = np.rint(rounded, out=rounded)


_N_OF_INPUT = 5
"""Weights of a stack's input: embeddings, their scale, positions, and a norm's two."""
_N_OF_PROJECTION = 3
"""Weights of a projection: a matrix, its bias and its scale."""
_ReleaseWeight = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
"""The function type of that name in model.h."""


class PackedModel:
    """A model's weights as the kernels read them."""

    def __init__(
        self,
        library: ctypes.CDLL,
        config: ModelConfig,
        vocab_size: int,
        weights: Mapping[str, Array],
        release: Callable[[Array], None] | None = None,
    ) -> None:
        """Packs a model; embeddings and norms must stay as they are from then on."""
        self.vocab_size = vocab_size
        self.source_vocab_size = config.source_vocab_size or vocab_size
        self.max_positions = config.max_positions
        self.d_model = config.d_model
        self.is_decoder_only = config.is_decoder_only
        self.is_encoder_only = config.is_encoder_only
        self.source_eos = config.source_eos
        ordered = list(_order_weights(library, config, weights))
        addresses = [None if weight is None else address_of(weight) for weight in ordered]
        pointers = (ctypes.c_void_p * len(ordered))(*addresses)
        library.tformer_new_model.restype = ctypes.c_void_p
        library.tformer_new_model.argtypes = [ctypes.c_void_p, ctypes.c_void_p, _ReleaseWeight]
        library.tformer_free_model.restype = None
        library.tformer_free_model.argtypes = [ctypes.c_void_p]
        shape = _shape(config, vocab_size)
        # The kernels know only addresses
        pairs = zip(addresses, ordered, strict=True)
        by_address = {at: weight for at, weight in pairs if at is not None and weight is not None}
        self._released = _ReleaseWeight(
            0 if release is None else lambda address: release(by_address[address])
        )
        self.pointer = library.tformer_new_model(ctypes.byref(shape), pointers, self._released)
        # The kernels cannot raise; no model is their way to say it
        if not self.pointer:
            raise ModelMemoryError("there is not enough memory for the packed weights")
        weakref.finalize(self, library.tformer_free_model, self.pointer)
        # The kernels copy the matrices that they multiply by; embeddings, positions and the output
        # matrix, which come first, and norms, which are vectors, they read where they are
        kept = {id(weight) for weight in ordered[: 2 * _N_OF_INPUT + 1]}
        for address, weight in tuple(by_address.items()):
            if weight.ndim > 1 and id(weight) not in kept:
                del by_address[address]
        self._read_in_place = by_address


def _shape(config: ModelConfig, vocab_size: int) -> Shape:
    heads = [(ctypes.c_int64 * len(layer))(*layer) for layer in config.layer_heads]
    return Shape(
        config.d_model,
        config.head_width,
        config.d_ff,
        vocab_size,
        config.max_positions,
        config.n_encoder_layers,
        config.n_decoder_layers,
        *(ctypes.cast(layer, ctypes.POINTER(ctypes.c_int64)) for layer in heads),
        config.n_heads // (config.n_key_heads or config.n_heads),
        config.norm_epsilon,
        config.is_pre_norm,
        ACTIVATIONS[config.activation],
        POSITIONS[config.positions].changes,
        DECODER_CELLS[config.decoder_cell],
        config.scale_embeddings,
        NORM_KINDS[config.norm_kind],
        config.gated,
    )


def _order_weights(
    library: ctypes.CDLL, config: ModelConfig, weights: Mapping[str, Array]
) -> Iterator[Array | None]:
    """All weights in the order of model.h; None where a bias or norm is missing."""
    source = "source_embedding.weight"
    target = "target_embedding.weight"
    target = target if target in weights else source
    for side, embedding, n_layers in (
        ("en", source, config.n_encoder_layers),
        ("de", target, config.n_decoder_layers),
    ):
        if n_layers == 0:
            yield from (None,) * _N_OF_INPUT
            continue
        table = POSITIONS[config.positions].rows(library, config, weights, f"{side}coder")
        yield from (weights[embedding], weights.get(f"{embedding}{SCALE}"), table)
        yield from _norm(weights, f"{side}coder_input.norm")
    if config.is_encoder_only:
        yield from (None,) * _N_OF_PROJECTION
    else:
        output = OUTPUT if OUTPUT in weights else target
        yield from (weights[output], weights.get("output_bias"), weights.get(f"{output}{SCALE}"))
    for number in range(config.n_encoder_layers):
        layer = f"encoder.layers.{number}."
        yield from _attention(weights, f"{layer}self_attention")
        yield from _feed_forward(weights, f"{layer}feed_forward")
    yield from _norm(weights, "encoder.final_norm")
    for number in range(config.n_decoder_layers):
        layer = f"decoder.layers.{number}."
        if config.decoder_cell == "ssru":
            yield from _recurrence(weights, f"{layer}recurrence")
        else:
            yield from _attention(weights, f"{layer}self_attention")
        if not config.is_decoder_only:
            yield from _attention(weights, f"{layer}cross_attention")
        yield from _feed_forward(weights, f"{layer}feed_forward")
    yield from _norm(weights, "decoder.final_norm")


def _recurrence(weights: Mapping[str, Array], name: str) -> Iterator[Array | None]:
    """W and W_f as one matrix (2·D, D), its bias and its scale."""
    import numpy as np

    parts = (f"{name}.input.weight", f"{name}.forget.weight")
    yield np.concatenate([weights[part] for part in parts])
    bias = weights.get(f"{name}.forget.bias")
    # Only the forget gate has a bias, but both are one product
    yield None if bias is None else np.concatenate([np.zeros_like(bias), bias])
    scales = [weights[f"{part}{SCALE}"] for part in parts if f"{part}{SCALE}" in weights]
    yield np.concatenate(scales) if scales else None
    yield from _norm(weights, f"{name}_norm")


def _attention(weights: Mapping[str, Array], name: str) -> Iterator[Array | None]:
    yield from _projection(weights, f"{name}.in_projection")
    yield from _projection(weights, f"{name}.out_projection")
    yield from _norm(weights, f"{name}_norm")


def _feed_forward(weights: Mapping[str, Array], name: str) -> Iterator[Array | None]:
    yield from _projection(weights, f"{name}.inner")
    yield from _projection(weights, f"{name}.outer")
    if f"{name}.gate.weight" in weights:
        yield from _projection(weights, f"{name}.gate")
    yield from _norm(weights, f"{name}_norm")


def _projection(weights: Mapping[str, Array], name: str) -> Iterator[Array | None]:
    """A matrix, its bias, and its scale if it is in integers."""
    matrix = f"{name}.weight"
    yield from (weights[matrix], weights.get(f"{name}.bias"), weights.get(f"{matrix}{SCALE}"))


def _norm(weights: Mapping[str, Array], name: str) -> Iterator[Array | None]:
    yield from (weights.get(f"{name}.weight"), weights.get(f"{name}.bias"))
