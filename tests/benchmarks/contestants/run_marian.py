"""Marian, the whole program as pymarian ships it; times are those of its own log."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from job import read_job, write_answer

REPORT = re.compile(r"Up\. (\d+) .* after ([\d,]+) : Time ([\d.]+)s : ([\d.]+) words/s")


def main():
    job = read_job()
    if job.minutes:
        raise SystemExit("marian: measures speed only")
    log = train(job)
    updates, before = [], 0
    for report in REPORT.finditer(log):
        total = int(report.group(2).replace(",", ""))
        n_tokens, before = total - before, total
        updates.append((n_tokens, n_tokens / float(report.group(4))))
    write_answer(job, updates=updates, curve=[], version=f"pymarian {version('pymarian')}")


def train(job):
    """Trains with a report for every update; returns the log."""
    vocabulary = job.scratch / "vocabulary.yml"
    words = ["</s>", "<unk>", *map(str, range(4, job.vocab_size + 2))]
    entries = (f'"{word}": {place}\n' for place, word in enumerate(words))
    vocabulary.write_text("".join(entries), encoding="utf-8")
    program = Path(sys.executable).with_name("pymarian")
    command = [
        str(program), "train", "--model", str(job.scratch / "model.npz"),
        "--type", "transformer", "--tied-embeddings-all", "--dim-emb", str(job.d_model),
        "--transformer-dim-ffn", str(job.d_ff), "--transformer-heads", str(job.n_heads),
        "--enc-depth", str(job.n_layers), "--dec-depth", str(job.n_layers),
        "--transformer-dropout", "0.1", "--label-smoothing", "0.1",
        "--train-sets", str(job.ids / "train.source"), str(job.ids / "train.target"),
        "--vocabs", str(vocabulary), str(vocabulary), "--mini-batch", "9999",
        "--mini-batch-words", str(job.tokens_per_batch), "--max-length", "500",
        "--optimizer-params", "0.9", "0.98", "1e-9", "--learn-rate", "5e-4",
        "--cpu-threads", str(job.threads), "--sync-sgd", "--workspace", "1000",
        "--after", f"{job.updates}u", "--disp-freq", "1u", "--seed", str(job.seed),
        "--tempdir", str(job.scratch),
    ]  # fmt: skip
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True).stderr


if __name__ == "__main__":
    main()
