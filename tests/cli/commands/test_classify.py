"""`tformer classify`, and `evaluate` of a classifier: streams, formats, refusals."""

import re

import pytest
import torch

from tests.commands import output_of, record_of, records_of, run
from tests.models import LINES, save_random
from tformer_cli.evaluate.evaluate import LabelEvaluation
from tformer_cli.metrics.labels import score_labels

LABELS = ("fair", "good", "no\tgood")


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(
        b"A man sleeps.\n\n  \nTwo d\xffgs run.\r\n" + b"word " * 60 + b"\nthe \xe2\x80\xa8 end\n"
    )
    return path


def test_the_formats_agree(classifier, texts):
    done = run("classify", classifier, "-i", texts, "-q")
    labels = done.stdout.removesuffix("\n").split("\n")
    known = {label.replace("\t", " ") for label in LABELS}
    assert {label for label in labels if label} <= known
    records = records_of("classify", classifier, "-i", texts, "-q", "--format", "jsonl", "--top", 0)
    assert [(one["label"] or "").replace("\t", " ") for one in records] == labels
    for one in records:
        if one["label"] is None:
            assert (one["probability"], one["probabilities"]) == (None, {})
            continue
        shares = list(one["probabilities"].values())
        assert set(one["probabilities"]) == set(LABELS)
        assert shares == sorted(shares, reverse=True)
        assert one["probability"] == shares[0]
        assert sum(shares) == pytest.approx(1.0)
    table = output_of("classify", classifier, "-i", texts, "-q", "--format", "tsv", "--top", 2)
    cells = [line.split("\t") for line in table.removesuffix("\n").split("\n")]
    assert [len(row) for row in cells] == [6, 4, 4, 6, 6, 6]
    assert cells[0][2] == labels[0]
    assert float(cells[0][3]) == pytest.approx(records[0]["probability"], abs=1e-6)


def test_what_a_model_does_not_know_is_told(tmp_path):
    """A label of a text whose words the model has never seen must not come without a word."""
    save_random(
        tmp_path / "words", LINES, algorithm="word", vocab_size=100, info={"labels": LABELS},
        n_decoder_layers=0, n_labels=3,
    )  # fmt: skip
    done = run("classify", tmp_path / "words", LINES[0], "", "-q")
    assert (done.exit_code, done.stderr) == (0, "")
    done = run("classify", tmp_path / "words", f"{LINES[0]} xyzzy", "", "plugh", "-q")
    assert done.exit_code == 0
    assert done.stdout.count("\n") == 3
    assert done.stderr == (
        "warning: 2 words or characters that the model does not know; it read <unk> there\n"
    )


def test_labels_are_evaluated(classifier, tmp_path):
    texts, right, given = (tmp_path / name for name in ("a.txt", "a.label", "given.txt"))
    texts.write_text("".join(f"{line}\n" for line in LINES * 2))
    predicted = output_of("classify", classifier, "-i", texts, "-q").replace("no good", "no\tgood")
    predicted = predicted.removesuffix("\n").split("\n")
    others = [next(label for label in LABELS if label != one) for one in predicted]
    right.write_text("".join(f"{one}\n" for one in (*predicted[:6], *others[6:])))
    arguments = ["evaluate", classifier, "-i", texts, "--reference", right, "-q"]
    record = record_of(*arguments, "--format", "json", "-o", given)
    assert given.read_text().removesuffix("\n").split("\n") == predicted
    assert record["accuracy"] == 75.0
    assert sum(map(sum, record["confusion"])) == record["lines"] == 8
    shown = output_of(*arguments)
    assert shown.split()[:2] == ["accuracy", "75.00"]
    assert f"{record['macro_f1']:.2f}" in shown
    assert "confusion matrix" in shown


def test_a_confusion_matrix_fits_a_narrow_terminal():
    names = [f"a long label {n:02}" for n in range(12)]
    right = [name for n, name in enumerate(names) for _ in range(n + 1)]
    scores = score_labels([names[0], *right[1:]], right, names)
    result = LabelEvaluation(scores=scores, loss=1.0, predicted=(), right=())
    lines = list(result.lines(60))
    assert max(map(len, lines)) <= 60
    matrix = lines[next(n for n, line in enumerate(lines) if "confusion" in line) + 1 :]
    parts = "\n".join(matrix).split("\n\n")
    shown = [[int(cell) for cell in row[15:].split()] for row in parts[-1].splitlines()[1:]]
    assert shown == [list(row[-len(shown[0]) :]) for row in scores.confusion]
    heads = [part.splitlines()[0] for part in parts]
    assert [name for head in heads for name in re.findall(r"a long label \d\d", head)] == names


def test_the_classifier_in_torch_gives_the_same_probabilities(classifier):
    from tformer_cli.artifacts.model_directory import load_model_directory

    directory = load_model_directory(classifier, tasks=("classify",))
    ids = torch.tensor([[*directory.tokenizer.source.encode("A man sleeps."), 3]])
    expected = directory.classifier(ids, torch.ones_like(ids, dtype=torch.bool)).softmax(1)[0]
    options = ("-q", "--format", "jsonl", "--top", 0)
    found = record_of("classify", classifier, "A man sleeps.", *options)["probabilities"]
    for label, probability in zip(LABELS, expected.tolist(), strict=True):
        assert found[label] == pytest.approx(probability, abs=1e-6)


def test_info_says_what_the_labels_are(classifier):
    shown = " ".join(output_of("info", classifier).split())
    assert "Labels 3: fair, good, no" in shown
    assert "longer ones are cut off" in shown
    assert "Decoding" not in shown
    assert record_of("info", classifier, "--format", "json")["labels"] == list(LABELS)
