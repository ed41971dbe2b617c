"""How good translators are after how many minutes of training, each by a recipe of its own.

python tests/benchmarks/time_to_quality.py tformer:3 tformer:12 hf:12 fairseq:12 --data DIR \
    --venv fairseq=VENV --seeds 1 2 3 --json curves.json --svg curves.svg

fairseq has what it documents for a small corpus (`examples/translation`, IWSLT'14 German-English):
Adam with β₂ = 0.98, learning rate 5e-4 by the inverse square root after 4,000 updates of warm-up,
dropout 0.3, weight decay 1e-4, label smoothing 0.1, batches of 4,096 tokens. Hugging Face documents
no training from scratch. `hf-trainer` has the defaults of its `TrainingArguments` (learning rate
5e-5 without warm-up, down to 0, batches of 8 pairs, no label smoothing), which are made for
fine-tuning; `hf` and `hf-tuned` have a schedule of ours, fitted to the time given, which is far
better: compare with these.
"""

import argparse
import json
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import (
    CONTESTANTS,
    DIMENSIONS,
    ContestantError,
    bleu,
    common_parser,
    decode,
    environments,
    prepare,
    python_of,
    run_contestant,
    say,
    work_directory,
)
from rich.console import Console
from rich.table import Table

from tformer_cli.show.chart import render_svg
from tformer_cli.show.curves import Chart, Curve, MetricName, Panel, XName

VOCAB_SIZE = 8000
BATCH_TOKENS = {"hf": 2048, "hf-tuned": 2048, "hf-trainer": 0, "fairseq": 4096}
"""Of each peer's recipe (0: it counts pairs); tformer's is in its recipe file."""
NAMES = ("tformer", "tformer-float32", *BATCH_TOKENS)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A contestant and the time it is given: its schedule is made for it."""

    name: str
    """Of `CONTESTANTS`."""
    minutes: float
    """Of training."""

    @property
    def label(self) -> str:
        """As on the command line."""
        return f"{self.name}:{self.minutes:g}"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one training came to."""

    label: str
    """Of its entry."""
    seed: int
    """Of everything random."""
    version: str
    """Of the contestant."""
    points: list[dict[str, Any]] = field(default_factory=list)
    """`seconds` of training, `updates`, `valid_bleu`; the last has `test_bleu` too."""

    @property
    def seconds(self) -> float:
        """Of training, in all."""
        return float(self.points[-1]["seconds"])

    def score(self, split: str) -> float:
        """BLEU at the end."""
        return float(self.points[-1][f"{split}_bleu"])

    def seconds_to(self, score: float) -> float | None:
        """Training until the validation set's BLEU was this high; None if it never was."""
        reached = (p["seconds"] for p in self.points if p["valid_bleu"] >= score)
        return next(reached, None)


def main() -> None:
    arguments = parse_arguments()
    pythons = environments(arguments.venv)
    runs: list[Run] = []
    n_failed = 0
    with work_directory(arguments.work) as work:
        say("preparing data")
        prepare(arguments.data, work, splits(arguments), VOCAB_SIZE)
        for seed in arguments.seeds:  # contestants take turns
            for entry in arguments.contestants:
                say(f"{entry.label}, seed {seed}: training, then the translations")
                try:
                    runs.append(trained(entry, seed, work, pythons, arguments))
                except ContestantError as error:
                    say(f"error: {error}")
                    n_failed += 1
    if not runs:
        sys.exit(1)
    report = summary(runs)
    show(report, runs)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if arguments.svg:
        arguments.svg.write_text(render_svg(chart(runs)), encoding="utf-8")
    sys.exit(1 if n_failed else 0)


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = common_parser(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "contestants", nargs="+", type=entry_of, metavar="NAME:MINUTES", help=", ".join(NAMES)
    )
    parser.add_argument("--every", type=float, default=1.0, help="minutes between points [1]")
    parser.add_argument("--valid", default="val", help="name of the validation files [val]")
    parser.add_argument(
        "--test", default="test_2016_flickr", help="name of the test files [test_2016_flickr]"
    )
    parser.add_argument("--recipe", default="multi30k-en-de", help="tformer's [multi30k-en-de]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="[1]")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--svg", type=Path, help="draw the curves here")
    return parser.parse_args()


def entry_of(text: str) -> Entry:
    """Reads `NAME:MINUTES`."""
    name, _, minutes = text.partition(":")
    try:
        entry = Entry(name=name, minutes=float(minutes))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: write NAME:MINUTES, as in hf:12") from None
    if name not in NAMES or entry.minutes <= 0.0:
        raise argparse.ArgumentTypeError(f"{text}: NAME is one of {', '.join(NAMES)}")
    return entry


def splits(arguments: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """Names of the files of each split."""
    names = {"train": arguments.train, "valid": arguments.valid, "test": arguments.test}
    return {
        split: (f"{name}.{arguments.source}", f"{name}.{arguments.target}")
        for split, name in names.items()
    }


def trained(
    entry: Entry, seed: int, work: Path, pythons: dict[str, str], arguments: argparse.Namespace
) -> Run:
    """Trains a contestant, and scores what it has left of itself on the way.

    Raises:
        ContestantError: if it fails.
    """
    contestant = CONTESTANTS[entry.name]
    job: dict[str, Any] = {
        **DIMENSIONS[arguments.model],
        "vocab_size": VOCAB_SIZE,
        "tokens_per_batch": BATCH_TOKENS.get(entry.name, 0),
        "threads": arguments.threads,
        "minutes": entry.minutes,
        "checkpoint_minutes": arguments.every,
        "recipe": arguments.recipe,
        "seed": seed,
    }
    python = python_of(entry.name, contestant, pythons)
    answer = run_contestant(entry.name, contestant, work, python, job).values
    points = [scored(work, point) for point in answer["curve"]]
    return Run(label=entry.label, seed=seed, version=answer["version"], points=points)


def scored(work: Path, point: dict[str, Any]) -> dict[str, Any]:
    """A point of the curve: seconds of training, updates and cased BLEU of raw text."""
    line = {"seconds": round(point["seconds"], 1), "updates": point["updates"]}
    for split in ("valid", "test"):
        if split in point:
            hypotheses = Path(point[split])
            text = hypotheses if point.get("is_text") else decode(work, hypotheses)
            line[f"{split}_bleu"], line["signature"] = bleu(work, text, split)
    return line


def summary(runs: list[Run]) -> dict[str, Any]:
    """All curves; what each contestant reaches; and how soon tformer has what a peer ends with."""
    by_label: dict[str, list[Run]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    finals = {
        label: {
            "seconds": statistics.mean(run.seconds for run in of_label),
            **{split: [run.score(split) for run in of_label] for split in ("valid", "test")},
        }
        for label, of_label in by_label.items()
    }
    reached = [
        {"tformer": ours, "peer": theirs, "seed": run.seed, "seconds": seconds,
         "share": seconds and seconds / other.seconds}
        for ours, of_ours in by_label.items()
        for theirs, of_theirs in by_label.items()
        if ours.startswith("tformer") and not theirs.startswith("tformer")
        for run in of_ours
        for other in of_theirs
        if run.seed == other.seed
        for seconds in [run.seconds_to(other.score("valid"))]
    ]  # fmt: skip
    return {"runs": [asdict(run) for run in runs], "finals": finals, "reached": reached}


def show(report: dict[str, Any], runs: list[Run]) -> None:
    """Prints what was reached."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table("contestant", "minutes", "BLEU valid", "BLEU test", "best test", "version")
    versions = {run.label: run.version for run in runs}
    for label, final in report["finals"].items():
        valid, test = (shown(final[split]) for split in ("valid", "test"))
        best = f"{max(final['test']):.1f}"
        table.add_row(label, f"{final['seconds'] / 60:.1f}", valid, test, best, versions[label])
    console.print(table)
    for line in report["reached"]:
        what = f"{line['tformer']} (seed {line['seed']})"
        after = "never has it"
        if line["seconds"] is not None:
            after = f"has it after {line['seconds']:.0f} s, {line['share']:.2f} of that time"
        console.print(f"what {line['peer']} ends with on the validation set: {what} {after}")
    console.print(f"BLEU: {runs[0].points[-1]['signature']}", soft_wrap=True)


def shown(scores: list[float]) -> str:
    """The mean, with the spread over seeds."""
    spread = f" ({min(scores):.1f} to {max(scores):.1f})" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.1f}{spread}"


def chart(runs: list[Run]) -> Chart:
    """BLEU of the validation set over seconds of training."""
    curves = tuple(
        Curve(run=number, points=tuple((p["seconds"], p["valid_bleu"]) for p in run.points))
        for number, run in enumerate(runs)
    )
    has_seeds = len({run.seed for run in runs}) > 1
    return Chart(
        runs=tuple(f"{run.label}, seed {run.seed}" if has_seeds else run.label for run in runs),
        x=XName.time,
        panels=(Panel(name=MetricName.bleu, curves=curves),),
    )


if __name__ == "__main__":
    main()
