import pytest
import torch

from tformer_cli.training.hardware_limit import HardwareLimit


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
