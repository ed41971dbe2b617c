import pytest

from tests.recipes import recipe_maker
from tformer_cli.train.start import completion


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes recipes that start from a model, as for a run in a directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def made(origin, run, said=None, **changes):
        told = [] if said is None else said
        made = recipe_maker(
            tmp_path,
            complete=completion(run, told.append),
            data={"train": [{"built_in": "train", "pairs": 200}], "max_length": 30},
            training={
                "precision": "float32", "tokens_per_batch": 400, "max_steps": 6,
                "checkpoint_every": 2, "report_every": 1,
            },
        )  # fmt: skip
        return made(**{"model__from": str(origin), **changes})

    return made
