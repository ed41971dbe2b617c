"""The hardware of a run: its device, the kernels, and layers that torch compiles for a GPU."""

import math
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from tformer_cli.errors import RecipeError, UsageError
from tformer_cli.model.base import Model
from tformer_cli.model.embedding import PositionedEmbedding
from tformer_cli.model.stacks import Layer, Stack
from tformer_cli.runtime import check_threads, has_fast, prepare_device, resolve_device
from tformer_cli.text.batching import Batch
from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.trainer.processes.launch import Launch
from tformer_cli.trainer.speed import training_flops_per_token

COMPILED_FROM = 10.0
"""Minutes of a run from which on it pays to compile."""
_RATE = 1e14
"""Operations a second of layers that are not compiled: a tenth of what an H100 can do at most."""
_LAYER_SECONDS = 7e-4
"""Time of the host to start a layer's forward and backward pass, by counted calls."""
_BUDGET = 25_000
"""Tokens of a batch where the budget is found by trying."""
_LENGTH = 30
"""Tokens of a sentence; a run's time hardly depends on it."""


def training_device(name: str, launch: Launch) -> torch.device:
    """Finds the device of this process; each process has its own GPU."""
    try:
        device = resolve_device(name)
        if launch.world_size > 1 and device.type == "cuda":
            device = _own_gpu(name, launch)
    except ValueError as error:
        raise UsageError.of("{device}: {}", error) from None
    try:
        check_threads()
    except ValueError as error:
        raise UsageError.of("{threads}: {}", error) from None
    return device


def use_kernels(model: Model, *, compiles: bool = False) -> list[str]:
    """Makes a model on the CPU train with the compiled kernels, if available."""
    if next(model.parameters()).device.type != "cpu":
        if compiles:
            compile_layers(model)
        return []
    notes = ["training.compile has no effect without a GPU"] if compiles else []
    reason = _refusal(model)
    if reason is None:
        return notes
    return [*notes, f"training without compiled kernels, which is slower: {reason}"]


def _refusal(model: Model) -> str | None:
    """Makes a model train with the kernels; returns the reason if it cannot."""
    if not has_fast():
        return "tformer_cli/fast is missing"
    from tformer_cli.fast.native.library import KernelsUnavailable, load_library
    from tformer_cli.fast.native.training import use_native_operations

    try:
        is_used = use_native_operations(model, load_library())
    except KernelsUnavailable as error:
        return str(error)
    return None if is_used else "they cannot use torch's threads"


def _own_gpu(name: str, launch: Launch) -> torch.device:
    if name not in ("auto", "cuda"):
        raise ValueError(f'"{name}" is a single GPU for {launch.world_size} processes; use cuda')
    n_gpus = torch.cuda.device_count()
    if launch.local_world_size > n_gpus:
        raise ValueError(
            f"{launch.local_world_size} processes are on a machine with {n_gpus} GPUs; start "
            "one per GPU, or use cpu"
        )
    return prepare_device(torch.device("cuda", launch.local_rank))


def recompute_layers(model: Model, *, recomputes: bool = True) -> None:
    """Makes a model keep only what enters its layers for the backward pass, or all as before."""
    for module in model.modules():
        if isinstance(module, Stack):
            module.recomputes = recomputes


def settle_compiling(
    model: Model, config: TrainingConfig, epoch_tokens: int, world_size: int = 1
) -> tuple[bool, str]:
    """Decides whether a run compiles its layers; with a note where "auto" does, or cannot.

    Args:
        model: on the device that it trains on.
        config: of the run.
        epoch_tokens: tokens of the corpora, of the larger side; 0 on a CPU.
        world_size: processes that share each step.

    Raises:
        RecipeError: if the recipe asks for what torch cannot do.
    """
    device = next(model.parameters()).device.type
    if not config.compile or device == "cpu":
        return config.compile is True, ""
    from torch.utils._triton import has_triton  # torch's own: only a GPU asks for it

    obstacle = model.config.compile_obstacle
    if not obstacle and device == "cuda" and not has_triton():
        obstacle = "a GPU for which Triton is missing"
    if config.compile is True and obstacle:
        raise RecipeError(f"training.compile: torch compiles no layers with {obstacle}; omit it")
    if config.compile is True:
        return True, ""
    if expected_minutes(model, config, epoch_tokens, world_size) <= COMPILED_FROM:
        return False, ""
    if obstacle:
        return False, f"layers are not compiled: torch cannot compile them with {obstacle}"
    return True, "layers are compiled by torch at the first batches, which takes a minute or two"


def expected_minutes(
    model: Model, config: TrainingConfig, epoch_tokens: int, world_size: int = 1
) -> float:
    """Estimates how long a run takes on a GPU without compiling, up to the first of its limits.

    Nothing is measured, so that all parts of a run get the same answer: a batch takes its
    operations at `_RATE`, or as long as the host needs to start the kernels of its layers.
    """
    budget = config.tokens_per_batch or _BUDGET
    n_batches = config.accumulate * config.mean_growth
    limits = (
        config.max_steps * n_batches * budget,
        config.max_tokens,
        config.max_epochs * epoch_tokens,
    )
    n_tokens = min((limit for limit in limits if limit), default=math.inf)
    flops = training_flops_per_token(model.config, model.vocab_size, _LENGTH, _LENGTH)
    n_layers = model.config.n_encoder_layers + model.config.n_decoder_layers
    # Fewer batches than processes are cut, and each part takes the host as long as a whole one
    part = budget * min(1.0, n_batches / world_size)
    seconds = n_tokens / world_size * max(flops / _RATE, n_layers * _LAYER_SECONDS / part)
    return min(config.n_passes * seconds / 60.0, config.max_minutes or math.inf)


def compile_layers(model: Model, backend: Any = "inductor") -> None:  # noqa: ANN401 - torch's
    """Lets torch compile layers and embeddings for training, for batches of all shapes."""
    from torch._dynamo import config
    from torch.fx.experimental import _config

    # Sizes that are equal in the first batch need not be so in the next; rates and scales stay
    _config.use_duck_shape, config.specialize_float = False, True
    # Graphs of layers need not be cut where buckets of several processes end
    config.optimize_ddp = False
    device = next(model.parameters()).device
    # Layer by layer: they are alike, so each kind is compiled once. Single decoder steps and taps
    # on a layer work as before.
    for part in _compiled_parts(model):
        if isinstance(part, PositionedEmbedding):
            part.positions.prepare(part.max_positions, device)
        part.compile(dynamic=True, backend=backend)
    # Products in float32 are exact here, so that runs can be compared; its advice is TF32
    warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\._inductor\.compile_fx")


def is_compiled(model: Model) -> bool:
    """Returns whether torch compiles the model's layers."""
    return any(part._compiled_call_impl is not None for part in _compiled_parts(model))


def disable_compiling(model: Model) -> AbstractContextManager[object]:
    """Returns the context in which compiled layers compute as others do."""
    # Without gradients they would be compiled once more, for a few passes.
    if not is_compiled(model):
        return nullcontext()  # and torch's compiler is not imported
    context: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return context


def compiling_for(model: Model, batch: Batch) -> AbstractContextManager[object]:
    """Returns the context in which a batch is trained on; compiled, unless a side has size 1."""
    # Size 1 is a graph of its own to the compiler, and would stall a run until it is there
    config = model.config
    sides = [batch.source] * (config.n_encoder_layers > 0)
    sides += [batch.target_input] * (config.n_decoder_layers > 0)
    is_odd = any(1 in side.shape for side in sides)
    return disable_compiling(model) if is_odd else nullcontext()


def _compiled_parts(model: Model) -> list[nn.Module]:
    return [
        module
        for module in model.modules()
        if isinstance(module, Layer) or type(module) is PositionedEmbedding
    ]
