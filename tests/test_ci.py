"""`.ci/run` runs the README's own commands."""

import re
import subprocess
import sys
from pathlib import Path

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
