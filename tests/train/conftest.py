import pytest

from tests.recipes import recipe_maker
from tformer_cli.train.start import completion


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes recipes that start from a model, as for a run in a directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def start_recipe(origin, run, messages=None, **changes):
        notes = [] if messages is None else messages
        maker = recipe_maker(
            tmp_path,
            complete=completion(run, notes.append),
            data={"train": [{"built_in": "train", "pairs": 200}], "max_length": 30},
            training={
                "precision": "float32", "tokens_per_batch": 400, "max_steps": 6,
                "checkpoint_every": 2, "report_every": 1,
            },
        )  # fmt: skip
        return maker(**{"model__from": str(origin), **changes})

    return start_recipe
