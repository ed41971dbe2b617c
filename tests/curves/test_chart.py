import pytest

from tformer_cli.curves.chart import make_chart
from tformer_cli.curves.metrics import DEFAULT_METRICS, MetricName, XName
from tformer_cli.curves.read import read_run
from tformer_cli.curves.render_text import render_tsv
from tformer_cli.errors import DataError


def test_the_usual_panels_are_drawn_as_far_as_runs_have_them(two_runs):
    whole, begun = map(read_run, two_runs)
    chart = make_chart([whole, begun], XName.step)
    assert [panel.name for panel in chart.panels] == list(DEFAULT_METRICS)
    assert [len(panel.curves) for panel in chart.panels] == [2, 2, 2, 1, 1, 1]
    assert chart.has_averages
    alone = make_chart([begun], XName.step)
    assert [panel.name for panel in alone.panels] == list(DEFAULT_METRICS[:3])
    assert not alone.has_averages


def test_a_metric_that_no_run_has_is_an_error_where_it_was_asked_for(two_runs, make_run):
    begun = read_run(two_runs[1])
    with pytest.raises(DataError, match=r"--metric: no run has bleu \(.*gun"):
        make_chart([begun], XName.step, [MetricName.loss, MetricName.bleu])
    with pytest.raises(DataError, match="nothing to draw yet"):
        make_chart([read_run(make_run("empty"))], XName.step)


def test_runs_are_called_by_their_names_unless_these_are_the_same(make_run, report, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    paths = [make_run(name, report(10)) for name in ("a/run", "b/run", "tab\there")]
    first, second, third = map(read_run, paths)
    assert make_chart([first, third], XName.step).runs == (
        "run",
        "tab\N{REPLACEMENT CHARACTER}here",
    )
    assert make_chart([first, second], XName.step).runs == (str(paths[0]), str(paths[1]))


def test_a_table_has_a_line_a_point(two_runs):
    chart = make_chart([read_run(two_runs[0])], XName.time, [MetricName.bleu])
    assert list(render_tsv(chart)) == [
        "run\tmetric\ttime\tvalue\tweights",
        "whole\tbleu\t100\t12.5\tcurrent",
        "whole\tbleu\t200\t20\tcurrent",
        "whole\tbleu\t200\t21\taverage",
    ]
