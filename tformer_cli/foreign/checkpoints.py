"""PyTorch checkpoints: whose they are."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign import fairseq, nanogpt, opennmt
from tformer_cli.foreign.foreign_model import ForeignModel
from tformer_cli.foreign.formats.torch_checkpoint import read_checkpoint

_BEST = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")
"""The checkpoint of a directory that is meant if there are several."""


def find_checkpoint(path: Path) -> Callable[[], ForeignModel] | None:
    """Finds what converts a checkpoint, or the one in a directory; None: there is none."""
    file = _checkpoint(path)
    if file is None:
        return None
    checkpoint = read_checkpoint(file)
    for family in (opennmt, nanogpt, fairseq):
        source = family.open_source(file, checkpoint)
        if source is not None:
            return partial(family.convert, source)
    return None


def _checkpoint(path: Path) -> Path | None:
    if path.is_file():
        return path if path.suffix == ".pt" else None
    found = {file.name: file for file in path.glob("*.pt") if file.is_file()}
    if len(found) < 2:
        return next(iter(found.values()), None)
    named = next((found[name] for name in _BEST if name in found), None)
    if named is None:
        raise ArtifactError(f"{path}: holds {len(found)} checkpoints; name the file of one of them")
    return named
