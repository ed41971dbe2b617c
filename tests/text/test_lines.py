import bz2
import gzip
import io
import lzma
import os
import threading
from functools import partial

import pyarrow as pa
import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.lines import (
    LineCounts,
    groups_of_lines,
    lines_of,
    open_bytes,
    read_lines,
    shard_range,
    without_surrogates,
)


def test_only_the_newline_ends_a_line_and_a_final_cr_goes():
    data = "a\u2028b\x0cc\x00d\r\ne\rf\n\nlast".encode()
    assert list(lines_of(io.BytesIO(data))) == ["a\u2028b\x0cc\x00d", "e\rf", "", "last"]


@pytest.mark.parametrize("n_lines", [0, 1, 7, 10])
@pytest.mark.parametrize("count", [1, 3, 12])
def test_shards_are_all_lines_in_order(n_lines, count):
    parts = [shard_range(n_lines, index, count) for index in range(count)]
    assert [line for part in parts for line in part] == list(range(n_lines))


def test_bytes_that_are_not_utf8_are_replaced_and_counted():
    counts = LineCounts()
    assert list(lines_of(io.BytesIO(b"good\nb\xffd\n"), counts)) == ["good", "b\ufffdd"]
    assert counts == LineCounts(lines=2, not_utf8=1)


@pytest.mark.parametrize(
    ("ending", "compress"),
    [
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".bz2", bz2.compress),
        (".zst", partial(pa.compress, codec="zstd", asbytes=True)),
        (".GZ", gzip.compress),
        (".Zst", partial(pa.compress, codec="zstd", asbytes=True)),
    ],
)
def test_compressed_files_are_read_through(tmp_path, ending, compress):
    path = tmp_path / f"text{ending}"
    path.write_bytes(compress(b"eins\nzwei\n"))
    assert list(read_lines(path)) == ["eins", "zwei"]
    path.write_bytes(compress(b"eins\n") + compress(b"zwei"))
    assert list(read_lines(path)) == ["eins", "zwei"]
    path.write_bytes(compress(b"eins\nzwei\n")[:-6])
    with pytest.raises(DataError, match="is damaged or not a compressed file"):
        list(read_lines(path))
    path.write_bytes(b"not compressed")
    with pytest.raises(
        DataError,
        match=rf"compress it again, or name it without \{ending}$",
    ):
        list(read_lines(path))


def test_missing_files_and_directories_are_errors_of_one_line(tmp_path):
    with pytest.raises(DataError, match=r"nothing: no such file; check the path$"):
        open_bytes(tmp_path / "nothing")
    with pytest.raises(DataError, match=r": is a directory; name a file$"):
        open_bytes(tmp_path)


def test_a_byte_order_mark_at_the_beginning_is_dropped(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfeins\n\xef\xbb\xbfzwei\n")
    assert list(read_lines(path)) == ["eins", "\ufeffzwei"]
    path.write_bytes(b"\xef\xbb\xbf\n")
    assert list(read_lines(path)) == [""]
    path.write_bytes(b"\xef\xbb\xbf")
    assert list(read_lines(path)) == [""]
    path.write_bytes(b"")
    assert list(read_lines(path)) == []


def test_errors_of_the_system_keep_its_words(tmp_path, monkeypatch):
    with pytest.raises(
        DataError, match=r": cannot be read \(file name too long\); name another file$"
    ):
        open_bytes(tmp_path / ("x" * 300))
    descriptor = os.open(os.devnull, os.O_WRONLY)
    with os.fdopen(descriptor) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(DataError, match=r"^stdin: cannot be read \("):
            list(read_lines("-"))
        with pytest.raises(DataError, match=r"^stdin: cannot be read \("):
            list(groups_of_lines(stdin.buffer, LineCounts()))


def test_groups_hold_the_lines_of_a_stream_in_order():
    data = b"".join(b"%d\n" % n for n in range(50_000)) + b"end"
    counts = LineCounts()
    groups = list(groups_of_lines(io.BytesIO(data), counts))
    assert [line for group in groups for line in group] == [*map(str, range(50_000)), "end"]
    assert len(groups) > 1
    assert counts.lines == 50_001


@pytest.mark.parametrize("text", ["one\ntwo\ufeff", "one", "one\n\ufefftwo\n", "\n", ""])
def test_groups_leave_out_the_byte_order_mark_before_the_first_line(text):
    marked = io.BytesIO(b"\xef\xbb\xbf" + text.encode())
    lines = [line for group in groups_of_lines(marked, LineCounts()) for line in group]
    assert lines == (list(lines_of(io.BytesIO(text.encode()))) or [""])


def test_a_group_comes_before_the_stream_ends():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        groups = groups_of_lines(stream, LineCounts())
        os.write(writing, b"one\ntwo\nthr")
        assert next(groups) == ["one", "two"]
        threading.Timer(0.01, lambda: (os.write(writing, b"ee\n"), os.close(writing))).start()
        assert list(groups) == [["three"]]


def test_surrogate_pairs_are_joined_and_lone_ones_replaced():
    assert without_surrogates("a\ud83d\ude00b") == "a😀b"
    assert without_surrogates("a\ud83db") == "a\ufffdb"
