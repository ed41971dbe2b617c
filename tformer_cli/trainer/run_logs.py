"""Logs of a run: `metrics.jsonl` and, by tensorboardX (an extra), TensorBoard's events.

tensorboardX writes the same files as torch's own writer, but needs only protobuf, instead of all of
TensorBoard with its server. Its `SummaryWriter` writes in a thread: when a full disk ends that, the
training waits for it for ever. So events are written here, one by one.
"""

import json
import os
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.files.atomic import make_directory, not_writable, write_text
from tformer_cli.files.regular_file import read_regular
from tformer_cli.trainer.events import (
    RolledBack,
    RunEnded,
    StepReport,
    TrainingEvent,
    ValidationReport,
)
from tformer_cli.trainer.resuming.state import TrainingState
from tformer_cli.wording import installing

LARGEST = 1 << 30


class MetricsLog:
    """Appends reports, validations and rollbacks to a file, as an observer of the run."""

    def __init__(self, path: Path, state: TrainingState) -> None:
        # What an earlier process wrote of work that will be done again is cut off.
        self._path = path
        self._cut(state.step, [scores["step"] for scores in state.validations], state.rollbacks)
        n_there = read_log(self._path).count(b'{"kind": "rollback"')
        for rollback in state.rollbacks[n_there:]:  # the last one, if a kill came before its line
            self.notify(rollback)

    def notify(self, event: TrainingEvent) -> None:
        """Writes an event of the three kinds; a rollback undoes the lines of what it undoes."""
        kind = _KINDS.get(type(event))
        if kind is None:
            return
        if isinstance(event, RolledBack):
            self._cut(event.step, range(event.step + 1), None)
        line = json.dumps({"kind": kind, **asdict(event)}, ensure_ascii=False)
        try:
            with self._path.open("a", encoding="utf-8", newline="") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())  # a checkpoint after it must not outlive it
        except OSError as error:
            raise not_writable(self._path, error) from None

    def _cut(
        self, step: int, validated: Container[float], rollbacks: Sequence[RolledBack] | None
    ) -> None:
        """Keeps the lines up to a step and those of these rollbacks (None: of all)."""
        text = read_log(self._path)
        kept = b"".join(
            line + b"\n" for line in text.split(b"\n") if _is_done(line, step, validated, rollbacks)
        )
        if kept != text:
            write_text(self._path, kept.decode("utf-8"))


_KINDS: dict[type, str] = {
    StepReport: "report",
    ValidationReport: "validation",
    RolledBack: "rollback",
}


def read_log(path: Path, most_bytes: int = LARGEST) -> bytes:
    """Reads what a run has written of itself so far: nothing where no file is."""
    try:
        return read_regular(path, most_bytes)
    except FileNotFoundError:
        return b""
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path}: cannot be read ({reason}); remove it") from None


def _is_done(
    line: bytes,
    step: int,
    validated: Container[float],
    rollbacks: Sequence[RolledBack] | None,
) -> bool:
    try:
        entry = json.loads(line)
        if entry["kind"] == "rollback":
            del entry["kind"]
            return rollbacks is None or RolledBack(**entry) in rollbacks
        if entry["kind"] == "validation":
            return entry["weights"] == "current" and entry["step"] in validated
        return bool(entry["step"] <= step)
    except (ValueError, KeyError, TypeError):  # the last line of a killed process
        return False


DIRECTORY = "tensorboard"
REPORTED = (
    "loss",
    "perplexity",
    "learning_rate",
    "gradient_norm",
    "tokens_per_second",
    "padding",
    "epoch",
    "hardware_share",
)
"""Fields of a report that are written, under `training/`."""


class TensorBoardLog:
    """Writes scalars for TensorBoard, as an observer of the run."""

    def __init__(self, run: Path, step: int) -> None:
        # TensorBoard forgets what an earlier process wrote of later steps: they will be made again.
        try:
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto.event_pb2 import Event, SessionLog
            from tensorboardX.summary import scalar
        except ImportError:
            raise UsageError(
                "--tensorboard: needs tensorboardX; install it with "
                f"{installing('tensorboard')}, or omit the option"
            ) from None
        self._directory = run / DIRECTORY
        self._event, self._scalar = Event, scalar
        make_directory(self._directory)
        with self._catch_errors():
            # Files are named by the second they begin in; the step keeps two of one second apart.
            self._writer = EventsWriter(str(self._directory / "events"), f".{step}")
            if step:
                self._write(step + 1, session_log={"status": SessionLog.START})
                self._writer.flush()

    def notify(self, event: TrainingEvent) -> None:
        """Writes an event of the kinds that have numbers, at once."""
        match event:
            case StepReport():
                values = {f"training/{name}": getattr(event, name) for name in REPORTED}
            case ValidationReport():
                group = "validation" if event.weights == "current" else "validation_average"
                values = {f"{group}/{name}": value for name, value in event.scores.items()}
            case RunEnded():
                self.close()
                return
            case _:
                return
        with self._catch_errors():
            for name, value in values.items():
                self._write(event.step, summary=self._scalar(name, value))
            self._writer.flush()

    def close(self) -> None:
        """Ends the file; a second call does nothing."""
        with suppress(OSError, ValueError):  # all is written, and it may be closed already
            self._writer.close()

    def _write(self, step: int, **content: object) -> None:
        self._writer.write_event(self._event(step=step, wall_time=time.time(), **content))

    @contextmanager
    def _catch_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise not_writable(self._directory, error) from None
