"""`tformer score` of classifiers: the log-probability of the label of each text or image."""

import math

import pytest

from tests.commands import output_of, record_of, records_of, run

LINES = ["Two dogs run.", "", "A man sleeps.", "dog " * 60, "the \u2028 end"]
GIVEN = ["good", "", " fair", "no\tgood", "good"]


@pytest.fixture
def files(tmp_path):
    for name, lines in (("texts", LINES), ("labels", GIVEN)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return ["-i", tmp_path / "texts", "--target-file", tmp_path / "labels"]


def test_a_score_a_line_in_every_format(classifier, files):
    done = run("score", classifier, *files, "-q")
    assert done.exit_code == 0, done.stderr
    records = records_of("score", classifier, *files, "-q", "--format", "jsonl")
    options = ("-q", "--format", "jsonl", "--top", 0)
    expected = records_of("classify", classifier, *files[:2], *options)
    for record, other, label in zip(records, expected, GIVEN, strict=True):
        assert (record["index"], record["text"]) == (other["index"], other["text"])
        assert (record["label"], record["predicted"]) == (label.strip(), other["label"])
        assert record.get("truncated") == other.get("truncated")
        if record["text"]:
            share = other["probabilities"][label.strip()]
            assert record["log_probability"] == pytest.approx(math.log(share))
    assert records[1]["log_probability"] is None
    values = [record["log_probability"] for record in records]
    plain = done.stdout.removesuffix("\n").split("\n")
    assert plain == ["" if value is None else f"{value:.6f}" for value in values]
    table = output_of("score", classifier, *files, "-q", "--format", "tsv")
    rows = [row.split("\t") for row in table.removesuffix("\n").split("\n")]
    assert [row[3] for row in rows] == plain
    assert [row[2] for row in rows] == ["good", "", "fair", "no good", "good"]


def test_their_mean_is_the_loss_of_evaluate(classifier, tmp_path):
    texts, labels = tmp_path / "texts", tmp_path / "labels"
    texts.write_text("Two dogs run.\nA man sleeps.\nthe end\n")
    labels.write_text("good\nfair\ngood\n")
    given = ("-i", texts, "--target-file", labels, "-q", "--format", "jsonl")
    values = [one["log_probability"] for one in records_of("score", classifier, *given)]
    evaluated = record_of(
        "evaluate", classifier, "-i", texts, "--reference", labels, "--format", "json", "-q"
    )
    assert evaluated["loss"] == pytest.approx(-sum(values) / 3)
