"""Processor time of two checkouts of tformer in one run: has a change cost any?

    python tests/benchmarks/two_versions.py --before OTHER_CHECKOUT --model runs/quickstart \
        --source corpus/train.en

Both run the same commands with the Python of this script and its packages, on one thread each, and
**in turns of a tenth of a second**: while one works, the other is stopped. So both meet the same
noise of a shared machine and the same clock, which whole runs one after the other do not: of two
equal versions those differ by up to a tenth. Compared are seconds of the processor, those of a
long command less those of a short one, so that neither imports nor files count. Training is on the
built-in corpus; translation needs a model that both versions read. Kernels are those that each
checkout holds or makes.
"""

import argparse
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

SMALL = ("model.d_model=256", "model.d_ff=1024", "model.n_heads=4", "model.dropout=0.1")
"""Changes of the recipe quickstart (tiny) that make its model a small one."""
TURN = 0.1
"""Seconds of a turn: short beside changes of the machine's load, long beside filling caches."""
Command = Callable[[Path, int], list[str]]
"""Makes a command's arguments from a folder for its output and an amount of work."""


@contextmanager
def start_stopped(checkout, arguments):
    """Starts a command of a checkout and stops it at once; it is killed if it is still there."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "tformer_cli", *arguments, "--threads", "1", "--quiet"]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, cwd=checkout
        )
        os.kill(process.pid, signal.SIGSTOP)  # Popen's own way would collect one that has ended
        try:
            yield process
            if process.returncode:
                errors.seek(0)
                raise SystemExit(f"{checkout}: {' '.join(command)}\n{errors.read().decode()}")
        finally:
            if process.returncode is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()


def race(processes):
    """Lets processes work in turns to their end; the processor seconds of each."""
    seconds = [0.0] * len(processes)
    running = dict(enumerate(processes))
    for number in itertools.cycle(range(len(processes))):
        if not running:
            return seconds
        if number not in running:
            continue
        process = running[number]
        os.kill(process.pid, signal.SIGCONT)
        end = time.monotonic() + TURN
        while number in running and time.monotonic() < end:
            found, status, usage = os.wait4(process.pid, os.WNOHANG)
            if found:
                process.returncode = os.waitstatus_to_exitcode(status)
                seconds[number] = usage.ru_utime + usage.ru_stime
                del running[number]
            else:
                time.sleep(TURN / 10)
        if number in running:
            os.kill(process.pid, signal.SIGSTOP)
    return seconds


def compare_checkouts(checkouts, command, amounts):
    """Processor seconds of each checkout for the work between two amounts of it."""
    found = []
    for amount in amounts:
        with (
            tempfile.TemporaryDirectory() as first,
            tempfile.TemporaryDirectory() as second,
            start_stopped(checkouts[0], command(Path(first), amount)) as first_process,
            start_stopped(checkouts[1], command(Path(second), amount)) as second_process,
        ):
            found.append(race([first_process, second_process]))
    less, more = found
    return [b - a for a, b in zip(less, more, strict=True)]


def training(changes, precision):
    """The command that trains by the recipe quickstart for an amount of steps."""
    sets = [word for change in changes for word in ("--set", change)]
    return lambda folder, n_steps: [
        *("train", "quickstart", "-o", str(folder / "run"), "--max-steps", str(n_steps)),
        *("--precision", precision, "--set", "validation.every=100000", *sets),
    ]


def translation(model, source, beam_size, precision):
    """The command that translates an amount of a file's lines."""

    def arguments(folder, n_lines):
        with source.open(encoding="utf-8") as lines:
            given = list(itertools.islice(lines, n_lines))
        (folder / "source").write_text("".join(given), encoding="utf-8")
        return [
            *("translate", str(model), "-i", str(folder / "source"), "-o", str(folder / "output")),
            *("--beam-size", str(beam_size), "--precision", precision, "--device", "cpu"),
        ]

    return arguments


def encoding(verb, encoder, source):
    """The command that classifies or embeds an amount of a file's lines, one after the other."""

    def arguments(folder, n_lines):
        with source.open(encoding="utf-8") as lines:
            given = list(itertools.islice(itertools.cycle(lines), n_lines))
        (folder / "source").write_text("".join(given), encoding="utf-8")
        return [verb, str(encoder), "-i", str(folder / "source"), "-o", str(folder / "output")]

    return arguments


def main():
    """Races both checkouts and prints a table of medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="checkout of the old version")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True, help="at least 2,000 lines")
    parser.add_argument("--classifier", type=Path, help="a model that both versions read")
    parser.add_argument("--encoder", type=Path, help="one that gives vectors of texts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--only", default="", help="part of the name of what is raced")
    options = parser.parse_args()
    checkouts = [options.before.resolve(), Path(__file__).resolve().parents[2]]
    races = {}
    for precision in options.precision:
        races[f"train, tiny, {precision}"] = training((), precision), (10, 70)
        races[f"train, small, {precision}"] = training(SMALL, precision), (5, 30)
    for precision in ("float32", "int8"):
        for beam_size in (1, 5):
            command = translation(
                options.model.resolve(), options.source.resolve(), beam_size, precision
            )
            most = 20_000 if beam_size == 1 else 6_000
            races[f"translate, beam {beam_size}, {precision}"] = command, (500, most)
    for verb, encoder in (("classify", options.classifier), ("embed", options.encoder)):
        if encoder is not None:
            command = encoding(verb, encoder.resolve(), options.source.resolve())
            races[verb] = command, (200, 2_000)
    sys.stdout.write(f"{'processor seconds':32}{'before':>10}{'after':>10}{'speed':>8}  of each\n")
    for name, (command, amounts) in races.items():
        if options.only not in name:
            continue
        found = [compare_checkouts(checkouts, command, amounts) for _ in range(options.rounds)]
        before, after = (statistics.median(column) for column in zip(*found, strict=True))
        ratios = sorted(old / new for old, new in found)
        shown = " ".join(f"{ratio:.3f}" for ratio in ratios)
        middle = statistics.median(ratios)
        sys.stdout.write(f"{name:32}{before:10.1f}{after:10.1f}{middle:8.3f}  {shown}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
