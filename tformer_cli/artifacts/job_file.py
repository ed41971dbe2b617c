"""The record that a job keeps of itself in its directory, for `tformer info` in another terminal.

A job writes it now and then. A killed job leaves it as it was, so the lock that the job held says
whether it still runs. Reading changes nothing.
"""

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Literal

from tformer_cli.errors import ArtifactError, Interrupted
from tformer_cli.files.atomic import aside_of, is_held, utc_now
from tformer_cli.files.regular_file import MIB, read_regular
from tformer_cli.structure import StructureError, structure

JOB = "job.json"
_OURS = b'"tformer.job/'
"""In every record, also a damaged one; a program of the user's may write a job.json, too."""
SECONDS_BETWEEN_WRITES = 2.0
State = Literal["running", "finished", "interrupted", "failed"]


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Time that a part of a job has taken so far."""

    stage: str = ""
    part: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """State and progress of a job."""

    schema: Literal["tformer.job/1"] = "tformer.job/1"
    command: str
    state: State = "running"
    reason: str = ""
    """The error of a failed job."""
    process: int | None
    """Number of the process that works, or worked last; None: unknown."""
    host: str
    begun: str
    """Start of that process, in UTC."""
    updated: str
    seconds: float = 0.0
    """Time of all processes that have worked on the job."""
    doing: str = ""
    """The current stage; a path in the directory if a training is going on there."""
    unit: str
    done: int = 0
    total: int | None = None
    per_second: float | None = None
    """Units of this process."""
    seconds_left: float | None = None
    times: tuple[Spent, ...] = ()

    def record(self) -> dict[str, object]:
        return asdict(self)


def read_job(directory: Path) -> JobRecord | None:
    """Reads the record of a job, and looks whether the job still runs; None: there is none.

    Raises an ArtifactError if the record is damaged.
    """
    file = directory / JOB
    if not directory.is_dir():
        return None
    try:
        content = read_regular(file, MIB)
        if _OURS not in content:
            return None
        record = structure(JobRecord, json.loads(content))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, StructureError) as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(
            f"{file}: is damaged ({reason}); only `tformer info` needs this record of a job"
        ) from None
    runs = record.host != socket.gethostname() or is_held(directory, record.process)
    if record.state == "running" and not runs:
        return replace(record, state="interrupted")
    return record


@dataclass
class Job:
    """A job that works, and writes how far it is."""

    directory: Path
    command: str
    unit: str
    total: int | None = None
    begun_at: int = 0
    """Units that earlier processes have done."""
    doing: str = ""
    times: dict[tuple[str, str], float] = field(default_factory=dict)
    """Seconds by stage and part, with those of earlier processes."""

    def __post_init__(self) -> None:
        self._begun, self._start, self._written = utc_now(), monotonic(), 0.0
        self._done, self._seconds = self.begun_at, 0.0
        self._is_recorded = True
        with suppress(ArtifactError):  # a damaged record is written anew
            earlier = read_job(self.directory)
            # A user's own file of this name stays; the job goes without a record
            self._is_recorded = earlier is not None or not (self.directory / JOB).exists()
            if earlier is not None and earlier.command == self.command:
                self._seconds = earlier.seconds
                self.times = {(row.stage, row.part): row.seconds for row in earlier.times}

    def add(self, seconds: Mapping[str, float], stage: str = "") -> None:
        """Adds the time of parts."""
        for part, spent in seconds.items():
            self.times[stage, part] = self.times.get((stage, part), 0.0) + spent

    def report(self, done: int | None = None, doing: str | None = None) -> None:
        """Notes the progress, and writes it if some time has passed or the stage is another one."""
        self._done = self._done if done is None else done
        is_new = doing not in (None, self.doing)
        self.doing = self.doing if doing is None else doing
        if is_new or monotonic() - self._written > SECONDS_BETWEEN_WRITES:
            self.write("running")

    def list_times(self) -> tuple[Spent, ...]:
        return tuple(
            Spent(stage=stage, part=part, seconds=round(seconds, 3))
            for (stage, part), seconds in self.times.items()
        )

    def write(self, state: State, reason: str = "") -> None:
        self._written = monotonic()
        if not self._is_recorded:
            return
        passed = self._written - self._start
        rate = (self._done - self.begun_at) / max(passed, 1e-9)
        left = None
        if rate and self.total is not None:
            left = round((self.total - self._done) / rate, 3)
        record = JobRecord(
            command=self.command,
            state=state,
            reason=reason,
            process=os.getpid(),
            host=socket.gethostname(),
            begun=self._begun,
            updated=utc_now(),
            seconds=round(self._seconds + passed, 3),
            doing=self.doing if state != "finished" else "",
            unit=self.unit,
            done=self._done,
            total=self.total,
            per_second=round(rate, 3),
            seconds_left=left,
            times=self.list_times(),
        )
        # Not flushed: only a reader needs it, and a job must not wait for the disk, or end for it
        with suppress(OSError):
            aside = aside_of(self.directory / JOB)
            aside.write_text(json.dumps(record.record(), ensure_ascii=False, indent=1) + "\n")
            aside.replace(self.directory / JOB)


@contextmanager
def record_job(job: Job) -> Iterator[Job]:
    """Writes the record of a job as it begins and as it ends."""
    job.write("running")
    try:
        yield job
    except (KeyboardInterrupt, SystemExit, Interrupted):
        job.write("interrupted")
        raise
    except BaseException as error:
        job.write("failed", str(error).partition("\n")[0])
        raise
    job.write("finished")
