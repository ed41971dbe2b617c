import os
import subprocess
import sys
from pathlib import Path

import pytest

from tformer_cli.cli.app import CLOSED_PIPE_STATUS
from tformer_cli.text.config import TokenizerConfig
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


@pytest.mark.parametrize("asked", [["--help"], ["make-corpus", "--help"], ["--version"]])
def test_a_closed_pipe_under_the_help_is_not_a_failure(asked):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tformer_cli", *asked]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (CLOSED_PIPE_STATUS, b"")


def test_a_group_alone_shows_its_help_where_no_results_go():
    for command in ("tformer", "tformer tokenize"):
        done = in_a_shell(command)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"COMMAND" in done.stderr
        assert b"error:" not in done.stderr
