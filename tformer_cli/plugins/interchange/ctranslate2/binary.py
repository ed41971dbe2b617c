"""CTranslate2's `model.bin`: named arrays in one of six types of numbers.

The layout, all numbers little-endian: the version of the format, the name and revision of the kind
of model, the number of arrays; of each its name, rank, dimensions, type, bytes and data; aliases.
A text is its 16-bit length, its bytes and a NUL that the length counts. Versions before 4 write
the bytes of a number and their count instead of a type. Source: CTranslate2 4.8, model_spec.py.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tformer_cli.files.regular_file import open_regular
from tformer_cli.foreign.formats.mapped_file import Array, LazyArrays, MappedFile, widen_array

# numpy's names of the types by their numbers; the last are the bits of bfloat16
TYPES = ("<f4", "|i1", "<i2", "<i4", "<f2", "<u2")
BFLOAT16 = 5
TYPES_BY_SIZE = {4: "<f4", 2: "<i2", 1: "|i1"}
NEWEST = 6
SCALE = "_scale"  # suffix of the scales of the rows of an array of integers
_MOST_ARRAYS = 100_000
_LONGEST_HEAD = 128
_KIND = re.compile(rb"[A-Z][A-Za-z0-9]+(Spec|Base)\0")


@dataclass(frozen=True)
class CTranslate2File:
    """Content of a `model.bin`."""

    kind: str  # name of the kind of model, such as "TransformerSpec"
    revision: int
    version: int
    arrays: LazyArrays


def is_ctranslate2(path: Path) -> bool:
    """Returns whether a file begins like a `model.bin`: a small version and the name of a kind."""
    try:
        with open_regular(path) as file:
            head = file.read(_LONGEST_HEAD)
    except OSError:
        return False
    version = int.from_bytes(head[:4], "little")
    if version == 1:  # Marian's begin alike, but have eight bytes for it
        return int.from_bytes(head[4:8], "little") > 0
    name = head[6 : 6 + int.from_bytes(head[4:6], "little")]
    return 1 < version < 1 << 8 and bool(_KIND.fullmatch(name))


def read_ctranslate2(path: Path) -> CTranslate2File:
    file = MappedFile(path, "a model file of CTranslate2")
    version = file.number(4)
    if not 1 <= version <= NEWEST:
        raise file.damage_error(f"it has version {version}, not 1 to {NEWEST}")
    kind = "TransformerBase" if version < 2 else _text(file)
    revision = 1 if version < 2 else file.number(4)
    n_arrays = file.number(4)
    if n_arrays > _MOST_ARRAYS:
        raise file.damage_error(f"it promises {n_arrays:,} arrays")
    readers: dict[str, Callable[[], Array]] = {}
    for _ in range(n_arrays):
        name = _text(file)
        readers[name] = _array(file, version, name)
    for _ in range(file.number(4) if version >= 3 else 0):
        alias, name = _text(file), _text(file)
        if name not in readers:
            raise file.damage_error(f"{alias} stands for {name}, which is not there")
        # The engine finds the scale of integers by the name of the array that an alias stands for
        readers |= {
            f"{alias}{end}": readers[f"{name}{end}"]
            for end in ("", SCALE)
            if f"{name}{end}" in readers
        }
    return CTranslate2File(kind, revision, version, LazyArrays(readers))


def _array(file: MappedFile, version: int, name: str) -> Callable[[], Array]:
    rank = file.number(1)
    shape = file.numbers("<u4", rank)
    kind = file.number(1)
    if version < 4:
        size = file.number(4) * kind
        dtype = TYPES_BY_SIZE.get(kind)
    else:
        size = file.number(4)
        dtype = TYPES[kind] if kind < len(TYPES) else None
    if dtype is None:
        raise file.damage_error(f"{name} has the unknown type {kind}")
    start = file.position
    array = file.array(dtype, shape)
    if file.position - start != size:
        raise file.damage_error(f"{name} has {size:,} bytes, but its shape is {shape}")
    is_bfloat16 = version >= 4 and kind == BFLOAT16
    return lambda: widen_array(array, is_bfloat16=is_bfloat16)


def _text(file: MappedFile) -> str:
    return file.take(file.number(2)).rstrip(b"\0").decode("utf-8", errors="replace")
