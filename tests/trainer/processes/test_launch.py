"""Processes that are launched, and the signals that stop them."""

import signal
import threading

import pytest

from tformer_cli.errors import UsageError
from tformer_cli.trainer.processes import launch
from tformer_cli.trainer.processes.launch import Launch, one_error_per_node, read_launch
from tformer_cli.trainer.processes.signals import stop_requests

TORCHRUN = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


def test_torchruns_environment_is_read():
    expected = Launch(rank=3, local_rank=1, world_size=4, local_world_size=2, machine="1")
    assert read_launch(TORCHRUN) == expected


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "MASTER_ADDR"])
def test_without_torchrun_a_process_is_alone(missing):
    assert read_launch({}) == Launch()
    assert (
        read_launch({name: text for name, text in TORCHRUN.items() if name != missing}) == Launch()
    )


@pytest.mark.parametrize("change", [{"RANK": "4"}, {"RANK": "x"}, {"LOCAL_RANK": "-1"}])
def test_a_place_that_cannot_be_is_refused(change):
    with pytest.raises(UsageError, match="start it with torchrun"):
        read_launch(TORCHRUN | change)


def test_the_first_process_of_a_machine_speaks_first(monkeypatch):
    waits = []
    monkeypatch.setattr(launch, "wait_for_first_error", lambda: waits.append(1))

    def fail():
        with one_error_per_node():
            raise UsageError("bad")

    with pytest.raises(UsageError, match="bad"):
        fail()
    assert not waits
    for name, text in TORCHRUN.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(UsageError, match="bad"):
        fail()
    assert waits


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_becomes_a_request_and_handlers_come_back(number):
    before = signal.getsignal(number)
    with stop_requests() as stop:
        assert not stop
        signal.raise_signal(number)
        assert stop
        assert stop.signal_number == number
    assert signal.getsignal(number) is before


def test_a_second_interrupt_does_not_wait():
    with stop_requests() as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop


def test_in_another_thread_nothing_is_requested():
    seen = []

    def ask():
        with stop_requests() as stop:
            seen.append(bool(stop))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert seen == [False]
