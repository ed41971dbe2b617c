"""What fine-tuning brings for how little text, and what it forgets.

python tests/benchmarks/fine_tuning.py MODEL --old DIR --new DIR --minutes 3 --json runs.json

A model of everyday sentences (Tatoeba) is trained on 1,000, 5,000 and all pairs of image
descriptions (Multi30k): all weights, adapters, and a model of the same shape from random weights,
each for the same time. Every run is a `tformer train` of its own; the best checkpoint by BLEU on
200 validation pairs is what is scored.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from harness import TFORMER, cost_of, output_of, print_table, say, work_directory, write_json

from tformer_cli.artifacts.config_file import read_config
from tformer_cli.text.lines import read_lines

RECIPE = """\
[data]
train = [{{ source = "{work}/{pairs}.en", target = "{work}/{pairs}.fr" }}]
valid = [{{ source = "{new}/val.en.gz", target = "{new}/val.fr.gz" }}]
max_length = 127
[training]
tokens_per_batch = 1024
schedule = "linear"
max_minutes = {minutes}
checkpoint_every = 100
[validation]
every = 100
max_sentences = 200
"""
SCRATCH = """\
[tokenizer]
path = "{model}"
vocab_size = {vocab_size}
[model]
{shape}
"""
"""Besides: a model of the same shape, and Muon as in the recipe `multi30k-en-de-muon`."""
MUON = 'optimizer = "muon"\nlearning_rate = 5e-3\nwarmup_steps = 60'

KINDS = ("scratch", "full", "adapters")
"""Random weights; all weights of the model; low-rank adapters."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training and its scores."""

    kind: str
    """One of `KINDS`."""
    pairs: int
    """Pairs of the new text."""
    minutes: float
    """Time given."""
    step: int
    """Steps of the best checkpoint."""
    steps: int
    """Steps made."""
    megabytes: float
    """Largest memory of the process."""
    optimizer_megabytes: float
    """Size of the optimizer's state on the disk."""
    new_bleu: float
    """On the test set of the new text."""
    old_bleu: float
    """On that of the old text."""


def main():
    options = parse_options()
    runs = []
    with work_directory(options.work) as work:
        before = bleu(options.model, options, new=True), bleu(options.model, options, new=False)
        say(f"the model: {before[0]:.1f} BLEU on the new text, {before[1]:.1f} on the old")
        for pairs in options.pairs:
            first_pairs(options.new, work, pairs)
            for kind in options.kinds:
                runs.append(measure_training(kind, pairs, work, options))
                say(f"{kind}, {pairs:,} pairs: {runs[-1]}")
                report = {"before": before, "runs": [asdict(run) for run in runs]}
                write_json(options.json, report)
    scores = [f"{score:.1f} BLEU" for score in before]
    print_table(
        "",
        ("weights", "pairs", "steps", "new text", "old text", "optimizer", "peak memory"),
        [("as they were", 0, 0, *scores, "", "")] + [
            (run.kind, f"{run.pairs:,}", f"{run.steps:,}", f"{run.new_bleu:.1f} BLEU",
             f"{run.old_bleu:.1f} BLEU", f"{run.optimizer_megabytes:.1f} MB",
             f"{run.megabytes:,.0f} MB")
            for run in runs
        ],
    )  # fmt: skip


def parse_options():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="model directory to start from")
    parser.add_argument(
        "--old", type=Path, required=True, help="test.en.gz, test.fr.gz of its text"
    )
    parser.add_argument("--new", type=Path, required=True, help="Multi30k: train, val, test")
    parser.add_argument("--pairs", type=int, nargs="+", default=[1000, 5000, 29000])
    parser.add_argument("--kinds", choices=KINDS, nargs="+", default=KINDS)
    parser.add_argument("--minutes", type=float, default=3.0, help="of each training")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="key of the recipes to override")
    parser.add_argument("--work", type=Path, help="directory that keeps the runs")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    return parser.parse_args()


def first_pairs(data, work, pairs):
    """Writes the first pairs of the new text."""
    for language in ("en", "fr"):
        lines = islice(read_lines(data / f"train.{language}.gz"), pairs)
        text = "".join(f"{line}\n" for line in lines)
        (work / f"{pairs}.{language}").write_text(text, encoding="utf-8")


def measure_training(kind, pairs, work, options):
    """Trains in a process of its own, and scores what comes of it."""
    run, recipe = work / f"{kind}-{pairs}", work / f"{kind}-{pairs}.toml"
    recipe.write_text(recipe_of(kind, pairs, work, options), encoding="utf-8")
    start = [] if kind == "scratch" else ["--from", options.model]
    settings = [part for setting in options.set for part in ("--set", setting)]
    command = ["train", recipe, "-o", run, *start, *settings, "--threads", options.threads, "-q"]
    peak = cost_of([*TFORMER, *command]).peak
    states = sorted((run / "checkpoints").glob("step-*/optimizer.safetensors"))
    return Run(
        kind=kind,
        pairs=pairs,
        minutes=options.minutes,
        step=read_config(run).step,
        steps=int(states[-1].parent.name.removeprefix("step-")),
        megabytes=peak,
        optimizer_megabytes=states[-1].stat().st_size / 1e6,
        new_bleu=bleu(run, options, new=True),
        old_bleu=bleu(run, options, new=False),
    )


def recipe_of(kind, pairs, work, options):
    """Writes the recipe of a run; what it does not say is the default."""
    places = {"work": work.resolve(), "pairs": pairs, "new": options.new.resolve()}
    text = RECIPE.format(**places, minutes=options.minutes)
    if kind == "adapters":
        return f"{text}[adapter]\nrank = 8\n"
    if kind == "full":
        return text
    record = read_config(options.model)
    shape = "".join(
        f"{key} = {json.dumps(value)}\n"
        for key, value in asdict(record.model).items()
        if key != "final_norm" or value != "pre-norm"
    )
    more = SCRATCH.format(model=options.model.resolve(), vocab_size=record.vocab_size, shape=shape)
    return text.replace("[training]", f"[training]\n{MUON}") + more


def bleu(model, options, *, new):
    """Scores a model on the test set of the new text, or of the old."""
    data, name = (options.new, "test_2016_flickr") if new else (options.old, "test")
    files = [f"{data}/{name}.{language}.gz" for language in ("en", "fr")]
    given = ("--source", files[0], "--reference", files[1], "--format", "json", "-q")
    done = output_of("evaluate", model, *given, "--threads", options.threads)
    return json.loads(done)["bleu"]["score"]


if __name__ == "__main__":
    main()
