import math

import pytest

from tformer_cli.curves.metrics import MetricName, XName
from tformer_cli.curves.read import read_run
from tformer_cli.errors import DataError


def test_the_last_entry_of_a_step_counts_and_steps_come_in_order(make_run, report, validation):
    run = read_run(
        make_run(
            "run",
            report(10, 5.0),
            report(20, 4.0),
            validation(20, 1.0),
            report(30, 9.0),
            report(20, 3.5),
            validation(20, 2.0),
            report(30, 3.0),
            {"kind": "other", "step": 4},
        )
    )
    assert run.points(MetricName.loss, XName.step) == [(10, 5.0), (20, 3.5), (30, 3.0)]
    assert run.points(MetricName.bleu, XName.step) == [(20, 2.0)]
    assert run.points(MetricName.gradient_norm, XName.step) == []


def test_a_half_written_line_is_omitted_wherever_it_is_cut(make_run, report, tmp_path):
    whole = '{"kind": "report", "step": 20, "loss": 1.0}'
    for length in range(len(whole)):
        run = read_run(make_run(f"run{length}", report(10), rest=whole[:length]))
        assert run.points(MetricName.loss, XName.step) == [(10, 2.0)]
    run = read_run(make_run("run", report(10), rest=whole))
    assert run.points(MetricName.loss, XName.step) == [(10, 2.0), (20, 1.0)]


def test_averaged_weights_are_kept_apart(two_runs):
    run = read_run(two_runs[0])
    assert run.points(MetricName.bleu, XName.step) == [(50, 12.5), (100, 20.0)]
    assert run.points(MetricName.bleu, XName.step, averaged=True) == [(100, 21.0)]
    assert run.points(MetricName.loss, XName.step, averaged=True) == []


def test_validations_lie_between_the_reports_beside_them(make_run, report, validation):
    entries = (report(10), report(20, seconds=100.0), validation(5), validation(15))
    run = read_run(make_run("run", *entries, validation(30)))
    assert run.points(MetricName.bleu, XName.time) == [(10.0, 10.0), (60.0, 10.0), (180.0, 10.0)]
    assert [x for x, _ in run.points(MetricName.loss, XName.tokens)] == [1000, 2000]
    assert [x for x, _ in run.points(MetricName.loss, XName.epochs)] == [1.0, 2.0]


@pytest.mark.parametrize("value", [math.nan, math.inf, "7", None, True, [1]])
def test_values_that_are_not_finite_are_omitted(make_run, report, value):
    run = read_run(make_run("run", report(10, value), report(20)))
    assert run.points(MetricName.loss, XName.step) == [(20, 2.0)]


@pytest.mark.parametrize("line", ["{", "[1]", '{"step": "a"}', '{"kind": "report"}', "[" * 99999])
def test_a_damaged_line_is_named(make_run, report, line):
    run = make_run("run", report(10), rest=f"{line}\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2: is damaged; remove that line"):
        read_run(run)


def test_a_directory_that_is_not_a_run_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"missing: no such run directory"):
        read_run(tmp_path / "missing")
    with pytest.raises(DataError, match=r": has no metrics\.jsonl;"):
        read_run(tmp_path)


def test_special_files_are_not_read(make_run, spoil):
    run = make_run("run")
    with pytest.raises(DataError, match=f"cannot be read .{spoil(run / 'metrics.jsonl')}.; name"):
        read_run(run)
