"""Limits: a document that is too large is refused before it takes memory."""

import tracemalloc

import pytest

from tests.documents.making import pack, read
from tests.plugins.documents import test_epub, test_office, test_subtitles
from tformer_cli.errors import DataError

PARAGRAPH = "<w:p><w:r><w:t>The dog.</w:t></w:r></w:p>"
RUN = '<w:r><w:rPr><w:b w:val="{}"/></w:rPr><w:t>a</w:t></w:r>'
MANY = {
    "text": b"a\n" * 101,
    "html": b"<p>a" * 101,
    "markdown": b"a\n\n" * 101,
    "json": b"[" + b'"x",' * 100 + b'"x"]',
    "docx": test_office.docx(PARAGRAPH * 101),
    "odt": test_office.odt("<text:p>a</text:p>" * 101),
    "srt": b"".join(b"%d\n00:00:01,000 --> 00:00:02,000\nA dog.\n\n" % n for n in range(101)),
    "po": b"".join(b'msgid "a %d"\nmsgstr ""\n\n' % n for n in range(101)),
    "xliff": (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file><body>'
        + "".join(f'<trans-unit id="{n}"><source>a</source></trans-unit>' for n in range(101))
        + "</body></file></xliff>"
    ).encode(),
    "epub": pack({**test_epub.MEMBERS, "Book/nav.xhtml": "<p>a</p>" * 101}),
}


@pytest.mark.parametrize("name", MANY)
def test_too_many_segments(name):
    with pytest.raises(DataError, match=rf"^a\.{name}: has more than 100 segments; divide it$"):
        read(name, MANY[name], most_segments=100)
    assert len(read(name, MANY[name], most_segments=200).segments) > 100


TAGS = {
    "html": b"x<b>" * 600,
    "docx": test_office.docx("<w:p>" + "".join(RUN.format(n) for n in range(600)) + "</w:p>"),
    "odt": test_office.odt("<text:p>" + "a<text:span>b</text:span>" * 600 + "</text:p>"),
}


@pytest.mark.parametrize("name", TAGS)
def test_too_many_tags_in_a_text(name):
    with pytest.raises(DataError, match=r"has more than 1,000 tags in one text; divide it$"):
        read(name, TAGS[name], most_segments=100)


PARTS = {
    "markdown": b"*a* " * 2000,
    "srt": b"".join(b"%d\n00:00:01,000 --> 00:00:02,000\nA dog\n\n" % n for n in range(700)),
}


@pytest.mark.parametrize("name", PARTS)
def test_too_many_parts(name):
    with pytest.raises(DataError, match=r"has more than (600|2,000) parts; divide it$"):
        read(name, PARTS[name], most_segments=100)


def test_bytes():
    text = test_subtitles.SRT.encode()
    message = rf"^a\.srt: has more than {len(text) - 1} bytes; divide it$"
    with pytest.raises(DataError, match=message):
        read("srt", text, most_bytes=len(text) - 1)
    assert read("srt", text, most_bytes=len(text)).segments
    small = test_office.docx("<w:p/>" * 10_000)
    assert len(small) < 2000
    with pytest.raises(DataError, match=r"has more than 50,000 bytes when unpacked; divide it$"):
        read("docx", small, most_bytes=50_000)


def test_another_document_has_its_own_room():
    read("text", b"a\n" * 100, most_segments=100)
    read("text", b"a\n" * 100, most_segments=100)
    with pytest.raises(DataError):
        read("text", b"a\n" * 101, most_segments=100)
    assert len(read("text", b"a\n" * 101).segments) == 101


@pytest.mark.parametrize(
    ("name", "data_of", "bytes_each"),
    [
        # a paragraph without text costs six bytes and some array entries
        ("docx", lambda n: test_office.docx("<w:p/>" * n), 80),
        ("docx", lambda n: test_office.docx(PARAGRAPH * n), 700),
        ("text", lambda n: b"a\n" * n, 400),
        ("json", lambda n: b"[" + b'"x",' * n + b'"x"]', 400),
        ("json", lambda n: b"[" + b"11," * n + b"11]", 20),
    ],
    ids=["empty paragraphs", "paragraphs", "lines", "strings", "numbers"],
)
def test_memory_of_small_things(name, data_of, bytes_each):
    peaks = []
    for number in (100, 600):
        data = data_of(number)
        read(name, data)  # loads modules
        tracemalloc.start()
        read(name, data)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / 500 < bytes_each
