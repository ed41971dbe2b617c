"""OpenDocument spreadsheets: only cells of the chosen columns change."""

from dataclasses import replace

import pytest

from tests.documents.making import list_texts, member, pack, read
from tformer_cli.errors import DataError, UsageError

OASIS = "urn:oasis:names:tc:opendocument:xmlns"
HEAD = "<?xml version='1.0' encoding='UTF-8'?>\n" + "<office:document-content {}>".format(
    " ".join(f'xmlns:{name}="{OASIS}:{name}:1.0"' for name in ("office", "table", "text"))
)
END = "</office:document-content>"


def cell(content, more=""):
    return (
        f'<table:table-cell office:value-type="string"{more}>{content}</table:table-cell>'
        if content
        else f"<table:table-cell{more}/>"
    )


def row(*contents, more=""):
    cells = "".join(item if item[:2] == "<t" else cell(item and f"<text:p>{item}</text:p>")
                    for item in contents)  # fmt: skip
    return f"<table:table-row{more}>{cells}</table:table-row>"


NUMBER = '<table:table-cell office:value-type="float" office:value="1"><text:p>1</text:p>'
FORMULA = cell("<text:p>one!</text:p>", ' table:formula="of:=[.C2]" office:string-value="one!"')
ROWS = (
    row("id", "name", "comment"),
    row(f"{NUMBER}</table:table-cell>", "one", "one &amp; <text:span>two</text:span>"),
    row("", "", "three", more=' table:number-rows-repeated="3"'),
    row(
        cell("", ' table:number-columns-repeated="2"'), cell("<text:p>a</text:p><text:p>b</text:p>")
    ),
    row("x", "y", FORMULA),
    row(cell("<text:p>all</text:p>", ' table:number-columns-repeated="4"')),
    row("", more=' table:number-rows-repeated="1048560"'),
)


def table(*sheets):
    tables = "".join(
        f'<table:table table:name="{name}">{"".join(rows)}</table:table>' for name, rows in sheets
    )
    return pack(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "content.xml": HEAD + tables + END,
            "META-INF/manifest.xml": f'<m:manifest xmlns:m="{OASIS}:manifest:1.0"/>',
        }
    )


def test_a_column_changes_and_nothing_else():
    data = table(("Clients", ROWS))
    document = read("ods", data, columns=("comment",))
    assert document.write([None] * len(document.segments)) == data
    assert document.write(document.segments) == data
    assert list_texts(document.segments) == [
        ("one & two", (6, 9, "repeat")), "three", "a", "b",
    ]  # fmt: skip
    places = ["Clients!C2", "Clients!C3", "Clients!C6", "Clients!C6"]
    assert [segment.context for segment in document.segments] == places
    assert document.skipped == {"cell that a formula computes": 1, "text of several columns": 1}
    output = document.write(
        [replace(segment, text=segment.text.upper()) for segment in document.segments]
    )
    expected = member(data, "content.xml")
    for text in ("one &amp; <text:span>two", ">three", ">a<", ">b<"):
        changed = text.upper().replace("&AMP;", "&amp;").replace("<TEXT:SPAN>", "<text:span>")
        expected = expected.replace(text, changed)
    assert member(output, "content.xml") == expected


def test_values_that_stand_beside_their_texts():
    more = ' office:string-value="the &amp;&#10;cat"'
    same = cell("<text:p>the &amp;</text:p><text:p>cat</text:p>", more)
    other = cell("<text:p>the dog</text:p>", more)
    data = table(("A", (row("id", "c"), row("the id", same), row(same, other), row("x", "dogs"))))
    document = read("ods", data, columns=("c",))
    assert list_texts(document.segments) == ["the &", "cat", "dogs"]
    assert document.skipped == {"cell whose value is not what it shows": 1}
    assert document.write([None] * 3) == data
    output = document.write(
        [replace(segment, text=segment.text.upper()) for segment in document.segments]
    )
    expected = same.replace(more, "").replace("the &amp;", "THE &amp;").replace("cat", "CAT")
    before = member(data, "content.xml").replace(same, expected, 1).replace("dogs", "DOGS")
    assert member(output, "content.xml") == before


def test_columns_that_cannot_be_chosen():
    data = table(("A", ROWS), ("B", (row("x"), row("y"))))
    with pytest.raises(UsageError, match=r"each column to translate: A: id, name, comment; B: x$"):
        read("ods", data)
    with pytest.raises(UsageError, match=r"^--column: a\.ods has no column nam; did you mean name"):
        read("ods", data, columns=("nam",))
    assert [segment.text for segment in read("ods", data, columns=("B!A",)).segments] == ["y"]


def test_a_damaged_table_is_an_error():
    with pytest.raises(DataError, match=r"^a\.ods: has no content\.xml"):
        read("ods", pack({"a": "b"}), columns=("c",))
