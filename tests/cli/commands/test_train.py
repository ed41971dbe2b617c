import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tests.recipes import tiny_translator
from tformer_cli.cli.app import app
from tformer_cli.cli.commands.train_options import ProcessOptions, parse_minutes
from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import lock_directory
from tformer_cli.trainer.processes.launch import Group


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    directory = tmp_path_factory.mktemp("recipe")
    path = directory / "tiny.toml"
    make = tiny_translator(
        directory,
        tokenizer={"bpe_dropout": 0.1},
        training={
            "accumulate": 2, "max_steps": 24, "report_every": 1, "checkpoint_every": 3,
            "average_checkpoints": 3,
        },
        validation={"every": 8, "patience": 50},
    )  # fmt: skip
    path.write_text(make().to_toml())
    return path


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def train(recipe, run, *options):
    return CliRunner().invoke(app, ["train", str(recipe), "-o", str(run), *options])


def train_and_end(recipe, run, ends, *options):
    """Trains in processes that are ended as asked; returns (status, stdout, stderr) of each."""
    arguments = ["train", str(recipe), "-o", str(run), "--threads", "1", *options]
    request = json.dumps({"arguments": arguments, "run": str(run), "ends": ends})
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("ended_runs.py"))],
        input=request,
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        },
    )
    return json.loads(done.stdout)


def digest(run):
    return hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()


def reported_steps(run):
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [entry["step"] for entry in entries if entry["kind"] == "report"]


@pytest.fixture(scope="module")
def whole_run(recipe, tmp_path_factory):
    """A run that nothing has interrupted."""
    run = tmp_path_factory.mktemp("whole") / "run"
    ((status, stdout, stderr),) = train_and_end(recipe, run, [["", 0]])
    assert status == 0, stderr
    return run, stdout, stderr


@pytest.mark.long
def test_a_run_ended_in_every_way_reaches_the_same_weights(recipe, run, whole_run):
    ends = [["SIGKILL", 2], ["SIGTERM", 7], ["SIGINT", 11], ["SIGKILL", 14], ["SIGKILL", 21]]
    *ended, last = train_and_end(recipe, run, [*ends, ["", 0]])
    assert [status for status, _, _ in ended] == [-9, 143, 130, -9, -9]
    assert last[0] == 0, last[2]
    assert "resuming from step" in last[2]
    for status, stdout, stderr in ended[1:3]:
        assert stdout == "", status
        assert stderr.splitlines()[-1].startswith("error: stopped at step ")
    assert digest(run) == digest(whole_run[0])
    assert reported_steps(run) == list(range(1, 25))


@pytest.mark.long
def test_twenty_kills_at_random_moments_leave_no_trace(recipe, run, whole_run):
    draw = random.Random(7)
    options = ("--set", "training.checkpoint_every=2", "--max-steps", "80")
    whole = run.with_name("whole")
    assert train_and_end(recipe, whole, [["", 0]], *options)[0][0] == 0
    n_killed, seconds = 0, 0.6
    while n_killed < 20:
        moments = [["SIGKILL", draw.uniform(0.05, seconds)] for _ in range(20 - n_killed)]
        statuses = [end[0] for end in train_and_end(recipe, run, moments, *options)]
        n_killed += statuses.count(-9)
        if 0 in statuses and n_killed < 20:  # it has ended too soon to be killed twenty times
            n_killed, seconds = 0, seconds / 2
            shutil.rmtree(run)
    assert train_and_end(recipe, run, [["", 0]], *options)[0][0] == 0
    assert digest(run) == digest(whole)
    assert reported_steps(run) == list(range(1, 81))
    assert not list(run.rglob("*.partial"))


def test_stdout_is_the_run_directory_and_stderr_is_plain_in_a_pipe(whole_run):
    run, stdout, stderr = whole_run
    assert stdout == f"{run}\n"
    assert "\x1b" not in stderr
    assert "step 24, epoch " in stderr
    assert "validation of average: BLEU" in stderr
    assert "finished in " in stderr


def test_a_finished_run_is_reported_and_unchanged(recipe, whole_run):
    run = whole_run[0]
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    done = train(recipe, run)
    assert (done.exit_code, done.stdout) == (0, f"{run}\n")
    assert "is finished: max_steps = 24 is reached (step 24)" in done.stderr
    after = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert after == before


def test_another_recipe_is_refused_by_its_keys(recipe, whole_run):
    done = train(recipe, whole_run[0], "--set", "model.dropout=0.3", "--seed", "9")
    assert done.exit_code == 2
    assert "model.dropout, training.seed differ" in done.stderr
    assert done.stderr.count("\n") == 1


def test_fresh_needs_yes_in_a_pipe_and_then_starts_over(recipe, run):
    assert train(recipe, run, "--quiet", "--max-steps", "2").exit_code == 0
    (run / "notes.txt").write_text("mine")
    refused = train(recipe, run, "--quiet", "--max-steps", "3", "--fresh")
    assert refused.exit_code == 2
    assert "add --yes" in refused.stderr
    done = train(recipe, run, "--quiet", "--max-steps", "3", "--fresh", "--yes")
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{run}\n", "")
    assert reported_steps(run) == [1, 2, 3]
    assert (run / "notes.txt").read_text() == "mine"


def test_two_trainings_in_one_directory_are_refused(recipe, run):
    run.mkdir()
    with lock_directory(run):
        done = train(recipe, run)
    assert done.exit_code == 2
    assert "another training process uses this directory" in done.stderr


def test_places_that_hold_no_run_are_refused(recipe, run, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "below", Path("/proc/nowhere/run")):
        done = train(recipe, place)
        assert done.exit_code == 2
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    run.mkdir()
    (run / "model.safetensors").write_bytes(b"precious")
    assert "holds a model but not a run" in train(recipe, run).stderr
    assert "add --yes" in train(recipe, run, "--fresh").stderr
    assert (run / "model.safetensors").read_bytes() == b"precious"


def test_a_dry_run_prints_a_recipe_that_trains_and_writes_nothing(recipe, run, tmp_path):
    done = train(recipe, run, "--dry-run", "--max-steps", "2")
    assert done.exit_code == 0, done.stderr
    assert not run.exists()
    assert "# parameters: 10,368 with a vocabulary of 300" in done.stdout
    assert "# batches, sentences×(source, target) positions: " in done.stdout
    assert "# source: " in done.stdout
    assert tomllib.loads(done.stdout)["training"]["max_steps"] == 2
    saved = tmp_path / "saved.toml"
    saved.write_text(done.stdout)
    assert train(saved, run, "--quiet").exit_code == 0
    assert reported_steps(run) == [1, 2]


def test_a_dry_run_stays_toml_whatever_the_text_holds(recipe, run, tmp_path):
    (tmp_path / "x.tsv").write_bytes(b"a\0b\x0cc\x7f\rd\tq\n" * 20)
    done = train(recipe, run, "--dry-run", "--set", f'data.train=[{{tsv="{tmp_path}/x.tsv"}}]')
    assert done.exit_code == 0, done.stderr
    assert tomllib.loads(done.stdout)


@pytest.mark.parametrize(
    ("text", "minutes"), [("90s", 1.5), ("10m", 10), ("1h30m", 90), ("2h", 120), ("7", 7)]
)
def test_durations_are_read(text, minutes):
    assert parse_minutes(text) == minutes


@pytest.mark.parametrize("text", ["", "h", "m", "0s", "-3m", "10 m", "1d", "m10", "nan"])
def test_other_texts_than_durations_are_refused(text):
    with pytest.raises(UsageError, match="--max-time"):
        parse_minutes(text)


def test_a_profile_is_a_result_and_leaves_no_run(recipe, run):
    result = train(recipe, run, "--profile", "1", "--quiet")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("where the time goes")
    assert result.stderr == ""
    assert not run.exists()


def test_a_command_that_does_not_train_removes_nothing_and_asks_nothing(recipe, whole_run):
    run, _, _ = whole_run
    before = sorted(run.rglob("*"))
    for options in (("--profile", "1"), ("--dry-run",)):
        done = train(recipe, run, "--fresh", "--quiet", *options)
        assert (done.exit_code, done.stderr) == (0, "")
    assert sorted(run.rglob("*")) == before


def test_tensorboard_without_its_extra_is_one_line_and_no_run(recipe, run, monkeypatch):
    for name in ("tensorboardX", "tensorboardX.event_file_writer"):  # another test may have both
        monkeypatch.setitem(sys.modules, name, None)
    result = train(recipe, run, "--tensorboard")
    assert result.exit_code == 2
    assert result.stderr.endswith("or omit the option\n")
    assert "pip install 'tformer[tensorboard]'" in result.stderr
    assert not run.exists()


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--profile", "1")])
def test_a_missing_corpus_names_key_folder_and_where_it_comes_from(tmp_path, options):
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        '[data]\ntrain = [{ tsv = "a.tsv" }]\nvalid = [{ tsv = "b.tsv" }]\n'
        'origin = "Mine, from https://example.org"\n[training]\nmax_steps = 1\n'
    )
    for key, name in (("train", "a.tsv"), ("valid", "b.tsv")):
        result = train(recipe, tmp_path / "run", "--set", f"data.directory={tmp_path}", *options)
        assert result.exit_code == 2
        assert result.stderr == (
            f"error: {recipe}: data.{key}: no such file {tmp_path / name}; set data.directory "
            "(--set data.directory=DIR) to the folder that holds it. "
            "Mine, from https://example.org\n"
        )
        (tmp_path / name).write_text("one\teins\n")
    assert not (tmp_path / "run").exists()


def test_doubts_about_the_data_are_one_warning_each(tmp_path):
    recipe, run = tmp_path / "odd.toml", tmp_path / "run"
    make = tiny_translator(
        tmp_path,
        data={
            "source_language": "en", "target_language": "fr", "train": [{"tsv": "a.tsv"}],
            "valid": [],
        },
        training={"max_steps": 2, "checkpoint_every": 1},
        validation={"metric": "bleu"},
    )  # fmt: skip
    recipe.write_text(make().to_toml())
    line = "Le chat est dans la maison.\tThe cat is in the house.\n"
    (tmp_path / "a.tsv").write_text(f"source\ttarget\n{line * 10}")
    expected = [
        (
            "warning: data.valid: names no corpus, so no step is validated and the best cannot be "
            "chosen; hold out some of the data for it"
        ),
        (
            'warning: a.tsv: its first line ("source", "target") looks like a header and '
            "would be trained on; remove it (tail -n +2)"
        ),
        (
            'warning: a.tsv: the source looks like "fr" and the target like "en"; swap them, or '
            "data.source_language and data.target_language"
        ),
    ]

    def warnings_of(*options):
        done = train(recipe, run, *options)
        assert done.exit_code == 0, done.stderr
        return [text for text in done.stderr.splitlines() if text.startswith("warning: ")]

    assert warnings_of("--dry-run") == expected
    assert warnings_of("--max-steps", "2", "--quiet") == expected
    assert warnings_of("--max-steps", "2") == []  # it is finished
    assert not (run / "a.tsv").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is usable here")
def test_a_dry_run_checks_the_device(recipe, run):
    done = train(recipe, run, "--dry-run", "--device", "cuda")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --device: ")


def test_groups_of_processes_are_read():
    assert ProcessOptions().group() is None
    assert ProcessOptions(processes=3).group() == Group(n_processes=3)
    several = Group(n_processes=1, min_machines=1, max_machines=4, meeting_point="node1:29500")
    assert ProcessOptions(processes=None, nodes="1:4", meet="node1:29500").group() == several


@pytest.mark.parametrize(
    ("nodes", "meet", "message"),
    [
        ("0", "a:1", "--nodes"),
        ("3:2", "a:1", "--nodes"),
        ("two", "a:1", "--nodes"),
        ("2", None, "--meet"),
        ("2", "node1:65536", "--meet"),
        ("2", "node1:0", "--meet"),
        (None, "a:1", "--nodes"),
        ("2", "a", "HOST:PORT"),
    ],
)
def test_groups_that_cannot_meet_are_refused(nodes, meet, message):
    with pytest.raises(UsageError, match=message):
        ProcessOptions(processes=2, nodes=nodes, meet=meet).group()


def test_processes_are_not_started_by_two(monkeypatch):
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    for name, value in {**place, "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="torchrun"):
        ProcessOptions(processes=2).group()
