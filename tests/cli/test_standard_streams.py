"""Standard streams that are closed, full or awaited, and input that is not what was meant."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import CLOSED_PIPE_STATUS, app
from tformer_cli.cli.streams import file_lines
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.lines import LineCounts
from tformer_cli.text.train_tokenizer import train_tokenizer

FULL = pytest.param(
    "/dev/full",
    marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no such device"),
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(train_tokenizer(["a b c"], TokenizerConfig(algorithm="byte")).to_json())
    return path


def in_a_shell(command, *args, **options):
    """Runs a command line in which tformer is "$0" and the arguments are "$1", "$2", …"""
    program = f'"{sys.executable}" -m tformer_cli'
    line = command.replace("tformer", program)
    return subprocess.run(
        ["sh", "-c", line, "sh", *map(str, args)], capture_output=True, check=False, **options
    )


def test_a_closed_stdin_is_an_error_only_where_it_is_read(tokenizer, tmp_path):
    done = in_a_shell('tformer tokenize encode "$1" <&-', tokenizer)
    assert done.stderr.decode().startswith("error: stdin: cannot be read (")
    assert done.stderr.count(b"\n") == 1
    assert (done.returncode, done.stdout) == (2, b"")
    done = in_a_shell('tformer make-corpus "$1" --pairs 1 --quiet <&-', tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("stdout", ["&-", FULL])
def test_results_that_cannot_be_written_are_one_line_and_exit_1(tmp_path, stdout):
    done = in_a_shell(f'tformer make-corpus "$1" --pairs 1 --quiet >{stdout}', tmp_path)
    assert done.stderr.decode().startswith("error: stdout: cannot be written (")
    assert done.stderr.count(b"\n") == 1
    assert done.returncode == 1


@pytest.mark.parametrize("output", [FULL])
def test_a_full_disk_under_a_file_is_work_that_has_failed(tokenizer, output):
    done = in_a_shell(f'echo a | tformer tokenize encode "$1" -o {output}', tokenizer)
    assert done.stderr.decode().startswith("error: /dev/full: cannot be written (no space left")
    assert done.returncode == 1


@pytest.mark.parametrize("stderr", ["&-", FULL])
def test_unwritable_messages_do_not_end_the_work(tmp_path, stderr):
    done = in_a_shell(f'tformer make-corpus "$1" --pairs 1 2>{stderr}', tmp_path)
    assert (done.returncode, done.stdout.decode()) == (0, f"{tmp_path}\n")


def test_a_closed_pipe_under_stderr_ends_the_work(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tformer_cli", "make-corpus", tmp_path, "--pairs", "1"]
    done = subprocess.run(command, stderr=writer, stdout=subprocess.PIPE, check=False)
    os.close(writer)
    assert done.returncode == CLOSED_PIPE_STATUS


def test_a_closed_pipe_under_a_table_is_not_a_failure(tokenizer, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tformer_cli", "tokenize", "stats", tokenizer, tokenizer]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (CLOSED_PIPE_STATUS, b"")


@pytest.mark.parametrize("arguments", [["--help"], ["make-corpus", "--help"], ["--version"]])
def test_a_closed_pipe_under_the_help_is_not_a_failure(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tformer_cli", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (CLOSED_PIPE_STATUS, b"")


def test_a_group_alone_shows_its_help_where_no_results_go():
    for command in ("tformer", "tformer tokenize"):
        done = in_a_shell(command)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"COMMAND" in done.stderr
        assert b"error:" not in done.stderr


TYPE = "type sentences, one a line; Ctrl-D ends\n"


@pytest.fixture
def typed(monkeypatch):
    """Lets stdin pass for a terminal."""
    monkeypatch.setattr("tformer_cli.cli.streams.stdin_is_terminal", lambda: True)
    monkeypatch.setattr("tformer_cli.cli.line_job.stdin_is_terminal", lambda: True)


def run(*arguments, stdin="A man\n"):
    done = CliRunner().invoke(app, [str(part) for part in arguments], input=stdin)
    assert done.exit_code == 0, done.stderr
    return done


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "two.en"
    path.write_text("A man\n")
    return path


READERS = {
    "translate": ["translate", "MODEL"],
    "translate -": ["translate", "MODEL", "-"],
    "translate -i -": ["translate", "MODEL", "-i", "-"],
    "score": ["score", "MODEL", "--source", "-", "--target-file", "FILE"],
    "evaluate": ["evaluate", "--hypothesis", "-", "--reference", "FILE"],
    "compare": ["compare", "--reference", "FILE", "FILE", "other=-", "--metric", "bleu"],
    "benchmark": ["benchmark", "MODEL", "--source", "-", "--rounds", "1", "--beam-size", "1"],
    "inspect-heads": ["inspect-heads", "MODEL"],
    "inspect-heads --corpus": ["inspect-heads", "MODEL", "--corpus"],
    "inspect-step": ["inspect-step", "MODEL", "--token", "0", "--head", "cross.0.0"],
    "inspect-logits": ["inspect-logits", "MODEL"],
    "inspect-flow": ["inspect-flow", "MODEL"],
    "inspect-align": ["inspect-align", "MODEL"],
    "inspect-report": ["inspect-report", "MODEL", "-o", "REPORT"],
    "inspect-decision": ["inspect-decision", "MODEL", "--method", "zero"],
    "inspect-diff": ["inspect-diff", "MODEL", "MODEL"],
    "inspect-layers": ["inspect-layers", "MODEL"],
    "tokenize encode": ["tokenize", "encode", "MODEL"],
    "tokenize stats": ["tokenize", "stats", "MODEL", "-"],
    "tokenize train": ["tokenize", "train", "-", "-o", "REPORT", "--vocab-size", "300"],
}


@pytest.mark.parametrize("arguments", READERS.values(), ids=list(READERS))
def test_a_terminal_is_prompted_once(model, typed, file, tmp_path, arguments):
    names = {"MODEL": model, "FILE": file, "REPORT": tmp_path / "out.html"}
    words = [names.get(word, word) for word in arguments]
    assert run(*words).stderr.count(TYPE) == 1
    assert "type " not in run(*words, "--quiet").stderr


def test_decoding_awaits_pieces_or_ids(model, typed):
    ids = run("tokenize", "encode", model, "--ids").stdout
    result = run("tokenize", "decode", model, "--ids", stdin=ids)
    assert (result.stdout, result.stderr) == ("A man\n", "type ids, one a line; Ctrl-D ends\n")
    assert "type pieces, one a line;" in run("tokenize", "decode", model, stdin="A\n").stderr


def test_nothing_is_awaited_from_a_pipe_a_file_or_arguments(model, monkeypatch, file):
    assert "type " not in run("translate", model).stderr
    monkeypatch.setattr("tformer_cli.cli.streams.stdin_is_terminal", lambda: True)
    assert "type " not in run("translate", model, "-i", file).stderr
    assert "type " not in run("translate", model, "A man").stderr
    assert "type " not in run("tokenize", "stats", model, file).stderr


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals")
def test_a_terminal_is_prompted_when_its_lines_are_read_not_before(monkeypatch, capsys):
    keyboard, terminal = os.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        lines = file_lines("-", LineCounts())
        assert capsys.readouterr().err == ""
        os.write(keyboard, b"one\n")
        assert next(lines) == "one"
        assert capsys.readouterr().err == TYPE
        os.write(keyboard, b"two\n\x04")
        assert list(lines) == ["two"]
        assert capsys.readouterr().err == ""
    os.close(keyboard)


def test_more_translations_than_the_beam_are_found_and_noted(model):
    words = ["translate", model, "A man", "--format", "tsv", "--n-best", "5"]
    done = run(*words)
    assert len(done.stdout.splitlines()) == 5
    assert done.stderr.startswith("beam size raised from 3 to 5, to find 5 translations\n")
    assert run(*words, "--quiet").stderr == ""
    looked = run("inspect-heads", model, "A man", "--rank", "5")
    assert "beam size raised from 3 to 5, to find 5 translations\n" in looked.stderr
