"""What a training step asks of a GPU, counted under fake tensors of a device that is not there.

python tests/benchmarks/gpu_training_counts.py --json FILE --compiled

The device is the simulated one, so the step takes the paths of a GPU. Each call of an operator
counts as a kernel that reads its inputs and writes its results; attention is the memory-efficient
or the flash kernel. Times are a roofline by the constants below, of an H100; nothing is measured.

With --compiled, kernels and bytes of layers, embeddings and loss are those of the schedule that
torch's Inductor makes on the CPU, whose kernels are not built; products and attention stay.
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
GRAPH = 6e-5
"""Seconds of the host for each call of a compiled graph, besides its kernels; a guess."""
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
KINDS = ("products", "attention", "casts", "rest", "loss", "fused", "update")
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


def make_model(preset, vocab_size, n_layers):
    from tformer_cli.model.config import PRESETS, ModelConfig
    from tformer_cli.model.transformer import Transformer

    layers = {"n_encoder_layers": n_layers, "n_decoder_layers": n_layers} if n_layers else {}
    return Transformer(ModelConfig(**{**PRESETS[preset], **layers}), vocab_size).train()


@gpu_attention()
def count_step(preset, vocab_size, n_tokens, casts, n_layers=0):
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
        with simulated.DEVICE:
            model = make_model(preset, vocab_size, n_layers)
        optimizer = make_optimizer(model, TrainingConfig(max_steps=10), "bfloat16")
        for weight in model.parameters():  # of any step but the first
            optimizer.state[weight] = optimizer.initial_state(weight)
    forward = phase("forward")

    def copy_fakes(tensors, device):  # what is found out on the host is behind it
        forward.__enter__()
        return [torch.empty(x.shape, dtype=torch.int64, device=device) for x in tensors]

    gradients.copy_to_device = copy_fakes
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


@contextmanager
def schedules():
    """Lists the kernels of each graph that Inductor compiles; they compute nothing."""
    from torch._inductor import async_compile, config, graph, scheduler

    config.force_disable_caches = True  # what is cached is not scheduled again
    codegen, listed = graph.GraphLowering.codegen, []
    no_kernel = (scheduler.NopKernelSchedulerNode,)

    def noting(lowering):
        done = codegen(lowering)
        kernels = []
        for node in lowering.scheduler.nodes:
            is_extern = isinstance(node, scheduler.ExternKernelSchedulerNode)
            if isinstance(node, no_kernel) or type(node.node).__name__ == "MultiOutput":
                continue
            name = str(getattr(node.node, "python_kernel_name", "")) if is_extern else ""
            kind = "attention" if "attention" in name else "products" if "mm" in name else "fused"
            kernels.append((kind, node.get_read_write_buffers_sizes()))
        listed.append(("backward" if lowering.is_backward else "forward", kernels))
        return done

    graph.GraphLowering.codegen = noting
    compile_cpp = async_compile.AsyncCompile.cpp_pybinding
    async_compile.AsyncCompile.cpp_pybinding = lambda *_: lambda *_: None
    try:
        yield listed
    finally:
        graph.GraphLowering.codegen = codegen
        async_compile.AsyncCompile.cpp_pybinding = compile_cpp


def compiled_parts(preset, vocab_size, n_tokens):
    """Lists the kernels of a compiled embedding, of a layer of each stack, and of the loss."""
    from tformer_cli.model import attention, operations
    from tformer_cli.model.attention import causal_mask, key_mask
    from tformer_cli.trainer import loss
    from tformer_cli.trainer.hardware import compile_layers

    attention.FUSED_FROM_KEYS = attention.FUSED_FROM_QUERIES = 0
    operations.dropout = torch.nn.functional.dropout
    torch._dynamo.reset()
    model, parts = make_model(preset, vocab_size, 1), {}
    compile_layers(model)
    n_pairs = n_tokens // LENGTH
    is_token = key_mask(torch.ones(n_pairs, LENGTH, dtype=torch.bool))
    hidden = torch.randn(n_pairs, LENGTH, model.config.d_model, requires_grad=True)
    memory = torch.randn(hidden.shape, dtype=torch.bfloat16, requires_grad=True)
    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    ids = torch.zeros(n_pairs, LENGTH, dtype=torch.int64)
    calls = {
        "embedding": lambda: model.encoder_input(ids, model.source_embedding.weight),
        "encoder": lambda: encoder(hidden, is_token),
        "decoder": lambda: decoder(hidden, causal_mask(LENGTH), memory, is_token),
    }
    for name, call in calls.items():
        with schedules() as listed:
            with torch.autocast("cpu", torch.bfloat16):
                output = call()
            output.sum().backward()
        parts[name] = listed
    rows = min(n_tokens, 4 * loss.CHUNK_CELLS["cuda"] // vocab_size)
    with schedules() as listed, torch.no_grad():
        # A hundredth of a chunk: its bytes go with its rows
        few = torch.empty(max(2, rows // 100), vocab_size, dtype=torch.bfloat16)
        targets = torch.zeros(len(few), dtype=torch.int64)
        loss.compiled_loss(few, targets, 0.9, writes_gradient=True)
    share = n_pairs * LENGTH / len(few)
    parts["loss"] = [("forward", [("fused", n * share) for _, n in listed[0][1]])]
    return parts


def count_embedding(preset, vocab_size, n_tokens):
    """Counts the kernels of an embedding, forward and backward."""
    with FakeTensorMode(), simulated.DEVICE:
        model = make_model(preset, vocab_size, 1)
        ids = torch.zeros(n_tokens // LENGTH, LENGTH, dtype=torch.int64)
        with Counting(vocab_size) as forward:
            embedded = model.encoder_input(ids, model.source_embedding.weight)
        gradient = torch.empty_like(embedded)
        with Counting(vocab_size) as backward:
            embedded.backward(gradient)
    return {"forward": Counter(forward.kernels), "backward": Counter(backward.kernels)}


def compile_step(preset, vocab_size, n_tokens, casts):
    """Counts as `count_step` does, with the kernels of compiled layers and of a compiled loss."""
    from tformer_cli.trainer import gradients, loss

    compiled, is_compiled = loss._compile_loss, gradients.is_compiled
    loss._compile_loss, gradients.is_compiled = lambda: loss._fusable_loss, lambda _: True
    try:
        whole, single, double = (
            count_step(preset, vocab_size, n_tokens, casts, n_layers) for n_layers in (0, 1, 2)
        )
    finally:
        loss._compile_loss, gradients.is_compiled = compiled, is_compiled
    n_layers, phases = whole[0].config.n_encoder_layers, {}
    parts = compiled_parts(preset, vocab_size, n_tokens)
    embedding = count_embedding(preset, vocab_size, n_tokens)
    times = {"loss": 1, "embedding": 2}
    for phase, kernels in whole[2].items():
        # What a layer adds to a model of one layer, but for products and attention
        left = Counter(kernel for kernel in kernels if kernel[0] != "loss")
        for kernel, n in (Counter(double[2][phase]) - Counter(single[2][phase])).items():
            left[kernel] -= n_layers * n * (kernel[0] in ("casts", "rest"))
        left.subtract({kernel: 2 * n for kernel, n in embedding.get(phase, {}).items()})
        phases[phase] = list(left.elements())
        for name, listed in parts.items():
            fused = [
                ("fused", 0, n_bytes, torch.float32)
                for direction, kernels in listed
                for kind, n_bytes in kernels
                if (direction, kind) == (phase, "fused")
            ]
            phases[phase] += fused * times.get(name, n_layers)
    return *whole[:2], phases, 4 * n_layers + 5


def seconds(flops, n_bytes, dtype):
    return max(flops / FLOPS.get(dtype, FLOPS[torch.float32]), n_bytes / BYTES, KERNEL)


def figures_of(model, n_tokens, phases, n_graphs=0):
    from tformer_cli.trainer.speed import training_flops_per_token

    kernels = [kernel for listed in phases.values() for kernel in listed]
    gigabytes, milliseconds = defaultdict(float), Counter()
    for name, listed in phases.items():
        for kind, flops, n_bytes, dtype in listed:
            kind = "update" if name == "update" else kind
            gigabytes[kind] += n_bytes / 1e9
            milliseconds[kind] += 1e3 * seconds(flops, n_bytes, dtype)
    host = 1e3 * n_graphs * GRAPH
    for name, listed in phases.items():
        host += 1e3 * sum(HOST["backward" if kind == "fused" else name] for kind, *_ in listed)
    rate = n_tokens / (max(host, milliseconds.total()) / 1e3)
    flops = training_flops_per_token(model.config, model.vocab_size, LENGTH, LENGTH)
    return {
        "launches f/b/u": "/".join(str(len(listed)) for listed in phases.values()),
        "TFLOP": round(sum(kernel[1] for kernel in kernels) / 1e12, 2),
        "GB": round(sum(kernel[2] for kernel in kernels) / 1e9, 2),
        **{f"GB {kind}": round(gigabytes[kind], 2) for kind in KINDS},
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
    parser.add_argument("--compiled", action="store_true", help="count compiled layers, too")
    options = parser.parse_args()
    simulated.prepare()
    _libraries, casts = register_autocast()
    figures = {"waits of a step": count_waits()}
    for preset, vocab_size, n_tokens in CASES:
        name, case = f"{preset} {n_tokens}", (preset, vocab_size, n_tokens, casts)
        figures[name] = figures_of(*count_step(*case))
        if options.compiled:
            figures[f"{name} compiled"] = figures_of(*compile_step(*case))
    rows = [[name, *row.values()] for name, row in figures.items() if isinstance(row, dict)]
    columns = ["step", *figures[f"{CASES[0][0]} {CASES[0][2]}"]]
    title = f"a training step, counted without a GPU; host waits: {figures['waits of a step']}"
    print_table(title, columns, rows, width=200)
    write_json(options.json, figures)


if __name__ == "__main__":
    main()
