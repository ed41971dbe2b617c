"""What is said of input that is probably not what was meant, or that is awaited."""

import os

import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app
from tformer_cli.cli.streams import file_lines
from tformer_cli.text.lines import LineCounts

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
    "inspect-diff": ["inspect-diff", "MODEL", "MODEL"],
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
    asked = run("tokenize", "decode", model, "--ids", stdin=ids)
    assert (asked.stdout, asked.stderr) == ("A man\n", "type ids, one a line; Ctrl-D ends\n")
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


@pytest.mark.parametrize(
    "command",
    ["translate", "inspect-heads", "inspect-logits", "inspect-flow", "inspect-align"],
)
def test_a_text_that_names_a_file_is_translated_with_a_warning(model, monkeypatch, file, command):
    monkeypatch.chdir(file.parent)
    done = run(command, model, "two.en", "--quiet")
    assert done.stderr == (
        "warning: two.en is a file; its name is being used as text; use -i two.en for its lines\n"
    )
    assert done.stdout
    offered = run(command, model, "-i", "two.en", "--quiet")
    assert offered.stderr == ""


def test_a_target_that_names_a_file_is_warned_of_too(model, monkeypatch, file):
    monkeypatch.chdir(file.parent)
    done = run("inspect-heads", model, "A man", "--target", "two.en", "--quiet")
    assert done.stderr == (
        "warning: two.en is a file; its name is being used as text; "
        "use --target-file two.en for its lines\n"
    )
    assert run("inspect-heads", model, "A", "--target-file", "two.en", "--quiet").stderr == ""


def test_names_with_spaces_are_quoted_and_one_warning_is_enough(model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("my file.en", "two.en"):
        (tmp_path / name).write_text("A man\n")
    done = run("translate", model, "A man", "my file.en", "two.en", "--quiet")
    assert done.stderr.count("warning: ") == 1
    assert "use -i 'my file.en' for its lines" in done.stderr
    assert len(done.stdout.splitlines()) == 3


@pytest.mark.parametrize("text", ["A man", "directory", "x" * 5000, "a\nb", "../nothing"])
def test_other_texts_are_not_taken_for_files(model, monkeypatch, tmp_path, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "directory").mkdir()
    assert "is a file" not in run("translate", model, text, "--quiet").stderr


def test_more_translations_than_the_beam_are_found_and_noted(model):
    words = ["translate", model, "A man", "--format", "tsv", "--n-best", "5"]
    done = run(*words)
    assert len(done.stdout.splitlines()) == 5
    assert done.stderr.startswith("beam size raised from 3 to 5, to find 5 translations\n")
    assert run(*words, "--quiet").stderr == ""
    looked = run("inspect-heads", model, "A man", "--rank", "5")
    assert "beam size raised from 3 to 5, to find 5 translations\n" in looked.stderr
