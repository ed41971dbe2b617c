"""The heads of a model with a memory, on a text of several segments."""

import json
import math

import numpy as np
import pytest

from tests.commands import output_of, refused
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.inspect.heads.metrics import memory_shares, metrics_of
from tformer_cli.recipe import make_recipe
from tformer_cli.train.train import train

TEXT = "abcabcabc bcabca cabcabcabcab abcab"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A language model that reads segments of 9 tokens and remembers the 12 before them."""
    folder = tmp_path_factory.mktemp("segments")
    (folder / "text.txt").write_text(f"{TEXT}\n" * 8)
    values = {
        "decoding": {},
        "task": {"kind": "language-model"},
        "data": {
            "train": [{"text": "text.txt"}],
            "valid": [{"text": "text.txt"}],
            "directory": str(folder),
            "max_length": 8,
            "text": "stream",
        },
        "tokenizer": {"algorithm": "char", "vocab_size": 50},
        "model": {
            "d_model": 16,
            "n_heads": 2,
            "d_ff": 32,
            "n_decoder_layers": 1,
            "positions": "segments",
            "memory": 12,
            "max_positions": 9,
            "norm": "pre",
        },
        "training": {"max_steps": 4, "tokens_per_batch": 24, "average": "none"},
    }
    train(make_recipe(values, "here"), folder / "run")
    return folder / "run"


def test_maps_of_several_segments_are_the_models_own(path):
    directory = load_model_directory(path, tasks=("language-model",))
    ids = directory.tokenizer.target.encode(TEXT)
    maps = capture_maps(directory.model, (), ids)
    n = len(ids) + 1
    assert maps.residual < 1e-5
    assert (maps.segment, maps.memory) == (9, 12)
    for row in range(n):
        seen = {j for j in range(row + 1) if j >= row // 9 * 9 - 12}
        assert set(maps.dec[0][0, row].nonzero()[0].tolist()) == seen
        assert maps.n_visible[row] == len(seen)
    metrics = metrics_of(maps, [HeadId("dec", 0, 0), HeadId("dec", 0, 1)])
    for head, values in metrics.items():
        weights = maps.weights(head).astype(np.float64)
        rows = [weights[row, : row // 9 * 9].sum().item() for row in range(9, n)]
        assert values["memory"] == pytest.approx(sum(rows) / len(rows))
        spreads = [
            -sum(w * math.log(w) for w in weights[row].tolist() if w)
            / math.log(maps.n_visible[row])
            for row in range(1, n)
        ]
        assert values["entropy_norm"] == pytest.approx(sum(spreads) / len(spreads))
    short = capture_maps(directory.model, (), ids[:5])
    assert "memory" not in metrics_of(short, [HeadId("dec", 0, 0)])[HeadId("dec", 0, 0)]


def test_shares_of_known_maps():
    uniform = (np.tri(4) / np.arange(1, 5)[:, None])[None]
    # rows 2 and 3 see two tokens of the first segment of 2, and one or two of their own
    assert memory_shares(uniform, 2) == pytest.approx([(2 / 3 + 2 / 4) / 2])
    assert memory_shares(np.eye(4)[None], 2) == [0.0]


@pytest.mark.parametrize("form", ["text", "jsonl", "html", "npz"])
def test_they_are_shown(path, tmp_path, form):
    file = tmp_path / f"heads.{form}"
    output_of("inspect-heads", path, TEXT, "--format", form, "-o", file, "-q")
    if form == "text":
        assert "segments of 9 tokens, earlier ones are memory" in " ".join(file.read_text().split())
    if form == "jsonl":
        record = json.loads(file.read_text())
        assert record["segment"] == 9
        assert all(0.0 < head["metrics"]["memory"] < 1.0 for head in record["heads"])
    says = "has 1,200 tokens, but the model takes 1023"
    refused("inspect-heads", path, "ab" * 600, "-q", says=says)
