import json
import tracemalloc

import pytest

from tests.documents.making import list_texts, read, translate
from tformer_cli.errors import DataError

TEXT = r"""{
  "@@locale": "en",
  "title" : "The \"old\" house",
  "n": [1, -2.5e3, null, true, "", {"k": "in an object"}, "\n  Two lines  \nhere "],
  "menu": {"file": {"title": "Open \/ close", "id": "x1"}, "edit": {"title": "Cut"}},
  "@title": {"description": "a note"},
  "e\u006dpty": {}, "list": []
}
"""


def test_all_strings():
    data = ("\ufeff" + TEXT.replace("\n", "\r\n")).encode()
    document = read("json", data)
    words = ['The "old" house', "in an object", "Two lines  \nhere", "Open / close", "x1", "Cut"]
    assert list_texts(document.segments) == words
    assert [segment.context for segment in document.segments][:3] == ["title", "n.5.k", "n.6"]
    assert document.write(document.segments) == data
    output = translate(
        document, {words[0]: "Das „alte“\tHaus\\", words[2]: "2\n3", words[3]: "a / b"}
    )
    assert output.decode() == data.decode().replace(
        r"The \"old\" house", r"Das „alte“\tHaus" + "\\\\"
    ).replace(r"Two lines  \nhere", r"2\n3").replace(r"Open \/ close", r"a \/ b")
    assert json.loads(output.decode("utf-8-sig"))["n"][6] == "\n  2\n3 "


@pytest.mark.parametrize(
    ("keys", "texts"),
    [
        (["title"], ['The "old" house']),
        (["menu.*.title"], ["Open / close", "Cut"]),
        (["**.title"], ['The "old" house', "Open / close", "Cut"]),
        (["$.n[5].k", "n.6"], ["in an object", "Two lines  \nhere"]),
        (["n[*].k"], ["in an object"]),
        (["@title.description"], ["a note"]),
        (["menu"], []),
        (["n"], ["Two lines  \nhere"]),
        (["menu.**"], ["Open / close", "x1", "Cut"]),
    ],
)
def test_paths(keys, texts):
    assert list_texts(read("json", TEXT.encode(), keys=tuple(keys)).segments) == texts


def test_a_file_in_ascii_stays_so():
    data = rb'{"a": "caf\u00e9 \ud83d\ude00", "b": "x"}'
    document = read("json", data)
    assert list_texts(document.segments) == ["café 😀", "x"]
    assert translate(document, {"x": "é"}) == data.replace(b'"x"', rb'"\u00e9"')


def test_half_a_character_is_shown_as_none():
    data = rb'{"a": "x \ud83d", "\ud83d": "\ud83d\ude00 b", "c": "\udc00 1"}'
    document = read("json", data)
    # half a surrogate pair could not be encoded later
    assert [segment.context for segment in document.segments] == ["a", "\ufffd", "c"]
    output = translate(document, {"x \ufffd": "y", "\U0001f600 b": "\U0001f600 c"})
    assert output == data.replace(b"x \\ud83d", b"y").replace(b" b", b" c")


@pytest.mark.parametrize("text", ['"only"', "[]", "3", ' ["a",["b"],"c"] '])
def test_small_files(text):
    document = read("json", text.encode())
    assert document.write(document.segments) == text.encode()
    assert len(document.segments) == text.count('"') / 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1,\n}', "a.json:2: is not JSON ("),
        (b"[\n  1,\n\n]", "a.json:4: is not JSON ("),
        (b"[" * 501 + b"]" * 501, "a.json: has values nested too deep"),
        (b"[" * 100_000, "a.json: has values nested too deep"),
    ],
)
def test_errors(data, message):
    with pytest.raises(DataError) as caught:
        read("json", data)
    assert str(caught.value).startswith(message)


def test_tags_of_messages_are_markup():
    """Programs show many messages as HTML."""
    message = r"Open <b>the \"old\" file<\/b> or<br\/> go <a href=\"\/x\">home<\/a>, <name>. 1 < 2"
    text = f'{{"a": "{message}"}}'
    document = read("json", text.encode())
    (segment,) = document.segments
    assert segment.text == 'Open the "old" file or go home, <name>. 1 < 2'
    assert [span.behavior for span in segment.spans] == ["repeat", "void", "repeat", "protected"]
    assert document.write(document.segments).decode() == text
    output = translate(document, {segment.text: segment.text.replace("home", "heim")})
    assert output.decode() == text.replace("home", "heim")


@pytest.mark.parametrize("value", ["a" * 500_000, "a word " * 70_000, r"\n\"" * 100_000])
def test_a_long_string_takes_little_memory(value):
    data = f'["{value}"]'.encode()
    tracemalloc.start()
    document = read("json", data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * len(data)
    assert document.write(document.segments) == data


@pytest.mark.parametrize(
    ("keys", "texts", "n_skipped"),
    [
        (("c",), ["one", "two", "three", "four"], 1),
        (("c.x",), ["five"], 0),
        (("*.c",), ["one", "two", "three", "four"], 1),
        (("c.*",), ["two", "three", "four", "five"], 0),
    ],
)
def test_the_texts_of_a_list_are_those_of_its_key(keys, texts, n_skipped):
    records = [{"c": "one"}, {"c": ["two", ["three"]]}, {"c": []}, {"c": {"x": "five"}, "d": "no"}]
    records[2]["c"] = ["four", {"x": 1}]
    for name, data in (
        ("json", json.dumps(records)),
        ("jsonl", "\n".join(map(json.dumps, records))),
    ):
        if name == "jsonl" and keys == ("*.c",):
            continue
        document = read(name, data.encode(), keys=keys)
        assert list_texts(document.segments) == texts
        assert document.skipped.total() == n_skipped
