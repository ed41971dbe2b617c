import itertools

import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.trainer import speed
from tformer_cli.trainer.events import PaceMeasured
from tformer_cli.trainer.speed import HardwareLimit, Pace, ProductProbe


class Machine:
    """A clock and a probe; what the probe sees is set by the test."""

    def __init__(self, rate=100.0):
        self.now, self.rate, self.seen = 0.0, 0.0, rate
        self.brief, self.thorough = 0, 0
        self.full = False

    def clock(self):
        return self.now

    def measure(self):
        self.thorough += 1
        self._see(0.2)

    def measure_next(self):
        self.brief += 1
        self._see(0.008)

    def _see(self, seconds):
        if self.full:
            raise torch.OutOfMemoryError
        self.now += seconds
        self.rate = max(self.rate, self.seen)


def limit_of(machine, n_processes=1):
    return HardwareLimit(machine, n_processes, machine.clock)


def test_a_share_is_that_of_all_processes():
    machine = Machine(100.0)
    assert limit_of(machine).share_of(25.0) == 0.25
    limit = limit_of(machine, 4)
    assert (limit.rate, limit.share_of(100.0)) == (400.0, 0.25)


def test_a_limit_that_was_measured_too_low_is_measured_again():
    machine = Machine(10.0)  # other work takes the processor
    limit = limit_of(machine)
    machine.now, machine.seen = 5.0, 100.0
    assert limit.share_of(50.0) == 0.5
    assert (machine.thorough, machine.brief) == (2, 0)
    assert limit.rate == 100.0


def test_no_share_is_above_one_and_none_is_measured_against_less_than_was_reached():
    machine = Machine(10.0)
    limit = limit_of(machine)
    machine.now = 5.0
    assert limit.share_of(40.0) == 1.0  # measured again, but still wrong
    assert machine.thorough == 2
    assert limit.share_of(20.0) == 0.5
    assert limit.share_of(60.0) == 1.0


def test_the_limit_only_rises_as_better_moments_come():
    machine = Machine(50.0)
    limit = limit_of(machine)
    shares = []
    for seen in (40.0, 80.0, 30.0, 100.0, 1.0):
        machine.now, machine.seen = machine.now + 60.0, seen
        shares.append(limit.share_of(40.0))
    assert shares == [0.8, 0.5, 0.5, 0.4, 0.4]
    assert (machine.thorough, machine.brief) == (1, 5)


@pytest.mark.parametrize("reported", [10.0, 1000.0])
@pytest.mark.parametrize("seconds_between_reports", [0.01, 1.0, 100.0])
def test_measuring_takes_next_to_no_time(seconds_between_reports, reported):
    machine = Machine(100.0)
    limit = limit_of(machine)
    start, trained = machine.now, 0.0
    for number in range(2000):
        machine.now += seconds_between_reports
        trained += seconds_between_reports
        limit.share_of(reported + number)
    spent = machine.now - start - trained
    assert spent <= 0.002 * (machine.now - start) + 0.2
    assert machine.brief + machine.thorough >= 2


def test_where_nothing_can_be_measured_nothing_is_claimed():
    machine = Machine()
    machine.full = True
    limit = limit_of(machine)
    machine.now = 60.0
    assert (limit.share_of(10.0), limit.rate) == (0.0, 0.0)
    machine.now, machine.full = 120.0, False
    assert limit.share_of(10.0) == 0.1


def test_an_error_that_is_not_about_memory_is_not_hidden():
    machine = Machine()
    limit = limit_of(machine)
    machine.measure_next = lambda: torch.linspace(0, 1, -1)
    machine.now = 60.0
    with pytest.raises(RuntimeError):
        limit.share_of(1.0)


def speed_messages(steps):
    """All that is told of (step, seconds, share done), one after another."""
    pace = Pace()
    return [event for step in steps if (event := pace.after_step(*step)) is not None]


def test_the_first_step_does_not_count_and_the_pace_is_told_once():
    # 5 s of loading code, then half a second a step
    steps = [(step, 5.0 + 0.5 * (step - 1), step / 400) for step in range(1, 50)]
    assert speed_messages(steps) == [
        PaceMeasured(step=0, n_steps=400, seconds=pytest.approx(200.0))
    ]


@pytest.mark.parametrize(("seconds_a_step", "last"), [(0.01, 101), (0.5, 5), (30.0, 5)])
def test_a_second_and_four_steps_are_measured_at_least(seconds_a_step, last):
    pace = Pace()
    for step in range(1, last):
        assert pace.after_step(step, seconds_a_step * step, step / 1000) is None
        assert pace.is_measuring
    event = pace.after_step(last, seconds_a_step * last + 1e-6, last / 1000)
    assert event is not None
    assert event.seconds == pytest.approx(1000 * seconds_a_step, rel=1e-3)
    assert not pace.is_measuring


def test_a_resumption_foresees_what_is_left():
    steps = [(step, 100.0 + (step - 301), step / 400) for step in range(301, 320)]
    assert speed_messages(steps) == [
        PaceMeasured(step=300, n_steps=100, seconds=pytest.approx(100.0))
    ]


def test_nothing_is_foreseen_of_a_run_without_a_limit():
    assert speed_messages([(step, float(step), 0.0) for step in range(1, 50)]) == []


def test_a_rollback_in_the_first_steps_does_no_harm():
    steps = [1, 2, 3, 1, 2, 3, 4, 5, 6]
    events = speed_messages([(step, float(i), step / 100) for i, step in enumerate(steps)])
    assert [event.step for event in events] == [0]


IN_EARNEST = {name: getattr(speed, name) for name in ("_ALL_SECONDS", "_PRODUCT_SECONDS")}
"""What other tests shorten."""


@pytest.fixture(autouse=True)
def measured_in_earnest(monkeypatch):
    for name, seconds in IN_EARNEST.items():
        monkeypatch.setattr(speed, name, seconds)


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
        monkeypatch.setattr(speed.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(speed.functional, "linear", self.linear)

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
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(clock))
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
    monkeypatch.setattr(speed, "_MOST_WEIGHTS", 1000)
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
