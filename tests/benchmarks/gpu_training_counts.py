"""What a training step asks of a GPU, counted under fake tensors of a device that is not there.

python tests/benchmarks/gpu_training_counts.py --json FILE

The device is the simulated one, so the step takes the paths of a GPU. Each call of an operator
counts as a kernel that reads its inputs and writes its results; attention is the memory-efficient
or the flash kernel. Times are a roofline by the constants below, of an H100; nothing is measured.
"""

import argparse
import math
import sys
from collections import Counter, defaultdict
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import torch
from gpu_counts import VIEWS
from harness import print_table, write_json
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

sys.path.insert(0, str(Path(__file__).parents[1]))
import simulated_device as simulated

FLOPS, BYTES = {torch.bfloat16: 700e12, torch.float32: 50e12}, 2.9e12
"""Operations a second that products reach, by type; bytes a second."""
DATASHEET = 989e12
"""Operations a second that a share of the hardware (MFU) refers to."""
KERNEL, HOST = 2e-6, {"forward": 9e-6, "backward": 6e-6, "update": 9e-6}
"""Seconds of the smallest kernel, and of the host for each call."""
LENGTH = 29
CASES = (
    ("tiny", 10_000, 4_096),
    ("tiny", 10_000, 25_000),
    ("base", 37_000, 3_125),
    ("base", 37_000, 25_000),
    ("big", 37_000, 3_125),
    ("big", 37_000, 25_000),
)
"""Preset, V, and tokens of a side of a batch: those of a recipe and those of a GPU."""
LOW = ["linear", "matmul", "mm", "addmm", "bmm", "baddbmm"]
"""Operators whose inputs autocast rounds."""
GATHERS = {"gather", "embedding", "index_select", "scatter_", "scatter_add_", "index_add_"}
"""Operators that touch as much as their smaller side."""
FILLS = {"new_full", "new_zeros", "ones_like", "zeros_like"}
"""Operators that take only the shape of their input."""


def register_autocast():
    """Makes autocast of the simulated device cast as that of CUDA does."""
    key = "AutocastPrivateUse1"
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
    casts = {}

    def cast(value, dtype):
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.dtype == dtype:
            return value
        if not (value.is_leaf and value.requires_grad and dtype == torch.bfloat16):
            return value.to(dtype)
        if value not in casts:  # weights, once in each context
            casts[value] = value.to(dtype)
        return casts[value]

    def rule(name, dtype):
        operator = getattr(torch.ops.aten, name).default

        def compute(*arguments, **options):
            with torch._C._ExcludeDispatchKeyGuard(below):
                low = [cast(value, dtype) for value in arguments]
                return operator(*low, **{k: cast(v, dtype) for k, v in options.items()})

        libraries[1].impl(name, compute, key)

    libraries = (torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL"))
    libraries[0].fallback(torch.library.fallthrough_kernel, key)
    for name in LOW:
        rule(name, torch.bfloat16)
    rule("layer_norm", torch.float32)
    return libraries, casts


def attend(query, key, value, attn_mask=None, dropout_p=0.0, *, is_causal=False, scale=None):
    """Is `scaled_dot_product_attention` of a GPU: flash without a mask."""
    query, key, value = (part.to(torch.bfloat16) for part in (query, key, value))
    if attn_mask is None:
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        return flash(query, key, value, dropout_p, is_causal, scale=scale)[0]
    if attn_mask.dtype == torch.bool:
        numbers = torch.zeros(attn_mask.shape, device=query.device, dtype=query.dtype)
        attn_mask = numbers.masked_fill(attn_mask.logical_not(), -math.inf)
    if missing := -attn_mask.shape[-1] % 8:  # torch pads masks for its kernel
        attn_mask = torch.nn.functional.pad(attn_mask, (0, missing))[..., :-missing]
    mask = attn_mask.expand(*query.shape[:3], key.shape[2])
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    return efficient(query, key, value, mask, True, dropout_p, is_causal, scale=scale)[0]


class Counting(TorchDispatchMode):
    """Lists the kernels on the device: what they belong to, operations, bytes and type."""

    def __init__(self, vocab_size):
        super().__init__()
        self.vocab_size = vocab_size
        self.kernels = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        results = tensors_of(result)
        if name in FILLS:
            args = ()
        tensors = [*tensors_of((args, kwargs)), *results]
        is_there = any(x.device.type == simulated.DEVICE.type for x in tensors)
        if not is_there or name in VIEWS or func.namespace == "prim":
            return result
        packet = flop_registry.get(func._overloadpacket)
        flops = packet(*args, **kwargs, out_val=result) if packet else 0
        n_bytes = bytes_of(func._schema, args, kwargs, results)
        if name in GATHERS:
            sizes = [size(x) for x in tensors if x.dim() and x.is_floating_point()]
            n_bytes = (2 if results[0].dim() and name in ("gather", "embedding") else 3) * min(
                sizes
            )
        dtype = results[0].dtype if results else torch.float32
        self.kernels.append((self.kind(name, flops, tensors), flops, n_bytes, dtype))
        return result

    def kind(self, name, flops, tensors):
        if "attention" in name:
            return "attention"
        if flops:
            return "products"
        if any(x.dim() == 2 and x.shape[-1] == self.vocab_size for x in tensors):
            return "loss"
        return "casts" if name == "_to_copy" or "foreach_copy" in name else "rest"


def tensors_of(values):
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def size(tensor):
    """Bytes of a tensor that are there: what is expanded is read once."""
    cells = [n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
    return math.prod(cells) * tensor.element_size()


def bytes_of(schema, args, kwargs, results):
    """Bytes that an operator reads and writes; what it changes in place counts twice."""
    total = 0
    is_filling = schema.name.endswith(("::zero_", "::fill_", "::random_", "::copy_"))
    for argument, value in [*zip(schema.arguments, args, strict=False)] + [
        (next(a for a in schema.arguments if a.name == name), value)
        for name, value in kwargs.items()
    ]:
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        is_read = not (argument.is_out or (is_filling and is_written))
        total += (is_written + is_read) * sum(map(size, tensors_of(value)))
    is_new = not any(r.alias_info for r in schema.returns)
    return total + (sum(map(size, results)) if is_new else 0)


@contextmanager
def gpu_attention():
    from torch.nn import functional

    from tformer_cli.model import attention

    queries, functional_ = attention.FUSED_FROM_QUERIES, attention.functional
    attention.FUSED_FROM_KEYS = attention.FUSED_FROM_QUERIES = 0
    attention.functional = SimpleNamespace(
        **{**vars(functional), "scaled_dot_product_attention": attend}
    )
    try:
        yield
    finally:
        attention.functional, attention.FUSED_FROM_QUERIES = functional_, queries


def fake_model(preset, vocab_size):
    from tformer_cli.model.config import PRESETS, ModelConfig
    from tformer_cli.model.transformer import Transformer

    with simulated.DEVICE:
        return Transformer(ModelConfig(**PRESETS[preset]), vocab_size).train()


def count_step(preset, vocab_size, n_tokens, casts):
    """Counts the kernels of the forward pass, the backward pass and the update."""
    from tformer_cli.text.batching import collate
    from tformer_cli.trainer import gradients
    from tformer_cli.trainer.config import TrainingConfig
    from tformer_cli.trainer.optimizers.optimizer import make_optimizer

    phases = {}
    n_pairs = n_tokens // LENGTH
    n_tokens = n_pairs * LENGTH
    batch = collate([[5] * (LENGTH - 1)] * n_pairs, [[5] * (LENGTH - 1)] * n_pairs)
    mode, copy = FakeTensorMode(allow_non_fake_inputs=True), gradients.copy_to_device
    casts.clear()

    @contextmanager
    def phase(name):
        with mode, Counting(vocab_size) as counting:
            yield
        phases[name] = counting.kernels

    with mode:
        model = fake_model(preset, vocab_size)
        optimizer = make_optimizer(model, TrainingConfig(max_steps=10), "bfloat16")
        for weight in model.parameters():  # of any step but the first
            optimizer.state[weight] = optimizer.initial_state(weight)
    forward = phase("forward")

    def copied(tensors, device):  # what is found out on the host is behind it
        forward.__enter__()
        return [torch.empty(x.shape, dtype=torch.int64, device=device) for x in tensors]

    gradients.copy_to_device = copied
    try:
        loss = gradients.batch_loss(model, batch, label_smoothing=0.1, precision="bfloat16")
        forward.__exit__(None, None, None)
    finally:
        gradients.copy_to_device = copy
    with phase("backward"):
        (loss.smoothed / n_tokens).backward()
    with phase("update"):
        gradients.clip_gradients(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model, n_tokens, phases


def seconds(flops, n_bytes, dtype):
    return max(flops / FLOPS.get(dtype, FLOPS[torch.float32]), n_bytes / BYTES, KERNEL)


def figures_of(model, n_tokens, phases):
    from tformer_cli.trainer.speed import training_flops_per_token

    kernels = [kernel for listed in phases.values() for kernel in listed]
    gigabytes, milliseconds = defaultdict(float), Counter()
    for name, listed in phases.items():
        for kind, flops, n_bytes, dtype in listed:
            kind = "update" if name == "update" else kind
            gigabytes[kind] += n_bytes / 1e9
            milliseconds[kind] += 1e3 * seconds(flops, n_bytes, dtype)
    host = 1e3 * sum(HOST[name] * len(listed) for name, listed in phases.items())
    rate = n_tokens / (max(host, milliseconds.total()) / 1e3)
    flops = training_flops_per_token(model.config, model.vocab_size, LENGTH, LENGTH)
    return {
        "launches f/b/u": "/".join(str(len(listed)) for listed in phases.values()),
        "TFLOP": round(sum(kernel[1] for kernel in kernels) / 1e12, 2),
        "GB": round(sum(kernel[2] for kernel in kernels) / 1e9, 2),
        **{f"GB {kind}": round(n, 2) for kind, n in sorted(gigabytes.items())},
        "GPU ms": round(milliseconds.total(), 2),
        "host ms": round(host, 2),
        "k tokens/s": round(rate / 1e3),
        "MFU %": round(100 * rate * flops / DATASHEET, 1),
    }


def count_waits(n_steps=4):
    """Counts where the host waits in steps of a small model, which are really computed."""
    from tformer_cli.model.config import ModelConfig
    from tformer_cli.model.transformer import Transformer
    from tformer_cli.text.batching import collate
    from tformer_cli.trainer import gradients
    from tformer_cli.trainer.config import TrainingConfig
    from tformer_cli.trainer.optimizers.optimizer import make_optimizer
    from tformer_cli.trainer.report_interval import ReportInterval

    config = ModelConfig(d_model=16, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=1)
    with simulated.Simulation():
        model = Transformer(config, 30).train().to(simulated.DEVICE)
        optimizer = make_optimizer(model, TrainingConfig(max_steps=10), "float32")
        for step in range(-1, n_steps):
            if step == 0:  # the table of positions is made and copied by then
                simulated.WAITS.clear()
            batch = collate([[5] * (9 - step), [6]], [[5] * (7 + step), [6]])
            gradients.add_gradients(
                model, [batch], ReportInterval(0.0), label_smoothing=0.1, precision="float32"
            )
            gradients.clip_gradients(model, 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return simulated.WAITS.total() / n_steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="gets the figures")
    options = parser.parse_args()
    simulated.prepare()
    _libraries, casts = register_autocast()
    figures = {"waits of a step": count_waits()}
    with gpu_attention():
        for preset, vocab_size, n_tokens in CASES:
            counted = count_step(preset, vocab_size, n_tokens, casts)
            figures[f"{preset} {n_tokens}"] = figures_of(*counted)
    rows = [[name, *row.values()] for name, row in figures.items() if isinstance(row, dict)]
    columns = ["step", *figures[f"{CASES[0][0]} {CASES[0][2]}"]]
    title = f"a training step, counted without a GPU; host waits: {figures['waits of a step']}"
    print_table(title, columns, rows, width=200)
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
