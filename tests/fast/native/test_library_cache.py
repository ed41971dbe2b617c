import errno
import json
import os
import shutil
import stat
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tformer_cli.fast.native.library_cache import (
    ABANDONED_SECONDS,
    ASIDE,
    REFUSAL_SECONDS,
    LibraryCache,
    NotPrivate,
    Refused,
    cache_directories,
)


@pytest.fixture
def cache(tmp_path):
    return LibraryCache(tmp_path / "cache", "kernels-1")


@pytest.fixture
def compile_into(adder):
    return lambda path: shutil.copyfile(adder, path)


def make(cache, compile_into, check=lambda path: None):
    with cache.locked():
        cache.make(compile_into, check)


def test_what_was_made_is_loaded(cache, compile_into):
    assert cache.load() is None
    make(cache, compile_into)
    assert cache.load().add(2, 3) == 5
    assert {path.suffix for path in cache.directory.iterdir()} == {".so", ".json", ".lock"}
    for path in [cache.directory, *cache.directory.iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) in (0o600, 0o700)


def test_another_name_is_another_library(cache, compile_into):
    make(cache, compile_into)
    assert LibraryCache(cache.directory, "kernels-2").load() is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b"\x7fELF" + os.urandom(1000)),
        lambda path: path.unlink(),
        lambda path: path.with_suffix(".json").write_text("{"),
        lambda path: path.with_suffix(".json").write_text("[]"),
        lambda path: path.with_suffix(".json").write_text('{"sha256": 3}'),
        lambda path: path.with_suffix(".json").write_text('{"refused": 3, "time": "now"}'),
        lambda path: path.with_suffix(".json").unlink(),
    ],
)
def test_what_is_damaged_is_made_anew(cache, compile_into, damage):
    make(cache, compile_into)
    damage(cache.directory / "kernels-1.so")
    assert cache.load() is None
    make(cache, compile_into)
    assert cache.load().add(2, 3) == 5


@pytest.mark.parametrize("name", ["", "kernels-1.so", "kernels-1.json"])
@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_what_others_can_write_is_not_loaded(cache, compile_into, name, mode):
    make(cache, compile_into)
    (cache.directory / name).chmod(mode)
    with pytest.raises(NotPrivate):
        cache.load()
    if not name:
        with pytest.raises(NotPrivate), cache.locked():
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["", "kernels-1.so", "kernels-1.json"])
def test_what_belongs_to_another_is_not_loaded(cache, compile_into, name):
    make(cache, compile_into)
    os.chown(cache.directory / name, 12345, -1)
    with pytest.raises(NotPrivate):
        cache.load()


@pytest.mark.parametrize("name", ["kernels-1.so", "kernels-1.json"])
def test_links_are_not_followed(cache, compile_into, tmp_path, name):
    make(cache, compile_into)
    path = cache.directory / name
    path.rename(tmp_path / name)
    path.symlink_to(tmp_path / name)
    with pytest.raises(OSError, match="symbolic link"):
        cache.load()


def test_a_directory_that_is_a_link_is_not_used(cache, compile_into, tmp_path):
    make(cache, compile_into)
    (tmp_path / "link").symlink_to(cache.directory)
    with pytest.raises(NotPrivate):
        LibraryCache(tmp_path / "link", "kernels-1").load()


def test_a_refusal_is_kept_for_a_while(cache, compile_into, monkeypatch):
    def refuse(path):
        raise Refused("it adds wrongly")

    make(cache, compile_into, refuse)
    with pytest.raises(Refused, match="it adds wrongly"):
        cache.load()
    assert not (cache.directory / "kernels-1.so").exists()
    verdict = cache.directory / "kernels-1.json"
    old = json.loads(verdict.read_text())
    old["time"] -= REFUSAL_SECONDS + 1
    verdict.write_text(json.dumps(old))
    assert cache.load() is None


def test_what_is_no_library_is_refused(cache):
    make(cache, lambda path: path.write_text("no library"))
    with pytest.raises(Refused, match="cannot be loaded"):
        cache.load()


def test_an_interruption_leaves_nothing(cache, compile_into):
    def interrupt(path):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(cache, compile_into, interrupt)
    assert [path.suffix for path in cache.directory.iterdir()] == [".lock"]


def test_what_killed_processes_have_left_is_removed_after_a_while(cache, compile_into):
    make(cache, compile_into)
    left, present = (cache.directory / f"{name}{ASIDE}" for name in ("left", "present"))
    for path in (left, present):
        path.mkdir()
        (path / "library.so").write_text("half a library")
    long_ago = time.time() - ABANDONED_SECONDS - 1
    os.utime(left, (long_ago, long_ago))
    make(cache, compile_into)
    assert not left.exists()
    assert present.exists()


def test_the_second_waits_for_the_first(cache, compile_into):
    events = []

    def first():
        with cache.locked():
            events.append("first")
            started.set()
            time.sleep(0.2)
            events.append("first done")

    started = threading.Event()
    thread = threading.Thread(target=first)
    thread.start()
    started.wait()
    with LibraryCache(cache.directory, "kernels-1").locked():
        events.append("second")
    thread.join()
    assert events == ["first", "first done", "second"]


def test_two_at_once_without_locks_do_no_harm(cache, compile_into):
    def slowly(path):
        compile_into(path)
        both.wait()

    both = threading.Barrier(2)
    with cache.locked():
        threads = [
            threading.Thread(target=cache.make, args=(slowly, lambda path: None)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert cache.load().add(2, 3) == 5
    assert not list(cache.directory.glob(f"*{ASIDE}"))


def test_where_libraries_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = cache_directories()
    assert first == tmp_path / "tformer"
    assert second == Path(tempfile.gettempdir()) / f"tformer-{os.geteuid()}"
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    assert list(cache_directories()) == [first]  # nothing temporary can be written
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert next(cache_directories()) == tmp_path / "home" / ".cache" / "tformer"


def test_a_full_disk_is_not_remembered_as_a_refusal(cache, compile_into, monkeypatch):
    def fails(path):
        raise Refused("they could not be compiled: No space left on device")

    def is_full(*_details):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", is_full)
    with pytest.raises(OSError, match="No space left"):
        make(cache, fails)
    monkeypatch.undo()
    assert cache.load() is None  # nothing is known of it
    make(cache, fails)
    with pytest.raises(Refused, match="could not be compiled"):
        cache.load()
