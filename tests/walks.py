"""Walks through the package: functions and files that a line, a map and a recipe pass.

    python -m tests.walks

prints for some command lines on the zoo's models the number of tformer's functions that are called,
the files that they are in, and tformer's modules that are loaded.
"""

import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.golden.harness import Stage, inside

WALKS = {
    "a line through `translate`": "translate zoo/translate 'The old house is green.'",
    "the same by torch": "translate zoo/translate 'A man sleeps.' --repetition-penalty 1.1",
    "a sentence through `classify`": "classify zoo/classifier 'A man sleeps.'",
    "a head map of `inspect-heads`": "inspect-heads zoo/translate 'A man sleeps.'",
    "a recipe through `train`": "train in/translate.toml -o run -q",
}
CHILD = """
import sys
seen, package = set(), sys.argv[1]
def profile(frame, event, argument):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(package) and not frame.f_code.co_name.startswith("<"):
        seen.add((name, frame.f_code.co_qualname))
from tformer_cli.__main__ import main
sys.argv[0:2] = ["tformer"]
sys.setprofile(profile)
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
modules = sum(name.split(".")[0] == "tformer_cli" for name in sys.modules)
print(len(seen), len({name for name, _ in seen}), modules, file=sys.stderr)
"""


def walk(command: str, folder: Path) -> list[int]:
    """Counts functions, files and modules of a command line, in a process of its own."""
    import subprocess

    import tformer_cli

    package = str(Path(tformer_cli.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, package, *shlex.split(command)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(count) for count in done.stderr.split()[-3:]]


def table() -> Iterator[str]:
    """Yields the walks as a table of Markdown."""
    yield "| walk | functions | files | modules |\n|---|---|---|---|"
    with tempfile.TemporaryDirectory() as place:
        stage = Stage(place)
        (stage.folder / "in").symlink_to(stage.zoo.inputs)
        with inside(stage.folder):
            for name, command in WALKS.items():
                counts = " | ".join(map(str, walk(command, stage.folder)))
                yield f"| {name} | {counts} |"


if __name__ == "__main__":
    for line in table():
        print(line)  # noqa: T201
