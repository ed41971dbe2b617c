import pytest

from tformer_cli.cli import line_progress
from tformer_cli.cli.line_progress import counted


@pytest.mark.parametrize("quiet", [False, True])
def test_items_are_counted_as_they_are_used_and_told_unless_quiet(monkeypatch, capfd, quiet):
    monkeypatch.setattr(line_progress, "SECONDS_BETWEEN_REPORTS", 0.0)
    with counted("ab", "inspecting", "-", quiet=quiet) as items:
        assert list(items) == ["a", "b"]
    stdout, stderr = capfd.readouterr()
    assert not stdout
    told = [line.split(",")[0] for line in stderr.splitlines()]
    assert told == ([] if quiet else ["inspecting: 1 lines", "inspecting: 2 lines"])


@pytest.mark.parametrize(
    ("output", "is_file", "is_shown"),
    [("-", False, False), ("-", True, True), ("heads.jsonl", False, True)],
)
def test_a_bar_is_drawn_only_while_results_go_into_a_file(monkeypatch, output, is_file, is_shown):
    shown = []
    monkeypatch.setattr(line_progress, "is_live", lambda: True)
    monkeypatch.setattr(line_progress, "_is_file", lambda descriptor: is_file)
    monkeypatch.setattr(line_progress, "_bar", lambda: shown.append(1) or _NoBar())
    with counted("a", "inspecting", output, quiet=False) as items:
        assert list(items) == ["a"]
    assert bool(shown) == is_shown


class _NoBar:
    def __enter__(self):
        return self

    def __exit__(self, *problem):
        return None

    def add_task(self, what, total):
        return 0

    def update(self, task, completed):
        assert completed == 1
