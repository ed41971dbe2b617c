"""`tformer score` of classifiers: the log-probability of the label of each text or image."""

import math

import pytest

from tests.commands import output_of, record_of, records_of, refused, run

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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"-i": "texts"},
            "--target-file: is missing; MODEL is a classifier, so name the file of the labels",
        ),
        (
            {"--target-file": "labels"},
            "--source: is missing; MODEL is a classifier, so name the file of the texts",
        ),
        ({"-i": "texts", "--n-best-file": "labels"}, "--n-best-file: MODEL is a classifier; omit"),
        ({"-i": "texts", "--length-penalty": "1"}, "--length-penalty: MODEL is a classifier; omit"),
        ({"-i": "texts", "--images": "."}, "--images: the input is named already"),
        ({"--images": "."}, "--images: MODEL reads texts; omit it"),
        (
            {"-i": "texts", "--target-file": "wrong"},
            '3 of texts and labels: "bad" is none of the labels of ',
        ),
        ({"-i": "texts", "--target-file": "short"}, "--target-file: has no line 3"),
    ],
)
def test_bad_input_is_one_line_and_status_two(
    classifier, files, options, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong").write_text("good\n\nbad\ngood\ngood\n")
    (tmp_path / "short").write_text("good\n\n")
    given = [part for pair in options.items() for part in pair]
    refused("score", classifier, *given, "-o", "result", "-q", says=message)
    assert not (tmp_path / "result").exists()


def test_other_models_say_what_is_missing(model, language_model):
    for path, what in ((model, "the sources"), (language_model, "the texts")):
        refused("score", path, says=f"--source: is missing; name the file of {what}")
