from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.documents.marked import marked, segment_of
from tformer_cli.documents.projection import Link, project, with_all_copied, words_of
from tformer_cli.documents.segments import Span, rendered, with_copied


def placed(source, target, pairs=()):
    """Projects the markup of a source by links of words, from 0, and writes the translation."""
    segment = segment_of(source)
    ours, theirs = words_of(segment.text), words_of(target)
    links = [Link(theirs[t], ours[s]) for s, t in pairs]
    projected = project(segment, target, links, {})
    return rendered(replace(segment, text=target, spans=projected.spans))


@pytest.mark.parametrize(
    ("source", "target", "pairs", "expected"),
    [
        # Adjectives move behind the noun
        ("a <a>red</a> car", "une auto rouge", ((0, 0), (1, 2), (2, 1)), "une auto <a>rouge</a>"),
        # A link is one run: small gaps are closed; bold text may be split
        ("<a>not</a> eat", "ne mange pas", ((0, 0), (1, 1), (0, 2)), "<a>ne mange pas</a>"),
        ("<b>not</b> eat", "ne mange pas", ((0, 0), (1, 1), (0, 2)), "<b>ne</b> mange <b>pas</b>"),
        # Words without a word of their own belong to what stands on both sides
        ("a <b>big cat</b> ran", "un chat de X", ((0, 0), (2, 1), (1, 3)), "un <b>chat de X</b>"),
        # The largest run
        ("<a>x y z</a> w", "X w w w Y Z", ((0, 0), (3, 1), (3, 2), (3, 3), (1, 4), (2, 5)),
         "X w w w <a>Y Z</a>"),
        # Marks stay outside if they were
        ("<a>one</a>, two.", "uno, due.", ((0, 0), (0, 1), (2, 2), (3, 3)), "<a>uno</a>, due."),
        ("<a>one,</a> two.", "uno, due.", ((0, 0), (1, 1), (2, 2), (3, 3)), "<a>uno,</a> due."),
        # Around everything
        ("<b><a>all of it</a></b>", "tout", (), "<b><a>tout</a></b>"),
        # Nested
        ("see <a>the <b>old</b> house</a> now", "vois la maison vieille ici",
         ((0, 0), (1, 1), (3, 2), (2, 3), (4, 4)), "vois <a>la maison <b>vieille</b></a> ici"),
        # Nothing aligned: the word between the neighbors
        ("he saw <a>it</a> there", "vu cela là", ((1, 0), (3, 2)), "vu <a>cela</a> là"),
        ("he saw <a>it</a> there", "vu là", ((1, 0), (3, 1)), "vu <a>là</a>"),
        # Without any word left it is empty, but there
        ("<a>he</a> <a>saw</a>", "vu", ((1, 0),), "<a></a><a>vu</a>"),
        # What has no text goes before what it stood before, or stays at the word before it
        ("a <v/>red car", "voiture rouge", ((2, 0), (1, 1)), "voiture <v/>rouge"),
        ("red cars<v/> run", "voitures rouges courent", ((0, 1), (1, 0), (2, 2)),
         "voitures<v/> rouges courent"),
        ("<v/>red cars<v/>", "voitures rouges", ((0, 1), (1, 0)), "<v/>voitures rouges<v/>"),
        ("a <b>b<v/></b> c", "x y z", ((0, 0), (1, 1), (2, 2)), "x <b>y<v/></b> z"),
        ("<a></a>red car", "voiture rouge", ((0, 1), (1, 0)), "<a></a>voiture rouge"),
        # A word that is the same on both sides is cut where it was; without a link, too
        ("the <b>Wiki</b>pedia page", "la page Wikipedia", ((1, 2),), "la page <b>Wiki</b>pedia"),
        # No spaces
        ("<a>red</a> car", "红色汽车", ((0, 0), (0, 1), (1, 2), (1, 3)), "<a>红色</a>汽车"),
        ("<a>I</a> am", "l'est", ((0, 0), (1, 1)), "<a>l'</a>est"),
    ],
)  # fmt: skip
def test_spans_go_around_the_words_of_theirs(source, target, pairs, expected):
    assert placed(source, target, pairs) == expected


def test_what_is_not_aligned_is_counted():
    segment = segment_of("he <a>saw</a> it")
    assert project(segment, "vu", [], {}).n_guessed == 1
    assert project(segment, "vu", [Link((0, 2), (3, 6))], {}).n_guessed == 0


def test_copied_words_are_where_they_were_found():
    segment = segment_of("see <b>file <p>x y</p> now</b>")
    links = [Link((0, 3), (0, 3)), Link((4, 8), (4, 8))]
    projected = project(segment, "vois x y ici le fichier", links, {1: (5, 8)})
    assert [(s.start, s.end) for s in projected.spans if s.behavior == "protected"] == [(5, 8)]


RANGES = st.tuples(st.integers(0, 40), st.integers(1, 8)).map(lambda pair: (pair[0], sum(pair)))


def is_nested(spans, size):
    """Returns whether spans are in order, within the text, and each within those around it."""
    around, place = [], 0
    for span in spans:
        if span.depth > len(around) or not place <= span.start <= span.end <= size:
            return False
        del around[span.depth :]
        if around and span.end > around[-1].end:
            return False
        place = span.start if span.behavior in ("once", "repeat") else span.end
        around.append(span)
    # What stands beside another begins behind it
    ends = {}
    for span in spans:
        if span.start < ends.get(span.depth, 0):
            return False
        ends = {d: end for d, end in ends.items() if d <= span.depth} | {span.depth: span.end}
    return True


@given(marked(), st.text("ab ,.c1", max_size=30), st.lists(st.tuples(RANGES, RANGES), max_size=12))
@settings(max_examples=200)
def test_no_span_is_lost_or_crosses_another(segment, target, links):
    target = target.strip()
    fixed = {}
    projected = project(segment, target, [Link(*link) for link in links], fixed).spans
    assert is_nested(projected, len(target))
    ours, theirs = Counter(s.opening for s in segment.spans), Counter(s.opening for s in projected)
    splits = {s.opening for s in segment.spans if s.behavior == "repeat"}
    assert set(ours) == set(theirs)
    assert all(theirs[own] == n for own, n in ours.items() if own not in splits)
    assert all(theirs[own] >= n for own, n in ours.items())
    words = {place for word in words_of(target) for place in word} | {0, len(target)}
    cut = {place for span in segment.spans for place in (span.start, span.end)}
    # No word is cut but those that were
    assert len(cut) > 0 or all({s.start, s.end} <= words for s in projected)
    shown = rendered(replace(segment, text=target, spans=projected))
    plain = shown
    for span in projected:
        plain = plain.replace(span.opening, "", 1).replace(span.closing, "", 1)
    assert plain == target


@given(marked())
def test_the_same_text_has_the_same_spans(segment):
    words = words_of(segment.text, sorted({p for s in segment.spans for p in (s.start, s.end)}))
    projected = project(segment, segment.text, [Link(word, word) for word in words], {}).spans

    # Of what has no text, or only blanks, only the place is free
    def filled(spans):
        return [(s.start, s.end, s.opening) for s in spans if segment.text[s.start : s.end].strip()]

    def trimmed(span):
        inner = segment.text[span.start : span.end]
        start = span.start + len(inner) - len(inner.lstrip())
        return replace(span, start=start, end=start + len(inner.strip()))

    assert filled(projected) == filled(map(trimmed, segment.spans))


@given(marked(copies=True), st.data())
def test_copied_spans_stay_whole(segment, data):
    kept = [n for n, s in enumerate(segment.spans) if s.behavior == "protected"]
    words = [segment.text[segment.spans[n].start : segment.spans[n].end] for n in kept]
    target, fixed = "a", {}
    for n, word in data.draw(st.permutations(list(zip(kept, words, strict=True)))):
        target += " "
        fixed[n] = (len(target), len(target) + len(word))
        target += word + data.draw(st.sampled_from([" b", "", " c d"]))
    links = data.draw(st.lists(st.tuples(RANGES, RANGES), max_size=8))
    projected = project(segment, target, [Link(*link) for link in links], fixed).spans
    assert is_nested(projected, len(target))
    spots = {s.opening: (s.start, s.end) for s in projected if s.behavior == "protected"}
    assert spots == {segment.spans[n].opening: place for n, place in fixed.items()}


@given(marked())
def test_copied_spans_are_added_at_once_as_one_by_one(segment):
    edges = {place for span in segment.spans for place in (span.start, span.end)}
    places = [
        span
        for span in words_of(segment.text)
        if not any(span[0] < place < span[1] for place in edges)
    ]
    copied = [Span(*place, "protected") for place in places]
    expected = segment.spans
    for span in copied:
        expected = with_copied(expected, span)
    assert with_all_copied(segment.spans, copied) == list(expected)


def test_a_span_says_where_it_is():
    assert segment_of("a <b>c</b>").spans == (Span(2, 3, "repeat", "<b>", "</b>"),)
