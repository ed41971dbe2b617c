import json
from dataclasses import asdict

import pytest

from tests import commands
from tests.models import save_random
from tests.screens import draw_text
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.plugins.instruments.jobs.diff import inspect_diff
from tformer_cli.plugins.instruments.views.diff import DiffView, signed_map
from tformer_cli.show.terminal import show_blocks
from tformer_cli.text.tokenizer import read_tokenizer


@pytest.fixture(scope="module")
def other(model, tmp_path_factory):
    """The same tokenizer with other weights."""
    record = read_config(model)
    return save_random(
        tmp_path_factory.mktemp("other") / "other", tokenizer=read_tokenizer(model), seed=9,
        decoding=asdict(record.decoding), info={"step": 9}, **asdict(record.model),
    )  # fmt: skip


(run,) = commands.under("inspect-diff", "run")


def test_in_a_pipe_there_is_a_line_for_each_head(model, other):
    result = run(model, other, stdin="A man sleeps.\n\nTwo dogs run.\n")
    assert result.exit_code == 0
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["a"] for line in lines][:2] == ["enc.0.0", "enc.0.1"]
    assert len(lines) == 8
    assert {line["n_sentences"] for line in lines} == {2}
    assert result.stderr == "computing on cpu in float32\n"
    again = run(model, other, "A man sleeps.", "Two dogs run.", "--quiet")
    assert (again.stdout, again.stderr) == (result.stdout, "")


def test_a_model_against_itself_has_no_difference(model):
    lines = [json.loads(line) for line in run(model, model, "A man", "--maps").stdout.splitlines()]
    for line in lines:
        assert line["a"] == line["b"]
        assert line["divergence"] == 0.0
        assert {value for row in line["difference"] for value in row} == {0.0}


def test_files_take_their_format_from_their_name(model, other, tmp_path):
    begins = {
        "x.svg": b"<svg",
        "x.html": b"<!DOCTYPE html>",
        "x.jsonl": b'{"schema":',
        "x.txt": b"A",
    }
    for name, begin in begins.items():
        result = run(model, other, "A man", "-o", tmp_path / name)
        assert result.exit_code == 0
        assert result.stdout == ""
        assert (tmp_path / name).read_bytes().startswith(begin)


def show_diff(diff, encoding="utf-8", width=80, **options):
    options |= {"encoding": encoding, "width": width, "errors": "replace"}
    return draw_text(lambda console: DiffView().text(console, diff, None), **options)


@pytest.mark.parametrize(("encoding", "minus"), [("utf-8", "−"), ("ascii", "-")])
def test_the_signed_map_writes_its_signs(model, other, encoding, minus):
    diff = inspect_diff(model, other, ["Two dogs run in the snow."])
    text = show_diff(diff, encoding, no_color=True)
    change = diff.most_changed
    assert f"B:{change.second} {minus} A:{change.first}" in text
    rows = diff.difference(change).tolist()
    for value in (value for row in rows for value in row):
        if abs(value) >= 0.005:
            assert f"{100 * value:+.0f}" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_no_sentence_gives_orders_to_the_terminal(model):
    text = "\x1b[31mred\x07 \u2028"
    for command in ("inspect-heads", "inspect-logits", "inspect-flow"):
        result = commands.run(command, model, text, "--format", "text")
        assert "<0x1B>[31mred<0x07>" in result.stdout
        assert not set(result.stdout) & {"\x1b", "\x07", "\u2028"}
    diff = inspect_diff(model, model, [text])  # shows pieces only, and a source loses controls
    assert "31" in show_diff(diff, no_color=True)
    assert not set(show_diff(diff, no_color=True)) & {"\x1b", "\x07", "\u2028"}


def test_colors_say_the_same_as_the_signs(model, other):
    diff = inspect_diff(model, other, ["Two dogs run."])
    options = {"force_terminal": True, "color_system": "truecolor", "legacy_windows": False}
    blocks = signed_map(diff, diff.most_changed)
    text = draw_text(lambda console: show_blocks(console, blocks), width=120, **options)
    assert "\x1b[" in text
    largest = abs(diff.difference(diff.most_changed)).max()
    assert f"at most {100 * largest:.0f}" in text


def test_a_narrow_terminal_counts_the_rows_it_omits(model, other):
    diff = inspect_diff(model, other, ["Two dogs run in the snow."])
    narrow = show_diff(diff, width=40, no_color=True)
    keys = diff.difference(diff.most_changed).shape[1]
    if keys > 6:
        assert "more columns" in narrow
    assert "more columns" not in show_diff(diff, width=200, no_color=True)


def test_conditions_that_no_head_meets_are_a_warning(model, other):
    result = run(model, other, "A man", "--heads", "@entropy>99", "--quiet")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "no head meets the conditions" in result.stderr
    table = run(model, other, "A man", "--heads", "@entropy>99", "--format", "text", "--quiet")
    assert table.exit_code == 0
