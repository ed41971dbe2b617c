"""The plain training loop around a model that comes without one."""

from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import torch
from batches import PAD, endless_batches, endless_random_batches
from job import Stopwatch
from torch import nn

TENSORS = ("source", "target_input", "target_output")
BATCHES_AHEAD = 48


@dataclass(frozen=True, kw_only=True)
class LoopRecipe:
    """Settings of the loop: linear warm-up, then linearly down to 0 at the end of the run."""

    learning_rate: float
    """Highest."""
    warmup_steps: int
    """Of the rise."""
    betas: tuple[float, float]
    """Adam's."""
    epsilon: float
    """Adam's."""
    label_smoothing: float
    """ε_ls."""
    pairs_per_batch: int = 0
    """Pairs drawn at random for a batch; 0: the job's tokens, pairs of like length together."""


OURS = LoopRecipe(
    learning_rate=1e-3, warmup_steps=300, betas=(0.9, 0.98), epsilon=1e-9, label_smoothing=0.1
)
"""Chosen by us for short trainings from scratch."""
TRAINER = LoopRecipe(
    learning_rate=5e-5,
    warmup_steps=0,
    betas=(0.9, 0.999),
    epsilon=1e-8,
    label_smoothing=0.0,
    pairs_per_batch=8,
)
"""The defaults of Hugging Face's `TrainingArguments` (5.23): made for fine-tuning."""


def prepare_torch(job):
    """Threads, seed, and the one switch of a tuned variant."""
    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    if "onednn" in job.options:
        # the name is misleading: on a processor without AMX these products stay true float32
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"


def _processor_flags():
    file = Path("/proc/cpuinfo")
    return set(file.read_text().split()) if file.is_file() else set()


def train(job, model, forward, save):
    """Trains until the job is over."""
    recipe = TRAINER if "trainer" in job.options else OURS
    device = torch.device(job.options.get("device", "cpu"))
    on_gpu = device.type == "cuda"
    optimizer = torch.optim.Adam(
        model.to(device).parameters(), betas=recipe.betas, eps=recipe.epsilon, fused=on_gpu or None
    )
    if recipe.pairs_per_batch:
        batches = endless_random_batches(job, recipe.pairs_per_batch)
    else:
        batches = endless_batches(job)
    if on_gpu:  # made and pinned beforehand: the loop shall not wait for Python's lists
        batches = cycle([_pin(batch) for batch in islice(batches, BATCHES_AHEAD)])
    batch = next(batches)
    model.train()
    # On a GPU time is known only where the host waits for it: after some updates together
    every, counts = int(job.options.get("report_every", "1")), []
    stopwatch = Stopwatch(job)
    # a processor that does not multiply bfloat16 would be slowed down by it
    has_bfloat16 = on_gpu or "avx512_bf16" in _processor_flags()
    is_bfloat16 = "bfloat16" in job.options and has_bfloat16
    while not stopwatch.is_over:
        optimizer.param_groups[0]["lr"] = _learning_rate(recipe, stopwatch)
        batch = _move(batch, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=is_bfloat16):
            logits = forward(batch)
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1).float(),
            batch.target_output.flatten(),
            ignore_index=PAD,
            label_smoothing=recipe.label_smoothing,
        )
        loss.backward()
        if job.minutes:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        counts.append(batch.n_target_tokens)
        if len(counts) == every:
            if on_gpu:
                torch.cuda.synchronize()
            stopwatch.add_update(sum(counts))
            counts.clear()
        if stopwatch.is_checkpoint_due():
            with stopwatch.pause():
                save(stopwatch)
        batch = next(batches)
    return stopwatch


def _pin(batch):
    return batch._replace(**{name: getattr(batch, name).pin_memory() for name in TENSORS})


def _move(batch, device):
    moved = {name: getattr(batch, name).to(device, non_blocking=True) for name in TENSORS}
    return batch._replace(**moved)


def _learning_rate(recipe, stopwatch):
    warm = (len(stopwatch.updates) + 1) / max(1, recipe.warmup_steps)
    return recipe.learning_rate * min(1.0, warm, max(1e-3, 1.0 - stopwatch.share_done))
