"""Runs whose model labels images."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.commands import records_of
from tests.recipes import LEARNING, SHAPE, recipe_maker
from tests.text.images.test_reading import idx_bytes, picture
from tests.watched_training import Watcher, check_a_stop_leaves_no_trace, digest
from tformer_cli.artifacts.config_file import check_task, read_config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import ArtifactError, DataError
from tformer_cli.kinds import training_of
from tformer_cli.model.encoder_only import model_of
from tformer_cli.text.loading.encoded import encode_corpus
from tformer_cli.train.data import completed_recipe, make_tokenizer
from tformer_cli.train.plan import plan_training
from tformer_cli.train.train import train
from tformer_cli.trainer.batch_budget import PairLengths, settle_tokens_per_batch
from tformer_cli.trainer.events import ValidationReport
from tformer_cli.trainer.optimizers.optimizer import make_optimizer


@pytest.fixture
def make(tmp_path):
    """Makes recipes of a tiny classifier of shapes, with keys changed."""

    corpus = {"pairs": 120}
    return recipe_maker(
        tmp_path,
        task={"kind": "image"},
        data={
            "train": [{**corpus, "shapes": "train"}], "valid": [{**corpus, "shapes": "valid"}]
        },
        model={
            **SHAPE, "n_encoder_layers": 1, "norm": "pre", "activation": "gelu",
            "positions": "learned", "patch_size": 8, "image_shift": 1, "image_flip": True,
        },
        training={
            **LEARNING, "max_steps": 30, "tokens_per_batch": 200, "report_every": 10,
            "checkpoint_every": 10,
        },
        validation={"every": 15},
    )  # fmt: skip


def test_a_run_learns_labels_and_says_how_well(make, tmp_path):
    watcher = Watcher()
    (tmp_path / "images.idx").write_bytes(
        idx_bytes(np.stack([np.full((4, 4), 250 * (n % 2)) for n in range(40)]))
    )
    (tmp_path / "labels").write_text("dark\nlight\n" * 20)
    corpus = {"images": "images.idx", "labels": "labels"}
    recipe = make(
        data={"train": [corpus], "valid": [corpus]},
        model={"patch_size": 2, "image_shift": 0, "image_flip": False},
    )
    train(recipe, tmp_path / "run", device="cpu", observers=[watcher])
    last = watcher.of(ValidationReport)[-1]
    assert set(last.scores) == {"loss", "accuracy", "macro_f1"}
    assert last.scores["accuracy"] == 100.0
    assert last.sample_source.startswith(f"{tmp_path / 'images.idx'}#")
    record = read_config(tmp_path / "run")
    assert (record.task, record.labels) == ("image", ("dark", "light"))
    assert record.model.image_size == (4, 4, 1)
    assert record.model.image_mean == (pytest.approx(125 / 255, abs=1e-6),)
    assert record.model.image_std == (pytest.approx(125 / 255, abs=1e-6),)
    # the run's own recipe is the one that was given: the same command resumes it
    assert train(recipe, tmp_path / "run", device="cpu").was_finished


def test_heads_are_followed_on_the_first_images(make, tmp_path):
    run = tmp_path / "run"
    train(make(training={"max_steps": 4, "inspect_every": 2}), run, device="cpu")
    lines = [json.loads(line) for line in (run / "heads.jsonl").read_text().splitlines()]
    n_heads = len({record["id"] for record in lines})
    assert [record["step"] for record in lines] == sorted([0, 2, 4] * n_heads)
    names = [
        json.loads(line)["source"] for line in (run / "heads-probe.jsonl").read_text().splitlines()
    ]
    (tmp_path / "first.txt").write_text("\n".join(names) + "\n")
    options = ("-i", str(tmp_path / "first.txt"), "--corpus", "--format", "jsonl", "-q")
    records = records_of("inspect-heads", run, *options)
    for record, last in zip(records, lines[-n_heads:], strict=True):
        assert record["n_sentences"] == last["n_sentences"] == len(names)
        assert record["metrics"]["entropy"] == pytest.approx(last["metrics"]["entropy"], rel=1e-4)


def test_a_resumed_run_ends_with_the_same_bytes(make, tmp_path, one_thread):
    """The images that augmentation makes are part of it."""
    check_a_stop_leaves_no_trace(make(), tmp_path, 20)
    # and augmentation matters: without it the run ends elsewhere
    plain = make(model={"image_shift": 0, "image_flip": False})
    train(plain, tmp_path / "plain", device="cpu")
    assert digest(tmp_path / "plain") != digest(tmp_path / "whole")


def test_a_token_is_a_patch_for_budgets_and_counts(make, one_thread):
    recipe = completed_recipe(make())
    tokenizer = training_of(recipe).sides(make_tokenizer(recipe), recipe.task.labels)
    corpus = encode_corpus(recipe.data.train[0], recipe.data, tokenizer)
    assert corpus.lengths([0, 1]).tolist() == [[9, 9], [1, 1]]
    lengths = PairLengths.of([corpus])
    assert (lengths.source, lengths.shortest, lengths.total) == (10, 10, 1200)
    model = model_of(recipe.model, tokenizer.source.vocab_size)
    open_budget = replace(recipe.training, tokens_per_batch=0)
    optimizer = make_optimizer(model, open_budget)
    assert settle_tokens_per_batch(model, open_budget, lengths, "float32", optimizer) == 1200
    plan = plan_training(make())
    assert plan.batch_shapes[0] == (20, 9, 1)
    text = "\n".join(plan.lines())
    assert "24×24 pixels, 1 channel, mean 0.2" in text
    assert "3×3 patches of 8×8 are the tokens" in text


def test_the_directory_holds_all_that_an_image_needs(make, tmp_path):
    train(make(training={"max_steps": 2}), tmp_path / "run", device="cpu")
    directory = load_model_directory(tmp_path / "run", tasks=("image",))
    assert directory.classifier.config.image_size == (24, 24, 1)
    with pytest.raises(ArtifactError, match="is a classifier of images; use `tformer classify`"):
        check_task(tmp_path, directory.config, ("classify", "translate"))
    tokenizer = tmp_path / "run" / "tokenizer.json"
    text = tokenizer.read_text()
    tokenizer.write_text(text.replace('"patch_size": 8', '"patch_size": 4'))
    with pytest.raises(ArtifactError, match=r"is for other images than config.json says"):
        load_model_directory(tmp_path / "run", tasks=("image",))
    tokenizer.write_text(text)
    config = tmp_path / "run" / "config.json"
    record = config.read_text()
    config.write_text(record.replace('"image_std": [\n', '"image_std": [], "x": [\n'))
    with pytest.raises(ArtifactError, match=r"model.x: unknown key|image_std"):
        read_config(tmp_path / "run")


def test_pictures_of_all_sizes_are_scaled_if_asked_for(make, tmp_path):
    for number, size in enumerate(((20, 30), (24, 24), (50, 40))):
        for label in ("cat", "dog"):
            path = tmp_path / "animals" / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture("RGB", size, seed=number)[1])
    corpus = [{"images": "animals"}]
    with pytest.raises(DataError, match=r"cat/1.png: has 24×24 pixels, but images here have 30×20"):
        plan_training(make(data={"train": corpus, "valid": []}, model={"patch_size": 10}))
    changes = {"image_size": [16, 16, 3]}
    scales = {"train": corpus, "valid": corpus, "scale_images": True}
    recipe = make(data=scales, model=changes, training={"max_steps": 2})
    train(recipe, tmp_path / "run", device="cpu")
    model = read_config(tmp_path / "run").model
    assert model.image_size == (16, 16, 3)
    assert len(model.image_mean) == 3
    gray = make(data=scales, model={"image_size": [16, 16, 1]})
    assert completed_recipe(gray).model.image_mean == (pytest.approx(0.5, abs=0.05),)
