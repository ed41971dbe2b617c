"""Documents in an encoding given by name."""

import pytest

from tests.documents.making import read, translate
from tests.plugins.documents import test_subtitles
from tformer_cli.documents.known_formats import FORMATS, encoding_named
from tformer_cli.errors import DataError, UsageError

TEXTS = {
    "text": "Café.\n",
    "srt": test_subtitles.cue("Café."),
    "vtt": "WEBVTT\n\n" + test_subtitles.cue("Café."),
    "markdown": "# Café.\n",
    "html": "<p>Café.</p>",
    "json": '{"a": "Café."}',
    "po": 'msgid "Café."\nmsgstr ""\n',
}


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-8", "utf-16-le", "cp037"])
@pytest.mark.parametrize("name", TEXTS)
def test_a_document_keeps_the_encoding_that_is_named(name, encoding):
    data = TEXTS[name].encode(encoding)
    document = read(name, data, encoding=encoding_named(encoding))
    (segment,) = document.segments
    assert segment.text == "Café."
    assert document.write([None]) == data
    output = translate(document, {"Café.": "Bücher."}).decode(encoding)
    assert "Bücher." in output


@pytest.mark.parametrize("name", TEXTS)
def test_a_mark_is_kept(name):
    data = TEXTS[name].encode("utf-16")
    if name != "po":
        assert read(name, data, encoding="utf-16").write([None]) == data


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["text", "csv", "html", "srt", "json"])
def test_a_mark_tells_the_encoding(name, encoding):
    text = {**TEXTS, "csv": "a,c\n1,Café.\n"}[name]
    options = {"columns": ("c",)} if name == "csv" else {}
    document = read(name, text.encode(encoding), **options)
    assert [segment.text for segment in document.segments] == ["Café."]
    assert document.write([None]) == text.encode(encoding)


def test_an_encoding_without_its_mark():
    with pytest.raises(DataError, match=r"^a\.csv: is not text in UTF-8 but in utf-16le; name"):
        read("csv", ("a,c\n" + "1,one\n" * 9).encode("utf-16-le"), columns=("c",))


@pytest.mark.parametrize("name", TEXTS)
def test_characters_that_an_encoding_lacks(name):
    document = read(name, TEXTS[name].encode("cp1252"), encoding="cp1252")
    if name == "html":
        assert translate(document, {"Café.": "кот"}) == b"<p>&#1082;&#1086;&#1090;</p>"
        return
    if name == "markdown":
        pytest.skip("written by its own reader")
    with pytest.raises(DataError) as caught:
        translate(document, {"Café.": "кот"})
    assert str(caught.value) == (
        f"a.{name}: its encoding cp1252 cannot write 'к' of a translation; "
        f"convert it: {'msgconv' if name == 'po' else 'iconv -f cp1252'} -t UTF-8"
    )


def test_bytes_that_an_encoding_cannot_read():
    with pytest.raises(DataError, match=r"^a\.text: is not text in shift_jis; name its encoding$"):
        read("text", b"\xff\xff\x80", encoding="shift_jis")


def test_the_header_of_messages():
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-15\\n"\n\n'
    data = (header + TEXTS["po"]).encode("iso-8859-15")
    for encoding in ("", "iso8859-15"):
        document = read("po", data, encoding=encoding)
        assert document.write([None]) == data
    message = r"^a\.po: declares the encoding ISO-8859-15; remove --encoding, or change the header$"
    with pytest.raises(DataError, match=message):
        read("po", data, encoding="cp1252")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(("windows-1252", "cp1252"), ("CP1252", "cp1252"), ("Latin1", "iso8859-1")),
        *(("utf8", "utf-8"), ("Shift_JIS", "shift_jis"), ("gb18030", "gb18030")),
    ],
)
def test_names_of_encodings(name, expected):
    assert encoding_named(name) == expected


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("windows-1522", "did you mean windows-125"),
        ("utf-9", "did you mean utf-"),
        ("base64", ""),
        ("klingon", "use one such as windows-1252"),
        ("", ""),
        ("a\0b", ""),
    ],
)
def test_names_that_are_none(name, advice):
    with pytest.raises(UsageError) as caught:
        encoding_named(name)
    assert str(caught.value).startswith(f"--encoding: unknown encoding {name!r}; {advice}")


def test_formats_that_tell_their_encoding():
    telling = {row.name for row in FORMATS.values() if row.tells_encoding}
    assert telling >= {"docx", "pptx", "odt", "odp", "epub", "xliff", "tmx"}
    assert not telling & set(TEXTS)
