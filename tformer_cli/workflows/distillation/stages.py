"""Stages of a job that are skipped while their inputs are the same, and a record of them.

A stage names the content of its inputs by hashes. `distillation.json` records them when a stage
begins, and the hashes of its outputs when it ends. A kill at any moment leaves a record that the
next run continues from: a stage that was begun with the same inputs is resumed, one whose inputs
have changed is done again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from tformer_cli.artifacts.resumable import parts_of
from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import make_directory, not_writable, remove_tree, write_text
from tformer_cli.files.hashes import hash_file
from tformer_cli.files.regular_file import MIB, read_regular

SCHEMA = "tformer.distill/1"
MANIFEST, EARLIER = "distillation.json", "earlier"


class State(Enum):
    """What is to be done for a stage."""

    unchanged = "unchanged; skipped"
    begun = "begun; resumed"
    new = "to do"
    changed = "changed; done again"
    later = "after the stages before it"
    """Its inputs are not there yet."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of the job."""

    name: str
    """Name, unique within the job."""
    what: str
    """What it does, in a few words."""
    place: str
    """Path of its file or directory of outputs, which is its own, in the job's directory."""
    files: tuple[str, ...]
    """Paths of the outputs that later stages read, in the job's directory."""
    inputs: Callable[[], Mapping[str, str]]
    """Names the content of its inputs, once the stages before it are done."""
    run: Callable[[], None]
    """Does it."""
    needs: tuple[str, ...] = ()
    """Names of the stages whose outputs it reads."""
    keeps_earlier: bool = True
    """Whether what it made of other inputs is kept, in `earlier`: it took long."""
    is_whole: bool = True
    """Whether its place is there whole or not at all. Otherwise the stage knows itself how far it
    is, and may be continued by others: only the presence of its files is looked at."""


@dataclass(kw_only=True)
class Record:
    """What the manifest says of a stage."""

    inputs: Mapping[str, str]
    """Hashes or values by name, when it began."""
    outputs: Mapping[str, str] | None = None
    """SHA-256 of the outputs that are not changed later; None: it has not ended."""


@dataclass
class Manifest:
    """The record of all stages in a directory."""

    directory: Path
    """Directory of the job."""
    stages: dict[str, Record] = field(default_factory=dict)
    """Those begun or done, by name."""

    @staticmethod
    def read(directory: Path) -> "Manifest":
        """Reads the record of a directory; without one nothing has begun.

        Raises:
            ArtifactError: if it is damaged.
        """
        path = directory / MANIFEST
        if not path.exists():
            return Manifest(directory)
        try:
            found = json.loads(read_regular(path, MIB))
            is_ours = found["schema"] == SCHEMA
            stages = {
                str(name): Record(
                    inputs=dict(one["inputs"]),
                    outputs=None if one["outputs"] is None else dict(one["outputs"]),
                )
                for name, one in found["stages"].items()
            }
        except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
            is_ours = False
        if not is_ours:
            raise ArtifactError(
                f"{path}: is damaged; start over with --fresh, or in another directory"
            )
        return Manifest(directory, stages)

    def write(self) -> None:
        """Writes the record.

        Raises:
            ArtifactError: if it cannot be written.
        """
        stages: dict[str, Any] = {
            name: {"inputs": dict(one.inputs), "outputs": one.outputs}
            for name, one in self.stages.items()
        }
        text = json.dumps({"schema": SCHEMA, "stages": stages}, ensure_ascii=False, indent=1)
        write_text(self.directory / MANIFEST, text + "\n")

    def state(self, stage: Stage, inputs: Mapping[str, str]) -> State:
        """Returns what is to be done for a stage with these inputs."""
        record = self.stages.get(stage.name)
        if record is None:
            return State.new
        if record.inputs != inputs:
            return State.changed
        if record.outputs is None:
            return State.begun
        return State.unchanged if record.outputs == self._outputs(stage) else State.changed

    def bring_up_to_date(self, stage: Stage, tell: Callable[[Stage, State], None]) -> None:
        """Does a stage, unless it is done.

        Args:
            stage: the stage; those before it are done.
            tell: told of the stage and its state before anything is done.

        Raises:
            TformerError: as the stage raises it.
            ArtifactError: if the stage has made no output, or an earlier one cannot be moved.
        """
        inputs = stage.inputs()
        state = self.state(stage, inputs)
        tell(stage, state)
        if state is State.unchanged:
            return
        if state is not State.begun:
            self._put_away(stage)
            self.stages[stage.name] = Record(inputs=inputs)
            self.write()
        # A kill may have fallen between the last rename and the record
        if not (stage.is_whole and (self.directory / stage.place).exists()):
            stage.run()
        outputs = self._outputs(stage)
        if outputs is None:
            raise ArtifactError(f"{self.directory / stage.place}: is missing; run it again")
        self.stages[stage.name] = Record(inputs=inputs, outputs=outputs)
        self.write()

    def _outputs(self, stage: Stage) -> dict[str, str] | None:
        """Hashes of a stage's outputs; None if one is missing."""
        files = [self.directory / name for name in stage.files]
        if not all(file.is_file() for file in files):
            return None
        return {
            name: hash_file(file) if stage.is_whole else ""
            for name, file in zip(stage.files, files, strict=True)
        }

    def _put_away(self, stage: Stage) -> None:
        """Moves what a stage made of other inputs out of its place, or removes it."""
        place = self.directory / stage.place
        try:
            for part in parts_of(place):
                part.unlink(missing_ok=True)
            if not place.exists():
                return
            if stage.keeps_earlier:
                earlier = self.directory / EARLIER
                make_directory(earlier)
                place.rename(_free_name(earlier, place.name))
            elif place.is_dir():
                remove_tree(place)
            else:
                place.unlink()
        except OSError as error:
            raise not_writable(place, error) from None


def states(manifest: Manifest, stages: Sequence[Stage]) -> list[tuple[Stage, State]]:
    """Says what a run would do now; inputs that are not there yet are not asked for."""
    found: dict[str, tuple[Stage, State]] = {}
    for stage in stages:
        is_ready = all(found[name][1] is State.unchanged for name in stage.needs)
        state = manifest.state(stage, stage.inputs()) if is_ready else State.later
        found[stage.name] = stage, state
    return list(found.values())


def _free_name(directory: Path, name: str) -> Path:
    """A path that is not there yet: `name-1`, or the next number."""
    number = 1
    while (path := directory / f"{name}-{number}").exists():
        number += 1
    return path
