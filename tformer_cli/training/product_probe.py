"""Speed of the machine's matrix products: the limit that a training run is compared with."""

import math
import time

import torch
from torch import Tensor
from torch.nn import functional

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.runtime import Precision, training_products

_PRODUCT_SECONDS, _ALL_SECONDS = 0.002, 0.2
_FEWEST_ROWS, _MOST_ROWS, _MOST_WEIGHTS, _MOST_OUTPUTS = 16, 8192, 1 << 22, 1 << 25
_TRIES = 3
_REPEATS = {"cuda": 20}
"""A GPU is asked for this many products at once, for waiting takes longer than one product."""

Shape = tuple[int, int]
"""Of a weight matrix: (out, in)."""


class ProductProbe:
    """Measures the rate of matrix products of a model's own shapes, in operations a second.

    The fastest product of each shape counts: other work on the machine can only make one slower.
    A product takes about 0.002 s, less than a scheduler lets one process run before the next, so
    that some run undisturbed even where several programs share a processor. Threads and
    precision are those that training uses in the same process. No random number is drawn.
    """

    def __init__(
        self, config: ModelConfig, vocab_size: int, device: torch.device, precision: Precision
    ) -> None:
        """Plans the products; nothing is measured yet.

        Args:
            config: the model's shape.
            vocab_size: V.
            device: where to multiply.
            precision: of the products.
        """
        self._device = device
        self._dtype = torch.float32 if precision == "float32" else torch.bfloat16
        self._counts = _product_counts(config, vocab_size)
        self._best = dict.fromkeys(self._counts, 0.0)
        self._next = 0

    @property
    def rate(self) -> float:
        """The best so far, each shape as often as a forward pass has it; 0: nothing is known."""
        if not all(self._best.values()):
            return 0.0
        flops = {shape: count * math.prod(shape) for shape, count in self._counts.items()}
        return sum(flops.values()) / sum(flops[shape] / best for shape, best in self._best.items())

    def measure(self) -> None:
        """Measures products of all shapes, for about 0.2 s."""
        start = time.perf_counter()
        for _ in self._counts:
            self.measure_next()
        while time.perf_counter() - start < _ALL_SECONDS:
            self.measure_next()

    def measure_next(self) -> None:
        """Measures a few products of one shape, in some milliseconds; the shapes take turns."""
        shape = list(self._counts)[self._next % len(self._counts)]
        self._next += 1
        with torch.inference_mode(), training_products():
            self._measure_shape(shape)

    def _measure_shape(self, shape: Shape) -> None:
        # of the vocabulary only a part is multiplied by, at the same rate in less time and memory
        matrix = self._filled((min(shape[0], _MOST_WEIGHTS // shape[1]), shape[1]))
        if not self._best[shape]:
            rows = self._filled((_FEWEST_ROWS, shape[1]))
            self._product_rate(rows, matrix)  # the first one loads code and chooses kernels
            self._best[shape] = self._product_rate(rows, matrix)
        rows = self._filled((self._n_rows(matrix, self._best[shape]), shape[1]))
        rates = [self._product_rate(rows, matrix) for _ in range(_TRIES)]
        self._best[shape] = max(self._best[shape], *rates)

    def _n_rows(self, matrix: Tensor, rate: float) -> int:
        """A power of two of rows that take about `_PRODUCT_SECONDS`, within bounds of memory."""
        fitting = min(
            _PRODUCT_SECONDS * rate / (2.0 * matrix.numel()),
            _MOST_ROWS,
            _MOST_OUTPUTS / len(matrix),
        )
        return max(_FEWEST_ROWS, 1 << (int(fitting).bit_length() - 1 if fitting >= 1 else 0))

    def _product_rate(self, rows: Tensor, matrix: Tensor) -> float:
        n_repeats = _REPEATS.get(self._device.type, 1)
        self._wait()
        start = time.perf_counter()
        for _ in range(n_repeats):
            functional.linear(rows, matrix)
        self._wait()
        return 2.0 * n_repeats * len(rows) * matrix.numel() / (time.perf_counter() - start)

    def _filled(self, shape: Shape) -> Tensor:
        """Numbers that are not random: the run's generators stay as they are."""
        values = torch.linspace(-1.0, 1.0, shape[0] * shape[1], device=self._device)
        return values.view(shape).to(self._dtype)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _product_counts(config: ModelConfig, vocab_size: int) -> dict[Shape, int]:
    """Counts of a forward pass's products with matrices of each shape."""
    d, f = config.d_model, config.d_ff
    n_encoder, n_decoder = config.n_encoder_layers, config.n_decoder_layers
    products = (
        ((3 * d, d), n_encoder + n_decoder),  # q, k and v of self-attention
        ((2 * d, d), n_decoder),  # k and v of the memory
        ((d, d), n_encoder + 3 * n_decoder),
        ((f, d), n_encoder + n_decoder),
        ((d, f), n_encoder + n_decoder),
        ((vocab_size, d), 1),
    )
    counts: dict[Shape, int] = {}
    for shape, count in products:  # some may be alike
        counts[shape] = counts.get(shape, 0) + count
    return counts
