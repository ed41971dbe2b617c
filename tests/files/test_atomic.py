"""Files that are written whole, read within limits, locked and cached."""

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest

from tformer_cli.errors import ArtifactError, DataError, RecipeError
from tformer_cli.files.atomic import (
    aside_of,
    directory_aside,
    held_directory,
    lock_directory,
    make_directory,
    remove_tree,
    remove_unheld,
    scratch_directory,
    scratch_file,
    write_text,
    written_aside,
)
from tformer_cli.files.cache import cache_directory
from tformer_cli.files.regular_file import MIB, read_bounded, read_regular
from tformer_cli.recipe import load_recipe
from tformer_cli.text.tokenizer import read_tokenizer
from tformer_cli.wording import as_named, remember_name


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with contextlib.suppress(RuntimeError), written_aside(path) as aside:
        aside.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]
    write_text(path, "new\r\n")
    assert path.read_bytes() == b"new\r\n"


def test_a_directory_replaces_the_old_one_whole_or_not_at_all(tmp_path):
    path = tmp_path / "step"
    with directory_aside(path) as aside:
        (aside / "one").write_text("1")
    with contextlib.suppress(RuntimeError), directory_aside(path) as aside:
        (aside / "two").write_text("2")
        raise RuntimeError
    assert [entry.name for entry in path.iterdir()] == ["one"]
    with directory_aside(path) as aside:
        (aside / "three").write_text("3")
    assert [entry.name for entry in path.iterdir()] == ["three"]
    remove_tree(path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_directory_stays(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("dear")
    with pytest.raises(ArtifactError, match=r": is a file; "), directory_aside(path):
        pass
    assert path.read_text() == "dear"
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written_are_errors_of_one_line(tmp_path):
    with pytest.raises(ArtifactError, match=r"missing.*: cannot be written \(no such file"):
        write_text(tmp_path / "missing" / "a.txt", "text")
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"file: is a file; name a directory"):
        make_directory(tmp_path / "file")
    with pytest.raises(ArtifactError, match="cannot be written"):
        make_directory(tmp_path / "file" / "below")
    with pytest.raises(ArtifactError, match=r"a\.txt: cannot be written \(not a directory\)"):
        write_text(tmp_path / "file" / "a.txt", "text")


def test_of_a_link_the_directory_that_it_leads_to_is_written(tmp_path):
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place")
    with directory_aside(tmp_path / "link") as aside:
        (aside / "file").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "place" / "file").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "place"]


def test_a_name_too_long_for_a_directory_is_refused(tmp_path):
    with (
        pytest.raises(ArtifactError, match="file name too long"),
        directory_aside(tmp_path / ("x" * 300)),
    ):
        pass


def test_the_cache_is_where_xdg_puts_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "tformer"


@pytest.mark.parametrize("value", [None, "", "relative/cache"])
def test_without_an_absolute_path_the_cache_is_in_the_home_directory(monkeypatch, tmp_path, value):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME")
    if value is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cache_directory() == tmp_path / ".cache" / "tformer"


def test_without_a_home_directory_the_variable_to_set_is_named(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pathlib.Path.home", _no_home)
    with pytest.raises(ArtifactError, match="set XDG_CACHE_HOME"):
        cache_directory()


def test_a_model_in_the_cache_has_the_users_name_and_its_files_their_own():
    remember_name("/cache/models/12ab", "opus")
    assert as_named("/cache/models/12ab: is a classifier") == "opus: is a classifier"
    assert as_named("name /cache/models/12ab") == "name opus"
    damaged = "/cache/models/12ab/config.json: is not JSON"
    assert as_named(damaged) == damaged


def _no_home():
    raise RuntimeError("Could not determine home directory.")


def test_a_file_is_read_whole_up_to_a_size(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a" * MIB)
    for read in (read_regular, read_bounded):
        assert read(path, MIB) == b"a" * MIB
        with pytest.raises(OSError, match="longer than 1,048,575 bytes"):
            read(path, MIB - 1)


def test_special_files_are_not_waited_for(tmp_path, spoil):
    with pytest.raises(OSError, match=spoil(tmp_path / "file")):
        read_regular(tmp_path / "file", 100 * MIB)


def test_a_named_pipe_is_read_and_a_device_not_forever(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[b"text"])
    writer.start()
    assert read_bounded(path, MIB) == b"text"
    writer.join()
    (tmp_path / "zero").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="longer than 1,048,576 bytes"):
        read_bounded(tmp_path / "zero", MIB)
    with pytest.raises(RecipeError, match="longer than 16,777,216 bytes"):
        load_recipe(str(tmp_path / "zero"))


def test_the_tokenizer_of_a_directory_is_an_ordinary_file(tmp_path, spoil):
    said = spoil(tmp_path / "tokenizer.json")
    with pytest.raises(DataError, match=f"cannot be read .{said}.; name a tokenizer"):
        read_tokenizer(tmp_path)


def test_a_second_holder_is_refused_and_a_later_one_is_not(tmp_path):
    with (
        lock_directory(tmp_path),
        pytest.raises(ArtifactError, match="another training process uses this directory"),
        lock_directory(tmp_path),
    ):
        pass
    with lock_directory(tmp_path):
        pass


def test_a_killed_holder_lets_go(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from tformer_cli.files.atomic import lock_directory\n"
        "with lock_directory(Path(sys.argv[1])):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert died.returncode == -9
    with lock_directory(tmp_path):
        pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_does_not_stop_a_training(tmp_path, monkeypatch, number):
    def flock(descriptor, operation):
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "flock", flock)
    with lock_directory(tmp_path):
        pass


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


def test_held_directories_of_killed_processes_are_removed_and_others_stay(temporary):
    code = (
        "import os, sys; from tformer_cli.files.atomic import held_directory\n"
        "print(held_directory('tformer-x-')[0], flush=True)\n"
        "if os.fork() == 0: sys.stdin.read()\n"
        "else: os.kill(os.getpid(), 9)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        killed = Path(child.stdout.readline().rstrip("\n"))
        child.wait()
        (killed / "document").write_text("of a user")
        mine, descriptor = held_directory("tformer-x-")
        by_hand, other = temporary / "tformer-x-document", temporary / "tformer-x-notes"
        link, file = temporary / "tformer-x-linklink", temporary / "tformer-x-filefile"
        by_hand.mkdir(0o755)
        other.mkdir(0o700)
        link.symlink_to(mine)
        file.touch()
        everything = {killed, mine, by_hand, other, link, file}
        remove_unheld("tformer-x-")
        assert set(temporary.iterdir()) == everything  # a child of the killed one holds it
        child.stdin.close()
        with contextlib.suppress(FileNotFoundError):
            while killed.stat():
                remove_unheld("tformer-x-")
    os.close(descriptor)
    assert set(temporary.iterdir()) == everything - {killed}


def test_a_full_temporary_directory_is_named(tmp_path):
    code = (
        "import errno, os, tempfile\n"
        "from contextlib import closing\n"
        "from tformer_cli.plugins.corpora_tools.quality import minhash, repeats\n"
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


def test_a_small_file_takes_little_memory_whatever_may_come(tmp_path):
    (tmp_path / "small").write_bytes(b"x" * 100)
    tracemalloc.start()
    assert len(read_regular(tmp_path / "small", 1000 * MIB)) == 100
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MIB
