"""Marian's model files: `.npz`, a zip of numpy's arrays, and `.bin`, also with 8-bit integers.

The layout of `.bin`: two 64-bit numbers (version 1, number of items n), n item headers of four
(length of the name, type, number of dimensions, bytes of data), the names, the shapes as 32-bit
numbers, padding with its length before it, and the data. An 8-bit matrix (Bergamot's, in Firefox)
is followed by one float32 number, by which real numbers were multiplied before they were rounded.
Source: Marian 1.12, src/common/binary.cpp.

Its options and vocabularies are YAML. Scalars stay the texts that they are: in a vocabulary `yes`,
`null` and `1e3` are pieces. Anchors, tags that mean something and deep nesting are refused, so that
the size of a file bounds the work.
"""

import io
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.lib import format as numpy_format

from tformer_cli.errors import ArtifactError
from tformer_cli.files.regular_file import open_regular, read_regular
from tformer_cli.foreign.formats.mapped_file import (
    MOST_DIMENSIONS,
    Array,
    LazyArrays,
    MappedFile,
    widen_array,
)

FLOAT32, INT8 = 0x404, 0x101
# types of matrices for the intgemm library: of Bergamot's Marian, and of Marian 1.12
INTEGERS = (0x4101, 0x10001)
SETTINGS = "special:model.yml"
_KIND = "a model file of Marian"
_VERSION, _MOST_ITEMS, _LONGEST_NAME = 1, 100_000, 1000


@dataclass(frozen=True)
class MarianFile:
    """Content of a Marian model file."""

    # Float32 and int8 arrays by name. An integer matrix W (K, N) of a product x·W, which the file
    # holds transposed, has its own shape here; embeddings are (V, D).
    arrays: LazyArrays
    multipliers: dict[str, float]  # of integer matrices: real number = integer / multiplier
    settings: bytes


def is_marian_binary(path: Path) -> bool:
    """Returns whether a file begins as Marian's do: the version in eight bytes."""
    try:
        with open_regular(path) as file:
            return file.read(8) == _VERSION.to_bytes(8, "little")
    except OSError:
        return False


def read_marian_binary(path: Path) -> MarianFile:
    file = MappedFile(path, _KIND)
    version, n_items = file.numbers("<u8", 2)
    if version != _VERSION:
        raise file.damage_error(f"it has version {version}, not {_VERSION}")
    if n_items > _MOST_ITEMS:
        raise file.damage_error(f"it promises {n_items:,} items")
    headers = [file.numbers("<u8", 4) for _ in range(n_items)]
    if any(n_dimensions > MOST_DIMENSIONS for _, _, n_dimensions, _ in headers):
        raise file.damage_error(f"an array has the shape of more than {MOST_DIMENSIONS} dimensions")
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
                raise file.damage_error(f"{name} has the multiplier {multiplier}")
            multipliers[name] = multiplier
            array = array.T if is_transposed else array
            readers[name] = lambda array=array: array
        elif kind == INT8:
            array = file.array_at(start, "|i1", shape)
            readers[name] = lambda array=array: array
        else:
            raise file.damage_error(f"{name} has the unknown type 0x{kind:x}")
    return MarianFile(LazyArrays(readers), multipliers, settings)


def _name(file: MappedFile, length: int) -> str:
    if length > _LONGEST_NAME:
        raise file.damage_error(f"a name has {length:,} bytes")
    return file.take(length).rstrip(b"\0").decode("utf-8", errors="replace")


# an uncompressed file may be this many times as large as the compressed one, and `FREE_BYTES`
MOST_EXPANSION = 20
FREE_BYTES = 1 << 24
_ENDING = ".npy"


def read_npz(path: Path) -> LazyArrays:
    """Opens a `.npz` file; its arrays are read, and uncompressed, when they are asked for."""
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            entries = archive.infolist()
            length = stream.seek(0, io.SEEK_END)
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise _damage_error(path, error) from None
    size = sum(entry.file_size for entry in entries)
    if size > MOST_EXPANSION * length + FREE_BYTES:
        raise _damage_error(path, f"{length:,} bytes would become {size:,}")
    return LazyArrays(
        {entry.filename.removesuffix(_ENDING): _reader(path, entry) for entry in entries}
    )


def _reader(path: Path, entry: zipfile.ZipInfo) -> Callable[[], Array]:
    def read() -> Array:
        try:
            with zipfile.ZipFile(path) as archive, archive.open(entry) as stream:
                content = stream.read(entry.file_size + 1)
            return _array(content)
        # besides its own error, zipfile raises those of the decompressors and of the system
        except Exception as error:  # noqa: BLE001
            raise _damage_error(path, f"{entry.filename}: {error}") from None

    return read


def _array(content: bytes) -> Array:
    stream = io.BytesIO(content)
    version = numpy_format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"has the version {version}")
    read_header = (
        numpy_format.read_array_header_1_0
        if version == (1, 0)
        else numpy_format.read_array_header_2_0
    )
    shape, is_fortran, dtype = read_header(stream)
    if dtype.kind not in "fiu" or any(length < 0 for length in shape):
        raise ValueError(f"has the type {dtype} and the shape {list(shape)}")
    count, start = math.prod(shape), stream.tell()
    if start + count * dtype.itemsize != len(content):
        raise ValueError(f"does not hold the {count:,} numbers of its shape {list(shape)}")
    array = np.frombuffer(content, dtype, count, start)
    array = array.reshape(shape[::-1]).T if is_fortran else array.reshape(shape)
    return widen_array(array)


def _damage_error(path: Path, reason: object) -> ArtifactError:
    text = " ".join(str(reason).split())[:200]
    return ArtifactError(
        f"{path}: is damaged or not a model file of Marian ({text}); copy it again, or use "
        "another one"
    )


MOST_BYTES = 1 << 26
DEEPEST = 8


def read_yaml(path: Path) -> Any:  # noqa: ANN401
    try:
        content = read_regular(path, MOST_BYTES)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path}: cannot be read ({reason}); name another file") from None
    return parse_yaml(content, str(path))


def parse_yaml(content: bytes, where: str) -> Any:  # noqa: ANN401
    """Turns YAML into dictionaries, lists and strings."""
    # Collections that are open, the outermost a list for the whole; keys that await their value
    waiting: list[Any] = [[]]
    keys: list[str | None] = [None]

    def add(value: object) -> None:
        above = waiting[-1]
        if isinstance(above, list):
            above.append(value)
        elif keys[-1] is None:
            if not isinstance(value, str):
                raise ArtifactError(f"{where}: a key of the YAML is not a text; {_ADVICE}")
            keys[-1] = value
        else:
            above[keys[-1]] = value
            keys[-1] = None

    try:
        for event in yaml.parse(content.decode("utf-8"), Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ArtifactError(f"{where}: has an alias ({event.anchor}); {_ADVICE}")
            if isinstance(event, yaml.ScalarEvent):
                add(event.value)
            elif isinstance(event, yaml.CollectionStartEvent):
                collection: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
                add(collection)
                waiting.append(collection)
                keys.append(None)
                if len(waiting) > DEEPEST:
                    raise ArtifactError(f"{where}: is nested too deeply; {_ADVICE}")
            elif isinstance(event, yaml.CollectionEndEvent):
                waiting.pop()
                keys.pop()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ArtifactError(f"{where}: is not readable YAML ({reason}); {_ADVICE}") from None
    documents = waiting[0]
    return documents[0] if documents else None


def write_yaml(values: Mapping[str, Any]) -> str:
    """Writes a mapping of texts, numbers and lists, an entry a line."""
    text: str = yaml.dump(
        dict(values), Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False, width=1 << 16
    )
    return text


_ADVICE = "copy the file again, or use another one"
