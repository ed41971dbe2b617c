"""The notebooks that ship with the package run from top to bottom, on small models."""

import ast
import json
import os
import shutil
from pathlib import Path

import pytest

import tformer_cli
from tests.models import save_random
from tformer_cli.guide import notebooks

PACKAGE = Path(tformer_cli.__file__).parent
FOLDER = PACKAGE / "guide/notebooks"
NAMES = ("translating", "training", "classifying")
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


def make_smaller(code):
    for large, small in SMALLER.items():
        code = code.replace(large, small)
    return code


@pytest.fixture
def folder(zoo, tmp_path):
    """The models of the notebooks; the quickstart's own if TFORMER_QUICKSTART names it."""
    quickstart = tmp_path / "runs/quickstart"
    if named := os.environ.get("TFORMER_QUICKSTART"):
        shutil.copytree(named, quickstart)
    else:
        save_random(quickstart, max_positions=100, decoding={"max_length": 8})
    shutil.copytree(zoo["classifier"], tmp_path / "runs/ratings")
    return tmp_path


def check_shown(name, printed, pages):
    assert printed.count("\n") > 4
    n_pages = sum(output.startswith("<iframe") for output in pages)
    assert n_pages == {"translating": 2, "training": 0, "classifying": 1}[name]
    assert sum(output.startswith("<table") for output in pages) >= (name != "translating")


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(folder, monkeypatch, capsys, name):
    monkeypatch.chdir(folder)
    # Where an installation has it
    monkeypatch.syspath_prepend(PACKAGE / "api/alias")
    names, shown = {"__name__": "__main__"}, []
    for code in cells_of(name, "code"):
        shown += run_cell(make_smaller(code), names)
    printed = capsys.readouterr()
    assert printed.err == ""
    check_shown(name, printed.out, shown)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", NAMES)
def test_jupyter_runs_a_notebook(folder, name):
    client, books = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    book = books.reads(text, as_version=4)
    for cell in book.cells:
        cell.source = make_smaller(cell.source)
    client.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    printed = "".join(output.get("text", "") for output in outputs)
    check_shown(name, printed, [output.get("data", {}).get("text/html", "") for output in outputs])


def test_a_notebook_is_small_and_holds_no_outputs():
    assert {path.name for path in FOLDER.iterdir()} == notebooks().keys()
    for path in FOLDER.iterdir():
        book = json.loads(path.read_text(encoding="utf-8"))
        assert path.stat().st_size < 10_000
        assert (book["nbformat"], cells_of(path.stem, "markdown")[0][:2]) == (4, "# ")
        assert not any(cell.get("outputs") for cell in book["cells"])
        assert not any(cell.get("execution_count") for cell in book["cells"])
