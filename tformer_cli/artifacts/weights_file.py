"""Weights in safetensors files as numpy arrays, read strictly and without torch."""

import json
import math
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from tformer_cli.artifacts.config_file import WeightType
from tformer_cli.errors import ArtifactError
from tformer_cli.files.regular_file import open_regular
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.weight_shapes import parameter_shapes

if TYPE_CHECKING:
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
    stream.write(_header(_shapes(arrays), metadata))
    stream.writelines(
        np.ascontiguousarray(array, dtype=_little_endian(array.dtype)).data
        for array in arrays.values()
    )


def write_header(
    stream: BinaryIO, shapes: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, str]
) -> None:
    """Writes what stands before arrays that the caller writes, one after the other."""
    stream.write(_header(shapes, metadata))


def size_of(arrays: Arrays, metadata: Mapping[str, str]) -> int:
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
    return dtype.newbyteorder("<")  # the format's order, whatever the machine's


SCALE = "_scale"
"""Ends the name of the scales of an int8 matrix, behind the matrix's name."""
_FLOATS = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2"}
"""numpy's names of the format's floating-point types; bfloat16 is read as its bits."""


class StoredWeights(NamedTuple):
    """A model's weights where the system has mapped their file."""

    arrays: Mapping[str, NDArray[Any]]
    """float32, and int8 matrices whose scales stand under their name and `SCALE`."""
    mapping: mmap.mmap

    def free_pages(self, array: NDArray[Any] | None = None) -> None:
        """Gives the memory of the file back; what is read again comes from the file again."""
        if array is None:
            _free(self.mapping, 0, len(self.mapping))
            return
        start = array.ctypes.data - np.frombuffer(self.mapping, np.uint8).ctypes.data
        if 0 <= start < len(self.mapping):
            _free(self.mapping, start, array.nbytes)


def read_weights(
    path: Path,
    config: ModelConfig,
    vocab_size: int,
    weight_type: WeightType = "float32",
    *,
    adapters: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> StoredWeights:
    found = tensor_shapes(path)
    n_layers = config.n_encoder_layers + config.n_decoder_layers
    if n_layers > len(found):  # else a damaged number of layers would make shapes without end
        raise ArtifactError(
            f"{path}: has too few tensors for {n_layers} layers; restore this model's own weights"
        )
    expected = {**parameter_shapes(config, vocab_size), **adapters}
    matrices = [
        n for n, shape in expected.items() if weight_type == "int8" and _is_matrix(n, shape)
    ]
    expected |= {f"{name}{SCALE}": expected[name][:1] for name in matrices}
    check_shapes(path, found, expected)
    header, start = read_header(path)
    with open_regular(path) as file:
        # Copy on write: torch takes no memory that it may not write to
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    arrays: dict[str, NDArray[Any]] = {}
    for name, shape in expected.items():
        entry = header[name]
        at = start + entry["data_offsets"][0]
        if name in matrices:
            arrays[name] = _integers(path, name, entry["dtype"], mapping, at, shape)
        else:
            arrays[name] = _floats(path, name, entry["dtype"], mapping, at, shape)
            # All of it has been read to check it, and is not needed yet
            _free(mapping, at, start + entry["data_offsets"][1] - at)
    for name in matrices:  # a layer whose heads were all pruned has nothing to quantize
        if 0 in expected[name]:
            arrays[name] = np.empty(expected[name], np.float32)
            del arrays[f"{name}{SCALE}"]
    return StoredWeights(arrays, mapping)


def _free(mapping: mmap.mmap, start: int, n_bytes: int) -> None:
    if hasattr(mmap, "MADV_DONTNEED") and n_bytes:
        first = start // mmap.PAGESIZE * mmap.PAGESIZE  # the system takes whole pages alone
        mapping.madvise(mmap.MADV_DONTNEED, first, start + n_bytes - first)


def _is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Returns whether a weight is a matrix that int8 models hold in integers."""
    return name.endswith(".weight") and len(shape) == 2


def _integers(
    path: Path, name: str, kind: str, mapping: mmap.mmap, start: int, shape: tuple[int, ...]
) -> NDArray[Any]:
    if kind != "I8":
        raise ArtifactError(
            f"{path}: {name} is not int8, but config.json says so; restore this model's own weights"
        )
    return _mapped(mapping, "|i1", start, shape)


def _floats(
    path: Path, name: str, kind: str, mapping: mmap.mmap, start: int, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    """Reads numbers as float32; refuses NaN and infinity: such a model translates to nothing."""
    if kind not in _FLOATS:
        raise ArtifactError(
            f"{path}: {name} is not floating-point; restore this model's own weights"
        )
    stored = _mapped(mapping, _FLOATS[kind], start, shape)
    if kind == "BF16":  # the upper half of a float32's bits
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    values: NDArray[np.float32] = stored.astype(np.float32, copy=False)
    if not all_finite(values):
        raise ArtifactError(
            f"{path}: {name} contains NaN or infinity; the file is damaged, or training "
            "diverged: restore it or train again"
        )
    return values


def all_finite(values: NDArray[np.float32]) -> bool:
    """Returns whether there is neither NaN nor infinity among numbers."""
    # The sum is quick, and finite unless one of them is not (or it overflows)
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


def _mapped(mapping: mmap.mmap, kind: str, start: int, shape: tuple[int, ...]) -> NDArray[Any]:
    count = math.prod(shape)
    if not count:
        return np.empty(shape, kind)
    array = np.frombuffer(mapping, kind, count, start).reshape(shape)
    return array if array.flags.aligned else array.copy()  # other writers put tensors at any byte


def read_floats(path: Path) -> dict[str, NDArray[np.float32]]:
    """Reads all tensors of a small file as float32."""
    shapes = tensor_shapes(path)
    header, start = read_header(path)
    with open_regular(path) as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {
        name: _floats(
            path,
            name,
            header[name]["dtype"],
            mapping,
            start + header[name]["data_offsets"][0],
            shape,
        )
        for name, shape in shapes.items()
    }


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Reads the names and shapes of a file's tensors, not their content."""
    with open_tensors(path, "np") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def check_shapes(
    path: Path, found: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]
) -> None:
    for name, shape in expected.items():
        if name not in found:
            raise ArtifactError(f"{path}: has no tensor {name}; restore this model's own weights")
        if found[name] != shape:
            raise ArtifactError(
                f"{path}: {name} has shape {list(found[name])}, but config.json asks for "
                f"{list(shape)}; restore the weights and config.json of one model"
            )
    unknown = next((name for name in found if name not in expected), None)
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
    try:
        read_header(path)  # compares lengths before anything of the file is mapped
        return safe_open(path, framework=framework, device=device)
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such file; copy the whole model directory") from None
    except SafetensorError:
        raise ArtifactError(f"{path}: {_DAMAGED}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path}: cannot be read ({reason}); use another file") from None


_DAMAGED = "is damaged or not a safetensors file; copy it again, or use another one"
_LENGTH, _LARGEST_HEADER, _METADATA = 8, 1 << 23, "__metadata__"
"""Bytes of the header's length, of the longest header, of some 80,000 tensors; a name in it."""
