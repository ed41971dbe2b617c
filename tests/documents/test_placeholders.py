import time

import pytest

from tformer_cli.documents.placeholders import (
    CODES,
    COPIED,
    SYNTAXES,
    is_code,
    placeholders_differ,
)
from tformer_cli.documents.protect import protect_segment
from tformer_cli.documents.segments import Segment

SYNTAX_EXAMPLES = [
    pytest.param(example, row.is_only_in_messages, id=f"{row.users}: {example}")
    for row in SYNTAXES
    for example in row.examples
]
CODE_EXAMPLES = [
    pytest.param(example, id=f"{row.name}: {example}") for row in CODES for example in row.examples
]
UNITS = (
    r"{|%|<%|[a|a-|{a |\(a|$t(|~,|:a|%<|a.|{{|${{a|__a|0a|12|/a|{% |{# |<?= |#{a|{a:b|a@b.|{a[b]"
)
UNITS += '|[[|%(a|@:a.|P1D|{X(a|{"a|`a|A|http://|{x,number '
WORDS = (
    "Save well-known mother-in-law state-of-the-art up-to-date one-to-one vis-à-vis e.g. e.g p.m. "
    "i.e a.m 1st 20th 10am 3D MP3 A4 and/or Yes/No SAVE OK N/A Hello.World Loading... Loading… "
    "don't self-service Open R&D beef dd"
)


def copied_texts(text, *, is_message=True):
    segment = protect_segment(Segment(text, is_message=is_message))
    return [text[span.start : span.end] for span in segment.spans]


@pytest.mark.parametrize(("example", "is_only_in_messages"), SYNTAX_EXAMPLES)
def test_a_placeholder_is_copied_whole(example, is_only_in_messages):
    for text in (f"The cat {example} is old.", f"{example} is", f"the {example}", f"({example})"):
        assert copied_texts(text) == [example]
    prose = copied_texts(f"The cat {example} is old.", is_message=False)
    assert (prose == [example]) != is_only_in_messages


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%dx%d pixels, %dMB, %ds", "%d|%d|%d|%d"),
        ("%s%s %ld%s", "%s|%s|%ld|%s"),
        ("Wrote %(n)d to %(dir)s (100%% done)", "%(n)d|%(dir)s|100|%%"),
        ("Disk is %.1f%% full (%'d kB)", "%.1f|%%|%'d"),
        ("10 %@, 10 %(n)s, 10 %-5d, 10 %, 10 %{a}", "10|%@|10|%(n)s|10|%-5d|10 %|10|%{a}"),
        ("100%sure, 50 %off, 5% of", "100|50"),
        ("{ not one }, a { b c }, {note: this}", ""),
        ("http://a.org/{id}/x and {b}", "http://a.org/{id}/x|{b}"),
        ("at 12:30:45, see: that", "12:30:45"),
        ("costs $5.50, ~5 or a ~ b", "5.50"),
        ("[see below] and [a, b], [Optional]", ""),
        ("Part 0%d of 1%s, 50%d'abord", "%d|%s|50"),
        ("#1 of #22, a#3, &#65; ", "#1|#22|&#65;"),
        ("data:image/png;base64,iVB0= is tel:+49-30", "data:image/png;base64,iVB0=|tel:+49-30"),
        ("use `it's` or `x['a']` or ` b '' `", "`it's`|`x['a']`|` b '' `"),
        ("the `{a}' isn't `b_c' of `%r' is", "{a}|%r"),
        ("at 2020-01-01T00:00:00Z in #ff00aa", "2020-01-01T00:00:00Z|#ff00aa"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
        ("commit a1b2c3d4e5 at 192.168.0.1:8080", "a1b2c3d4e5|192.168.0.1:8080"),
    ],
)
def test_neighbors_of_placeholders(text, expected):
    assert copied_texts(text) == (expected.split("|") if expected else [])


@pytest.mark.parametrize("example", CODE_EXAMPLES)
def test_a_name_or_a_value_is_no_text(example):
    assert is_code(example)


@pytest.mark.parametrize("word", WORDS.split())
def test_a_word_is_a_text(word):
    assert not is_code(word)


@pytest.mark.parametrize(
    ("source", "translation", "is_different"),
    [
        ("{a} of {b}", "{b} von {a}", False),
        ("{a} of {b}", "{a} von {a}", True),
        ("{a} is", "{a} ist {a}", True),
        ("{a} is", "{ a} ist", True),
        ("{a} is", "{a} ist {", True),
        ("%s has %d", "%s hat %d", False),
        # Filled by position
        ("%s has %d", "%d hat %s", True),
        ("%1$s has %2$d", "%2$d hat %1$s", False),
        ("%(a)s has %(b)s", "%(b)s hat %(a)s", False),
        ("%s is", "%sist", True),
        ("%d files", "%d % Dateien", True),
        ("~a is ~d", "~d ist ~a", True),
        ("%qD in %<%s%>", "%<%s%> in %qD", True),
        ("%qD in %<a%>", "%<a%> in %qD", False),
        ("%Id of %*.*f", "%d of %*.*f", True),
        (":name is", ":name ist", False),
        (":name is", "Name: name ist", True),
        ("the name", "der Name :so", False),
        ("the name", "der {Name}", True),
        ("{the name}", "der Name", True),
        ("{the name}", "{der Name}", False),
    ],
)
def test_placeholders_have_to_come_back(source, translation, is_different):
    assert placeholders_differ(source, translation, is_message=True) == is_different


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS.split("|"))
def test_searching_takes_time_by_the_length(unit):
    start = time.process_time()
    for pattern in COPIED.values():
        pattern.sub("", unit * 10_000)
        is_code((unit * 250)[:250] + "!")
    # Quadratic time took a minute for some
    assert time.process_time() - start < 5
