"""How fast the machine multiplies matrices: the limit that a training run is compared with."""

import time
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.runtime import Precision

_ROUND_SECONDS, _ALL_SECONDS = 0.02, 0.2
_FEWEST_ROWS, _MOST_ROWS, _MOST_OUTPUTS = 16, 8192, 1 << 25
_MOST_ROUNDS = 9
_REPEATS = {"cuda": 20}
"""A GPU is asked for so many products at once, for waiting takes longer than one product."""

Product = tuple[Tensor, int]
"""A weight matrix, (out, in), and how often a forward pass multiplies by such a one."""


def measure_product_rate(
    config: ModelConfig, vocab_size: int, device: torch.device, precision: Precision
) -> float:
    """Measures the rate of matrix products of the model's own shapes, in operations a second.

    One product of each shape with as many rows as fit a round of about 0.02 s, each counted as
    often as a forward pass has it; the median of several rounds, about 0.25 s together. No random
    number is drawn. It is an estimate: on a machine that does other work meanwhile it comes out
    too low, and training may then seem to come nearer to the limit than it does, or beyond it.

    Args:
        config: the model's shape.
        vocab_size: V.
        device: where to multiply.
        precision: of the products.
    """
    with torch.inference_mode():
        products = _products(config, vocab_size, device, precision)
        flops_per_row = sum(2.0 * count * matrix.numel() for matrix, count in products)
        _time_round(products, _FEWEST_ROWS)  # the first products load code and choose kernels
        start = time.perf_counter()
        _time_round(products, _FEWEST_ROWS)
        n_rows = _rows_of_round((time.perf_counter() - start) / _FEWEST_ROWS, vocab_size)
        rounds = [_time_round(products, n_rows)]
        while len(rounds) < _MOST_ROUNDS and time.perf_counter() - start < _ALL_SECONDS:
            rounds.append(_time_round(products, n_rows))
    return flops_per_row * n_rows / median(rounds)


def _products(
    config: ModelConfig, vocab_size: int, device: torch.device, precision: Precision
) -> list[Product]:
    d, f = config.d_model, config.d_ff
    n_encoder, n_decoder = config.n_encoder_layers, config.n_decoder_layers
    counts = {
        (3 * d, d): n_encoder + n_decoder,  # q, k and v of self-attention
        (2 * d, d): n_decoder,  # k and v of the memory
        (d, d): n_encoder + 3 * n_decoder,
        (f, d): n_encoder + n_decoder,
        (d, f): n_encoder + n_decoder,
        (vocab_size, d): 1,
    }
    dtype = torch.float32 if precision == "float32" else torch.bfloat16
    return [(_filled(shape, dtype, device), count) for shape, count in counts.items()]


def _filled(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers that are not random: the run's generators stay as they are."""
    return torch.linspace(-1.0, 1.0, shape[0] * shape[1], device=device).view(shape).to(dtype)


def _rows_of_round(seconds_per_row: float, vocab_size: int) -> int:
    """A power of two of rows that take about `_ROUND_SECONDS`, and no more memory than training."""
    fitting = min(_ROUND_SECONDS / seconds_per_row, _MOST_ROWS, _MOST_OUTPUTS / vocab_size)
    return max(_FEWEST_ROWS, 1 << (int(fitting).bit_length() - 1 if fitting >= 1 else 0))


def _time_round(products: list[Product], n_rows: int) -> float:
    """Seconds that the products of a forward pass take, from one of each shape."""
    return sum(count * _time_product(matrix, n_rows) for matrix, count in products)


def _time_product(matrix: Tensor, n_rows: int) -> float:
    rows = _filled((n_rows, matrix.shape[1]), matrix.dtype, matrix.device)
    n_repeats = _REPEATS.get(matrix.device.type, 1)
    _wait(matrix.device)
    start = time.perf_counter()
    for _ in range(n_repeats):
        functional.linear(rows, matrix)
    _wait(matrix.device)
    return (time.perf_counter() - start) / n_repeats


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
