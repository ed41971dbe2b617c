"""Every JSON object that a command prints names its schema."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.commands import output_of
from tests.slowly import slowly

HELP = Path(__file__).with_name("help")
COMMANDS = {
    "benchmark": ("benchmark", "M -i S --rounds 1 --beam-size 1 --lines 2"),
    "compare": ("compare", "--reference T --source S a=T b=S --samples 20"),
    "data-check": ("datacheck", "S T"),
    "evaluate": ("scores", "--hypothesis S --reference T"),
    "info": ("info", "M"),
    "inspect-positions": ("positions", "M"),
    "inspect-step": ("step", "M word --token 0 --head enc.0.0"),
    "models": ("models", "en-fi"),
    "tokenize-stats": ("tokenizer", "M S"),
}
"""Arguments by command: M is a model, S and T are texts."""
ELSEWHERE = {
    "calibrate": "tests/inspect/test_doubt.py",
    "distill": "tests/plugins/corpora_tools/distill",
    "study": "tests/plugins/corpora_tools/study",
}


def test_every_command_with_json_is_tried():
    with_json = {
        file.stem
        for file in HELP.glob("*.txt")
        if re.search(r"--format [a-z|]*\bjson\b", file.read_text("utf-8"))
    }
    assert with_json == {*COMMANDS, *ELSEWHERE}


@pytest.mark.parametrize(
    "name", ["evaluate", "info", *slowly(*sorted({*COMMANDS} - {"evaluate", "info"}))]
)
def test_objects_name_their_schema(zoo, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(zoo["translate"], "M")
    for side, file in (("S", "text.en"), ("T", "text.fr")):
        shutil.copy(zoo.inputs / file, side)
    schema, arguments = COMMANDS[name]
    command = name.split("-", name.startswith(("data", "tokenize")))
    text = output_of(*command, *arguments.split(), "--format", "json", "-q")
    # benchmark writes an object a line
    values = map(json.loads, text.splitlines()) if name == "benchmark" else [json.loads(text)]
    for value in values:
        objects = value if isinstance(value, list) else [value]
        assert {entry["schema"] for entry in objects} == {f"tformer.{schema}/1"}
