"""`.ci/run` runs the README's own commands, and workers agree on what the tests are called."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_commands_of_the_readme_are_run_word_for_word():
    printed = subprocess.run(
        [sys.executable, ROOT / ".ci/readme.py"], capture_output=True, text=True, check=True
    ).stdout
    commands = printed.splitlines()
    assert [re.split(" && ", command)[-1] for command in commands] == [
        "tformer quickstart",
        ".venv/bin/pytest",
    ]
    readme = (ROOT / "README.md").read_text()
    script = (ROOT / ".ci/run").read_text()
    for command in commands:
        assert f"\n```sh\n{command}\n```\n" in readme
        # and nothing that could differ from it
        assert not [part for part in command.split(" && ")[:-1] if part in script]
    assert "mapfile -t commands < <(python3 .ci/readme.py)" in script


def faults_of_names(tree):
    check = [sys.executable, ROOT / ".ci/names.py", tree]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == bool(done.stderr)
    return done.stderr.splitlines()


def test_names_keep_their_limits():
    assert faults_of_names(ROOT) == []


def test_names_that_say_nothing_are_counted(tmp_path):
    module = tmp_path / "tformer_cli/module.py"
    module.parent.mkdir()
    module.write_text(
        "OF_LINES = [one for one in range(3)]\n"
        "def _turned(given): pass\n"
        "class Row:\n"
        "    found: int\n"
        "    @property\n"
        "    def added(self): pass  # one that is read as a value\n"
    )
    assert [line.split(";")[0] for line in faults_of_names(tmp_path)] == [
        "tformer_cli: 2 `one` as a name, 0 at most", *["  tformer_cli/module.py:1 one"] * 2,
        "tformer_cli: 2 vague names, 0 at most",
        "  tformer_cli/module.py:4 found", "  tformer_cli/module.py:2 given",
        "tformer_cli: 1 functions named by participles, 0 at most",
        "  tformer_cli/module.py:2 _turned",
        "tformer_cli: 1 constants named OF_…, 0 at most",
        "  tformer_cli/module.py:1 OF_LINES",
        "tformer_cli: 500 the word `one` in 1,000 lines, 17 at most",
    ]  # fmt: skip
    module.write_text("row = 1\n")
    assert faults_of_names(tmp_path) == [
        "tformer_cli: 0 the word `one` in 1,000 lines, but 17 allowed; lower it in .ci/names.py"
    ]


@pytest.mark.slow
def test_tests_have_the_same_names_in_every_process_at_every_time():
    """pytest-xdist ends the run if two of its workers name a test differently."""
    names = [
        subprocess.run(
            [sys.executable, "-m", "pytest", "-n0", "-q", "--collect-only"],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for seed in "01"
    ]
    first, second = ([line for line in lines if "::" in line] for lines in names)
    assert len(first) > 10_000
    assert [pair for pair in zip(first, second, strict=True) if len(set(pair)) > 1] == []
