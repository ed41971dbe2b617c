import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serve.fake import Client
from tformer_cli.serve.markup import translated_markup


def translated(text, translate=str.upper):
    async def each(texts):
        return [translate(one) for one in texts]

    return asyncio.run(translated_markup([text], each))[0]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("hello", "HELLO"),
        ("<p>hello</p>", "<p>HELLO</p>"),
        ("<p>\n  the old\n  house </p>", "<p>\n  THE OLD HOUSE </p>"),
        ("<P CLASS='x > y'>a</P >", "<P CLASS='x > y'>A</P >"),
        ("a &amp; b &lt; c&nbsp;d", "A &amp; B &lt; C D"),
        ("1 < 2", "1 &lt; 2"),
        ("<!-- hello --><p>a</p><!DOCTYPE html>", "<!-- hello --><p>A</p><!DOCTYPE html>"),
        ("<script>let a = '<p>b</p>'</script>c", "<script>let a = '<p>b</p>'</script>C"),
        ("<style>p {}</style><td>a</td><td>b", "<style>p {}</style><td>A</td><td>B"),
        ("use <code>ls</code> here", "USE <code>ls</code> HERE"),
        ("<p translate=no>a <b>b</b></p><p>c</p>", "<p translate=no>a <b>b</b></p><p>C</p>"),
        ('<i class="x notranslate">a</i> b', '<i class="x notranslate">a</i> B'),
        ("one<br>two<br/>three", "ONE<br>TWO<br/>THREE"),
        ("<b>all of it</b>", "<b>ALL OF IT</b>"),
        ("the <b>old</b> house", "THE <b>OLD</b> HOUSE"),
        ("<a href='x'><b>old</b></a> house", "<a href='x'><b>OLD</b></a> HOUSE"),
        ("a <i>b</i> c <i>d</i>.", "A <i>B</i> C <i>D</i>."),
        ("a <a href='#'>b <b>c</b></a> d", "A <a href='#'>B <b>C</b></a> D"),
        ("a <img src=x> b", "A <img src=x> B"),
        ("</b> a <b>", "</b> A <b>"),
        ("", ""),
        ("  ", "  "),
        ("<", "&lt;"),
        ("<p", "&lt;P"),
    ],
)
def test_text_is_translated_and_tags_stay(source, target):
    assert translated(source) == target


def test_tags_go_where_their_text_is():
    words = {"the old house": "la vieille maison", "old": "vieille"}
    assert translated("the <b>old</b> house", words.get) == "la <b>vieille</b> maison"
    # Numbers and names are looked for as they were
    words = {"in 1990 he left": "il partit en 1990", "1990": "mille neuf cent"}
    assert translated("in <i>1990</i> he left", words.get) == "il partit en <i>1990</i>"


def test_text_whose_place_is_not_certain_is_translated_in_parts():
    words = {"a cat is a cat": "un chat", "a cat": "chat", "is a": "est", "cat": "chats"}
    asked = []

    def translate(text):
        asked.append(text)
        return words.get(text, text)

    # Found nowhere, or twice: then part by part, and all tags are there
    assert translated("<b>a cat</b> is a <b>cat</b>", translate) == "<b>chat</b> est <b>chats</b>"
    assert asked == ["a cat is a cat", "a cat", "cat", "a cat", "is a", "cat"]


@given(st.text("<>/!-pb\"'= &;ab\n", max_size=60))
def test_markup_that_is_not_translated_is_as_it_was(text):
    kept = translated(text, lambda one: one)

    def tags(markup):
        return re.findall(r"</?[pb]\b[^<>]*>", markup)

    # White space may become one space, and < an entity; no tag is lost or moved before another
    assert tags(kept) == tags(text)


def test_damaged_markup_takes_no_longer_than_other_text():
    for piece in ("<a ", "<a '", "<!--", "<b translate=no>", "&", "<script>", "<a '<a' '"):
        assert translated(piece * 3000, lambda one: one)


def test_html_over_http():
    fields = {"source": "en", "target": "fr", "format": "html"}
    client = Client()
    one = client.post("/translate", json_={**fields, "q": "<p>a <b>b</b></p>", "alternatives": 2})
    assert one.json == {"translatedText": "<p>A <b>B</b></p>", "alternatives": []}
    assert client.post("/translate", json_={**fields, "q": ["<p>a</p>", "b"]}).json == {
        "translatedText": ["<p>A</p>", "B"]
    }
    # An attack is text to us; what it was as markup it stays
    attack = "</script><img src=x onerror=alert(1)>"
    assert client.post("/translate", json_={**fields, "q": attack}).json["translatedText"] == attack
