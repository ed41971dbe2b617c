"""Speed of two checkouts of tformer in one run, alternating: has a change cost any?

    python tests/benchmarks/two_versions.py --before OTHER_CHECKOUT --model runs/quickstart \
        --source corpus/test.en

Both run with the Python of this script and its packages, in processes of their own, in the order
before, after, after, before, …; the table shows medians and their ratio. Translation is measured
by each version's own `tformer benchmark`, training by the log of `tformer train` on the built-in
corpus, without its first report. Kernels are those that each checkout holds or makes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SMALL = ["model.d_model=256", "model.d_ff=1024", "model.n_heads=4", "model.dropout=0.1"]
"""Changes of the recipe quickstart (tiny) that make its model a small one."""
LINES = 400


def run(checkout: Path, *arguments: str) -> str:
    """Runs a command of a checkout and returns its stdout.

    Raises:
        SystemExit: if the command fails; its stderr is shown.
    """
    environment = {**os.environ, "PYTHONPATH": str(checkout), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "tformer_cli", *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=checkout, check=False
    )
    if done.returncode:
        raise SystemExit(f"{checkout}: {' '.join(command)}\n{done.stderr}")
    return done.stdout


def translation(
    checkout: Path, model: Path, source: Path, precisions: list[str]
) -> dict[str, float]:
    """Measures lines per second of greedy search and beam 5, by precision."""
    settings = [word for precision in precisions for word in ("--precision", precision)]
    output = run(
        checkout, "benchmark", str(model), "-i", str(source), "--lines", str(LINES),
        "--rounds", "1", "--format", "json", "--quiet", *settings,
    )  # fmt: skip
    rows = [json.loads(line) for line in output.splitlines()]
    return {
        f"translate, beam {row['beam_size']}, {row['precision']}": row["lines_per_second"]
        for row in rows
    }


def training(
    checkout: Path, name: str, changes: list[str], precision: str, n_steps: int
) -> dict[str, float]:
    """Measures target tokens per second, the median of the reports of every five steps."""
    with tempfile.TemporaryDirectory() as folder:
        sets = [word for change in changes for word in ("--set", change)]
        run(
            checkout, "train", "quickstart", "-o", folder + "/run", "--max-steps", str(n_steps),
            "--precision", precision, "--set", "training.report_every=5",
            "--set", "validation.every=1000", *sets, "--quiet",
        )  # fmt: skip
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    speeds = [row["tokens_per_second"] for row in rows if row["kind"] == "report"][1:]
    return {f"train, {name}, {precision}": statistics.median(speeds)}


def main() -> None:
    """Measures both checkouts in turns and prints a table of medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="checkout of the old version")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--precision", nargs="+", default=["float32", "bfloat16"])
    options = parser.parse_args()
    versions = {"before": options.before.resolve(), "after": Path(__file__).resolve().parents[2]}
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(options.rounds):
        for version in sorted(versions, reverse=number % 2 == 0):
            checkout = versions[version]
            measured = translation(
                checkout, options.model.resolve(), options.source.resolve(), ["float32", "int8"]
            )
            for precision in options.precision:
                measured |= training(checkout, "tiny", [], precision, 60)
                measured |= training(checkout, "small", SMALL, precision, 30)
            for name, value in measured.items():
                found.setdefault(name, {}).setdefault(version, []).append(value)
            sys.stderr.write(f"round {number + 1} of {options.rounds}: {version}\n")
    sys.stdout.write(f"{'':32}{'before':>10}{'after':>10}{'ratio':>8}   of each round\n")
    for name, values in found.items():
        before, after = (statistics.median(values[version]) for version in ("before", "after"))
        ratios = [b / a for a, b in zip(values["before"], values["after"], strict=True)]
        shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
        sys.stdout.write(f"{name:32}{before:10,.0f}{after:10,.0f}{after / before:8.2f}   {shown}\n")


if __name__ == "__main__":
    main()
