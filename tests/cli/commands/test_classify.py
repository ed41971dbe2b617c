"""`tformer classify`, and `evaluate` of a classifier: streams, formats, refusals."""

import json
import re

import pytest
import torch
from typer.testing import CliRunner

from tests.conftest import LINES
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import save_model_directory
from tformer_cli.cli.app import app
from tformer_cli.evaluate.evaluate import LabelEvaluation
from tformer_cli.metrics.labels import score_labels
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

LABELS = ("fair", "good", "no\tgood")


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, [str(part) for part in arguments], input=stdin)


def output_of(*arguments, stdin=None):
    done = run(*arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(
        b"A man sleeps.\n\n  \nTwo d\xffgs run.\r\n" + b"word " * 60 + b"\nthe \xe2\x80\xa8 end\n"
    )
    return path


def test_a_line_for_each_line_in_every_format(classifier, texts, tmp_path):
    done = run("classify", classifier, "-i", texts, "-q")
    assert done.exit_code == 0, done.stderr
    labels = done.stdout.removesuffix("\n").split("\n")
    assert len(labels) == 6
    assert labels[1] == labels[2] == ""
    known = {label.replace("\t", " ") for label in LABELS}
    assert {label for label in labels if label} <= known
    assert "1 line with bytes that are not UTF-8" in done.stderr
    assert "1 line longer than the model takes; truncated" in done.stderr
    rows = output_of("classify", classifier, "-i", texts, "-q", "--format", "jsonl", "--top", 0)
    records = [json.loads(line) for line in rows.removesuffix("\n").split("\n")]
    assert [one["index"] for one in records] == list(range(6))
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
    assert records[4]["truncated"]
    table = output_of("classify", classifier, "-i", texts, "-q", "--format", "tsv", "--top", 2)
    cells = [line.split("\t") for line in table.removesuffix("\n").split("\n")]
    assert [len(row) for row in cells] == [6, 4, 4, 6, 6, 6]
    assert cells[0][2] == labels[0]
    assert float(cells[0][3]) == pytest.approx(records[0]["probability"], abs=1e-6)
    assert output_of("classify", classifier, "-q", stdin=texts.read_bytes()) == done.stdout


def test_what_a_model_does_not_know_is_told(tmp_path):
    """A label of a text whose words the model has never seen must not come without a word."""
    tokenizer = train_tokenizer(LINES, TokenizerConfig(algorithm="word", vocab_size=100))
    config = ModelConfig(
        d_model=16, n_heads=2, d_ff=16, n_encoder_layers=1, n_decoder_layers=0, n_labels=3
    )
    save_model_directory(
        tmp_path / "words",
        Classifier(config, tokenizer.vocab_size).state_dict(),
        config=config,
        tokenizer=tokenizer,
        decoding=DecodingConfig(),
        info=ModelInfo(labels=LABELS),
    )
    done = run("classify", tmp_path / "words", LINES[0], "", "-q")
    assert (done.exit_code, done.stderr) == (0, "")
    done = run("classify", tmp_path / "words", f"{LINES[0]} xyzzy", "", "plugh", "-q")
    assert done.exit_code == 0
    assert done.stdout.count("\n") == 3
    assert done.stderr == (
        "warning: 2 words or characters that the model does not know; it read <unk> there\n"
    )


def test_a_text_gets_the_same_bits_whatever_is_beside_it(classifier, tmp_path):
    many = tmp_path / "many.txt"
    many.write_text("".join(f"{line} {'dog ' * (n % 17)}\n" for n in range(30) for line in LINES))
    options = ["-q", "--format", "jsonl", "--top", 0]
    whole = output_of("classify", classifier, "-i", many, *options)
    assert output_of("classify", classifier, "-i", many, *options, "--buffer-lines", 1) == whole
    assert output_of("classify", classifier, "-i", many, *options, "--buffer-lines", 7) == whole
    output = tmp_path / "out.jsonl"
    output_of("classify", classifier, "-i", many, "-o", output, *options, "--max-wait", 0.01)
    assert output.read_text() == whole


def test_arguments_are_texts(classifier):
    assert output_of("classify", classifier, "a dog", "", "-q").count("\n") == 2


def test_what_cannot_be_is_one_line_and_leaves_files_alone(classifier, model, texts, tmp_path):
    for arguments, message in (
        (["classify", classifier, "a", "--top", 2], "--top: text is one label per line"),
        (["classify", classifier, "a", "-o", classifier / "config.json"], "--output: "),
        (["classify", model, "a"], "is a translation model; use `tformer translate`"),
        (["translate", classifier, "a"], "is a classifier, which labels texts; use `tformer clas"),
        (["inspect-align", classifier, "a"], "use `tformer classify`"),
        (["export", classifier, "--format", "huggingface", "-o", tmp_path / "x"], "has another "),
        (["classify", classifier, "-i", texts, "--too-long", "error"], "line 5: has "),
        (["classify", tmp_path / "none", "a"], "none"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2
        assert message in done.stderr.replace("\n", " ")
        assert len([line for line in done.stderr.splitlines() if line.startswith("error:")]) == 1
    assert (classifier / "config.json").stat().st_size > 100
    assert not (tmp_path / "x").exists()


def test_labels_are_evaluated(classifier, tmp_path):
    texts, right, given = (tmp_path / name for name in ("a.txt", "a.label", "given.txt"))
    texts.write_text("".join(f"{line}\n" for line in LINES * 2))
    predicted = output_of("classify", classifier, "-i", texts, "-q").replace("no good", "no\tgood")
    predicted = predicted.removesuffix("\n").split("\n")
    others = [next(label for label in LABELS if label != one) for one in predicted]
    right.write_text("".join(f"{one}\n" for one in (*predicted[:6], *others[6:])))
    arguments = ["evaluate", classifier, "-i", texts, "--reference", right, "-q"]
    record = json.loads(output_of(*arguments, "--format", "json", "-o", given))
    assert given.read_text().removesuffix("\n").split("\n") == predicted
    assert record["accuracy"] == 75.0
    assert sum(map(sum, record["confusion"])) == record["lines"] == 8
    shown = output_of(*arguments)
    assert shown.split()[:2] == ["accuracy", "75.00"]
    assert f"{record['macro_f1']:.2f}" in shown
    assert "confusion matrix" in shown
    for more, message in (
        (["--beam-size", 3], "--beam-size: MODEL is a classifier; omit it"),
        (["--lowercase"], "--lowercase: MODEL is a classifier; omit it"),
        (["--reference", right], "--reference: an example has one right label"),
    ):
        done = run(*arguments, *more)
        assert done.exit_code == 2
        assert message in done.stderr
    right.write_text("what\n" * 8)
    assert f'line 1 of texts and labels: "what" is none of the labels of {classifier}; ' in run(
        *arguments
    ).stderr.replace("\n", " ")


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
    row = output_of("classify", classifier, "A man sleeps.", "-q", "--format", "jsonl", "--top", 0)
    found = json.loads(row)["probabilities"]
    for label, probability in zip(LABELS, expected.tolist(), strict=True):
        assert found[label] == pytest.approx(probability, abs=1e-6)


def test_info_says_what_the_labels_are(classifier):
    shown = " ".join(output_of("info", classifier).split())
    assert "Labels 3: fair, good, no" in shown
    assert "longer ones are cut off" in shown
    assert "Decoding" not in shown
    assert json.loads(output_of("info", classifier, "--format", "json"))["labels"] == list(LABELS)
