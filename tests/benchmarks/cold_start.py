"""Time from the prompt to the first translation, beside what importing torch alone takes.

    python tests/benchmarks/cold_start.py MODEL [--rounds 7] [--json FILE]

Three commands take turns: `import torch`, one line through `tformer translate MODEL`, and
`tformer --help`. Seconds on the clock are what one waits; seconds of computing (user and system
time of the process) differ less from round to round on a machine that others use, too.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from harness import TFORMER, cost_of, print_table, write_json

TORCH = "import torch"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="a model directory")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each command [7]")
    parser.add_argument("--json", type=Path, help="write all figures here too")
    arguments = parser.parse_args()
    commands = {
        TORCH: [sys.executable, "-c", "import torch"],
        "tformer translate": [*TFORMER, "translate", arguments.model],
        "tformer --help": [*TFORMER, "--help"],
    }
    runs = {name: [] for name in commands}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as bytecode:
        # compiled modules are kept, as they are where tformer is installed
        for turn in range(arguments.rounds + 1):
            for name, command in commands.items():
                cost = cost_of(command, stdin=b"hello\n", PYTHONPYCACHEPREFIX=bytecode)
                if turn:
                    runs[name].append((cost.wall, cost.processor))
    names = ("seconds", "computing_seconds")
    medians = {
        command: dict(zip(names, map(statistics.median, zip(*times, strict=True)), strict=True))
        for command, times in runs.items()
    }
    torch = medians[TORCH]["computing_seconds"]
    rows = [
        (name, *row.values(), row["computing_seconds"] / torch) for name, row in medians.items()
    ]
    print_table(
        f"from a cold start, medians of {arguments.rounds} rounds",
        ("command", "seconds", "computing s", "computing/torch"),
        ((name, *(f"{number:.2f}" for number in numbers)) for name, *numbers in rows),
        100,
    )
    write_json(arguments.json, {"medians": medians, "runs": runs})


if __name__ == "__main__":
    main()
