"""Reports and validations as TensorBoard events, by tensorboardX (the extra `tensorboard`).

tensorboardX writes the same files as torch's own writer, but needs protobuf alone, where that one
needs all of TensorBoard, its server included.
"""

from pathlib import Path

from tformer_cli.errors import UsageError
from tformer_cli.training.events import RunEnded, StepReport, TrainingEvent, ValidationReport

DIRECTORY = "tensorboard"
"""Where a run directory keeps its events."""
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
        """
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UsageError(
                "--tensorboard: needs tensorboardX; install it with "
                "pip install 'tformer[tensorboard]', or leave the option out"
            ) from None
        purged = step + 1 if step else None
        # Files are named by the second they begin in; the step keeps two of one second apart.
        self._writer = SummaryWriter(
            str(run / DIRECTORY), purge_step=purged, filename_suffix=f".{step}"
        )

    def notify(self, event: TrainingEvent) -> None:
        """Writes an event of the kinds that have numbers, at once."""
        match event:
            case StepReport():
                for name in REPORTED:
                    self._writer.add_scalar(f"training/{name}", getattr(event, name), event.step)
            case ValidationReport():
                group = "validation" if event.weights == "current" else "validation_average"
                for name, value in event.scores.items():
                    self._writer.add_scalar(f"{group}/{name}", value, event.step)
        self._writer.flush()
        if isinstance(event, RunEnded):
            self.close()

    def close(self) -> None:
        """Ends the file; a second call does nothing."""
        self._writer.close()
