"""Training the runs of a study, several at a time, each by a process that is `tformer train`."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Protocol

from tformer_cli.errors import Interrupted, UsageError
from tformer_cli.plugins.corpora_tools.study.plan import Study, StudyRun, is_finished
from tformer_cli.trainer.processes.signals import StopRequest
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "tformer_cli.plugins.corpora_tools.study.worker"
LOOK_SECONDS = 0.2
HELD_SECONDS = 60.0
"""Time that a process of an earlier command that was killed may need for its checkpoint."""
IN_USE = "another training process uses this directory"
BAD_USAGE = 2


class Display(Protocol):
    """Shows what a study is doing."""

    def begin(self, run: StudyRun) -> None: ...
    def end(self, run: StudyRun, problem: str) -> None: ...
    def look(self, running: Sequence[StudyRun]) -> None: ...


@dataclass(kw_only=True)
class Job:
    """A run and the process that trains it."""

    run: StudyRun
    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    def close(self) -> None:
        """Closes its files; a process that still runs is stopped by that."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.errors.close()

    def problem(self) -> str:
        """The last line of what it said, without its label."""
        self.errors.seek(0)
        lines = self.errors.read().decode("utf-8", "replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return last.removeprefix("error: ") or f"exit status {self.process.returncode}"


def train_runs(
    study: Study,
    *,
    n_jobs: int,
    threads: int,
    device: str,
    display: Display,
    stop: StopRequest,
) -> str:
    """Trains all runs that are not finished.

    Returns:
        Which runs have failed, after all others are finished, and why; empty: none.

    Raises:
        UsageError: if a run cannot begin, for its data or its device, say.
        Interrupted: on a signal; all runs have written their checkpoints.
    """
    waiting = [run for run in study.runs if not is_finished(run)]
    jobs: list[Job] = []
    failed: list[str] = []
    held: dict[Path, float] = {}
    try:
        while waiting or jobs:
            for job in [job for job in jobs if job.process.poll() is not None]:
                jobs.remove(job)
                problem = job.problem() if job.process.returncode else ""
                job.close()
                began = held.setdefault(job.run.directory, time.monotonic())
                if IN_USE in problem and time.monotonic() - began < HELD_SECONDS:
                    waiting.insert(0, job.run)
                    time.sleep(LOOK_SECONDS)
                    continue
                display.end(job.run, problem)
                if job.process.returncode == BAD_USAGE:
                    raise UsageError(f"{job.run.directory}: {problem}")
                failed += [f"{job.run.directory} ({problem})"] if problem else []
            if stop:
                raise Interrupted(
                    f"stopped with {count_of(len(waiting) + len(jobs), 'run')} to go; run the same "
                    "command again to continue",
                    stop.signal_number,
                )
            for run in _ready(study, waiting, [job.run for job in jobs], n_jobs):
                waiting.remove(run)
                if run.directory not in held:
                    display.begin(run)
                jobs.append(_start(study, run, threads, device))
            display.look([job.run for job in jobs])
            time.sleep(LOOK_SECONDS)
    finally:
        _end(jobs)
    if not failed:
        return ""
    return (
        f"{count_of(len(failed), 'run')} failed: {'; '.join(failed)}; correct the cause, and "
        "run the same command again"
    )


def _ready(
    study: Study, waiting: Sequence[StudyRun], running: Sequence[StudyRun], n_jobs: int
) -> list[StudyRun]:
    """Chooses runs to start now: time of the first seed may fix the steps of the others."""
    pacing = {run.variant: study.pacing_seed(run.variant) for run in waiting}
    unfinished = {
        run.variant for run in (*waiting, *running) if run.seed == pacing.get(run.variant)
    }
    may_start = (
        run
        for run in waiting
        if run.seed == pacing[run.variant]
        or not run.recipe.training.max_minutes
        or run.variant not in unfinished
    )
    return [run for run, _ in zip(may_start, range(n_jobs - len(running)), strict=False)]


def _start(study: Study, run: StudyRun, threads: int, device: str) -> Job:
    errors = TemporaryFile()  # noqa: SIM115 - closed at the end of the job
    process = subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, "-P", "-m", MODULE, *train_arguments(study, run, threads, device)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        # To import this very package
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.curdir for p in sys.path)},
        # Ctrl-C in a terminal is for this process, which stops the others
        start_new_session=True,
    )
    return Job(run=run, process=process, errors=errors)


def train_arguments(study: Study, run: StudyRun, threads: int, device: str) -> list[str]:
    """The command line of `tformer` that trains a run."""
    return [
        *("train", str(study.recipe_file(run.variant)), "-o", str(run.directory)),
        *(part for override in study.overrides for part in ("--set", override)),
        *_length_arguments(study, run),
        *("--seed", str(run.seed), "--threads", str(threads), "--device", device, "--quiet"),
    ]


def _length_arguments(study: Study, run: StudyRun) -> Iterator[str]:
    own, settled = run.recipe.training, study.settle_recipe(run).training
    for key in ("max_minutes", "max_steps", "warmup_steps"):
        if getattr(own, key) != getattr(settled, key):
            yield from ("--set", f"training.{key}={getattr(settled, key)}")


def _end(jobs: Sequence[Job]) -> None:
    """Ends processes that still train; each writes a checkpoint."""
    for job in jobs:
        job.process.terminate()
    for job in jobs:
        job.process.wait()
        job.close()
