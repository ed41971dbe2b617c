from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from tformer_cli.cli import progress as module
from tformer_cli.cli.progress import show_count


@pytest.mark.parametrize("quiet", [False, True])
def test_items_are_counted_as_they_are_used_and_reported_unless_quiet(monkeypatch, capfd, quiet):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_REPORTS", 0.0)
    with show_count("ab", "inspecting", "-", quiet=quiet) as items:
        assert list(items) == ["a", "b"]
    stdout, stderr = capfd.readouterr()
    assert not stdout
    lines = [line.split(",")[0] for line in stderr.splitlines()]
    assert lines == ([] if quiet else ["inspecting: 1 line", "inspecting: 2 lines"])


@pytest.mark.parametrize(
    ("pauses", "expected"),
    [
        ([0, 0, 0], []),
        ([0, 20, 0], ["2 of 3 lines, 0.1 lines/s, 10 s left", "3 of 3 lines, 0.1 lines/s"]),
        ([0, 0, 20], ["3 of 3 lines, 0.1 lines/s"]),
    ],
)
def test_the_last_line_reports_the_total_if_there_was_one(monkeypatch, capfd, pauses, expected):
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    with module.line_progress(3, "reading", quiet=False) as progress:
        for number, pause in enumerate(pauses, 1):
            now[0] += pause
            progress.update(number)
    lines = [line.removeprefix("reading: ") for line in capfd.readouterr().err.splitlines()]
    assert [line.replace("0.2", "0.1") for line in lines] == expected


def test_steps_are_counted_by_calls(monkeypatch, capfd):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_REPORTS", 0.0)
    with module.counted_steps("explaining", quiet=False) as before_batch:
        before_batch()
        before_batch()
    lines = [line.partition(",")[0] for line in capfd.readouterr().err.splitlines()]
    assert lines == ["explaining: 1 step", "explaining: 2 steps"]


def test_a_job_that_fails_does_not_say_that_it_is_done(monkeypatch, capfd):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_REPORTS", 0.0)

    def fail_after_a_line():
        with module.line_progress(3, "reading", quiet=False) as progress:
            progress.update(1)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail_after_a_line()
    assert len(capfd.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("output", "is_file", "is_shown"),
    [("-", False, False), ("-", True, True), ("heads.jsonl", False, True)],
)
def test_a_bar_is_drawn_only_while_results_go_into_a_file(monkeypatch, output, is_file, is_shown):
    shown = []
    monkeypatch.setattr(module, "is_live", lambda: True)
    monkeypatch.setattr(module, "is_regular_file", lambda stream: is_file)
    monkeypatch.setattr(module, "_bar", lambda unit: shown.append(unit) or _NoBar())
    with show_count("a", "inspecting", output, quiet=False) as items:
        assert list(items) == ["a"]
    assert bool(shown) == is_shown


class _NoBar:
    def __enter__(self):
        return self

    def __exit__(self, *problem):
        return None

    def add_task(self, what, total, completed, detail):
        return completed

    def update(self, task, completed, detail):
        assert completed == 1


def test_the_speed_is_of_this_run_and_a_detail_stands_behind_it(monkeypatch, capfd):
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    with module.line_progress(100, "reading", quiet=False, begun=50) as progress:
        now[0] = 20
        progress.update(70, "worker 1: 1.0")
    message = capfd.readouterr().err
    assert message == "reading: 70 of 100 lines, 1.0 lines/s (worker 1: 1.0), 30 s left\n"


def test_a_bar_shows_the_detail_below(monkeypatch):
    console = Console(file=StringIO(), force_terminal=True, width=80, height=20)
    monkeypatch.setattr(module, "stderr_console", lambda: console)
    monkeypatch.setattr(module, "is_live", lambda: True)
    with module.line_progress(100, "reading", quiet=False, begun=50) as progress:
        progress.update(70, "worker 1: 1.0, worker 2: 3.0")
    shown = console.file.getvalue()
    assert "70/100" in shown
    assert "worker 1: 1.0, worker 2: 3.0" in shown


@pytest.mark.parametrize(
    ("output", "is_terminal", "is_shown"),
    [("-", True, False), ("-", False, True), ("labels.txt", True, True), (None, True, True)],
)
def test_a_bar_is_not_drawn_over_results(monkeypatch, output, is_terminal, is_shown):
    monkeypatch.setattr(module, "is_live", lambda: True)
    monkeypatch.setattr(module.sys, "stdout", SimpleNamespace(isatty=lambda: is_terminal))
    monkeypatch.setattr(module, "_bar", lambda unit: _NoBar())
    with module.line_progress(3, "labelling", quiet=False, output=output) as progress:
        assert (type(progress) is module.LiveProgress) == is_shown
