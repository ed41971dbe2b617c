"""Weights in safetensors files or PyTorch checkpoints, in one file or in several with an index.

Checkpoints are read without torch's unpickler. Their zip format holds one pickle (`*/data.pkl`) and
the numbers of each storage (`*/data/KEY`). The older one is a chain of pickles (magic number,
protocol, system, object, storage keys) before the storages, each after the number of its elements
as 64 bits.
"""

import io
import json
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tformer_cli.artifacts.weights_file import open_tensors, read_header
from tformer_cli.errors import ArtifactError
from tformer_cli.files.regular_file import read_regular
from tformer_cli.foreign.formats.mapped_file import (
    MOST_DIMENSIONS,
    Array,
    LazyArrays,
    MappedFile,
    check_no_pointer,
    widen_array,
)
from tformer_cli.foreign.formats.pickles import Named, PickleError, PickleReader, UnreadObject

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
# numpy's names of the numbers of torch's storages
STORAGES = {
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "<u2",
    "DoubleStorage": "<f8",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "|i1",
    "ByteStorage": "|u1",
    "BoolStorage": "|b1",
}
LARGEST_PICKLE = 1 << 26
_LARGEST = 1 << 48  # beyond any number of a tensor's shape and any place in it
_KIND = "a PyTorch checkpoint"
# bytes of the header of a file in a zip, and places of two lengths in it
_LOCAL_HEADER, _NAME_LENGTH, _EXTRA_LENGTH = 30, 26, 28


@dataclass(eq=False)
class _Storage:
    """Numbers that tensors are parts of; where they begin is known once all pickles are read."""

    dtype: str
    count: int
    is_bfloat16: bool
    start: int = -1


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor of a checkpoint."""

    shape: tuple[int, ...]
    read: Callable[[], Array]  # reads its numbers; floating-point ones become float32


def read_checkpoint(path: Path) -> Any:  # noqa: ANN401
    """Reads the saved object: dictionaries, lists and values, with tensors as `StoredTensor`.

    Objects of other classes are `UnreadObject`, with their attributes in its state.
    """
    file = MappedFile(path, _KIND)
    try:
        if file.bytes[:2] == b"PK":
            return _read_zip(file)
        return _read_legacy(file)
    # zipfile raises ValueError, too, the base of PickleError
    except (ValueError, zipfile.BadZipFile, NotImplementedError, OSError) as error:
        raise file.damage_error(" ".join(str(error).split())[:200]) from None


def named_tensors(values: Any) -> LazyArrays:  # noqa: ANN401
    """Returns the tensors among the values of a dictionary such as a `state_dict()`."""
    if not isinstance(values, dict):
        return LazyArrays({})
    return LazyArrays(
        {str(name): value.read for name, value in values.items() if isinstance(value, StoredTensor)}
    )


def plain(value: Any) -> Any:  # noqa: ANN401
    """Returns the attributes of an object that is not read; any other value unchanged."""
    if isinstance(value, UnreadObject):
        # an object without slots, or the pair that one with slots has
        state = value.state[0] if isinstance(value.state, tuple) else value.state
        return state if isinstance(state, dict) else {}
    return value


def _read_zip(file: MappedFile) -> Any:  # noqa: ANN401
    with zipfile.ZipFile(file.path) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
    pickle = next((name for name in entries if name.split("/")[1:] == ["data.pkl"]), None)
    if pickle is None:
        raise file.damage_error("it is a zip without data.pkl")
    folder = pickle.partition("/")[0]
    if f"{folder}/byteorder" in entries:
        start, size = _place(file, entries[f"{folder}/byteorder"])
        if file.bytes[start : start + size] != b"little":
            raise file.damage_error("its numbers are big-endian")

    def storage(kind: Any, key: str, count: int) -> _Storage:  # noqa: ANN401
        entry = entries.get(f"{folder}/data/{key}")
        if entry is None:
            raise PickleError(f"has no storage {key}")
        storage = _make_storage(kind, count)
        storage.start, size = _place(file, entry)
        if count * np.dtype(storage.dtype).itemsize > size:
            raise PickleError(f"storage {key} has {size:,} bytes, too few for {count:,} numbers")
        return storage

    start, size = _place(file, entries[pickle])
    if size > LARGEST_PICKLE:
        raise file.damage_error(f"its pickle has {size:,} bytes")
    return _reader(file, file.bytes[start : start + size], storage).read()


def _place(file: MappedFile, entry: zipfile.ZipInfo) -> tuple[int, int]:
    """Returns where the bytes of a file in a zip begin, and how many there are."""
    if entry.compress_type != zipfile.ZIP_STORED:
        raise file.damage_error(f"{entry.filename} in it is compressed, which torch never does")
    file.position = entry.header_offset
    header = file.take(_LOCAL_HEADER)
    lengths = (
        int.from_bytes(header[at : at + 2], "little") for at in (_NAME_LENGTH, _EXTRA_LENGTH)
    )
    start = file.position + sum(lengths)
    file.check_within(start, entry.file_size)
    return start, entry.file_size


def _read_legacy(file: MappedFile) -> Any:  # noqa: ANN401
    storages: dict[str, _Storage] = {}

    def storage(kind: Any, key: str, count: int) -> _Storage:  # noqa: ANN401
        if key not in storages:
            storages[key] = _make_storage(kind, count)
        return storages[key]

    content = file.bytes[:LARGEST_PICKLE]
    reader = _reader(file, content, storage)
    if reader.read() != MAGIC or reader.read() != PROTOCOL:
        raise file.damage_error("it does not begin as one")
    reader.read()  # the system that wrote it
    value, keys = reader.read(), reader.read()
    file.position = reader.position
    if not isinstance(keys, list) or not all(isinstance(key, str | int) for key in keys):
        raise PickleError("does not list its storages")
    for key in keys:
        at = storages.get(str(key))
        count = file.number(8)
        if at is None or at.count != count:
            raise PickleError(f"storage {str(key)[:20]} does not have the promised size")
        at.start = file.position
        file.array(at.dtype, (count,))
    return value


def _make_storage(kind: Any, count: Any) -> _Storage:  # noqa: ANN401
    dtype = STORAGES.get(kind.name) if isinstance(kind, Named) else None
    if dtype is None or not isinstance(count, int) or count < 0:
        raise PickleError("has a storage of a type that is not known")
    return _Storage(dtype, count, is_bfloat16=kind.name == "BFloat16Storage")


def _reader(
    file: MappedFile, content: bytes, storage: Callable[[Any, str, int], _Storage]
) -> PickleReader:
    def persistent(identifier: Any) -> _Storage:  # noqa: ANN401
        if not isinstance(identifier, tuple) or len(identifier) < 5 or identifier[0] != "storage":
            raise PickleError("refers to what is not a storage")
        _, kind, key, _, count = identifier[:5]
        if not isinstance(key, str | int):  # to write out nested tuples could take for ever
            raise PickleError("has a storage whose name is not a text")
        return storage(kind, str(key), count)

    def tensor(
        stored: Any,  # noqa: ANN401
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        *_: object,
    ) -> StoredTensor:
        return _tensor(file, stored, offset, shape, strides)

    def parameter(data: Any, *_: object) -> Any:  # noqa: ANN401
        return data

    def ordered_dict(items: Any = ()) -> dict[str, Any]:  # noqa: ANN401
        return {key: value for key, value in items if isinstance(key, str)}

    functions: dict[str, Callable[..., Any]] = {
        "collections.OrderedDict": ordered_dict,
        "torch._utils._rebuild_tensor_v2": tensor,
        "torch._utils._rebuild_parameter": parameter,
    }
    return PickleReader(io.BytesIO(content), persistent, functions)


def _tensor(
    file: MappedFile, stored: object, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> StoredTensor:
    """Describes a part of a storage, which must lie in it and repeat none of its numbers."""
    if not isinstance(stored, _Storage) or len(shape) != len(strides):
        raise PickleError("has a tensor without a storage")
    numbers = (offset, *shape, *strides)
    if len(shape) > MOST_DIMENSIONS or not all(
        isinstance(number, int) and 0 <= number < _LARGEST for number in numbers
    ):
        raise PickleError("has a tensor of a shape that is not made of numbers a tensor can have")
    count = math.prod(shape)
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if count and (last >= stored.count or count > stored.count):
        raise PickleError(f"has a tensor of shape {list(shape)[:8]} beyond its storage")

    def read() -> Array:
        if not count:
            return np.empty(shape, np.float32)
        flat = file.array_at(stored.start, stored.dtype, (stored.count,))[offset:]
        steps = [step * flat.itemsize for step in strides]
        part = np.lib.stride_tricks.as_strided(flat, shape, steps, writeable=False)
        return widen_array(part, is_bfloat16=stored.is_bfloat16)

    return StoredTensor(tuple(shape), read)


DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}
_LARGEST_INDEX = 1 << 24


def read_safetensors(path: Path) -> LazyArrays:
    """Opens a safetensors file; floating-point arrays are float32 when they are read."""
    with open_tensors(path, "np"):  # the library checks what the header says
        header, start = read_header(path)
    file = MappedFile(path, "a safetensors file")
    arrays = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        kind = entry["dtype"]
        if kind not in DTYPES:
            raise file.damage_error(f"{name} has the unknown type {kind}")
        at = start + entry["data_offsets"][0]
        arrays[name] = lambda at=at, kind=kind, shape=entry["shape"]: widen_array(
            file.array_at(at, DTYPES[kind], shape), is_bfloat16=kind == "BF16"
        )
    return LazyArrays(arrays)


def read_weights_of(directory: Path) -> tuple[LazyArrays, list[Path]]:
    """Opens the weights of a Hugging Face model: safetensors if there are, else a checkpoint."""
    readers = (
        ("model.safetensors", read_safetensors),
        ("pytorch_model.bin", lambda path: named_tensors(read_checkpoint(path))),
    )
    for name, read in readers:
        whole, index = directory / name, directory / f"{name}.index.json"
        if whole.is_file():
            check_no_pointer(whole)
            return read(whole), [whole]
        if index.is_file():
            files = _shards(index)
            arrays = LazyArrays({})
            for file in files:
                if file.is_file():
                    check_no_pointer(file)
                arrays |= read(file)
            return arrays, files
    if any(directory.glob("*.onnx")) or any(directory.glob("onnx/*.onnx")):
        raise ArtifactError(
            f"{directory}: holds an ONNX graph, which is not read; name the model that it was "
            "exported from"
        )
    raise ArtifactError(
        f"{directory}: has neither model.safetensors nor pytorch_model.bin; download the weights "
        "into it"
    )


def _shards(index: Path) -> list[Path]:
    """Reads the files that an index names, all of them next to it."""
    try:
        named = json.loads(read_regular(index, _LARGEST_INDEX))["weight_map"].values()
        names = sorted({str(name) for name in named})
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ArtifactError(f"{index}: is not an index of weights; download it again") from None
    if any(Path(name).name != name or not name.isprintable() for name in names):
        raise ArtifactError(f"{index}: names a file of another directory; download it again")
    return [index.parent / name for name in names]
