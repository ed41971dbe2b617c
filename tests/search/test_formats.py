import json
from dataclasses import replace

import pytest

from tformer_cli.errors import DataError
from tformer_cli.search.formats import (
    OUR_FIELDS,
    Details,
    flags_of,
    format_lines,
    own_fields,
    read_records,
    repeats,
)
from tformer_cli.search.translator import Doubt, TranslatedText, Translation

BEST = TranslatedText("ein\tHund ||| da", -2.0, -1.5, (7, 8), is_finished=True)
SECOND = TranslatedText("Hund", -3.0, -2.5, (8,), is_finished=True)
TRANSLATION = Translation(4, "a\tdog", (BEST, SECOND), (5, 6), 1, is_truncated=False)


def test_text_is_the_best_translation():
    assert format_lines(TRANSLATION, "text") == ["ein\tHund ||| da"]


def test_tsv_has_four_columns_a_hypothesis():
    assert format_lines(TRANSLATION, "tsv") == [
        "4\ta dog\tein Hund ||| da\t-1.500000",
        "4\ta dog\tHund\t-2.500000",
    ]


def test_moses_lists_hypotheses():
    assert format_lines(TRANSLATION, "moses") == [
        "4 ||| ein\tHund | | | da ||| LogProbability= -2.000000 Length= 2 ||| -1.500000",
        "4 ||| Hund ||| LogProbability= -3.000000 Length= 1 ||| -2.500000",
    ]


def test_jsonl_passes_fields_through_and_keeps_those_with_names_of_ours_apart():
    given = {"id": "x7", "score": "theirs", "parts": None, "source": "a\tdog"}
    (line,) = format_lines(
        TRANSLATION, "jsonl", lists_hypotheses=True, passed_through=own_fields(given)
    )
    record = json.loads(line)
    assert record["id"] == "x7"
    assert record["input_fields"] == {"score": "theirs", "parts": None}
    assert "parts" not in record
    assert (record["index"], record["source"], record["score"]) == (4, "a\tdog", -1.5)
    assert record["translation"] == "ein\tHund ||| da"
    assert [h["translation"] for h in record["hypotheses"]] == ["ein\tHund ||| da", "Hund"]


def test_no_name_of_a_result_is_free_for_fields_of_an_input():
    doubt = Doubt(0.7, (0.7,), (("ein", 0.1),))
    every = replace(
        TRANSLATION, hypotheses=(replace(BEST, doubt=doubt),), n_parts=2, unsatisfied=("x",),
        is_truncated=True,
    )  # fmt: skip
    (line,) = format_lines(
        every, "jsonl", lists_hypotheses=True, details=Details(token_scores=True, flags=True),
        alignments=["0-0"],
    )  # fmt: skip
    assert {*json.loads(line), "input_fields"} == {*OUR_FIELDS, "source"}
    # even of an input that was an output: nothing is lost, whatever is asked for
    again = own_fields(json.loads(line))
    assert {**again["input_fields"], "source": every.source} == json.loads(line)
    assert own_fields(again)["input_fields"] == {"input_fields": again["input_fields"]}


def test_half_a_surrogate_pair_passes_through_as_it_was():
    line = r'{"source": "a \ud83d", "\udc00": ["\ud83d", "\ud83d\ude00"], "é": 1}'
    (record,) = read_records([line], "in.jsonl")
    (written,) = format_lines(TRANSLATION, "jsonl", passed_through=own_fields(record))
    written.encode()
    assert {name: json.loads(written)[name] for name in record} | {"source": 0} == {
        **json.loads(line),
        "source": 0,
    }
    assert "\U0001f600" in written


def test_jsonl_lists_no_hypotheses_unasked():
    assert "hypotheses" not in json.loads(format_lines(TRANSLATION, "jsonl")[0])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"in.jsonl, line 2: is not JSON"),
        ("[1]", r"in.jsonl, line 2: is not a JSON object"),
        ('{"text": "a"}', r'in.jsonl, line 2: has no text under "source"'),
        ('{"source": 3}', r'in.jsonl, line 2: "source" is 3, not text'),
        ('{"source": null}', r'in.jsonl, line 2: "source" is null, not text'),
        ("[" * 100_000, r"in.jsonl, line 2: is not JSON"),
        ('{"source": "a", "t": [1e400]}', r"line 2: .* \(1e400 is not a finite number\); correct"),
        ('{"source": "a", "t": NaN}', r"line 2: .* \(NaN is not a finite number\); correct"),
        ('{"source": "a", "t": {"x": 1, "x": 2}}', r'line 2: .* has the key "x" twice\); correct'),
    ],
)
def test_a_line_that_is_no_record_is_named(line, message):
    with pytest.raises(DataError, match=message):
        list(read_records(['{"source": "a"}', line], "in.jsonl"))


def hypothesis(tokens, mean=-0.5, is_finished=True):
    steps = (mean,) * (len(tokens) + 1)
    return TranslatedText(
        "", sum(steps), 0.0, tuple(tokens), is_finished, token_log_probabilities=steps
    )


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([7] * 8, True), ([7] * 7, False), ([1, 2] * 4, True), ([1, 2] * 3 + [1], False),
        ([9, *[1, 2, 3] * 4], True), ([1, 2, 3] * 3, False), (range(50), False),
        ([*range(9)] * 6, False), ([], False),
    ],
)  # fmt: skip
def test_a_run_repeated_four_times_is_noticed(tokens, expected):
    assert repeats(list(tokens)) is expected


@pytest.mark.parametrize(
    ("candidate", "source", "flags"),
    [
        (hypothesis([5, 6, 7]), [1, 2, 3], []),
        (hypothesis([5, 6], is_finished=False), [1, 2, 3], ["unfinished"]),
        (hypothesis([5] * 9), [1, 2, 3], ["repetition"]),
        (hypothesis([5] * 9), [4] * 9, []),
        (hypothesis(range(18)), [1, 2, 3], ["length"]),
        (hypothesis([5]), range(6), ["length"]),
        (hypothesis([5, 6, 7], mean=-2.6), [1, 2, 3], ["improbable"]),
    ],
)
def test_every_sign_has_its_flag(candidate, source, flags):
    assert flags_of(candidate, translate(candidate, source)) == flags


def translate(candidate, source_ids, source="", unseen=()):
    return Translation(0, source, (candidate,), tuple(source_ids), 1, False, unseen=unseen)


@pytest.mark.parametrize(
    ("text", "n_tokens", "is_flagged"),
    [
        ("Une. Deux. Trois. Quatre.", 9, False),  # as many sentences, however short
        ("Une.", 12, True),
        ("Une.", 13, False),  # joined, not dropped: the limit is (4 + 1) / (2 · 4) of 20 tokens
        ("Une. Deux. Trois.", 17, True),
        ("", 0, True),
    ],
)
def test_a_dropped_sentence_is_flagged(text, n_tokens, is_flagged):
    found = replace(hypothesis(range(n_tokens)), text=text)
    flags = flags_of(found, translate(found, range(20), "One. Two. Three. Four."))
    assert ("dropped" in flags) is is_flagged


def test_unseen_words_are_flagged():
    found = hypothesis([5, 6, 7])
    assert flags_of(found, translate(found, [1, 2, 3], "Hello", ("Hello",))) == ["unseen"]
