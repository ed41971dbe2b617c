"""A long stream through `tformer translate`: its order, its memory, and Ctrl-C. Linux only."""

import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from itertools import count, islice
from pathlib import Path

import pytest

from tests.commands import lines_of

WORDS = ["dog", "two", "street", "a", "sleeps", "men", "snow", "12", "red", "who"]
SOURCES = [f"{first} {second} {third}" for first in WORDS for second in WORDS for third in WORDS]
N_LINES = 100_000
GROWTH_KIB = 16 << 10
"""More memory at the end than after a quarter of the lines is a leak."""
CODE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
from tformer_cli.__main__ import main
main()
"""
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


@pytest.fixture(scope="module")
def words(zoo):
    return ["translate", str(zoo["translate"]), "-q", "--beam-size", "1", "--max-length", "4"]


@pytest.fixture(scope="module")
def pairs(words):
    """Yields lines and their translations without end, in an order without a pattern."""
    found = lines_of(*words, stdin="".join(f"{line}\n" for line in SOURCES))
    known = list(dict(zip(found, SOURCES, strict=True)).items())  # a line for each translation
    assert len(known) > 50

    def draw_pairs():
        for number in count():
            place = (number * 2_654_435_761 >> 7) % len(known)  # Knuth's multiplicative hash
            translation, source = known[place]
            yield f"{source}\n".encode(), f"{translation}\n".encode()

    return draw_pairs


@contextmanager
def streaming(words, lines, stdout=subprocess.PIPE):
    """Starts the program and feeds it lines for as long as it takes some."""
    program = [sys.executable, "-c", CODE, *words]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE
    ) as process:

        def feed():
            with suppress(BrokenPipeError):  # it has ended
                for line in lines:
                    process.stdin.write(line)
            with suppress(BrokenPipeError):  # what was still to be written
                process.stdin.close()

        feeder = threading.Thread(target=feed, daemon=True)
        feeder.start()
        yield process
        process.kill()
        feeder.join()


def test_every_line_comes_out_at_its_place_and_memory_does_not_grow(words, pairs):
    memory, expected = [], (row for _, row in pairs())
    with streaming(words, (line for line, _ in islice(pairs(), N_LINES))) as process:
        for number, (row, right) in enumerate(zip(process.stdout, expected, strict=False)):
            assert row == right, number
            if number in (N_LINES // 4, N_LINES - 2000):
                status = Path(f"/proc/{process.pid}/status").read_text("ascii")
                memory.append(int(status.split("VmRSS:")[1].split()[0]))
        assert number == N_LINES - 1
        assert (process.wait(60), process.stderr.read()) == (0, b"")
    assert memory[1] - memory[0] < GROWTH_KIB, memory


@pytest.mark.parametrize("is_file", [False, True])
def test_ctrl_c_leaves_whole_lines_and_no_half_written_file(words, pairs, tmp_path, is_file):
    more = ["-o", str(tmp_path / "output")] if is_file else []
    with streaming([*words, *more], (line for line, _ in pairs())) as process:
        if is_file:
            while not list(tmp_path.iterdir()):
                assert process.poll() is None
            read = []
        else:
            read = [process.stdout.readline() for _ in range(1500)]
        process.send_signal(signal.SIGINT)
        read += process.stdout.readlines()
        assert process.wait(60) == 130
        assert process.stderr.read().count(b"\n") <= 1
    assert read == [row for _, row in islice(pairs(), len(read))]
    assert not list(tmp_path.iterdir())
