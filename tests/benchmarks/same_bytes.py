"""Whether float32 translations are the same bytes however they are batched, and on 1 and 2 threads.

    python tests/benchmarks/same_bytes.py MODEL --source FILE [--lines 1000] [--beams 1,5]

Runs `tformer translate` with other batch sizes, buffer sizes and numbers of threads, with and
without --n-best, and prints for each run the SHA-256 of what it wrote: of every line the
translation, its score and its tokens with their log-probabilities, all digits. Runs with --n-best
also give one of all their hypotheses. Exit status 1, naming the first line, if anything differs.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tformer_cli.text.lines import read_lines

BATCH_TOKENS = (1, 7, 64, 500, 20_000)
BUFFER_LINES = (1, 7, 64, 1000)
BEST = ("index", "source", "translation", "score", "log_probability", "token_ids",
        "token_log_probabilities")  # fmt: skip


@dataclass(frozen=True)
class Run:
    """What one run wrote."""

    best: list[str]
    """Of each line the best translation, as JSON."""
    hypotheses: list[str]
    """Of each line all hypotheses there are with --n-best."""
    seconds: float


def main() -> None:
    arguments = parse_arguments()
    lines = list(islice(read_lines(arguments.source), arguments.lines))
    is_same = True
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "lines"
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for beam in map(int, arguments.beams.split(",")):
            is_same &= compare(arguments, source, beam)
    say(f"{len(lines):,} lines: {'all the same bytes' if is_same else 'NOT the same bytes'}")
    sys.exit(0 if is_same else 1)


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Whether translations are always the same bytes.")
    parser.add_argument("model", type=Path, help="a model directory")
    parser.add_argument("--source", type=Path, required=True, help="text to translate, or .gz")
    parser.add_argument("--lines", type=int, default=1000, help="the first so many [1000]")
    parser.add_argument("--beams", default="1,5", help="beam sizes; 1 is greedy [1,5]")
    parser.add_argument("--threads", default="1,2", help="numbers of threads [1,2]")
    return parser.parse_args()


def compare(arguments: argparse.Namespace, source: Path, beam: int) -> bool:
    """Runs all variants of a beam size; says whether they agree."""
    first: Run | None = None
    first_list: Run | None = None
    is_same = True
    for options, n_best in variants(beam, arguments.threads.split(",")):
        run = translated(arguments.model, source, beam, options, n_best)
        first = first or run
        show(beam, options, f"1 of {n_best}", digest(run.best), run.seconds)
        is_same &= agree(first.best, run.best)
        if 1 < n_best == beam:  # only lists of one length can be compared
            first_list = first_list or run
            show(beam, options, f"all {n_best}", digest(run.hypotheses), run.seconds)
            is_same &= agree(first_list.hypotheses, run.hypotheses)
    return is_same


def variants(beam: int, threads: Sequence[str]) -> Iterator[tuple[list[str], int]]:
    """Options of `translate` that must not matter, and a number for --n-best."""
    for number in threads:
        on_threads = ["--threads", number]
        yield on_threads, 1
        for size in BATCH_TOKENS:
            yield [*on_threads, "--batch-tokens", str(size)], 1
        for size in BUFFER_LINES:
            yield [*on_threads, "--buffer-lines", str(size)], 1
        if beam > 1:
            for more in ([], ["--batch-tokens", "64"], ["--buffer-lines", "7"]):
                yield [*on_threads, *more], beam
            yield on_threads, 2


def translated(model: Path, source: Path, beam: int, options: Sequence[str], n_best: int) -> Run:
    """Translates the lines in a process of its own."""
    command = [sys.executable, "-m", "tformer_cli", "translate", str(model), "-i", str(source)]
    command += ["--quiet", "--precision", "float32", "--device", "cpu"]
    command += ["--format", "jsonl", "--token-scores"]
    command += ["--beam-size", str(beam), "--n-best", str(n_best), *options]
    begun = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    seconds = time.perf_counter() - begun
    records = [json.loads(line) for line in done.stdout.splitlines()]
    best = [json.dumps({key: record.get(key) for key in BEST}) for record in records]
    hypotheses = [json.dumps(record.get("hypotheses")) for record in records]
    return Run(best, hypotheses, seconds)


def digest(records: Sequence[str]) -> str:
    """SHA-256 of all of them."""
    return hashlib.sha256("\n".join(records).encode()).hexdigest()


def agree(expected: Sequence[str], found: Sequence[str]) -> bool:
    """Says whether they are the same, and if not, where they differ first."""
    if expected == found:
        return True
    for number, (one, other) in enumerate(zip(expected, found, strict=False), 1):
        if one != other:
            say(f"differs first at line {number}:\n  {one}\n  {other}")
            return False
    say(f"differs in length: {len(found)} lines instead of {len(expected)}")
    return False


def show(beam: int, options: Sequence[str], what: str, sha256: str, seconds: float) -> None:
    """Prints a run."""
    say(f"beam {beam}  {' '.join(options):<40}  {what:<6}  {sha256}  {seconds:.1f} s")


def say(text: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
