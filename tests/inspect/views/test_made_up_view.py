"""A view is one file: this one adds a command, a tab of the report and a page, and nothing else."""

import json
import re
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from tformer_cli.cli.inspect.inspect_view import view_command
from tformer_cli.inspect import views
from tformer_cli.inspect.jobs.report import inspect_report
from tformer_cli.inspect.page.report_page import render_report
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.view import SentenceView
from tformer_cli.settings import Option
from tformer_cli.show.document import text

LINE = "A man sleeps."


@dataclass(frozen=True)
class Lengths:
    sentence: HeadsRecord
    letters: tuple[int, ...]


@dataclass(frozen=True)
class LengthOptions:
    least: Annotated[int, Option(help="Only tokens of N letters or more.", metavar="N", min=1)] = 1


class LengthView(SentenceView[Lengths]):
    name = "lengths"
    title = "Lengths"
    help = "Count the letters of each source token."
    Options = LengthOptions
    script = """addTab({ id: "lengths", title: "Lengths", show(panel, one) {
      panel.append(card("Letters", viewOf(one, "lengths").letters.join(" ")));
    } });"""

    def read(self, subject, sentence, options):
        letters = (len(piece) for piece in sentence.source_pieces)
        return Lengths(sentence, tuple(n for n in letters if n >= options.least))

    def json(self, record):
        return {"schema": "made.lengths/1", "letters": list(record.letters)}

    def blocks(self, record, options, room):
        yield text(f"letters: {' '.join(map(str, record.letters))}")


@pytest.fixture
def view(monkeypatch):
    made = LengthView()
    known = views.all_views() | {made.name: made}
    for module in ("page.report_page", "views"):
        monkeypatch.setattr(f"tformer_cli.inspect.{module}.all_views", lambda: known)
    monkeypatch.setattr("tformer_cli.inspect.jobs.report.all_views", lambda: known)
    return made


@pytest.fixture
def run(view, model):
    app = typer.Typer()
    app.command("inspect-lengths")(view_command(view))
    app.command("other")(lambda: None)
    return lambda *given: CliRunner().invoke(app, ["inspect-lengths", str(model), *given, "-q"])


def test_its_command_has_its_options_and_all_formats(run, tmp_path):
    (data,) = map(json.loads, run(LINE, "--format", "jsonl").stdout.splitlines())
    assert data["schema"] == "made.lengths/1"
    assert data["letters"] == [len(piece) for piece in data["source"]["pieces"]]
    assert "letters: " in run(LINE, "--format", "text").stdout
    few = json.loads(run(LINE, "--format", "jsonl", "--least", "4").stdout)["letters"]
    assert few == [n for n in data["letters"] if n >= 4] != data["letters"]
    assert run(LINE, "--least", "0").exit_code == 2
    assert run(LINE, "-o", str(tmp_path / "a.html")).exit_code == 0
    assert "<title>Lengths</title>" in (tmp_path / "a.html").read_text("utf-8")


def test_the_report_has_its_tab(view, model):
    report = inspect_report(model, [LINE], device="cpu")
    page = render_report(report)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    (sentence,) = data["sentences"]
    assert sentence["views"]["lengths"]["letters"] == [len(p) for p in sentence["sourcePieces"]]
    assert view.script.splitlines()[0] in page
