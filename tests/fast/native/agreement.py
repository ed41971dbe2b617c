"""Comparison of a whole library with torch, to be run with each level.

Small models of every kind translate, and torch computes the same log-probabilities again in one
pass over each translation; their gradients are compared with torch's, too.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import random
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from tformer_cli.fast.native.torch_weights import native_model
from tformer_cli.fast.native.training import NativeOperations, use_native_operations
from tformer_cli.fast.native.weights import ACTIVATIONS, POSITIONS
from tformer_cli.fast.products import quantized_matrices, use_integers
from tformer_cli.fast.unpadded import hidden_unpadded, remove_padding
from tformer_cli.model.base import Model
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.operations import Dropout
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.scoring import attended_pairs
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Sequence

AnyModel = TypeVar("AnyModel", bound=Model)
TOLERANCE = 1e-4
"""Largest difference of a token's log-probability; rounding alone is about 1e-6."""
INTEGER_TOLERANCE = 0.2
"""The same of a model in integers, where rounding alone may send an activation to the next integer,
which is about 0.01."""
GRADIENT_TOLERANCE = 1e-3
"""Largest difference of a gradient, in its largest element; rounding is about 1e-6."""
NEWTON_SCHULZ = (15 / 8, -10 / 8, 3 / 8)
"""A polynomial that takes every singular value nearer to 1."""
MATRICES = ((50, 70), (3, 300), (70, 40))
ORTHOGONAL_TOLERANCE = 1e-3
"""Largest difference of an element; rounding is about 1e-5."""
VOCABULARY = 77
LIMIT = 12
BEAM_SIZE = 3
SOURCE_LENGTHS = (1, 2, 9, 17, 30)
CONFIGS = (
    ModelConfig(
        d_model=64, n_heads=4, d_ff=100, n_encoder_layers=2, n_decoder_layers=2, max_positions=48
    ),
    # widths that fill no vector, layers with fewer heads or none, and nothing shared
    ModelConfig(
        d_model=36, n_heads=3, d_ff=50, n_encoder_layers=3, n_decoder_layers=2, norm="pre",
        activation="gelu", positions="learned", tied_embeddings="none", bias=False,
        max_positions=40, encoder_heads=(3, 1, 0), decoder_heads=(2, 3), cross_heads=(3, 1),
    ),
    ModelConfig(
        d_model=128, n_heads=8, d_ff=272, n_encoder_layers=1, n_decoder_layers=3,
        tied_embeddings="decoder", max_positions=64,
    ),
    # a width that fills no vector, a recurrent decoder, and norms and biases that others lack
    ModelConfig(
        d_model=44, n_heads=2, d_ff=60, n_encoder_layers=1, n_decoder_layers=2,
        decoder_cell="ssru", output_bias=True, embedding_norm=True, final_norm="always",
        scale_embeddings=False, max_positions=40,
    ),
)  # fmt: skip


def configs() -> list[ModelConfig]:
    """Lists shapes in which every activation and every kind of positions occurs."""
    found = list(CONFIGS)
    for name, values in (("activation", ACTIVATIONS), ("positions", POSITIONS)):
        missing = set(values) - {getattr(config, name) for config in found}
        settings: list[dict[str, Any]] = [{name: value} for value in sorted(missing)]
        found += [dataclasses.replace(CONFIGS[1], **setting) for setting in settings]
    return found


class Mismatch(Exception):  # noqa: N818 - the finding of a test
    """The library and torch do not agree."""


def check_library(library: ctypes.CDLL) -> None:
    """Compares a library with torch."""
    for number, config in enumerate(configs()):
        model = random_model(config, seed=number)
        _check_model(library, model, number, TOLERANCE)
        _check_training(library, model, number)
        if number == 0:  # what the others add does not depend on numbers or threads
            _check_other_numbers_and_threads(library, model, number)
        use_integers(model, quantized_matrices(model.state_dict()))
        _check_model(library, model, number, INTEGER_TOLERANCE)
    operations = NativeOperations(library)
    _check_dropout(operations)
    _check_orthogonalize(operations)


def random_model(config: ModelConfig, seed: int) -> Transformer:
    """Creates a model with weights that are all in use, biases and norms included."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Transformer(config, VOCABULARY)
    return randomize(model, seed)


def randomize(model: AnyModel, seed: int) -> AnyModel:
    """Draws what a fresh model has as zeros and ones; its translations differ, too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                center = 1.0 if name.endswith("norm.weight") else 0.0
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(center + 0.2 * noise)
    return model.eval()


def random_sources(seed: int) -> list[list[int]]:
    """Draws a source for each of some lengths."""
    dice = random.Random(seed)
    return [[dice.randrange(EOS_ID + 1, VOCABULARY) for _ in range(n)] for n in SOURCE_LENGTHS]


def _check_model(library: ctypes.CDLL, model: Transformer, number: int, tolerance: float) -> None:
    native = native_model(library, model)
    sources = random_sources(number)
    heads = [(layer, n_heads - 1) for layer, n_heads in enumerate(model.config.layer_heads.cross)]
    for beam_size in (1, BEAM_SIZE):
        found = native.search(
            sources,
            [LIMIT] * len(sources),
            beam_size=beam_size,
            n_searched=beam_size,
            divisors=np.arange(LIMIT + 2, dtype=np.float64),
            heads=heads,
        )
        if [len(hypotheses) for hypotheses in found] != [beam_size] * len(sources):
            raise Mismatch(f"model {number}: hypotheses are missing")
        rows = [
            (source, hypothesis.token_ids, hypothesis.token_log_probabilities)
            for source, hypotheses in zip(sources, found, strict=True)
            for hypothesis in hypotheses
        ]
        _compare(model, number, tolerance, rows, is_greedy=beam_size == 1)
        heard = [hypothesis.attention for hypotheses in found for hypothesis in hypotheses]
        by_torch = attended_pairs(
            model,
            [source for source, _, _ in rows],
            [tokens for _, tokens, _ in rows],
            heads,
            batch_tokens=1000,
            device="cpu",
        )
        for own, expected in zip(heard, by_torch, strict=True):
            error = np.inf if own is None else float(np.abs(own.weights - expected).max())
            if not error <= tolerance:
                raise Mismatch(f"model {number}: the weight of a head is off by {error:.1e}")


@torch.inference_mode()
def _compare(
    model: Transformer,
    number: int,
    tolerance: float,
    rows: Sequence[tuple[Sequence[int], Sequence[int], Sequence[float]]],
    *,
    is_greedy: bool,
) -> None:
    """Compares log-probabilities of translations with those of one pass over all of them."""
    sources = _pad_rows([[*source, EOS_ID] for source, _, _ in rows])
    inputs = _pad_rows([[BOS_ID, *tokens] for _, tokens, _ in rows])
    logits = model(sources, sources != PAD_ID, inputs)
    for own, (_, tokens, steps) in zip(logits.log_softmax(dim=-1), rows, strict=True):
        own = own[: len(tokens) + 1]
        expected = own.gather(1, torch.tensor([[token] for token in (*tokens, EOS_ID)]))[:, 0]
        error = (expected - torch.tensor(steps)).abs().max().item()
        if not error <= tolerance:  # NaN, too
            raise Mismatch(f"model {number}: a log-probability is off by {error:.1e}")
        if is_greedy and len(tokens) < LIMIT:
            loss = (own[:, EOS_ID:].amax(dim=1) - expected).max().item()
            if not loss <= tolerance:
                raise Mismatch(f"model {number}: a token is not the most probable")


def _pad_rows(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD_ID)


def _check_training(library: ctypes.CDLL, model: Transformer, number: int) -> None:
    """Compares the gradients of a step without dropout."""
    expected, found = (
        _torch_gradients(number),
        _gradients(_prepare_training(library, model), number),
    )
    for name, gradient in expected.items():
        error, largest = _largest(found[name] - gradient), _largest(gradient)
        if not error <= GRADIENT_TOLERANCE * largest + 1e-6:
            raise Mismatch(f"model {number}: the gradient of {name} is off by {error:.1e}")


def _check_other_numbers_and_threads(library: ctypes.CDLL, model: Transformer, number: int) -> None:
    """In bfloat16 gradients are not much farther off than torch's, and on two threads the same."""
    trained = _prepare_training(library, model)
    exact, gradients = _torch_gradients(number), _gradients(trained, number)
    torch.set_num_threads(2)
    two = _gradients(trained, number)
    torch.set_num_threads(1)
    if any(not torch.equal(two[name], gradient) for name, gradient in gradients.items()):
        raise Mismatch("two threads compute different gradients from one")
    by_torch = _torch_gradients(number, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        by_kernels = _gradients(trained, number)
    errors = [
        sum((some[name] - gradient).square().sum().item() for name, gradient in exact.items())
        ** 0.5
        for some in (by_torch, by_kernels)
    ]
    if not errors[1] <= 2.0 * errors[0]:
        raise Mismatch(f"bfloat16 gradients are off by {errors[1]:.1e}, torch's by {errors[0]:.1e}")


def _prepare_training(library: ctypes.CDLL, model: Transformer) -> Transformer:
    trained = copy.deepcopy(model)
    if not use_native_operations(trained, library):
        raise Mismatch("the kernels do not train a model")
    return trained


def _largest(values: torch.Tensor) -> float:
    return values.abs().max().item() if values.numel() else 0.0


@functools.cache
def _torch_gradients(number: int, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """Computes by torch the gradients of a model of `check_library`, once for all libraries."""
    model = random_model(configs()[number], seed=number)
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        return _gradients(model, number)


def _gradients(model: Transformer, seed: int) -> dict[str, torch.Tensor]:
    dice = torch.Generator().manual_seed(seed)
    source, target = torch.randint(EOS_ID + 1, VOCABULARY, (2, 3, 18), generator=dice)
    mask = torch.arange(18) < torch.tensor([[18], [5], [1]])
    for module in model.modules():
        if isinstance(module, Dropout):
            module.rate = 0.0
    model.zero_grad()
    model.train()
    if model.operations is None:
        hidden = model.decode_hidden(target, model.encode(source, mask), mask)[mask]
        logits = model.project(hidden).float()
        torch.nn.functional.cross_entropy(logits, target[mask], reduction="sum").backward()  # type: ignore[no-untyped-call]
    else:
        hidden = hidden_unpadded(model, remove_padding(source, mask), remove_padding(target, mask))
        logits = model.project(hidden)
        gradient = logits.detach().clone()
        targets = torch.full((len(hidden),), -1)
        targets[: int(mask.sum())] = target[mask]
        model.operations.loss(gradient, targets, 1.0, writes_gradient=True)
        logits.backward(gradient)  # type: ignore[no-untyped-call]
    model.eval()
    return {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


def _check_dropout(operations: NativeOperations) -> None:
    """Values are zeroed at their rate, and what was zeroed gets no gradient."""
    n_values = 1 << 16
    values = torch.ones(n_values, requires_grad=True)
    dropped = operations.dropout(values, 0.25)
    dropped.sum().backward()  # type: ignore[no-untyped-call]
    n_dropped = int((dropped == 0.0).sum())
    if abs(n_dropped - n_values / 4) > 6 * (n_values * 3 / 16) ** 0.5:
        raise Mismatch(f"{n_dropped} of {n_values} values were dropped instead of a quarter")
    if values.grad is None or not torch.equal(values.grad, dropped):
        raise Mismatch("dropped values have gradients")
    norm = torch.nn.LayerNorm(64)
    hidden = torch.randn(9, 64, generator=torch.Generator().manual_seed(1))
    summed, normed = operations.add_dropout_norm(
        torch.zeros_like(hidden), hidden, 0.25, norm, rounds=False
    )
    is_dropped = summed == 0.0
    if not 0.1 < is_dropped.double().mean().item() < 0.4:
        raise Mismatch("before a norm, not a quarter of the values were dropped")
    expected = torch.where(is_dropped, 0.0, hidden / 0.75)
    if not max(_largest(summed - expected), _largest(normed - norm(expected))) <= TOLERANCE:
        raise Mismatch("the norm of a sum with dropout is wrong")


def _check_orthogonalize(operations: NativeOperations) -> None:
    """Iterated to the end, the singular values are 1 and the singular vectors stay."""
    for number, shape in enumerate(MATRICES):
        dice = torch.Generator().manual_seed(number)
        matrices = torch.randn(2, *shape, generator=dice)
        found = operations.orthogonalize(matrices, [NEWTON_SCHULZ] * 30, 1.0, 1e-14)
        left, _, right = torch.linalg.svd(matrices.double(), full_matrices=False)
        error = _largest(found - left @ right)
        if not error <= ORTHOGONAL_TOLERANCE:
            raise Mismatch(f"a matrix of {shape} is made orthogonal with an error of {error:.1e}")
