import json
from dataclasses import replace

import pytest
import torch

from tests.watched_training import crash_at, digest
from tformer_cli.errors import RecipeError, TformerError, UsageError
from tformer_cli.heads import roles
from tformer_cli.heads.roles import TokenFrequencies, count_tokens
from tformer_cli.inspect.views.timeline import heads_over_time, read_timeline
from tformer_cli.model.config import ModelConfig
from tformer_cli.plugins.instruments.jobs.diff import inspect_diff, open_model_or_checkpoint
from tformer_cli.plugins.instruments.jobs.follow_heads import (
    N_PAIRS,
    HeadFollower,
    measure_heads,
    probe_pairs,
)
from tformer_cli.recipe import make_recipe
from tformer_cli.text.corpora import SentencePair
from tformer_cli.text.tokenizer import read_tokenizer
from tformer_cli.train.train import train
from tformer_cli.trainer import gradients

CONFIG = ModelConfig(d_model=16, n_heads=2, n_encoder_layers=1, n_decoder_layers=1)
LINES = [f"line number {number} of {number * 7}" for number in range(60)]


@pytest.fixture(scope="module", autouse=True)
def every_test_on_one_thread(one_thread):
    """Trainings here are small, and compared bit for bit."""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    for side in ("source", "target"):
        lines = LINES if side == "source" else [f"{line} t" for line in LINES]
        lines = ["", *lines] if side == "source" else ["blank", *lines]
        (data / side).write_text("".join(f"{line}\n" for line in lines))
    files = [{"source": "source", "target": "target"}]
    values = {
        "data": {
            "train": files,
            "valid": files,
            "directory": str(data),
            "cache_directory": str(data / "cache"),
        },
        "tokenizer": {"vocab_size": 300, "bpe_dropout": 0.1},
        "model": {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 1},
        "training": {
            "precision": "float32",
            "tokens_per_batch": 300,
            "max_steps": 12,
            "warmup_steps": 8,
            "report_every": 1,
            "checkpoint_every": 4,
            "inspect_every": 3,
            "average": "none",
        },
        "validation": {"every": 10, "max_sentences": 4, "metric": "loss"},
        "decoding": {"max_length": 4},
    }
    values["model"]["n_decoder_layers"] = 1
    return make_recipe(values, "test")


def change_recipe(recipe, **keys):
    return replace(recipe, training=replace(recipe.training, **keys))


@pytest.fixture(scope="module")
def trained(recipe, tmp_path_factory):
    return train(recipe, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def whole(trained):
    """A run that nothing has interrupted; not to be changed."""
    return trained.run


def lines_of(run):
    return [json.loads(line) for line in (run / "heads.jsonl").read_text().splitlines()]


def read_run(run):
    """What a run has come to: its weights, and the losses on the way."""
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [(e["kind"], e["step"], e.get("loss"), e.get("scores")) for e in entries]
    return digest(run), losses


def test_every_head_has_a_line_at_each_step_that_is_looked_at(whole):
    lines = lines_of(whole)
    ids = ["enc.0.0", "enc.0.1", "dec.0.0", "dec.0.1", "cross.0.0", "cross.0.1"]
    assert [(line["step"], line["id"]) for line in lines] == [
        (step, name) for step in (0, 3, 6, 9, 12) for name in ids
    ]
    assert {line["schema"] for line in lines} == {"tformer.headsteps/1"}
    assert {line["n_sentences"] for line in lines} == {3}


def test_the_pairs_are_the_first_that_fit_and_are_named(whole):
    named = [json.loads(line) for line in (whole / "heads-probe.jsonl").read_text().splitlines()]
    assert [entry["source"] for entry in named] == LINES[:3], "the blank pair is passed over"
    assert [entry["index"] for entry in named] == [1, 2, 3]
    assert {entry["schema"] for entry in named} == {"tformer.headprobe/1"}
    tokenizer = read_tokenizer(whole / "tokenizer.json")
    pairs = [SentencePair(line, line) for line in LINES]
    probes = probe_pairs(pairs, tokenizer, CONFIG)
    assert [index for index, _, _ in probes] == list(range(N_PAIRS))
    longest = max(len(ids) for ids in tokenizer.encode_batch(LINES))
    short = replace(CONFIG, max_positions=longest)
    assert [index for index, _, _ in probe_pairs(pairs, tokenizer, short)] != list(range(N_PAIRS))


def test_the_numbers_are_those_of_the_checkpoint_of_that_step(whole):
    opened = open_model_or_checkpoint(whole / "checkpoints" / "step-000012")
    assert opened.info.step == 12
    pairs = [
        tuple(opened.tokenizer.encode_batch([entry["source"], entry["target"]]))
        for entry in map(json.loads, (whole / "heads-probe.jsonl").read_text().splitlines())
    ]
    expected = measure_heads(opened.model, pairs, 12)
    assert [line for line in lines_of(whole) if line["step"] == 12] == expected


def test_a_checkpoint_can_be_compared_with_another(whole):
    checkpoints = whole / "checkpoints"
    diff = inspect_diff(checkpoints / "step-000012", checkpoints / "step-000010", LINES[:3])
    assert (diff.first.step, diff.second.step) == (12, 10)
    assert 0 < diff.most_changed.divergence < 0.1
    final = inspect_diff(whole, checkpoints / "step-000012", LINES[:3])
    assert all(change.divergence == 0.0 for change in final.changes)


def test_recording_heads_does_not_change_the_training(recipe, tmp_path, whole):
    result = train(change_recipe(recipe, inspect_every=0), tmp_path / "run")
    assert read_run(tmp_path / "run") == read_run(whole)
    assert not list((tmp_path / "run").glob("heads*"))
    assert result.n_inspections == 0


def test_the_time_is_reported_and_a_finished_run_records_no_more(recipe, trained):
    assert trained.n_inspections == 5
    assert trained.inspection_seconds > 0.0
    assert train(recipe, trained.run).n_inspections == 0


@pytest.mark.parametrize("steps", [(1, 9), (10, 12)])
def test_a_resumed_run_neither_repeats_nor_loses_lines(recipe, tmp_path, whole, steps):
    run = tmp_path / "run"
    for step in steps:
        crash_at(recipe, run, step)
    train(recipe, run)
    for name in ("heads.jsonl", "heads-probe.jsonl"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()
    assert read_run(run) == read_run(whole)


def test_a_torn_line_is_written_again_whole(recipe, tmp_path, whole):
    run = tmp_path / "run"
    crash_at(recipe, run, 9)
    file = run / "heads.jsonl"
    file.write_bytes(file.read_bytes()[:-300])
    train(recipe, run)
    assert file.read_bytes() == (whole / "heads.jsonl").read_bytes()


def test_a_return_to_a_checkpoint_takes_its_lines_back(recipe, tmp_path, monkeypatch):
    true_loss, n_calls = gradients.projected_loss, 0

    def loss(*arguments):
        nonlocal n_calls
        n_calls += 1
        factor = torch.nan if n_calls == 7 else 1.0
        return true_loss(arguments[0] * factor, *arguments[1:])

    monkeypatch.setattr(gradients, "projected_loss", loss)
    run = tmp_path / "run"
    state = train(change_recipe(recipe, inspect_every=1), run).state
    (rollback,) = state.rollbacks
    assert (rollback.step, rollback.failed_step) == (4, 7)
    steps = [line["step"] for line in lines_of(run) if line["id"] == "enc.0.0"]
    assert steps == list(range(13)), "5 and 6 were taken back and written again"


def test_looking_may_begin_and_end_in_the_middle_of_a_run(recipe, tmp_path, whole):
    run = tmp_path / "run"
    crash_at(change_recipe(recipe, inspect_every=0), run, 5)
    crash_at(recipe, run, 11)
    assert sorted({line["step"] for line in lines_of(run)}) == [6, 9]
    crash_at(change_recipe(recipe, inspect_every=0), run, 12)
    assert sorted({line["step"] for line in lines_of(run)}) == [6, 9]
    train(change_recipe(recipe, inspect_every=2), run)
    assert sorted({line["step"] for line in lines_of(run)}) == [6, 9, 12]
    assert read_run(run) == read_run(whole)


def test_fresh_removes_the_records_of_the_heads(recipe, tmp_path, whole):
    run = tmp_path / "run"
    crash_at(recipe, run, 9)
    train(change_recipe(recipe, inspect_every=0, max_steps=1), run, fresh=True)
    assert not list(run.glob("heads*"))


def test_a_file_that_cannot_be_written_fails_the_run_in_one_line(recipe, tmp_path):
    run = tmp_path / "run"
    crash_at(recipe, run, 1)
    (run / "heads.jsonl").unlink()
    (run / "heads.jsonl").mkdir()
    with pytest.raises(TformerError, match=r"heads.jsonl: cannot be read"):
        train(recipe, run)


def test_nan_weights_leave_no_line(recipe, whole, tmp_path):
    opened = open_model_or_checkpoint(whole / "checkpoints" / "step-000012")
    opened.model.encoder.layers[0].self_attention.in_projection.weight.data.fill_(torch.nan)
    assert measure_heads(opened.model, [([5, 6], [7])], 3) == []


def test_rare_words_are_those_of_the_training_corpus(recipe, tmp_path, monkeypatch, whole):
    assert not any("rare_argmax" in line["metrics"] for line in lines_of(whole)), "all are frequent"
    monkeypatch.setattr(roles, "FREQUENT", 3)
    monkeypatch.setattr(roles, "FEWEST_TOKENS", 2)
    train(change_recipe(recipe, max_steps=3), tmp_path / "run")
    lines = lines_of(tmp_path / "run")
    assert {line["step"] for line in lines} == {0, 3}
    for line in lines:
        assert ("rare_argmax" in line["metrics"]) == (line["kind"] == "enc")
    opened = open_model_or_checkpoint(tmp_path / "run")
    pairs = [tuple(opened.tokenizer.encode_batch([line, f"{line} t"])) for line in LINES[:3]]
    counts = opened.tokenizer.encode_batch(LINES)
    frequencies = TokenFrequencies(count_tokens(counts, opened.tokenizer.vocab_size))
    records = measure_heads(opened.model, pairs, 3, frequencies)
    assert records == [line for line in lines if line["step"] == 3]


def test_the_mode_of_the_model_is_left_as_it_was(whole):
    opened = open_model_or_checkpoint(whole / "checkpoints" / "step-000012")
    state = torch.get_rng_state()
    for mode in (True, False):
        opened.model.train(mode)
        measure_heads(opened.model, [([5, 6], [7])], 3)
        assert opened.model.training == mode
    assert torch.equal(torch.get_rng_state(), state)


def test_without_validation_pairs_it_is_refused(recipe):
    with pytest.raises(RecipeError, match=r"training\.inspect_every: needs data\.valid"):
        make_recipe(
            {**recipe.to_mapping(), "data": {**recipe.to_mapping()["data"], "valid": []}}, "x"
        )


def test_a_place_without_a_follower_is_the_runs_own(whole, tmp_path):
    opened = open_model_or_checkpoint(whole)
    follower = HeadFollower(tmp_path, opened.model, opened.tokenizer, [], 0)
    follower.record(0)
    assert not (tmp_path / "heads.jsonl").exists(), "no pair fits, so there is nothing to tell"


def test_the_run_reports_its_heads(whole):
    timeline = heads_over_time(whole, ["cross", "enc.0.1"])
    assert timeline.steps == (0, 3, 6, 9, 12)
    assert [str(course.head) for course in timeline.courses] == [
        "enc.0.1",
        "cross.0.0",
        "cross.0.1",
    ]
    lines = lines_of(whole)
    for course in timeline.courses:
        names = [line["role"] for line in lines if line["id"] == str(course.head)]
        assert list(course.roles) == names
    broad = heads_over_time(whole, ["@entropy_norm>0.9"])
    last = {line["id"]: line["metrics"] for line in lines if line["step"] == 12}
    assert [str(course.head) for course in broad.courses] == [
        name for name, metrics in last.items() if metrics["entropy_norm"] > 0.9
    ]
    with pytest.raises(UsageError, match=r"the heads are enc\.0-0\.0-1"):
        heads_over_time(whole, ["enc.3"])
    assert read_timeline(whole).n_sentences == 3
