"""`shortlist.safetensors`: a lexical shortlist, in a model directory or by itself.

It holds `offsets` (V + 1) and `targets`, int64 and int32, and `first` (1), int64: the fields of
`decoding.shortlist.Shortlist`, in token ids of the model that it belongs to.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tformer_cli.artifacts.array_file import write_arrays
from tformer_cli.artifacts.weights_file import open_tensors
from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import written_aside
from tformer_cli.search.shortlist import Shortlist

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHORTLIST = "shortlist.safetensors"
_TYPES = {"offsets": "int64", "targets": "int32", "first": "int64"}


def save_shortlist(path: Path, shortlist: Shortlist) -> None:
    """Writes the file of a shortlist, whole or not at all.

    Raises:
        ArtifactError: if the file cannot be written.
    """
    with written_aside(path) as aside, aside.open("wb") as stream:
        write_shortlist(stream, shortlist)


def write_shortlist(stream: BinaryIO, shortlist: Shortlist) -> None:
    """Writes a shortlist; the same bytes for the same shortlist."""
    arrays: dict[str, NDArray[Any]] = {
        "offsets": np.asarray(shortlist.offsets, np.int64),
        "targets": np.asarray(shortlist.targets, np.int32),
        "first": np.array([shortlist.first], np.int64),
    }
    write_arrays(stream, arrays, {"format": "tformer shortlist"})


def copy_shortlist(model: Path, other: Path) -> None:
    """Copies a model directory's shortlist, if it has one, to another with the same vocabularies.

    Raises:
        ArtifactError: if the file cannot be written.
    """
    if (model / SHORTLIST).is_file():
        with written_aside(other / SHORTLIST) as aside:
            shutil.copyfile(model / SHORTLIST, aside)


def read_shortlist(path: Path, n_sources: int, n_targets: int) -> Shortlist:
    """Reads a shortlist of a model.

    Args:
        path: the file.
        n_sources: entries of the model's source vocabulary.
        n_targets: entries of its target vocabulary.

    Raises:
        ArtifactError: in one line, if it is missing, damaged, or of other vocabularies.
    """
    with open_tensors(path, "np") as file:
        names = set(file.keys())
        if names != set(_TYPES):
            raise ArtifactError(f"{path}: is not a shortlist; make one for this model again")
        found = {name: file.get_tensor(name) for name in names}
    offsets, targets, first = (found[name] for name in _TYPES)
    is_whole = (
        all(found[name].dtype == kind and found[name].ndim == 1 for name, kind in _TYPES.items())
        and len(first) == 1
        and len(offsets) > 0
        and offsets[0] == 0
        and offsets[-1] == len(targets)
        and bool((offsets[1:] >= offsets[:-1]).all())  # a difference might overflow
    )
    if not is_whole:
        raise ArtifactError(f"{path}: is damaged; copy it again, or make it again")
    is_of_targets = 0 <= first[0] <= n_targets and bool(
        ((targets >= 0) & (targets < n_targets)).all()
    )
    if len(offsets) != n_sources + 1 or not is_of_targets:
        raise ArtifactError(
            f"{path}: belongs to a model of other vocabularies; this one has {n_sources} source "
            f"and {n_targets} target tokens"
        )
    return Shortlist(int(first[0]), offsets, targets)
