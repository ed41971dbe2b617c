"""The command evaluate of language models, and of classifiers beside a baseline."""

import json
import math
import shutil

import numpy as np
import pytest

from tests.commands import output_of, record_of
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.artifacts.tensors import load_tensors, save_tensors
from tformer_cli.search.generator import Generator
from tformer_cli.search.scoring import score_texts

LINES = ["A man sleeps.", "", "Two dogs run in the snow, and a woman sleeps in the street.", "A"]


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("".join(f"{line}\n" for line in LINES))
    return file


@pytest.mark.parametrize("kind", ["lines", "stream"])
@pytest.mark.parametrize(("window", "stride"), [(40, 40), (16, 4)])
def test_scores_are_those_of_every_token(language_model, text, kind, window, stride):
    record = record_of(
        *("evaluate", language_model, "--text", text, "--text-kind", kind, "--format", "json"),
        *("--window", window, "--stride", stride, "-q"),
    )
    directory = load_model_directory(language_model, tasks=("language-model",))
    whole = text.read_text()
    texts = [whole] if kind == "stream" else [line for line in LINES if line]
    scores = score_texts(
        directory.model,
        directory.tokenizer.target.encode_batch(texts),
        window=window,
        stride=stride,
        batch_tokens=100,
        device="cpu",
    )
    values = [value for row in scores for value in row]
    total = -sum(values)
    n_bytes = sum(len(line) + 1 for line in texts)
    assert record == {
        "schema": "tformer.scores/1",
        "tokens": len(values),
        "bytes": n_bytes,
        "loss": pytest.approx(total / len(values), rel=1e-5),
        "perplexity": pytest.approx(math.exp(total / len(values)), rel=1e-4),
        "bits_per_byte": pytest.approx(total / math.log(2) / n_bytes, rel=1e-5),
        "signature": f"text:{kind}|window:{window}|stride:{stride}",
    }


def test_torch_scores_the_same_without_the_kernels(language_model, text, monkeypatch):
    arguments = ("evaluate", language_model, "--text", text, "--format", "json", "-q")
    first = record_of(*arguments)
    monkeypatch.setattr(Generator, "compiled_scorer", lambda self: None)
    second = record_of(*arguments)
    for name in ("schema", "signature"):
        assert first.pop(name) == second.pop(name)
    assert first == pytest.approx(second, rel=1e-5)


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson"])
def test_texts_may_be_in_a_field(language_model, text, tmp_path, name):
    (tmp_path / name).write_text("".join(json.dumps({"body": line}) + "\n" for line in LINES))
    words = ("evaluate", language_model, "-q", "--text")
    assert output_of(*words, tmp_path / name, "--text-field", "body") == output_of(*words, text)


def test_a_split_of_a_dataset_is_evaluated(language_model, text, tmp_path):
    (tmp_path / "a.csv").write_text("body\n" + "".join(f'"{line}"\n' for line in LINES if line))
    arguments = ("evaluate", language_model, "--text", tmp_path / "a.csv", "--text-field", "body")
    record = record_of(*arguments, "--text-split", "train[:1]", "--format", "json", "-q")
    assert record["bytes"] == len(LINES[0]) + 1


def test_a_table_says_how_scores_were_computed(language_model, text):
    shown = output_of("evaluate", language_model, "--text", text, "-q")
    names = [line.split("  ")[0] for line in shown.splitlines()]
    assert names == ["loss", "perplexity", "bits per byte", "signature"]
    assert shown.endswith("text:lines|window:40|stride:40\n")


BOTH = [f"Two dogs run in the street {number}" for number in range(40)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{line}\n" for line in BOTH))
    return path


@pytest.fixture
def changed(tmp_path):
    """Copies a model with other weights."""

    def change_weights(model, factor):
        path = shutil.copytree(model, tmp_path / f"changed-{factor}")
        weights = load_tensors(path / "model.safetensors")
        save_tensors(path / "model.safetensors", {n: factor * w for n, w in weights.items()})
        return path

    return change_weights


@pytest.mark.parametrize("kind", ["lines", "stream"])
def test_language_models_are_compared_in_lines_or_blocks(language_model, changed, file, kind):
    other = changed(language_model, 0.5)
    options = ["--text", file, "--text-kind", kind, "-q", "--format", "json"]
    record = record_of("evaluate", language_model, *options, "--baseline-model", other)
    for model, found in ((language_model, record), (other, record["baseline"])):
        alone = record_of("evaluate", model, *options)
        del alone["schema"]
        assert {name: found[name] for name in alone} == alone
    (change,) = record["changes"]
    measure = "bits_per_byte" if kind == "lines" else "loss"
    assert change["measure"] == measure
    assert change["value"] == pytest.approx(record[measure])
    assert change["baseline"] == pytest.approx(record["baseline"][measure])
    assert change["difference"] == pytest.approx(record[measure] - record["baseline"][measure])
    assert change["ci95"][0] < change["difference"] < change["ci95"][1]
    assert change["p_value"] < 0.05
    assert record["test"].startswith(
        f"paired-bootstrap|units:{'lines' if kind == 'lines' else 'blocks of 128 tokens'}|"
    )
    same = record_of("evaluate", language_model, *options, "--baseline-model", language_model)
    assert same["changes"][0]["p_value"] == 1.0
    table = output_of("evaluate", language_model, *options[:-2], "--baseline-model", other)
    assert f"{measure.replace('_', ' ')} change  " in table


def test_classifiers_are_compared_with_labels_or_another(classifier, changed, file, tmp_path):
    from tformer_cli.artifacts.config_file import read_config

    labels = read_config(classifier).labels
    other = changed(classifier, -1.0)
    right = tmp_path / "right.txt"
    right.write_text("".join(f"{labels[n % 3]}\n" for n in range(40)))
    given = tmp_path / "given.txt"
    options = ["-i", file, "--reference", right, "-q", "--format", "json"]
    alone = record_of("evaluate", other, *options, "-o", given)
    records = [
        record_of("evaluate", classifier, *options, *baseline)
        for baseline in (["--baseline", given], ["--baseline-model", other])
    ]
    assert records[0] == records[1]
    accuracy, macro = records[0]["changes"]
    assert (accuracy["measure"], macro["measure"]) == ("accuracy", "macro_f1")
    assert accuracy["baseline"] == pytest.approx(alone["accuracy"])
    assert accuracy["value"] == pytest.approx(records[0]["accuracy"])
    assert macro["value"] == pytest.approx(records[0]["macro_f1"])
    assert np.diff(macro["ci95"]) >= 0
    table = output_of("evaluate", classifier, *options[:-2], "--baseline", given)
    assert "accuracy change  " in table
