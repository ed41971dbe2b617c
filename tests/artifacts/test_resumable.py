import json
import os
import subprocess

import pytest

from tformer_cli.artifacts.resumable import resumable_file
from tformer_cli.errors import ArtifactError

ORIGIN = {"model": "a1", "--beam-size": "5"}


def write(path, numbers, *, stop_at=None, origin=ORIGIN):
    """Writes a line a number, marking every second one; fails at `stop_at`."""
    with resumable_file(path, origin) as file:
        for number in numbers:
            if number < file.done:
                continue
            if number == stop_at:
                raise KeyboardInterrupt
            file.stream.write(b"%d\n" % number)
            if number % 2:
                file.mark(number + 1)


def test_resumes_after_the_last_mark_and_leaves_no_other_file(tmp_path):
    path = tmp_path / "out.txt"
    for stop_at in (3, 3, 8):
        with pytest.raises(KeyboardInterrupt):
            write(path, range(11), stop_at=stop_at)
        assert not path.exists()
    write(path, range(11))
    assert path.read_bytes() == b"".join(b"%d\n" % i for i in range(11))
    assert [file.name for file in tmp_path.iterdir()] == ["out.txt"]


def test_what_a_killed_run_without_resume_left_is_removed(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    path, live = tmp_path / "out.txt", tmp_path / f"out.txt.{os.getppid()}.partial"
    (tmp_path / f"out.txt.{ended.pid}.partial").write_text("half a li")
    live.write_text("somebody writes it")
    write(path, range(3))
    assert sorted(tmp_path.iterdir()) == [path, live]


def test_a_finished_file_is_replaced_only_by_a_finished_one(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt):
        write(path, range(9), stop_at=5)
    assert path.read_text() == "before"
    write(path, range(9))
    assert path.read_text().startswith("0\n1\n")


def test_a_partial_file_with_other_settings_is_refused_and_kept(tmp_path):
    path = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        write(path, range(9), stop_at=5)
    with pytest.raises(ArtifactError, match=r"started with a different --beam-size, model;"):
        write(path, range(9), origin={"model": "b2", "--beam-size": "1"})
    write(path, range(9))


@pytest.mark.parametrize("record", ["", "[]", '{"done": 1}', json.dumps({"origin": ORIGIN})])
def test_a_damaged_record_is_refused(tmp_path, record):
    path = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt):
        write(path, range(9), stop_at=5)
    (tmp_path / "out.txt.part.json").write_text(record)
    with pytest.raises(ArtifactError, match="is damaged"):
        write(path, range(9))


def test_two_writers_of_one_file(tmp_path):
    path = tmp_path / "out.txt"
    with resumable_file(path, ORIGIN) as file:
        file.stream.write(b"mine\n")
        with pytest.raises(ArtifactError, match="another process is writing it"):
            write(path, range(3))
    assert path.read_bytes() == b"mine\n"
