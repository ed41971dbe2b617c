"""Choosing the languages of a model that has tokens for them."""

import pytest

from tests.commands import output_of, record_of, refused
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


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, line in (("a.txt", "The dog"), ("b.txt", "A man")):
        (tmp_path / name).write_text(line + "\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_works_once_it_is_told_its_languages(foreign, command):
    assert output_of(command, foreign, *COMMANDS[command], *CHOSEN, "--quiet").strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_must_be_told_its_languages(foreign, command):
    arguments = (command, foreign, *COMMANDS[command], "--quiet")
    refused(*arguments, says="--source-language: this model knows 2 languages, but none is chosen")
    message = '--target-language: this model does not know "fre"; choose fra'
    refused(*arguments, *CHOSEN[:-1], "fre", says=message)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_of_two_languages_refuses_the_options(model, command):
    message = "--target-language: this model translates between two languages"
    arguments = (*COMMANDS[command], "--target-language", "fra", "--quiet")
    refused(command, model, *arguments, says=message)


def test_the_chosen_language_is_what_is_scored_and_translated(foreign):
    opened = open_model(foreign, source_language="eng", target_language="fra")
    sides = opened.directory.tokenizer
    arguments = ("score", foreign, *COMMANDS["score"])
    record = record_of(*arguments, *CHOSEN, "--format", "jsonl", "--quiet")
    assert record["token_ids"] == sides.target.encode("A man")
    assert sides.target.pieces(sides.target.encode("A man"))[0] == "fra_Latn"
    other = [*CHOSEN[:-1], "eng"]
    scores = [output_of(*arguments, *languages) for languages in (CHOSEN, other)]
    assert scores[0] != scores[1]


def test_both_ways_of_an_alignment_have_their_languages(foreign):
    arguments = (*COMMANDS["inspect-align"], "--reverse", foreign, *CHOSEN, "--quiet")
    output_of("inspect-align", foreign, *arguments)
