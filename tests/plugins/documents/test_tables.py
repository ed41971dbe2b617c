"""Tables: only cells of the chosen columns change; other programs read the result."""

import csv
import io
import json
import random
import re
from dataclasses import replace

import pytest

from tests.documents.making import read
from tformer_cli.errors import DataError, UsageError

CRM = """id,name,comment,country
1,"Dupont, A.","The cat saw the old house.",FR
2,Smith,"My sister was tired. The children are calm.",US
3,Lee,"She said ""the street was old"".",KR
4,Empty,,US
5,Multi,"The old house is green.
The cat is old.",US
"""


def upper(segments):
    return [replace(segment, text=segment.text.upper()) for segment in segments]


def texts(document):
    return [segment.text for segment in document.segments]


def translate(data, format_name="csv", **settings):
    """Writes a table in uppercase; first checks that an untranslated table stays identical."""
    data = data.encode() if isinstance(data, str) else data
    document = read(format_name, data, **settings)
    assert document.write([None] * len(document.segments)) == data
    assert document.write(document.segments) == data
    return document.write(upper(document.segments))


def test_a_column_changes_and_nothing_else():
    document = read("csv", CRM.encode(), columns=("comment",))
    assert texts(document) == [
        "The cat saw the old house.",
        "My sister was tired. The children are calm.",
        'She said "the street was old".',
        "The old house is green.\nThe cat is old.",
    ]
    assert [segment.context for segment in document.segments][::3] == [
        "row 2, comment",
        "row 6, comment",
    ]
    expected = re.sub(r'"(?!Du)[^,]*"', lambda match: match[0].upper(), CRM)
    assert translate(CRM, columns=("comment",)).decode() == expected
    # By number, and several columns
    assert translate(CRM, columns=("3",)).decode() == expected
    both = read("csv", CRM.encode(), columns=(" name", "comment"))
    assert texts(both)[:3] == ["Dupont, A.", "The cat saw the old house.", "Smith"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # A cell gets quotes only if it needs them
        ("a,c\n1,one\n", "a,c\n1,ONE\n"),
        ("a;c\n1;one, two\n", "a;c\n1;ONE, TWO\n"),
        ("a\tc\n1\tone; two\n", "a\tc\n1\tONE; TWO\n"),
        ("a|c\n1|one\n", "a|c\n1|ONE\n"),
        ("a,c\n1,'one, ''two'''\n", "a,c\n1,'ONE, ''TWO'''\n"),
        ("a,c\n1,'tis one\n2,it's\n", "a,c\n1,'TIS ONE\n2,IT'S\n"),
        ('a,c\n1,"one, \\"two\\""\n', 'a,c\n1,"ONE, \\"TWO\\""\n'),
        ('a,c\n1,one "two" three\n', 'a,c\n1,ONE "TWO" THREE\n'),
        # Blanks, line ends, a byte order mark, a line that names the delimiter
        ('a, c\n1, "one, two" \n', 'a, c\n1, "ONE, TWO" \n'),
        ("a,c\r\n1, one \r\n", "a,c\r\n1, ONE \r\n"),
        ('a,c\r1,"one\rtwo"\r', 'a,c\r1,"ONE\rTWO"\r'),
        ("\ufeffa,c\n1,one", "\ufeffa,c\n1,ONE"),
        ("sep=;\na;c\n1;one\n", "sep=;\na;c\n1;ONE\n"),
        ("SEP=|\r\na|c\r\n1|one\r\n", "SEP=|\r\na|c\r\n1|ONE\r\n"),
        ("\n\na,c\n\n1,one\n\n\n2,two\n", "\n\na,c\n\n1,ONE\n\n\n2,TWO\n"),
        ("c\none\ntwo\n", "c\nONE\nTWO\n"),
        ('"a",c\n1,one\n', '"a",c\n1,ONE\n'),
        ('"a","c"\n"1","one"\n"2",""\n', '"a","c"\n"1","ONE"\n"2",""\n'),
        # Ragged rows: short ones, and long ones whose extra cells have no text
        ("a,c,d\n1\n2,one\n3,two,x,,\n", "a,c,d\n1\n2,ONE\n3,TWO,x,,\n"),
        # HTML tags are markup
        ('a,c\n1,"<b title=""x"">one</b> two"\n', 'a,c\n1,"<b title=""x"">ONE</b> TWO"\n'),
        # In TSV a quote may be an ordinary character
        ('a\tc\n1\t"one two\n2\t5" wide\n', 'a\tc\n1\t"ONE TWO\n2\t5" WIDE\n'),
        ("a,c\n1,C:\\dir\n", "a,c\n1,C:\\DIR\n"),
        ('a,c\n1,"one C:\\"\n', 'a,c\n1,"ONE C:\\"\n'),
    ],
)
def test_dialects(data, expected):
    assert translate(data, columns=("c",)).decode() == expected
    wide = data.removeprefix("\ufeff").encode("utf-16")
    assert translate(wide, columns=("c",)).decode("utf-16") == expected.removeprefix("\ufeff")


def test_the_name_of_a_column_may_have_several_lines():
    data = b'"the\n id ",x\none,two\n'
    assert texts(read("csv", data, columns=("the id",))) == ["one"]
    with pytest.raises(UsageError, match="did you mean the id"):
        read("csv", data, columns=("te id",))


def test_titles_may_stand_above_the_header():
    data = "Comments, all of 2024;\n\nby;me\nid;c;x\n1;one, two;y\n2;three;z\n"
    expected = "Comments, all of 2024;\n\nby;me\nid;c;x\n1;ONE, TWO;y\n2;THREE;z\n"
    assert translate(data, columns=("c",)).decode() == expected
    contexts = [segment.context for segment in read("csv", data.encode(), columns=("c",)).segments]
    assert contexts == ["row 5, c", "row 6, c"]
    # A cell below the header is not a header
    with pytest.raises(UsageError, match="has no column one"):
        read("csv", b"id,c\n1,one\n2,two\n", columns=("one",))


def test_a_translation_that_needs_quotes_gets_them():
    document = read("csv", b"a,c\n1,one\n2,two\n", columns=("c",))
    texts = ['un, "deux"', " trois"]
    words = [
        replace(segment, text=text) for segment, text in zip(document.segments, texts, strict=True)
    ]
    assert document.write(words) == b'a,c\n1,"un, ""deux"""\n2, trois\n'
    document = read("tsv", b'a\tc\n1\t"one\n', columns=("c",))
    words = [replace(segment, text="un\tdeux") for segment in document.segments]
    assert document.write(words) == b"a\tc\n1\tun deux\n"


def test_what_is_not_understood_stays_and_is_counted():
    data = 'a,c,d\n1,one,x\n2,two, three,x\n3,"fo" ur,x\n'
    document = read("csv", data.encode(), columns=("c",))
    assert texts(document) == ["one"]
    assert document.skipped == {
        "row with more cells than the header": 1,
        "cell with text behind its quote": 1,
    }
    escaped = 'a,c\n1,"say \\"one\\"\\nmore"\n2,"\\"two\\""\n3,\\N\n'
    document = read("csv", escaped.encode(), columns=("c",))
    assert texts(document) == ['"two"']
    assert document.skipped == {"cell with escapes such as \\n": 1}


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_formulas_and_missing_values_stay(ending):
    formulas = ("=A1", "=SUM(A1:A3)", "=-B2", "='a b'!C3", "=2*3", "=$A$1", '=HYPERLINK("x")')
    cells = (*formulas, r"\N", "= one", "==", "two=2")
    rows = "".join("1\t" + cell + "\n" for cell in cells)
    data = f"a\tc\n{rows}".encode()
    document = read(ending, data, columns=("c",))
    assert texts(document) == ["= one", "==", "two=2"]
    assert document.skipped == {"cell that a formula computes": len(formulas)}
    assert document.write([None] * 3) == data


@pytest.mark.parametrize(
    ("data", "settings", "error"),
    [
        (CRM, {}, "a.csv: is a table, not lines of text; add --column NAME for each "),
        (CRM, {}, "column to translate: id, name, comment, country"),
        (CRM, {"has_header": False}, "for each column to translate: a number from 1 to 4"),
        (CRM, {"columns": ("coment",)}, "--column: a.csv has no column coment; did you mean com"),
        (CRM, {"columns": ("0",)}, "--column: a.csv has no column 0; its columns are: id, name, "),
        (CRM, {"columns": ("5",)}, "--column: a.csv has no column 5; its columns"),
        (CRM, {"columns": ("name",), "has_header": False}, "its columns are: a number from 1"),
        ("a,b,a\n1,2,3\n", {"columns": ("a",)}, "in columns 1 and 3; choose one by its number"),
    ],
)  # fmt: skip
def test_columns_that_cannot_be_chosen(data, settings, error):
    with pytest.raises(UsageError) as raised:
        read("csv", data.encode(), **settings)
    assert error in str(raised.value)
    assert error.replace("--", "") in raised.value.in_arguments


def test_a_quote_without_an_end_is_an_error():
    with pytest.raises(DataError, match=r'^a\.csv:3: a cell starts with a quote \("\) but does'):
        read("csv", b'a,c\n1,"x, y"\n2,"one\n3,two\n', columns=("c",))


def test_without_a_header_the_first_row_is_translated_and_an_empty_table_stays():
    data = "one,two\nthree,four\n"
    assert translate(data, columns=("2",), has_header=False) == b"one,TWO\nthree,FOUR\n"
    for empty in ("", "\n\n", "a,c\n", "a,c"):
        assert translate(empty, columns=("c",)) == empty.encode()


def dialects(random_):
    """Draws options for the standard library's writer."""
    delimiter, quote = random_.choice(",;\t|"), random_.choice('""\'')
    is_doubled = random_.random() < 0.7
    return {
        "delimiter": delimiter,
        "quotechar": quote,
        "doublequote": is_doubled,
        "escapechar": None if is_doubled else "\\",
        "quoting": random_.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
        "lineterminator": random_.choice(["\n", "\r\n", "\r"]),
    }


WORDS = (
    "one",
    "two,",
    "three;",
    "fo|ur",
    "it's",
    '"five"',
    "six\nlines",
    "é",
    "1,000",
    "\\",
    "a\tb",
)


@pytest.mark.parametrize("number", [30, pytest.param(4000, marks=pytest.mark.slow)])
def test_random_dialects_are_read_again_by_the_standard_library(number):
    random_ = random.Random(7)
    seen = 0
    for _ in range(number):
        dialect = dialects(random_)
        n_columns, column = random_.randint(2, 5), random_.randint(0, 1)
        rows = [["name", "comment", "x", "y", "z"][:n_columns]]
        for _ in range(random_.randint(3, 12)):
            cells = [" ".join(random_.choices(WORDS, k=random_.randint(0, 4))) for _ in rows[0]]
            rows.append(cells)
        table = io.StringIO(newline="")
        csv.writer(table, **dialect).writerows(rows)
        data = table.getvalue()
        again = list(csv.reader(io.StringIO(data, newline=""), **dialect))
        if again != rows:
            continue  # the library itself does not read this back
        name = rows[0][column]
        document = read("csv", data.encode(), columns=(name,))
        assert document.write([None] * len(document.segments)).decode() == data
        after = list(csv.reader(io.StringIO(translate(data, columns=(name,)).decode(), newline=""),
                                **dialect))  # fmt: skip
        if document.skipped:
            continue
        expected = [
            [cell.upper() if n == column and place else cell for n, cell in enumerate(row)]
            for place, row in enumerate(rows)
        ]
        seen += 1
        assert after == expected, (dialect, data)
    assert seen > number / 2


def test_pandas_reads_the_same(tmp_path):
    pandas = pytest.importorskip("pandas")
    before = pandas.read_csv(io.StringIO(CRM))
    after = pandas.read_csv(io.BytesIO(translate(CRM, columns=("comment",))))
    before["comment"] = before["comment"].str.upper()
    pandas.testing.assert_frame_equal(before, after)


LINES = """{"id": 1.50, "comment": "one", "id": 2, "by": {"comment": "x"}}

{"comment":null,"id":1E5}\r
  {"id": 3, "comment": "tw\\u00f6 \\/ three", "other": "one"}"""


def test_fields_of_json_lines_and_of_lists_of_objects():
    assert translate(LINES, "jsonl", keys=("comment",)).decode() == LINES.replace(
        '"comment": "one"', '"comment": "ONE"'
    ).replace("tw\\u00f6 \\/ three", "TW\\u00d6 \\/ THREE")
    nested = read("jsonl", LINES.encode(), keys=("by.comment", "other"))
    assert texts(nested) == ["x", "one"]
    # A field may be without text in all lines
    assert texts(read("jsonl", b'{"a": null, "b": "x"}', keys=("a",))) == []
    table = json.dumps([{"a": "one", "b": ["two"]}, {"a": "three"}])
    assert texts(read("json", table.encode(), keys=("a",))) == ["one", "three"]
    assert texts(read("json", table.encode(), keys=("*.b.*", "a"))) == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("format_name", "data", "keys", "error"),
    [
        ("jsonl", LINES, (), "a.jsonl: is a table, not lines of text; add --input-format jsonl, "),
        ("jsonl", LINES, (), "or --key NAME for each field to translate: id, comment, by, by.comm"),
        ("jsonl", LINES, ("coment",), "--key: a.jsonl has nothing at coment; did you mean comm"),
        ("json", '[{"a": "x"}]', ("b",), "--key: a.json has nothing at b; it has a"),
    ],
)  # fmt: skip
def test_fields_that_nothing_has(format_name, data, keys, error):
    with pytest.raises(UsageError) as raised:
        read(format_name, data.encode(), keys=keys)
    assert error in str(raised.value)


def test_a_line_that_is_not_json_is_named():
    with pytest.raises(DataError, match=r"^a\.jsonl:3: is not JSON"):
        read("jsonl", b'{"a": "x"}\n\n{"a": x}\n', keys=("a",))
