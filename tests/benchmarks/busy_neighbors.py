"""Speed beside other programs: training, greedy and beam search, classifying and embedding.

    python tests/benchmarks/busy_neighbors.py runs/quickstart --encoder MINILM

Every contestant is a command of tformer as users start it, in a process of its own, with 1 or 2
threads, on two processors. All are started first and then run in turns of seconds, while the others
are stopped, beside k processes that only compute. With `--before CHECKOUT` another version takes
turns, too. Progress is what has come out: trained tokens, lines.

A row compares two threads with the better of one thread beside the same neighbors and the fair
share: of k + 2 threads on two processors that is 2 / (k + 2) of the speed of two threads alone.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import TFORMER, say, work_directory

REPOSITORY = Path(__file__).resolve().parents[2]
NEIGHBORS = (0, 1, 2, 4)
ENDLESS = ("--max-steps", "1000000", "--set", "validation.every=1000000")
BUSY = "while True: pass"


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A command that is measured."""

    work: str
    threads: int
    checkout: Path
    command: Sequence[str]
    metrics: Path | None = None
    """Training's report of every step; None: the command reads lines and writes as many."""


class Runner:
    """A contestant's process, stopped except in its turns."""

    def __init__(self, contestant: Contestant, lines: bytes, scratch: Path) -> None:
        """Starts it, and waits until the first work is done."""
        self.contestant = contestant
        self._n_lines = 0
        self._log = (scratch / "log").open("wb")
        self.process = subprocess.Popen(
            [*TFORMER, *contestant.command, "--threads", str(contestant.threads), "--quiet"],
            env={**os.environ, "PYTHONPATH": str(contestant.checkout), "NO_COLOR": "1"},
            cwd=scratch,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        for target, argument in ((self._feed, lines), (self._count, None)):
            threading.Thread(target=target, args=(argument,), daemon=True).start()
        while not self.done():
            if self.process.poll() is not None:
                raise SystemExit(f"{contestant}: {(scratch / 'log').read_text()}")
            time.sleep(0.05)
        self.process.send_signal(signal.SIGSTOP)

    def _feed(self, lines: bytes) -> None:
        assert self.process.stdin is not None
        try:
            while True:
                self.process.stdin.write(lines)
        except OSError:  # it has ended
            return

    def _count(self, _: None) -> None:
        assert self.process.stdout is not None
        while part := self.process.stdout.read1(1 << 16):
            self._n_lines += part.count(b"\n")

    def done(self) -> int:
        """Trained tokens, or lines written, so far."""
        if self.contestant.metrics is None:
            return self._n_lines
        if not self.contestant.metrics.exists():
            return 0
        *_, last, _ = ["", *self.contestant.metrics.read_text().rpartition("\n")[0].split("\n"), ""]
        return int(json.loads(last)["tokens"]) if last else 0

    def turn(self, seconds: float) -> tuple[int, float]:
        """Lets it run; what it did, in which time."""
        before, start = self.done(), time.monotonic()
        self.process.send_signal(signal.SIGCONT)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGSTOP)
        took = time.monotonic() - start
        time.sleep(0.02)  # what lies in the pipe is counted
        return self.done() - before, took

    def end(self) -> None:
        """Kills it."""
        self.process.kill()
        self.process.wait()
        self._log.close()


@contextmanager
def neighbors(number: int) -> Iterator[None]:
    """Keeps as many processors busy, as far as there are any."""
    running = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def contestants(options: argparse.Namespace, work: Path) -> Iterator[Contestant]:
    """All that take turns."""
    model = str(options.model.resolve())
    encoder = str((options.encoder or work / "classifier").resolve())
    commands = {
        "greedy": ("translate", model, "--beam-size", "1"),
        "beam": ("translate", model),
        "classify": ("classify", str(work / "classifier")),
        "embed": ("embed", encoder, "--buffer-lines", "256"),
    }
    for name in options.only or ("training", *commands):
        for number, checkout in enumerate([REPOSITORY, *options.before]):
            for threads in (1, 2):
                if name != "training":
                    command, metrics = commands[name], None
                else:
                    run = work / f"run-{number}-{threads}"
                    every = ("--set", "training.report_every=1")
                    command = ("train", "quickstart", "-o", str(run), *ENDLESS, *every)
                    metrics = run / "metrics.jsonl"
                yield Contestant(
                    work=name, threads=threads, checkout=checkout, command=command, metrics=metrics
                )


def train_classifier(work: Path) -> None:
    """Makes a model that classifies; how well it does costs no time."""
    command = ("train", "ratings", "-o", str(work / "classifier"), "--max-steps", "1")
    subprocess.run([*TFORMER, *command, "--quiet"], check=True, cwd=work, stdout=subprocess.DEVNULL)


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, help="translates from the built-in corpus")
    parser.add_argument("--encoder", type=Path, help="is embedded with [a small classifier]")
    parser.add_argument("--before", type=Path, nargs="+", default=[], help="another checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn [2]")
    parser.add_argument("--neighbors", type=int, nargs="+", default=list(NEIGHBORS))
    parser.add_argument("--only", nargs="+", help="names of works [all]")
    options = parser.parse_args()
    options.before = [checkout.resolve() for checkout in options.before]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    with work_directory(None) as work, ExitStack() as stack:
        corpus = work / "corpus"
        subprocess.run(
            [*TFORMER, "make-corpus", str(corpus), "--pairs", "6000", "--quiet"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        lines = (corpus / "train.en").read_bytes()
        train_classifier(work)
        runners = []
        for contestant in contestants(options, work):
            say(f"starts: {contestant.work}, {contestant.threads} threads")
            scratch = Path(tempfile.mkdtemp(dir=work))
            runners.append(Runner(contestant, lines, scratch))
            stack.callback(runners[-1].end)
        sys.stdout.write(
            "work      k   threads 1   threads 2   aim   two / aim"
            + ("   before: 1    before: 2   two / before" if options.before else "")
            + "\n"
        )
        alone: dict[tuple[str, Path], float] = {}
        for k in options.neighbors:
            speeds = measured(runners, k, options.rounds, options.seconds)
            for name in dict.fromkeys(runner.contestant.work for runner in runners):
                one, two = (speeds[name, REPOSITORY, threads] for threads in (1, 2))
                best = alone.setdefault((name, REPOSITORY), two)
                aim = max(one, best * 2 / (k + 2))
                row = f"{name:9} {k}  {one:10,.0f}  {two:10,.0f} {aim:8,.0f}  {two / aim:8.2f}"
                for before in options.before:
                    old_one, old_two = (speeds[name, before, threads] for threads in (1, 2))
                    row += f"  {old_one:10,.0f}  {old_two:10,.0f}  {two / max(old_two, 1e-9):8.2f}"
                sys.stdout.write(row + "\n")
                sys.stdout.flush()


def measured(
    runners: Sequence[Runner], k: int, rounds: int, seconds: float
) -> dict[tuple[str, Path, int], float]:
    """Work a second of each contestant beside k neighbors, over all its turns."""
    sums = [[0, 0.0] for _ in runners]
    with neighbors(k):
        time.sleep(0.5)
        for number in range(rounds):
            order = list(enumerate(runners))
            for index, runner in reversed(order) if number % 2 else order:
                done, took = runner.turn(seconds)
                sums[index][0] += done
                sums[index][1] += took
    return {
        (one.contestant.work, one.contestant.checkout, one.contestant.threads): done / took
        for one, (done, took) in zip(runners, sums, strict=True)
    }


if __name__ == "__main__":
    main()
