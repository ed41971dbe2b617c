"""Profile of training steps by torch's profiler."""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from tformer_cli.trainer.report_interval import ReportInterval
from tformer_cli.trainer.speed import training_flops_per_token
from tformer_cli.trainer.trainer import Trainer

WARM_UP = 5
"""Steps that are made before any is measured: memory is taken, kernels are chosen."""
TOP_OPERATORS = 15
_WAITING = "waiting for data"
_OPTIMIZING = "optimizer and clipping"
_OPTIMIZER = "Optimizer."
_CATEGORIES = (
    ("waiting for data", _WAITING),
    (_OPTIMIZING, r"_foreach_|_fused_adam|clip_grad"),
    ("loss", r"log_softmax|LogSoftmax|nll_loss|NllLoss|cross_entropy|CrossEntropy|Loss"),
    ("attention", r"bmm|baddbmm|softmax|Softmax|attention|Attention|flash|fmha"),
    ("matrix products", r"(^|::|_)(addmm|mm|linear|matmul|_mkldnn)|gemm|Gemm|nvjet|cutlass"),
    ("norms", r"layer_norm|LayerNorm|rms_norm|RMSNorm|ResidualNorm"),
    ("biases and ReLU", r"_LinearFunction|_FeedForwardFunction"),
    ("dropout and random numbers", r"dropout|Dropout|random_|bernoulli|uniform_"),
    ("embeddings", r"embedding|Embedding|index_select|IndexSelect|gather|index_add"),
    ("copies and fills", r"copy_|_to_copy|clone|cat$|fill_|zero_|Memcpy|Memset|contiguous"),
)
"""Categories by the name of an operator or else of its caller."""
_PATTERNS = [(name, re.compile(pattern)) for name, pattern in _CATEGORIES]
OTHER, OUTSIDE = "other operators", "outside operators (Python, waiting)"
Item = TypeVar("Item")


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """Time of some steps by kind of work, in seconds of all of them."""

    n_steps: int
    seconds: float
    """From the first to the last."""
    target_tokens: int
    flops: float
    """Operations of the model's products, by the formula of `training.speed`."""
    product_rate: float
    """Operations a second that the hardware was seen to reach in such products; 0: not known."""
    categories: dict[str, float]
    """Seconds of each category, the largest first."""
    operators: dict[str, tuple[float, int]]
    """Seconds and calls of the operators that took most."""

    @property
    def rate(self) -> float:
        return self.flops / self.seconds

    @property
    def rate_of_products(self) -> float:
        """Operations a second while products and attention are computed; 0: none was seen."""
        seconds = sum(self.categories.get(name, 0.0) for name in ("matrix products", "attention"))
        return self.flops / seconds if seconds else 0.0

    def lines(self) -> Iterator[str]:
        milliseconds = 1e3 / self.n_steps
        yield f"{'where the time goes':<38}{'ms/step':>10}{'share':>8}"
        for name, seconds in self.categories.items():
            yield f"{name:<38}{seconds * milliseconds:>10.2f}{seconds / self.seconds:>8.1%}"
        yield f"{'whole step':<38}{self.seconds * milliseconds:>10.2f}{1:>8.1%}"
        yield ""
        yield f"{'operator':<38}{'ms/step':>10}{'share':>8}{'calls/step':>14}"
        for name, (seconds, calls) in self.operators.items():
            yield (
                f"{name[:37]:<38}{seconds * milliseconds:>10.2f}{seconds / self.seconds:>8.1%}"
                f"{calls / self.n_steps:>14,.1f}"
            )
        yield ""
        yield f"target tokens/s: {self.target_tokens / self.seconds:,.0f}"
        limit = self.product_rate
        if not limit:
            return
        yield f"measured hardware limit: {limit / 1e9:,.0f} GFLOP/s in the model's matrix products"
        for what, rate in (
            ("the whole step", self.rate),
            ("only matrix products and attention", self.rate_of_products),
        ):
            if rate:
                yield f"{what}: {rate / 1e9:,.0f} GFLOP/s, {rate / limit:.0%} of the limit"


def profile_steps(trainer: Trainer, n_steps: int, *, vocab_size: int) -> StepProfile:
    device = next(trainer.model.parameters()).device
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if on_gpu else [])
    trainer.model.train()
    batches = _record_waits(trainer.open_batches())
    try:
        for _ in range(WARM_UP):
            trainer.update(batches, ReportInterval(0.0))
        window = ReportInterval(0.0)
        _wait(device)
        with profile(activities=activities) as profiler:
            start = time.perf_counter()
            for _ in range(n_steps):
                trainer.update(batches, window)
            _wait(device)
            seconds = time.perf_counter() - start
    finally:
        trainer.close_batches()
    flops_per_token = training_flops_per_token(
        trainer.model.config, vocab_size, *window.mean_lengths
    )
    flops = trainer.config.n_passes * flops_per_token * window.n_target_tokens
    categories, operators = _sum_times(profiler.events() or [], on_gpu=on_gpu)
    categories[OUTSIDE] = max(0.0, seconds - sum(categories.values()))
    measured = StepProfile(
        n_steps=n_steps,
        seconds=seconds,
        target_tokens=window.n_target_tokens,
        flops=flops,
        product_rate=0.0,
        categories=_largest_first(categories),
        operators=operators,
    )
    for rate in (measured.rate, measured.rate_of_products):
        trainer.limit.share_of(rate)  # no limit is below what was reached
    return replace(measured, product_rate=trainer.limit.rate)


def _record_waits(items: Iterator[Item]) -> Iterator[Item]:
    """Passes items on; the profiler sees how long each was waited for."""
    while True:
        with record_function(_WAITING):
            item = next(items)
        yield item


def _sum_times(
    events: Any,  # noqa: ANN401 - torch's event list has no public type
    *,
    on_gpu: bool,
) -> tuple[dict[str, float], dict[str, tuple[float, int]]]:
    """Sums the own time of events by category and by operator, in seconds."""
    # On a GPU it is the time of the kernels that an event started, and of waiting for data.
    categories: defaultdict[str, float] = defaultdict(float)
    seconds: defaultdict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    for event in events:
        if event.device_type.name != "CPU":
            continue  # a kernel's time is also that of the operator that started it
        own = event.self_cpu_time_total
        if on_gpu and event.name != _WAITING:
            own = event.self_device_time_total
        category = category_of(event)
        categories[category] += own / 1e6
        seconds[event.name] += own / 1e6
        calls[event.name] += 1
    top = dict(islice(_largest_first(seconds).items(), TOP_OPERATORS))
    return categories, {name: (own, calls[name]) for name, own in top.items() if own}


def _largest_first(numbers: dict[str, float]) -> dict[str, float]:
    return dict(sorted(numbers.items(), key=lambda item: -item[1]))


def category_of(event: Any) -> str:  # noqa: ANN401 - anything with a name and a cpu_parent
    """Describes the purpose of an operator, by its name or that of the nearest known caller."""
    # All that the optimizer calls is the optimizer's, also Muon's products.
    caller = event
    while caller is not None:
        if caller.name.startswith(_OPTIMIZER):
            return _OPTIMIZING
        caller = caller.cpu_parent
    while event is not None:
        for name, pattern in _PATTERNS:
            if pattern.search(event.name):
                return name
        event = event.cpu_parent
    return OTHER


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
