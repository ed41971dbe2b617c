import pytest

from tests.recipes import SHAPE
from tformer_cli.recipe import make_recipe
from tformer_cli.train.plan import profile_training


@pytest.fixture(scope="module", autouse=True)
def every_test_on_one_thread(one_thread):
    """The steps here are small."""


def test_a_profile_accounts_for_all_of_the_time_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = make_recipe(
        {
            "data": {
                "train": [{"built_in": "train", "pairs": 300}],
                "cache_directory": str(tmp_path / "cache"),
            },
            "tokenizer": {"vocab_size": 300},
            "model": {**SHAPE, "n_encoder_layers": 1, "n_decoder_layers": 1},
            "training": {"precision": "float32", "tokens_per_batch": 400, "max_steps": 1},
        },
        "test",
    )
    profile = profile_training(recipe, 3)
    assert profile.n_steps == 3
    assert sum(profile.categories.values()) == pytest.approx(profile.seconds)
    assert {"matrix products", "attention", "loss", "norms"} < set(profile.categories)
    assert profile.categories["matrix products"] > 0
    text = "\n".join(profile.lines())
    for words in ("where the time goes", "target tokens/s: ", "% of the limit", "aten::"):
        assert words in text
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
