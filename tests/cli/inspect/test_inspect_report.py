import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app

LINE = "A man sleeps."


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, [*map(str, arguments)], input=stdin)


def test_a_page_goes_to_a_file_or_a_pipe_with_the_same_bytes(model, tmp_path):
    page = tmp_path / "page.html"
    result = run("inspect-report", model, LINE, "-o", page)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "computing on cpu in float32\n"
    assert page.read_bytes().startswith(b"<!DOCTYPE html>")
    piped = run("inspect-report", model, "--quiet", stdin=f"{LINE}\n")
    assert piped.stdout_bytes == page.read_bytes()
    assert piped.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([" "], "has no sentence to show"),
        ([LINE, "--step", "cross"], '--step: "cross" is not HEAD:TOKEN; write cross.0.1:word'),
        ([LINE, "--heads", "enc.7"], "matches no head"),
        ([LINE, "--target", "a", "--target-file", "f"], "omit one of the two"),
        (["a " * 200], "inspect a shorter sentence"),
        ([LINE, "--mode", "live", "--target", "a"], "--mode live: shows what the search found"),
        ([LINE, "--rank", "2", "--target", "a"], "--rank: shows what the search found"),
        ([LINE, "--source", "f"], "texts are given as arguments already"),
    ],
)
def test_wrong_usage_is_one_line_and_leaves_no_file(model, tmp_path, arguments, message):
    result = run("inspect-report", model, *arguments, "-q", "-o", tmp_path / "page.html")
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert message in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["page.pdf", "page.svg", "page.txt"])
def test_a_page_is_not_written_where_something_else_is_expected(model, tmp_path, name):
    result = run("inspect-report", model, LINE, "-q", "-o", tmp_path / name)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "what is written goes into .html" in line
    assert not list(tmp_path.iterdir())


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
