"""The structs that Python and the kernels share, and the check that both lay them out alike.

A struct that grew on only one side would let the kernels write into foreign memory. So the
library states the size of each (handshake.c), and one that states another is not used.
"""

from __future__ import annotations

import ctypes
from typing import Any

TellToken = ctypes.CFUNCTYPE(None, ctypes.c_int32)
"""The function type of that name in search.h."""
_TYPES: dict[str, Any] = {
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "pointer": ctypes.c_void_p,
    "numbers": ctypes.POINTER(ctypes.c_int64),
    "seed": ctypes.c_uint32 * 2,
    "told": TellToken,
}


def _fields(runs: str) -> list[tuple[str, Any]]:
    """Reads the fields of a struct: a type, and the names that follow one another with it."""
    fields: list[tuple[str, Any]] = []
    for word in runs.split():
        if word.endswith(":"):
            kind = _TYPES[word[:-1]]
        else:
            fields.append((word, kind))
    return fields


class Shape(ctypes.Structure):
    """The struct `Shape` of model.h."""

    _fields_ = _fields("""
        int64: d_model head_width d_ff vocab_size max_positions n_encoder_layers
            n_decoder_layers
        numbers: encoder_heads decoder_heads cross_heads
        int64: group_size
        float: norm_epsilon
        int32: is_pre_norm activation positions decoder_cell scales_embeddings is_rms is_gated
    """)


class Request(ctypes.Structure):
    """The struct `Request` of search.h."""

    _fields_ = _fields("""
        int64: n_sentences
        pointer: tokens starts limits divisors candidates candidate_starts prefixes
            prefix_starts least_lengths
        int64: ngram beam_size n_searched most_rows most_tokens
        pointer: next
        int32: stops_early
        pointer: keys
        double: temperature
        int64: top_k
        double: top_p
        told: tell
        pointer: stop heads
    """)


class Answer(ctypes.Structure):
    """The struct `Answer` of search.h."""

    _fields_ = _fields("""
        pointer: n_found n_tokens log_probability score is_finished places target_tokens steps
            heard_places heard
    """)


class ScoreRequest(ctypes.Structure):
    """The struct `ScoreRequest` of scoring.h."""

    _fields_ = _fields("""
        int64: n_pairs
        pointer: sources source_starts targets target_starts stop steps heads heard recorded
    """)


class EncodeRequest(ctypes.Structure):
    """The struct `EncodeRequest` of encoding.h."""

    _fields_ = _fields("int64: n_texts pointer: tokens starts stop hidden")


class BiasGradient(ctypes.Structure):
    """The struct `BiasGradient` of bias_gradient.h."""

    _fields_ = _fields("""
        int64: n_rows n_columns
        pointer: gradient result
        int32: kind
        pointer: bias_gradient
        int64: n_threads
    """)


class HeadRows(ctypes.Structure):
    """The struct `HeadRows` of attention_training.h."""

    _fields_ = _fields("pointer: numbers int64: row_stride")


_TYPES["rows"] = HeadRows


class AttentionPass(ctypes.Structure):
    """The struct `AttentionPass` of attention_training.h."""

    _fields_ = _fields("""
        int64: n_sentences n_heads head_width
        int32: kind is_causal
        rows: query key value
        pointer: turns query_starts key_starts weight_starts
        int64: most_queries most_keys
        pointer: weights
        rows: context query_gradient key_gradient value_gradient
        int64: n_threads
    """)


class ResidualNorm(ctypes.Structure):
    """The struct `ResidualNorm` of residual_norm.h."""

    _fields_ = _fields("""
        int64: n_rows width
        pointer: residual values
        int32: values_kind result_kind
        seed: seed
        int32: threshold
        float: scale
        pointer: weight bias
        float: epsilon
        pointer: sum statistics result sum_gradient residual_gradient values_gradient
            weight_gradient bias_gradient
        int64: n_threads
    """)


class Orthogonalization(ctypes.Structure):
    """The struct `Orthogonalization` of orthogonal.h."""

    _fields_ = _fields("""
        int64: n_matrices n_rows n_columns
        pointer: matrices result coefficients
        int64: n_iterations
        float: cushion smallest_norm
        int64: n_threads
    """)


class RowLoss(ctypes.Structure):
    """The struct `RowLoss` of loss.h."""

    _fields_ = _fields("""
        int64: n_rows vocab_size
        pointer: logits
        int32: kind writes_gradient
        pointer: targets
        float: target_weight
        pointer: normalizer right
        int64: n_threads
    """)


class Dropout(ctypes.Structure):
    """The struct `Dropout` of dropout.h."""

    _fields_ = _fields("""
        int64: n_values
        pointer: values residual result
        int32: values_kind result_kind
        seed: seed
        int32: threshold
        float: scale
        int64: n_threads
    """)


SHARED = (
    Shape,
    Request,
    Answer,
    ScoreRequest,
    EncodeRequest,
    BiasGradient,
    HeadRows,
    AttentionPass,
    ResidualNorm,
    Orthogonalization,
    RowLoss,
    Dropout,
)
"""All structs that Python fills and the kernels read."""


def find_mismatch(
    library: ctypes.CDLL, structs: tuple[type[ctypes.Structure], ...] = SHARED
) -> str | None:
    """Describes the first struct that a library lays out otherwise; None if there is none."""
    try:
        size_of = library.tformer_struct_size
    except AttributeError:
        return "it states no struct sizes"
    size_of.argtypes, size_of.restype = [ctypes.c_char_p], ctypes.c_size_t
    for struct in structs:
        size, expected = size_of(struct.__name__.encode()), ctypes.sizeof(struct)
        if size != expected:
            return f"its struct {struct.__name__} has {size} bytes instead of {expected}"
    return None
