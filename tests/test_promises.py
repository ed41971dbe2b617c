"""What is promised from 1.0 on is still there: `tformer guide changes` says what that means.

`promises.txt` holds it: a line for each thing, with the names that belong to it. Names may be added
without a word here. A release writes them down (TFORMER_WRITE_PROMISES=1), and from then on none
may go. The list is derived: from the commands, recipes, schemas, Python functions and paths of the
service, and from what commands write with the models of the zoo.
"""

import inspect
import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import tformer_cli
from tests.commands import output_of
from tests.test_documents import KEY_TABLES, all_commands, options_of
from tformer_cli.api.model import LoadedModel
from tformer_cli.plugins.serve.app import ROUTES
from tformer_cli.settings import literal_values
from tformer_cli.version import __version__

FILE = Path(__file__).parent / "promises.txt"
PACKAGE = Path(tformer_cli.__file__).parent
WRITES = bool(os.environ.get("TFORMER_WRITE_PROMISES"))
HEAD = f"# What tformer {__version__} promises to keep: see test_promises.py\n"
BY_DATA = {"probabilities", "shares", "source_label"}
"""Fields of JSON that hold an object by labels or other names of the data."""
WRITTEN = """
translate zoo/translate -i in/text.en --format jsonl --n-best 2 --token-scores --flags
translate zoo/translate -i in/odd.en --format jsonl --alignments pharaoh
generate zoo/language_model A --format jsonl --n-best 2
classify zoo/classifier A --format jsonl --top 2
tag zoo/tagger A --format jsonl
fill zoo/masked "A <mask>" --format jsonl
embed zoo/sentences A --format jsonl
score zoo/translate -i in/text.en --target-file in/text.fr --format jsonl
evaluate zoo/translate --source in/text.en --reference in/text.fr --format json --confidence
compare --reference in/text.fr in/text.fr b=in/text.en --format json
info zoo/translate --format json
inspect-heads zoo/translate A --format jsonl --weights
inspect-logits zoo/translate A --format jsonl
inspect-flow zoo/translate A --format jsonl
inspect-step zoo/translate A --format json --head cross.0.0 --token 0
tokenize stats zoo/translate in/text.en --format json
data check in/text.en in/text.fr --format json
"""
"""Commands that write JSON, with models and inputs of the zoo."""


def choices_of(parameter: object) -> tuple[object, ...]:
    kind = getattr(parameter, "type_descriptor", None)
    return tuple(value for value in literal_values(kind.annotation) if value) if kind else ()


def promised_commands() -> Iterator[tuple[str, set[str]]]:
    """Yields commands with their options and arguments, and options with their values."""
    for name, command in all_commands().items():
        arguments = {each.name.upper() for each in command.params if "-" not in each.opts[0]}
        yield f"command {name or 'tformer'}", options_of(command) | arguments
        for parameter in command.params:
            if values := choices_of(parameter):
                yield f"values {name} {parameter.opts[0]}", {str(value) for value in values}


def promised_names() -> Iterator[tuple[str, set[str]]]:
    """Yields recipe keys, schemas, names of Python, and paths of the service."""
    for table, settings in KEY_TABLES.items():
        yield f"keys {table}", {key.name for key in fields(settings)}
    sources = [file.read_text("utf-8") for file in PACKAGE.rglob("*.py")]
    yield (
        "schemas",
        {name for text in sources for name in re.findall(r'"(tformer\.\w+/\d+)"', text)},
    )
    yield "python tformer", set(tformer_cli.__all__)
    methods = {name: value for name, value in inspect.getmembers(LoadedModel) if name[0] != "_"}
    yield "python LoadedModel", set(methods)
    functions = {f"LoadedModel.{name}": value for name, value in methods.items()}
    functions |= {name: getattr(tformer_cli, name) for name in ("evaluate", "load", "train")}
    for name, function in functions.items():
        if callable(function):
            yield f"python {name}", set(inspect.signature(function).parameters) - {"self"}
    yield "paths of serve", {route.path for route in ROUTES}
    yield (
        "entry points",
        {f"tformer.{name}" for name in ("commands", "views", "formats", "readers")},
    )


def paths_of(value: object, start: str = "") -> Iterator[str]:
    """Yields the fields of a JSON value, `hypotheses.score` for one of objects in a list."""
    for item in value if isinstance(value, list) else [value]:
        for name, inner in item.items() if isinstance(item, dict) else ():
            yield f"{start}{name}"
            if name not in BY_DATA:
                yield from paths_of(inner, f"{start}{name}.")


def promised_fields(zoo) -> Iterator[tuple[str, set[str]]]:
    """Yields the fields that commands write, and those of the files of a model."""
    for line in WRITTEN.strip().splitlines():
        words = [
            str(zoo[name] if folder == "zoo" else zoo.inputs / name) if name else folder
            for folder, _, name in (word.partition("/") for word in shlex.split(line))
        ]
        output = output_of(*words)
        # One object a line, which only \n ends, or one over many lines
        values = map(json.loads, output.strip("\n").split("\n") if "jsonl" in words else [output])
        command = " ".join(word for word in words[:2] if re.fullmatch("[a-z][a-z-]*", word))
        yield f"fields {command}", set(paths_of(list(values)))
    yield "fields config.json", set(json.loads((zoo["translate"] / "config.json").read_text()))


@cache
def read_promises() -> dict[str, set[str]]:
    lines = FILE.read_text("utf-8").splitlines()[1:]
    rows = (line.split(":", 1) for line in lines)
    return {name: set(names.split()) for name, names in rows}


@pytest.fixture(scope="module")
def present(zoo):
    """All that is there today; written down, beside what was, where that is asked for."""
    rows: dict[str, set[str]] = {}
    for name, names in (*promised_commands(), *promised_names(), *promised_fields(zoo)):
        rows.setdefault(name, set()).update(names)
    if WRITES:
        for name, names in read_promises().items():
            rows.setdefault(name, set()).update(names)
        lines = [f"{name}: {' '.join(sorted(names))}\n" for name, names in sorted(rows.items())]
        FILE.write_text(HEAD + "".join(lines), "utf-8")
        read_promises.cache_clear()
    return rows


def test_nothing_that_was_promised_has_gone(present):
    gone = {
        name: lost
        for name, names in read_promises().items()
        if (lost := sorted(names - present.get(name, set())))
    }
    assert gone == {}, "a user relies on it: keep it, or call it deprecated until 2.0"


def test_each_release_writes_down_what_it_promises():
    assert FILE.read_text("utf-8").startswith(HEAD), "TFORMER_WRITE_PROMISES=1 writes it"
