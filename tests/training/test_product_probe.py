import itertools

import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.training import product_probe
from tformer_cli.training.product_probe import ProductProbe

CONFIG = ModelConfig(d_model=16, n_heads=2, d_ff=40, n_encoder_layers=1, n_decoder_layers=1)
CPU = torch.device("cpu")
N_SHAPES = 6


def probe(vocab_size=100, precision="float32", config=CONFIG):
    return ProductProbe(config, vocab_size, CPU, precision)


class Clock:
    """A processor of a given rate, on which a product takes as long as it says."""

    def __init__(self, monkeypatch, rate):
        self.now, self.rate = 0.0, rate
        self.products = []
        monkeypatch.setattr(product_probe.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(product_probe.functional, "linear", self.linear)

    def linear(self, rows, matrix):
        self.products.append((len(rows), *matrix.shape))
        self.now += 2 * len(rows) * matrix.numel() / self.rate


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_measurement_leaves_the_generators_alone(precision):
    before = torch.get_rng_state()
    measured = probe(precision=precision)
    assert measured.rate == 0.0
    measured.measure()
    assert measured.rate > 1e6
    assert torch.equal(torch.get_rng_state(), before)


def test_the_rate_is_that_of_a_forward_pass_with_each_shape_as_often_as_the_model_has_it(
    monkeypatch,
):
    clock = itertools.count(0, 1e-3)  # every product takes a millisecond
    monkeypatch.setattr(product_probe.time, "perf_counter", lambda: next(clock))
    d, f, v, n_rows = 16, 40, 100, 32
    monkeypatch.setattr(ProductProbe, "_n_rows", lambda *_: n_rows)
    measured = probe(v)
    for _ in range(N_SHAPES):
        measured.measure_next()
    products = {3 * d * d: 2, 2 * d * d: 1, d * d: 4, d * f: 4, v * d: 1}
    flops = 2 * n_rows * sum(size * count for size, count in products.items())
    assert measured.rate == pytest.approx(flops / (sum(products.values()) * 1e-3))


def test_other_work_on_the_processor_at_one_moment_is_no_limit(monkeypatch):
    clock = Clock(monkeypatch, rate=1e9)
    measured = probe()
    measured.measure()
    assert measured.rate == pytest.approx(1e9)
    clock.rate = 4e9  # the other work has ended
    for n_measured in range(N_SHAPES):
        assert measured.rate < 3.9e9, n_measured
        measured.measure_next()
    assert measured.rate == pytest.approx(4e9)
    clock.rate = 0.1e9
    measured.measure()
    assert measured.rate == pytest.approx(4e9)


@pytest.mark.parametrize("rate", [1e7, 1e9, 1e11])
def test_a_measurement_between_steps_is_short_whatever_the_machine_and_the_model(monkeypatch, rate):
    clock = Clock(monkeypatch, rate)
    measured = probe(10_000)
    measured.measure()
    for _ in range(N_SHAPES):
        clock.products.clear()
        before = clock.now
        measured.measure_next()
        assert len(clock.products) == 3
        n_rows, n_outputs, _ = clock.products[0]
        assert 16 <= n_rows <= 8192
        assert n_rows * n_outputs <= 1 << 25
        assert clock.now - before <= 3 * 0.002 or n_rows == 16


def test_of_a_large_vocabulary_a_part_is_multiplied_by(monkeypatch):
    clock = Clock(monkeypatch, 1e11)
    monkeypatch.setattr(product_probe, "_MOST_WEIGHTS", 1000)
    measured = probe(100)
    for _ in range(N_SHAPES):
        measured.measure_next()
    assert {n_outputs for _, n_outputs, n_inputs in clock.products if n_inputs == 16} >= {48, 62}


def test_a_vocabulary_as_wide_as_another_product_is_counted_with_it():
    measured = probe(40)
    for _ in range(N_SHAPES - 1):
        assert measured.rate == 0.0
        measured.measure_next()
    assert measured.rate > 0.0
    assert sum(measured._counts.values()) == sum(probe(100)._counts.values()) == 12
