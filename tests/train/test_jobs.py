"""What `tformer info` says of runs and of other jobs."""

import json
import os
import shutil

import pytest

from tests.commands import output_of, record_of, refused
from tests.zoo import recipe_of
from tformer_cli.files.atomic import lock_directory, sign_lock
from tformer_cli.train.jobs import find_jobs


@pytest.fixture(scope="module")
def finished(zoo, tmp_path_factory):
    """A run of two steps."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "my.toml").write_text(recipe_of("translate", zoo.inputs))
    output_of("train", folder / "my.toml", "-o", folder / "run", "--max-steps", 2, "-q",
              "--threads", 1)  # fmt: skip
    return folder / "run"


@pytest.fixture
def run(finished, tmp_path):
    """A run that was killed after 30 of 40 steps: 20 s of training and 6 of validation."""
    run = tmp_path / "run"
    run.mkdir()
    recipe = (finished / "recipe.toml").read_text()
    assert recipe.count("max_steps = 2\n") == 1
    (run / "recipe.toml").write_text(recipe.replace("max_steps = 2\n", "max_steps = 40\n"))
    (run / ".lock").write_text(
        '{"process": 99999999, "host": "far", "since": "2026-01-01T00:00:00"}'
    )
    events = [
        {"kind": "report", "step": 10, "seconds": 8.0, "share_done": 0.25},
        {"kind": "validation", "step": 10, "scores": {}, "seconds": 4.0, "weights": "current"},
        {"kind": "report", "step": 30, "seconds": 24.0, "share_done": 0.75},
        {"kind": "validation", "step": 30, "scores": {}, "seconds": 2.0, "weights": "current"},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return run


def test_a_killed_run_says_how_far_it_was(run):
    (job,) = find_jobs(run).values()
    assert (job.command, job.state, job.process, job.host) == (
        "train",
        "interrupted",
        99999999,
        "far",
    )
    assert (job.done, job.total, job.unit) == (30, 40, "steps")
    assert [(row.part, row.seconds) for row in job.times] == [("training", 20), ("validating", 6)]
    assert job.seconds == 26
    assert job.per_second == pytest.approx(30 / 26)
    assert job.seconds_left == pytest.approx(26 / 3)
    text = output_of("info", run)
    assert "interrupted after" in text
    assert "in process 99999999 on far; the same command resumes it" in text
    assert "30 of 40 steps (75%)" in text
    assert "training 77%, validating 23%" in text


def test_a_run_that_goes_on_has_time_left(run):
    before = {file.name: file.stat().st_mtime_ns for file in run.iterdir()}
    with lock_directory(run):
        record = record_of("info", run, "--format", "json")
        text = output_of("info", run)
    assert "running; last report at" in text  # the process in the lock has ended
    assert record["schema"] == "tformer.jobs/1"
    (job,) = record["jobs"]
    assert (job["path"], job["schema"], job["state"]) == ("", "tformer.job/1", "running")
    assert "Time left" in text
    assert "about 9 s" in text
    del before[".lock"]
    assert before == {f.name: f.stat().st_mtime_ns for f in run.iterdir() if f.name != ".lock"}


def test_a_finished_run_is_described_as_a_model_and_keeps_its_job_in_json(finished):
    assert "State" not in output_of("info", finished)
    record = record_of("info", finished, "--format", "json")
    (job,) = record["jobs"]
    assert (record["schema"], job["state"]) == ("tformer.info/1", "finished")
    assert job["done"] == job["total"] == record["step"] == 2
    assert "max_steps" in job["reason"]


def test_a_run_that_prepares_its_data_is_running_too(tmp_path):
    with lock_directory(tmp_path):
        sign_lock(tmp_path)
        (job,) = find_jobs(tmp_path).values()
        assert (job.state, job.process, job.doing, job.total) == (
            *("running", os.getpid()),
            *("preparing", None),
        )
        assert "0 steps; preparing" in output_of("info", tmp_path)
    assert find_jobs(tmp_path) == {}


def test_a_model_with_its_recipe_is_no_job_and_odd_metrics_cost_only_the_times(run, finished):
    (run / "metrics.jsonl").write_text(
        '{"kind": "report", "step": 3}\n{"kind": "validation", "step": 4, "scores": {}}\n'
    )
    (job,) = find_jobs(run).values()
    assert (job.done, job.times, job.seconds, job.per_second) == (4, (), 0, None)
    (run / ".lock").unlink()
    assert find_jobs(run) == {}


def test_runs_of_several_seeds_are_listed(run, tmp_path, finished):
    folder = tmp_path / "seeds"
    shutil.copytree(finished, folder / "seed-9")
    shutil.copytree(run, folder / "seed-10")
    (folder / "seed-11").mkdir()
    jobs = find_jobs(folder)
    assert {name: job.state for name, job in jobs.items()} == {
        "seed-9": "finished",
        "seed-10": "interrupted",
    }
    rows = [line.split() for line in output_of("info", folder).splitlines()]
    assert [row[1] for row in rows if row[0] == "Directory"] == ["seed-9", "seed-10"]


def test_a_directory_of_nothing_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    refused("info", tmp_path, says=str(tmp_path))
    file = tmp_path / "job.json"
    file.write_text('{"schema": "tformer.job/1"')
    refused("info", tmp_path, says="job.json: is damaged")
    for text in ("{", "[]", '{"name": "nightly"}', '{"schema": "other.job/1"}'):
        file.write_text(text)
        assert "damaged" not in refused("info", tmp_path, says=str(tmp_path))


def test_a_job_of_another_program_does_not_hide_the_model(run, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(run, folder)
    before = output_of("info", folder)
    (folder / "job.json").write_text('{"schema": "nightly/2", "queue": [1]}')
    assert find_jobs(folder) == find_jobs(run)
    assert len(output_of("info", folder).splitlines()) == len(before.splitlines())


def test_a_distillation_shows_the_training_that_it_waits_for(run, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    shutil.copytree(run, folder / "student")
    record = {
        "schema": "tformer.job/1", "command": "distill", "state": "running", "process": 1,
        "host": "far", "begun": "2026-01-01T00:00:00", "updated": "soon", "unit": "stages",
        "done": 2, "total": 6, "doing": "student",
    }  # fmt: skip
    (folder / "job.json").write_text(json.dumps(record))
    jobs = find_jobs(folder)
    assert [(name, job.command, job.done) for name, job in jobs.items()] == [
        ("", "distill", 2),
        ("student", "train", 30),
    ]
    # On another machine the lock says nothing here
    assert jobs[""].state == "running"
    assert "running since" in output_of("info", folder)
