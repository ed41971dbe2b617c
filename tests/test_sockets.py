"""Sockets: packages that add a command, a view, a format and a reader; what broken ones cost."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.commands import run
from tformer_cli import sockets
from tformer_cli.cli.known_commands import COMMANDS, Command
from tformer_cli.documents.known_formats import FORMATS, Format
from tformer_cli.foreign.readers import READERS
from tformer_cli.guide import find_guide
from tformer_cli.inspect.views import VIEWS
from tformer_cli.sockets import Socket

SAMPLE = Path(__file__).parent / "sample_package"
PROJECT = SAMPLE / "pyproject.toml"
TABLES = [COMMANDS, VIEWS, FORMATS, READERS]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.group)
def test_every_row_that_ships_is_loaded_under_its_name_without_a_search(table, monkeypatch):
    monkeypatch.setattr(sockets, "_entry_points", lambda _: pytest.fail("disk was read"))
    for name in table.shipped:
        assert name in table
        assert getattr(table[name], "name", name) == getattr(table.get(name), "name", name) == name


@pytest.fixture
def installed(monkeypatch):
    """Installs entry points of one group, and returns the table and what is reported."""
    messages = []
    monkeypatch.setattr(sockets, "report", messages.append)

    def install(**places):
        entries = {
            name: tuple(EntryPoint(name, place, "tformer.made") for place in place.split())
            for name, place in places.items()
        }
        monkeypatch.setattr(sockets, "_entry_points", lambda _: entries)
        return Socket("made", int, {"shipped": 1, "late": "sys:maxunicode"}), messages

    return install


def test_what_ships_goes_first_and_wins(installed):
    table, messages = installed(added="sys:maxsize", shipped="sys:api_version")
    assert dict(table) == {"shipped": 1, "late": sys.maxunicode, "added": sys.maxsize}
    assert len(table) == 3
    assert "added" in table
    assert (table.get("other"), "other" in table) == (None, False)
    with pytest.raises(KeyError, match="other"):
        table["other"]
    assert messages == []


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("no_such_module:x", "cannot be loaded (ModuleNotFoundError: No module named"),
        ("os:no_such_name", "cannot be loaded (AttributeError: module 'os' has no attribute"),
        ("os:getcwd", "is no int"),
        ("sys:maxsize sys:api_version", "is named by a package, too"),
    ],
)
def test_a_broken_row_is_one_warning_and_missing(installed, place, problem):
    table, messages = installed(broken=place)
    assert "broken" not in table
    assert list(table) == ["shipped", "late"]
    (message,) = messages
    assert message.startswith(f"a package: tformer.made: broken ({place.split()[0]}) {problem}")
    assert message.endswith("; update or remove the package")


def test_a_row_with_another_name_is_refused(installed, monkeypatch):
    monkeypatch.setattr(os, "made", EntryPoint("b", "c", "d"), raising=False)
    _, messages = installed(a="os:made")
    assert "a" not in Socket("made", EntryPoint, {})
    assert "calls itself b" in messages[0]


@pytest.mark.parametrize("row", [Format("b", ".b", "m:read"), Format("b", (".b",), "m:read", "k")])
def test_a_format_whose_extensions_are_one_text_is_refused(installed, monkeypatch, row):
    monkeypatch.setattr(os, "made", row, raising=False)
    _, messages = installed(b="os:made")
    assert "b" not in Socket("made", Format, {})
    assert re.search(r"b \(os:made\) has one text as (extensions|takes); write \('", messages[0])


def test_a_command_whose_module_is_missing_names_its_package(installed, monkeypatch):
    monkeypatch.setattr(COMMANDS, "_loaded", {**COMMANDS._loaded})
    monkeypatch.setattr(os, "made", Command("no_such_module:x", "Count."), raising=False)
    installed(count="os:made")
    answer = run("count")
    assert answer.exit_code == 2
    assert answer.stderr == (
        "error: a package: tformer.commands: count (os:made) cannot be loaded "
        "(ModuleNotFoundError: No module named 'no_such_module'); update or remove the package\n"
    )


@pytest.mark.parametrize("text", [b"[tformer.views]\nx = \xff\n", b"[tformer.views]\nx\n"])
def test_damaged_metadata_is_a_warning(installed, monkeypatch, tmp_path, text):
    find, (_, messages) = sockets._entry_points, installed()
    metadata = tmp_path / "broken-1.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_bytes(text)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert sockets._is_mentioned.__wrapped__()
    monkeypatch.setattr(sockets, "_is_mentioned", lambda: True)
    assert find.__wrapped__("tformer.views") == {}
    assert "cannot be read" in "".join(messages)


def test_without_a_program_a_warning_is_pythons():
    with pytest.warns(RuntimeWarning, match="broken"):
        sockets._warn("broken")


def test_the_guide_shows_the_sample_package():
    guide = find_guide("extending").text
    (sample,) = re.findall(r"```\n(\[project.*?)```", guide, re.DOTALL)
    shown, whole = (tomllib.loads(text)["project"] for text in (sample, PROJECT.read_text()))
    groups = shown.pop("entry-points")
    assert shown.items() <= whole.items()
    assert groups.items() <= whole["entry-points"].items()
    assert set(whole["entry-points"]) == {table.group for table in TABLES}
    code = "".join(file.read_text() for file in SAMPLE.rglob("*.py"))
    examples = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert [example for example in examples if example not in code] == []
    assert len(examples) == 2


def test_the_sample_package_has_rows_of_the_right_types(monkeypatch):
    monkeypatch.syspath_prepend(SAMPLE)
    for group, entries in tomllib.loads(PROJECT.read_text())["project"]["entry-points"].items():
        (table,) = [table for table in TABLES if table.group == group]
        for place in entries.values():
            assert isinstance(sockets.load_place(place), table.row_type)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A fresh environment with the sample package, and what this one has."""
    folder = tmp_path_factory.mktemp("environment")
    source = folder / "source"
    shutil.copytree(SAMPLE, source)
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    site = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
    paths = [path for path in sys.path if path.endswith("-packages")]
    Path(site, "this.pth").write_text("\n".join([str(Path(__file__).parents[1]), *paths]))
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"),
            *("--no-index", "--no-build-isolation", "--disable-pip-version-check", source),
        ],
        check=True,
    )

    def run(*words, **options):
        return subprocess.run(
            [python, "-I", "-m", "tformer_cli", *map(str, words)],
            **{"capture_output": True, "text": True, "cwd": folder, **options},
            check=False,
        )

    run.site, run.python = Path(site), python
    return run


@pytest.mark.slow
def test_a_package_adds_a_command(environment):
    answer = environment("count-words", input="a b c\n\nd\n")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "3\n0\n1\n", "")
    screen = environment("--help").stdout
    assert "From other packages" in screen
    assert "count-words" in screen
    assert "inspect-entropy" in screen
    assert "count-words [OPTIONS]" in environment("count-words", "--help").stdout
    assert "did you mean count-words?" in environment("count-word").stderr


@pytest.mark.slow
def test_a_package_adds_a_view(environment, model):
    line = "The cat sleeps."
    for words in (("inspect-entropy",), ("inspect", "entropy")):
        answer = environment(*words, model, line, "--format", "jsonl", "-q")
        record = json.loads(answer.stdout)
        assert record["schema"] == "sample.entropy/1"
        heads = environment("inspect-heads", model, line, "--format", "jsonl", "-q").stdout
        of_heads = {head["id"]: head["metrics"]["entropy"] for head in json.loads(heads)["heads"]}
        assert record["entropy"] == pytest.approx(of_heads, abs=1e-5)
    code = f"""
import json, tformer_cli
from tformer_cli.plugins.serve.live import known_events
(record,) = tformer_cli.load({str(model)!r}, device="cpu").inspect("entropy", [{line!r}])
print(json.dumps([record.heads, known_events()]))
"""
    answer = subprocess.run([environment.python, "-I", "-c", code], stdout=-1, check=True)
    heads, events = json.loads(answer.stdout)
    assert heads == record["entropy"]
    assert "entropy" in events
    for name in ("text", "html", "svg"):
        shown = environment("inspect-entropy", model, line, "--format", name, "-q").stdout
        assert all(f"{nats:.3f}" in shown for nats in of_heads.values())
        assert line in shown
        assert "<script" not in shown
    report = environment("inspect-report", model, line, "-o", "report.html", "-q", "--no-ablation")
    assert (report.returncode, report.stderr) == (0, "")
    page = Path(environment.site.parents[3], "report.html").read_text("utf-8")
    (tab,) = re.findall(r'<template data-view="entropy".*?</template>', page, re.DOTALL)
    assert all(f">{nats:.3f}<" in tab for nats in of_heads.values())


@pytest.mark.slow
def test_a_package_adds_a_format(environment, model, tmp_path):
    source, target = tmp_path / "app.properties", tmp_path / "out.properties"
    source.write_bytes(b"# A note\nhello = The cat sleeps.\r\nempty=\n")
    assert environment("translate", model, source, "-o", target, "-q").returncode == 0
    translated = environment("translate", model, "The cat sleeps.", "-q").stdout.strip()
    assert target.read_bytes() == f"# A note\nhello = {translated}\r\nempty=\n".encode()
    refused = environment("translate", model, source, "--document", "propertie", "-o", target)
    assert "did you mean properties?" in refused.stderr


@pytest.mark.slow
def test_a_package_adds_a_reader(environment, model, tmp_path):
    archive = tmp_path / "model.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            file.write(Path(model) / name, name)
    answer = environment("import", archive, "-o", tmp_path / "imported", "-q")
    assert (answer.returncode, answer.stderr) == (0, "")
    line = "The cat sleeps."
    models = model, tmp_path / "imported"
    own, other = (environment("translate", path, line, "-q").stdout for path in models)
    assert own == other != ""


@pytest.mark.slow
def test_a_broken_package_is_one_warning(environment, model):
    file = next(environment.site.glob("tformer_sample/words.py"))
    text = file.read_text()
    file.write_text("1 / 0\n")
    try:
        screen = environment("--help")
        assert (screen.returncode, "count-words" in screen.stdout) == (0, False)
        (line,) = screen.stderr.splitlines()
        assert line.startswith("warning: tformer-sample 0.1: tformer.commands: count-words (")
        assert "cannot be loaded (ZeroDivisionError: division by zero); update or" in line
        answer = environment("translate", model, "The cat sleeps.", "-q")
        assert (answer.returncode, answer.stderr) == (0, "")
        refused = environment("count-words", input="")
        assert refused.returncode == 2
        assert refused.stderr.splitlines()[0] == line
        assert refused.stderr.splitlines()[1].startswith("error: count-words: no such command")
    finally:
        file.write_text(text)
