import json

import pytest

from tformer_cli.errors import RecipeError, UsageError
from tformer_cli.recipe import make_recipe
from tformer_cli.train.train import check_same_recipe
from tformer_cli.trainer.processes.group import Processes


def recipe(directory="", **keys):
    data = {"train": [{"tsv": "a.tsv"}], "directory": directory}
    return make_recipe({"data": data, "training": {"max_steps": 9, **keys}}, "here")


class Second(Processes):
    """The second of two processes; what the first one says comes as JSON."""

    rank = 1
    world_size = 2

    def __init__(self, first, *, fresh=False):
        self.said = json.dumps({"recipe": first.to_mapping(), "fresh": fresh})

    def first(self, work):
        return json.loads(self.said)


def test_another_recipe_is_refused_with_its_keys():
    second = Second(recipe(learning_rate=0.1, batch_growth=[[0.5, 2]]))
    with pytest.raises(RecipeError) as refused:
        check_same_recipe(second, recipe(inspect_every=0, learning_rate=0.2), fresh=False)
    assert str(refused.value) == (
        "process 1 has another recipe than the first: training.batch_growth.0.0, "
        "training.batch_growth.0.1, training.learning_rate differ; use the same recipe and "
        "options on every machine"
    )


def test_how_often_heads_are_seen_has_to_be_agreed_on_too():
    first = make_recipe(
        {
            "data": {"train": [{"tsv": "a.tsv"}], "valid": [{"tsv": "b.tsv"}]},
            "training": {"max_steps": 9, "inspect_every": 3},
        },
        "here",
    )
    second = make_recipe({"data": first.to_mapping()["data"], "training": {"max_steps": 9}}, "here")
    with pytest.raises(RecipeError, match=r"training\.inspect_every differ"):
        check_same_recipe(Second(first), second, fresh=False)


def test_starting_over_has_to_be_agreed_on():
    with pytest.raises(UsageError, match="--fresh: process 1 and the first one disagree"):
        check_same_recipe(Second(recipe(), fresh=True), recipe(), fresh=False)


def test_the_same_recipe_may_find_its_files_elsewhere():
    check_same_recipe(Second(recipe("/one")), recipe("/two"), fresh=False)
    check_same_recipe(Processes(), recipe(), fresh=True)
