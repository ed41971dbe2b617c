"""Token budget of a batch, measured or tried before the first step.

A GPU raises an error if a batch does not fit, so the largest possible batches are tried on it. A
CPU's system would kill the process instead, so there the bytes that a small batch keeps for its
backward pass, which grow with the tokens, are compared with the free memory.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from tformer_cli.errors import RecipeError
from tformer_cli.model.base import Model
from tformer_cli.model.config import ModelConfig, Precision
from tformer_cli.model.encoder_only import PositionPredictor
from tformer_cli.model.operations import ROW_MULTIPLE
from tformer_cli.model.weight_shapes import parameter_count
from tformer_cli.runtime import is_out_of_memory
from tformer_cli.text.batching import Batch, collate
from tformer_cli.text.loading.encoded import EncodedCorpus
from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.trainer.gradients import add_gradients
from tformer_cli.trainer.hardware import recompute_layers
from tformer_cli.trainer.loss import CHUNK_CELLS
from tformer_cli.trainer.memory import free_memory
from tformer_cli.trainer.optimizers.adam import Adam
from tformer_cli.trainer.report_interval import ReportInterval
from tformer_cli.trainer.resuming.state import generator_tensors, restore_generators

GPU_SHARE = 0.9
"""Share of the largest budget that fits; batches of changing shapes fragment memory."""
CPU_SHARE = 0.4
"""Share of free memory: kept freed pages have been seen to more than double the memory in use."""
FULL_GPU = 25_000
"""Tokens of a batch that keep a GPU busy: for the base model, the roofline of an H100 allows 0.63
million target tokens a second with them, 0.49 with 4,096 and 0.65 with 100,000."""
KEPT_BYTES: Mapping[Precision, int] = MappingProxyType({"bfloat16": 48, "float32": 80})
"""Bytes that a token's forward pass leaves for its backward pass in each layer, per unit of
`d_model`: 43 to 47 and 74 to 80 were measured. Norms, attention and the layers of `d_ff` = 4
`d_model` are in it, the loss is not."""
_WEIGHT_BYTES = 18
"""Bytes of a weight: itself, gradient and two moments in float32, and a copy in bfloat16."""
_LOGIT_BYTES = 12
"""Bytes of a logit while its loss is computed: in bfloat16 and twice in float32, rounded up."""
TOKEN = 4
_BLOCK = 1 << 18


@dataclass(frozen=True, kw_only=True)
class PairLengths:
    """Lengths in the corpora, in tokens with the end of the sentence."""

    source: int
    target: int
    least: tuple[int, int]
    """Shortest source and target: images have one length, whatever they are paired with."""
    shortest: int
    """Longer side of the shortest pair."""
    total: int
    """All tokens of the larger side."""

    @classmethod
    def of(cls, corpora: Sequence[EncodedCorpus]) -> "PairLengths":
        """Measures corpora block by block; at least one must hold pairs."""
        longest, total = np.zeros(2, np.int64), np.zeros(2, np.int64)
        shortest, least = [], np.full(2, np.iinfo(np.int64).max)
        for corpus in corpora:
            for start in range(0, len(corpus), _BLOCK):
                rows = np.arange(start, min(start + _BLOCK, len(corpus)))
                lengths = corpus.lengths(rows).astype(np.int64) + 1
                longest = np.maximum(longest, lengths.max(axis=1))
                total += lengths.sum(axis=1)
                shortest.append(int(lengths.max(axis=0).min()))
                least = np.minimum(least, lengths.min(axis=1))
        return cls(
            source=int(longest[0]),
            target=int(longest[1]),
            least=(int(least[0]), int(least[1])),
            shortest=min(shortest),
            total=int(total.max()),
        )

    def extremes(self, budget: int) -> Iterator[tuple[int, int, int]]:
        """Yields (B, S, T) of batches that need the most memory within a budget."""
        # Batches of the longest pairs, batches full on both sides, and batches of the most pairs.
        both = min(self.source, self.target)
        for length in (None, both, self.shortest):
            # A label is one token, however long the texts of its batch are
            source = min(self.source, max(self.least[0], length or self.source))
            target = min(self.target, max(self.least[1], length or self.target))
            yield max(1, budget // max(source, target)), source, target


def settle_tokens_per_batch(
    model: Model,
    config: TrainingConfig,
    lengths: PairLengths,
    precision: Precision,
    optimizer: Adam,
    share: float = 1.0,
) -> int:
    """Finds the budget of a run, or makes sure on a GPU that the recipe's fits.

    Of the recipe's batches a process may compute only this share.
    """
    device = next(model.parameters()).device
    fixed_budget = config.tokens_per_batch
    if device.type == "cpu":
        return fixed_budget or _estimated_budget(model, config, lengths, precision)

    def fits(budget: int) -> bool:
        shapes = lengths.extremes(math.ceil(budget * share) if fixed_budget else budget)
        return all(_fits(model, config, shape, precision, optimizer) for shape in shapes)

    if fixed_budget and fits(fixed_budget):
        return fixed_budget
    largest = largest_budget(fits, max(lengths.source, lengths.target), lengths.total, GPU_SHARE)
    if fixed_budget and largest:
        raise RecipeError(
            f"training.tokens_per_batch: batches of {fixed_budget} do not fit in the GPU's memory; "
            f"{largest} do (0 finds the largest that fits)"
        )
    return largest or _too_long(lengths)


def expected_budget(
    config: ModelConfig, vocab_size: int, precision: Precision, free_memory: int
) -> int:
    """Estimates the largest budget for a GPU before there is a model to try it with."""
    room = GPU_SHARE * free_memory - _WEIGHT_BYTES * parameter_count(config, vocab_size)
    n_layers = config.n_encoder_layers + config.n_decoder_layers
    a_token = KEPT_BYTES[precision] * config.d_model * n_layers
    # Logits of all tokens, or of a chunk of them, whichever are fewer
    whole = room / (a_token + _LOGIT_BYTES * vocab_size)
    in_chunks = (room - _LOGIT_BYTES * CHUNK_CELLS["cuda"]) / a_token
    return max(0, int(max(whole, in_chunks)))


def largest_budget(fits: Callable[[int], bool], smallest: int, largest: int, share: float) -> int:
    """Searches the largest budget that fits, to 1/16; 0 if none does."""
    if not fits(smallest):
        return 0
    good, bad = smallest, 0
    while not bad and good < largest:
        trial = min(2 * good, largest)
        good, bad = (trial, 0) if fits(trial) else (good, trial)
    while bad and bad - good > max(1, good // 16):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return max(smallest, int(good * share)) if bad else good


def _fits(
    model: Model,
    config: TrainingConfig,
    shape: tuple[int, int, int],
    precision: Precision,
    optimizer: Adam,
) -> bool:
    """Tries a batch with the gradients and the optimizer's state."""
    generators = generator_tensors(next(model.parameters()).device)
    try:
        beside: list[dict[str, Tensor]] | None = [
            optimizer.initial_state(weight)
            for group in optimizer.param_groups
            for weight in group.params
        ]
        for _ in range(2):  # the second time onto gradients that are there, as accumulation does
            _add_gradients(model, config, shape, precision)
        torch.cuda.synchronize()
        is_fit = True
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        is_fit = False
    beside = None  # noqa: F841 - given back before the cache is emptied
    model.zero_grad(set_to_none=True)
    torch.cuda.empty_cache()
    restore_generators(generators, next(model.parameters()).device)
    return is_fit


def _estimated_budget(
    model: Model, config: TrainingConfig, lengths: PairLengths, precision: Precision
) -> int:
    """Computes the largest budget for a CPU from what a batch of the longest pairs keeps."""
    # There are some of them where they are short: what rows are filled up with is not part of it
    # then.
    n_weights = sum(weight.numel() for weight in model.parameters())
    free = free_memory() * CPU_SHARE - 3 * 4 * n_weights  # gradients and two moments, float32
    tokens = max(lengths.source, lengths.target)
    n_pairs = -(-4 * ROW_MULTIPLE // tokens)
    shape = (n_pairs, lengths.source, lengths.target)
    kept = _kept_bytes(model, config, shape, precision)
    if config.activation_checkpointing:  # and, while it is computed again, one layer's share of all
        recompute_layers(model, recomputes=False)
        n_layers = model.config.n_encoder_layers + model.config.n_decoder_layers
        kept += (_kept_bytes(model, config, shape, precision) - kept) // n_layers
        recompute_layers(model)
    a_token = kept / (n_pairs * tokens)
    budget = min(int(free / a_token), lengths.total)
    return budget if budget >= tokens else _too_long(lengths)


def _kept_bytes(
    model: Model, config: TrainingConfig, shape: tuple[int, int, int], precision: Precision
) -> int:
    """Counts the bytes that a batch keeps between its forward and its backward pass."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    device = next(model.parameters()).device
    generators = generator_tensors(device)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _add_gradients(model, config, shape, precision)
    model.zero_grad(set_to_none=True)
    restore_generators(generators, device)
    return sum(kept.values())


def _add_gradients(
    model: Model, config: TrainingConfig, shape: tuple[int, int, int], precision: Precision
) -> None:
    model.train()
    add_gradients(
        model,
        [_batch(*shape, model)],
        ReportInterval(0.0),
        label_smoothing=config.label_smoothing,
        r_drop=config.r_drop,
        precision=precision,
    )


def _batch(n_pairs: int, source: int, target: int, model: Model) -> Batch:
    """Creates a batch of shape (B, S, T) without padding."""
    token = min(TOKEN, model.vocab_size - 1)
    config = model.config
    per_token = config.ids_per_token
    if isinstance(model, PositionPredictor):  # a corpus of masked texts has them on one side only
        source = target = max(source, target)
    sides = [[token] * (source - 1) * per_token] * n_pairs, [[token] * (target - 1)] * n_pairs
    return collate(
        *sides,
        source_eos=config.ends_sources,
        target_eos=config.ends_targets,
        ids_per_token=per_token,
    )


def _too_long(lengths: PairLengths) -> int:
    longest = max(lengths.source, lengths.target)
    raise RecipeError(
        f"data.max_length: a batch of the longest pair, {longest} tokens, does not fit in memory; "
        "lower it or the size of the model"
    )
