"""Reports and validations as TensorBoard events, by tensorboardX (the extra `tensorboard`).

tensorboardX writes the same files as torch's own writer, but needs protobuf alone, where that one
needs all of TensorBoard, its server included. Its `SummaryWriter` writes in a thread: when a full
disk ends that, the training waits for it for ever. So events are written here, one by one.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import make_directory, not_writable
from tformer_cli.training.events import RunEnded, StepReport, TrainingEvent, ValidationReport

DIRECTORY = "tensorboard"
"""Folder of events in a run directory."""
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
        """Opens the events of a run that stands at a step.

        TensorBoard forgets what an earlier process wrote of later steps: they will be made again.

        Raises:
            UsageError: if tensorboardX is not installed.
            ArtifactError: if the events cannot be written.
        """
        try:
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto.event_pb2 import Event, SessionLog
            from tensorboardX.summary import scalar
        except ImportError:
            raise UsageError(
                "--tensorboard: needs tensorboardX; install it with pip install "
                "'tformer[tensorboard]', or omit the option"
            ) from None
        self._directory = run / DIRECTORY
        self._event, self._scalar = Event, scalar
        make_directory(self._directory)
        with self._writing():
            # Files are named by the second they begin in; the step keeps two of one second apart.
            self._writer = EventsWriter(str(self._directory / "events"), f".{step}")
            if step:
                self._write(step + 1, session_log={"status": SessionLog.START})
                self._writer.flush()

    def notify(self, event: TrainingEvent) -> None:
        """Writes an event of the kinds that have numbers, at once.

        Raises:
            ArtifactError: if it cannot be written.
        """
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
        with self._writing():
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
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise not_writable(self._directory, error) from None
