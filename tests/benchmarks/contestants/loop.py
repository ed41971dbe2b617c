"""The plain training loop around a model that comes without one."""

from collections.abc import Callable
from pathlib import Path

import torch
from batches import PAD, Batch, endless_batches
from job import Job, Stopwatch
from torch import Tensor, nn

LEARNING_RATE = 1e-3
WARMUP_STEPS = 300


def prepare_torch(job: Job) -> None:
    """Threads, seed, and the one switch of a tuned variant."""
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    if "onednn" in job.options:
        # the name is misleading: on a processor without AMX these products stay true float32
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"


def _processor_flags() -> set[str]:
    file = Path("/proc/cpuinfo")
    return set(file.read_text().split()) if file.is_file() else set()


def train(
    job: Job,
    model: nn.Module,
    forward: Callable[[Batch], Tensor],
    save: Callable[[Stopwatch], None],
) -> Stopwatch:
    """Trains until the job is over.

    Args:
        job: says how long.
        model: what is trained.
        forward: a batch to logits (B, T, V).
        save: called at checkpoints; its time does not count.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), eps=1e-9)
    batches = endless_batches(job)
    batch = next(batches)
    model.train()
    stopwatch = Stopwatch(job)
    # a processor that does not multiply bfloat16 would be slowed down by it
    is_bfloat16 = "bfloat16" in job.options and "avx512_bf16" in _processor_flags()
    while not stopwatch.is_over:
        optimizer.param_groups[0]["lr"] = _learning_rate(stopwatch)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_bfloat16):
            logits = forward(batch)
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1).float(),
            batch.target_output.flatten(),
            ignore_index=PAD,
            label_smoothing=0.1,
        )
        loss.backward()
        if job.minutes:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        stopwatch.add_update(batch.n_target_tokens)
        if stopwatch.is_checkpoint_due():
            with stopwatch.pause():
                save(stopwatch)
        batch = next(batches)
    return stopwatch


def _learning_rate(stopwatch: Stopwatch) -> float:
    """Linear warm-up, then down to 0 at the end of the run."""
    warm = (len(stopwatch.updates) + 1) / WARMUP_STEPS
    return LEARNING_RATE * min(1.0, warm, max(1e-3, 1.0 - stopwatch.share_done))
