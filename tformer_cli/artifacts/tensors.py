"""Named tensors in safetensors files, read strictly."""

import stat
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tformer_cli.artifacts.atomic import ASIDE, not_writable, written_aside
from tformer_cli.errors import ArtifactError


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes tensors, whole or not at all, readable for whom other new files are readable.

    The library writes a file of its own beside the one that is asked for, with a name that nobody
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
            raise ArtifactError(f"has no tensor {name} ({path}): not the weights of this model")
        if found[name] != shape:
            raise ArtifactError(
                f"{name} has shape {list(found[name])} where the model has {list(shape)} ({path}): "
                "config.json and the weights do not belong together"
            )
    unknown = next((name for name in found if name not in expected), None)
    if unknown is not None:
        raise ArtifactError(f"has an unknown tensor {unknown} ({path}): not of this model")


def _opened(path: Path, device: str = "cpu") -> "safe_open":
    if not path.is_file():
        raise ArtifactError(f"no such file ({path}): not a whole model directory")
    try:
        return safe_open(path, framework="pt", device=device)
    except SafetensorError as error:
        raise ArtifactError(
            f"is damaged or no safetensors file ({path}): {str(error).splitlines()[0]}"
        ) from None
    except OSError as error:
        raise ArtifactError(f"cannot be read ({path}): {error.strerror or error}") from None
