"""Named tensors in safetensors files, read strictly."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tformer_cli.artifacts.atomic import not_writable, written_aside
from tformer_cli.errors import ArtifactError
from tformer_cli.files.aside import ASIDE
from tformer_cli.files.regular_file import open_regular


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes tensors, whole or not at all, readable for whom other new files are readable.

    The library writes a file of its own beside the one that is asked for, with a name that no one
    knows again and for its owner alone: it gets a directory that `remove_leftovers` would find.

    Raises:
        ArtifactError: if the file cannot be written.
    """
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with (
        written_aside(path) as aside,
        TemporaryDirectory(ASIDE, f"{path.name}.", path.parent) as directory,
    ):
        written = Path(directory, path.name)
        try:
            save_file(contiguous, written, metadata=dict(metadata or {}))
        except SafetensorError as error:  # it hides the system's own error in its text
            raise not_writable(path, OSError(str(error))) from None
        aside.touch()
        mode = stat.S_IMODE(aside.stat().st_mode)  # by the user's umask
        if stat.S_IMODE(written.stat().st_mode) != mode:
            written.chmod(mode)
        written.replace(aside)


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Reads the names and shapes of a file's tensors, not their content.

    Raises:
        ArtifactError: if the file is missing, damaged or no safetensors file.
    """
    with _opened(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def load_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Reads all tensors of a file.

    Raises:
        ArtifactError: if the file is missing, damaged or no safetensors file.
    """
    with _opened(path, str(device)) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def check_shapes(
    path: Path, found: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]
) -> None:
    """Compares a file's tensors with those that are wanted.

    Raises:
        ArtifactError: naming the first tensor that is missing, unknown or of another shape.
    """
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


def check_length(path: Path) -> None:
    """Compares a file's length with what its header promises, before anything of it is mapped.

    Raises:
        OSError: if the file cannot be read, or is not an ordinary file.
        ArtifactError: if it is longer or shorter, or not a safetensors file.
    """
    with open_regular(path) as file:
        length = os.fstat(file.fileno()).st_size
        start = file.read(_LENGTH)
        n_header = int.from_bytes(start, "little")
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


def _opened(path: Path, device: str = "cpu") -> "safe_open":
    try:
        check_length(path)
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such file; copy the whole model directory") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path}: cannot be read ({reason}); use another file") from None
    try:
        return safe_open(path, framework="pt", device=device)
    except SafetensorError:
        raise ArtifactError(f"{path}: {_DAMAGED}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path}: cannot be read ({reason}); use another file") from None


_DAMAGED = "is damaged or not a safetensors file; copy it again, or use another one"
_LENGTH, _LARGEST_HEADER, _METADATA = 8, 100_000_000, "__metadata__"
"""Bytes of the header's length; the longest header that the library reads; a name in it."""
