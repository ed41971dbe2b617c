"""Every task has its place in the seam."""

from typing import get_args

import pytest

from tformer_cli.artifacts.config_file import TaskKind
from tformer_cli.errors import RecipeError
from tformer_cli.kinds import kind_named, training_of
from tformer_cli.recipe import make_recipe
from tformer_cli.trainer.config import METRICS, Metric

VALUES = {"data": {"train": [{"tsv": "a.tsv"}]}, "training": {"max_steps": 1}}


def test_every_kind_has_a_task_and_metrics():
    trained = {name for name in get_args(TaskKind) if kind_named(name).training is not None}
    assert trained == set(METRICS)
    assert {metric for metrics in METRICS.values() for metric in metrics} == set(get_args(Metric))


def values_of(kind):
    """The least recipe of a task."""
    texts, pairs, images = {"text": "a.txt"}, {"tsv": "a.tsv"}, {"images": "a.idx"}
    corpus = {"language-model": texts, "masked": texts, "image": images}.get(kind, pairs)
    model = {"model": {"patch_size": 4}} if kind == "image" else {}
    return {**VALUES, **model, "data": {"train": [corpus]}, "task": {"kind": kind}}


@pytest.mark.parametrize("kind", METRICS)
def test_a_task_is_judged_by_its_first_metric_unless_another_is_named(kind):
    recipe = make_recipe(values_of(kind), "here")
    assert training_of(recipe) is kind_named(kind).training
    assert recipe.validation.metric == METRICS[kind][0]
    given = make_recipe({**values_of(kind), "validation": {"metric": "loss"}}, "x")
    assert given.validation.metric == "loss"


def test_recipes_without_a_task_translate():
    recipe = make_recipe(VALUES, "here")
    assert recipe.task.kind == "translate"
    assert recipe.validation.metric == "bleu"


def test_an_unknown_task_is_one_line():
    with pytest.raises(RecipeError, match=r"task.kind: must be .*'translate'.*; found \"sing\""):
        make_recipe({**VALUES, "task": {"kind": "sing"}}, "here")
