"""The views of one step, of logits and of positions, and the report page."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from tests.commands import run
from tests.oracles.unpacked import page_data
from tests.screens import draw_text
from tformer_cli.errors import TformerError
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.plugins.instruments.views.step import StepView
from tformer_cli.plugins.instruments.walkthrough.step import example_row
from tformer_cli.plugins.instruments.walkthrough.worksheet import make_quiz

LINE = "A man sleeps."


CHOSEN = {"token": "man", "head": "enc.1.0"}


@pytest.fixture(scope="module")
def record(model):
    return next(inspect_view("step", model, [LINE], settings=CHOSEN))


def show_step(record, width=80, encoding="utf-8", quiz=None, color=None):
    terminal = {"color_system": color, "force_terminal": color is not None}
    shown = replace(record, quiz=quiz)
    return draw_text(
        lambda c: StepView().text(c, shown, None), width=width, encoding=encoding, **terminal
    )


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_terminal_view_fits_the_width_and_reports_its_check(record, width):
    text = show_step(record, width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    assert "\x1b[" in show_step(record, width, color="truecolor")
    assert "✓ 20 comparisons with the model's own numbers" in text
    for number in range(12):
        assert f"\n{number:>2}  " in text


def test_without_unicode_nothing_but_ascii_is_written(record):
    assert "sqrt" in show_step(record, encoding="ascii")
    assert "__" in show_step(record, encoding="ascii", quiz=make_quiz(record, 1))


def test_in_a_pipe_there_is_one_object_with_the_translation_of_translate(model):
    result = run("inspect-step", model, "--token", "man", "--head", "enc.1.0", stdin=LINE + "\n")
    data = json.loads(result.stdout)
    assert (data["token"], data["row"], data["head"]) == ("▁man", 1, "enc.1.0")
    assert data["difference"] < 1e-5
    assert data["target"]["text"] == next(translate_lines(model, [LINE])).text
    assert result.stderr == "computing on cpu in float32\n"


def test_the_sentence_may_stand_in_a_file(model, tmp_path):
    (tmp_path / "line").write_text(LINE + "\n")
    arguments = ("inspect-step", model, "--token", "man", "--head", "enc.1.0")
    expected = run(*arguments, stdin=LINE + "\n").stdout
    for name in ("-i", "--source"):
        assert run(*arguments, name, tmp_path / "line").stdout == expected


def test_the_key_that_is_worked_out_can_be_named(model):
    words = ("inspect-step", model, LINE, "--token", "man", "--head", "enc.1.0")
    heaviest, named = (json.loads(run(*words, *more).stdout) for more in ((), ("--key", "sleeps")))
    weights = [row[2] for row in heaviest["steps"][4]["tables"][0]["values"]]
    assert heaviest["key"] == weights.index(max(weights))
    assert named["key_piece"] == "▁sleeps"
    assert "q·k(▁sleeps) = " in named["steps"][2]["worked"]
    worked_out = f"key {named['key']}, ▁sleeps, with weight {weights[named['key']]:.3f}"
    assert worked_out in run(*words, "--key", "sleeps", "--format", "text").stdout


def test_a_worksheet_and_its_answers_go_to_two_files(model, tmp_path):
    sheet, key = tmp_path / "sheet.html", tmp_path / "key.tsv"
    arguments = ("inspect-step", model, LINE, "--token", "0", "--head", "cross.0.1", "--quiz")
    assert run(*arguments, "-o", sheet, "--answers", key).exit_code == 0
    first = sheet.read_bytes()
    assert b'"value"' not in re.search(rb'"quiz":(.*?\])', first)[1]
    assert key.read_text().splitlines()[1].startswith("1\t")
    run(*arguments, "-o", sheet, "--answers", key)
    assert sheet.read_bytes() == first
    assert "quiz" in json.loads(run(*arguments).stdout)


def test_a_handout_has_different_worksheets_and_one_key(model, tmp_path):
    sheet, key = tmp_path / "sheets.html", tmp_path / "key.tsv"
    arguments = ("inspect-step", model, LINE, "--quiz", "--handout", "3")
    assert run(*arguments, "-o", sheet, "--answers", key).exit_code == 0
    headings = [line for line in key.read_text().splitlines() if line.startswith("#")]
    assert [line.partition(":")[0] for line in headings] == [
        *("# worksheet 1", "# worksheet 2", "# worksheet 3")
    ]
    assert len({line.partition(": ")[2] for line in headings}) == 3
    assert len(page_data(sheet.read_text())["sentences"]) == 3
    # of one token and head, sheets differ by their blanks
    fixed = run(*arguments, "--token", "0", "--head", "cross.0.1", "--format", "text").stdout
    keys = fixed.partition("# worksheet 1")[2].split("# worksheet")
    assert len(set(keys)) == len(keys) == 3
    assert fixed.count("Name: ___") == 3
    # and each reads the target
    forced = json.loads(f"[{','.join(run(*arguments, '--target', 'Hunde').stdout.splitlines())}]")
    assert len(forced) == 3
    refused = run("inspect-step", model, LINE, "--handout", "2")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--handout: only for worksheets; add --quiz" in refused.stderr


def test_without_a_token_it_is_a_good_example(model):
    data = json.loads(run("inspect-step", model, LINE, "--head", "enc.1.0").stdout)
    (record,) = inspect_heads(model, [LINE], device="cpu")
    assert data["row"] == example_row(record, HeadId("enc", 1, 0))


def test_a_difference_above_the_tolerance_fails(model):
    with pytest.raises(TformerError, match="from the model's own"):
        next(inspect_view("step", model, [LINE], settings=CHOSEN | {"tolerance": 0.0}))


def test_log_probabilities_are_those_of_the_search_and_ranks_agree_with_candidates(model):
    hypothesis = next(translate_lines(model, [LINE])).hypotheses[0]
    (record,) = inspect_view("logits", model, [LINE], settings={"lens": True, "top_k": 3})
    found = sum(position.log_probability for position in record.positions)
    assert found == pytest.approx(hypothesis.log_probability, abs=1e-4)
    for position in record.positions:
        if position.rank <= 3:
            assert position.top[position.rank - 1] == position.chosen
        else:
            assert position.chosen not in position.top
        assert position.lens[-1].rank == position.rank
        assert position.first_layer == (0 if position.rank == 1 else None)


def test_logits_stream_as_lines_blank_ones_included(model, tmp_path):
    result = run("inspect-logits", model, "--lens", "--top-k", "2", stdin=f"{LINE}\n\n")
    first, blank = map(json.loads, result.stdout.splitlines())
    assert first["schema"] == "tformer.logits/1"
    assert blank["positions"] == []
    assert [p["piece"] for p in first["positions"]] == first["target"]["pieces"]
    assert [p["read"] for p in first["positions"]] == first["target"]["input_pieces"]
    assert [len(p["top"]) for p in first["positions"]] == [2] * len(first["positions"])
    assert "first_layer" in first["positions"][0]
    assert run("inspect-logits", model, LINE, "-o", tmp_path / "a.html").exit_code == 0
    page = (tmp_path / "a.html").read_bytes()
    assert b"default-src 'none'" in page
    assert b'"tformer.logits/1"' in page
    text = run("inspect-logits", model, LINE, "--format", "text", "--lens").stdout
    assert "logit lens" in text


def test_positions_in_every_format(model, tmp_path):
    assert json.loads(run("inspect-positions", model).stdout)["kind"] == "sinusoidal"
    for suffix in ("npz", "svg", "html"):
        file = tmp_path / f"a.{suffix}"
        assert run("inspect-positions", model, "--positions", "9", "-o", file).exit_code == 0
    assert np.load(tmp_path / "a.npz")["both.table"].shape == (9, 64)
    text = run("inspect-positions", model, "--format", "text").stdout
    assert "d/2 = 32" in text


def test_without_a_head_it_is_the_one_that_is_shown_first(model):
    (record,) = inspect_heads(model, [LINE], device="cpu")
    result = run("inspect-step", model, LINE, "--token", "0", "--format", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["head"] == str(record.first_head())


def test_a_page_goes_to_a_file_or_a_pipe_with_the_same_bytes(model, tmp_path):
    page = tmp_path / "page.html"
    result = run("inspect-report", model, LINE, "-o", page)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "computing on cpu in float32\n"
    assert page.read_bytes().startswith(b"<!DOCTYPE html>")
    piped = run("inspect-report", model, "--quiet", stdin=f"{LINE}\n")
    assert piped.stdout_bytes == page.read_bytes()
    assert piped.stderr == ""


def test_the_second_best_translation_is_shown_as_the_search_saw_it(model, tmp_path):
    page = tmp_path / "page.htm"
    chosen = ("--rank", "2", "--mode", "live")
    assert run("inspect-report", model, LINE, *chosen, "-o", page).exit_code == 0
    assert b'"rank":2' in page.read_bytes()
    assert b'"isLive":true' in page.read_bytes()


def test_maps_that_differ_too_much_from_the_model_are_not_written(model, tmp_path):
    result = run("inspect-report", model, LINE, "--verify", "0", "-q", "-o", tmp_path / "page.html")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
