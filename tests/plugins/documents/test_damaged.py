"""Damaged documents: the result is a complete document or a one-line error."""

import io
import random
import zipfile
from dataclasses import replace

import pytest

from tests.documents.making import pack, read
from tests.plugins.documents import (
    test_bilingual,
    test_epub,
    test_json_paths,
    test_ods,
    test_office,
    test_po,
    test_subtitles,
    test_tables,
    test_xlsx,
)
from tformer_cli.documents.known_formats import FORMATS
from tformer_cli.errors import TformerError

WORD = test_office.WORD
HTML = """<!DOCTYPE html><html><head><meta charset="utf-8"><title>A page</title></head>
<body><!-- <p>none --><h1 title="Old &amp; new">The <b>old</b> <i>house</i>&nbsp;1</h1>
<script>if (a < b) { c("</p>") }</script><p>Use <code>a &lt; b</code> there<sup>[1]</sup>, or
<a href='x'><img alt="A cat" src=y> <em>here</em></a>.</p></body></html>
"""
MARKDOWN = """---
title: A page
---

# The *old* house

A [link **here**](x.md "y") and `code`,\\
a line with a note[^1]. \\* &amp; <b>bold</b>

- [ ] one
- two

| a | b |
|---|---|
| c | d |

<div title="Seen"><p>Text</p></div>

[^1]: The note
"""
WHOLE = {
    "html": HTML.encode(),
    "markdown": MARKDOWN.encode(),
    "text": "The old house\n\n  is näher – than you think. \r\nEnd".encode(),
    "docx": test_office.docx(WORD["text box, twice"][0] + WORD["field"][0]),
    "pptx": test_office.docx("", slide=WORD["slide"][0]),
    "odp": test_office.odt(
        "<draw:page><draw:frame><svg:title>Photo</svg:title><draw:text-box>"
        + test_office.OPEN_DOCUMENT["spans and spaces"][0]
        + "</draw:text-box></draw:frame></draw:page>"
    ),
    "odt": test_office.odt(test_office.OPEN_DOCUMENT["note"][0]),
    "epub": pack(test_epub.MEMBERS),
    "xliff": test_bilingual.XLIFF.encode(),
    "tmx": test_bilingual.TMX,
    "srt": test_subtitles.SRT.encode(),
    "vtt": test_subtitles.VTT.encode(),
    "po": test_po.PO.encode(),
    "json": test_json_paths.TEXT.encode(),
    "csv": test_tables.CRM.encode(),
    "tsv": test_tables.CRM.replace(",", "\t").encode(),
    "jsonl": test_tables.LINES.encode(),
    "xlsx": test_xlsx.workbook(),
    "ods": test_ods.table(("Clients", test_ods.ROWS)),
}
COLUMN = {"columns": ("comment",)}
SETTINGS = {
    "csv": COLUMN,
    "tsv": COLUMN,
    "xlsx": COLUMN,
    "ods": COLUMN,
    "jsonl": {"keys": ("comment",)},
}


def damage(data, chance):
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        kind, place = chance.randrange(4), chance.randrange(len(data) or 1)
        if kind == 0:
            data[place : place + 1] = [chance.randrange(256)]
        elif kind == 1:
            del data[place : place + chance.randrange(1, 20)]
        elif kind == 2:
            data[place:place] = data[chance.randrange(len(data) or 1) :][:30]
        else:
            data[place : place + 1] = chance.choice(b"<>&\"'/{}[]\\\n 0").to_bytes(1, "big")
    return bytes(data)


def in_a_member(data, chance):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = chance.choice(list(members))
    return pack({**members, name: damage(members[name], chance)})


def refusal_of(name, data):
    """Reads and writes a document; returns the error message, if any."""
    try:
        document = read(name, data, target_language="de", **SETTINGS.get(name, {}))
        segments = list(document.segments)
        kept = document.write([None] * len(segments))
        document.write([replace(segment, text=segment.text + "!") for segment in segments])
    except TformerError as error:
        message = str(error)
    else:
        assert kept == data
        return ""
    assert "\n" not in message
    is_of_column = name in SETTINGS and message.startswith(("--column: ", "--key: "))
    assert is_of_column or message.startswith(f"a.{name}:")
    return message


def test_every_format_is_damaged_here():
    assert WHOLE.keys() == FORMATS.shipped.keys()


@pytest.mark.parametrize("name", WHOLE)
def test_damages(name):
    chance = random.Random(7)
    counts = [0, 0]
    for number in range(120):
        is_inside = WHOLE[name].startswith(b"PK") and number % 2
        data = (in_a_member if is_inside else damage)(WHOLE[name], chance)
        counts[bool(refusal_of(name, data))] += 1
    if name in ("html", "csv", "tsv"):  # their readers accept anything except binary files
        assert counts[0] > 5
    else:
        assert min(counts) > 5


CUE = "WEBVTT\n\n00:01.000 --> 00:02.000\nA {} b\n"
MANY = "7" * 5000
MESSAGE = '\n\nmsgid "a file"\nmsgid_plural "files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
CHARSET = 'msgid ""\nmsgstr "Content-Type: text/plain; charset={}\\n"' + MESSAGE
CHARSET_ERROR = ": is not in {}, which it declares; convert it: msgconv -t UTF-8"
SMALL = (
    b"",
    b"\0",
    b"\r",
    b"\r\n",
    b"\n",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xfe\xff",
    b"\xff\xfea",
    b"PK",
)
DEEP = [
    ("html", "<b>", "a", "</b>"),
    ("html", "<div>x", "a", "</div>"),
    ("markdown", "> ", "a", ""),
    ("markdown", "[", "a", "]"),
    ("json", "[", '"a"', "]"),
    ("json", '{"a":', '"a"', "}"),
    ("xliff", "<xliff>", "a", "</xliff>"),
]


@pytest.mark.parametrize("name", WHOLE)
def test_next_to_nothing(name):
    for data in SMALL:
        refusal_of(name, data)


@pytest.mark.parametrize(("name", "opening", "text", "closing"), DEEP)
def test_thousands_of_elements_in_each_other(name, opening, text, closing):
    message = refusal_of(name, (opening * 5000 + text + closing * 5000).encode())
    assert (name in ("json", "xliff")) == ("nested" in message)


ODD = [
    *(
        ("vtt", CUE.format(reference), "")
        for reference in ("&#abc;", "&#99999999;", "&#xD83D;", f"&#{MANY};")
    ),
    ("vtt", CUE.format("a").replace("00:01", f"{MANY}:00:01"), ""),
    ("srt", f"1\n{MANY}:00:01,{MANY} --> 00:00:02,0\nA\n", ""),
    ("xliff", test_bilingual.XLIFF.replace("house", "&#00065; &#x1F600;"), ""),
    ("json", f'{{"a": {MANY}, "b": ["x", -{MANY}e{MANY}]}}', ""),
    ("json", r'{"a": "\ud83d and é \ude00", "\ud83d": "x"}', ""),
    ("html", f"<p title='&#{MANY};a'>a &#{MANY}; b</p>", ""),
    ("html", "<meta charset=idna><p>a", ""),
    ("po", f'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n%0;\\n"{MESSAGE}', ""),
    ("po", f'msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural={MANY};\\n"{MESSAGE}', ""),
    *(
        ("po", f'msgid "a {escape} b"\nmsgstr ""\n', "")
        for escape in (r"\x", r"\8", r"\\9", r"\xg", r"\٣")
    ),
    *(
        ("po", CHARSET.format(name) + more, CHARSET_ERROR.format(name))
        for name, more in (
            *(("idna", ""), ("punycode", "é"), ("undefined", ""), ("rot13", "")),
            *(("utf-7", "# +AGE-"), ("iso-2022-jp", "# \x1b(B")),
        )
    ),
]


@pytest.mark.parametrize(("name", "text", "message"), ODD)
def test_odd_texts(name, text, message):
    assert refusal_of(name, text.encode()) == (message and f"a.{name}{message}")
