"""The notebooks that ship with the package run from top to bottom, on small models."""

import ast
import json
import shutil
from pathlib import Path

import pytest

import tformer_cli
from tests.models import save_random
from tformer_cli.guide import notebooks

PACKAGE = Path(tformer_cli.__file__).parent
FOLDER = PACKAGE / "guide/notebooks"
SMALLER = {
    "STEPS = 400": "STEPS = 4",
    "2000": "200",
    "[:100]": "[:20]",
    'sentences": 100': 'sentences": 9',
    '"d_model": 64': '"d_model": 16',
}
"""Numbers of training that a test has no time for."""


def cells_of(name, kind):
    book = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == kind]


def run_cell(code, names):
    """Runs a cell, and shows what it ends with as Jupyter does."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, code, "exec"), names)  # noqa: S102
    value = last and eval(compile(ast.Expression(last.value), code, "eval"), names)  # noqa: S307
    shown = [getattr(value, f"_repr_{kind}_", lambda: "")() for kind in ("html", "svg")]
    return [output for output in (*shown, "" if value is None else repr(value)) if output]


@pytest.mark.parametrize("name", ["translating", "training", "classifying"])
def test_a_notebook_runs(zoo, tmp_path, monkeypatch, capsys, name):
    if name == "translating":
        save_random(tmp_path / "runs/quickstart", max_positions=100, decoding={"max_length": 8})
    elif name == "classifying":
        shutil.copytree(zoo["classifier"], tmp_path / "runs/ratings")
    monkeypatch.chdir(tmp_path)
    # Where an installation has it
    monkeypatch.syspath_prepend(PACKAGE / "api/alias")
    names, shown = {"__name__": "__main__"}, []
    for code in cells_of(name, "code"):
        for large, small in SMALLER.items():
            code = code.replace(large, small)
        shown += run_cell(code, names)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.count("\n") > 4
    n_pages = sum(output.startswith("<iframe") for output in shown)
    assert n_pages == {"translating": 2, "training": 0, "classifying": 1}[name]
    assert sum(output.startswith("<table") for output in shown) >= (name != "translating")


def test_a_notebook_is_small_and_holds_no_outputs():
    assert {path.name for path in FOLDER.iterdir()} == notebooks().keys()
    for path in FOLDER.iterdir():
        book = json.loads(path.read_text(encoding="utf-8"))
        assert path.stat().st_size < 10_000
        assert (book["nbformat"], cells_of(path.stem, "markdown")[0][:2]) == (4, "# ")
        assert not any(cell.get("outputs") for cell in book["cells"])
        assert not any(cell.get("execution_count") for cell in book["cells"])
