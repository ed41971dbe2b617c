"""A run as it goes: a live dashboard on a terminal, plain lines in a pipe, nothing when quiet."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from time import monotonic
from typing import TYPE_CHECKING

from tformer_cli.cli.streams import is_live, stderr_console, warn
from tformer_cli.kinds.kind import Examples
from tformer_cli.trainer.events import (
    BatchSplit,
    CheckpointWritten,
    PaceMeasured,
    RolledBack,
    RunEnded,
    RunStarted,
    StepDone,
    StepReport,
    TrainingEvent,
    ValidationReport,
)
from tformer_cli.wording import count_of, visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text


_BLOCKS = "▁▂▃▄▅▆▇█"
SCORES = {"bleu": "BLEU", "chrf": "chrF", "macro_f1": "macro F1"}
_LONGEST_SAMPLE = 200
_SECONDS_BETWEEN_BARS = 1.0  # to draw costs some milliseconds


class TrainingView:
    """Shows only warnings, for `--quiet`."""

    def __init__(self, examples: Examples) -> None:
        self._words = examples

    def prepare(self, what: str, n_examples: int) -> None:
        """Receives the progress of preparing the data."""

    def notify(self, event: TrainingEvent) -> None:
        # --quiet silences progress, not warnings
        for text in warnings(event):
            warn(text)


class PlainView(TrainingView):
    """One line on stderr for each event worth one."""

    def __init__(self, examples: Examples) -> None:
        super().__init__(examples)
        self._said_at = monotonic()

    def prepare(self, what: str, n_examples: int) -> None:
        if monotonic() - self._said_at > 5.0:  # a log file should not grow with the corpus
            done = f": {count_of(n_examples, self._words.example)}" if n_examples else ""
            self._say(f"{what}{done}")

    def notify(self, event: TrainingEvent) -> None:
        super().notify(event)
        for line in event_lines(event):
            self._say(line)

    def _say(self, line: str) -> None:
        self._said_at = monotonic()
        # A sample in brackets is not markup, and each line of a log stays whole
        stderr_console().print(line, markup=False, soft_wrap=True)


class Dashboard(TrainingView):
    """A live display: numbers, progress, validations and a sample of what the model does."""

    def __init__(self, live: "Live", examples: Examples) -> None:
        super().__init__(examples)
        self._live = live
        self._preparing = ""
        self._done: StepDone | None = None
        self._drawn_at = 0.0
        self._report: StepReport | None = None
        self._losses: list[float] = []
        self._validations: list[ValidationReport] = []
        self._checkpoint = "none yet"
        self._ended: RunEnded | None = None

    def prepare(self, what: str, n_examples: int) -> None:
        done = f" {count_of(n_examples, self._words.example)}" if n_examples else ""
        self._preparing = f"{what} …{done}"
        self._draw()

    def notify(self, event: TrainingEvent) -> None:
        super().notify(event)
        match event:
            case RunStarted() | PaceMeasured():
                self._preparing = ""
                style = "dim" if isinstance(event, RunStarted) else ""
                for line in event_lines(event):
                    # the console leaves lines whole, which a terminal would cut inside of words
                    self._live.console.print(
                        line, markup=False, highlight=False, style=style, soft_wrap=False
                    )
            case StepDone():
                self._done = event
                if monotonic() - self._drawn_at < _SECONDS_BETWEEN_BARS:
                    return
            case StepReport():
                self._report = event
                self._losses.append(event.loss)
            case ValidationReport():
                self._validations.append(event)
            case CheckpointWritten():
                self._checkpoint = f"step {event.step:,}"
            case RunEnded():
                self._ended = event
        self._draw()

    def _draw(self) -> None:
        self._drawn_at = monotonic()
        self._live.update(self._renderable(), refresh=True)

    def _renderable(self) -> "RenderableType":
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        if self._preparing:
            return Text(self._preparing, style="dim")
        parts: list[RenderableType] = [] if self._done is None else [self._progress(self._done)]
        if self._report is not None:
            parts.append(self._numbers(self._report))
        elif self._ended is None:  # a short run may end without any
            parts.append(Text("waiting for the first report …", style="dim"))
        if self._validations:
            parts += [self._history(), self._sample(self._validations[-1])]
        if self._ended is not None:
            parts.append(Text(event_lines(self._ended)[0], style="bold green"))
        return Panel(Group(*parts), title="tformer train", title_align="left", border_style="cyan")

    def _progress(self, done: StepDone) -> "RenderableType":
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        row = Table.grid(padding=(0, 1), expand=True)
        row.add_column()
        row.add_column(ratio=1)
        row.add_column(justify="right")
        share = 1.0 if self._ended is not None else done.share_done
        if share:
            left = f"{clock(done.seconds * (1.0 - share) / share)} left"
            row.add_row(f"{share:4.0%}", ProgressBar(total=1.0, completed=share), left)
        else:
            row.add_row("", ProgressBar(total=None, pulse=True), "until early stopping")
        return row

    def _numbers(self, report: StepReport) -> "Table":
        cells = {
            "step": f"{report.step:,}",
            "epoch": f"{report.epoch:.2f}",
            "time": clock(report.seconds),
            "loss": f"{report.loss:.3f}",
            "perplexity": f"{report.perplexity:.2f}",
            "learning rate": f"{report.learning_rate:.2e}",
            "tokens/s": f"{report.tokens_per_second:,.0f}{limit_share(report, 'limit')}",
            "padding": f"{report.padding:.1%}",
            "checkpoint": self._checkpoint,
        }
        named = [(f"[dim]{name}[/]", f"[bold]{value}[/]") for name, value in cells.items()]
        n_columns = 3 if self._live.console.width >= 72 else 1
        rows = [sum(named[at : at + n_columns], ()) for at in range(0, len(named), n_columns)]
        return _grid(2, [*rows, ("[dim]loss so far[/]", sparkline(self._losses, 32))])

    def _history(self) -> "Table":
        from rich.table import Table

        names = by_rank(self._validations[-1].scores)
        if self._live.console.width < 72:
            # A narrow terminal has no room for more
            names = [names[0], "loss"]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("validation", no_wrap=True)
        for name in names:
            table.add_column(SCORES.get(name, name), justify="right")
        table.add_column("")
        # A long run has more than fit on a screen
        for report in self._validations[-5:]:
            table.add_row(
                "average" if report.weights == "average" else f"step {report.step:,}",
                *(f"{report.scores[key]:.2f}" for key in names),
                "[green]best[/]" if report.is_best else "",
            )
        return table

    def _sample(self, report: ValidationReport) -> "Table":
        from rich.text import Text

        words = self._words
        sample = {words.read: report.sample_source, words.written: report.sample_translation}
        rows = [(Text(name, style="dim"), _sample_text(text)) for name, text in sample.items()]
        right = (Text(words.right, style="dim"), _sample_text(report.sample_reference, "dim"))
        return _grid(1, [*rows, right])


def _grid(gap: int, rows: "Iterable[tuple[str | Text, ...]]") -> "Table":
    from rich.table import Table

    table = Table.grid(padding=(0, gap))
    for row in rows:
        table.add_row(*row)
    return table


def _sample_text(text: str, style: str = "") -> "Text":
    from rich.text import Text

    return Text(visible(text, _LONGEST_SAMPLE), style=style)


@contextmanager
def training_progress(examples: Examples, *, quiet: bool) -> Iterator[TrainingView]:
    """Yields the view that fits stderr: live, plain lines or nothing."""
    if quiet:
        yield TrainingView(examples)
    elif not is_live():
        yield PlainView(examples)
    else:
        from rich.live import Live

        # Each event redraws it: a drawing thread would compete with training
        with Live(console=stderr_console(), auto_refresh=False) as live:
            yield Dashboard(live, examples)


def event_lines(event: TrainingEvent) -> list[str]:
    match event:
        case RunStarted():
            verb = f"resuming from step {event.step:,}" if event.step else "starting"
            size = f"{event.n_parameters:,} parameters"
            words = f"vocabulary {event.vocab_size:,}, " if event.vocab_size else ""
            how = f"{size}, {words}{event.device}, {event.precision}"
            batches = count_of(event.batches_per_epoch, "batch", "batches")
            data = f"{count_of(event.n_pairs, event.unit)}, {batches} per epoch"
            return [*event.notes, f"{verb}: {how}; {data}"]
        case PaceMeasured():
            what = "the remaining " if event.step else ""
            steps = count_of(event.n_steps, "step")
            return [f"training {what}{steps}: about {duration(event.seconds)} on this machine"]
        case StepReport():
            left = ""
            if event.share_done:
                # The pace of the whole run: steps of one report vary with their batches
                seconds = event.seconds * (1.0 - event.share_done) / event.share_done
                left = f", {clock(seconds)} left"
            share = limit_share(event, "the hardware's limit")
            line = (
                f"step {event.step:,}, epoch {event.epoch:.2f}: loss {event.loss:.3f}, "
                f"perplexity {event.perplexity:.2f}, learning rate {event.learning_rate:.2e}, "
                f"{event.tokens_per_second:,.0f} tokens/s{share}, padding {event.padding:.1%}, "
                f"{clock(event.seconds)}{left}"
            )
            return [line]
        case ValidationReport():
            scores = event.scores
            best = ", best so far" if event.is_best else ""
            which = "average" if event.weights == "average" else f"step {event.step:,}"
            shown = ", ".join(
                f"{SCORES.get(name, name)} {scores[name]:.{3 if name == 'loss' else 2}f}"
                for name in by_rank(scores)
            )
            line = f"validation of {which}: {shown}, {event.seconds:.1f} s{best}"
            pair = (event.sample_source, event.sample_translation)
            source, translation = (visible(text, _LONGEST_SAMPLE) for text in pair)
            return [line, f"  {source} → {translation}"]
        case StepDone() | CheckpointWritten() | RolledBack() | BatchSplit():
            # The last two are warnings; a line for every step or checkpoint would say nothing
            return []
        case RunEnded():
            # The published weights: an average, or a single step that validated better
            averaged = ", ".join(f"{step:,}" for step in event.averaged_steps)
            is_mean = len(event.averaged_steps) > 1
            final = f"; {'average of steps' if is_mean else 'step'} {averaged}" if averaged else ""
            if event.better_step:
                final = f"; step {event.better_step:,}, which scores better than the average"
            return [f"finished in {clock(event.seconds)}: {event.reason}{final}"]


def by_rank(scores: Mapping[str, float]) -> list[str]:
    """Names of scores: the task's own first, then loss and perplexity."""
    losses = ("loss", "perplexity")
    return [*(name for name in scores if name not in losses), *(n for n in losses if n in scores)]


def limit_share(report: StepReport, limit: str) -> str:
    """Reports the measured share of the hardware's limit that the products reach."""
    return f" · {report.hardware_share:.0%} of {limit}" if report.hardware_share else ""


def warnings(event: TrainingEvent) -> list[str]:
    """Describes a problem that does not end the run."""
    match event:
        case RunStarted():
            return list(event.doubts)
        case RolledBack():
            place = f"step {event.step:,}" if event.step else "the initial weights"
            text = (
                f"step {event.failed_step:,}: {event.problem}; rolled back to {place}; from now "
                f"on learning rates × {event.learning_rate_factor:g}; the batches in between are "
                "skipped"
            )
            return [text]
        case BatchSplit():
            text = (
                f"step {event.step:,}: out of memory; from now on, batches that do not fit are "
                "computed in parts, with the same gradients; choose a lower "
                "training.tokens_per_batch for a new run"
            )
            return [text]
        case RunEnded():
            return [f"not in the average; {problem}" for problem in event.damaged]
        case _:
            return []


def sparkline(values: list[float], width: int) -> str:
    """Draws a curve of at most `width` characters, each the mean of its share of the values."""
    if not values:
        return ""
    n_cells = min(width, len(values))
    bounds = [round(i * len(values) / n_cells) for i in range(n_cells + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    low, high = min(means), max(means)
    # A flat curve has no span to divide by
    span = (high - low) or 1.0
    return "".join(_BLOCKS[round((mean - low) / span * (len(_BLOCKS) - 1))] for mean in means)


def clock(seconds: float) -> str:
    """Writes a duration as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def duration(seconds: float) -> str:
    """Writes an estimate of time in two units at most: 45 s, 3 min 40 s, 3 d 4 h."""
    if seconds < 90.0:
        return f"{max(1, round(seconds))} s"
    if seconds < 600.0:
        # To ten seconds: an estimate is no more precise
        minutes, rest = divmod(round(seconds, -1), 60)
        return f"{minutes:.0f} min {rest:.0f} s" if rest else f"{minutes:.0f} min"
    minutes = round(seconds / 60.0)
    if minutes < 90:
        return f"{minutes} min"
    # To ten minutes, for the same reason
    hours, minutes = divmod(round(minutes, -1), 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
