"""What the contestants of the translation benchmark share: the job, the clock and the answer."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

WARM_UP_LINES = 8

Translate = Callable[[Sequence[str]], list[tuple[str, int]]]
"""Lines in; for each its translation and how many tokens that has, the end of sentence counted."""


@dataclass(frozen=True, kw_only=True)
class TranslationJob:
    """One run of one contestant."""

    model: Path
    """Model directory of tformer."""
    export: Path
    """The same model for CTranslate2."""
    lines: Path
    """Sentences to translate."""
    scratch: Path
    """Empty directory for whatever the contestant writes."""
    beam_size: int
    length_normalization: str
    """tformer's; the others divide by T to the power of the length penalty."""
    length_penalty: float
    min_length: int
    """Fewest tokens of a translation; tformer and CTranslate2 alone know it."""
    max_length: int
    """Most tokens of a translation; 0: as the model has it."""
    threads: int
    single_lines: int
    """Lines translated one after another for the latency."""
    options: dict[str, str]
    """What sets variants of one contestant apart."""


def set_up_torch(job):
    """Gives torch the job's threads and, where a variant asks for it, oneDNN's float32."""
    import torch  # not every contestant needs it, and its memory would be counted

    torch.set_num_threads(job.threads)
    if "onednn" in job.options:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # torch's name for oneDNN's float32


def read_job():
    """Reads the job whose file is the one argument."""
    values = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    known = {field.name: field.type for field in fields(TranslationJob)}
    return TranslationJob(
        **{
            name: Path(value) if known[name] is Path else value
            for name, value in values.items()
            if name in known
        }
    )


def measure(job, load, version, *, is_load_timed=True):
    """Loads, translates all lines at once, then some one by one; leaves the answer."""
    lines = job.lines.read_text(encoding="utf-8").split("\n")[:-1]
    begun = time.perf_counter()
    translate = load()
    load_seconds = time.perf_counter() - begun
    translate(lines[:WARM_UP_LINES])
    begun, computed = time.perf_counter(), time.process_time()
    translations = translate(lines)
    seconds, computing = time.perf_counter() - begun, time.process_time() - computed
    latencies = []
    for line in lines[: job.single_lines]:
        begun = time.perf_counter()
        translate([line])
        latencies.append(time.perf_counter() - begun)
    hypotheses = job.scratch / "hypotheses"
    hypotheses.write_text("".join(text + "\n" for text, _ in translations), encoding="utf-8")
    answer = {
        "load_seconds": load_seconds if is_load_timed else None,
        "seconds": seconds,
        "computing_seconds": computing,
        "lines": len(lines),
        "tokens": sum(n_tokens for _, n_tokens in translations),
        "latencies": latencies,
        "hypotheses": str(hypotheses),
        "version": version,
    }
    (job.scratch / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def batches_of_like_length(lengths, n_tokens):
    """Yields the numbers of sentences, shortest first, in batches of a budget."""
    members = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if members and (len(members) + 1) * lengths[i] > n_tokens:
            yield members
            members = []
        members.append(i)
    if members:
        yield members
