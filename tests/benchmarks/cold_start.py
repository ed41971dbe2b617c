"""Time from the prompt to the first translation, beside what importing torch alone takes.

    python tests/benchmarks/cold_start.py MODEL [--rounds 7] [--json FILE]

Three commands take turns: `import torch`, one line through `tformer translate MODEL`, and
`tformer --help`. Seconds on the clock are what one waits; seconds of computing (user and system
time of the process) differ less from round to round on a machine that others use, too.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

LINE = b"hello\n"
TORCH, TRANSLATE, HELP = "import torch", "tformer translate", "tformer --help"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="a model directory")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each command [7]")
    parser.add_argument("--json", type=Path, help="write all figures here too")
    arguments = parser.parse_args()
    tformer = [sys.executable, "-m", "tformer_cli"]
    commands = {
        TORCH: [sys.executable, "-c", "import torch"],
        TRANSLATE: [*tformer, "translate", str(arguments.model)],
        HELP: [*tformer, "--help"],
    }
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as bytecode:
        # compiled modules are kept, as they are where tformer is installed
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for command in commands.values():
            timed(command, environment)
        for _ in range(arguments.rounds):
            for name, command in commands.items():
                runs[name].append(timed(command, environment))
    medians = {
        name: {
            "seconds": statistics.median(clock for clock, _ in times),
            "computing_seconds": statistics.median(computing for _, computing in times),
        }
        for name, times in runs.items()
    }
    show(medians, arguments.rounds)
    if arguments.json:
        report = {"medians": medians, "runs": runs}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def timed(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Runs a command on one line; seconds on the clock and of computing."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    subprocess.run(command, input=LINE, capture_output=True, env=environment, check=True)
    seconds = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def show(medians: dict[str, dict[str, float]], n_rounds: int) -> None:
    """Prints the table."""
    table = Table(title=f"from a cold start, medians of {n_rounds} rounds")
    table.add_column("command")
    for column in ("seconds", "computing s", "computing/torch"):
        table.add_column(column, justify="right")
    for name, row in medians.items():
        ratio = row["computing_seconds"] / medians[TORCH]["computing_seconds"]
        table.add_row(
            name, f"{row['seconds']:.2f}", f"{row['computing_seconds']:.2f}", f"{ratio:.2f}"
        )
    Console(width=None if sys.stdout.isatty() else 100, highlight=False).print(table)


if __name__ == "__main__":
    main()
