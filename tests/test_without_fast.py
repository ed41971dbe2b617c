"""Without the folder `fast` the program is slower and does the same."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tformer_cli
from tests.tiny_recipe import TINY_MODEL

PACKAGE = Path(tformer_cli.__file__).parent
RECIPE = (
    """
[data]
train = [{ built_in = "train", pairs = 200, seed = 1 }]
valid = [{ built_in = "valid", pairs = 100, seed = 1 }]
cache_directory = "CACHE"
"""
    + TINY_MODEL
    + """\
[training]
precision = "float32"
tokens_per_batch = 400
max_steps = 6
warmup_steps = 2
report_every = 1
[validation]
every = 3
max_sentences = 2
[decoding]
max_length = 8
"""
)
SCRIPT = """
import json
from importlib.util import find_spec
assert find_spec("tformer_cli.fast") is None
from typer.testing import CliRunner
from tformer_cli.cli.app import app
results = [CliRunner().invoke(app, command) for command in COMMANDS]
print(json.dumps([(one.exit_code, one.stdout, one.stderr) for one in results]))
"""


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """Runs commands in a copy of the package that lacks the folder; gives what each printed."""
    folder = tmp_path_factory.mktemp("without")
    ignored = shutil.ignore_patterns("fast", "__pycache__")
    shutil.copytree(PACKAGE, folder / "tformer_cli", ignore=ignored)
    assert not (folder / "tformer_cli" / "fast").exists()
    (folder / "recipe.toml").write_text(RECIPE.replace("CACHE", str(folder / "cache")))
    environment = {**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1"}

    def run(*commands):
        done = subprocess.run(
            [sys.executable, "-c", f"COMMANDS = {commands!r}\n{SCRIPT}"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [tuple(result) for result in json.loads(done.stdout)]

    run.folder = folder
    return run


@pytest.fixture(scope="module")
def trained(without):
    ((status, _, err),) = without(("train", "recipe.toml", "-o", "run", "--threads", "1"))
    assert status == 0, err
    return without.folder / "run", err


def test_it_trains_and_says_that_it_is_slower(trained):
    run, told = trained
    assert "training without compiled kernels, which is slower: tformer_cli/fast is missing" in told
    assert (run / "model.safetensors").is_file()


def test_it_translates_and_inspects_and_refuses_what_is_only_fast(without, trained):
    text = "A dog sleeps."
    ordinary, sharp, heads, step, integers, engine = without(
        ("translate", "run", text),
        ("translate", "run", text, "--beam-size", "1", "--format", "jsonl"),
        ("inspect-heads", "run", text, "--format", "jsonl", "--weights"),
        ("inspect-step", "run", text, "--head", "dec.0.1", "--token", "0", "--format", "text"),
        ("translate", "run", text, "--precision", "int8"),
        ("translate", "run", text, "--engine", "compiled"),
    )
    assert [each[0] for each in (ordinary, sharp, heads, step)] == [0, 0, 0, 0]
    assert '"translation"' in sharp[1]
    assert '"weights"' in heads[1]
    assert "√d_k" in step[1]
    for status, out, err in (integers, engine):
        assert (status, out) == (2, "")
        assert "needs tformer_cli/fast, which is missing" in err
    # the whole program, with or without its kernels, translates to the same line
    from tformer_cli.workflows.opening.translator import open_translator

    torch.set_num_threads(1)
    translator = open_translator(trained[0], device="cpu").translator
    assert ordinary[1] == f"{translator.translate([text])[0].hypotheses[0].text}\n"


def imports_of(tree):
    """Modules that are imported, with whether that happens when the file is."""
    pending = [(node, True) for node in tree.body]
    while pending:
        node, is_at_once = pending.pop()
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, is_at_once
        elif isinstance(node, ast.Import):
            yield from ((alias.name, is_at_once) for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        is_body = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        pending += [(child, is_at_once and not is_body) for child in ast.iter_child_nodes(node)]


def test_nothing_outside_imports_it_at_once():
    n_late = 0
    for file in PACKAGE.rglob("*.py"):
        if PACKAGE / "fast" in file.parents:
            continue
        found = list(imports_of(ast.parse(file.read_text(encoding="utf-8"))))
        fast = [at_once for name, at_once in found if name.startswith("tformer_cli.fast")]
        assert not any(fast), f"{file} imports it when it is imported"
        n_late += len(fast)
    assert n_late > 4
