import re
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.documents.test_translating import upper
from tformer_cli.documents.known_formats import format_named
from tformer_cli.documents.segments import ReadSettings
from tformer_cli.documents.translating import translating
from tformer_cli.errors import DataError

HTML = format_named("html")


def read(text, **settings):
    data = text if isinstance(text, bytes) else text.encode()
    return HTML.read(data, ReadSettings(**settings))


def translate(text, answer=upper, **settings):
    document = read(text, **settings)
    job = translating(document.segments, protects=False)
    requests = next(job)
    while True:
        try:
            requests = job.send([answer(request.text) for request in requests])
        except StopIteration as end:
            return document.write(end.value.segments).decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("hello", "HELLO"),
        ("<p>hello</p>", "<p>HELLO</p>"),
        ("<p>\n  the old\n  house </p>", "<p>\n  THE OLD HOUSE </p>"),
        ("<P CLASS='x > y'>a</P >", "<P CLASS='x > y'>A</P >"),
        ("a &amp; b &lt; c&nbsp;d", "A &amp; B &lt; C\u00a0D"),
        ("x 1 < 2", "X 1 &lt; 2"),
        ("<!-- hello --><p>a</p><!DOCTYPE html>", "<!-- hello --><p>A</p><!DOCTYPE html>"),
        ("a <!-- b --> c", "A <!-- b --> C"),
        ("<script>let a = '<p>b</p>'</script>c", "<script>let a = '<p>b</p>'</script>C"),
        ("<style>p {}</style><td>a</td><td>b", "<style>p {}</style><td>A</td><td>B"),
        ("use <code>l&#115;</code> here", "USE <code>l&#115;</code> HERE"),
        ("<pre>a\n b</pre>", "<pre>a\n b</pre>"),
        ("<p translate=no>a <b>b</b></p><p>c</p>", "<p translate=no>a <b>b</b></p><p>C</p>"),
        ('<i class="x notranslate">a</i> b', '<i class="x notranslate">a</i> B'),
        ("<div translate=no><div>a</div>b</div>c", "<div translate=no><div>a</div>b</div>C"),
        ("one<br>two<br/>three", "ONE<br>TWO<br/>THREE"),
        ("<b>all of it</b>", "<b>ALL OF IT</b>"),
        ("the <b>old</b> house", "THE <b>OLD</b> HOUSE"),
        ("<a href='x'><b>old</b></a> house", "<a href='x'><b>OLD</b></a> HOUSE"),
        ("a <i>b</i> c <i>d</i>.", "A <i>B</i> C <i>D</i>."),
        ("a <a href='#'>b <b>c</b></a> d", "A <a href='#'>B <b>C</b></a> D"),
        ("a <img src=x> b", "A <img src=x> B"),
        ("a<sup>1</sup> b", "A<sup>1</sup> B"),
        ("a<sup id=x><a href=y>[b]</a></sup>.", "A<sup id=x><a href=y>[b]</a></sup>."),
        ("</b> a <b>", "</b> A <b>"),
        ("<b>a <i>b</b> c</i>", "<b>A <i>B</b> C</i>"),
        ("<?php echo '>' ?><p>a</p>", "<?php echo '>' ?><p>A</p>"),
        ("<![CDATA[ a > b ]]>c", "<![CDATA[ a > b ]]>C"),
        ("<p>12:30 — <b>7</b></p>", "<p>12:30 — <b>7</b></p>"),
        ("<title>a &amp; b</title>", "<title>A &amp; B</title>"),
        ("<img alt='the \"cat\"' src=x>", "<img alt='THE &quot;CAT&quot;' src=x>"),
        ("a <img alt=\"it's b\"> c", "A <img alt=\"IT&#x27;S B\"> C"),
        ("<input type=submit value='go'>", "<input type=submit value='GO'>"),
        ("<input type='reset' value='go'>", "<input type='reset' value='GO'>"),
        ("<input value='go'><img alt=cat>", "<input value='go'><img alt=cat>"),
        ('<meta name="description" content="a b">', '<meta name="description" content="A B">'),
        ('<meta name="robots" content="no index">', '<meta name="robots" content="no index">'),
        ("<script title='a'>'<a title=\"b\">'</script>",) * 2,
        ("", ""),
        ("  ", "  "),
        ("<", "<"),
        ("a <p", "A &lt;P"),
        ("a <!-- b < c <code> d <? e", "A &lt;!-- B &lt; C <code> D &lt;? E"),
        ("<sup>" * 9 + "a", "<sup>" * 9 + "A"),
        ('<p><img alt="cat"></p><p>The cat <!-- <img alt="cat"> --> is old.</p>',
         '<p><img alt="CAT"></p><p>THE CAT <!-- <img alt="cat"> --> IS OLD.</p>'),
        ('a <img alt="b"> <code>c <img alt="b"></code> <!--<img alt="b">--> d',
         'A <img alt="B"> <code>c <img alt="b"></code> <!--<img alt="b">--> D'),
        ('7 <img alt="b"> <!--<img alt="b">-->, a', '7 <img alt="B"> <!--<img alt="b">-->, A'),
    ],
)  # fmt: skip
def test_text_is_translated_and_tags_stay(source, target):
    assert translate(source) == target
    # Nothing is translated: every byte stays
    document = read(source)
    assert document.write(document.segments) == source.encode()


def test_an_element_with_a_name_of_its_own_is_there_once():
    spans = read("a <b id=x>b</b> <b>c</b> <span>d</span> <a href=y>e</a>.").segments[0].spans
    assert [span.behavior for span in spans] == ["once", "repeat", "repeat", "once"]


def test_the_language_of_the_page_is_that_of_the_translation():
    page = "<html lang='en' xml:lang=\"en\"><p lang='en'>a"
    assert translate(page, target_language="fr") == "<html lang='fr' xml:lang=\"fr\"><p lang='fr'>A"
    assert translate(page, target_language="ar").startswith("<html dir=\"rtl\" lang='ar'")
    assert translate("<html dir=ltr><p>a", target_language="ar") == "<html dir=ltr><p>A"


def test_labels_of_a_part_are_those_of_its_language():
    page = (
        '<html lang="en-US"><head><meta http-equiv="Content-Language" content="en">'
        '<meta content="en_US" property="og:locale"><meta name="robots" content="en"></head>'
        '<p data-lang="en">a <b xml:lang="en" lang="en">b</b> <i lang="de">c</i> <br lang="en">'
        '<a hreflang="en" lang="en-GB" title="lang=\'en\'">d</a>'
        '<p translate="no" lang="en">keep'
    )
    assert translate(page, target_language="pt-BR") == (
        '<html lang="pt-BR"><head><meta http-equiv="Content-Language" content="pt-BR">'
        '<meta content="pt_BR" property="og:locale"><meta name="robots" content="en"></head>'
        '<p data-lang="en">A <b xml:lang="pt-BR" lang="pt-BR">B</b> <i lang="de">C</i> '
        '<br lang="pt-BR"><a hreflang="en" lang="pt-BR" title="LANG=\'EN\'">D</a>'
        '<p translate="no" lang="en">keep'
    ).replace("LANG='EN'", "LANG=&#x27;EN&#x27;")
    assert 'lang="en-GB"' in translate(page)
    part = '<p lang="en">a<p lang="de">b'
    output = translate(part, source_language="en", target_language="fr")
    assert output == '<p lang="fr">A<p lang="de">B'


def test_a_page_keeps_its_encoding():
    page = "<meta charset='iso-8859-1'><p title='é'>élan €uro".encode("cp1252")
    document = read(page)
    assert document.segments[0].text == "élan €uro"
    assert document.write([None] * 2) == page
    changed = [replace(segment, text="слон é") for segment in document.segments]
    # Characters missing from the encoding become references
    assert b"&#1089;&#1083;&#1086;&#1085; \xe9" in document.write(changed)
    for data in (
        "\ufeff<p>é".encode(),
        "\ufeff<p>é".encode("utf-16-le"),
        "<p>é".encode("latin-1"),
        b"<meta charset=nonsense><p>a",
        b"<meta charset=utf-16><p>a",
    ):
        document = read(data)
        assert len(document.segments) == 1
        assert document.write([None]) == data
    with pytest.raises(DataError, match=r"^a\.html: is not text; save it as HTML"):
        read(b"PK\0\0", name="a.html")


@given(st.text("<>/!-pb\"'= &;ab\n", max_size=60))
def test_markup_that_is_not_translated_is_as_it_was(text):
    document = read(text)
    assert document.write(document.segments) == text.encode()

    def tags(markup):
        return re.findall(r"</?[pb]\b[^<>]*>", markup)

    # White space may become one space, and < an entity; tags keep their order
    changed = [
        replace(segment, text=segment.text.replace("a", "c")) for segment in document.segments
    ]
    assert tags(document.write(changed).decode().replace("c", "a")) == tags(text)


def test_damaged_markup_takes_no_longer_than_other_text():
    for piece in ("<a ", "<a '", "<!--", "<b translate=no>", "&", "<script>", "<a '<a' '", "<b>a"):
        assert translate(piece * 3000)


@pytest.mark.parametrize(
    "text",
    [
        *(piece * 60_000 for piece in ("<!-- ", "<code>", "<![CDATA[", "<!a ", "<? ", "<sup>")),
        "<b>" * 60_000 + "</i>" * 60_000,
        "<b>" * 60_000 + "a" + "</b></i>" * 60_000,
    ],
)
def test_unclosed_markup_is_read_once(text):
    begin = time.process_time()
    document = read(text)
    assert document.write([None] * len(document.segments)) == text.encode()
    # each took minutes while the search was quadratic
    assert time.process_time() - begin < 20


def test_the_language_of_a_page_is_escaped():
    output = translate("<html lang='en'><p>a", target_language="d'<")
    assert output == "<html lang='d&#x27;&lt;'><p>A"
    document = read("<html lang='en'><p>a", target_language="de")
    assert document.write([None]) == b"<html lang='en'><p>a"
