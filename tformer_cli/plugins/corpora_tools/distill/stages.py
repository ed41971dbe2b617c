"""Stages of a job that are skipped while their inputs are the same, and a record of them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal

from tformer_cli.artifacts.resumable import parts_of
from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import make_directory, not_writable, remove_tree, write_text
from tformer_cli.files.regular_file import MIB, hash_file, read_regular
from tformer_cli.structure import structure

MANIFEST, EARLIER = "distillation.json", "earlier"


class State(Enum):
    """State of a stage, which decides the next action of a run."""

    unchanged = "unchanged; skipped"
    begun = "started; resumed"
    kept = "made earlier; restored"
    """Its outputs from these inputs are in `earlier`."""
    new = "to do"
    changed = "changed; done again"
    later = "after the stages before it"
    """Its inputs are not there yet."""

    @property
    def is_first(self) -> bool:
        """True if nothing was done for it before."""
        return self in (State.new, State.later)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of the job."""

    name: str
    what: str
    place: str
    """Path of its file or directory of outputs, which is its own, in the job's directory."""
    files: tuple[str, ...]
    """Paths of the outputs that later stages read, in the job's directory."""
    inputs: Callable[[], Mapping[str, str]]
    """Names the content of its inputs, once the stages before it are done."""
    run: Callable[[], None]
    settle: Callable[[], None] | None = None
    """Called each time it is done or skipped: brings its outputs into line with settings that cost
    nothing to follow, and therefore are no inputs."""
    needs: tuple[str, ...] = ()
    keeps_earlier: bool = True
    """True if its outputs from other inputs move to `earlier`, for they took long."""
    is_whole: bool = True
    """True if its place is there whole or not at all. Otherwise the stage knows itself how far it
    is, and may be continued by others: only the presence of its files is looked at."""


@dataclass(kw_only=True)
class Record:
    """The manifest's entry of a stage."""

    inputs: dict[str, str]
    """Hashes or values by name, when it began."""
    outputs: dict[str, str] | None = None
    """SHA-256 of the outputs that are not changed later; None: it has not ended."""


@dataclass(kw_only=True)
class Kept(Record):
    """The record of a directory in `earlier`."""

    stage: str


@dataclass(kw_only=True)
class _File:
    schema: Literal["tformer.distill/1"]
    stages: dict[str, Record]
    earlier: dict[str, Kept]


@dataclass
class Manifest:
    """The record of all stages in a directory that were begun or done."""

    directory: Path
    stages: dict[str, Record] = field(default_factory=dict)
    earlier: dict[str, Kept] = field(default_factory=dict)

    @staticmethod
    def read(directory: Path) -> "Manifest":
        """Reads the record of a directory; without one nothing has begun."""
        path = directory / MANIFEST
        if not path.exists():
            return Manifest(directory)
        try:
            file = structure(_File, json.loads(read_regular(path, MIB)))
        except (OSError, ValueError, RecursionError):
            raise ArtifactError(
                f"{path}: is damaged; start over with --fresh, or in another directory"
            ) from None
        return Manifest(directory, file.stages, file.earlier)

    def write(self) -> None:
        file = _File(schema="tformer.distill/1", stages=self.stages, earlier=self.earlier)
        text = json.dumps(asdict(file), ensure_ascii=False, indent=1)
        write_text(self.directory / MANIFEST, text + "\n")

    def state(self, stage: Stage, inputs: Mapping[str, str]) -> State:
        """Returns the state of a stage with these inputs."""
        # by content: files may be moved, touched and copied
        record = self.stages.get(stage.name)
        is_same = record is not None and record.inputs == inputs
        if record is not None and is_same and record.outputs is None:
            return State.begun
        if record is not None and is_same and record.outputs == self._outputs(stage):
            return State.unchanged
        if self._find_earlier(stage, inputs) is not None:
            return State.kept
        return State.new if record is None else State.changed

    def bring_up_to_date(self, stage: Stage, tell: Callable[[Stage, State], None]) -> None:
        inputs = stage.inputs()
        state = self.state(stage, inputs)
        tell(stage, state)
        if state is not State.unchanged:
            self._do(stage, inputs, state)
        if stage.settle is not None:
            # also of a stage that was skipped: decoding settings may have changed
            stage.settle()

    def _do(self, stage: Stage, inputs: Mapping[str, str], state: State) -> None:
        """Does a stage, or resumes it, and records it."""
        if state is not State.begun:
            kept = self._find_earlier(stage, inputs)
            self._put_away(stage)
            self._take_back(stage, inputs, kept)
        # A kill may have fallen between the last rename and the record
        if not (stage.is_whole and (self.directory / stage.place).exists()):
            stage.run()
        # a stage that says it is done and left nothing must not be recorded
        outputs = self._outputs(stage)
        if outputs is None:
            raise ArtifactError(f"{self.directory / stage.place}: is missing; run it again")
        self.stages[stage.name] = Record(inputs=dict(inputs), outputs=outputs)
        self.write()

    def _outputs(self, stage: Stage) -> dict[str, str] | None:
        files = [self.directory / name for name in stage.files]
        if not all(file.is_file() for file in files):
            return None
        return {
            name: hash_file(file) if stage.is_whole else ""
            for name, file in zip(stage.files, files, strict=True)
        }

    def _find_earlier(self, stage: Stage, inputs: Mapping[str, str]) -> str | None:
        """Name of the directory in `earlier` with a stage's outputs from these inputs, if any."""
        for name, record in self.earlier.items():
            is_same = record.stage == stage.name and record.inputs == inputs
            if is_same and (self.directory / EARLIER / name).is_dir():
                return name
        return None

    def _put_away(self, stage: Stage) -> None:
        """Moves a stage's outputs from other inputs out of its place, or removes them."""
        # First the stage's record goes: a kill in between costs its work at most.
        place = self.directory / stage.place
        there = [path for path in (place, *parts_of(place)) if path.exists()]
        record = self.stages.pop(stage.name, None)
        # translations and trainings took hours; the rest is made again in seconds
        keeps = stage.keeps_earlier and bool(there)
        target = _free_name(self.directory / EARLIER, place.stem)
        if keeps and record is not None:
            self.earlier[target.name] = Kept(stage=stage.name, **vars(record))
        self.write()
        try:
            if keeps:
                make_directory(target)
            for path in there:
                if keeps:
                    path.rename(target / path.name)
                elif path.is_dir():
                    remove_tree(path)
                else:
                    path.unlink()
        except OSError as error:
            raise not_writable(place, error) from None

    def _take_back(self, stage: Stage, inputs: Mapping[str, str], kept: str | None) -> None:
        """Begins a stage, with its kept outputs from the same inputs, if there are any."""
        if kept is not None:
            source, target = self.directory / EARLIER / kept, (self.directory / stage.place).parent
            make_directory(target)
            try:
                for path in source.iterdir():
                    path.rename(target / path.name)
                # nothing is left in it: a name in `earlier` holds what one stage made
                source.rmdir()
            except OSError as error:
                raise not_writable(source, error) from None
            del self.earlier[kept]
        # recorded before the work: a run that is killed resumes what began with the same inputs
        self.stages[stage.name] = Record(inputs=dict(inputs))
        self.write()


def states(manifest: Manifest, stages: Sequence[Stage]) -> list[tuple[Stage, State]]:
    by_name: dict[str, tuple[Stage, State]] = {}
    for stage in stages:
        # hashing what a stage before will replace would tell nothing
        is_ready = all(by_name[name][1] is State.unchanged for name in stage.needs)
        state = manifest.state(stage, stage.inputs()) if is_ready else State.later
        by_name[stage.name] = stage, state
    return list(by_name.values())


def _free_name(directory: Path, name: str) -> Path:
    # counted on, so that nothing of an earlier run is replaced
    number = 1
    while (path := directory / f"{name}-{number}").exists():
        number += 1
    return path
