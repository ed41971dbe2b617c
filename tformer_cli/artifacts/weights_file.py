"""Weights in safetensors files as numpy arrays, read strictly and without torch.

numpy, too, is imported where something of it is needed: a cold line hands memory to the kernels.
"""

import ctypes
import errno
import json
import math
import mmap
import os
import struct
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

from tformer_cli.artifacts.config_file import WeightType
from tformer_cli.errors import ArtifactError, ModelMemoryError
from tformer_cli.files.regular_file import open_regular
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.weight_shapes import parameter_shapes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from safetensors import safe_open

    from tformer_cli.model.adapter_config import AdaptedPart

MODULES = {
    "self_attention.in_projection": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.out_projection": ("self_attn.out_proj",),
    "self_attention_norm": ("self_attn_layer_norm",),
    "cross_attention.in_projection": (
        "encoder_attn.q_proj",
        "encoder_attn.k_proj",
        "encoder_attn.v_proj",
    ),
    "cross_attention.out_projection": ("encoder_attn.out_proj",),
    "cross_attention_norm": ("encoder_attn_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "feed_forward_norm": ("final_layer_norm",),
}
"""Names of the modules that one of tformer's consists of there, in the order of its rows."""


_PLACES = {"query": 0, "key": 1, "value": 2}


def library_name(part: "AdaptedPart") -> str:
    """The name of a part in the library's classes: `model.encoder.layers.0.self_attn.q_proj`.

    A part that those classes do not have, as the gate of a feed-forward layer, keeps its own name.
    """
    stack, layers, number, module = part.module.split(".", 3)
    own = part.name.rpartition(".")[2]
    names = MODULES.get(module, (own,))
    return ".".join(("model", stack, layers, number, names[_PLACES.get(own, 0)]))


Arrays = Mapping[str, "NDArray[Any]"]
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
    import numpy as np

    stream.write(_header(_shapes(arrays), metadata))
    stream.writelines(
        np.ascontiguousarray(array, dtype=_little_endian(array.dtype)).data
        for array in arrays.values()
    )


def write_header(
    stream: BinaryIO, shapes: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str]
) -> None:
    """Writes the safetensors header; the caller writes the arrays, one after the other."""
    stream.write(_header(shapes, metadata))


def size_of(arrays: Arrays, metadata: Mapping[str, str]) -> int:
    return len(_header(_shapes(arrays), metadata)) + sum(array.nbytes for array in arrays.values())


def _shapes(arrays: Arrays) -> dict[str, tuple[str, Sequence[int]]]:
    return {name: (_little_endian(array.dtype).str, array.shape) for name, array in arrays.items()}


def _header(shapes: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, (kind, shape) in shapes.items():
        n_bytes = math.prod(shape) * _item_size(kind)
        header[name] = {
            "dtype": DTYPES[kind],
            "shape": list(shape),
            "data_offsets": [offset, offset + n_bytes],
        }
        offset += n_bytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)  # the arrays begin at a multiple of 8
    return struct.pack("<Q", len(text)) + text


def _little_endian(dtype: "np.dtype[Any]") -> "np.dtype[Any]":
    return dtype.newbyteorder("<")  # the format's order, whatever the machine's


def _item_size(kind: str) -> int:
    """Bytes of a number, by numpy's name of its type."""
    return int(kind[2:])


SCALE = "_scale"
"""Suffix of the scales of an int8 matrix, after the matrix's name."""
_FLOATS = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2"}
"""numpy's names of the format's floating-point types; bfloat16 is read as its bits."""
_AS_STORED: Mapping[str, Any] = {"|i1": "b", **({"<f4": "f"} if sys.byteorder == "little" else {})}
"""Types that are computed with as they are stored, and their names in a memoryview."""
_CACHE_LINE, _BLOCK = 64, 1 << 20
"""Bytes of a line, and those read at a time to be checked: larger arrays have their own pages."""


class StoredArrays(Mapping[str, "NDArray[Any]"]):
    """Tensors of an open file, each read whenever it is asked for; real numbers become float32.

    Nothing of the file is mapped: later changes of the file change nothing read, and a file that
    was cut ends no process. Reading after such a change is an error.
    """

    def __init__(self, path: Path) -> None:
        """Opens a file, which stays the same one if another takes its name."""
        self._path = path
        self._tensors: dict[str, tuple[str, int, tuple[int, ...]]] = {}
        with open_regular(path) as stream:
            self._file = os.dup(stream.fileno())
        weakref.finalize(self, os.close, self._file)
        self._state = _state(os.fstat(self._file))

    def add(self, name: str, kind: str, start: int, shape: tuple[int, ...]) -> None:
        """Adds a tensor of a numpy type that begins at a byte of the file."""
        self._tensors[name] = kind, start, shape

    def remove(self, name: str) -> None:
        del self._tensors[name]

    def __getitem__(self, name: str) -> "NDArray[Any]":
        import numpy as np

        return np.asarray(self.memory(name))

    def memory(self, name: str) -> "memoryview | NDArray[Any]":
        """Reads a tensor; without numpy where nothing has to be converted."""
        kind, start, shape = self._tensors[name]
        try:
            memory = _empty(math.prod(shape) * _item_size(kind), start, _item_size(kind))
            self._fill(memory, start)
            if kind in _AS_STORED and 0 not in shape:  # which a memoryview cannot have
                return memory.cast(_AS_STORED[kind], shape)
            import numpy as np

            return _as_float32(np.frombuffer(memory, kind).reshape(shape))
        except (MemoryError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ENOMEM:
                raise
            megabytes = math.ceil(os.fstat(self._file).st_size / (1 << 20))
            raise ModelMemoryError(
                f"{self._path}: needs at least {megabytes:,} MB of memory, and there is less"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def check_finite(self, name: str) -> None:
        """Refuses NaN and infinity: such a model translates to nothing."""
        kind, start, shape = self._tensors[name]
        left = math.prod(shape) * _item_size(kind)
        block = bytearray(min(left, _BLOCK))
        while left:
            del block[left:]
            self._fill(memoryview(block), start)
            if not _is_finite(block, kind):
                raise ArtifactError(
                    f"{self._path}: {name} contains NaN or infinity; the file is damaged, or "
                    "training diverged: restore it or train again"
                )
            start, left = start + len(block), left - len(block)

    def check_unchanged(self, path: Path | None = None) -> None:
        """Refuses a file that was overwritten or replaced since it was opened."""
        status = os.fstat(self._file) if path is None else path.stat()
        if _state(status) != self._state:
            raise ArtifactError(
                f"{self._path}: was changed while in use; write a new model elsewhere and "
                "rename it, then start again"
            )

    def _fill(self, view: memoryview, start: int) -> None:
        done = 0
        while done < len(view) and (n_bytes := _read_at(self._file, view[done:], start + done)):
            done += n_bytes
        self.check_unchanged()


def _state(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _read_at(file: int, view: memoryview, start: int) -> int:
    if hasattr(os, "preadv"):  # processes that were forked share the place in the file
        return os.preadv(file, [view], start)
    os.lseek(file, start, os.SEEK_SET)
    data = os.read(file, min(len(view), _BLOCK))
    view[: len(data)] = data
    return len(data)


def _empty(n_bytes: int, start: int, item: int) -> memoryview:
    """Makes room for the data at a byte of the file, aligned as if the file were mapped.

    The last bits of products depend on where in a line of the cache the numbers begin, which must
    not differ from run to run. Much room has pages of its own, which `free_pages` gives back.
    """
    place = start % _CACHE_LINE // item * item
    if n_bytes < _BLOCK or not hasattr(mmap, "MADV_DONTNEED"):
        memory: Any = bytearray(n_bytes + 2 * _CACHE_LINE)
        place += -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % _CACHE_LINE
    else:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        memory = mmap.mmap(-1, n_bytes + _CACHE_LINE, flags=flags)
    return memoryview(memory)[place : place + n_bytes]


def free_pages(array: "memoryview | NDArray[Any]") -> None:
    """Releases the memory pages of a stored array that is no longer read; it then holds zeros."""
    pages: Any = array
    while (base := getattr(pages, "base", None)) is not None:
        pages = base
    pages = getattr(pages, "obj", pages)  # of a memoryview
    if isinstance(pages, mmap.mmap):
        pages.madvise(mmap.MADV_DONTNEED)


def _as_float32(stored: "NDArray[Any]") -> "NDArray[Any]":
    """Widens or rounds real numbers; int8 stays."""
    import numpy as np

    if stored.dtype == np.int8:
        return stored
    if stored.dtype == np.uint16:  # bfloat16, the upper half of a float32's bits
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # becomes infinity, which is refused
        return stored.astype(np.float32, copy=False)


def read_weights(
    path: Path,
    config: ModelConfig,
    vocab_size: int,
    weight_type: WeightType = "float32",
    *,
    adapters: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> StoredArrays:
    """Checks a model's weights, which are read whenever they are asked for.

    They are float32 and, if `weight_type` says so, int8 matrices whose scales stand under their
    name and `SCALE`.
    """
    shapes = tensor_shapes(path)
    n_layers = config.n_encoder_layers + config.n_decoder_layers
    if n_layers > len(shapes):  # else a damaged number of layers would make shapes without end
        raise ArtifactError(
            f"{path}: has too few tensors for {n_layers} layers; restore this model's own weights"
        )
    expected = {**parameter_shapes(config, vocab_size), **adapters}
    matrices = [
        n for n, shape in expected.items() if weight_type == "int8" and _is_matrix(n, shape)
    ]
    expected |= {f"{name}{SCALE}": expected[name][:1] for name in matrices}
    arrays = StoredArrays(path)
    check_shapes(path, shapes, expected)
    header, start = read_header(path)
    arrays.check_unchanged(path)
    for name, shape in expected.items():
        kind, place = header[name]["dtype"], start + header[name]["data_offsets"][0]
        if name not in matrices:
            _add_floats(arrays, path, name, kind, place, shape)
        elif kind == "I8":
            arrays.add(name, "|i1", place, shape)
        else:
            raise ArtifactError(
                f"{path}: {name} is not int8, but config.json says so; restore this model's own "
                "weights"
            )
    for name in matrices:  # a layer whose heads were all pruned has nothing to quantize
        if 0 in expected[name]:
            arrays.add(name, "<f4", 0, expected[name])
            arrays.remove(f"{name}{SCALE}")
    return arrays


def _add_floats(
    arrays: StoredArrays, path: Path, name: str, kind: str, start: int, shape: tuple[int, ...]
) -> None:
    if kind not in _FLOATS:
        raise ArtifactError(
            f"{path}: {name} is not floating-point; restore this model's own weights"
        )
    arrays.add(name, _FLOATS[kind], start, shape)
    arrays.check_finite(name)


def _is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Returns whether a weight is a matrix that int8 models hold in integers."""
    return name.endswith(".weight") and len(shape) == 2


def _is_finite(block: bytearray, kind: str) -> bool:
    """Returns whether there is neither NaN nor infinity among stored numbers."""
    last = block[_item_size(kind) - 1 :: _item_size(kind)]
    # With eight bits of exponent, these two are infinity, NaN or numbers from 2^127 on
    if kind in ("<f4", "<u2") and 0x7F not in last and 0xFF not in last:
        return True
    import numpy as np

    return all_finite(_as_float32(np.frombuffer(block, kind)))


def all_finite(values: "NDArray[np.float32]") -> bool:
    """Returns whether there is neither NaN nor infinity among numbers."""
    import numpy as np

    # The sum is quick, and finite unless one of them is not (or it overflows)
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


def read_floats(path: Path) -> "dict[str, NDArray[np.float32]]":
    """Reads all tensors of a small file as float32."""
    shapes, arrays = tensor_shapes(path), StoredArrays(path)
    header, start = read_header(path)
    arrays.check_unchanged(path)
    for name, shape in shapes.items():
        place = start + header[name]["data_offsets"][0]
        _add_floats(arrays, path, name, header[name]["dtype"], place, shape)
    return dict(arrays)


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Reads the names and shapes of a file's tensors, as strictly as the format's own library."""
    try:
        with _readable(path):
            return _checked_shapes(read_header(path)[0])
    except (ValueError, TypeError, AttributeError, LookupError):
        raise ArtifactError(f"{path}: {_DAMAGED}") from None


def _checked_shapes(header: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    shapes, end = dict[str, tuple[int, ...]](), 0
    is_whole = all(isinstance(text, str) for text in header.pop(_METADATA, {}).values())
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        shapes[name], (start, stop) = tuple(entry["shape"]), entry["data_offsets"]
        is_whole &= all(type(n) is int and n >= 0 for n in (*shapes[name], start, stop))
        # One after the other, without gaps
        n_bits = int(entry["dtype"].partition("_")[0].lstrip("BCFIU"))  # as of F8_E4M3
        n_bytes = math.prod(shapes[name]) * (n_bits // 8)
        is_whole &= (start, stop) == (end, end + n_bytes)
        end = stop
    if not is_whole:
        raise ValueError
    return shapes


def check_shapes(
    path: Path, shapes: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]
) -> None:
    for name, shape in expected.items():
        if name not in shapes:
            raise ArtifactError(f"{path}: has no tensor {name}; restore this model's own weights")
        if shapes[name] != shape:
            raise ArtifactError(
                f"{path}: {name} has shape {list(shapes[name])}, but config.json asks for "
                f"{list(shape)}; restore the weights and config.json of one model"
            )
    unknown = next((name for name in shapes if name not in expected), None)
    if unknown is not None:
        raise ArtifactError(
            f"{path}: has an unknown tensor {unknown}; restore this model's own weights"
        )


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Reads the header of a file of the right length; returns also where the data begin."""
    with open_regular(path) as file:
        length = os.fstat(file.fileno()).st_size
        start = file.read(_LENGTH)
        n_header = int.from_bytes(start, "little")
        # The first bytes of another file may ask for gigabytes
        if len(start) < _LENGTH or not 0 < n_header <= min(_LARGEST_HEADER, length):
            raise ArtifactError(f"{path}: {_DAMAGED}")
        try:
            header = json.loads(file.read(n_header))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != _METADATA]
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
            raise ArtifactError(f"{path}: {_DAMAGED}") from None
    expected = _LENGTH + n_header + max((end for end in ends if isinstance(end, int)), default=0)
    if length != expected:
        raise ArtifactError(
            f"{path}: is damaged (has {length:,} bytes, but its header promises {expected:,}); "
            "copy it again, or use another one"
        )
    return header, _LENGTH + n_header


def open_tensors(path: Path, framework: str, device: str = "cpu") -> "safe_open":
    """Opens a file for reading tensors as arrays ("np") or torch's ("pt")."""
    from safetensors import SafetensorError, safe_open

    try:
        with _readable(path):
            read_header(path)  # compares lengths before anything of the file is mapped
            return safe_open(path, framework=framework, device=device)
    except SafetensorError:
        raise ArtifactError(f"{path}: {_DAMAGED}") from None


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Says of a file that is not there or cannot be read what to do."""
    try:
        yield
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such file; copy the whole model directory") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path}: cannot be read ({reason}); use another file") from None


_DAMAGED = "is damaged or not a safetensors file; copy it again, or use another one"
_LENGTH, _LARGEST_HEADER, _METADATA = 8, 1 << 23, "__metadata__"
"""Bytes of the header's length, of the longest header, of some 80,000 tensors; a name in it."""
