"""Progress of a job that works line by line: live on a terminal, a plain line now and then."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from tformer_cli.cli.streams import STANDARD_STREAM, is_live, is_regular_file, note, stderr_console
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, Task, TaskID
    from rich.text import Text

# The log of a job of hours stays short enough to read
SECONDS_BETWEEN_REPORTS = 10.0

Item = TypeVar("Item")


class LineProgress:
    """Shows nothing, for `--quiet`."""

    def update(self, n_lines: int, detail: str = "") -> None:
        """Reports the number of lines done so far, and what else is known of the work."""

    def end(self) -> None:
        """Reports that the job is complete."""


class PlainProgress(LineProgress):
    """A line on stderr every few seconds, and a last one if there was any."""

    def __init__(self, total: int | None, what: str, begun: int = 0, unit: str = "line") -> None:
        self._total = total
        self._what, self._unit = what, unit
        self._begun = begun
        self._detail = ""
        self._start = self._last_time = monotonic()
        self._done = 0
        self._last_lines: int | None = None

    def update(self, n_lines: int, detail: str = "") -> None:
        """Reports if some time has passed since the last report."""
        self._done, self._detail = n_lines, detail
        if monotonic() - self._last_time >= SECONDS_BETWEEN_REPORTS:
            self._say(n_lines)

    def end(self) -> None:
        """Reports the total, unless nothing or just that was reported."""
        # A short job says nothing at all: scripts that run hundreds keep a readable log
        if self._last_lines not in (None, self._done):
            self._say(self._done)

    def _say(self, n_lines: int) -> None:
        self._last_lines, self._last_time = n_lines, monotonic()
        # Lines of an earlier start took none of this time
        rate = (n_lines - self._begun) / max(self._last_time - self._start, 1e-9)
        done, left = count_of(n_lines, self._unit), ""
        if self._total:
            done = f"{n_lines:,} of {count_of(self._total, self._unit)}"
            if rate and n_lines < self._total:
                left = f", {(self._total - n_lines) / rate:.0f} s left"
        detail = f" ({self._detail})" if self._detail else ""
        note(f"{self._what}: {done}, {rate:.1f} {self._unit}s/s{detail}{left}")


class LiveProgress(LineProgress):
    """A bar."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self._progress = progress
        self._task = task

    def update(self, n_lines: int, detail: str = "") -> None:
        """Moves the bar."""
        self._progress.update(self._task, completed=n_lines, detail=detail)


@contextmanager
def line_progress(
    total: int | None,
    what: str = "translating",
    *,
    quiet: bool,
    begun: int = 0,
    output: str | None = None,
    unit: str = "line",
) -> Iterator[LineProgress]:
    """Yields a progress display that suits stderr; `unit` names the counted things."""
    if quiet or (output is not None and shares_terminal(output)):
        yield LineProgress()
    elif not is_live():
        plain = PlainProgress(total, what, begun, unit)
        yield plain
        plain.end()
    else:
        with _bar(unit) as progress:
            task = progress.add_task(what, total=total, completed=begun, detail="")
            yield LiveProgress(progress, task)


@contextmanager
def counted_steps(what: str, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """Yields a function that shows how often it has been called, before each batch of some work."""
    with line_progress(None, what, quiet=quiet, unit="step") as progress:
        numbers = count(1)
        yield lambda: progress.update(next(numbers))


def shares_terminal(output: str) -> bool:
    """Returns whether a bar would be drawn over results on the same terminal."""
    return output == STANDARD_STREAM and sys.stdout.isatty() and is_live()


@contextmanager
def show_count(
    items: Iterable[Item], what: str, output: str, *, quiet: bool
) -> Iterator[Iterator[Item]]:
    """Yields the same items, one a line, and shows how many have been used."""
    # A bar is drawn only while results go into a file: the reader of a pipe may write on the same
    # terminal.
    hides_bar = is_live() and output == STANDARD_STREAM and not is_regular_file(sys.stdout)
    with line_progress(None, what, quiet=quiet or hides_bar) as progress:
        yield _count_items(items, progress)


def _count_items(items: Iterable[Item], progress: LineProgress) -> Iterator[Item]:
    for number, item in enumerate(items, 1):
        # Counted when the result is written, not when it is made
        yield item
        progress.update(number)


def _bar(unit: str) -> "Progress":
    # Here: rich takes a third of a short command's time to load
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text as RichText

    class Speed(ProgressColumn):
        def render(self, task: "Task") -> "Text":
            return RichText(f"{task.speed or 0.0:,.1f} {unit}s/s")

    class DetailedProgress(Progress):
        def get_renderables(self) -> Iterable["RenderableType"]:
            yield from super().get_renderables()
            yield from (
                RichText(f"  {t.fields['detail']}") for t in self.tasks if t.fields["detail"]
            )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    # Transient: what follows on stderr does not stand below a bar that is done
    return DetailedProgress(
        *columns, Speed(), TimeRemainingColumn(), console=stderr_console(), transient=True
    )
