"""Cost of `tformer translate-corpus` beside `tformer translate` of the same file.

python tests/benchmarks/corpus_overhead.py MODEL in.txt --workers 1,2 --rounds 3

Both run alternately, each worker on one thread. Seconds are the processor's, of the program with
all its workers, starts included; memory is that of the largest process. The bytes must be the same.
"""

import argparse
from pathlib import Path
from statistics import median

from harness import TFORMER, cost_of, fail, work_directory, write


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    costs, common = {}, (given.model, "--threads", "1", "--quiet")
    for _ in range(given.rounds):
        with work_directory(None) as work:
            plain = work / "plain"
            cost = cost_of(
                [*TFORMER, "translate", *common, "-i", given.text, "-o", plain], threads=1
            )
            costs.setdefault("translate", []).append(cost)
            for workers in given.workers.split(","):
                output = work / workers
                command = [*TFORMER, "translate-corpus", *common, given.text, "-o", output]
                cost = cost_of([*command, "--workers", workers], threads=1)
                costs.setdefault(f"{workers} workers", []).append(cost)
                parts = b"".join(part.read_bytes() for part in sorted(Path(output).glob("part-*")))
                if parts != plain.read_bytes():
                    fail(f"{workers} workers: other bytes than those of translate")
    alone = median(cost.processor for cost in costs["translate"])
    for name, found in costs.items():
        seconds, peak = median(cost.processor for cost in found), max(cost.peak for cost in found)
        write(f"{name}: {seconds:.2f} s, {seconds / alone:.3f}, {peak:.0f} MB")


if __name__ == "__main__":
    main()
