import itertools

import pytest
import torch

from tformer_cli.model import hardware
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.hardware import measure_product_rate

CONFIG = ModelConfig(d_model=16, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=1)
CPU = torch.device("cpu")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_measurement_leaves_the_generators_alone(precision):
    before = torch.get_rng_state()
    assert measure_product_rate(CONFIG, 100, CPU, precision) > 1e6
    assert torch.equal(torch.get_rng_state(), before)


def test_the_rate_is_operations_over_time_with_each_shape_as_often_as_the_model_has_it(monkeypatch):
    seconds = itertools.count(0, 1e-3)  # a clock on which every product takes a millisecond
    monkeypatch.setattr(hardware.time, "perf_counter", lambda: next(seconds))
    d, f, v, n_rows = 16, 32, 100, 32
    monkeypatch.setattr(hardware, "_rows_of_round", lambda *_: n_rows)
    products = {3 * d * d: 2, 2 * d * d: 1, d * d: 4, d * f: 4, v * d: 1}
    flops = 2 * n_rows * sum(size * count for size, count in products.items())
    rate = measure_product_rate(CONFIG, v, CPU, "float32")
    assert rate == pytest.approx(flops / (sum(products.values()) * 1e-3))


def test_rounds_are_short_whatever_the_machine():
    assert hardware._rows_of_round(1e-9, 100) == 8192
    assert hardware._rows_of_round(1e-9, 32_000) * 32_000 <= 1 << 25
    assert hardware._rows_of_round(0.02 / 300, 100) == 256
    assert hardware._rows_of_round(1.0, 100) == 16
