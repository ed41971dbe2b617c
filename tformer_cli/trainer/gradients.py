"""The gradient of a step: one batch's, or the sum over several."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from tformer_cli.model.base import Model
from tformer_cli.model.config import Precision
from tformer_cli.model.transfer import copy_to_device
from tformer_cli.model.transformer import Transformer
from tformer_cli.runtime import autocast
from tformer_cli.text.batching import Batch
from tformer_cli.text.tokenizer import PAD_ID
from tformer_cli.trainer.hardware import compiling_for, is_compiled
from tformer_cli.trainer.loss import Loss, compiled_loss, projected_loss
from tformer_cli.trainer.report_interval import ReportInterval
from tformer_cli.trainer.segment_memory import SegmentMemory, begins_text

_ROOM = 1e-6
"""Constant that torch adds to a norm before dividing by it."""


class BackwardPasses:
    """The backward passes of a single process; see `data_parallel` for several."""

    def add(self, compute: Callable[[], Loss], n_target_tokens: int, *, is_last: bool) -> Loss:  # noqa: ARG002 - all are alike
        loss = compute()
        (loss.smoothed / n_target_tokens).backward()  # type: ignore[no-untyped-call]
        return loss

    def add_nothing(self) -> None:
        """Takes part in a step without batches for this process."""

    def start_again(self) -> None:
        """Prepares to recompute a step whose passes did not fit in memory."""


ALONE = BackwardPasses()


def add_gradients(
    model: Model,
    batches: Sequence[Batch],
    window: ReportInterval,
    *,
    label_smoothing: float,
    precision: Precision,
    n_target_tokens: int | None = None,
    r_drop: float = 0.0,
    passes: BackwardPasses = ALONE,
    memory: SegmentMemory | None = None,
) -> None:
    """Adds the gradient of the mean loss per target token of a step over all of its batches."""
    if n_target_tokens is None:
        # Other processes have batches of the step only if the caller says so
        n_target_tokens = sum(batch.n_target_tokens for batch in batches)
    for number, batch in enumerate(batches, start=1):
        compute = partial(
            batch_loss,
            model,
            batch,
            label_smoothing=label_smoothing,
            precision=precision,
            r_drop=r_drop,
            memory=memory,
        )
        with compiling_for(model, batch):
            loss = passes.add(compute, n_target_tokens, is_last=number == len(batches))
        window.add_batch(batch, loss)
    if not batches:
        passes.add_nothing()  # the other processes wait for every sum


def batch_loss(
    model: Model,
    batch: Batch,
    *,
    label_smoothing: float,
    precision: Precision,
    r_drop: float = 0.0,
    memory: SegmentMemory | None = None,
) -> Loss:
    """Computes the loss of a batch, summed over its target tokens."""
    # For R-Drop the model reads the batch twice, as one with twice as many sentences. With a
    # memory, rows continue those of the previous batch, without R-Drop.
    is_target = batch.target_output != PAD_ID
    targets = batch.target_output[is_target] - model.first_target
    sides = [batch.source, batch.source_mask, batch.target_input, is_target]
    if r_drop:
        sides = [side.repeat(2, 1) for side in sides]
    with autocast(next(model.parameters()).device, precision):
        hidden, targets = _target_hidden(model, sides, targets, memory)
        if r_drop:
            # (2N, D), the passes one after the other -> the passes of each token
            passes = hidden[: 2 * len(targets)].view(2, len(targets), -1)
            hidden = passes.transpose(0, 1).flatten(0, 1)
        else:
            # Kernels may fill rows up to a multiple; target -1 keeps those out of the loss
            targets = functional.pad(targets, (0, len(hidden) - len(targets)), value=-1)
        return projected_loss(
            hidden,
            model.output_matrix,
            targets,
            label_smoothing,
            r_drop,
            model.operations,
            model.output_bias,
            compiled_loss if torch.is_grad_enabled() and is_compiled(model) else None,
        )


def _target_hidden(
    model: Model,
    sides: Sequence[Tensor],
    targets: Tensor,
    memory: SegmentMemory | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes the hidden states that targets are predicted from; both on the model's device."""
    source, source_mask, target_input, is_target = sides
    if model.operations is not None and memory is None:
        hidden = model.operations.hidden_states(
            model, (source, source_mask), (target_input, is_target)
        )
        if hidden is not None:
            return hidden, targets
    # Real tokens are found before the batch goes to the device: nothing waits for it there.
    positions = is_target.flatten().nonzero().squeeze(1)
    n_columns = is_target.shape[1]
    begins = memory is not None and begins_text(target_input)
    source, source_mask, target_input, positions, targets = copy_to_device(
        (source, source_mask, target_input, positions, targets), next(model.parameters()).device
    )
    if memory is not None and isinstance(model, Transformer):
        hidden = memory.read(model, target_input, begins=begins)
    else:
        hidden = model.target_hidden(source, source_mask.bool(), target_input)
    # (B, T, D) -> (N, D): the vocabulary is compared only with tokens, not with padding. Where
    # targets label source tokens, states continue after the last target.
    return hidden[:, :n_columns].flatten(0, 1).index_select(0, positions), targets


def clip_gradients(model: Model, largest_norm: float) -> Tensor:
    """Scales the gradient down to a norm (0: never); returns the norm that it had."""
    parameters = [p for p in model.parameters() if p.grad is not None]
    norm = get_total_norm([p.grad for p in parameters if p.grad is not None], foreach=True)
    if hasattr(norm, "full_tensor"):  # of gradients that are divided among processes
        norm = norm.full_tensor()
    # On a CPU it costs nothing to look first, and a pass over all gradients to multiply by 1.
    if largest_norm and (norm.device.type != "cpu" or not norm + _ROOM <= largest_norm):
        clip_grads_with_norm_(parameters, largest_norm, norm, foreach=True)
    return norm
