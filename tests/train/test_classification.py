"""Runs whose model labels texts."""

import json
from dataclasses import replace

import pytest

from tests.recipes import LEARNING, SHAPE, recipe_maker
from tests.watched_training import Watcher, check_a_stop_leaves_no_trace
from tformer_cli.artifacts.config_file import CONFIG, read_config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.cli.commands.training_progress import event_lines
from tformer_cli.errors import ArtifactError
from tformer_cli.recipe import make_recipe
from tformer_cli.train.plan import plan_training
from tformer_cli.train.start import completion
from tformer_cli.train.train import train
from tformer_cli.trainer.events import StepReport, ValidationReport

ADJECTIVES = {"good": 1, "fine": 1, "nice": 1, "bad": 0, "awful": 0, "poor": 0}


def examples(n_examples):
    nouns = ("food", "room", "place", "staff", "bar")
    for number in range(n_examples):
        adjective = list(ADJECTIVES)[number % 6]
        is_negated = number % 5 < 2
        label = "up" if ADJECTIVES[adjective] != is_negated else "down"
        yield f"the {nouns[number % 5]} was {'not ' if is_negated else ''}{adjective}", label


@pytest.fixture
def make(tmp_path):
    """Makes recipes of a tiny classifier, with keys changed."""
    records = [{"text": text, "label": label} for text, label in examples(120)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "b.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in examples(30)))

    return recipe_maker(
        tmp_path,
        task={"kind": "classify"},
        data={"train": [{"jsonl": "a.jsonl"}], "valid": [{"tsv": "b.tsv"}]},
        tokenizer={"vocab_size": 300, "bpe_dropout": 0.1},
        model={**SHAPE, "n_encoder_layers": 1},
        training={
            **LEARNING, "max_steps": 40, "tokens_per_batch": 128, "report_every": 10,
            "checkpoint_every": 10,
        },
        validation={"every": 20},
    )  # fmt: skip


def test_a_run_learns_labels_and_says_how_well(make, tmp_path):
    watcher = Watcher()
    recipe = make(model={"d_model": 32, "n_encoder_layers": 2}, training={"max_steps": 120})
    train(recipe, tmp_path / "run", device="cpu", observers=[watcher])
    last = watcher.of(ValidationReport)[-1]
    assert set(last.scores) == {"loss", "accuracy", "macro_f1"}
    assert last.scores["accuracy"] == 100.0
    assert last.sample_translation in ("up", "down")
    assert watcher.of(StepReport)[-1].tokens <= 120 * 128 / 5  # a label is one target token
    record = read_config(tmp_path / "run")
    assert (record.task, record.labels, record.model.n_labels) == ("classify", ("down", "up"), 2)
    # the run's own recipe is the one that was given: the same command resumes it
    assert train(recipe, tmp_path / "run", device="cpu").was_finished


def test_a_resumed_run_ends_with_the_same_bytes(make, tmp_path, one_thread):
    check_a_stop_leaves_no_trace(make(), tmp_path, 20)


def test_examples_are_called_so(make, tmp_path):
    watcher = Watcher()
    train(make(training={"max_steps": 1}), tmp_path / "run", device="cpu", observers=[watcher])
    note, started = event_lines(watcher.events[0])
    assert note.startswith("a.jsonl: 120 examples")
    assert "; 120 examples, " in started


def test_given_labels_keep_their_order(make, tmp_path):
    recipe = make(task={"labels": ["up", "down", "aside"]}, training={"max_steps": 1})
    train(recipe, tmp_path / "run", device="cpu")
    assert read_config(tmp_path / "run").labels == ("up", "down", "aside")


def test_a_plan_shows_an_example_and_doubts(make, tmp_path):
    plan = plan_training(make())
    assert plan.target_tokens == 1.0
    assert plan.example[0].target == plan.example[2][0]
    (tmp_path / "head.tsv").write_text("text\tlabel\n" + (tmp_path / "b.tsv").read_text())
    (doubt,) = plan_training(make(data={"train": [{"tsv": "head.tsv"}]})).doubts
    assert 'its first line ("text", "label") looks like a header' in doubt
    (doubt,) = plan_training(make(data={"valid": []})).doubts
    assert doubt.startswith("data.valid: names no corpus")


def test_a_preset_loses_its_decoder(make):
    assert make(model={"preset": "tiny"}).model.n_decoder_layers == 0


def test_other_commands_refuse_a_classifier_and_damage_is_one_line(make, tmp_path):
    run = tmp_path / "run"
    train(make(training={"max_steps": 1}), run, device="cpu")
    from tformer_cli.kinds.opening import open_model

    for opens in (load_model_directory, open_model):
        with pytest.raises(ArtifactError, match=r"is a classifier, .* use `tformer classify`"):
            opens(run)
    directory = load_model_directory(run, tasks=("classify",))
    assert directory.classifier.config.n_labels == 2
    with pytest.raises(ArtifactError, match="use `tformer classify`"):
        replace(directory).model  # noqa: B018
    values = json.loads((run / CONFIG).read_text())
    for labels in ([], ["up", "up"], ["up", "down", "x"]):
        (run / CONFIG).write_text(json.dumps({**values, "labels": labels}))
        with pytest.raises(ArtifactError, match="labels: must be 2 different names"):
            read_config(run)


def test_a_run_that_starts_from_a_classifier_keeps_its_labels(make, tmp_path):
    train(make(training={"max_steps": 2}), tmp_path / "first", device="cpu")
    (tmp_path / "few.tsv").write_text("the bar was bad\tdown\nthe bar was poor\tdown\n" * 4)
    few, start = [{"tsv": "few.tsv"}], {"from": str(tmp_path / "first")}
    values = {
        "task": {"kind": "classify"},
        "data": {
            "train": few, "valid": few, "directory": str(tmp_path),
            "cache_directory": str(tmp_path / "cache"),
        },
        "model": start,
        "training": {"max_steps": 1, "precision": "float32"},
    }  # fmt: skip
    run = tmp_path / "second"
    complete = completion(run, print)
    train(make_recipe(values, "test", complete), run, device="cpu")
    record = read_config(run)
    assert (record.labels, record.start.model) == (("down", "up"), start["from"])
    recipe = make_recipe(values, "test", completion(run, print))  # now by the run's own record
    assert train(recipe, run, device="cpu").was_finished
    values["task"]["labels"] = ["up", "down"]  # others, in another order: a new head
    assert make_recipe(values, "test", complete).model.n_labels == 0


def test_translators_are_no_classifiers(model):
    with pytest.raises(ArtifactError, match="is a translation model; use `tformer translate`"):
        load_model_directory(model, tasks=("classify",))
