"""The record of a job, as it runs, ends, fails or is killed."""

import errno
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import pytest

from tformer_cli.artifacts.job_file import JOB, Job, read_job, record_job
from tformer_cli.errors import ArtifactError, DataError, Interrupted
from tformer_cli.files.atomic import is_held, lock_directory, sign_lock

WORKER = """
import sys, time
from pathlib import Path
from tformer_cli.artifacts.job_file import Job, record_job
from tformer_cli.files.atomic import lock_directory, sign_lock
place = Path(sys.argv[1])
with lock_directory(place), record_job(Job(place, "distill", "stages", total=4)) as job:
    sign_lock(place)
    job.add({"search": 3.0}, "translate")
    job.report(1, "student")
    print("ready", flush=True)
    time.sleep(600)
"""


def state_of(directory):
    return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in directory.iterdir()}


def test_a_job_runs_while_its_process_holds_the_directory(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, tmp_path], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        before = state_of(tmp_path)
        running = read_job(tmp_path)
        assert state_of(tmp_path) == before
        process.kill()
        process.wait()
    assert (running.state, running.process, running.done, running.total) == (
        *("running", process.pid, 1, 4),
    )
    assert (running.doing, [vars(row) for row in running.times]) == (
        "student",
        [{"stage": "translate", "part": "search", "seconds": 3.0}],
    )
    assert json.loads((tmp_path / ".lock").read_text())["process"] == process.pid
    # The record is as it was, but nobody holds the lock
    assert json.loads((tmp_path / JOB).read_text())["state"] == "running"
    assert read_job(tmp_path).state == "interrupted"
    with lock_directory(tmp_path):
        assert read_job(tmp_path).state == "running"
        sign_lock(tmp_path)
    assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (None, "finished", ""),
        (KeyboardInterrupt(), "interrupted", ""),
        (SystemExit(143), "interrupted", ""),
        (Interrupted("stopped", 15), "interrupted", ""),
        (DataError("a.en: has changed\nwhy"), "failed", "a.en: has changed"),
    ],
)
def test_the_end_of_a_job_is_record_job(tmp_path, error, state, reason):
    ends = nullcontext() if error is None else pytest.raises(type(error))
    with ends, record_job(Job(tmp_path, "distill", "stages", total=2)) as job:
        job.report(2, "report")
        if error is not None:
            raise error
    record = read_job(tmp_path)
    assert (record.state, record.reason, record.done) == (state, reason, 2)
    assert [file.name for file in tmp_path.iterdir()] == [JOB]


def test_the_time_of_a_resumed_job_is_added_to_that_before(tmp_path):
    for n_done in (10, 30):
        with record_job(
            Job(tmp_path, "translate-corpus", "lines", total=30, begun_at=n_done // 3)
        ) as job:
            job.add({"search": 2.0, "writing": 0.5})
            time.sleep(0.05)
            job.report(n_done)
    record = read_job(tmp_path)
    assert {row.part: row.seconds for row in record.times} == {"search": 4.0, "writing": 1.0}
    assert record.seconds >= 0.1
    # Its rate is of the lines of this process
    assert 1 < record.per_second <= 20 / 0.05
    assert record.seconds_left == 0.0
    with record_job(Job(tmp_path, "distill", "stages")):  # another job has times of its own
        pass
    assert read_job(tmp_path).times == ()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "nightly.job/2"}', "[" * 10**5])
def test_a_job_file_of_another_program_is_no_record_and_stays(tmp_path, text):
    (tmp_path / JOB).write_text(text)
    assert read_job(tmp_path) is None
    with record_job(Job(tmp_path, "distill", "stages")) as job:
        job.report(1, "stage")
    assert (tmp_path / JOB).read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        '{"schema": "tformer.job/1"',
        '{"schema": "tformer.job/1"}',
        '{"schema": "tformer.job/2"}',
        f'"tformer.job/1"{"[" * 10**5}',
        f'{"[" * 10**5}"tformer.job/1"',
    ],
)
def test_a_damaged_record_is_an_error_of_one_line_and_is_written_anew(tmp_path, text):
    (tmp_path / JOB).write_text(text)
    with pytest.raises(ArtifactError, match=r"job\.json: is damaged \([^\n]*\); only"):
        read_job(tmp_path)
    with record_job(Job(tmp_path, "distill", "stages")):
        pass
    assert read_job(tmp_path).state == "finished"
    assert read_job(tmp_path / "nowhere") is None


def test_who_looks_does_not_keep_a_job_from_its_directory(tmp_path):
    (tmp_path / ".lock").touch()
    descriptor = os.open(tmp_path / ".lock", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    timer = threading.Timer(0.01, os.close, [descriptor])
    timer.start()
    with lock_directory(tmp_path):
        assert is_held(tmp_path, None)
        with (
            pytest.raises(ArtifactError, match="another training process"),
            lock_directory(tmp_path),
        ):
            pass
    assert not is_held(tmp_path, os.getpid())
    timer.join()


def test_without_locks_the_number_of_the_process_decides(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    (tmp_path / ".lock").touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert [is_held(tmp_path, n) for n in (None, os.getpid(), ended.pid)] == [False, True, False]
