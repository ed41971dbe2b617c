"""How well doubt tells wrong translations from right ones, next to the log-probability a token.

python tests/benchmarks/doubt.py student=DIR:flores.en:flores.pt m30k=RUN:val.en:val.de

Each system is NAME=MODEL:SOURCE:REFERENCE. Every other line calibrates a copy of the model by
`tformer calibrate`; the others, which no fit has seen, are translated with `--doubt`, as they are
and with sources broken as `calibrate` breaks them (they are drawn anew). Wrong are

- ordinary mistakes: the lines with a chrF below the median of all, and those in the lowest fifth
  (sentence chrF2 of sacreBLEU; ties with the limit are right);
- hallucinations: translations of broken sources, next to all lines as they are.

Intervals hold 95 % of 1,000 resamples of the lines; those of the mean over systems, too.
`--tformer` measures another version.
"""

import argparse
import json
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
from harness import TFORMER, work_directory, write, write_json

from tformer_cli.metrics.calibration import auroc
from tformer_cli.metrics.scores import sentence_score
from tformer_cli.plugins.instruments.jobs.calibrate import BROKEN_SOURCES
from tformer_cli.text.lines import read_lines

N_RESAMPLES = 1000
FIELDS = ("wrong", "doubt", "probability", "low", "high")


def output_by(command):
    done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE)
    return done.stdout.decode("utf-8")


def translate(tformer, model, lines, work):
    """Translations, doubts and mean log-probabilities of lines."""
    file = work / "lines.jsonl"
    file.write_text("".join(json.dumps({"source": line}) + "\n" for line in lines))
    options = ["--input-format", "jsonl", "--format", "jsonl", "--doubt", "--token-scores", "-q"]
    text = output_by([*tformer, "translate", model, "-i", file, *options])
    records = [json.loads(line) for line in text.removesuffix("\n").split("\n")]
    means = [-np.mean(record["token_log_probabilities"]) for record in records]
    doubts = np.array([record["doubt"] for record in records])
    return [record["translation"] for record in records], doubts, np.array(means)


def row_of(name, doubts, means, is_wrong, seed=1):
    """AUROC of both, and their difference with its interval."""
    both = auroc(doubts, is_wrong), auroc(means, is_wrong)
    generator, gains = np.random.default_rng(seed), []
    for _ in range(N_RESAMPLES):
        at = generator.integers(0, len(is_wrong), len(is_wrong))
        gains.append(auroc(doubts[at], is_wrong[at]) - auroc(means[at], is_wrong[at]))
    return show_row(name, int(is_wrong.sum()), *both, gains)


def show_row(name, n_wrong, doubt, mean, gains):
    """Prints a row and returns its numbers, with the resampled gains."""
    low, high = np.nanquantile(gains, (0.025, 0.975))
    write(
        f"  {name:<16}{n_wrong:>6}{doubt:>8.3f}{mean:>8.3f}"
        f"{doubt - mean:>+8.3f} ({low:+.3f} to {high:+.3f})"
    )
    values = (n_wrong, doubt, mean, low, high)
    return {**dict(zip(FIELDS, map(float, values), strict=True)), "gains": list(gains)}


def measure(tformer, system, options, seed):
    """The rows of a system by name."""
    name, _, rest = system.partition("=")
    path, source, reference = rest.split(":")
    pairs = list(dict(zip(read_lines(source), read_lines(reference), strict=True)).items())
    held, tested = pairs[::2], pairs[1::2]
    draw = random.Random(seed)
    with work_directory(None) as work:
        model = work / "model"
        shutil.copytree(path, model, ignore=shutil.ignore_patterns("checkpoints", "doubt.json"))
        for side, texts in zip(("source", "target"), zip(*held, strict=True), strict=True):
            (work / side).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        files = ["-i", work / "source", "--reference", work / "target", "-q", *options]
        output_by([*tformer, "calibrate", model, *files])
        texts, doubts, means = translate(tformer, model, [pair[0] for pair in tested], work)
        score = sentence_score("chrf")
        chrf = np.array([score(t, pair[1]) for t, pair in zip(texts, tested, strict=True)])
        write(f"{name}: {len(tested):,} lines, median chrF {np.median(chrf):.1f}")
        rows = {}
        for limit, share in (("lower half", 0.5), ("lowest fifth", 0.2)):
            rows[limit] = row_of(limit, doubts, means, chrf < np.quantile(chrf, share))
        every = {}
        for kind, broken in BROKEN_SOURCES.items():
            lines = [broken(*pair, draw) for pair in tested]
            every[kind] = translate(tformer, model, lines, work)[1:]
        for kind, (more, others) in every.items():
            both = (np.concatenate(values) for values in ((doubts, more), (means, others)))
            is_wrong = np.repeat([False, True], [len(doubts), len(more)])
            rows[kind] = row_of(kind, *both, is_wrong)
    return {name: rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("systems", nargs="+", metavar="NAME=MODEL:SOURCE:REFERENCE")
    parser.add_argument("--tformer", type=Path, help="the command of another version")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given, options = parser.parse_known_args()
    tformer = TFORMER if given.tformer is None else [given.tformer]
    write(f"  {'wrong':<16}{'lines':>6}{'doubt':>8}{'alone':>8}{'gain':>8}")
    rows = {}
    for system in given.systems:
        rows |= measure(tformer, system, options, given.seed)
    write("mean of the systems")
    means = {}
    for kind in next(iter(rows.values())):
        own = [system[kind] for system in rows.values()]
        n_wrong, doubt, mean = (np.mean([row[name] for row in own]) for name in FIELDS[:3])
        gains = np.mean([row["gains"] for row in own], axis=0)
        means[kind] = show_row(kind, int(n_wrong), doubt, mean, gains)
    for row in (row for system in (*rows.values(), means) for row in system.values()):
        del row["gains"]
    write_json(given.json, rows | {"mean": means})


if __name__ == "__main__":
    main()
