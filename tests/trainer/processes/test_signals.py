import signal
import threading

import pytest

from tformer_cli.trainer.processes.signals import stop_requests


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
