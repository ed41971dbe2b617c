"""`metrics.jsonl`: one JSON object a report and a validation."""

import json
from dataclasses import asdict
from pathlib import Path

from tformer_cli.artifacts.atomic import not_writable, write_text
from tformer_cli.training.events import StepReport, TrainingEvent, ValidationReport


class MetricsLog:
    """Appends reports and validations to a file, as an observer of the run."""

    def __init__(self, path: Path, step: int) -> None:
        """Opens the log of a run that stands at a step.

        What an earlier process wrote of later steps, which will be made again, is cut off.
        """
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        kept = [line for line in lines if _is_up_to(line, step)]
        if len(kept) != len(lines):
            write_text(path, "".join(f"{line}\n" for line in kept))

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


def _is_up_to(line: str, step: int) -> bool:
    try:
        return bool(json.loads(line)["step"] <= step)
    except (ValueError, KeyError, TypeError):  # the last line of a killed process
        return False
