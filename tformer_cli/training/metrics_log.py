"""`metrics.jsonl`: one JSON object a report, a validation and a rollback."""

import json
import os
from collections.abc import Container, Sequence
from dataclasses import asdict
from pathlib import Path

from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import not_writable, write_text
from tformer_cli.files.regular_file import read_regular
from tformer_cli.training.events import RolledBack, StepReport, TrainingEvent, ValidationReport
from tformer_cli.training.state import TrainingState

LARGEST = 1 << 30
"""Millions of reports."""


class MetricsLog:
    """Appends reports, validations and rollbacks to a file, as an observer of the run."""

    def __init__(self, path: Path, state: TrainingState) -> None:
        """Opens the log of a run that stands at a state.

        What an earlier process wrote of work that will be done again is cut off.
        """
        self._path = path
        self._cut(state.step, [scores["step"] for scores in state.validations], state.rollbacks)
        n_there = read_log(self._path).count(b'{"kind": "rollback"')
        for rollback in state.rollbacks[n_there:]:  # the last one, if a kill came before its line
            self.notify(rollback)

    def notify(self, event: TrainingEvent) -> None:
        """Writes an event of the three kinds; a rollback undoes the lines of what it undoes.

        Raises:
            ArtifactError: if the file cannot be written.
        """
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
        """Keeps the lines of what is done at a step and of these rollbacks (None: of all)."""
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
    """Reads what a run has written of itself so far: nothing where no file is.

    Raises:
        ArtifactError: if what is there is not what a run writes.
    """
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
