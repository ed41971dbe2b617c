import io
import os
import socket
import sys
from enum import StrEnum
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from tests.cli.test_app import run_here
from tformer_cli.cli.app import app
from tformer_cli.cli.format_choice import check_ending, chosen_format, format_option
from tformer_cli.cli.options import takes_groups
from tformer_cli.cli.streams import file_console, stdout_console
from tformer_cli.errors import UsageError


class SomeFormat(StrEnum):
    text = "text"
    jsonl = "jsonl"
    html = "html"


def choose_name(name=None, output="-"):
    wanted = None if name is None else SomeFormat(name)
    return chosen_format(wanted, output, SomeFormat, SomeFormat.jsonl).value


@pytest.mark.parametrize(
    ("name", "output", "expected"),
    [
        (None, "a.html", "html"), (None, "a.HTM", "html"), (None, "a.txt", "text"),
        (None, "a.json", "jsonl"), (None, "a", "text"), (None, "run-1.2", "text"),
        (None, "a" * 300, "text"), (None, "/dev/null", "jsonl"), ("html", "-", "html"),
        ("html", "a", "html"), ("html", "a.htm", "html"), ("jsonl", "a.part", "jsonl"),
    ],
)  # fmt: skip
def test_the_format_follows_the_option_then_the_name_then_the_kind_of_output(
    name, output, expected
):
    assert choose_name(name, output) == expected


def test_a_terminal_gets_text(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert choose_name() == "jsonl"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert choose_name() == "text"
    assert choose_name("html") == "html"


@pytest.fixture
def onto(tmp_path, monkeypatch):
    """Makes stdout one of the things that a shell can make it."""
    opened = []

    def open_it(kind):
        if kind == "pipe":
            reader, writer = os.pipe()
            opened.append(os.fdopen(reader))
        elif kind == "socket":
            ours, theirs = socket.socketpair()
            opened.append(ours)
            writer = theirs.detach()
        else:
            path = tmp_path / "f" if kind == "file" else "/dev/null"
            writer = os.open(path, os.O_WRONLY | os.O_CREAT)
        stdout = os.fdopen(writer, "w")
        opened.append(stdout)
        monkeypatch.setattr(sys, "stdout", stdout)

    yield open_it
    for stream in opened:
        stream.close()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("file", "text"), ("pipe", "jsonl"), ("socket", "jsonl"), ("null", "jsonl")],
)
def test_a_file_gets_text_and_a_pipe_a_format_for_programs(onto, kind, expected):
    onto(kind)
    assert choose_name() == expected
    assert choose_name("jsonl") == "jsonl"


@pytest.mark.parametrize("columns", [None, "60"])
def test_text_in_a_file_is_plain_and_of_a_known_width(onto, tmp_path, monkeypatch, columns):
    monkeypatch.setenv("FORCE_COLOR", "1")
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    onto("file")
    with (tmp_path / "g").open("wb") as stream:
        for console in (stdout_console(), file_console(stream)):
            assert console.width == int(columns or 80)
            console.print("[bold red]漢字", end="")
            console.file.flush()
    assert (tmp_path / "f").read_text() == (tmp_path / "g").read_text("utf-8") == "漢字"


def test_a_redirect_and_an_output_file_hold_the_text_of_the_screen(
    model, onto, tmp_path, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "70")
    shown = run_here("inspect-logits", model, "A man", "--format", "text").stdout
    to_file = run_here("inspect-logits", model, "A man", "-o", tmp_path / "named")
    assert to_file.exit_code == 0
    onto("file")
    with pytest.raises(SystemExit):
        app(["inspect-logits", str(model), "A man", "-q"])
    sys.stdout.flush()
    assert "most probable" in shown
    assert run_here("inspect-logits", model, "A man", "--format", "tty").stdout == shown
    assert (tmp_path / "f").read_text() == (tmp_path / "named").read_text("utf-8") == shown


def test_a_wrong_format_is_answered_with_those_there_are():
    program = typer.Typer()

    @program.command()
    @takes_groups
    def show(form: Annotated[SomeFormat, format_option(SomeFormat)] = SomeFormat.text) -> None:
        typer.echo(repr(form))

    assert CliRunner().invoke(program, ["--format", "text"]).stdout == "'text'\n"
    for wrong in ("pdf", "tty"):  # the latter an earlier name of text
        refused = CliRunner().invoke(program, ["--format", wrong], env={"COLUMNS": "200"})
        assert f"'{wrong}' is not one of 'text', 'jsonl', 'html'" in refused.stderr
        assert refused.exit_code == 2


@pytest.mark.parametrize(
    ("name", "output", "names"),
    [
        (None, "a.pdf", ".txt, .jsonl, .html"),
        (None, "a.svg", ".txt, .jsonl, .html"),
        (None, "a.jsonl.gz", ".txt, .jsonl, .html"),
        ("jsonl", "a.html", ".jsonl"),
        ("html", "dir/a.PDF", ".html"),
    ],
)
def test_a_name_that_promises_another_format_is_refused(name, output, names):
    with pytest.raises(UsageError) as refused:
        choose_name(name, output)
    ending = output.rsplit(".")[-1].lower()
    assert str(refused.value) == (
        f"--output: {output}: cannot write .{ending}; name a file that ends in {names}"
    )


def test_links_may_be_in_a_file_of_text_and_not_in_a_table():
    check_ending("a.align", ["pharaoh"])
    check_ending("a.txt", ["pharaoh"])
    with pytest.raises(UsageError, match=r"cannot write \.tsv"):
        check_ending("a.tsv", ["pharaoh"])
