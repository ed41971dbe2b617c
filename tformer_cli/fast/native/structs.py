"""The structs that Python and the kernels share, and the check that both lay them out alike.

A struct that grew on only one side would let the kernels write into foreign memory. So the
library states the size of each (handshake.c), and one that states another is not used.
"""

from __future__ import annotations

import ctypes


class Shape(ctypes.Structure):
    """The struct `Shape` of model.h."""

    _fields_ = (
        ("d_model", ctypes.c_int64),
        ("head_width", ctypes.c_int64),
        ("d_ff", ctypes.c_int64),
        ("vocab_size", ctypes.c_int64),
        ("max_positions", ctypes.c_int64),
        ("n_encoder_layers", ctypes.c_int64),
        ("n_decoder_layers", ctypes.c_int64),
        ("encoder_heads", ctypes.POINTER(ctypes.c_int64)),
        ("decoder_heads", ctypes.POINTER(ctypes.c_int64)),
        ("cross_heads", ctypes.POINTER(ctypes.c_int64)),
        ("group_size", ctypes.c_int64),
        ("norm_epsilon", ctypes.c_float),
        ("is_pre_norm", ctypes.c_int32),
        ("activation", ctypes.c_int32),
        ("positions", ctypes.c_int32),
        ("decoder_cell", ctypes.c_int32),
        ("scales_embeddings", ctypes.c_int32),
        ("is_rms", ctypes.c_int32),
        ("is_gated", ctypes.c_int32),
    )


TellToken = ctypes.CFUNCTYPE(None, ctypes.c_int32)
"""The function type of that name in search.h."""


class Request(ctypes.Structure):
    """The struct `Request` of search.h."""

    _fields_ = (
        ("n_sentences", ctypes.c_int64),
        ("tokens", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("limits", ctypes.c_void_p),
        ("divisors", ctypes.c_void_p),
        ("candidates", ctypes.c_void_p),
        ("candidate_starts", ctypes.c_void_p),
        ("prefixes", ctypes.c_void_p),
        ("prefix_starts", ctypes.c_void_p),
        ("least_lengths", ctypes.c_void_p),
        ("ngram", ctypes.c_int64),
        ("beam_size", ctypes.c_int64),
        ("n_searched", ctypes.c_int64),
        ("most_rows", ctypes.c_int64),
        ("stops_early", ctypes.c_int32),
        ("keys", ctypes.c_void_p),
        ("temperature", ctypes.c_double),
        ("top_k", ctypes.c_int64),
        ("top_p", ctypes.c_double),
        ("tell", TellToken),
        ("stop", ctypes.c_void_p),
    )


class Answer(ctypes.Structure):
    """The struct `Answer` of search.h."""

    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            "n_found",
            "n_tokens",
            "log_probability",
            "score",
            "is_finished",
            "places",
            "target_tokens",
            "steps",
        )
    )


class ScoreRequest(ctypes.Structure):
    """The struct `ScoreRequest` of scoring.h."""

    _fields_ = (
        ("n_pairs", ctypes.c_int64),
        ("sources", ctypes.c_void_p),
        ("source_starts", ctypes.c_void_p),
        ("targets", ctypes.c_void_p),
        ("target_starts", ctypes.c_void_p),
        ("stop", ctypes.c_void_p),
        ("steps", ctypes.c_void_p),
    )


class EncodeRequest(ctypes.Structure):
    """The struct `EncodeRequest` of encoding.h."""

    _fields_ = (
        ("n_texts", ctypes.c_int64),
        ("tokens", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("stop", ctypes.c_void_p),
        ("hidden", ctypes.c_void_p),
    )


class BiasGradient(ctypes.Structure):
    """The struct `BiasGradient` of bias_gradient.h."""

    _fields_ = (
        ("n_rows", ctypes.c_int64),
        ("n_columns", ctypes.c_int64),
        ("gradient", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("kind", ctypes.c_int32),
        ("bias_gradient", ctypes.c_void_p),
        ("n_threads", ctypes.c_int64),
    )


class HeadRows(ctypes.Structure):
    """The struct `HeadRows` of attention_training.h."""

    _fields_ = (("numbers", ctypes.c_void_p), ("row_stride", ctypes.c_int64))


class AttentionPass(ctypes.Structure):
    """The struct `AttentionPass` of attention_training.h."""

    _fields_ = (
        ("n_sentences", ctypes.c_int64),
        ("n_heads", ctypes.c_int64),
        ("head_width", ctypes.c_int64),
        ("kind", ctypes.c_int32),
        ("is_causal", ctypes.c_int32),
        ("query", HeadRows),
        ("key", HeadRows),
        ("value", HeadRows),
        ("query_starts", ctypes.c_void_p),
        ("key_starts", ctypes.c_void_p),
        ("weight_starts", ctypes.c_void_p),
        ("most_queries", ctypes.c_int64),
        ("most_keys", ctypes.c_int64),
        ("weights", ctypes.c_void_p),
        ("context", HeadRows),
        ("query_gradient", HeadRows),
        ("key_gradient", HeadRows),
        ("value_gradient", HeadRows),
        ("n_threads", ctypes.c_int64),
    )


class ResidualNorm(ctypes.Structure):
    """The struct `ResidualNorm` of residual_norm.h."""

    _fields_ = (
        ("n_rows", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("residual", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("values_kind", ctypes.c_int32),
        ("result_kind", ctypes.c_int32),
        ("seed", ctypes.c_uint32 * 2),
        ("threshold", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("epsilon", ctypes.c_float),
        ("sum", ctypes.c_void_p),
        ("statistics", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("sum_gradient", ctypes.c_void_p),
        ("residual_gradient", ctypes.c_void_p),
        ("values_gradient", ctypes.c_void_p),
        ("weight_gradient", ctypes.c_void_p),
        ("bias_gradient", ctypes.c_void_p),
        ("n_threads", ctypes.c_int64),
    )


class Orthogonalization(ctypes.Structure):
    """The struct `Orthogonalization` of orthogonal.h."""

    _fields_ = (
        ("n_matrices", ctypes.c_int64),
        ("n_rows", ctypes.c_int64),
        ("n_columns", ctypes.c_int64),
        ("matrices", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("coefficients", ctypes.c_void_p),
        ("n_iterations", ctypes.c_int64),
        ("cushion", ctypes.c_float),
        ("smallest_norm", ctypes.c_float),
        ("n_threads", ctypes.c_int64),
    )


class RowLoss(ctypes.Structure):
    """The struct `RowLoss` of loss.h."""

    _fields_ = (
        ("n_rows", ctypes.c_int64),
        ("vocab_size", ctypes.c_int64),
        ("logits", ctypes.c_void_p),
        ("kind", ctypes.c_int32),
        ("writes_gradient", ctypes.c_int32),
        ("targets", ctypes.c_void_p),
        ("target_weight", ctypes.c_float),
        ("normalizer", ctypes.c_void_p),
        ("right", ctypes.c_void_p),
        ("n_threads", ctypes.c_int64),
    )


class Dropout(ctypes.Structure):
    """The struct `Dropout` of dropout.h."""

    _fields_ = (
        ("n_values", ctypes.c_int64),
        ("values", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("values_kind", ctypes.c_int32),
        ("result_kind", ctypes.c_int32),
        ("seed", ctypes.c_uint32 * 2),
        ("threshold", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("n_threads", ctypes.c_int64),
    )


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
        found, expected = size_of(struct.__name__.encode()), ctypes.sizeof(struct)
        if found != expected:
            return f"its struct {struct.__name__} has {found} bytes instead of {expected}"
    return None
