"""Runs that put a head of their own on an imported encoder, or keep the one that is there."""

from functools import partial

import pytest
import torch

from tests.recipes import LEARNING, recipe_maker
from tests.slowly import slowly
from tests.watched_training import at, digest, interrupt
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import Interrupted
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds import kinds_for, training_of
from tformer_cli.train.start import completion, initial_model
from tformer_cli.train.train import train

pytest.importorskip("transformers")

from tests.foreign import encoders

WORDS = {"good": 1, "unbelievable": 1, "terrible": 0, "not good": 0}


@pytest.fixture
def make(tmp_path):
    """Makes recipes that start from an imported encoder; keyword arguments change their keys."""
    rows = [(f"the soup was {word}", "up" if up else "down") for word, up in WORDS.items()] * 12
    (tmp_path / "a.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows))

    def start_recipe(run, head="ForMaskedLM", kind="bert", task=None, model=None, **training):
        start = tmp_path / f"{kind}{head}"
        if not start.exists():
            labels = {"num_labels": 3} if "Class" in head else {}
            encoders.write_directory(tmp_path / f"{start.name}-theirs", kind, head, std=0, **labels)
            import_model(str(tmp_path / f"{start.name}-theirs"), start)
        maker = recipe_maker(
            tmp_path,
            complete=completion(run, lambda _: None),
            task={"kind": "classify", **(task or {})},
            data={"train": [{"tsv": "a.tsv"}], "valid": [{"tsv": "a.tsv"}], "max_length": 30},
            training={
                **LEARNING, "max_steps": 24, "tokens_per_batch": 256, "warmup_steps": 3,
                "report_every": 6, "checkpoint_every": 6, "label_smoothing": 0.0, **training,
            },
            validation={"every": 12},
        )  # fmt: skip
        return maker(model={"from": str(start), **(model or {})})

    return start_recipe


def start_model(recipe):
    """The model that a run begins with."""
    recipe = training_of(recipe).complete_recipe(recipe, None)
    return initial_model(recipe, recipe.tokenizer.vocab_size)


@pytest.mark.parametrize("kind", ["bert", *slowly("roberta")])
@pytest.mark.parametrize("head", ["ForMaskedLM", "Model", "ForSequenceClassification"])
def test_a_head_of_its_own_is_put_on_an_encoder(make, tmp_path, head, kind):
    own = {"labels": ["down", "up"]} if "Class" in head else {}
    settings = {"learning_rate": 3e-2, "max_steps": 40}
    model = {"pooling": "mean", "pooler": "tanh"}
    recipe = make(tmp_path / "run", head, kind, own, model, **settings)
    begun = start_model(recipe).state_dict()
    there = load_model_directory(
        tmp_path / f"{kind}{head}", tasks=kinds_for("embed")
    ).encoder.state_dict()
    for name, weight in begun.items():
        if name.startswith(("encoder", "source_embedding")):
            assert torch.equal(weight, there[name])
    assert begun["output_projection.weight"].shape == (2, 16)
    if "Class" in head and kind == "bert":  # the pooler is new, too: it was trained for others
        assert not torch.equal(begun["pooler.weight"], there["pooler.weight"])
    train(recipe, tmp_path / "run", device="cpu")
    record = read_config(tmp_path / "run")
    assert (record.task, record.labels) == ("classify", ("down", "up"))
    assert record.model.pooler == "tanh"
    assert record.scores["accuracy"] >= 75.0


def test_a_classifier_of_the_same_labels_keeps_its_head(make, tmp_path):
    make(tmp_path / "run", "ForSequenceClassification")
    there = load_model_directory(tmp_path / "bertForSequenceClassification", tasks=("classify",))
    for task in ({}, {"labels": list(there.info.labels)}):
        recipe = make(tmp_path / "run", "ForSequenceClassification", task=task)
        assert recipe.task.labels == there.info.labels
        begun = start_model(recipe).state_dict()
        weights = there.classifier.state_dict()
        assert all(torch.equal(weight, weights[name]) for name, weight in begun.items())


def test_a_resumed_run_ends_with_the_same_bytes_without_its_start(make, tmp_path, one_thread):
    model = {"dropout": 0.1, "pooler": "relu"}
    recipe = partial(make, model=model)
    train(recipe(tmp_path / "whole"), tmp_path / "whole", device="cpu")
    with pytest.raises(Interrupted):
        train(
            recipe(tmp_path / "part"),
            tmp_path / "part",
            device="cpu",
            observers=[at(12, interrupt)],
        )
    train(recipe(tmp_path / "part"), tmp_path / "part", device="cpu")
    assert digest(tmp_path / "part") == digest(tmp_path / "whole")
    again = train(recipe(tmp_path / "part"), tmp_path / "part", device="cpu")
    assert again.was_finished


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_dropout_and_precision_are_free(make, tmp_path, precision):
    free = {"dropout": 0.2, "attention_dropout": 0.1, "pooling": "mean"}
    recipe = make(tmp_path / "run", model=free, precision=precision, max_steps=3)
    train(recipe, tmp_path / "run", device="cpu")
    assert read_config(tmp_path / "run").model.dropout == 0.2
