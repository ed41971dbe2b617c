"""The checkpoints of a run: written whole, the right ones kept, the newest sound one found."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tformer_cli.artifacts.atomic import (
    directory_aside,
    remove_leftovers,
    remove_tree,
    write_text,
)
from tformer_cli.artifacts.tensors import load_tensors, save_tensors
from tformer_cli.errors import ArtifactError
from tformer_cli.training.state import TrainingState

MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_NAME = re.compile(r"step-(\d{6,})")


class Checkpoints:
    """The directory `checkpoints` of a run, one directory a step in it."""

    def __init__(self, run: Path) -> None:
        self.directory = run / "checkpoints"

    def path(self, step: int) -> Path:
        """Returns where a step's checkpoint lies."""
        return self.directory / f"step-{step:06d}"

    def steps(self) -> list[int]:
        """Lists the steps that have a checkpoint, oldest first."""
        if not self.directory.is_dir():
            return []
        names = (_NAME.fullmatch(entry.name) for entry in self.directory.iterdir())
        return sorted(int(name.group(1)) for name in names if name)

    def save(
        self, state: TrainingState, weights: dict[str, Tensor], optimizer: dict[str, Tensor]
    ) -> None:
        """Writes the checkpoint of `state.step`.

        Raises:
            ArtifactError: if it cannot be written; older checkpoints stay.
        """
        with directory_aside(self.path(state.step)) as aside:
            save_tensors(aside / MODEL, weights)
            save_tensors(aside / OPTIMIZER, optimizer)
            write_text(aside / STATE, _as_text(state))

    def save_state(self, state: TrainingState) -> None:
        """Rewrites the counters of a checkpoint that is there."""
        write_text(self.path(state.step) / STATE, _as_text(state))

    def load_state(self, step: int) -> TrainingState:
        """Reads the counters of a checkpoint.

        Raises:
            ArtifactError: if they are missing or damaged.
        """
        file = self.path(step) / STATE
        try:
            state = TrainingState.from_json(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, RecursionError) as error:
            raise ArtifactError(f"is damaged ({file}): {error}") from None
        if state.step != step:
            raise ArtifactError(f"is damaged ({file}): it is of step {state.step}")
        return state

    def load_tensors(
        self, step: int, device: torch.device
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Reads the weights and the optimizer's state of a checkpoint.

        Raises:
            ArtifactError: if they are missing or damaged.
        """
        path = self.path(step)
        return load_tensors(path / MODEL, device), load_tensors(path / OPTIMIZER, device)

    def keep(self, steps: Iterable[int]) -> None:
        """Removes all checkpoints but those of `steps`, and whatever a kill left half-written."""
        kept = set(steps)
        for step in self.steps():
            if step not in kept:
                remove_tree(self.path(step))
        remove_leftovers(self.directory)


def _as_text(state: TrainingState) -> str:
    values: dict[str, Any] = state.to_json()
    return json.dumps(values, indent=1) + "\n"
