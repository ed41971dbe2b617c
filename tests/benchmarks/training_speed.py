"""How many target tokens a second tformer and its peers train, side by side.

python tests/benchmarks/training_speed.py --data DIR [--peers hf,hf-tuned,torch] [--venv NAME=PATH]
"""

import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

from harness import (
    CONTESTANTS,
    DIMENSIONS,
    KEEP_PAGES,
    Contestant,
    answers_in_turns,
    common_parser,
    environments,
    mean_lengths,
    prepare,
    print_table,
    run_contestant,
    say,
    work_directory,
    write,
    write_json,
)

VOCAB_SIZE = 8000
WARM_UP = 5
"""First updates of each run that do not count."""
DEFAULT = "tformer-float32,hf,hf-tuned,torch,fairseq,marian"
LIMITS = ("float32, oneDNN", "bfloat16")


@dataclass
class Result:
    """All runs of one contestant."""

    updates: list[tuple[int, float]] = field(default_factory=list)
    """Target tokens and seconds of each update that counts."""
    peak_rss: float = 0.0
    version: str = ""

    def record(self, name, limits, flops):
        rates = [tokens / seconds for tokens, seconds in self.updates]
        median = statistics.median(rates)
        return {
            "median": median,
            "min": min(rates),
            "max": max(rates),
            "overall": sum(n for n, _ in self.updates) / sum(s for _, s in self.updates),
            "updates": len(rates),
            "peak_rss_mb": self.peak_rss,
            "share_of_limit": {kind: median * flops / (1e9 * limits[kind]) for kind in LIMITS},
            "precision": CONTESTANTS[name].precision,
            "version": self.version,
        }


def main():
    arguments = parse_arguments()
    pythons = environments(arguments.venv)
    contestants = {}
    for name in ("tformer", *filter(None, arguments.peers.split(","))):
        venv = CONTESTANTS[name].venv
        if venv and venv not in pythons:
            say(f"{name}: skipped; give its environment with --venv {venv}=PATH")
        else:
            contestants[name] = CONTESTANTS[name]
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
        say("measuring the limits of the machine")
        measured = Contestant(script="limits.py", environment=KEEP_PAGES)
        limits = run_contestant("limits", measured, work, sys.executable, job).values["gflops"]
        results = {}
        for name, answer in answers_in_turns(contestants, pythons, work, job, arguments.rounds):
            result = results.setdefault(name, Result())
            result.updates += answer.values["updates"][WARM_UP:]
            result.peak_rss = max(result.peak_rss, answer.peak_rss)
            result.version = answer.values["version"]
            say(f"{name}: {len(result.updates)} updates that count")
        flops = flops_per_token(job, *mean_lengths(work))
    rows = {name: result.record(name, limits, flops) for name, result in results.items()}
    for row in rows.values():
        row["tformer_over_it"] = (
            rows["tformer"]["median"] / row["median"] if "tformer" in rows else None
        )
    report = {"contestants": rows, "limits_gflops": limits, "mflop_per_target_token": flops / 1e6}
    show(report, arguments)
    write_json(arguments.json, report)
    if results.keys() != contestants.keys():
        sys.exit(1)


def parse_arguments():
    parser = common_parser(__doc__)
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


def flops_per_token(job, source, target):
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


def show(report, arguments):
    print_table(
        f"training, {arguments.model} model, {arguments.threads} threads",
        ("contestant", "target tokens/s", "min", "max", "overall", "updates", "peak RSS MB",
         "tformer/it", "% of float32", "% of bfloat16"),
        (
            (
                f"{name} ({row['precision']})",
                *(f"{row[key]:,.0f}" for key in ("median", "min", "max", "overall", "updates")),
                f"{row['peak_rss_mb']:,.0f}",
                f"{row['tformer_over_it']:.2f}" if row["tformer_over_it"] else "",
                *(f"{100 * share:.0f}" for share in row["share_of_limit"].values()),
            )
            for name, row in report["contestants"].items()
        ),
    )  # fmt: skip
    limits, mflop = report["limits_gflops"], report["mflop_per_target_token"]
    speeds = "; ".join(
        f"{kind} {limits[kind]:,.0f} GFLOP/s = {1e3 * limits[kind] / mflop:,.0f} target tokens/s"
        for kind in ("float32", *LIMITS)
    )
    write(f"Limit = GFLOP/s of products / {mflop:.1f} MFLOP a target token: {speeds}.")
    write(f"Relative error of oneDNN's float32: {limits['error']:.1e}.")
    for name, row in report["contestants"].items():
        write(f"{name}: {row['version']}")


if __name__ == "__main__":
    main()
