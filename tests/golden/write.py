"""Writes what the golden command lines write, to compare two checkouts by `diff -r`.

    python -m tests.golden.write DIR [NAME …]

A NAME is a case of `cases.txt` or the beginning of some; without any all are run. Run from the root
of a checkout: its package is used.
"""

import sys
import tempfile
from pathlib import Path

from tests.golden.harness import Stage, read_cases


def main():
    """Runs the cases that the command line names."""
    target, *names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(folder)
        for name, command in read_cases().items():
            if names and not name.startswith(tuple(names)):
                continue
            for key, content in stage.run(name, command).items():
                file = Path(target) / name / key
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)


if __name__ == "__main__":
    main()
