"""How good translators are after how many minutes of training, each by a recipe of its own.

python tests/benchmarks/time_to_quality.py tformer:3 tformer:12 hf:12 fairseq:12 --data DIR \
    --venv fairseq=VENV --seeds 1 2 3 --json curves.json --svg curves.svg

README.md tells what recipe each contestant has, and why.
"""

import argparse
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from harness import (
    CONTESTANTS,
    DIMENSIONS,
    ContestantError,
    bleu,
    common_parser,
    decode,
    environments,
    prepare,
    print_table,
    python_of,
    run_contestant,
    say,
    work_directory,
    write,
    write_json,
)

VOCAB_SIZE = 8000
BATCH_TOKENS = {"hf": 2048, "hf-tuned": 2048, "hf-trainer": 0, "fairseq": 4096}
"""Of each peer's recipe (0: it counts pairs); tformer's is in its recipe file."""
NAMES = ("tformer", "tformer-float32", *BATCH_TOKENS)


class Entry(NamedTuple):
    """A contestant and the minutes it is given: its schedule is made for them."""

    name: str
    minutes: float

    @property
    def label(self):
        return f"{self.name}:{self.minutes:g}"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one training came to."""

    label: str
    seed: int
    version: str
    points: list[dict[str, Any]] = field(default_factory=list)
    """`seconds` of training, `updates`, `valid_bleu`; the last has `test_bleu` too."""

    @property
    def seconds(self):
        return self.points[-1]["seconds"]

    def score(self, split):
        return self.points[-1][f"{split}_bleu"]

    def seconds_to(self, score):
        """Training until the validation set's BLEU was this high; None if it never was."""
        return next((p["seconds"] for p in self.points if p["valid_bleu"] >= score), None)


def main():
    arguments = parse_arguments()
    pythons = environments(arguments.venv)
    runs, n_failed = [], 0
    with work_directory(arguments.work) as work:
        say("preparing data")
        names = {"train": arguments.train, "valid": arguments.valid, "test": arguments.test}
        files = {
            split: (f"{name}.{arguments.source}", f"{name}.{arguments.target}")
            for split, name in names.items()
        }
        prepare(arguments.data, work, files, VOCAB_SIZE)
        for seed in arguments.seeds:  # contestants take turns
            for entry in arguments.contestants:
                say(f"{entry.label}, seed {seed}: training, then the translations")
                try:
                    runs.append(train_contestant(entry, seed, work, pythons, arguments))
                except ContestantError as error:
                    say(f"error: {error}")
                    n_failed += 1
    if not runs:
        sys.exit(1)
    report = summary(runs)
    show(report, runs)
    write_json(arguments.json, report)
    if arguments.svg:
        arguments.svg.write_text(draw_curves(runs), encoding="utf-8")
    sys.exit(1 if n_failed else 0)


def parse_arguments():
    parser = common_parser(__doc__)
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


def entry_of(text):
    name, _, minutes = text.partition(":")
    try:
        entry = Entry(name, float(minutes))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: write NAME:MINUTES, as in hf:12") from None
    if name not in NAMES or entry.minutes <= 0.0:
        raise argparse.ArgumentTypeError(f"{text}: NAME is one of {', '.join(NAMES)}")
    return entry


def train_contestant(entry, seed, work, pythons, arguments):
    """Trains a contestant, and scores what it has left of itself on the way."""
    contestant = CONTESTANTS[entry.name]
    job = {
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
    points = [score_point(work, point) for point in answer["curve"]]
    return Run(label=entry.label, seed=seed, version=answer["version"], points=points)


def score_point(work, point):
    """A point of the curve: seconds of training, updates and cased BLEU of raw text."""
    line = {"seconds": round(point["seconds"], 1), "updates": point["updates"]}
    for split in ("valid", "test"):
        if split in point:
            hypotheses = Path(point[split])
            text = hypotheses if point.get("is_text") else decode(work, hypotheses)
            line[f"{split}_bleu"], line["signature"] = bleu(work, text, split)
    return line


def summary(runs):
    """All curves; what each contestant reaches; and how soon tformer has what a peer ends with."""
    by_label = {}
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
        {"tformer": run.label, "peer": other.label, "seed": run.seed, "seconds": seconds,
         "share": seconds and seconds / other.seconds}
        for run in runs
        for other in runs
        if run.label.startswith("tformer") and not other.label.startswith("tformer")
        if run.seed == other.seed
        for seconds in [run.seconds_to(other.score("valid"))]
    ]  # fmt: skip
    return {"runs": [asdict(run) for run in runs], "finals": finals, "reached": reached}


def show(report, runs):
    versions = {run.label: run.version for run in runs}
    print_table(
        "",
        ("contestant", "minutes", "BLEU valid", "BLEU test", "best test", "version"),
        (
            (label, f"{final['seconds'] / 60:.1f}",
             show_scores(final["valid"]), show_scores(final["test"]),
             f"{max(final['test']):.1f}", versions[label])
            for label, final in report["finals"].items()
        ),
    )  # fmt: skip
    for line in report["reached"]:
        what = f"{line['tformer']} (seed {line['seed']})"
        after = "never has it"
        if line["seconds"] is not None:
            after = f"has it after {line['seconds']:.0f} s, {line['share']:.2f} of that time"
        write(f"what {line['peer']} ends with on the validation set: {what} {after}")
    write(f"BLEU: {runs[0].points[-1]['signature']}")


def show_scores(scores):
    """The mean, with the spread over seeds."""
    spread = f" ({min(scores):.1f} to {max(scores):.1f})" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.1f}{spread}"


def draw_curves(runs):
    """BLEU of the validation set over seconds of training, as SVG."""
    from tformer_cli.plugins.instruments.chart import Chart, Curve, Panel, render_svg
    from tformer_cli.show.curves import MetricName, XName

    curves = tuple(
        Curve(run=number, points=tuple((p["seconds"], p["valid_bleu"]) for p in run.points))
        for number, run in enumerate(runs)
    )
    has_seeds = len({run.seed for run in runs}) > 1
    names = tuple(f"{run.label}, seed {run.seed}" if has_seeds else run.label for run in runs)
    panels = (Panel(name=MetricName.bleu, curves=curves),)
    return render_svg(Chart(runs=names, x=XName.time, panels=panels))


if __name__ == "__main__":
    main()
