"""HTML: untranslated regions, notes, templates, and elements and attributes with text."""

import random
import re

import pytest

from tests.plugins.documents.test_html import read, translate

KEPT = [
    (
        'the <i class="material-icons">home</i> <i class="material-symbols-outlined">add</i> key',
        'THE <i class="material-icons">home</i> <i class="material-symbols-outlined">add</i> KEY',
    ),
    ('<i class="material-iconset">text</i>', '<i class="material-iconset">TEXT</i>'),
    (
        '<a href="b.html?translate=no">the green garden</a>',
        '<a href="b.html?translate=no">THE GREEN GARDEN</a>',
    ),
    ('<p data-translate="no-op">text</p>', '<p data-translate="no-op">TEXT</p>'),
    ('<body class="notranslate-x"><p>text', '<body class="notranslate-x"><p>TEXT'),
    ('<p class="a notranslate b">keep</p><p>text', '<p class="a notranslate b">keep</p><p>TEXT'),
    ("<p TRANSLATE=NO>keep <b>x</b></p>text", "<p TRANSLATE=NO>keep <b>x</b></p>TEXT"),
    ('<p translate="maybe">text</p>', '<p translate="maybe">TEXT</p>'),
    (
        '<div translate=no>keep <span translate="yes">the house</span> keep</div>text',
        '<div translate=no>keep <span translate="yes">THE HOUSE</span> keep</div>TEXT',
    ),
    (
        "<div translate=no>keep <p translate>the house</p> keep <p>keep</p></div>text",
        "<div translate=no>keep <p translate>THE HOUSE</p> keep <p>keep</p></div>TEXT",
    ),
    (
        '<div translate=no>keep <p translate="">the <i translate=no>keep</i> house</p></div>text',
        '<div translate=no>keep <p translate="">THE <i translate=no>keep</i> HOUSE</p></div>TEXT',
    ),
    (
        "<p>press <span translate=no>Foo <i translate=yes>the key</i> bar</span> now</p>",
        "<p>PRESS <span translate=no>Foo <i translate=yes>THE KEY</i> bar</span> NOW</p>",
    ),
    ("<p translate=no>keep<p>text</p><p>more</p>", "<p translate=no>keep<p>TEXT</p><p>MORE</p>"),
    (
        "<ul><li translate=no>keep<li>text<ul><li>deep</ul></ul><p>text",
        "<ul><li translate=no>keep<li>TEXT<ul><li>DEEP</ul></ul><p>TEXT",
    ),
    (
        "<ul><li translate=no>keep<ul><li>keep</ul>keep<li>text</ul>more",
        "<ul><li translate=no>keep<ul><li>keep</ul>keep<li>TEXT</ul>MORE",
    ),
    (
        "<table><tr><td translate=no>keep<td>text<tr><td>more</table>",
        "<table><tr><td translate=no>keep<td>TEXT<tr><td>MORE</table>",
    ),
    (
        '<img translate=no alt="keep it"><img alt="the cat">',
        '<img translate=no alt="keep it"><img alt="THE CAT">',
    ),
    (
        '<div translate=no><script>"</div>"</script>keep<!-- </div> -->keep</div>text',
        '<div translate=no><script>"</div>"</script>keep<!-- </div> -->keep</div>TEXT',
    ),
    (
        'old <code translate=no title="keep">x</code> house',
        'OLD <code translate=no title="keep">x</code> HOUSE',
    ),
]


NOTES = [
    *(
        (f"the house{mark} is", f"THE HOUSE{mark} IS")
        for mark in (
            '<sup class="reference"><a href="#cite_note-1"><span>[</span>1<span>]</span></a></sup>',
            '<sup><a href="#cite_note-a-2"><b>&#91;</b>note 2<span>&#93;</span></a></sup>',
            '<sup><a href="#fn:3" class="footnote"> <b>3</b> </a></sup>',
            '<a href="#ftn4" class="fn"><sup><span>[</span>4]</sup></a>',
        )
    ),
    (
        'sister<a epub:type="noteref" href="#fn1">1</a> was',
        'SISTER<a epub:type="noteref" href="#fn1">1</a> WAS',
    ),
    ('old<a epub:type="noteref" href=x>3</a>', 'OLD<a epub:type="noteref" href=x>3</a>'),
    (
        'old<a role="doc-noteref" href="n.html#a">*</a> house',
        'OLD<a role="doc-noteref" href="n.html#a">*</a> HOUSE',
    ),
    (
        'old<a href="#fn1" class="footnote-ref"><sup>1</sup></a> house',
        'OLD<a href="#fn1" class="footnote-ref"><sup>1</sup></a> HOUSE',
    ),
    ('old<sup><a href="#fn1">1</a></sup> house', 'OLD<sup><a href="#fn1">1</a></sup> HOUSE'),
    ('the old <a href="#footnote-3">[3]</a> house', 'THE OLD <a href="#footnote-3">[3]</a> HOUSE'),
    ('see page <a href="#p3">3</a> of it', 'SEE PAGE <a href="#p3">3</a> OF IT'),
    ('the house<a href="#x7">7</a>, old', 'THE HOUSE<a href="#x7">7</a>, OLD'),
    ('the house [<a href="#_ftn2">2</a>] is old', 'THE HOUSE [<a href="#_ftn2">2</a>] IS OLD'),
    ('the <a href="#notes">notes</a> are old', 'THE <a href="#notes">NOTES</a> ARE OLD'),
    ('the <a href="notes.html">3</a> cats', 'THE <a href="notes.html">3</a> CATS'),
    (
        'old<a epub:type="noteref" href="#x">iv</a> house',
        'OLD<a epub:type="noteref" href="#x">iv</a> HOUSE',
    ),
    (
        'old <a epub:type="noteref" href="#x">the note</a> house',
        'OLD <a epub:type="noteref" href="#x">THE NOTE</a> HOUSE',
    ),
    (
        'old<a role="doc-noteref"><span class="a"><sup>1</sup></span></a> house',
        'OLD<a role="doc-noteref"><span class="a"><sup>1</sup></span></a> HOUSE',
    ),
    (
        'old<a href="#_ftn1" name="_ftnref1"><span><![if !x]>[1]<![endif]></span></a> house',
        'OLD<a href="#_ftn1" name="_ftnref1"><span><![if !x]>[1]<![endif]></span></a> HOUSE',
    ),
    (
        'see <a class="sdfootnoteanc" href="#sdfootnote1sym">1</a> house',
        'SEE <a class="sdfootnoteanc" href="#sdfootnote1sym">1</a> HOUSE',
    ),
]


TEMPLATES = [
    ("Hello <%= user.name %>, welcome", "HELLO <%= user.name %>, WELCOME"),
    (
        "<% if (a > b) { %>hello<% } else { %>bye <b>you</b><% } %>",
        "<% if (a > b) { %>HELLO<% } else { %>BYE <b>YOU</b><% } %>",
    ),
    ("hello <?php echo $x->y; ?> world", "HELLO <?php echo $x->y; ?> WORLD"),
    (
        "<?php if ($a): ?>hello<?php endif; ?> <?= $a ?>",
        "<?php if ($a): ?>HELLO<?php endif; ?> <?= $a ?>",
    ),
    ('hello {{ user.name|default("<b>") }} you', 'HELLO {{ user.name|default("<b>") }} YOU'),
    (
        "{% if a < b %}the house{% else %}the garden{% endif %}",
        "{% if a < b %}THE HOUSE{% else %}THE GARDEN{% endif %}",
    ),
    ("{# a comment <p> #}the house", "{# a comment <p> #}THE HOUSE"),
    ("[% name %] is [% IF x > 1 %]old[% END %]", "[% name %] IS [% IF x > 1 %]OLD[% END %]"),
    (
        "<#if x gt 1>old<#else>new</#if> ${user.name} house",
        "<#if x gt 1>OLD<#else>NEW</#if> ${user.name} HOUSE",
    ),
    ("{{#each items}}the {{name}}{{/each}}", "{{#each items}}THE {{name}}{{/each}}"),
    ("{#if a < b}old{:else}new{/if} house", "{#if a < b}OLD{:else}NEW{/if} HOUSE"),
    ("{if $a}old{else}new{/if} {$name} house", "{if $a}OLD{else}NEW{/if} {$name} HOUSE"),
    (
        "{{ if .Old }}old{{ end }} {{- .Name -}} house",
        "{{ if .Old }}OLD{{ end }} {{- .Name -}} HOUSE",
    ),
    (
        "<%-- a comment <p> --%>the {!! $name !!} house",
        "<%-- a comment <p> --%>THE {!! $name !!} HOUSE",
    ),
    ("the {house} is {old: new}", "THE {HOUSE} IS {OLD: NEW}"),
    ("a {{ unclosed and <b>bold</b>", "A {{ UNCLOSED AND <b>BOLD</b>"),
    ('<!--#include virtual="a.html" -->the house', '<!--#include virtual="a.html" -->THE HOUSE'),
    (
        '<a href="<%= url("x") %>" title="the <%= t %> house">the link</a>',
        '<a href="<%= url("x") %>" title="THE <%= t %> HOUSE">THE LINK</a>',
    ),
    (
        '<div <% if x %>class="a"<% end %>>the house</div>',
        '<div <% if x %>class="a"<% end %>>THE HOUSE</div>',
    ),
]


ELEMENTS = [
    (
        "<template><p>the house</p></template><noscript>needs scripts</noscript>",
        "<template><p>THE HOUSE</p></template><noscript>NEEDS SCRIPTS</noscript>",
    ),
    (
        '<script type="text/x-handlebars"><p>the {{x}} house</p></script><script>"a"</script>',
        '<script type="text/x-handlebars"><p>THE {{x}} HOUSE</p></script><script>"a"</script>',
    ),
    (
        '<script type="text/javascript">"hello"</script>',
        '<script type="text/javascript">"hello"</script>',
    ),
    (
        '<script type="application/ld+json">{"a":"b"}</script>',
        '<script type="application/ld+json">{"a":"b"}</script>',
    ),
    (
        'save <svg aria-label="a cat"><title>a cat</title><style>.a{}</style></svg> it',
        'SAVE <svg aria-label="A CAT"><title>A CAT</title><style>.a{}</style></svg> IT',
    ),
    (
        "<svg><text x=1>the <tspan>old</tspan> house</text></svg>",
        "<svg><text x=1>THE <tspan>OLD</tspan> HOUSE</text></svg>",
    ),
    (
        '<textarea placeholder="the text">keep</textarea><iframe title="the map" src=x></iframe>',
        '<textarea placeholder="THE TEXT">keep</textarea><iframe title="THE MAP" src=x></iframe>',
    ),
    (
        '<meta name="Description" content="the page"><meta name=robots content="noindex">',
        '<meta name="Description" content="THE PAGE"><meta name=robots content="noindex">',
    ),
    (
        '<meta property="twitter:title" content="the title">',
        '<meta property="twitter:title" content="THE TITLE">',
    ),
    (
        '<input type=SUBMIT value="go there"><input type=text value="keep">',
        '<input type=SUBMIT value="GO THERE"><input type=text value="keep">',
    ),
    (
        '<select><option value=a label="the label">the text<option>more</select>',
        '<select><option value=a label="THE LABEL">THE TEXT<option>MORE</select>',
    ),
    ("<p>the <img src=a> <b>old</b> house</p>", "<p>THE <img src=a> <b>OLD</b> HOUSE</p>"),
    ("<p>build <b>status <img src=a></b></p>", "<p>BUILD <b>STATUS <img src=a></b></p>"),
    ("<p><b><img src=a> save</b> it</p>", "<p><b><img src=a> SAVE</b> IT</p>"),
    (
        '<a href=x><img alt="the build" src=b></a> the',
        '<a href=x><img alt="THE BUILD" src=b></a> THE',
    ),
    ("<html translate=no><p>keep</html>", "<html translate=no><p>keep</html>"),
    ("<code-block>text</code-block>", "<code-block>TEXT</code-block>"),
    ('<script data-x="a>b">var x</script>text', '<script data-x="a>b">var x</script>TEXT'),
    ("<p lang=fr hreflang=fr dir=ltr>text</p>", "<p lang=fr hreflang=fr dir=ltr>TEXT</p>"),
    (
        '<p title="{{ x }}">a</p><p title="the {{ x }}">b</p>',
        '<p title="{{ x }}">A</p><p title="THE {{ x }}">B</p>',
    ),
]


@pytest.mark.parametrize(("source", "target"), [*KEPT, *NOTES, *TEMPLATES, *ELEMENTS])
def test_text_is_translated_and_markup_stays(source, target):
    assert translate(source) == target
    document = read(source)
    assert document.write(document.segments) == source.encode()


@pytest.mark.parametrize("source", [source for source, _ in NOTES if "house" in source][:5])
def test_the_mark_of_a_note_is_no_word(source):
    (segment,) = read(source).segments
    assert [span.behavior for span in segment.spans] == ["void"]
    assert not any(map(str.isdigit, segment.text))


def test_what_a_program_writes_is_copied_in_its_sentence():
    (segment,) = read("<p>Hello <%= user.name %>, <b>old</b> {{ friend }}").segments
    assert segment.text == "Hello <%= user.name %>, old {{ friend }}"
    assert [span.behavior for span in segment.spans] == ["protected", "repeat", "protected"]


def a_page(chance, depth=0, *, in_sentence=False):
    """Draws a page with `translate` attributes, and with some closing tags missing."""
    text = ""
    for _ in range(chance.randrange(1, 4)):
        kind = chance.randrange(9)
        inner = depth + 1
        says = chance.choice(SAYING)
        if depth > 4 or kind < 3:
            text += f"w{chance.randrange(10**9)}x "
        elif in_sentence or kind < 5:
            name = chance.choice("bi")
            text += f"<{name}{says}>{a_page(chance, inner, in_sentence=True)}</{name}> "
        elif kind == 5:
            text += f"<p{says}>{a_page(chance, inner, in_sentence=True)}"
        elif kind == 6:
            text += f"<div{says}>{a_page(chance, inner)}</div>"
        elif kind == 7:
            text += f"<ul><li{says}>{a_page(chance, inner)}<li>{a_page(chance, inner)}</ul>"
        else:
            row = f"<tr{says}><td{chance.choice(SAYING)}>{a_page(chance, inner)}"
            text += f"<table>{row}<td>{a_page(chance, inner)}</td>{row}</table>"
    return text


SAYING = (
    *("", "", " translate=no", " translate=yes", " translate", " translate=x", " TRANSLATE='No'"),
    *(" class='a notranslate'", " class=notranslate-x", " data-translate=no"),
)


def translated_words(element, says=True):
    """Returns the words that may be translated according to the tree of a page."""
    value = element.get("translate")
    if value is not None and value.lower() in ("yes", "no", ""):
        says = value.lower() != "no"
    elif "notranslate" in element.get("class", "").split():
        says = False
    words = (element.text or "").split() if says else []
    for child in element:
        words += translated_words(child, says)
        words += (child.tail or "").split() if says else []
    return words


@pytest.mark.parametrize("seed", range(20))
def test_regions_are_those_of_a_browsers_parser(seed):
    html5lib = pytest.importorskip("html5lib")
    page = f"<!DOCTYPE html><body>{a_page(random.Random(seed))}"
    tree = html5lib.parse(page, namespaceHTMLElements=False)
    output = translate(page)
    assert sorted(re.findall(r"W\d+X", output)) == sorted(map(str.upper, translated_words(tree)))


def test_many_regions_in_each_other():
    pair = "<b translate=no>a<i translate=yes>b"
    text = pair * 2000 + "</i></b>" * 2000
    document = read(text)
    assert document.write([None] * len(document.segments)) == text.encode()
