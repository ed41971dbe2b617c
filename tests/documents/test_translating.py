import re
from time import process_time

import pytest

from tests.documents.marked import segment_of
from tformer_cli.documents.projection import Link, words_of
from tformer_cli.documents.segments import Segment, rendered
from tformer_cli.documents.translating import Answer, may_have_text, translating


def upper(text, *, is_linked=True):
    links = [Link(word, word) for word in words_of(text)] if is_linked else None
    return Answer(text.upper(), links)


def translated(segments, answer=upper, *, protects=True):
    job = translating(segments, protects=protects)
    requests, batches = next(job), []
    while True:
        batches.append(requests)
        try:
            requests = job.send([answer(request.text) for request in requests])
        except StopIteration as end:
            return end.value, batches


def shown(result):
    return [None if segment is None else rendered(segment) for segment in result.segments]


def test_equal_lines_are_asked_once_and_marks_never():
    texts = [
        "one",
        "two <b>three</b>",
        "one",
        "0 0 * 5 * 12:30 😀",
        "{x}",
        "one\n\n  two <b>three</b>!",
    ]
    result, batches = translated([segment_of(text) for text in texts])
    assert [[request.text for request in batch] for batch in batches] == [
        ["one", "two three", "two three!"]
    ]
    # Only lines with markup inside need links
    assert [request.needs_links for request in batches[0]] == [True, True, True]
    assert shown(result) == [
        "ONE",
        "TWO <b>THREE</b>",
        "ONE",
        None,
        None,
        "ONE\n\n  TWO <b>THREE</b>!",
    ]
    assert result.summary.as_json() == {
        "schema": "tformer.document/1",
        "segments": 6,
        "translated": 4,
        "kept": 2,
        "left": {"no words": 2},
        "skipped": {},
        "spans": {"placed": 2, "guessed": 0},
        "protected": {"copied": 0, "restored": 0},
        "doubtful": [],
    }


def test_what_is_not_translated_is_counted_by_reason():
    summary = translated([segment_of(text) for text in ("one", "two", "12")])[0].summary
    assert not summary.warning(), "no words need no translation"
    summary.n_translated, summary.kept["placeholders"] = 1, 1
    summary.skipped.update({"table cell": 2})
    assert summary.counts() == {
        "segments": 3,
        "translated": 1,
        "kept": 2,
        "left": {"no words": 1, "placeholders": 1},
        "skipped": {"table cell": 2},
    }
    assert summary.warning() == (
        "3 parts of its text left as in the source: table cell (2), placeholders (1)"
    )


@pytest.mark.parametrize(
    ("data", "skipped", "warning"),
    [
        (b"", {}, ""),
        (b"<img>\n<br/>", {}, ""),
        (b"[]", {}, ""),
        (b"<p>text", {}, "no text to translate was found, and it is written as it was"),
        ("é".encode(), {"embedded document": 1},
         "no text to translate was found, and it is written as it was: embedded document (1)"),
    ],
)  # fmt: skip
def test_a_document_with_text_but_no_segment_is_a_warning(data, skipped, warning):
    result, _ = translated([])
    result.summary.skipped.update(skipped)
    assert result.summary.warning(has_text=may_have_text(data)) == warning
    # Segments without words need no warning
    assert not translated([Segment("12")])[0].summary.warning()


def test_markup_around_everything_needs_no_links():
    _, batches = translated([segment_of("<b>one</b>")])
    assert [request.needs_links for request in batches[0]] == [False]


def test_doubtful_segments_are_listed():
    def answer(text):
        return Answer("X " + text.replace("{a}", "B"), [], ("dropped",))

    result, _ = translated([Segment("go {a}", context="p"), segment_of("a <b>b</b> c")], answer)
    assert shown(result)[0] == "X go B {a}"
    assert [(row["segment"], row["reasons"]) for row in result.summary.doubtful] == [
        (0, ["dropped", "restored"]),
        (1, ["dropped", "guessed"]),
    ]
    assert result.summary.doubtful[0]["context"] == "p"
    assert result.summary.doubtful[0]["source"] == "go {a}"


def test_without_links_what_stands_between_markup_is_translated_by_itself():
    texts = ["the <b>old</b> house", "a <v/>b, <p>c</p> {d} e", "plain"]
    result, batches = translated(
        [segment_of(text) for text in texts], lambda text: upper(text, is_linked=False)
    )
    assert [[request.text for request in batch] for batch in batches] == [
        ["the old house", "a b, c {d} e", "plain"],
        ["the", "old", "house", "a", "b,", "e"],
    ]
    assert shown(result) == ["THE <b>OLD</b> HOUSE", "A <v/>B, <p>c</p> {d} E", "PLAIN"]


def test_nothing_is_protected_unless_it_is_asked():
    assert shown(translated([Segment("go {a}")], protects=False)[0]) == ["GO {A}"]
    assert shown(translated([Segment("go {a}")])[0]) == ["GO {a}"]
    assert shown(translated([])[0]) == []


@pytest.mark.parametrize("is_copied", [True, False])
def test_a_long_line_takes_time_by_its_length(is_copied):
    n_numbers = 2000
    line = " ".join(f"The <b>cat</b><v/> is {n}." for n in range(10, 10 + n_numbers))
    start = process_time()
    result, _ = translated(
        [segment_of(line)], lambda text: upper(text if is_copied else re.sub(r"\d", "z", text))
    )
    # By the square of its length it was minutes
    assert process_time() - start < 15
    assert result.summary.n_restored == (0 if is_copied else n_numbers)
    assert shown(result) == [re.sub("<B>|</B>|<V/>", lambda tag: tag[0].lower(), line.upper())]


def test_requests_say_what_is_copied_in_each_line():
    job = translating([segment_of("<b>a</b> {x}\n  c {y} d\n\n{z}")], protects=True)
    requests = next(job)
    assert [(request.text, request.needs_links, request.copied) for request in requests] == [
        ("a {x}", True, ((2, 5),)),
        ("c {y} d", True, ((2, 5),)),
        ("{z}", True, ((0, 3),)),
    ]
    # Nothing can be aligned: what stands between is asked for, and was counted before
    pieces = job.send([Answer(request.text) for request in requests])
    assert [(piece.text, piece.is_piece) for piece in pieces] == [
        ("a", True),
        ("c", True),
        ("d", True),
    ]
