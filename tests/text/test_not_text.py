import bz2
import gzip
import io
import lzma
import os
import re
import threading
import zipfile

import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import read_corpus
from tformer_cli.text.lines import MARKUP, LineCounts, groups_of_lines, read_lines

GERMAN = "Ein Mädchen läuft.\nDer Hund schläft.\nIhr müßt gehen.\nSchöne Grüße!\n" * 10
RUSSIAN = "Кошка старая.\nСобака спит.\n" * 10


def compress(text):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("word/document.xml", text)
    return buffer.getvalue()


REFUSED = {
    "a.docx": (
        compress(GERMAN),
        (
            "is a zip archive or an office document (.docx, .odt, .xlsx), not text; "
            "save it as plain text (UTF-8), one sentence a line"
        ),
    ),
    "a.pdf": (
        b"%PDF-1.7\n",
        "is a PDF document, not text; save it as plain text (UTF-8), one sentence a line",
    ),
    "a.txt": (
        gzip.compress(GERMAN.encode(), mtime=0),
        "is compressed by gzip; name it a.txt.gz, or decompress it with gzip -d",
    ),
    "b.txt": (
        lzma.compress(GERMAN.encode()),
        "is compressed by xz; name it b.txt.xz, or decompress it with xz -d",
    ),
    "c.txt": (
        bz2.compress(GERMAN.encode()),
        "is compressed by bzip2; name it c.txt.bz2, or decompress it with bzip2 -d",
    ),
    "d.txt": (
        b"\x28\xb5\x2f\xfd\x04\x00abc",
        "is compressed by zstd; name it d.txt.zst, or decompress it with zstd -d",
    ),
    "TWICE.GZ": (
        gzip.compress(gzip.compress(GERMAN.encode(), mtime=0), mtime=0),
        "is compressed by gzip; decompress it with gzip -d",
    ),
    "twice.gz": (
        gzip.compress(gzip.compress(GERMAN.encode(), mtime=0), mtime=0),
        "is compressed by gzip; decompress it with gzip -d",
    ),
    "wide.txt": (
        "\ufeffIch.\r\n".encode("utf-16-le"),
        (
            "is UTF-16 text, not UTF-8; convert it with iconv -f utf-16 -t utf-8 {d}/wide.txt > "
            "{d}/wide.utf8.txt"
        ),
    ),
    "big end.txt": (
        "\ufeffIch.\n".encode("utf-16-be"),
        (
            "is UTF-16 text, not UTF-8; convert it with iconv -f utf-16 -t utf-8 '{d}/big end.txt' "
            "> '{d}/big end.utf8.txt'"
        ),
    ),
    "chinese.txt": (
        "\ufeff你好\n再见\n".encode("utf-16-le"),
        (
            "is UTF-16 text, not UTF-8; convert it with iconv -f utf-16 -t utf-8 {d}/chinese.txt > "
            "{d}/chinese.utf8.txt"
        ),
    ),
    "wider.txt": (
        "Ich.\n".encode("utf-32"),
        (
            "is UTF-32 text, not UTF-8; convert it with iconv -f utf-32 -t utf-8 {d}/wider.txt > "
            "{d}/wider.utf8.txt"
        ),
    ),
    "unmarked.txt": (
        GERMAN.encode("utf-16-le"),
        (
            "is UTF-16LE text, not UTF-8; convert it with iconv -f utf-16le -t utf-8 {d}/unmarked"
            ".txt > {d}/unmarked.utf8.txt"
        ),
    ),
    "packed.txt.gz": (
        gzip.compress("\ufeffIch.\n".encode("utf-16-le"), mtime=0),
        "is UTF-16 text, not UTF-8; decompress it and convert it with iconv -f utf-16 -t utf-8",
    ),
    "weights.bin": (
        bytes(range(64)) + bytes(64),
        "is a binary file, not text; name a file of UTF-8 text, one sentence a line",
    ),
    "latin.de": (
        GERMAN.encode("latin1"),
        (
            "is not UTF-8 (Latin-1?); convert it with iconv -f latin1 -t utf-8 {d}/latin.de > "
            "{d}/latin.utf8.de"
        ),
    ),
    "russian": (
        RUSSIAN.encode("koi8-r"),
        (
            "is not UTF-8; convert it with iconv -f ENCODING -t utf-8 {d}/russian > {d}/russian."
            "utf8; `iconv -l` lists encodings"
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_formats_than_utf8_text_are_refused_with_advice(tmp_path, name):
    content, message = REFUSED[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        list(read_lines(path))
    assert str(error.value) == f"{path}: {message.format(d=tmp_path)}"


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "source", "target"])
def test_corpora_are_refused_like_translation_input(tmp_path, kind):
    for name in ("wide", "good"):
        encoding = "utf-16" if name == "wide" else "utf-8"
        (tmp_path / name).write_bytes('{"source": "a", "target": "b"}\n'.encode(encoding))
    names = {"source": "good", "target": "good"} if kind in ("source", "target") else {}
    corpus = CorpusConfig(**{**names, kind: "wide"})
    with pytest.raises(DataError, match=r"wide: is UTF-16 text, not UTF-8; convert it with iconv"):
        list(read_corpus(corpus, str(tmp_path)))


@pytest.mark.parametrize(
    ("content", "cure"),
    [
        (gzip.compress(b"a\n", mtime=0), "is compressed by gzip; pipe it through gzip -dc first"),
        (
            "a\n".encode("utf-16"),
            "is UTF-16 text, not UTF-8; pipe it through iconv -f utf-16 -t utf-8 first",
        ),
    ],
)
def test_stdin_is_refused_by_name(monkeypatch, content, cure):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises(DataError) as error:
        list(read_lines("-"))
    assert str(error.value) == f"stdin: {cure}"
    with pytest.raises(DataError) as error:
        list(groups_of_lines(io.BytesIO(content), LineCounts()))
    assert str(error.value) == f"stdin: {cure}"


VALID = {
    "a NUL in a line": b"good\na\x00b\nc\x00\x00d\n",
    "two broken lines": b"good\nb\xffd\n\xfcber\n",
    "marks of UTF-16 in a line of bytes": b"\xff\xfe is broken\n\xfe\xff too\n",
    "a few broken among good": (b"M\xe4dchen\n" * 20 + "Mädchen\n".encode() * 20),
    "broken lines among many of ASCII": b"M\xe4dchen\n" * 20 + b"girl\n" * 100,
    "a beginning like that of bzip2": b"BZhang is a name.\n",
    "PK alone": b"PK is a code.\n",
    "other line ends": "a\u2028b\x0cc\r\ne\rf\n\nlast".encode(),
    "a letter at the end of the first block": "日本語".encode() * 40_000 + b"\n",
    "Cyrillic": RUSSIAN.encode() * 200,
    "nothing": b"",
    "one line end": b"\n",
}


@pytest.mark.parametrize("content", VALID.values(), ids=list(VALID))
def test_odd_but_valid_lines_are_read(tmp_path, content):
    path = tmp_path / "a"
    path.write_bytes(content)
    expected = [
        line.removesuffix("\r")
        for line in content.removesuffix(b"\n").decode("utf-8", "replace").split("\n")
    ]
    assert list(read_lines(path)) == (expected if content else [])


def test_lines_longer_and_shorter_than_a_block_arrive_whole(tmp_path):
    lines = ["x" * (1 << 16), "y" * ((1 << 16) - 1), "", "z" * 200_000, "end"]
    path = tmp_path / "a"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert list(read_lines(path)) == lines


def test_a_line_of_a_pipe_is_read_before_the_next_comes(monkeypatch):
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        lines = read_lines("-")
        os.write(writing, b"\xef\xbb\xbfone\n")
        assert next(lines) == "one"
        os.write(writing, b"two\nthr")
        assert next(lines) == "two"
        threading.Timer(0.01, lambda: (os.write(writing, b"ee\n"), os.close(writing))).start()
        assert list(lines) == ["three"]


@pytest.mark.parametrize(
    "line",
    [
        *("<!DOCTYPE html>", '<?xml version="1.0"?>', "<!-- x -->", "<p>Hi", "a<BR />b"),
        *("<b>x</b>", '<a href="u">', '{"source": "<a href=\\"u\\">"}', "</w:t >", "<w:t/>"),
    ],
)
def test_tags_are_markup(line):
    assert re.search(MARKUP, line)


@pytest.mark.parametrize(
    "line",
    [
        *("<s> </s> <pad> <mask>", "a <b> c", "x < y > z", "I <3 you", "<2de> x", ">>fra<< x"),
        *("if a</b then", "<name>, welcome", "<" * 100_000, "<a " * 50_000, "<!--" * 50_000),
        "<a b" + " " * 100_000,
    ],
)
def test_other_angle_brackets_are_not_markup(line):
    assert not re.search(MARKUP, line)
