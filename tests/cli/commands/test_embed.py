"""`tformer embed`: streams, formats, refusals; a line's vector does not depend on the others."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from typer.testing import CliRunner

from tformer_cli.cli.app import app

pytest.importorskip("transformers")

from tests.foreign import encoders


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, [str(part) for part in arguments], input=stdin)


def output_of(*arguments, stdin=None):
    done = run(*arguments, stdin=stdin)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A random bare encoder in a Hugging Face directory, and the model itself."""
    path = tmp_path_factory.mktemp("bert") / "theirs"
    model, tokenizer = encoders.write_directory(path, "bert", "Model")
    ours = path.parent / "ours"
    output_of("import", path, "-o", ours, "-q")
    return ours, model, tokenizer


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    lines = ["the soup was good", "", "  ", "Caf\u00e9!\r", "terrible " * 60, "the \u2028 end"]
    path.write_text("".join(f"{line}\n" for line in lines), newline="")
    return path


def vectors_of(bert, lines, pooling="mean"):
    """Vectors as transformers computes them, each text alone."""
    _, model, tokenizer = bert
    found = []
    for line in lines:
        ids = tokenizer.encode(line).ids
        with torch.inference_mode():
            states = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
        found.append((states.mean(0) if pooling == "mean" else states[0]).numpy())
    return np.array(found)


def test_a_row_for_each_line_in_every_format(bert, texts, tmp_path):
    ours = bert[0]
    table = run("embed", ours, "-i", texts, "-q")
    assert table.exit_code == 0, table.stderr
    assert "1 line longer than the model takes; truncated" in table.stderr
    rows = table.stdout.removesuffix("\n").split("\n")
    assert len(rows) == 6
    assert [len(row.split("\t")) for row in rows] == [16, 1, 1, 16, 16, 16]
    assert rows[1] == rows[2] == ""
    arrays = tmp_path / "vectors.npy"
    output_of("embed", ours, "-i", texts, "-q", "-o", arrays)
    array = np.load(arrays)
    assert array.shape == (6, 16)
    assert array.dtype == np.float32
    assert not array[1:3].any()
    for row, numbers in zip(rows, array, strict=True):
        if row:
            assert np.allclose([float(cell) for cell in row.split("\t")], numbers, rtol=1e-6)
    expected = vectors_of(bert, ["the soup was good", "Caf\u00e9!"])
    assert np.abs(array[[0, 3]] - expected).max() <= 1e-5
    assert np.abs(expected).max() > 0.5
    other = tmp_path / "vectors.safetensors"
    output_of("embed", ours, "-i", texts, "-q", "-o", other)
    assert np.array_equal(load_file(other)["vectors"], array)
    records = output_of("embed", ours, "-q", "--format", "jsonl", stdin=texts.read_bytes())
    found = [json.loads(line) for line in records.removesuffix("\n").split("\n")]
    assert [one["index"] for one in found] == list(range(6))
    assert [one["vector"] is None for one in found] == [False, True, True, False, False, False]
    assert found[4]["truncated"]
    assert found[5]["text"] == "the \u2028 end"


def test_pooling_and_length_are_as_asked(bert, tmp_path):
    ours, output = bert[0], tmp_path / "one.npy"
    first = vectors_of(bert, ["the soup"], "first")
    output_of("embed", ours, "the soup", "-q", "-o", output, "--pooling", "first", "--normalize")
    assert np.abs(np.load(output) - first / np.linalg.norm(first)).max() <= 1e-6


def test_a_vector_is_the_same_bits_whatever_is_beside_it(bert, tmp_path):
    many = tmp_path / "many.txt"
    words = ["soup", "terrible", "waiter", "caf\u00e9"]
    many.write_text("".join(f"the {' '.join(words[: n % 5])} was {n}\n" for n in range(60)))
    whole, single, pieces = (tmp_path / f"{name}.npy" for name in "abc")
    output_of("embed", bert[0], "-i", many, "-q", "-o", whole)
    output_of("embed", bert[0], "-i", many, "-q", "-o", single, "--buffer-lines", 1)
    output_of("embed", bert[0], "-i", many, "-q", "-o", pieces, "--buffer-lines", 7)
    assert whole.read_bytes() == single.read_bytes() == pieces.read_bytes()


def test_no_lines_are_an_array_of_none(bert, tmp_path):
    output = tmp_path / "none.npy"
    output_of("embed", bert[0], "-q", "-o", output, stdin=b"")
    assert np.load(output).shape == (0, 16)
    assert output_of("embed", bert[0], "-q", stdin=b"") == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "vectors.pt"], "--output: vectors.pt would not be a .pt file"),
        (["--format", "npy", "-o", "vectors.tsv"], "--output: vectors.tsv would not be a .tsv"),
        (["--too-long", "error"], "line 1: has 61 tokens, but the model takes 39"),
    ],
)
def test_what_cannot_be_is_one_line(bert, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("embed", bert[0], "terrible " * 60, "-q", *options)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_models_of_other_tasks_are_refused_by_name(bert, model):
    done = run("embed", model, "a", "-q")
    assert done.exit_code == 2
    assert "is a translation model; use `tformer translate`" in done.stderr
    kinds = "classifiers, classifiers of images, masked language models or encoders"
    assert f"(this takes {kinds})" in done.stderr
    done = run("translate", bert[0], "a", "-q")
    assert done.exit_code == 2
    assert "is an encoder, which turns texts into vectors; use `tformer embed`" in done.stderr
    done = run("embed", bert[0], "a", "-q", "-o", bert[0] / "config.json")
    assert done.exit_code == 2
