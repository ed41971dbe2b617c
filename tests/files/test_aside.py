import os
import subprocess
import sys

import pytest

from tformer_cli.files.atomic import (
    aside_of,
    directory_aside,
    scratch_directory,
    scratch_file,
    written_aside,
)


@pytest.fixture
def dead():
    """The number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_leftovers_of_a_killed_process_are_removed_when_the_file_is_rewritten(tmp_path, dead):
    (tmp_path / f"out.txt.{dead}.partial").write_text("half")
    (tmp_path / "out.txt.9999999999.partial").write_text("half")
    with written_aside(tmp_path / "out.txt") as aside:
        aside.write_text("whole")
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.txt"]


def test_files_of_a_live_process_and_other_files_stay(tmp_path, dead):
    names = {
        f"out.txt.{os.getppid()}.partial",
        f"other.txt.{dead}.partial",
        f"out.txt.bak.{dead}.partial",
        "out.txt.partial",
        "out.txt.1a.partial",
    }
    for name in names:
        (tmp_path / name).write_text(name)
    assert aside_of(tmp_path / "out.txt").name == f"out.txt.{os.getpid()}.partial"
    assert {entry.name for entry in tmp_path.iterdir()} == names


def test_directories_that_killed_processes_have_left_go_too(tmp_path, dead):
    for name in (f"step.{dead}.partial", f"step.removed.{dead}.partial"):
        (tmp_path / name / "below").mkdir(parents=True)
    (tmp_path / "step.partial").mkdir()  # which is somebody else's
    with directory_aside(tmp_path / "step") as aside:
        (aside / "file").touch()
    assert {entry.name for entry in tmp_path.iterdir()} == {"step", "step.partial"}


def test_a_killed_program_leaves_nothing_for_ever(tmp_path):
    code = (
        "import os, sys, pathlib\n"
        "from tformer_cli.files.atomic import written_aside\n"
        "with written_aside(pathlib.Path(sys.argv[1])) as aside:\n"
        "    aside.write_text('half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    path = tmp_path / "out.txt"
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    with written_aside(path) as aside:
        aside.write_text("whole")
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.txt"]


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def test_temporary_files_have_no_name_that_a_killed_process_could_leave(temporary):
    with scratch_file() as file:
        file.write(b"x" * 100_000)
        assert not list(temporary.iterdir())


def test_temporary_directories_of_killed_processes_are_removed_and_others_stay(temporary, dead):
    (temporary / f"tformer-{dead}-abc").mkdir()
    (temporary / f"tformer-{os.getppid()}-abc").mkdir()
    (temporary / "tformer-models").mkdir()
    with scratch_directory() as directory:
        left = {entry.name for entry in temporary.iterdir()}
        assert left == {directory.name, f"tformer-{os.getppid()}-abc", "tformer-models"}
    assert not directory.exists()


def test_a_full_temporary_directory_is_named(tmp_path):
    code = (
        "import errno, os, tempfile\n"
        "from contextlib import closing\n"
        "from tformer_cli.quality import minhash, repeats\n"
        "class Full:\n"
        "    def write(self, data): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "    close = flush = lambda self: self.write(b'')\n"
        "tempfile.TemporaryFile = lambda **_: Full()\n"
        "keys = closing(repeats.KeyFiles(1)), [minhash.np.ones(3)]\n"
        "for made, added in (keys, (closing(minhash.NearDuplicates()), [('a', 'b')])):\n"
        "    try:\n"
        "        with made as files: files.add(added)\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=True,
        text=True,
    )
    lines = found.stdout.splitlines()
    assert len(lines) == 2
    said = f"ArtifactError TMPDIR: temporary files cannot be written to {tmp_path} (no space left"
    assert all(line.startswith(said) for line in lines)
