import json

import pytest


@pytest.fixture
def make_run(tmp_path):
    """Writes the metrics of a run; returns its directory."""

    def write_run(name, *entries, rest=""):
        run = tmp_path / name
        run.mkdir()
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        (run / "metrics.jsonl").write_text(lines + rest, encoding="utf-8")
        return run

    return write_run


@pytest.fixture
def report():
    """Makes a report of a step."""

    def make_report(step, loss=2.0, **others):
        course = {"epoch": step / 10, "tokens": 100 * step, "seconds": 2.0 * step}
        values = {"learning_rate": 1e-3, "tokens_per_second": 50.0, "perplexity": 9.0}
        return {"kind": "report", "step": step, "loss": loss, **course, **values, **others}

    return make_report


@pytest.fixture
def validation():
    """Makes a validation of a step."""

    def make_validation(step, bleu=10.0, weights="current"):
        scores = {"loss": 3.0, "perplexity": 20.0, "bleu": bleu, "chrf": 30.0}
        return {"kind": "validation", "step": step, "scores": scores, "weights": weights}

    return make_validation


@pytest.fixture
def two_runs(make_run, report, validation):
    """A finished run and one that has only begun."""
    steps = range(10, 110, 10)
    whole = make_run(
        "whole",
        *(report(step, loss=500 / step) for step in steps),
        validation(50, 12.5),
        validation(100, 20.0),
        validation(100, 21.0, "average"),
    )
    return [whole, make_run("be<gun>$x$", report(10, 4.0), report(20, 3.0))]
