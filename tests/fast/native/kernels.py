"""The kernels' own structs and functions, as tests call them."""

import ctypes
from ctypes import POINTER, c_bool, c_float, c_int32, c_size_t, c_void_p

import torch

from tformer_cli.fast.native.structs import find_mismatch


class PackedMatrix(ctypes.Structure):
    _fields_ = (
        ("n_inputs", c_size_t),
        ("n_outputs", c_size_t),
        ("panels", c_void_p),
        ("integers", c_void_p),
        ("starts", c_void_p),
        ("scale", c_void_p),
    )


class Linear(ctypes.Structure):
    _fields_ = (("matrix", PackedMatrix), ("bias", c_void_p))


class Epilogue(ctypes.Structure):
    _fields_ = (
        ("row_scale", c_void_p),
        ("bias", c_void_p),
        ("relu", c_bool),
        ("residual", c_void_p),
    )


class QuantizedRows(ctypes.Structure):
    _fields_ = (("integers", c_void_p), ("scale", c_void_p))


class Norm(ctypes.Structure):
    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("is_rms", c_int32))


class Memory(ctypes.Structure):
    _fields_ = (
        ("n_positions", c_size_t),
        ("n_heads", c_size_t),
        ("group_size", c_size_t),
        ("head_width", c_size_t),
        ("panels", c_void_p),
    )


class Arena(ctypes.Structure):
    _fields_ = (("memory", c_void_p), ("used", c_size_t), ("is_too_large", c_bool))


class NextTokens(ctypes.Structure):
    _fields_ = (
        ("forced", c_int32), ("forbidden", c_void_p), ("n_forbidden", c_size_t),
        ("n_passed", c_size_t), ("n_best", c_size_t), ("tokens", POINTER(c_int32)),
        ("values", POINTER(c_float)), ("end", c_float), ("largest", c_float), ("sum", c_float),
    )  # fmt: skip


class Vocabulary(ctypes.Structure):
    _fields_ = (("k", c_size_t), ("rows", POINTER(NextTokens)), ("logits", c_void_p))


STRUCTS = (
    PackedMatrix, Linear, Epilogue, QuantizedRows, Norm, Memory, Arena, NextTokens, Vocabulary,
)  # fmt: skip

LOWER_LEVELS = ("x86-64-v3", "x86-64-v2")
"""Levels that training is tested with, beside the one in use."""


def declare(library):
    """Tells ctypes the types of the functions that tests call, of those that are there."""
    if hasattr(library, "tformer_struct_size"):  # not a build of some of the sources
        assert find_mismatch(library, STRUCTS) is None
    size, pointer = c_size_t, c_void_p
    for name, result, arguments in (
        ("packed_size", size, [size, size]),
        ("row_stride", size, [size]),
        ("pack_matrix", None, [pointer, size, size, size, pointer]),
        ("pack_transposed", None, [pointer, size, size, size, pointer]),
        ("multiply", None, [pointer, pointer, size, size, Epilogue, pointer, size]),
        ("normalize", None, [pointer, pointer, size, size, size, c_float, pointer]),
        ("memory_size", size, [size, size, size]),
        ("pack_memory", None, [pointer, pointer, pointer, size]),
        ("attend", None, [pointer, pointer, size, size, pointer, pointer, size]),
        ("attend_to_past", None, [pointer, *[size] * 5, pointer, pointer, pointer]),
        ("lay_out_vocabulary", None, [pointer, size, size, pointer]),
        ("best_tokens", None, [pointer, pointer, size, pointer, pointer]),
        ("integers_size", size, [size, size]),
        ("starts_size", size, [size]),
        ("sum_integers", None, [pointer, size, size, pointer]),
        ("pack_integers", None, [pointer, size, size, pointer]),
        ("lay_out_quantized_rows", None, [pointer, size, size, pointer]),
        ("multiply_any", None, [pointer, pointer, size, size, Epilogue, pointer, size, pointer]),
        ("arena_take", pointer, [pointer, size, size]),
        ("arena_allocate", c_bool, [pointer]),
        ("arena_free", None, [pointer]),
    ):
        function = getattr(library, name, None)
        if function is not None:
            function.restype, function.argtypes = result, arguments
    return library


def pack_matrix(library, matrix, *, transposed=False):
    """Packs a matrix (N, K), or one that is given as (K, N); returns it and what must stay."""
    n_outputs, n_inputs = matrix.T.shape if transposed else matrix.shape
    panels = torch.full((library.packed_size(n_outputs, n_inputs),), torch.nan)
    pack = library.pack_transposed if transposed else library.pack_matrix
    pack(matrix.data_ptr(), n_outputs, n_inputs, matrix.stride(0), panels.data_ptr())
    return PackedMatrix(n_inputs, n_outputs, panels.data_ptr()), panels


def packed_integers(library, matrix):
    """Packs a `QuantizedMatrix`; returns it and what must stay."""
    n_outputs, n_inputs = matrix.integers.shape
    integers = torch.full((library.integers_size(n_outputs, n_inputs),), -1, dtype=torch.int8)
    starts = torch.full((library.starts_size(n_outputs),), -1, dtype=torch.int32)
    given = matrix.integers.contiguous()
    library.sum_integers(given.data_ptr(), n_outputs, n_inputs, starts.data_ptr())
    library.pack_integers(given.data_ptr(), n_outputs, n_inputs, integers.data_ptr())
    pointers = integers.data_ptr(), starts.data_ptr(), matrix.scale.data_ptr()
    return PackedMatrix(n_inputs, n_outputs, None, *pointers), (integers, starts, matrix.scale)


def quantized_rows(library, n_rows, width):
    """Room for rows in integers; returns it and the arena it lies in."""
    arena, rows = Arena(), QuantizedRows()
    for step in range(2):
        library.lay_out_quantized_rows(ctypes.byref(arena), n_rows, width, ctypes.byref(rows))
        assert step or library.arena_allocate(ctypes.byref(arena))
    return rows, arena


def multiply(library, matrix, x, *, bias=None, relu=False, residual=None):
    """x·Wᵀ by the kernels, with what follows; `matrix` is from `packed` or `packed_integers`."""
    result = torch.full((len(x), matrix.n_outputs), torch.nan)
    if residual is not None:
        result.copy_(residual)
    epilogue = Epilogue(
        None,
        None if bias is None else bias.data_ptr(),
        relu,
        None if residual is None else result.data_ptr(),
    )
    rows, arena = quantized_rows(library, len(x), matrix.n_inputs)
    library.multiply_any(
        ctypes.byref(matrix), x.data_ptr(), x.stride(0), len(x), epilogue, result.data_ptr(),
        result.stride(0), ctypes.byref(rows),
    )  # fmt: skip
    library.arena_free(ctypes.byref(arena))
    return result
