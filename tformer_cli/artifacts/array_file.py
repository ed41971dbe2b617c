"""Named numpy arrays as a safetensors file, the same bytes for the same arrays.

The library orders a header's entries in its own way, which varies from run to run; here they keep
the order given. The format: 8 bytes of header length, the header as JSON, the arrays' bytes.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
DTYPES = {
    "<f4": "F32",
    "<f2": "F16",
    "|i1": "I8",
    "|u1": "U8",
    "<u2": "U16",
    "<i4": "I32",
    "<i8": "I64",
}
"""The format's name of each type, by numpy's name of its little-endian form."""


def write_arrays(stream: BinaryIO, arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """Writes arrays one after the other.

    Args:
        stream: the output.
        arrays: the arrays, of types among `DTYPES`.
        metadata: texts for the header's ``__metadata__``.
    """
    stream.write(_header(_shapes(arrays), metadata))
    stream.writelines(
        np.ascontiguousarray(array, dtype=_little_endian(array.dtype)).data
        for array in arrays.values()
    )


def write_header(
    stream: BinaryIO, shapes: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str]
) -> None:
    """Writes what stands before arrays that the caller writes, one after the other.

    Args:
        stream: the output.
        shapes: for each array its type, one of `DTYPES`, and its shape.
        metadata: see `write_arrays`.
    """
    stream.write(_header(shapes, metadata))


def size_of(arrays: Arrays, metadata: Mapping[str, str]) -> int:
    """Bytes that `write_arrays` writes."""
    return len(_header(_shapes(arrays), metadata)) + sum(array.nbytes for array in arrays.values())


def _shapes(arrays: Arrays) -> dict[str, tuple[str, Sequence[int]]]:
    return {name: (_little_endian(one.dtype).str, one.shape) for name, one in arrays.items()}


def _header(shapes: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, (kind, shape) in shapes.items():
        n_bytes = math.prod(shape) * np.dtype(kind).itemsize
        header[name] = {
            "dtype": DTYPES[kind],
            "shape": list(shape),
            "data_offsets": [offset, offset + n_bytes],
        }
        offset += n_bytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)  # the arrays begin at a multiple of 8
    return struct.pack("<Q", len(text)) + text


def _little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<")
