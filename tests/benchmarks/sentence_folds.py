"""Accuracy of a fine-tuned encoder on labeled sentences, over ten folds.

python tests/benchmarks/sentence_folds.py MODEL yelp_labelled.txt --json folds.json

Each fold is a `tformer train restaurant-sentences --from MODEL` on nine tenths of the lines, chosen
by their number in an order drawn from a seed, and a `tformer classify` of the rest. Nothing is
chosen by the scores. Processor seconds are those of the trainings.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

TFORMER = (sys.executable, "-m", "tformer_cli")


def run(*words: str, stdin: str | None = None) -> str:
    """Runs a command of tformer; returns what it wrote."""
    done = subprocess.run(
        [*TFORMER, *words], input=stdin, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def used() -> float:
    """Processor seconds of all programs that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def fold_score(
    model: str, train: list[str], test: list[str], settings: list[str]
) -> tuple[int, float]:
    """Trains on lines of text and label.

    Returns:
        How many of the test lines got the right label, and the processor seconds of the training.
    """
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "train.tsv").write_text("\n".join(train) + "\n", encoding="utf-8")
        run_directory = f"{work}/run"
        keys = [f"data.directory={work}", "data.valid=[]", *settings]
        options = [word for key in keys for word in ("--set", key)]
        before = used()
        run("train", "restaurant-sentences", "--from", model, "-o", run_directory, *options, "-q")
        seconds = used() - before
        texts = "".join(f"{line.split(chr(9))[0]}\n" for line in test)
        found = run("classify", run_directory, "-q", stdin=texts).removesuffix("\n").split("\n")
    right = [line.split("\t")[1].strip() for line in test]
    return sum(one == other for one, other in zip(found, right, strict=True)), seconds


def main() -> None:
    """Prints the accuracy of each fold and of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    lines = [line for line in given.sentences.read_text(encoding="utf-8").split("\n") if line]
    random.Random(given.seed).shuffle(lines)
    n_right, seconds, scores = 0, 0.0, []
    for fold in range(given.folds):
        test = lines[fold :: given.folds]
        train = [line for n, line in enumerate(lines) if n % given.folds != fold]
        found, cost = fold_score(given.model, train, test, given.settings)
        n_right, seconds = n_right + found, seconds + cost
        scores.append(100.0 * found / len(test))
        print(f"fold {fold + 1}: {scores[-1]:.1f} ({cost:.0f} s of processor time)", flush=True)  # noqa: T201
    accuracy = 100.0 * n_right / len(lines)
    print(f"all: {accuracy:.1f}, {seconds:.0f} s of processor time")  # noqa: T201
    if given.json:
        record = {"accuracy": accuracy, "folds": scores, "seconds": seconds}
        given.json.write_text(json.dumps(record) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
