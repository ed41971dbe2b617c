"""A long stream through `tformer translate`: memory, order, a closed pipe, Ctrl-C. Linux only.

    python tests/benchmarks/stream.py [--lines 1000000] [--model MODEL] [--json FILE]

A line's translation and score depend on the line alone. So some hundred short lines, no two of
which have the same of both, are translated one by one first. Then they come in a known, irregular
order, and each row that comes out (--format tsv) must have the number, source, translation and
score of the line that went in at its place. Without MODEL a tiny model with random weights is used.

Exit status 1 if memory grows, a line is wrong, missing or out of place, or an end is not clean.
"""

import argparse
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from harness import TFORMER, fail, output_by, say, work_directory, write, write_json

N_KINDS = 400
"""Different lines at most."""
MULTIPLIER = 2_654_435_761
"""Knuth's multiplicative hash makes an irregular order that anybody can compute again."""
N_SAMPLES = 20
"""Looks at the memory."""
PATIENCE = 120.0
"""Seconds after Ctrl-C at which a program that goes on is killed."""
GROWTH_MIB = 16
"""More memory at the end than after a quarter of the lines is a leak."""


@dataclass(frozen=True)
class Kinds:
    """Different lines, and what follows the number in their different rows of output."""

    sources: Sequence[bytes]
    rows: Sequence[bytes]

    def line(self, number):
        """What goes in at a place of the stream."""
        return self.sources[self._at(number)] + b"\n"

    def row(self, number):
        """What must come out there."""
        return b"%d\t%s\n" % (number, self.rows[self._at(number)])

    def _at(self, number):
        return (number * MULTIPLIER >> 7) % len(self.sources)


def main():
    arguments = parse_arguments()
    # A shell that starts this in the background lets it, and what it starts, ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with work_directory(None) as work:
        model = arguments.model or work / "model"
        if not arguments.model:
            # in a process of its own, so that this one stays small
            output_by("-c", MODEL_SCRIPT, model)
        command = [*TFORMER, "translate", model, "--quiet"]
        command += ["--beam-size", str(arguments.beam_size), "--format", "tsv"]
        kinds = distinct_kinds(command)
        say(f"{len(kinds.sources)} different lines")
        begun = time.perf_counter()
        samples = check_stream(command, kinds, arguments.lines)
        seconds = time.perf_counter() - begun
        check_closed_pipe(command, kinds)
        check_interrupt(command, kinds, work / "output.txt")
    rest = [resident_mib for _, resident_mib in samples[len(samples) // 4 :]]
    growth = max(rest) - rest[0]
    for lines, resident_mib in samples:
        write(f"{lines:>12,} lines {resident_mib:>9,.1f} MiB")
    write(f"{arguments.lines:,} lines in {seconds:,.1f} s, all in order")
    write(f"memory after a quarter and at its highest since: {growth:+,.1f} MiB")
    write("a closed pipe and Ctrl-C end it cleanly")
    report = {"lines": arguments.lines, "seconds": seconds, "growth_mib": growth}
    write_json(arguments.json, {**report, "samples": samples})
    if growth > GROWTH_MIB:
        fail(f"memory grew by {growth:.1f} MiB")


def parse_arguments():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="A long stream through `tformer translate`.")
    parser.add_argument("--lines", type=int, default=1_000_000, help="of the stream [1000000]")
    parser.add_argument("--model", type=Path, help="a model directory [a tiny random one]")
    parser.add_argument("--beam-size", type=int, default=1, help="[1]")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    if arguments.lines < N_SAMPLES:
        parser.error(f"--lines: must be at least {N_SAMPLES}")
    return arguments


MODEL_SCRIPT = """
import sys
from tests.models import save_random

words = ["the", "dog", "sees", "a", "cat", "and", "two", "men", "sleep", "here"]
save_random(
    sys.argv[1], [f"{a} {b}" for a in words for b in words], decoding={"max_length": 4},
    vocab_size=400, d_model=32, n_heads=1, d_ff=32, max_positions=32,
)
"""
"""Makes a model with random weights that says at most four tokens."""


def distinct_kinds(command):
    """Translates short lines, one at a time, and keeps those whose translations differ."""
    words = [b"dog", b"two", b"street", b"a", b"sleeps", b"men", b"snow", b"12", b"red", b"who"]
    lines = [b" ".join((a, b, c)) for a in words for b in words for c in words]
    text = b"".join(line + b"\n" for line in lines)
    done = subprocess.run(
        [*command, "--batch-tokens", "1"], input=text, stdout=subprocess.PIPE, check=True
    )
    rows = [row.partition(b"\t")[2] for row in done.stdout.split(b"\n")[:-1]]
    by_result = {row.split(b"\t", 1)[1]: (line, row) for line, row in zip(lines, rows, strict=True)}
    kept = list(by_result.values())[:N_KINDS]
    if len(kept) < 20:
        fail(f"the model has only {len(kept)} different translations: choose another")
    return Kinds([source for source, _ in kept], [row for _, row in kept])


@contextmanager
def streaming(command, kinds, n_lines, stdout=subprocess.PIPE):
    """Starts the program and feeds it the stream; None: until it takes no more."""
    with (
        tempfile.NamedTemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=errors) as process,
    ):
        feeder = threading.Thread(target=feed, args=(process, kinds, n_lines), daemon=True)
        feeder.start()
        try:
            yield process, Path(errors.name)
        finally:
            process.kill()
            feeder.join()


def feed(process, kinds, n_lines):
    """Writes the stream to the program's stdin."""
    with suppress(BrokenPipeError):  # it has ended
        for number in count() if n_lines is None else range(n_lines):
            process.stdin.write(kinds.line(number))
    with suppress(BrokenPipeError):
        process.stdin.close()


def check_stream(command, kinds, n_lines):
    """Compares every line that comes out with what has to come, and looks at the memory."""
    samples = []
    with streaming(command, kinds, n_lines) as (process, errors):
        n_read = 0
        for row in process.stdout:
            if row != kinds.row(n_read):
                fail(f"row {n_read:,} is {row!r} and should be {kinds.row(n_read)!r}")
            n_read += 1
            if n_read % (n_lines // N_SAMPLES) == 0 and n_read < n_lines:
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
                samples.append((n_read, int(status.split("VmRSS:")[1].split()[0]) / 1024))
                say(f"{n_read:,} lines, {samples[-1][1]:,.1f} MiB")
        if n_read != n_lines:
            fail(f"{n_read:,} lines came out of {n_lines:,}")
        expect_end(process, errors, 0)
    return samples


def check_closed_pipe(command, kinds):
    """Reads some lines of an endless stream and goes away, as `head` does."""
    with streaming(command, kinds, None) as (process, errors):
        for number in range(1500):
            if process.stdout.readline() != kinds.row(number):
                fail(f"row {number} before the pipe was closed is wrong")
        process.stdout.close()
        expect_end(process, errors, 141)


def check_interrupt(command, kinds, output):
    """Ctrl-C: what has come out is whole and right; a file that was asked for is not there."""
    with streaming(command, kinds, None) as (process, errors):
        read = [process.stdout.readline() for _ in range(1500)]
        interrupt(process)
        read += process.stdout.readlines()
        if read != [kinds.row(number) for number in range(len(read))]:
            fail(f"of {len(read):,} rows before Ctrl-C not all are right and whole")
        expect_end(process, errors, 130)
    with streaming([*command, "-o", str(output)], kinds, None, stdout=None) as (process, errors):
        while not any(output.parent.glob(f"*{output.name}*")):
            time.sleep(0.05)
        time.sleep(1)
        interrupt(process)
        expect_end(process, errors, 130)
    if left := [file.name for file in output.parent.glob(f"*{output.name}*")]:
        fail(f"Ctrl-C left {', '.join(left)}")


def interrupt(process):
    """Does what Ctrl-C does."""
    process.send_signal(signal.SIGINT)
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.daemon = True
    watchdog.start()


def expect_end(process, errors, status):
    """Waits for the program; it must end with this status and without a traceback."""
    found = process.wait(PATIENCE)
    said = errors.read_text(encoding="utf-8", errors="replace")
    if found != status or "Traceback" in said or len(said.splitlines()) > 1:
        fail(f"ended with {found} instead of {status}, and said: {said.strip() or 'nothing'}")


if __name__ == "__main__":
    main()
