"""Named tensors in safetensors files, read strictly."""

import stat
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from tformer_cli.artifacts.weights_file import open_tensors
from tformer_cli.files.aside import ASIDE
from tformer_cli.files.atomic import not_writable, written_aside


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


def load_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Reads all tensors of a file.

    Raises:
        ArtifactError: if the file is missing, damaged or no safetensors file.
    """
    with open_tensors(path, "pt", str(device)) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
