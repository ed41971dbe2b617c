import json

import pytest

from tformer_cli.decoding.formats import format_lines, read_records
from tformer_cli.decoding.translator import TranslatedText, Translation
from tformer_cli.errors import DataError

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


def test_jsonl_passes_fields_through_but_ours_win():
    given = {"id": "x7", "score": "theirs", "source": "a\tdog"}
    (line,) = format_lines(TRANSLATION, "jsonl", lists_hypotheses=True, passed_through=given)
    record = json.loads(line)
    assert record["id"] == "x7"
    assert (record["index"], record["source"], record["score"]) == (4, "a\tdog", -1.5)
    assert record["translation"] == "ein\tHund ||| da"
    assert [h["translation"] for h in record["hypotheses"]] == ["ein\tHund ||| da", "Hund"]


def test_jsonl_lists_no_hypotheses_unasked():
    assert "hypotheses" not in json.loads(format_lines(TRANSLATION, "jsonl")[0])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"in.jsonl, line 2: is not JSON"),
        ("[1]", r"in.jsonl, line 2: is not a JSON object"),
        ('{"text": "a"}', r'in.jsonl, line 2: has no text under "source"'),
        ('{"source": 3}', r'in.jsonl, line 2: has no text under "source"'),
        ("[" * 100_000, r"in.jsonl, line 2: is not JSON"),
    ],
)
def test_a_line_that_is_no_record_is_named(line, message):
    with pytest.raises(DataError, match=message):
        list(read_records(['{"source": "a"}', line], "in.jsonl"))
