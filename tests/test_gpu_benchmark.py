"""The benchmark for a GPU, which is seldom at hand: it must run to its end when there is one."""

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "benchmarks"
LOG = """\
[gw0] [ 50%] PASSED tests/test_gpu.py::test_a[x y]
[gw1] [100%] FAILED tests/test_gpu.py::test_b[--set a=b]
_____ test_b[--set a=b] _____
[gw1] linux -- Python
    def test_b():
>       assert f() == 2
E       assert 1 == 2
E        +  where 1 = f()
=== short test summary info ===
FAILED tests/test_gpu.py::test_b[--set a=b]
"""


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    return importlib.import_module("gpu")


def test_failed_tests_are_named_with_their_reason(gpu):
    name = "tests/test_gpu.py::test_b[--set a=b]"
    assert gpu.ended_tests(LOG) == {
        "counts": {"failed": 1, "passed": 1},
        "failures": {name: "assert 1 == 2"},
    }
    stopped = LOG.partition("_____")[0]  # the log of what was killed
    assert gpu.ended_tests(stopped)["failures"] == {name: ""}


def test_what_was_measured_stays_when_a_part_fails_or_takes_too_long(gpu, tmp_path):
    report = gpu.Report(tmp_path, 60.0)
    row = {"trainer": "tformer", "model": "base", "target tokens/s": 1234.5}
    report.attempt("first", 5.0, lambda: report.add("training", **row))
    report.attempt("broken", 5.0, [].pop)
    report.attempt("ended", 5.0, sys.exit, 2)
    begun = time.monotonic()
    report.attempt("slow", 0.2, subprocess.run, ["sleep", "30"])
    assert time.monotonic() - begun < 15.0
    report.seconds = 0.0
    report.attempt("late", 5.0, time.sleep, 5.0)
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert rows[0] == {"kind": "training", **row}
    assert [row["part"] for row in rows[1:]] == ["broken", "ended", "slow", "late"]
    shown = (tmp_path / "results.md").read_text()
    assert "| tformer | base |  | 1,234 |" in shown
    assert "- slow: TimeoutError: stopped after 0 s" in shown


@pytest.mark.long
def test_the_rehearsal_measures_everything(tmp_path):
    pytest.importorskip("ctranslate2")
    pytest.importorskip("transformers")
    subprocess.run(
        [sys.executable, HERE / "gpu.py", "--rehearse", "--seconds", "1200", "--out", tmp_path],
        check=True,
    )
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row for row in rows if row["kind"] == "missing"] == []
    # There is no GPU: the test fails, and its reason is told
    (tests,) = (row for row in rows if row["kind"] == "tests")
    assert sum(tests["counts"].values()) == 1
    assert all("needs a GPU" in why for why in tests["failures"].values())
    trainings = [row for row in rows if row["kind"] == "training"]
    assert len(trainings) == 9
    assert min(row["target tokens/s"] for row in trainings) > 0
    translations = [row for row in rows if row["kind"] == "translation"]
    assert [(row["engine"], row["beam"]) for row in translations] == [
        (name, beam) for name in ("tformer", "CTranslate2", "Hugging Face") for beam in (1, 4)
    ]
    assert (tmp_path / "results.md").read_text().count("\n| ") == 2 * 2 + 9 + 6
