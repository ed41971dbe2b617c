import json

import pytest

from tformer_cli.errors import ArtifactError
from tformer_cli.trainer.events import CheckpointWritten, RolledBack, StepReport, ValidationReport
from tformer_cli.trainer.resuming.state import TrainingState
from tformer_cli.trainer.run_logs import MetricsLog


def report(step):
    numbers = dict.fromkeys(
        ("epoch", "loss", "perplexity", "learning_rate", "gradient_norm", "tokens_per_second"), 1.0
    )
    return StepReport(step=step, padding=0.1, tokens=5, seconds=1.0, share_done=0.5, **numbers)


def validation(step, weights="current", sample="a"):
    return ValidationReport(
        step=step, scores={"bleu": 1.0}, signatures={}, is_best=True, seconds=1.0,
        sample_source=sample, sample_translation="b", sample_reference="c", weights=weights,
    )  # fmt: skip


def entries(path):
    lines = path.read_text().split("\n")
    assert lines.pop() == ""
    return [(entry["kind"], entry["step"]) for entry in map(json.loads, lines)]


def state(step, *validated):
    return TrainingState(step=step, validations=[{"step": number} for number in validated])


def test_reports_and_validations_are_appended_and_nothing_else(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, state(0))
    for event in (report(5), CheckpointWritten(step=5), validation(5)):
        log.notify(event)
    assert entries(path) == [("report", 5), ("validation", 5)]
    assert json.loads(path.read_text().splitlines()[0])["loss"] == 1.0


def test_what_will_be_done_again_is_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, state(0))
    events = [report(5), validation(5, sample="x\u2028y\x85"), report(10), validation(10)]
    for event in (*events, validation(10, "average"), report(15)):
        log.notify(event)
    MetricsLog(path, state(12, 5, 10))
    assert entries(path) == [("report", 5), ("validation", 5), ("report", 10), ("validation", 10)]
    MetricsLog(path, state(10, 5))
    assert entries(path) == [("report", 5), ("validation", 5), ("report", 10)]


def test_a_torn_last_line_is_dropped_wherever_it_was_torn(tmp_path):
    path = tmp_path / "metrics.jsonl"
    MetricsLog(path, state(0)).notify(report(1))
    whole = path.read_bytes()
    MetricsLog(path, state(0)).notify(validation(2, sample="é"))
    for n_bytes in range(len(whole), 2 * len(whole)):
        torn = whole + '{"kind": "report", "step": 1, "x": "é'.encode()[: n_bytes - len(whole)]
        path.write_bytes(torn)
        MetricsLog(path, state(3)).notify(report(4))
        assert entries(path) == [("report", 1), ("report", 4)]
    path.write_bytes(whole.rstrip(b"\n"))
    MetricsLog(path, state(3)).notify(report(4))
    assert entries(path) == [("report", 1), ("report", 4)]


def test_a_rollback_takes_back_what_came_after_its_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, state(0))
    back = RolledBack(step=5, failed_step=12, problem="no", learning_rate_factor=0.5)
    for event in (report(5), validation(5), report(10), back, report(10)):
        log.notify(event)
    expected = [("report", 5), ("validation", 5), ("rollback", 5), ("report", 10)]
    assert entries(path) == expected
    here = state(10, 5)
    here.rollbacks = [back]
    MetricsLog(path, here)
    assert entries(path) == expected
    MetricsLog(path, state(10, 5))  # killed before the state knew of it
    assert entries(path) == [entry for entry in expected if entry[0] != "rollback"]
    here.step = 5
    MetricsLog(path, here)  # killed before the line was written
    assert entries(path) == expected[:3]


def test_what_is_no_ordinary_file_is_neither_read_nor_waited_for(tmp_path, spoil):
    path = tmp_path / "metrics.jsonl"
    with pytest.raises(ArtifactError, match=f"cannot be read .{spoil(path)}.; remove it"):
        MetricsLog(path, state(0))
