"""Files of a served model, which other programs may replace, write over or remove at any time."""

import os
import time
from functools import cache
from pathlib import Path
from typing import Self, TypeAlias

from tformer_cli.artifacts.config_file import PARTS, SHORTLIST
from tformer_cli.errors import ArtifactError

REST_SECONDS = 0.5
"""Seconds without a change after which files count as written."""
MOST_SECONDS = 3.0
"""Seconds that somebody waits for it before a request is refused."""
CHANGING = "its files are being changed; ask again in a moment"
FilesState: TypeAlias = tuple[tuple[int, int, int, int] | None, ...]
"""Device, inode, size and time of the last change of each file; None: there is none."""


class UnusableModel(ArtifactError):  # noqa: N818 - as `UnknownModel`
    """A model that cannot be used now, since its files were changed or are damaged."""

    def __init__(self, message: str, public: str, *, is_known: bool = False) -> None:
        """Takes also what clients are told, who learn no path, and whether it was reported."""
        super().__init__(message)
        self.public, self.is_known = public, is_known

    def repeat(self) -> Self:
        """Makes the same error for another request: each raises its own."""
        return type(self)(str(self), self.public, is_known=True)


def changing(name: str, path: Path) -> UnusableModel:
    advice = "to replace a model, write the new one elsewhere and rename it"
    return UnusableModel(f"{path}: is changed while it is served; {advice}", f"{name}: {CHANGING}")


def unusable(name: str, path: Path, error: ArtifactError) -> UnusableModel:
    """Makes the error of a model that could not be opened; clients know it by its name."""
    text, place = str(error), str(path)
    public = f"{name}{text[len(place) :]}" if text.startswith(place) else f"{name}: is unusable"
    return UnusableModel(text, public)


def state_of(path: Path) -> FilesState:
    """Returns what differs once a file that decides what a model computes was changed."""
    return tuple(map(_file_state, _files_of(path)))


@cache  # it is asked before each batch
def _files_of(path: Path) -> tuple[str, ...]:
    return tuple(str(path / name) for name in (*PARTS, SHORTLIST))


def _file_state(file: str) -> tuple[int, int, int, int] | None:
    try:
        status = os.stat(file)  # noqa: PTH116 - a path takes longer than the system
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def is_replaced(before: FilesState, now: FilesState) -> bool:
    """Returns whether all that is new took its place as a whole, as a file that is renamed does."""
    return all(
        new == old or (new is not None and (old is None or old[:2] != new[:2]))
        for old, new in zip(before, now, strict=True)
    )


def rested_state(path: Path) -> FilesState | None:
    """Waits until nothing changes any more; returns None if that takes too long."""
    until = time.monotonic() + MOST_SECONDS
    state, since = state_of(path), time.monotonic()
    while (now := time.monotonic()) < until:
        if now - since >= REST_SECONDS:
            return state
        time.sleep(REST_SECONDS / 10)
        if (current := state_of(path)) != state:
            state, since = current, time.monotonic()
    return None
