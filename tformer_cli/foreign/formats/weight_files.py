"""Weights in safetensors files or PyTorch checkpoints, in one file or in several with an index."""

import json
from pathlib import Path

from tformer_cli.artifacts.weights_file import open_tensors, read_header
from tformer_cli.errors import ArtifactError
from tformer_cli.files.regular_file import read_regular
from tformer_cli.foreign.formats.lazy_arrays import LazyArrays, widened
from tformer_cli.foreign.formats.mapped_file import MappedFile, check_no_pointer
from tformer_cli.foreign.formats.torch_checkpoint import named_tensors, read_checkpoint

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
"""numpy's names of the format's types."""
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
            raise file.damaged(f"{name} is of the type {kind}, which is not known")
        at = start + entry["data_offsets"][0]
        arrays[name] = lambda at=at, kind=kind, shape=entry["shape"]: widened(
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
    raise ArtifactError(
        f"{directory}: has neither model.safetensors nor pytorch_model.bin; download the weights "
        "into it"
    )


def _shards(index: Path) -> list[Path]:
    """Reads the files that an index names, all of them beside it."""
    try:
        named = json.loads(read_regular(index, _LARGEST_INDEX))["weight_map"].values()
        names = sorted({str(name) for name in named})
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ArtifactError(f"{index}: is not an index of weights; download it again") from None
    if any(Path(name).name != name or not name.isprintable() for name in names):
        raise ArtifactError(f"{index}: names a file of another directory; download it again")
    return [index.parent / name for name in names]
