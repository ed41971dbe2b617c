"""The commands classify and generate: streams, formats, refusals."""

import re

import pytest
import torch

from tests.commands import lines_of, output_of, record_of, records_of, run
from tests.models import LINES, save_random
from tformer_cli.evaluate.evaluate import LabelEvaluation
from tformer_cli.metrics.labels import score_labels
from tformer_cli.search.generator import Generator

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
    assert [(record["label"] or "").replace("\t", " ") for record in records] == labels
    for record in records:
        if record["label"] is None:
            assert (record["probability"], record["probabilities"]) == (None, {})
            continue
        shares = list(record["probabilities"].values())
        assert set(record["probabilities"]) == set(LABELS)
        assert shares == sorted(shares, reverse=True)
        assert record["probability"] == shares[0]
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
    others = [next(label for label in LABELS if label != guess) for guess in predicted]
    right.write_text("".join(f"{label}\n" for label in (*predicted[:6], *others[6:])))
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


def test_texts_begin_with_their_prompts_in_every_format(language_model):
    prompts = ("A man", "the street", "word " * 60)
    texts = lines_of("generate", language_model, *prompts, "-q")
    records = records_of("generate", language_model, *prompts, "-q", "--format", "jsonl")
    assert [record["prompt"] + record["text"] for record in records[:2]] == texts[:2]
    assert [text.startswith(prompt) for text, prompt in zip(texts, prompts, strict=True)][:2] == [
        True,
        True,
    ]
    assert records[0]["tokens"] <= 8


def test_prompts_that_are_arguments_keep_line_ends(language_model):
    arguments = ("generate", language_model, "a dog\n", "", "-q")
    plain = output_of(*arguments)
    assert plain.startswith("a dog\n")
    assert output_of(*arguments, "--seed", 2) != plain
    assert output_of(*arguments, "--seed", 1) == plain


def test_several_texts_are_listed_in_jsonl(language_model):
    record = record_of("generate", language_model, "A", "-q", "--n-best", 3, "--format", "jsonl")
    assert len({text["text"] for text in record["texts"]}) == 3
    assert record["texts"][0]["text"] == record["text"]


def test_a_beam_size_asks_for_a_search(language_model):
    greedy = ["generate", language_model, "A", "-q", "--beam-size", 1]
    assert lines_of(*greedy, "--seed", 1) == lines_of(*greedy, "--seed", 2)


def test_a_text_at_a_terminal_appears_token_by_token(language_model, monkeypatch):
    monkeypatch.setattr("tformer_cli.cli.commands.generate.is_terminal", lambda stream: True)
    pieces = []
    original = Generator.generate

    def generate(self, prompts, numbers=None, on_text=None):
        def tell(text):
            pieces.append(text)
            on_text(text)

        return original(self, prompts, numbers, tell)

    monkeypatch.setattr(Generator, "generate", generate)
    shown = run("generate", language_model, "A", "-q")
    assert len(pieces) > 1
    assert shown.stdout == f"A{''.join(pieces)}\n"
    monkeypatch.undo()
    assert shown.stdout == output_of("generate", language_model, "A", "-q")


def test_what_a_model_does_not_know_of_a_prompt_is_counted(tmp_path):
    model = save_random(
        tmp_path / "chars", ["abcabc"], algorithm="char", vocab_size=10,
        decoding={"sampling": True, "max_length": 4}, d_model=8, n_encoder_layers=0,
        max_positions=40,
    )  # fmt: skip
    done = run("generate", model, "aXbYY", "ab", "-q")
    assert done.stdout.startswith("aXbYY")
    assert "3 words or characters that the model does not know; it read <unk>" in done.stderr
    assert "does not know" not in run("generate", model, "ab", "-q").stderr
