from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.documents.marked import marked, segment_of
from tformer_cli.documents.projection import Link, project, words_of
from tformer_cli.documents.protect import protected, restored
from tformer_cli.documents.segments import Segment


def copied(text):
    segment = protected(Segment(text))
    return [text[span.start : span.end] for span in segment.spans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See https://example.org/a?b=1.", "https://example.org/a?b=1"),
        ("See www.example.org.", "www.example.org"),
        ("(http://a.org/x)", "http://a.org/x"),
        ("Mail a.b+c@example.co.uk.", "a.b+c@example.co.uk"),
        ("Hi {name}, {0}, {{x.y}}, ${H}, $H and %(n)d", "{name}|{0}|{{x.y}}|${H}|$H|%(n)d"),
        ("%s of %d, %1$s, %5.2f, %1, 100% of", "%s|%d|%1$s|%5.2f|%1|100%"),
        ("50 % sure, 100%sure", "50 %|100"),
        ("5 % (all), 15 %(n)s, 15 %.2f, 15 %d", "15|%(n)s|15|%.2f|15|%d"),
        ("{% if a %}b{% endif %}", "{% if a %}|{% endif %}"),
        ("{ not one } {}", "{}"),
        ("run `ls -l` in /usr/bin and --all", "`ls -l`|/usr/bin|--all"),
        ("and/or a/b", ""),
        ("C:\\Temp\\a.txt is", "C:\\Temp\\a.txt"),
        ("version 1.2.3, 12 km, 5 km, 1,000.5, 10:30", "1.2.3|12 km|1,000.5|10:30"),
        ("in 1990 the 20th, 1990s, at 10 p.m., 7", "1990"),
        ("I ❤️ you 👩‍👩‍👧 → 😀😀", "❤️|👩‍👩‍👧|→|😀😀"),
        ("@anna #tag a@b", "@anna|#tag"),
        ("Nothing here. It's fine - really; (yes)!", ""),
    ],
)  # fmt: skip
def test_what_is_copied(text, expected):
    assert copied(text) == (expected.split("|") if expected else [])


def test_markup_and_what_is_copied_go_together():
    segment = protected(segment_of("a <b>x {n}</b> <p>http://a.org</p> http<i>://b.org</i>"))
    spans = [(s.opening, s.depth, segment.text[s.start : s.end]) for s in segment.spans]
    # What markup cuts is not one text; what is copied already stays so
    assert spans == [
        ("<b>", 0, "x {n}"),
        ("", 1, "{n}"),
        ("<p>http://a.org</p>", 0, "http://a.org"),
        ("<i>", 0, "://b.org"),
    ]


def put(source, target, pairs=()):
    segment = protected(Segment(source))
    whole = [(s.start, s.end) for s in segment.spans]
    ours, theirs = words_of(source, (), whole), words_of(target)
    result = restored(segment, target, [Link(theirs[t], ours[s]) for s, t in pairs])
    for n, (start, end) in result.fixed.items():
        span = segment.spans[n]
        assert result.text[start:end] == source[span.start : span.end] or "1" in source
    return result.text


@pytest.mark.parametrize(
    ("source", "target", "pairs", "expected"),
    [
        # There, in any order
        ("Hi {a} and {b}", "Salut {b} et {a}", (), "Salut {b} et {a}"),
        # In the place of what was written for it
        ("Hi {name} there", "Salut nom là", ((0, 0), (1, 1), (2, 2)), "Salut {name} là"),
        ("to a@b.org now", "à a - b - org ici", ((0, 0), *((1, n) for n in range(1, 6)), (2, 6)),
         "à a@b.org ici"),
        # Of two, the one that is missing
        ("{a} or {a}", "{a} ou b", ((1, 3), (2, 4)), "{a} ou {a}"),
        # What was written on both sides of another does not take that with it
        ("{a} or {c}", "u {a} v", ((2, 0), (2, 4)), "{c} {a} v"),
        # Between its neighbors, with the blanks that the text has
        ("I {x} you", "je te", ((0, 0), (2, 1)), "je {x} te"),
        ("I love you 😀", "je t'aime", ((0, 0), (1, 2), (2, 1)), "je t'aime 😀"),
        ("😀 hello", "salut", ((1, 0),), "😀 salut"),
        ("(%s) hello", "() salut", (), "(%s) salut"),
        # A word stays apart, though a mark stood there
        ("the games {x}.", "les jeux olympiques.", ((0, 0), (1, 1), (3, 2)),
         "les jeux {x} olympiques."),
        ("say '{x}'", "dis", ((0, 0),), "dis {x}"),
        # Two in one place stand as far apart as they did
        ("go {y} {x}", "va z", ((0, 0), (2, 1)), "va {y} {x}"),
        ("go {y}{x}", "va z", ((0, 0), (2, 1)), "va {y}{x}"),
        ("at https://a.b/ now", "à https://a.b/ici",
         ((0, 0), *((1, n) for n in range(1, 9)), (2, 9)), "à https://a.b/ ici"),
        # Numbers may be written otherwise
        ("it has 1,000.50 now", "il a 1 000,50 ici", (), "il a 1 000,50 ici"),
        ("has 1,000.50 now", "a 1.000.50 ici", [(1, n) for n in range(1, 6)], "a 1,000.50 ici"),
        ("it has 1,000 now", "il a mille ici", ((0, 0), (1, 1), (2, 2), (3, 3)), "il a 1,000 ici"),
        # A part of another is not it
        ("in 1990", "en 19901", ((0, 0), (1, 1)), "en 1990"),
        ("nothing", "rien", (), "rien"),
        ("{a}", "", (), "{a}"),
    ],
)  # fmt: skip
def test_what_is_missing_is_put_into_its_place(source, target, pairs, expected):
    assert put(source, target, pairs) == expected


@pytest.mark.parametrize(
    ("source", "target", "pairs", "expected"),
    [
        # A word that is written as code is, too
        ("an <p>a</p> is a", "a ist a", ((1, 0), (2, 1), (3, 2)), "[a] ist a"),
        ("a is <p>a</p>", "a ist a", ((0, 0), (1, 1), (2, 2)), "a ist [a]"),
        ("a is <p>a</p>", "a ist a", ((0, 2), (1, 1), (2, 0)), "[a] ist a"),
        ("a is <p>a</p>", "a ist a", (), "[a] ist a"),
        ("a <p>a</p> <p>a</p>", "a a a", ((0, 0), (1, 1), (2, 2)), "a [a] [a]"),
    ],
)
def test_a_word_is_not_taken_for_what_is_copied(source, target, pairs, expected):
    segment = segment_of(source)
    ours, theirs = words_of(segment.text), words_of(target)
    result = restored(segment, target, [Link(theirs[t], ours[s]) for s, t in pairs])
    text = result.text
    for start, end in sorted(result.fixed.values(), reverse=True):
        text = f"{text[:start]}[{text[start:end]}]{text[end:]}"
    assert text == expected


RANGES = st.tuples(st.integers(0, 40), st.integers(1, 8)).map(lambda pair: (pair[0], sum(pair)))


@given(marked(copies=True), st.text("ab {x1}", max_size=30), st.lists(st.tuples(RANGES, RANGES)))
def test_nothing_that_is_copied_is_lost(segment, target, links):
    target = target.strip()
    links = [Link(*link) for link in links if link[0][1] <= len(target)]
    result = restored(segment, target, links)
    for n, (start, end) in result.fixed.items():
        span = segment.spans[n]
        assert result.text[start:end] == segment.text[span.start : span.end]
    assert len(result.fixed) == sum(s.behavior == "protected" for s in segment.spans)
    places = sorted(result.fixed.values())
    assert all(a[1] <= b[0] for a, b in pairwise(places))
    # Markup finds its place around it
    projected = project(segment, result.text, result.links, result.fixed)
    assert len(projected.spans) >= len(segment.spans)
