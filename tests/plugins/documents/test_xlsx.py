"""Excel: only cells of the chosen columns change; everything else keeps its bytes."""

import io
import re
import zipfile
from dataclasses import replace

import pytest

from tests.documents.making import list_texts, member, pack, read
from tformer_cli.errors import DataError, UsageError

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
SHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml"
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'
BOLD = "<rPr><b/><sz val='11'/></rPr>"
STRINGS = (
    "<si><t>id</t></si>",
    "<si><t>name</t></si>",
    "<si><t>comment</t></si>",
    "<si><t>one &amp; two</t></si>",  # 3: also a name
    f"<si><r><t xml:space='preserve'>the </t></r><r>{BOLD}<t>old</t></r></si>",
    "<si><t xml:space='preserve'> three\nfour </t></si>",
    "<si><t>five</t><rPh sb='0' eb='1'><t>go</t></rPh></si>",
    "<si><t>total</t></si>",
)
NAMES = "".join(f'<c r="{letter}1" t="s"><v>{n}</v></c>' for n, letter in enumerate("ABC"))
NAME = '<c r="B2" t="s"><v>3</v></c>'
ROWS = (
    f'<row r="1">{NAMES}</row>',
    f'<row r="2"><c r="A2"><v>1</v></c>{NAME}<c r="C2" s="1" t="s"><v>3</v></c></row>',
    '<row r="3"><c r="C3" t="s"><v>4</v></c><c r="D3"><f>A2*2</f><v>2</v></c></row>',
    '<row r="4"><c r="B4" t="b"><v>1</v></c><c r="C4" t="s"><v>5</v></c></row>',
    '<row r="5"><c r="C5" t="inlineStr"><is><t>six</t></is></c></row>',
    '<row r="6"><c r="C6" t="str"><f>B2&amp;"!"</f><v>one!</v></c></row>',
    '<row r="7"><c r="C7" t="s"><v>6</v></c><c r="D7" t="e"><v>#N/A</v></c></row>',
    '<row r="8"><c r="C8" t="str"><v>a_x000D_\nb</v></c></row>',
)
STYLES = (
    "<fonts count='1'><font/></fonts><fills count='1'><fill><patternFill/></fill></fills>"
    "<borders count='1'><border/></borders><cellStyleXfs count='1'><xf/></cellStyleXfs>"
    "<cellXfs count='2'><xf/><xf numFmtId='9'/></cellXfs>"
    "<cellStyles count='1'><cellStyle name='Normal' xfId='0' builtinId='0'/></cellStyles>"
)


def relations(*targets):
    rows = "".join(
        f'<Relationship Id="rId{n}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for n, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{PACKAGE}/relationships">{rows}</Relationships>'


def workbook(sheets=(("Clients", ROWS),), strings=STRINGS, **more):
    kinds = [("styles", "styles"), ("sharedStrings", "sharedStrings")]
    types = "".join(
        f'<Override PartName="/xl/{name}.xml" ContentType="{SHEET}.{kind}+xml"/>'
        for name, kind in [
            ("workbook", "sheet.main"),
            *kinds,
            *((f"worksheets/sheet{n}", "worksheet") for n, _ in enumerate(sheets, 1)),
        ]
    )
    names = "".join(
        f'<sheet name="{name}" sheetId="{n}" r:id="rId{n}"/>'
        for n, (name, _) in enumerate(sheets, 1)
    )
    count = f'count="20" uniqueCount="{len(strings)}"'
    members = {
        "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" '
        f'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>{types}</Types>',
        "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{names}</sheets>'
        "</workbook>",
        "xl/_rels/workbook.xml.rels": relations(
            *[("worksheet", f"/xl/worksheets/sheet{n}.xml") for n, _ in enumerate(sheets, 1)],
            ("sharedStrings", "sharedStrings.xml"),
            ("styles", "styles.xml"),
        ),
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}">{STYLES}</styleSheet>',
        "xl/sharedStrings.xml": f'{HEAD}<sst xmlns="{MAIN}" {count}>{"".join(strings)}</sst>',
        **{
            f"xl/worksheets/sheet{n}.xml": f'{HEAD}<worksheet xmlns="{MAIN}"><sheetData>'
            f"{''.join(rows)}</sheetData></worksheet>"
            for n, (_, rows) in enumerate(sheets, 1)
        },
        **more,
    }
    return pack(members)


def translate(data, **settings):
    """Writes a workbook in uppercase; first checks that untranslated ones stay identical."""
    document = read("xlsx", data, **settings)
    assert document.write([None] * len(document.segments)) == data
    assert document.write(document.segments) == data
    return document.write(
        [replace(segment, text=segment.text.upper()) for segment in document.segments]
    )


def test_a_column_changes_and_nothing_else():
    data = workbook()
    document = read("xlsx", data, columns=("comment",))
    assert list_texts(document.segments) == [
        ("the old", (4, 7, "repeat")),
        "three\nfour",
        "five",
        "one & two",
        "six",
        "a\nb",
    ]
    assert [segment.context for segment in document.segments][2:4] == ["Clients!C7", "Clients!C2"]
    assert document.skipped == {"cell that a formula computes": 1}
    output = translate(data, columns=("comment",))
    strings, sheet = (
        member(output, f"xl/{name}.xml") for name in ("sharedStrings", "worksheets/sheet1")
    )
    # The name keeps its text: the comment gets a copy
    assert strings.count("<si>") == len(STRINGS) + 1
    assert 'count="20" uniqueCount="9"' in strings
    assert strings.endswith("<si><t>ONE &amp; TWO</t></si></sst>")
    assert STRINGS[3] in strings
    assert f"the </t></r><r>{BOLD}<t>old" not in strings
    assert "<t>OLD</t>" in strings
    assert "<t xml:space='preserve'> THREE\nFOUR </t>" in strings
    before = member(data, "xl/worksheets/sheet1.xml")
    expected = before.replace('s="1" t="s"><v>3', 's="1" t="s"><v>8').replace("six", "SIX")
    assert sheet == expected.replace("a_x000D_\nb", "A_x000D_\nB")
    for name in zipfile.ZipFile(io.BytesIO(data)).namelist():
        if name not in ("xl/sharedStrings.xml", "xl/worksheets/sheet1.xml"):
            assert member(data, name) == member(output, name)


def test_other_programs_read_it():
    openpyxl = pytest.importorskip("openpyxl")
    pandas = pytest.importorskip("pandas")
    data = workbook()
    output = translate(data, columns=("comment",))
    before, after = (
        openpyxl.load_workbook(io.BytesIO(book), rich_text=True)["Clients"]
        for book in (data, output)
    )
    for row, changed in zip(before, after, strict=True):
        for cell, new in zip(row, changed, strict=True):
            is_text = cell.column == 3 and cell.row > 1 and cell.data_type == "s"
            expected = str(cell.value).upper().replace("_X", "_x") if is_text else cell.value
            assert (str(new.value) if is_text else new.value) == expected
            assert (new.number_format, new.data_type) == (cell.number_format, cell.data_type)
    rich = after["C3"].value
    assert [type(value).__name__ for value in rich] == ["str", "TextBlock"]
    assert rich[1].font.b
    frame = pandas.read_excel(io.BytesIO(output))
    assert frame["name"][0] == "one & two"
    assert frame["comment"][0] == "ONE & TWO"


def row(number, *cells):
    """Writes a row of inline strings."""
    return f'<row r="{number}">' + "".join(
        f'<c r="{letter}{number}" t="inlineStr"><is><t>{text}</t></is></c>'
        for letter, text in zip("ABC", cells, strict=False)
        if text
    ) + "</row>"  # fmt: skip


TWO = (
    ("First", (row(1, "Report"), row(3, "id", "comment"), row(4, "1", "one"))),
    ("Its 'own'", (row(1, "comment", "id"), row(2, "two", "three"))),
)


@pytest.mark.parametrize(
    ("columns", "texts"),
    [
        (("comment",), ["one", "two"]),  # in all sheets, below a title
        (("First!comment",), ["one"]),
        (("'Its ''own'''!comment",), ["two"]),
        (("Its 'own'!a",), ["two"]),
        (("First!B",), ["one"]),
        (("First!2", "id"), ["1", "one", "three"]),
    ],
)
def test_columns_by_name_letter_and_sheet(columns, texts):
    assert [
        segment.text for segment in read("xlsx", workbook(TWO), columns=columns).segments
    ] == texts


def test_a_cell_that_is_called_so_is_no_header_and_a_name_no_letter():
    data = workbook([("S", (row(1, "id", "x"), row(2, "comment", "one"), row(3, "c", "two")))])
    with pytest.raises(UsageError, match="has no column comment"):
        read("xlsx", data, columns=("comment",))
    # If a sheet has a column of that name, other sheets do not read it as a letter
    sheets = [("S", (row(1, "x", "b"), row(2, "one", "two"))), TWO[1]]
    assert [
        segment.text for segment in read("xlsx", workbook(sheets), columns=("b",)).segments
    ] == ["two"]
    # A row of groups above the names
    groups = [("S", (row(1, "group"), row(2, "x", "b"), row(3, "one", "two")))]
    assert [
        segment.text for segment in read("xlsx", workbook(groups), columns=("b",)).segments
    ] == ["two"]


def test_without_a_header_all_rows_are_translated():
    document = read("xlsx", workbook(TWO), columns=("First!B",), has_header=False)
    assert [segment.text for segment in document.segments] == ["comment", "one"]


@pytest.mark.parametrize(
    ("sheets", "settings", "error"),
    [
        (TWO, {}, "a.xlsx: is a table, not lines of text; add --column NAME for each column to "),
        (TWO, {}, "translate: First: id, comment; Its 'own': comment, id"),
        (TWO[1:], {}, "add --column NAME for each column to translate: comment, id"),
        (TWO, {"columns": ("coment",)}, "--column: a.xlsx has no column coment; did you mean com"),
        (TWO, {"columns": ("Second!comment",)}, "a.xlsx has no column Second!comment; "),
        (TWO, {"columns": ("AB",)}, "--column: a.xlsx has no column AB; its columns are: First: "),
        ([("S", (row(1, "a", "a"),))], {"columns": ("a",)}, "has a in columns A and B of S; "),
    ],
)  # fmt: skip
def test_columns_that_cannot_be_chosen(sheets, settings, error):
    with pytest.raises(UsageError) as raised:
        read("xlsx", workbook(sheets), **settings)
    assert error in str(raised.value)


def test_headers_and_totals_of_tables_stay():
    sheets = [("S", (row(1, "x", "y"), row(3, "a", "b"), row(4, "c", "d"), row(5, "e", "f")))]
    table = f'<table xmlns="{MAIN}" id="1" ref="A3:B5" totalsRowCount="1"></table>'
    data = workbook(
        sheets,
        **{
            "xl/worksheets/_rels/sheet1.xml.rels": relations(("table", "../tables/table1.xml")),
            "xl/tables/table1.xml": table,
            "xl/pivotCache/pivotCacheDefinition1.xml": f'<pivotCacheDefinition xmlns="{MAIN}"/>',
        },
    )
    document = read("xlsx", data, columns=("x",))
    assert [segment.text for segment in document.segments] == ["c"]
    assert document.skipped == {"pivot table": 1}


def test_line_ends_of_windows_and_formulas_without_values():
    rich = f"<r><t>a_x000D_\n</t></r><r>{BOLD}<t>b_x0001_c_x000D_</t></r>"
    cells = (
        f"<row r='2'><c r='A2' t='inlineStr'><is>{rich}</is></c></row>",
        "<row r='3'><c r='A3'><f>B1&amp;B2</f></c></row>",
        "<row r='4'><c r='A4'><f>1+1</f><v>2</v></c></row>",
        "<row r='5'><c r='A5' t='str'><f>B9</f><v></v></c></row>",
        "<row r='6'><c r='A6' t='inlineStr'><is><t>d_x000D_\ne_x000D_\n</t></is></c></row>",
    )
    head = "<row r='1'><c r='A1' t='inlineStr'><is><t>c</t></is></c></row>"
    data = workbook((("S", (head, *cells)),))
    document = read("xlsx", data, columns=("c",))
    assert [segment.text for segment in document.segments] == ["a\nbc", "d\ne"]
    assert document.skipped == {"cell that a formula computes": 1}
    sheet = member(translate(data, columns=("c",)), "xl/worksheets/sheet1.xml")
    assert "<t>D_x000D_\nE_x000D_\n</t>" in sheet
    assert "A_x000D_\n" in sheet
    assert "<t>BC</t>" in sheet


def test_what_other_writers_do():
    # Other prefixes and cases of names, cells without references, no shared strings
    data = workbook(
        [("S", ("<row><c t='inlineStr'><is><t>c</t></is></c></row>",
                "<row><c t='inlineStr'><is><r><t>one</t></r></is></c><c><v>1</v></c></row>"))],
    )  # fmt: skip
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    del members["xl/sharedStrings.xml"]
    sheet = members.pop("xl/worksheets/sheet1.xml")
    sheet = re.sub(r"<(/?)(?!\?)", r"<\1y:", sheet).replace("xmlns=", "xmlns:y=")
    data = pack({**members, "xl/Worksheets/Sheet1.xml": sheet})
    output = translate(data, columns=("c",))
    assert member(output, "xl/Worksheets/Sheet1.xml") == sheet.replace(">one", ">ONE")


def test_a_damaged_workbook_is_an_error():
    with pytest.raises(DataError, match=r"^a\.xlsx: has no xl/workbook\.xml"):
        read("xlsx", pack({"a": "b"}), columns=("c",))
    with pytest.raises(DataError, match=r"^a\.xlsx: is damaged or not a zip"):
        read("xlsx", b"PK", columns=("c",))
