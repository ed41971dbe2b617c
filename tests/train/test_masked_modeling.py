"""Runs whose model predicts hidden tokens of texts."""

import json
import random

import numpy as np
import pytest
import torch

from tests.commands import output_of, record_of
from tests.commands import run as ran
from tests.recipes import LEARNING, SHAPE, recipe_maker
from tests.slowly import slowly
from tests.watched_training import check_a_stop_leaves_no_trace
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.kinds.lines.fill import GapFiller
from tformer_cli.kinds.opening import open_model
from tformer_cli.model.encoder_only import MaskedLanguageModel
from tformer_cli.text.masking import masking_of
from tformer_cli.text.tokenizer import PAD_ID
from tformer_cli.train.plan import plan_training
from tformer_cli.train.train import train
from tformer_cli.trainer.gradients import batch_loss

SOUNDS = {"cat": "meows", "dog": "barks", "cow": "moos", "bird": "sings"}


def sentences(n_lines, seed):
    rng = random.Random(seed)
    for _ in range(n_lines):
        animal = rng.choice(list(SOUNDS))
        yield f"the {rng.choice(['old', 'small', 'red'])} {animal} {SOUNDS[animal]}"


@pytest.fixture
def make(tmp_path):
    """Makes recipes of a tiny masked language model, with keys changed."""
    for name, n_lines in (("a", 300), ("b", 40)):
        (tmp_path / f"{name}.txt").write_text("\n".join(sentences(n_lines, n_lines)) + "\n")

    return recipe_maker(
        tmp_path,
        task={"kind": "masked"},
        data={"train": [{"text": "a.txt"}], "valid": [{"text": "b.txt"}], "max_length": 30},
        tokenizer={"algorithm": "word", "vocab_size": 30},
        model={**SHAPE, "n_encoder_layers": 1, "dropout": 0.1, "max_positions": 40},
        training={
            **LEARNING, "max_steps": 24, "tokens_per_batch": 256, "report_every": 6,
            "checkpoint_every": 6,
        },
        validation={"every": 12},
    )  # fmt: skip


def test_a_run_learns_what_belongs_together_and_fills_gaps(make, tmp_path):
    model = {"d_model": 32, "dropout": 0.0, "positions": "learned"}
    recipe = make(model=model, training={"max_steps": 150})
    train(recipe, tmp_path / "run", device="cpu")
    record = read_config(tmp_path / "run")
    assert record.task == "masked"
    assert set(record.scores) == {"loss", "perplexity", "accuracy"}
    assert record.scores["accuracy"] > 55.0
    filler = GapFiller(open_model(tmp_path / "run", "fill", device="cpu"))
    lines = [f"the old {animal} [MASK]" for animal in SOUNDS]
    assert [text.filled for text in filler.fill(lines)] == [
        f"the old {animal} {sound}" for animal, sound in SOUNDS.items()
    ]
    assert train(recipe, tmp_path / "run", device="cpu").was_finished


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tokenizer": {"algorithm": "bpe", "vocab_size": 290, "bpe_dropout": 0.2}},
        *slowly({"data": {"text": "stream"}, "tokenizer": {"algorithm": "char"}}),
    ],
    ids=str,
)
def test_a_resumed_run_ends_with_the_same_bytes(make, tmp_path, one_thread, changes):
    check_a_stop_leaves_no_trace(make(**changes), tmp_path, 12)


def test_the_loss_is_of_hidden_tokens_alone(make, tmp_path):
    train(make(training={"max_steps": 1}), tmp_path / "run", device="cpu")
    directory = load_model_directory(tmp_path / "run", tasks=("masked",))
    model = directory.masked_model
    assert isinstance(model, MaskedLanguageModel)
    texts = directory.tokenizer.source.encode_batch(list(sentences(12, 5)))
    batch = masking_of(directory.tokenizer).batch(texts, np.random.default_rng(1))
    loss = batch_loss(model, batch, label_smoothing=0.0, precision="float32")
    logits = model(batch.source, batch.source_mask)
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.target_output.flatten(), ignore_index=PAD_ID, reduction="sum"
    )
    assert loss.negative_log_likelihood.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_plan_shows_a_text(make):
    plan = plan_training(make())
    assert plan.example[0].target.startswith("the ")
    assert not list(plan.doubts)
    assert make(data={"train": [{"tsv": "a.tsv"}]}).data.train[0].tsv == "a.tsv"


def test_heads_are_followed_on_the_first_texts(make, tmp_path):
    run = tmp_path / "run"
    train(make(training={"inspect_every": 12}), run, device="cpu")
    lines = [json.loads(line) for line in (run / "heads.jsonl").read_text().splitlines()]
    assert [(record["step"], record["id"], record["n_sentences"]) for record in lines] == [
        (step, f"enc.0.{head}", 32) for step in (0, 12, 24) for head in (0, 1)
    ]
    probe = [json.loads(line) for line in (run / "heads-probe.jsonl").read_text().splitlines()]
    texts = (tmp_path / "b.txt").read_text().splitlines()[:32]
    assert [pair["target"] for pair in probe] == texts
    counted = json.loads((run / "frequencies.json").read_text())["source"]
    assert sum(counted) == sum(len(line.split()) for line in sentences(300, 300))
    (tmp_path / "first.txt").write_text("\n".join(texts) + "\n")
    options = ("-i", str(tmp_path / "first.txt"), "--corpus", "--format", "jsonl", "-q")
    shown = ran("inspect-heads", run, *options)
    assert shown.exit_code == 0, shown.stderr
    for line, last in zip(map(json.loads, shown.stdout.splitlines()), lines[-2:], strict=True):
        assert line["id"] == last["id"]
        assert line["metrics"]["entropy"] == pytest.approx(last["metrics"]["entropy"], rel=1e-4)
    output_of("inspect-heads", run, "--over-time", "-q")


def test_evaluate_hides_the_same_tokens_every_time(make, tmp_path):
    model = {"d_model": 32, "dropout": 0.0, "positions": "learned"}
    train(make(model=model, training={"max_steps": 60}), tmp_path / "run", device="cpu")
    words = ["evaluate", str(tmp_path / "run"), "--text", str(tmp_path / "b.txt"), "-q"]
    scores = record_of(*words, "--format", "json")
    stored = read_config(tmp_path / "run").scores
    # hidden alike in validation, which cuts texts off elsewhere
    assert {name: scores[name] for name in stored} == pytest.approx(dict(stored), rel=1e-5)
    assert scores["signature"] == "text:lines|window:39|masked:0.15|draw:by text"
    table = ran(*words).stdout
    assert f"{scores['accuracy']:.2f}  of hidden tokens" in table
    refused = ran(*words, "--stride", "4")
    assert refused.exit_code == 2
    assert refused.stderr == "error: --stride: MODEL reads each text as a whole; omit it\n"
    (tmp_path / "none.txt").write_text("\n \n")
    words[3] = str(tmp_path / "none.txt")
    refused = ran(*words)
    assert refused.stderr == "error: --text: has nothing to predict; give a text\n"
