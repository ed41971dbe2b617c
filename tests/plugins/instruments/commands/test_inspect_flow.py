"""The view of the flow, and all views of models whose sources have no end."""

import json
import shutil

import pytest
from rich.cells import cell_len

from tests import commands
from tests.commands import run
from tests.screens import draw_text
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.plugins.instruments.views.flow import FlowOptions, FlowView

(flow,) = commands.under("inspect-flow", "run")


def test_in_a_pipe_there_is_an_object_a_line_blank_ones_included(model):
    result = flow(model, stdin="A man sleeps.\n\nTwo dogs\n")
    assert result.exit_code == 0
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    assert [o["index"] for o in objects] == [0, 1, 2]
    assert [bool(o["positions"]) for o in objects] == [True, False, True]
    assert result.stderr == "computing on cpu in float32\n"
    translated = commands.output_of("translate", model, "-q", stdin="A man sleeps.\n")
    assert objects[0]["target"]["text"] == translated.removesuffix("\n")


def test_a_given_target_is_looked_at_instead(model):
    data = json.loads(flow(model, "A man", "--target", "dogs run", "-q").stdout)
    assert data["target"]["text"] == "dogs run"
    assert data["target"]["is_forced"]
    for position in data["positions"]:
        assert position["rollout"]["source_share"] == pytest.approx(0.5)  # one decoder layer


def test_any_translation_of_the_search_can_be_looked_at(model):
    second = json.loads(flow(model, "A man", "--rank", "2", "-q").stdout)
    options = ("-q", "--n-best", 2, "--format", "jsonl")
    record = commands.record_of("translate", model, *options, stdin="A man\n")
    assert second["target"]["text"] == record["hypotheses"][1]["translation"]
    assert second["target"]["rank"] == 2


def test_the_page_is_chosen_by_the_files_name(model, tmp_path):
    assert flow(model, "A man", "-o", tmp_path / "flow.html").exit_code == 0
    assert '"written token"} is made of' in (tmp_path / "flow.html").read_text("utf-8")
    assert flow(model, "A man", "--format", "html", "-q").stdout == (
        tmp_path / "flow.html"
    ).read_text("utf-8")


def test_text_without_colors_goes_to_a_file(model, tmp_path):
    assert flow(model, "A man", "A dog", "--format", "text", "-o", tmp_path / "f").exit_code == 0
    text = (tmp_path / "f").read_text("utf-8")
    assert text.count("mean share of the source") == 2
    assert "\x1b" not in text


def show_flow(record, method="alti", width=80, encoding="utf-8"):
    options = {"width": width, "encoding": encoding, "errors": "replace"}
    return draw_text(lambda c: FlowView().text(c, record, FlowOptions(method=method)), **options)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_terminal_view_fits_the_width(model, width):
    record = next(inspect_view("flow", model, ["A man 漢字 sleeps."], targets=["dogs run"]))
    text = show_flow(record, width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert "given target" in text
    assert "from the source" in text
    assert "from the prefix" in text
    assert "(<s>)" in text or width == 40


def test_the_bar_is_the_share_of_the_source_without_unicode_too(model):
    record = next(inspect_view("flow", model, ["A man"], targets=["dogs"]))
    lines = show_flow(record, "rollout", 120, "ascii").splitlines()
    bars = [line for line in lines if "########........" in line]  # half of 16
    assert len(bars) == len(record.sentence.target_pieces)
    assert all(" 0.50 " in line for line in bars)
    assert "attention rollout   mean share of the source 0.50" in show_flow(record, "rollout", 120)


LINES = ["A man sleeps.", "Two dogs run."]


@pytest.fixture(scope="module")
def endless(model, tmp_path_factory):
    """A copy of a small model that reads its sources without `</s>`."""
    path = tmp_path_factory.mktemp("models") / "endless"
    shutil.copytree(model, path)
    config = json.loads((path / "config.json").read_text())
    config["model"]["source_eos"] = False
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("inspect-heads", ["--mode", "live"]),
        ("inspect-heads", ["--weights", "rollout"]),
        ("inspect-heads", ["--corpus"]),
        ("inspect-report", ["--mode", "live"]),
        ("inspect-step", ["--token", "0", "--head", "cross.0.0"]),
        ("inspect-step", ["--token", "0", "--head", "enc.0.0"]),
        ("inspect-logits", []),
        ("inspect-flow", []),
        ("inspect-align", []),
        ("inspect-ablate", ["--reference", "lines", "--scores", "1"]),
        ("inspect-diff", ["other"]),
        ("translate", ["--alignments", "soft", "--format", "tsv"]),
    ],
)
def test_every_view_shows_them(endless, tmp_path, monkeypatch, command, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in LINES))
    given = [str(endless) if option == "other" else option for option in options]
    lines = LINES[:1] if command == "inspect-step" else ["-i", "lines"]
    arguments = [command, str(endless), *given, *lines, "--quiet"]
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout


@pytest.mark.parametrize("mode", ["forced", "live"])
def test_maps_have_no_column_for_an_end(endless, mode):
    (record,) = inspect_heads(endless, LINES[:1], mode=mode, for_page=True)
    assert record.source_pieces[-1] == "."
    assert record.captured.cross[0].shape[-1] == len(record.source_pieces)
    assert record.captured.residual < 1e-5
    assert {source for source, _ in record.aligned.links} <= set(range(3))
