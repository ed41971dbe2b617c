"""Named tensors in safetensors files, read strictly, and models that have none yet."""

import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tformer_cli.artifacts.weights_file import open_tensors, read_header
from tformer_cli.files.atomic import ASIDE, not_writable, written_aside
from tformer_cli.files.regular_file import open_regular


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes tensors, whole or not at all, readable for whom other new files are readable."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # The library writes under a name that nobody knows again, for only its owner: it gets a
    # directory that `remove_leftovers` would find, and the file the rights of other new files
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


def tensors_checksum(path: Path, tensors: Mapping[str, Tensor]) -> int:
    """Computes the CRC-32 of a file that holds these tensors; only its header is read."""
    header, start = read_header(path)
    with open_regular(path) as file:
        checksum = zlib.crc32(file.read(start))
    for name in sorted(tensors, key=lambda name: int(header[name]["data_offsets"][0])):
        tensor = tensors[name].detach().cpu().contiguous()
        checksum = zlib.crc32(tensor.view(-1).view(torch.uint8).numpy().data, checksum)
    return checksum


def load_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    with open_tensors(path, "pt", str(device)) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


_DRAWS = frozenset(
    {
        Tensor.normal_,
        Tensor.uniform_,
        nn.init.normal_,
        nn.init.uniform_,
        nn.init.kaiming_uniform_,
    }
)
"""Initializers that fill a tensor at random; the other initializers end in one of these."""


class _DrawNothing(TorchFunctionMode):
    """Leaves tensors as they are where they would be filled at random."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        # The "meta" device has nothing to fill, but torch computes even that in Python, and its
        # first such call imports its compiler: seconds of the start of a program
        if func in _DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Within it, new modules have parameters with shapes and types but without values."""
    with torch.device("meta"), _DrawNothing():
        yield
