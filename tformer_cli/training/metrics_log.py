"""`metrics.jsonl`: one JSON object a report and a validation."""

import json
from collections.abc import Container
from dataclasses import asdict
from pathlib import Path

from tformer_cli.artifacts.atomic import not_writable, write_text
from tformer_cli.training.events import StepReport, TrainingEvent, ValidationReport
from tformer_cli.training.state import TrainingState


class MetricsLog:
    """Appends reports and validations to a file, as an observer of the run."""

    def __init__(self, path: Path, state: TrainingState) -> None:
        """Opens the log of a run that stands at a state.

        What an earlier process wrote of work that will be done again is cut off.
        """
        self._path = path
        text = path.read_bytes() if path.is_file() else b""
        validated = {scores["step"] for scores in state.validations}
        kept = b"".join(
            line + b"\n" for line in text.split(b"\n") if _is_done(line, state.step, validated)
        )
        if kept != text:
            write_text(path, kept.decode("utf-8"))

    def notify(self, event: TrainingEvent) -> None:
        """Writes an event of the two kinds.

        Raises:
            ArtifactError: if the file cannot be written.
        """
        if not isinstance(event, StepReport | ValidationReport):
            return
        kind = "report" if isinstance(event, StepReport) else "validation"
        line = json.dumps({"kind": kind, **asdict(event)}, ensure_ascii=False)
        try:
            with self._path.open("a", encoding="utf-8", newline="") as file:
                file.write(line + "\n")
        except OSError as error:
            raise not_writable(self._path, error) from None


def _is_done(line: bytes, step: int, validated: Container[float]) -> bool:
    try:
        entry = json.loads(line)
        if entry["kind"] == "validation":
            return entry["weights"] == "current" and entry["step"] in validated
        return bool(entry["step"] <= step)
    except (ValueError, KeyError, TypeError):  # the last line of a killed process
        return False
