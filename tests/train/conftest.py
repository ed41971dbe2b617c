import pytest

from tformer_cli.recipe import make_recipe
from tformer_cli.train.start import completion


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes recipes that start from a model, as for a run in a directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def made(origin, run, said=None, **changes):
        values = {
            "data": {
                "train": [{"built_in": "train", "pairs": 200}],
                "max_length": 30,
                "cache_directory": str(tmp_path / "corpora"),
            },
            "tokenizer": {},
            "model": {"from": str(origin)},
            "adapter": {},
            "training": {
                "precision": "float32",
                "tokens_per_batch": 400,
                "max_steps": 6,
                "checkpoint_every": 2,
                "report_every": 1,
            },
            "decoding": {},
        }
        for key, value in changes.items():
            table, _, name = key.partition("__")
            values[table][name] = value
        told = [] if said is None else said
        return make_recipe(values, "test", completion(run, told.append))

    return made
