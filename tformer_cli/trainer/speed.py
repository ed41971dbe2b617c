"""Speed of a run: how long it will take, and the share of the hardware's limit that it reaches."""

import math
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

from tformer_cli.model.config import ModelConfig, Precision
from tformer_cli.runtime import is_out_of_memory, training_products
from tformer_cli.trainer.events import PaceMeasured

_SHARE_OF_TIME = 0.002
"""Share of the run's time for measurements between its steps."""


class HardwareLimit:
    """The most operations a second that were seen, in products by themselves or in training.

    A single measurement says too little: at that moment other work may have had the processor.
    So the limit is measured again and again for a few milliseconds while the run continues, and it
    only rises. Where training is faster than the limit, the limit was wrong: it is measured
    thoroughly once more, and what training has shown to be possible is the least that it can be.
    """

    def __init__(
        self,
        probe: "ProductProbe",
        n_processes: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._probe = probe
        self._n_processes = n_processes
        self._clock = clock
        self._measure(probe.measure)
        self._start = clock()
        self._spent = 0.0
        self._reached = 0.0

    @property
    def rate(self) -> float:
        """Operations a second of all processes together; 0: could not be measured."""
        return max(self._n_processes * self._probe.rate, self._reached)

    def share_of(self, rate: float) -> float:
        """Computes how much of the limit a rate is, from 0 to 1; 0 where the limit is not known."""
        # To be called between two steps: it may measure, for a five hundredth of the run's time
        # and, once in a while, for some tenths of a second beyond.
        start = self._clock()
        if self._spent <= _SHARE_OF_TIME * (start - self._start):
            is_wrong = rate > self.rate
            self._measure(self._probe.measure if is_wrong else self._probe.measure_next)
            self._spent += self._clock() - start
        if not self._probe.rate:
            return 0.0
        self._reached = max(self._reached, rate)
        return rate / self.rate

    def _measure(self, measure: Callable[[], None]) -> None:
        try:
            measure()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise  # else training has the memory, and the limit stays what it is


_SECONDS, _STEPS = 1.0, 4
"""Least duration and least number of steps of the measurement."""


class Pace:
    """Measures the first steps of a run, or of its resumption, and extrapolates them once.

    Its very first step does not count: it takes memory and loads code. Nothing else is as honest
    as real steps: the share of the hardware's limit that training reaches differs from machine
    to machine, and with what else runs there.
    """

    def __init__(self) -> None:
        self._first: tuple[int, float, float] | None = None
        self.is_measuring = True
        """True while steps are measured."""

    def wait_for(self, loss: Tensor | float) -> None:
        """Waits until the device has computed a step, while steps are measured."""
        if self.is_measuring:
            float(loss)

    def after_step(self, step: int, seconds: float, share_done: float) -> PaceMeasured | None:
        if not self.is_measuring:
            return None
        if self._first is None:
            self._first = step, seconds, share_done
            return None
        n_steps, elapsed, share = (
            now - then for now, then in zip((step, seconds, share_done), self._first, strict=True)
        )
        if n_steps < _STEPS or elapsed < _SECONDS:
            return None
        self.is_measuring = False
        if share <= 0.0:
            return None
        left = (1.0 - share_done) / share
        before = self._first[0] - 1
        return PaceMeasured(
            step=before,
            n_steps=step - before + round(left * n_steps),
            seconds=(left + (n_steps + 1) / n_steps) * elapsed,
        )


_PRODUCT_SECONDS, _ALL_SECONDS = 0.002, 0.2
_FEWEST_ROWS, _MOST_ROWS, _MOST_WEIGHTS, _MOST_OUTPUTS = 16, 8192, 1 << 22, 1 << 25
_TRIES = 3
_REPEATS = {"cuda": 20}
"""A GPU is asked for this many products at once, for waiting takes longer than one product."""

Shape = tuple[int, int]
"""Shape of a weight matrix: (out, in)."""


class ProductProbe:
    """Measures the rate of matrix products of a model's own shapes, in operations a second.

    The fastest product of each shape counts: other work on the machine can only make one slower.
    A product takes about 0.002 s, less than a scheduler lets one process run before the next, so
    that some run undisturbed even where several programs share a processor. Threads and
    precision are those that training uses in the same process. No random number is drawn.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        device: torch.device,
        precision: Precision,
        *,
        tf32: bool = False,
    ) -> None:
        self._device = device
        self._tf32 = tf32
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
        start = time.perf_counter()
        for _ in self._counts:
            self.measure_next()
        while time.perf_counter() - start < _ALL_SECONDS:
            self.measure_next()

    def measure_next(self) -> None:
        """Measures a few products of one shape, in some milliseconds; the shapes take turns."""
        shape = list(self._counts)[self._next % len(self._counts)]
        self._next += 1
        with torch.inference_mode(), training_products(tf32=self._tf32):
            self._measure_shape(shape)

    def _measure_shape(self, shape: Shape) -> None:
        # of the vocabulary only a part is multiplied by, at the same rate in less time and memory
        matrix = self._make_values((min(shape[0], _MOST_WEIGHTS // shape[1]), shape[1]))
        if not self._best[shape]:
            rows = self._make_values((_FEWEST_ROWS, shape[1]))
            self._product_rate(rows, matrix)  # the first one loads code and chooses kernels
            self._best[shape] = self._product_rate(rows, matrix)
        rows = self._make_values((self._n_rows(matrix, self._best[shape]), shape[1]))
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

    def _make_values(self, shape: Shape) -> Tensor:
        """Numbers that are not random: the run's generators stay as they are."""
        values = torch.linspace(-1.0, 1.0, shape[0] * shape[1], device=self._device)
        return values.view(shape).to(self._dtype)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _products(config: ModelConfig) -> Iterator[tuple[Shape, int, int]]:
    """Yields the matrices of a forward pass but the last, and how often S and T rows meet each."""
    d, f, joined = config.d_model, config.d_ff, config.n_heads * config.head_width
    n_encoder, n_decoder = config.n_encoder_layers, config.n_decoder_layers
    n_recurrent = n_decoder if config.decoder_cell == "ssru" else 0
    n_own, n_masked, n_cross = n_encoder, n_decoder - n_recurrent, n_decoder * bool(n_encoder)
    if not config.projections:
        n_own = n_masked = n_cross = 0
    n_inner = 2 if config.gated else 1
    yield (joined + 2 * config.key_width, d), n_own, n_masked  # q, k and v of self-attention
    yield (2 * config.key_width, d), n_cross, 0  # k and v of the memory
    yield (d, joined), n_own, n_masked + n_cross  # outputs of attention
    yield (joined, d), 0, n_cross  # queries of cross-attention
    yield (d, d), 0, 2 * n_recurrent
    yield (f, d), n_inner * n_encoder, n_inner * n_decoder
    yield (d, f), n_encoder, n_decoder


def _product_counts(config: ModelConfig, vocab_size: int) -> dict[Shape, int]:
    counts = {(config.n_outputs or vocab_size, config.d_model): 1}
    for shape, n_source, n_target in _products(config):  # some may be alike
        counts[shape] = counts.get(shape, 0) + n_source + n_target
    return {shape: count for shape, count in counts.items() if count}


def forward_flops(
    config: ModelConfig, vocab_size: int, source_length: float, target_length: float
) -> float:
    """Counts the floating-point operations of the products for one sentence pair."""
    # A product of (m, k) by (k, n) is 2·m·k·n operations. Attention adds Q·Kᵀ and the sum over V,
    # 4·D for each pair of positions. Source: the sub-layers of Vaswani et al. 2017, section 3,
    # counted as Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1 and
    # table 1, count a decoder-only model. Norms, softmax and other work on single values are
    # omitted; masked cells count, since they are computed.
    s, t, joined = source_length, target_length, config.n_heads * config.head_width
    n_encoder, n_decoder = config.n_encoder_layers, config.n_decoder_layers
    matrices = sum(
        2 * math.prod(shape) * (n_source * s + n_target * t)
        for shape, n_source, n_target in _products(config)
    )
    pairs = n_encoder * s * s
    if config.decoder_cell != "ssru":
        pairs += n_decoder * t * t
    if n_encoder:
        pairs += n_decoder * t * s
    outputs = t * 2 * config.d_model * (config.n_outputs or vocab_size)
    return matrices + 4 * joined * pairs + outputs


def training_flops_per_token(
    config: ModelConfig, vocab_size: int, source_length: float, target_length: float
) -> float:
    """Counts the operations of a training step per target token: three times the forward pass."""
    # The backward pass has two products, one for the gradient of the weights and one for that of
    # the inputs; the forward pass has one (Kaplan et al. 2020, section 2.1).
    flops = forward_flops(config, vocab_size, source_length, target_length)
    return 3.0 * flops / target_length
