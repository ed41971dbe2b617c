"""How well and how fast `tformer data check` finds damage.

python tests/benchmarks/corpus_checks.py --data DIR [--source en --target de] quality
python tests/benchmarks/corpus_checks.py --data DIR speed --pairs 100000,1000000

`quality` damages a clean corpus in known ways at known lines
(tests/plugins/corpora_tools/quality/damage.py) and prints recall and precision. `speed` repeats a
corpus, with a number in each line so that pairs differ, and runs each command in a process of its
own: pairs a second and peak memory.
"""

import argparse
import gzip
from pathlib import Path

from harness import TFORMER, cost_of, work_directory, write

from tests.plugins.corpora_tools.quality.damage import FOREIGN, KINDS, measure, write_damaged
from tformer_cli.plugins.corpora_tools.quality.checks import DEFAULT, NEAR_DUPLICATE
from tformer_cli.plugins.corpora_tools.quality.facts import Detector


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="directory of parallel text")
    parser.add_argument("--source", default="en", help="ending of the source files [en]")
    parser.add_argument("--target", default="de", help="ending of the target files [de]")
    parser.add_argument("--train", default="train", help="name of the files to damage [train]")
    parser.add_argument("--held-out", default="test_2016_flickr", help="name of the test files")
    parser.add_argument("--foreign", help="ending of files in a third language")
    parser.add_argument("--of-kind", type=int, default=200, help="lines of each kind [200]")
    parser.add_argument("--detect-languages", action="store_true", help="judge them by py3langid")
    parser.add_argument("--pairs", default="100000,1000000", help="sizes for speed")
    parser.add_argument("--only", help="the command to time [all]")
    parser.add_argument("what", choices=("quality", "speed"))
    given = parser.parse_args()
    pairs = read_pairs(given, given.train)
    with work_directory(None) as directory:
        if given.what == "quality":
            quality(given, pairs, directory)
        else:
            for size in map(int, given.pairs.split(",")):
                speed(given, pairs, size, directory)


def read_pairs(options, name):
    sides = (read_side(options.data / f"{name}.{end}") for end in (options.source, options.target))
    return list(zip(*sides, strict=True))


def read_side(file):
    packed = file.with_name(f"{file.name}.gz")
    with gzip.open(packed, "rb") if packed.exists() else file.open("rb") as stream:
        return stream.read().decode("utf-8").removesuffix("\n").split("\n")


def quality(options, pairs, directory):
    held_out = read_pairs(options, options.held_out)
    languages = options.source, options.target
    foreign = (
        read_side(options.data / f"{options.train}.{options.foreign}")
        if options.foreign
        else FOREIGN
    )
    damaged = write_damaged(pairs, held_out, directory, languages, options.of_kind, foreign)
    detector = Detector() if options.detect_languages else None
    found, near = measure(damaged, DEFAULT, detector), measure(damaged, frozenset([NEAR_DUPLICATE]))
    write("| damage | check | recall |\n|---|---|---|")
    for kind, (_, check) in KINDS.items():
        recall = (near if check == NEAR_DUPLICATE else found).recall[kind]
        write(f"| {kind} | {check} | {recall:.1%} |")
    write("\n| check | precision |\n|---|---|")
    for check, precision in found.precision.items():
        write(f"| {check} | {precision:.1%} |")
    write(f"\nundamaged pairs that would be dropped: {found.false_alarms:.2%}")
    write(f"with --near alone: {near.false_alarms:.2%}")


def speed(arguments, pairs, size, directory):
    files = [directory / f"all.{ending}" for ending in (arguments.source, arguments.target)]
    for side, file in enumerate(files):
        with file.open("w", encoding="utf-8") as stream:
            for number in range(size):
                # every tenth pair is one that was there before
                mark = number // len(pairs) if number % 10 else 0
                stream.write(f"{pairs[number % len(pairs)][side]} {mark or ''}\n")
    commands = {
        "check": ["--format", "json"],
        "clean": ["-o", str(directory / "clean")],
        "dedupe": ["-o", str(directory / "dedupe")],
        "split": ["-o", str(directory / "split")],
    }
    for name, options in commands.items():
        if arguments.only not in (None, name):
            continue
        cost = cost_of([*TFORMER, "data", name, *files, *options, "-q"])
        write(
            f"| {name} | {size:,} | {cost.wall:.1f} s | {cost.processor:.1f} s of CPU | "
            f"{size / cost.processor:,.0f} pairs/s of CPU | {cost.peak:,.0f} MB |"
        )


if __name__ == "__main__":
    main()
