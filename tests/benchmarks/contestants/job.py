"""What every contestant shares: the job it is given, its stopwatch and its answer.

Runs in the peers' own environments: nothing but the standard library.
"""

import json
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one contestant."""

    ids: Path
    """Directory of `train|valid|test.source|target`, token ids as text; and `tokenizer.json`."""
    text: Path
    """The same sentences as raw text."""
    scratch: Path
    """Empty directory for whatever the contestant writes."""
    n_layers: int
    d_model: int
    n_heads: int
    d_ff: int
    vocab_size: int
    tokens_per_batch: int
    threads: int
    options: dict[str, str]
    """What sets variants of one contestant apart."""
    updates: int = 0
    """Speed: stop after so many updates."""
    minutes: float = 0.0
    """Quality: stop after so many minutes of training."""
    checkpoint_minutes: float = 2.0
    """Quality: minutes of training between two checkpoints."""
    recipe: str = ""
    """Quality: tformer's recipe."""
    seed: int = 1
    """Of everything random."""


def read_job():
    """Reads the job whose file is the one argument."""
    values = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    paths = {name: Path(values.pop(name)) for name in ("ids", "text", "scratch")}
    return Job(**paths, **values)


def write_answer(job, **answer):
    """Leaves the answer where the harness looks for it."""
    (job.scratch / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def read_ids(file):
    """Reads lines of token ids."""
    with file.open(encoding="utf-8") as lines:
        return [[int(token) for token in line.split()] for line in lines]


def write_ids(file, sentences):
    """Writes lines of token ids."""
    file.write_text("".join(" ".join(map(str, ids)) + "\n" for ids in sentences), encoding="utf-8")


class Stopwatch:
    """Counts seconds of training, update by update; pauses are left out."""

    def __init__(self, job):
        self.updates = []
        """Target tokens and seconds of each update."""
        self.seconds = 0.0
        self._job = job
        self._next_checkpoint = 60.0 * job.checkpoint_minutes
        self._mark = time.perf_counter()

    def restart(self):
        """Starts the first update now."""
        self._mark = time.perf_counter()

    def add_update(self, n_tokens):
        """Ends an update; the next one begins."""
        now = time.perf_counter()
        self.updates.append((n_tokens, now - self._mark))
        self.seconds += now - self._mark
        self._mark = now

    @contextmanager
    def pause(self):
        """Leaves out what is done within."""
        begin = time.perf_counter()
        yield
        self._mark += time.perf_counter() - begin

    @property
    def share_done(self):
        """Share of the run that is over, 0 to 1."""
        if self._job.updates:
            return min(1.0, len(self.updates) / self._job.updates)
        return min(1.0, self.seconds / (60.0 * self._job.minutes))

    @property
    def is_over(self):
        """Whether the job's limit is reached."""
        return self.share_done >= 1.0

    def is_checkpoint_due(self):
        """Says, once, that a checkpoint is due; always at the end. Never when measuring speed."""
        if self._job.updates or not (self.is_over or self.seconds >= self._next_checkpoint):
            return False
        while self._next_checkpoint <= self.seconds:
            self._next_checkpoint += 60.0 * self._job.checkpoint_minutes
        return True
