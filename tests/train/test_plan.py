"""What a training will do: its task, its data and a plan."""

from typing import get_args

import pytest

from tformer_cli.artifacts.config_file import TaskKind
from tformer_cli.errors import DataError, RecipeError
from tformer_cli.kinds import kind_named, training_of
from tformer_cli.model.weight_shapes import parameter_count
from tformer_cli.recipe import make_recipe
from tformer_cli.train.data import notes
from tformer_cli.train.plan import plan_training
from tformer_cli.train.train import train
from tformer_cli.trainer.config import METRICS, Metric


def recipe(directory, *names, **tokenizer):
    return make_recipe(
        {
            "data": {
                "train": [{"tsv": name} for name in names],
                "directory": str(directory),
                "max_length": 20,
            },
            "tokenizer": {"algorithm": "word", "vocab_size": 40, **tokenizer},
            "model": {"preset": "tiny"},
            "training": {"max_steps": 1, "tokens_per_batch": 64},
        },
        "test",
    )


@pytest.fixture
def corpora(tmp_path):
    (tmp_path / "a.tsv").write_text("the cat\tle chat noir\n\tblank\n" * 10)
    (tmp_path / "b.tsv").write_text("a dog\tun chien\n" * 10 + f"{'x ' * 30}\ty\n")
    return tmp_path


def test_a_plan_describes_every_corpus_and_batch(corpora):
    chosen = recipe(corpora, "a.tsv", "b.tsv")
    plan = plan_training(chosen)
    assert plan.tokenizer == "a tokenizer trained on the first 21 pairs"
    assert plan.n_parameters == parameter_count(chosen.model, 40)
    assert plan.source_tokens == 2.0
    assert plan.target_tokens == 2.5
    assert all(b * max(s, t) <= 64 for b, s, t in plan.batch_shapes)
    assert plan.example[0].source == "the cat"
    assert any("parameters: " in line for line in plan.lines())


def test_broken_lines_are_counted_among_the_doubts(corpora):
    (corpora / "a.tsv").write_bytes(b"the cat\tle chat\n" * 20 + b"M\xe4dchen\tfille\n" * 2)
    *_, doubt = plan_training(recipe(corpora, "a.tsv")).doubts
    assert doubt == (
        "data.train: of the 22 lines that were looked at 2 are not UTF-8; they would be read as "
        "U+FFFD"
    )


def test_every_corpus_must_be_there_and_hold_something(corpora):
    with pytest.raises(DataError, match=r"missing\.tsv"):
        plan_training(recipe(corpora, "a.tsv", "missing.tsv"))
    (corpora / "empty.tsv").write_text("")
    with pytest.raises(DataError, match="has no sentence pairs"):
        plan_training(recipe(corpora, "empty.tsv"))
    (corpora / "long.tsv").write_text(f"{'x ' * 30}\ty\n")
    with pytest.raises(DataError, match="no usable sentence pair"):
        plan_training(recipe(corpora, "long.tsv"))


def test_a_tokenizer_that_does_not_fit_is_refused(corpora):
    from tformer_cli.text.config import TokenizerConfig
    from tformer_cli.text.train_tokenizer import train_tokenizer

    words = train_tokenizer(["the cat"] * 3, TokenizerConfig(algorithm="word", vocab_size=10))
    (corpora / "tokenizer.json").write_text(words.to_json())
    assert plan_training(recipe(corpora, "a.tsv", path="tokenizer.json")).vocab_size < 40
    with pytest.raises(RecipeError, match="needs a BPE tokenizer"):
        plan_training(recipe(corpora, "a.tsv", path="tokenizer.json", bpe_dropout=0.1))


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
    by_loss = make_recipe({**values_of(kind), "validation": {"metric": "loss"}}, "x")
    assert by_loss.validation.metric == "loss"


def test_recipes_without_a_task_translate():
    recipe = make_recipe(VALUES, "here")
    assert recipe.task.kind == "translate"
    assert recipe.validation.metric == "bleu"


def test_an_unknown_task_is_one_line():
    with pytest.raises(RecipeError, match=r"task.kind: must be .*'translate'.*; found \"sing\""):
        make_recipe({**VALUES, "task": {"kind": "sing"}}, "here")


class Corpus:
    """What `notes` reads of an encoded corpus."""

    def __init__(self):
        self.dropped = {"blank": 2, "too_long": 1200, "ratio": 0}
        self.from_cache = True
        self.not_utf8 = 3

    def __len__(self):
        return 5000


def test_omitted_and_broken_lines_are_reported():
    values = {"data": {"train": [{"tsv": "a.tsv"}], "max_length": 9}, "training": {"max_steps": 1}}
    recipe = make_recipe(values, "here")
    expected = (
        "a.tsv: 5,000 pairs, from the cache; skipped: 2 blank on one side, 1,200 over 9 "
        "tokens; 3 lines not UTF-8, read as U+FFFD"
    )
    assert list(notes(recipe, [Corpus()])) == [expected]


def test_weights_that_leave_nothing_of_an_epoch_are_an_error_before_a_run_begins(tmp_path):
    (tmp_path / "a.tsv").write_text("one\tun\n")
    corpus = {"tsv": str(tmp_path / "a.tsv"), "weight": 0.4}
    values = {
        "data": {"train": [corpus], "cache_directory": str(tmp_path)},
        "tokenizer": {"vocab_size": 300},
        "training": {"max_steps": 1},
    }
    with pytest.raises(DataError, match="weights leave no sentence pair in an epoch; raise data"):
        train(make_recipe(values, "here"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
