"""`tformer embed`: streams, formats, refusals; a line's vector does not depend on the others."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tests.commands import lines_of, output_of, records_of

pytest.importorskip("transformers")

from tests.foreign import encoders


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


def test_the_formats_agree(bert, texts, tmp_path):
    ours = bert[0]
    rows = lines_of("embed", ours, "-i", texts, "-q")
    assert [len(row.split("\t")) for row in rows] == [16, 1, 1, 16, 16, 16]
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
    records = records_of("embed", ours, "-i", texts, "-q", "--format", "jsonl")
    assert [row["vector"] is None for row in records] == [False, True, True, False, False, False]


def test_pooling_and_length_are_as_asked(bert, tmp_path):
    ours, output = bert[0], tmp_path / "one.npy"
    first = vectors_of(bert, ["the soup"], "first")
    output_of("embed", ours, "the soup", "-q", "-o", output, "--pooling", "first", "--normalize")
    assert np.abs(np.load(output) - first / np.linalg.norm(first)).max() <= 1e-6


def test_no_lines_are_an_array_of_none(bert, tmp_path):
    output = tmp_path / "none.npy"
    output_of("embed", bert[0], "-q", "-o", output, stdin=b"")
    assert np.load(output).shape == (0, 16)
