import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_app import only_line, run_here
from tests.models import LINES
from tests.plugins.corpora_tools.distill.conftest import RECIPE, TARGETS, write_lines
from tests.plugins.corpora_tools.distill.test_distill import measured_here
from tformer_cli.plugins.corpora_tools.distill import report


@pytest.fixture
def recipe(tmp_path, model):
    write_lines(tmp_path / "train.en", LINES * 4)
    write_lines(tmp_path / "train.de", TARGETS * 4)
    path = tmp_path / "small.toml"
    path.write_text(RECIPE.format(directory=tmp_path, teacher=model), encoding="utf-8")
    return path


@pytest.fixture
def in_process(monkeypatch):
    """Measures here: a process takes a second to begin."""
    monkeypatch.setattr(report, "measure_in_turns", measured_here)
    monkeypatch.setattr(report, "ROUNDS", 1)


def distill(*arguments):
    return run_here("distill", *arguments, "--threads", "1")


def test_tables_are_on_stdout_and_all_else_on_stderr(recipe, tmp_path, in_process):
    out = tmp_path / "out"
    done = distill(recipe, "-o", out)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Systems"
    assert any(line.split()[:2] == ["int8", "student"] for line in lines)
    assert "Choice among the teacher's translations" in lines
    assert "translate train-0: by " in done.stderr
    # a student learns no translations that are blank, such as controls that a random teacher writes
    assert "skipped" not in re.sub(r"skipped: \d+ blank", "", done.stderr)
    assert f"{out}/report/report.html shows it as a page" in done.stderr
    assert "Where the time went\nStage " in done.stderr
    (job,) = json.loads(run_here("info", out, "--format", "json").stdout)["jobs"]
    assert (job["command"], job["state"], job["done"], job["total"]) == (
        "distill",
        "finished",
        6,
        6,
    )
    stages = {row["stage"]: [] for row in job["times"]}
    for row in job["times"]:
        stages[row["stage"]].append(row["part"])
    assert {"opening", "tokenizing", "search", "writing"} < {*stages["translate train-0"]}
    assert {"preparing", "training"} < {*stages["student"]}
    # Nearly all of the time is in the table
    assert sum(row["seconds"] for row in job["times"]) == pytest.approx(job["seconds"], rel=0.1)
    again = distill(recipe, "-o", out, "--quiet", "--format", "json")
    assert (again.exit_code, again.stderr) == (0, "")
    record = json.loads(again.stdout)
    assert record == json.loads((out / "report/report.json").read_text(encoding="utf-8"))
    assert record["schema"] == "tformer.distillation/1"
    page = (out / "report/report.html").read_text(encoding="utf-8")
    assert "<h1>Teacher and student</h1>" in page
    assert "<script" not in page


def test_a_dry_run_prints_the_plan_and_writes_nothing(recipe, tmp_path):
    done = distill(recipe, "-o", tmp_path / "out", "--dry-run")
    assert done.exit_code == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        *("translate train-0", "select", "student", "shortlist", "int8", "report", "student")
    ]
    assert "int8 weights" in done.stdout
    assert not (tmp_path / "out").exists()


def test_fresh_asks_before_anything_is_deleted(recipe, tmp_path, in_process):
    out = tmp_path / "out"
    assert distill(recipe, "-o", out, "--set", "distillation.int8=false", "-q").exit_code == 0
    refused = distill(recipe, "-o", out, "--fresh")
    assert refused.exit_code == 2
    assert only_line(refused.stderr) == (
        f"error: --fresh: would remove the distillation in {out}; add --yes to agree"
    )
    assert (out / "student/model.safetensors").exists()
    anew = distill(recipe, "-o", out, "--set", "distillation.int8=false", "--fresh", "--yes")
    assert anew.exit_code == 0
    assert "select: the best by chrf\n" in anew.stderr
    message = distill(recipe, "-o", out, "--set", "distillation.int8=false").stderr
    assert "select: the best by chrf; unchanged; skipped\n" in message


@pytest.mark.long
def test_kills_at_random_moments_leave_the_same_student(recipe, tmp_path):
    """Everything but the report, whose speeds differ, has the same bytes as without a kill."""
    more = ["--set", "training.max_steps=40", "--set", "training.checkpoint_every=5"]
    lines = [f"{line} {number}" for number in range(300) for line in LINES]
    write_lines(tmp_path / "train.en", lines)
    write_lines(tmp_path / "train.de", TARGETS * 300)

    def start_distilling(out):
        command = [
            sys.executable, "-m", "tformer_cli", "distill", str(recipe), "-o", str(out), "-q",
        ]  # fmt: skip
        return subprocess.Popen(
            [*command, "--threads", "1", *more], stdout=subprocess.DEVNULL, start_new_session=True
        )

    def read_outputs(out):
        names = ("translations/train-0.jsonl", "corpora/train-0.jsonl", "corpora/selection.json",
                 "student/model.safetensors", "student/shortlist.safetensors",
                 "int8/model.safetensors")  # fmt: skip
        return [(Path(out) / name).read_bytes() for name in names]

    begin = time.monotonic()
    assert start_distilling(tmp_path / "whole").wait() == 0
    seconds = time.monotonic() - begin
    draw, n_killed = random.Random(5), 0
    for number in range(4):
        out = tmp_path / f"killed-{number}"
        status = None
        while status != 0:
            process = start_distilling(out)
            try:
                status = process.wait(timeout=draw.uniform(0.2, 0.7) * seconds)
                assert status == 0
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                n_killed += 1
        assert read_outputs(out) == read_outputs(tmp_path / "whole")
        assert not [path for path in out.rglob("*") if ".part" in path.name]
    assert n_killed >= 4
