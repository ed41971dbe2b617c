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
from tests.recipes import tiny_translator

PACKAGE = Path(tformer_cli.__file__).parent
SCRIPT = """
import json
from importlib.util import find_spec
assert find_spec("tformer_cli.fast") is None
from typer.testing import CliRunner
from tformer_cli.cli.app import app
results = [CliRunner().invoke(app, command) for command in COMMANDS]
print(json.dumps([(run.exit_code, run.stdout, run.stderr) for run in results]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A copy of the package that lacks the folder, and a recipe."""
    folder = tmp_path_factory.mktemp("without")
    shutil.copytree(PACKAGE, folder / "tformer_cli", ignore=shutil.ignore_patterns("fast"))
    assert not (folder / "tformer_cli" / "fast").exists()
    make = tiny_translator(
        folder, 200,
        training={"max_steps": 6, "warmup_steps": 2, "report_every": 1},
        validation={"every": 3, "metric": "bleu"},
    )  # fmt: skip
    (folder / "recipe.toml").write_text(make().to_toml())
    return folder


TEXT = "A dog sleeps."


@pytest.fixture(scope="module")
def done(folder):
    """What commands print there, each (status, stdout, stderr), all in one process."""
    commands = {
        "train": ("train", "recipe.toml", "-o", "run", "--threads", "1"),
        "translate": ("translate", "run", TEXT),
        "greedy": ("translate", "run", TEXT, "--beam-size", "1", "--format", "jsonl"),
        "heads": ("inspect-heads", "run", TEXT, "--format", "jsonl", "--weights"),
        "step": ("inspect-step", "run", TEXT, "--head", "dec.0.1", "--token", "0", "--format=text"),
        "integers": ("translate", "run", TEXT, "--precision", "int8"),
        "engine": ("translate", "run", TEXT, "--engine", "compiled"),
    }
    done = subprocess.run(
        [sys.executable, "-c", f"COMMANDS = {list(commands.values())!r}\n{SCRIPT}"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(commands, map(tuple, json.loads(done.stdout)), strict=True))


def test_it_trains_and_says_that_it_is_slower(folder, done):
    status, _, told = done["train"]
    assert status == 0, told
    assert "training without compiled kernels, which is slower: tformer_cli/fast is missing" in told
    assert (folder / "run" / "model.safetensors").is_file()


def test_it_translates_and_inspects_and_refuses_what_is_only_fast(folder, done):
    assert [done[name][0] for name in ("translate", "greedy", "heads", "step")] == [0, 0, 0, 0]
    assert '"translation"' in done["greedy"][1]
    assert '"weights"' in done["heads"][1]
    assert "√d_k" in done["step"][1]
    for name in ("integers", "engine"):
        status, out, err = done[name]
        assert (status, out) == (2, "")
        assert "needs tformer_cli/fast, which is missing" in err
    # the whole program, with or without its kernels, translates to the same line
    from tformer_cli.kinds.opening import open_model

    torch.set_num_threads(1)
    translator = open_model(folder / "run", device="cpu").translator
    assert done["translate"][1] == f"{translator.translate([TEXT])[0].hypotheses[0].text}\n"


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
        imports = list(imports_of(ast.parse(file.read_text(encoding="utf-8"))))
        fast = [at_once for name, at_once in imports if name.startswith("tformer_cli.fast")]
        assert not any(fast), f"{file} imports it when it is imported"
        n_late += len(fast)
    assert n_late > 4
