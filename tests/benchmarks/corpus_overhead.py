"""Cost of `tformer translate-corpus` beside `tformer translate` of the same file.

python tests/benchmarks/corpus_overhead.py MODEL in.txt --workers 1,2 --rounds 3

Both run alternately, each worker on one thread. Seconds are the processor's, of the program with
all its workers, starts included; memory is that of the largest process. The bytes must be the same.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

TFORMER = (sys.executable, "-m", "tformer_cli")


class Cost(NamedTuple):
    """What a program took."""

    seconds: float
    megabytes: float


def cost_of(*words: str) -> Cost:
    """Runs a command of tformer on one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    program = subprocess.Popen([*TFORMER, *words], env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    if program.returncode:
        sys.exit(f"tformer {' '.join(words)}: exit status {program.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def main() -> None:
    """Prints the medians, and those of translate-corpus divided by those of translate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    costs: dict[str, list[Cost]] = {}
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as work:
            plain, common = Path(work) / "plain", [given.model, "--threads", "1", "--quiet"]
            cost = cost_of("translate", *common, "-i", given.text, "-o", str(plain))
            costs.setdefault("translate", []).append(cost)
            for n_workers in given.workers.split(","):
                output = Path(work) / n_workers
                options = ["-o", str(output), "--workers", n_workers]
                cost = cost_of("translate-corpus", *common, given.text, *options)
                costs.setdefault(f"{n_workers} workers", []).append(cost)
                parts = b"".join(one.read_bytes() for one in sorted(output.glob("part-*")))
                if parts != plain.read_bytes():
                    sys.exit(f"{n_workers} workers: other bytes than those of translate")
    alone = median(cost.seconds for cost in costs["translate"])
    for name, found in costs.items():
        seconds = median(cost.seconds for cost in found)
        peak = max(cost.megabytes for cost in found)
        sys.stdout.write(f"{name}: {seconds:.2f} s, {seconds / alone:.3f}, {peak:.0f} MB\n")


if __name__ == "__main__":
    main()
