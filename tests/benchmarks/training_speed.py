"""How many target tokens a second tformer and its peers train, side by side.

python tests/benchmarks/training_speed.py --data DIR [--peers hf,hf-tuned,torch] [--venv NAME=PATH]
"""

import argparse
import json
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import (
    CONTESTANTS,
    DIMENSIONS,
    KEEP_PAGES,
    Contestant,
    ContestantError,
    common_parser,
    environments,
    mean_lengths,
    prepare,
    python_of,
    run_contestant,
    say,
    work_directory,
)
from rich.console import Console
from rich.table import Table

VOCAB_SIZE = 8000
WARM_UP = 5
"""First updates of each run that do not count."""
DEFAULT = "tformer-float32,hf,hf-tuned,torch,fairseq,marian"


@dataclass
class Result:
    """All runs of one contestant."""

    updates: list[tuple[int, float]] = field(default_factory=list)
    """Target tokens and seconds of each update that counts."""
    peak_rss: float = 0.0
    """MB."""
    version: str = ""
    """Its own and torch's."""

    @property
    def rates(self) -> list[float]:
        """Target tokens a second of each update."""
        return [tokens / seconds for tokens, seconds in self.updates]

    @property
    def median(self) -> float:
        """Of the rates."""
        return statistics.median(self.rates)

    @property
    def overall(self) -> float:
        """All tokens over all seconds."""
        return sum(n for n, _ in self.updates) / sum(seconds for _, seconds in self.updates)


def main() -> None:
    arguments = parse_arguments()
    pythons = environments(arguments.venv)
    names = ["tformer", *(name for name in arguments.peers.split(",") if name)]
    contestants = runnable(names, pythons)
    job = {
        **DIMENSIONS[arguments.model],
        "vocab_size": VOCAB_SIZE,
        "tokens_per_batch": arguments.tokens_per_batch,
        "threads": arguments.threads,
        "updates": arguments.updates,
    }
    with work_directory(arguments.work) as work:
        files = (f"{arguments.train}.{arguments.source}", f"{arguments.train}.{arguments.target}")
        say("preparing data")
        prepare(arguments.data, work, {"train": files}, VOCAB_SIZE)
        limits = measure_limits(work, job)
        results = run_rounds(contestants, pythons, work, job, arguments.rounds)
        flops = flops_per_token(job, *mean_lengths(work))
    report = summary(results, limits, flops)
    show(report, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if results.keys() != contestants.keys():
        sys.exit(1)


def parse_arguments() -> argparse.Namespace:
    """Reads and checks the command line."""
    parser = common_parser(__doc__ or "")
    parser.add_argument("--updates", type=int, default=16, help=f"a run, {WARM_UP} dropped [16]")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each contestant [2]")
    parser.add_argument("--tokens-per-batch", type=int, default=4096)
    parser.add_argument("--peers", default=DEFAULT, help=f"[{DEFAULT}]")
    parser.add_argument("--json", type=Path, help="write all figures here too")
    arguments = parser.parse_args()
    if arguments.updates <= WARM_UP:
        parser.error(f"--updates: must be more than the {WARM_UP} that are dropped")
    unknown = set(filter(None, arguments.peers.split(","))) - CONTESTANTS.keys()
    if unknown:
        parser.error(f"--peers: no {', '.join(unknown)}; there are {', '.join(CONTESTANTS)}")
    return arguments


def runnable(names: list[str], pythons: dict[str, str]) -> dict[str, Contestant]:
    """Those whose environment is known."""
    found = {}
    for name in names:
        venv = CONTESTANTS[name].venv
        if venv and venv not in pythons:
            say(f"{name}: skipped; give its environment with --venv {venv}=PATH")
        else:
            found[name] = CONTESTANTS[name]
    return found


def measure_limits(work: Path, job: dict[str, Any]) -> dict[str, float]:
    """GFLOP/s of the machine's products by precision."""
    say("measuring the limits of the machine")
    contestant = Contestant(script="limits.py", environment=KEEP_PAGES)
    return run_contestant("limits", contestant, work, sys.executable, job).values["gflops"]


def run_rounds(
    contestants: dict[str, Contestant],
    pythons: dict[str, str],
    work: Path,
    job: dict[str, Any],
    n_rounds: int,
) -> dict[str, Result]:
    """Runs all in turns, A B C A B C, so that slow minutes of the machine hit everybody."""
    results: dict[str, Result] = {}
    for turn in range(1, n_rounds + 1):
        for name, contestant in contestants.items():
            try:
                answer = run_contestant(
                    name, contestant, work, python_of(name, contestant, pythons), job
                )
            except ContestantError as error:
                say(str(error))
                continue
            result = results.setdefault(name, Result())
            result.updates += answer.values["updates"][WARM_UP:]
            result.peak_rss = max(result.peak_rss, answer.peak_rss)
            result.version = answer.values["version"]
            say(f"round {turn}, {name}: median so far {result.median:,.0f} target tokens/s")
    return results


def flops_per_token(job: dict[str, Any], source: float, target: float) -> float:
    """Floating-point operations of a training step for each target token.

    A multiplication and an addition for each weight met, forward once and backward twice, so 6 a
    weight. With r source tokens a target token, S and T the mean lengths and N layers a side:

        6·(r·N·(4D² + 2DF) + N·(6D² + 2DF + r·2D²) + D·V + 2D·N·(r·S + T + S))
    """
    d, f, n = job["d_model"], job["d_ff"], job["n_layers"]
    r = source / target
    encoder = r * n * (4 * d * d + 2 * d * f)
    decoder = n * (6 * d * d + 2 * d * f + r * 2 * d * d)
    attention = 2 * d * n * (r * source + target + source)
    return 6 * (encoder + decoder + d * job["vocab_size"] + attention)


def summary(results: dict[str, Result], limits: dict[str, float], flops: float) -> dict[str, Any]:
    """All figures."""
    ours = results["tformer"].median if "tformer" in results else None
    rows = {}
    for name, result in results.items():
        rows[name] = {
            "median": result.median,
            "min": min(result.rates),
            "max": max(result.rates),
            "overall": result.overall,
            "updates": len(result.updates),
            "peak_rss_mb": result.peak_rss,
            "tformer_over_it": ours / result.median if ours else None,
            "share_of_limit": {
                kind: result.median * flops / (1e9 * limits[kind])
                for kind in ("float32, oneDNN", "bfloat16")
            },
            "precision": CONTESTANTS[name].precision,
            "version": result.version,
        }
    return {"contestants": rows, "limits_gflops": limits, "mflop_per_target_token": flops / 1e6}


def show(report: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Prints the table."""
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    table = Table(title=f"training, {arguments.model} model, {arguments.threads} threads")
    columns = (
        "target tokens/s", "min", "max", "overall", "updates", "peak RSS MB", "tformer/it",
        "% of float32", "% of bfloat16",
    )  # fmt: skip
    table.add_column("contestant")
    for column in columns:
        table.add_column(column, justify="right")
    for name, row in report["contestants"].items():
        ratio = row["tformer_over_it"]
        rates = (f"{row[key]:,.0f}" for key in ("median", "min", "max", "overall"))
        shares = (f"{100 * share:.0f}" for share in row["share_of_limit"].values())
        table.add_row(
            f"{name} ({row['precision']})",
            *rates,
            str(row["updates"]),
            f"{row['peak_rss_mb']:,.0f}",
            f"{ratio:.2f}" if ratio else "",
            *shares,
        )
    console.print(table)
    limits, mflop = report["limits_gflops"], report["mflop_per_target_token"]
    speeds = "; ".join(
        f"{kind} {limits[kind]:,.0f} GFLOP/s = {1e3 * limits[kind] / mflop:,.0f} target tokens/s"
        for kind in ("float32", "float32, oneDNN", "bfloat16")
    )
    console.print(f"Limit = GFLOP/s of products / {mflop:.1f} MFLOP a target token: {speeds}.")
    console.print(f"Relative error of oneDNN's float32: {limits['error']:.1e}.")
    for name, row in report["contestants"].items():
        console.print(f"{name}: {row['version']}", highlight=False)


if __name__ == "__main__":
    main()
