"""Errors and the words of messages."""

import ast
import re
from copy import copy
from pathlib import Path

import pytest

import tformer_cli
from tformer_cli.errors import DataError, Setting, UsageError
from tformer_cli.wording import count_of, did_you_mean, suggestions

PACKAGE = Path(tformer_cli.__file__).parent
SPEAKERS = re.compile(r"(Error|Interrupted|AnotherProcessFailed|warn|note|error_line|hold)$")
OLD_ORDER = re.compile(r"\w \((?:[^()]|\([^()]*\))*\): ")
"""As in ``no such file (a.en): check the path``, where the file stands behind what is wrong."""


def messages_of(file: Path) -> list[tuple[int, str]]:
    """The messages of a module, each with its line; ``{}`` stands for what is filled in."""
    messages = []
    for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(call, ast.Call):
            continue
        if not SPEAKERS.search(ast.unparse(call.func).removesuffix(".of")):
            continue
        for argument in call.args:
            if isinstance(argument, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in argument.values]
                messages.append((argument.lineno, "".join(map(str, parts))))
            elif isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                messages.append((argument.lineno, argument.value))
    return messages


@pytest.mark.parametrize(
    ("message", "is_old"),
    [
        ("no such file ({}): check the path", True),
        ("is damaged ({}, line {}): {}", True),
        ("no place (RANK=1 (of 2)): start anew", True),
        ("{}: no such file; check the path", False),
        ("{}: cannot be read ({}); check the file", False),
        ("{}, {}: different numbers of lines ({} and {}); give others", False),
    ],
)
def test_the_old_order_is_recognized(message, is_old):
    assert bool(OLD_ORDER.search(message)) == is_old


def test_every_error_begins_with_its_place():
    messages = {
        f"{file.relative_to(PACKAGE)}:{line}": text
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, text in messages_of(file)
    }
    assert len(messages) > 250, "messages are no longer found by this test"
    assert {place: text for place, text in messages.items() if OLD_ORDER.search(text)} == {}


@pytest.mark.parametrize(
    ("template", "in_options", "in_arguments"),
    [
        ("{beam_size}: must be {}", "--beam-size: must be {x} --y", "beam_size: must be {x} --y"),
        ("{stops} of `tokenize --ids` {!r}", "--stop of `tokenize --ids` '{x} --y'", "stops of "),
        ("a; add {too_long split}", "a; add --too-long split", 'a; add too_long="split"'),
        ("a: name pictures{ (--images takes all)}", "a: name pictures (--images", "a: name pic"),
    ],
)
def test_settings_are_named_as_each_surface_writes_them(template, in_options, in_arguments):
    error = copy(UsageError.of(template, "{x} --y"))
    assert str(error).startswith(in_options)
    assert error.in_arguments.startswith(in_arguments)
    around = DataError.of("{}: {}", Setting("top_k"), error)
    assert str(around) == f"--top-k: {error}"
    assert around.in_arguments == f"top_k: {error.in_arguments}"
    assert UsageError("--a: {b}").in_arguments == "--a: {b}"  # only for the command line


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 lines"), (1, "1 line"), (2, "2 lines"), (1234, "1,234 lines")],
)
def test_one_is_singular(number, expected):
    assert count_of(number, "line") == expected


def test_a_plural_may_be_another_word():
    assert count_of(1, "batch", "batches") == "1 batch"
    assert count_of(3, "batch", "batches") == "3 batches"


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("--beam", ["--ban", "--beam-size", "--batch-tokens"], ["--beam-size"]),
        ("--model", ["--help", "--format", "--heads"], []),
        ("--tpo", ["--top", "--text"], ["--top"]),
        ("--opt", ["--top", "--text"], []),
        ("--list", ["--quiet", "--input"], []),
        ("--bem-size", ["--ban", "--beam-size"], ["--beam-size"]),
        ("--max", ["--max-steps", "--max-epochs", "--max-time", "--max-wait"], 3),
        ("tranlate", ["train", "translate", "evaluate"], ["translate"]),
        ("n_layers", ["d_model", "n_encoder_layers", "n_decoder_layers", "n_heads"], 2),
        ("max_step", ["max_steps", "max_epochs"], ["max_steps"]),
        ("learning_rat", ["learning_rate", "seed"], ["learning_rate"]),
        ("Seed", ["seed"], ["seed"]),
        ("", ["a"], []),
        ("-", ["--a"], []),
        ("x", ["xylophone"], []),
    ],
)
def test_guesses_are_near_or_none(word, known, meant):
    found = suggestions(word, known)
    assert len(found) == meant if isinstance(meant, int) else found == meant


def test_guesses_are_a_question():
    assert did_you_mean([]) == ""
    assert did_you_mean(["a"]) == "did you mean a?"
    assert did_you_mean(["a", "b", "c"]) == "did you mean a, b or c?"
