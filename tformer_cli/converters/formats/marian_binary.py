"""Marian's `.bin` files, among them those of Bergamot (Firefox) with 8-bit integers.

The layout: two 64-bit numbers (version 1, number of items n), n item headers of four (length of the
name, type, number of dimensions, bytes of data), the names, the shapes as 32-bit numbers, padding
with its length before it, and the data. An 8-bit matrix is followed by one float32 number, by which
real numbers were multiplied before they were rounded. Source: Marian 1.12, src/common/binary.cpp.
"""

from dataclasses import dataclass
from pathlib import Path

from tformer_cli.converters.formats.lazy_arrays import LazyArrays
from tformer_cli.converters.formats.mapped_file import MOST_DIMENSIONS, MappedFile
from tformer_cli.files.regular_file import open_regular

FLOAT32, INT8 = 0x404, 0x101
INTEGERS = (0x4101, 0x10001)
"""Types of matrices for the intgemm library: of Bergamot's Marian, and of Marian 1.12."""
SETTINGS = "special:model.yml"
_KIND = "a model file of Marian"
_VERSION, _MOST_ITEMS, _LONGEST_NAME = 1, 100_000, 1000


@dataclass(frozen=True)
class MarianFile:
    """Content of a Marian model file."""

    arrays: LazyArrays
    """Float32 and int8 arrays by name. An integer matrix W (K, N) of a product x·W, which the file
    holds transposed, has its own shape here; embeddings are (V, D)."""
    multipliers: dict[str, float]
    """Of integer matrices: real number = integer / multiplier."""
    settings: bytes
    """YAML of the model's options."""


def is_marian_binary(path: Path) -> bool:
    """Returns whether a file begins as Marian's do: the version in eight bytes."""
    try:
        with open_regular(path) as file:
            return file.read(8) == _VERSION.to_bytes(8, "little")
    except OSError:
        return False


def read_marian_binary(path: Path) -> MarianFile:
    """Reads the content of a `.bin` file."""
    file = MappedFile(path, _KIND)
    version, n_items = file.numbers("<u8", 2)
    if version != _VERSION:
        raise file.damaged(f"it has version {version}, not {_VERSION}")
    if n_items > _MOST_ITEMS:
        raise file.damaged(f"it promises {n_items:,} items")
    headers = [file.numbers("<u8", 4) for _ in range(n_items)]
    if any(n_dimensions > MOST_DIMENSIONS for _, _, n_dimensions, _ in headers):
        raise file.damaged(f"an array has the shape of more than {MOST_DIMENSIONS} dimensions")
    names = [_name(file, length) for length, *_ in headers]
    shapes = [tuple(file.numbers("<i4", n_dimensions)) for _, _, n_dimensions, _ in headers]
    file.take(file.number(8))  # padding to the alignment of the data
    multipliers: dict[str, float] = {}
    readers = {}
    settings = b""
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        start = file.position
        file.check_within(start, size)
        file.position += size
        if name == SETTINGS:
            settings = file.bytes[start : start + size].split(b"\0")[0]
        elif kind == FLOAT32:
            array = file.array_at(start, "<f4", shape)
            readers[name] = lambda array=array: array
        elif kind in INTEGERS and len(shape) == 2:
            n_rows, n_columns = shape
            is_transposed = "Wemb" not in name
            array = file.array_at(start, "|i1", shape[::-1] if is_transposed else shape)
            multiplier = float(file.array_at(start + n_rows * n_columns, "<f4", (1,))[0])
            if not 0 < multiplier < float("inf"):
                raise file.damaged(f"{name} has the multiplier {multiplier}")
            multipliers[name] = multiplier
            array = array.T if is_transposed else array
            readers[name] = lambda array=array: array
        elif kind == INT8:
            array = file.array_at(start, "|i1", shape)
            readers[name] = lambda array=array: array
        else:
            raise file.damaged(f"{name} is of the type 0x{kind:x}, which is not known")
    return MarianFile(LazyArrays(readers), multipliers, settings)


def _name(file: MappedFile, length: int) -> str:
    if length > _LONGEST_NAME:
        raise file.damaged(f"a name has {length:,} bytes")
    return file.take(length).rstrip(b"\0").decode("utf-8", errors="replace")
