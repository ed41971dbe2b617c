"""Watches the files of a served model, which other programs may replace, overwrite or remove."""

import os
import time
from functools import cache
from pathlib import Path
from typing import Self, TypeAlias

from tformer_cli.artifacts.config_file import PARTS, SHORTLIST
from tformer_cli.errors import ArtifactError

REST_SECONDS = 0.5
"""Seconds without a change after which files count as complete."""
MOST_SECONDS = 3.0
"""Maximum seconds to wait for complete files before a request is refused."""
CHANGING = "its files are being changed; try again in a moment"
FilesState: TypeAlias = tuple[tuple[int, int, int, int] | None, ...]
"""Device, inode, size and modification time of each file; None if it does not exist."""


class UnusableModel(ArtifactError):  # noqa: N818 - as `UnknownModel`
    """A model that cannot be used, because its files changed or are damaged."""

    def __init__(self, message: str, public: str, *, is_known: bool = False) -> None:
        """`public` is the message for clients, without paths; `is_known` if it was reported."""
        super().__init__(message)
        self.public, self.is_known = public, is_known

    def repeat(self) -> Self:
        """Copies the error, since each request raises its own."""
        return type(self)(str(self), self.public, is_known=True)


def changing(name: str, path: Path) -> UnusableModel:
    advice = "to replace a model, write the new one elsewhere and rename it"
    return UnusableModel(f"{path}: is changed while it is served; {advice}", f"{name}: {CHANGING}")


def unusable(name: str, path: Path, error: ArtifactError) -> UnusableModel:
    """Makes the error for a model that could not be opened; clients see only its name."""
    text, place = str(error), str(path)
    public = f"{name}{text[len(place) :]}" if text.startswith(place) else f"{name}: is unusable"
    return UnusableModel(text, public)


def state_of(path: Path) -> FilesState:
    """Returns the state of the files that determine results; it differs after any change."""
    return tuple(map(_file_state, _files_of(path)))


@cache  # called before each batch
def _files_of(path: Path) -> tuple[str, ...]:
    return tuple(str(path / name) for name in (*PARTS, SHORTLIST))


def _file_state(file: str) -> tuple[int, int, int, int] | None:
    try:
        status = os.stat(file)  # noqa: PTH116 - a path takes longer than the system
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def is_replaced(before: FilesState, now: FilesState) -> bool:
    """True if every changed file was replaced as a whole, as by a rename."""
    return all(
        new == old or (new is not None and (old is None or old[:2] != new[:2]))
        for old, new in zip(before, now, strict=True)
    )


def rested_state(path: Path) -> FilesState | None:
    """Waits until the files stop changing; returns None if that takes too long."""
    until = time.monotonic() + MOST_SECONDS
    state, since = state_of(path), time.monotonic()
    while (now := time.monotonic()) < until:
        if now - since >= REST_SECONDS:
            return state
        time.sleep(REST_SECONDS / 10)
        if (current := state_of(path)) != state:
            state, since = current, time.monotonic()
    return None
