"""A program that uses tformer, as type checkers see it that know only what is installed."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import copy, which

import pytest

PROGRAM = Path(__file__).with_name("typed_program.py")
CHECKERS = {
    "mypy": (sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir"),
    "pyright": ("pyright", "--pythonpath", sys.executable, "--project"),
}
"""Commands, which end in an option that takes a folder."""


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_accepts_what_is_right_and_nothing_else(tmp_path, checker):
    if not (find_spec("mypy") if checker == "mypy" else which("pyright")):
        pytest.skip(f"{checker} is not installed")
    copy(PROGRAM, tmp_path / "program.py")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    command = [*CHECKERS[checker], str(tmp_path), *["program.py"] * (checker == "mypy")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if line.endswith("# wrong")]
    reported = re.findall(r"program\.py:(\d+):.*\berror\b", done.stdout)
    assert [*dict.fromkeys(map(int, reported))] == wrong, done.stdout + done.stderr
