"""Processes that measure speed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tformer_cli.errors import TformerError
from tformer_cli.plugins.corpora_tools.benchmark import in_new_process

PROGRAM = """
import os, time
from tformer_cli.plugins.corpora_tools.benchmark import in_new_process
def measure():
    print(os.getpid(), flush=True)
    time.sleep(60)
if __name__ == "__main__":
    in_new_process(measure)
"""


def test_a_process_that_measures_ends_with_its_parent_without_a_word(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    root = str(Path(__file__).parents[2])
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "program.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root}, text=True,
    )  # fmt: skip
    assert int(parent.stdout.readline()) != parent.pid
    # A process that has not begun yet may say that its parent is gone
    parent.send_signal(signal.SIGKILL)
    # The end of what all of its processes write: none is left
    assert parent.communicate() == ("", "")


def test_errors_and_deaths_of_a_process_that_measures_are_errors():
    assert in_new_process(os.getpid) != os.getpid()
    with pytest.raises(ValueError, match="invalid literal"):
        in_new_process(int, "x")
    with pytest.raises(TformerError, match="has ended with status 3; it may have been killed"):
        in_new_process(os._exit, 3)
