"""What alignments cost beside the search alone, in turns in one process.

    python tests/benchmarks/alignment_cost.py MODEL --source FILE [--sentences N] [--rounds N]

Prints processor time, not time on the clock, so that a machine with other work may measure, too:
medians over the rounds of the search alone, of the search that listens and what aligns the words,
and of the search with a second, forced pass.
"""

import argparse
import statistics
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

from harness import print_table, say

from tformer_cli.inspect.jobs.align import Aligner
from tformer_cli.kinds.opening import open_model
from tformer_cli.text.lines import read_lines


def alone(opened, aligner, lines):
    opened.translator.translate(lines)


def listening(opened, aligner, lines):
    aligner.align_translations(aligner.listening(opened.translator).translate(lines))


def second_pass(opened, aligner, lines):
    """Aligns as if the search had heard nothing."""
    found = aligner.listening(opened.translator).translate(lines)
    deaf = [
        replace(
            translation, hypotheses=tuple(replace(h, attention=()) for h in translation.hypotheses)
        )
        for translation in found
    ]
    aligner.align_translations(deaf)


WAYS = {"search": alone, "with alignments": listening, "with a second pass": second_pass}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    lines = list(islice(read_lines(given.source), given.sentences))
    opened = open_model(given.model, device="cpu")
    aligner = Aligner(opened.directory)
    for run in WAYS.values():  # packs weights, and makes the model that the second pass needs
        run(opened, aligner, lines[:20])
    seconds = {name: [] for name in WAYS}
    for number in range(given.rounds):
        say(f"round {number + 1}")
        for name, run in WAYS.items():
            start = time.process_time()
            run(opened, aligner, lines)
            seconds[name].append(time.process_time() - start)
    median = {name: statistics.median(all_of) for name, all_of in seconds.items()}
    rows = [
        (name, f"{1000 * value / len(lines):.2f}", f"{value / median['search']:.2f}")
        for name, value in median.items()
    ]
    columns = ("", "ms of processor time a line", "times the search")
    print_table(given.model.name, columns, rows)


if __name__ == "__main__":
    main()
