"""Jobs on a terminal: how far they are, and where their time went."""

from datetime import datetime
from typing import TYPE_CHECKING

from tformer_cli.cli.commands.training_progress import clock, duration
from tformer_cli.cli.streams import stderr_console
from tformer_cli.wording import count_of, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tformer_cli.artifacts.job_file import JobRecord, Spent
    from tformer_cli.show.document import Table

# Tables omit what takes less.
LEAST_SECONDS = 0.05


def times_table(times: "Sequence[Spent]") -> "Table":
    """Makes a table of where time went; its rows add up to the time of all workers."""
    from tformer_cli.show.document import Table

    total = sum(row.seconds for row in times)
    shown = [row for row in times if row.seconds >= LEAST_SECONDS]
    # Only jobs of several stages name them
    columns = ("Stage", "Part")[not any(row.stage for row in shown) :]
    return Table(
        title="Where the time went",
        head=(*columns, "Time", "Share"),
        rows=[
            (
                *(row.stage, row.part)[-len(columns) :],
                clock(row.seconds) if row.seconds >= 60 else f"{row.seconds:.1f} s",
                f"{row.seconds / total:.1%}",
            )
            for row in shown
        ],
        labels=tuple(range(len(columns))),
    )


def show_times(times: "Sequence[Spent]", *, quiet: bool) -> None:
    """Shows on stderr where the time of a job went."""
    if quiet or not any(row.seconds >= LEAST_SECONDS for row in times):
        return
    from tformer_cli.show.terminal import show_blocks

    show_blocks(stderr_console(), [times_table(times)])


def job_rows(job: "JobRecord") -> "Iterator[tuple[str, str]]":
    """Yields what there is to say about a job, for people."""
    yield "Job", job.command
    yield "State", _state(job)
    done = f"{job.done:,}"
    if job.total:
        done += f" of {count_of(job.total, job.unit.removesuffix('s'))}"
        done += f" ({job.done / job.total:.0%})"
    else:
        done += f" {job.unit}"
    doing = f"; {visible(job.doing, 200)}" if job.doing else ""
    yield "Progress", f"{done}{doing}"
    if job.per_second and job.unit != "stages":
        yield "Rate", f"{job.per_second:,.1f} {job.unit}/s"
    if job.state == "running" and job.seconds_left is not None and job.unit != "stages":
        yield "Time left", f"about {duration(job.seconds_left)}"
    yield "Time so far", clock(job.seconds)
    total = sum(row.seconds for row in job.times)
    if times := [row for row in job.times if row.seconds >= max(LEAST_SECONDS, total / 200)]:
        yield (
            "Where it went",
            ", ".join(
                f"{row.stage}{': ' * bool(row.stage)}{row.part} {row.seconds / total:.0%}"
                for row in sorted(times, key=lambda row: -row.seconds)
            ),
        )


def _state(job: "JobRecord") -> str:
    updated = _local(job.updated)
    by = "" if job.process is None else f" in process {job.process} on {visible(job.host, 200)}"
    if job.state == "running":
        since = f" since {_local(job.begun)}" if by else ""
        return f"running{since}{by}; last report at {updated}"
    if job.state == "interrupted":
        return f"interrupted after {updated}{by}; the same command resumes it"
    reason = f": {visible(job.reason, 1000)}" if job.reason else ""
    return f"{job.state} at {updated}{reason}"


def _local(moment: str) -> str:
    """Writes a time of a record in the time zone of the reader."""
    try:
        return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return visible(moment, 40)
