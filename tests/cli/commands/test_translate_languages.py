"""Choosing the languages of a model that has tokens for them."""

import json

import pytest
from typer.testing import CliRunner

from tformer_cli.cli.app import app
from tformer_cli.kinds.opening import open_model

CHOSEN = ["--source-language", "eng", "--target-language", "fra"]
COMMANDS = {
    "translate": ["The dog"],
    "evaluate": ["--source", "a.txt", "--reference", "b.txt"],
    "score": ["--source", "a.txt", "--target-file", "b.txt"],
    "inspect-heads": ["The dog"],
    "inspect-align": ["--source", "a.txt", "--target-file", "b.txt"],
}
"""Arguments of each command that takes the options, after MODEL."""


def run(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments])


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, line in (("a.txt", "The dog"), ("b.txt", "A man")):
        (tmp_path / name).write_text(line + "\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_works_once_it_is_told_its_languages(foreign, command):
    done = run(command, foreign, *COMMANDS[command], *CHOSEN, "--quiet")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_must_be_told_its_languages(foreign, command):
    done = run(command, foreign, *COMMANDS[command], "--quiet")
    assert done.exit_code == 2
    assert "--source-language: this model knows 2 languages, and none is chosen" in done.stderr
    done = run(command, foreign, *COMMANDS[command], *CHOSEN[:-1], "fre", "--quiet")
    assert done.exit_code == 2
    assert '--target-language: this model does not know "fre"; choose fra' in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_of_two_languages_refuses_the_options(model, command):
    done = run(command, model, *COMMANDS[command], "--target-language", "fra", "--quiet")
    assert done.exit_code == 2
    assert "--target-language: this model has no tokens that name languages" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_chosen_language_is_what_is_scored_and_translated(foreign):
    opened = open_model(foreign, source_language="eng", target_language="fra")
    sides = opened.directory.tokenizer
    done = run("score", foreign, *COMMANDS["score"], *CHOSEN, "--format", "jsonl", "--quiet")
    assert json.loads(done.stdout)["token_ids"] == sides.target.encode("A man")
    assert sides.target.pieces(sides.target.encode("A man"))[0] == "fra_Latn"
    other = [*CHOSEN[:-1], "eng"]
    scores = [run("score", foreign, *COMMANDS["score"], *one).stdout for one in (CHOSEN, other)]
    assert scores[0] != scores[1]


def test_both_ways_of_an_alignment_have_their_languages(foreign):
    done = run(
        *("inspect-align", foreign, *COMMANDS["inspect-align"], "--reverse", foreign),
        *(*CHOSEN, "--quiet"),
    )
    assert done.exit_code == 0, done.stderr


def test_scoring_without_a_model_needs_no_language():
    done = run("evaluate", "--hypothesis", "a.txt", "--reference", "b.txt", *CHOSEN)
    assert done.exit_code == 2
    assert "--source-language: needs a MODEL; name one or omit it" in done.stderr


@pytest.mark.parametrize("option", [("--split-sentences", "rule"), ("--shortlist", "none")])
def test_scoring_without_a_model_takes_no_option_of_a_search(option):
    done = run("evaluate", "--hypothesis", "a.txt", "--reference", "b.txt", *option)
    assert done.exit_code == 2
    assert f"{option[0]}: needs a MODEL; name one or omit it" in done.stderr
