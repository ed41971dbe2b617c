"""Suggestions are stored completely or refused, whatever the disk does."""

import asyncio
import errno
import fcntl
import json
import os
import resource
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.plugins.serve.fake import Client
from tformer_cli.plugins.serve import suggestions
from tformer_cli.plugins.serve.config import ServeSettings
from tformer_cli.plugins.serve.suggestions import SuggestionFile, append_line

FIELDS = {"q": "hello", "s": "salut", "source": "en", "target": "fr"}
LINE = b'{"q": "hello"}\n'


def suggest(file, **fields):
    return Client(settings=ServeSettings(suggestions=file)).post("/suggest", form=FIELDS | fields)


def failing_write(number, n_bytes):
    """Simulates a disk that fills up after some bytes."""
    write, left = os.write, [n_bytes]

    def write_some(file, data):
        if not left[0]:
            raise OSError(number, os.strerror(number))
        n = write(file, data[: left[0]])
        left[0] -= n
        return n

    return write_some


@pytest.mark.parametrize(
    ("number", "status"),
    [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EFBIG, 507), (errno.EIO, 503)],
)
@pytest.mark.parametrize("n_bytes", [0, 1, 30])
def test_what_is_written_in_part_is_cut_off_and_refused(
    tmp_path, monkeypatch, capsys, number, status, n_bytes
):
    file = tmp_path / "kept.jsonl"
    file.write_bytes(LINE)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing_write(number, n_bytes))
        answer = suggest(file)
    assert answer.status == status
    assert "was not kept" in answer.json["error"]
    assert answer.named["retry-after"] == "60"
    assert str(file) in capsys.readouterr().err
    assert file.read_bytes() == LINE
    assert suggest(file).status == 200
    assert [json.loads(line)["q"] for line in file.read_text().splitlines()] == ["hello", "hello"]


def test_a_disk_that_is_full_only_when_it_is_flushed(tmp_path, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "kept.jsonl"
    monkeypatch.setattr(os, "fsync", full)
    assert suggest(file).status == 507
    assert file.read_bytes() == b""


def test_the_largest_size_of_a_file(tmp_path):
    file = tmp_path / "kept.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        append_line(file, LINE)
        for _ in range(2):
            with pytest.raises(OSError, match="File too large"):
                append_line(file, LINE * 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_bytes() == LINE


@pytest.mark.parametrize("start", [b'{"q": "hel', b"\n\n{", LINE[:-1]])
def test_a_line_that_a_crash_left_unfinished_is_ended_first(tmp_path, start):
    file = tmp_path / "kept.jsonl"
    file.write_bytes(start)
    assert suggest(file).status == 200
    before, _, line = file.read_bytes().removesuffix(b"\n").rpartition(b"\n")
    assert before == start
    assert json.loads(line) == FIELDS


def test_what_another_program_wrote_behind_is_not_cut_off(tmp_path, monkeypatch):
    file, write = tmp_path / "kept.jsonl", os.write

    def write_beside_another(place, data):
        n = write(place, data[:3])
        with file.open("ab") as other:
            other.write(b"theirs\n")
        monkeypatch.setattr(os, "write", failing_write(errno.ENOSPC, 0))
        return n

    monkeypatch.setattr(os, "write", write_beside_another)
    with pytest.raises(OSError, match="No space"):
        append_line(file, LINE)
    assert file.read_bytes() == LINE[:3] + b"theirs\n"


@pytest.mark.parametrize("kind", ["pipe", "directory", "device"])
def test_what_is_no_file_by_now_holds_up_nobody(tmp_path, kind):
    place = tmp_path / "place"
    {
        "pipe": lambda: os.mkfifo(place),
        "directory": place.mkdir,
        "device": lambda: place.symlink_to("/dev/null"),
    }[kind]()
    assert suggest(place).status == 503


def test_many_writers_at_once_leave_whole_lines(tmp_path):
    file = tmp_path / "kept.jsonl"
    lines = [json.dumps({"q": "x" * n}).encode() + b"\n" for n in range(40)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda line: append_line(file, line), lines))
    assert sorted(file.read_bytes().splitlines(keepends=True)) == sorted(lines)


def test_a_disk_that_hangs_is_given_up_and_keeps_nothing_later(tmp_path, monkeypatch):
    file, goes_on, flush = SuggestionFile(tmp_path / "kept", 0.05), threading.Event(), os.fsync
    monkeypatch.setattr(suggestions, "MOST_WRITERS", 2)
    monkeypatch.setattr(os, "fsync", lambda place: goes_on.wait(60) and flush(place))

    async def run():
        with pytest.raises(TimeoutError, match="does not answer"):
            await file.append(LINE)

    asyncio.run(run())
    assert (tmp_path / "kept").read_bytes() == LINE
    goes_on.set()
    while any(thread.name == "tformer-suggestion" for thread in threading.enumerate()):
        time.sleep(0.001)
    assert (tmp_path / "kept").read_bytes() == b""
    asyncio.run(file.append(LINE))
    assert (tmp_path / "kept").read_bytes() == LINE


def test_few_wait_for_a_disk_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(suggestions, "MOST_WRITERS", 2)
    file, goes_on, flush = SuggestionFile(tmp_path / "kept", 60), threading.Event(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda place: goes_on.wait(60) and flush(place))

    async def run():
        waiting = [asyncio.create_task(file.append(LINE)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await file.append(LINE)
        goes_on.set()
        await asyncio.gather(*waiting)

    asyncio.run(run())
    assert (tmp_path / "kept").read_bytes() == LINE * 2


def test_a_lock_that_is_not_released_is_given_up(tmp_path):
    file = tmp_path / "kept"
    with file.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError):
            append_line(file, LINE, 0.02)
    assert file.read_bytes() == b""
