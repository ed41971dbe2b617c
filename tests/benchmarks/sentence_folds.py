"""Accuracy of a fine-tuned encoder on labeled sentences, over ten folds.

python tests/benchmarks/sentence_folds.py MODEL yelp_labelled.txt --json folds.json

Each fold is a `tformer train restaurant-sentences --from MODEL` on nine tenths of the lines, chosen
by their number in an order drawn from a seed, and a `tformer classify` of the rest. Nothing is
chosen by the scores. Processor seconds are those of the trainings.
"""

import argparse
import random
from pathlib import Path

from harness import TFORMER, cost_of, output_of, work_directory, write, write_json


def fold_score(model, train, test, settings):
    """How many of the test lines got the right label, and the processor seconds of the training."""
    with work_directory(None) as work:
        (work / "train.tsv").write_text("\n".join(train) + "\n", encoding="utf-8")
        keys = [f"data.directory={work}", "data.valid=[]", *settings]
        options = [word for key in keys for word in ("--set", key)]
        command = [*TFORMER, "train", "restaurant-sentences", "--from", model, "-o", work / "run"]
        cost = cost_of([*command, *options, "-q"])
        texts = "".join(f"{line.split(chr(9))[0]}\n" for line in test)
        found = output_of("classify", work / "run", "-q", stdin=texts).removesuffix("\n")
    right = [line.split("\t")[1].strip() for line in test]
    n_right = sum(label == other for label, other in zip(found.split("\n"), right, strict=True))
    return n_right, cost.processor


def main():
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
        write(f"fold {fold + 1}: {scores[-1]:.1f} ({cost:.0f} s of processor time)")
    accuracy = 100.0 * n_right / len(lines)
    write(f"all: {accuracy:.1f}, {seconds:.0f} s of processor time")
    write_json(given.json, {"accuracy": accuracy, "folds": scores, "seconds": seconds})


if __name__ == "__main__":
    main()
