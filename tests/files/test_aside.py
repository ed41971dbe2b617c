import os
import subprocess
import sys

import pytest

from tformer_cli.files.aside import aside_of
from tformer_cli.files.atomic import directory_aside, written_aside


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
