"""The checkpoints of a run: written whole, the right ones kept, the newest sound one found.

`state.json` holds checksums of the other files and of itself, so that a bit that the disk has
flipped is noticed and not trained on.
"""

import json
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tformer_cli.artifacts.tensors import load_tensors, save_tensors, tensors_checksum
from tformer_cli.artifacts.weights_file import read_header
from tformer_cli.errors import ArtifactError, UnreadableError
from tformer_cli.files.atomic import (
    directory_aside,
    remove_leftovers,
    remove_tree,
    write_text,
)
from tformer_cli.files.regular_file import open_regular, read_regular
from tformer_cli.trainer.resuming.state import TrainingState

CHECKSUMS = "checksums"
_BLOCK = 1 << 22
_LARGEST_STATE = 1 << 26
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
AVERAGE = "average.safetensors"
"""Moving average of the weights, in runs that keep one."""
_NAME = re.compile(r"step-(\d{6,})")


class Checkpoints:
    """The directory `checkpoints` of a run, one directory a step in it."""

    def __init__(self, run: Path) -> None:
        self.directory = run / "checkpoints"

    def path(self, step: int) -> Path:
        return self.directory / f"step-{step:06d}"

    def steps(self) -> list[int]:
        if not self.directory.is_dir():
            return []
        directories = (entry for entry in self.directory.iterdir() if entry.is_dir())
        names = (_NAME.fullmatch(entry.name) for entry in directories)
        return sorted(int(name.group(1)) for name in names if name)

    def save(
        self,
        state: TrainingState,
        weights: dict[str, Tensor],
        optimizer: dict[str, Tensor],
        average: dict[str, Tensor] | None = None,
    ) -> None:
        """Writes the checkpoint of `state.step`, with the moving average of the weights if any."""
        with directory_aside(self.path(state.step)) as aside:
            files = {MODEL: weights, OPTIMIZER: optimizer}
            if average is not None:
                files[AVERAGE] = average
            checksums = {}
            for name, tensors in files.items():
                save_tensors(aside / name, tensors)
                checksums[name] = tensors_checksum(aside / name, tensors)
            write_text(aside / STATE, _as_text(state, checksums))

    def save_state(self, state: TrainingState) -> None:
        _, checksums = self._read_state(state.step)
        write_text(self.path(state.step) / STATE, _as_text(state, checksums))

    def load_state(self, step: int) -> TrainingState:
        state, _ = self._read_state(step)
        return state

    def load_tensors(
        self, step: int, device: torch.device
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        path = self.path(step)
        self.check(step)
        return load_tensors(path / MODEL, device), load_tensors(path / OPTIMIZER, device)

    def load_average(self, step: int, device: torch.device) -> dict[str, Tensor]:
        """Reads the moving average of a checkpoint, which was checked."""
        return load_tensors(self.path(step) / AVERAGE, device)

    def check(self, step: int) -> None:
        _, checksums = self._read_state(step)
        for name, expected in checksums.items():
            file = self.path(step) / name
            try:
                read_header(file)  # compares the length
                checksum = _file_checksum(file)
            except OSError as error:
                raise _not_read(file, error) from None
            if checksum != expected:
                raise ArtifactError(f"{file}: is damaged (wrong checksum); use another checkpoint")

    def is_sound(self, step: int) -> bool:
        """Returns whether a step has a checkpoint, and nothing of it is damaged."""
        try:
            self.check(step)
        except ArtifactError:
            return False
        return True

    def _read_state(self, step: int) -> tuple[TrainingState, dict[str, int]]:
        """Reads the counters of a checkpoint, and the checksums of its other files."""
        file = self.path(step) / STATE
        try:
            text = read_regular(file, _LARGEST_STATE)
        except OSError as error:
            raise _not_read(file, error) from None
        try:
            values = json.loads(text.decode())
            checksums = dict(values.pop(CHECKSUMS, {}))
            expected = checksums.pop(STATE, None)
            state = TrainingState.from_json(values)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ArtifactError(f"{file}: is damaged ({error}); use another checkpoint") from None
        if expected is not None and expected != _state_checksum(values, checksums):
            raise ArtifactError(f"{file}: is damaged (wrong checksum); use another checkpoint")
        if state.step != step:
            raise ArtifactError(
                f"{file}: is damaged (holds step {state.step}); use another checkpoint"
            )
        named = (MODEL, OPTIMIZER, AVERAGE)
        return state, {name: checksums[name] for name in named if name in checksums}

    def keep(self, steps: Iterable[int]) -> None:
        """Removes all checkpoints but those of `steps`, and whatever a kill left half-written."""
        kept = set(steps)
        for step in self.steps():
            if step not in kept:
                remove_tree(self.path(step))
        remove_leftovers(self.directory)


def _not_read(file: Path, error: OSError) -> ArtifactError:
    """Distinguishes a file that is missing from one that may be readable later."""
    reason = (error.strerror or str(error)).lower()
    if isinstance(error, FileNotFoundError):
        return ArtifactError(f"{file}: is damaged ({reason}); use another checkpoint")
    return UnreadableError(
        f"{file}: cannot be read ({(error.strerror or str(error)).lower()}); try again, or remove "
        f"{file.parent} to resume from the checkpoint before"
    )


def _as_text(state: TrainingState, checksums: dict[str, int]) -> str:
    values: dict[str, Any] = state.to_json()
    own = {STATE: _state_checksum(values, checksums)}
    return json.dumps({**values, CHECKSUMS: {**checksums, **own}}, indent=1) + "\n"


def _state_checksum(values: dict[str, Any], checksums: dict[str, int]) -> int:
    return zlib.crc32(json.dumps([values, checksums], sort_keys=True).encode())


def _file_checksum(path: Path) -> int:
    checksum = 0
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            checksum = zlib.crc32(block, checksum)
    return checksum
