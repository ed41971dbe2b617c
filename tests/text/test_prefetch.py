import threading
import time

import pytest

from tformer_cli.text.lines import Prefetcher, buffers


@pytest.mark.parametrize("max_wait", [None, 60.0])
def test_groups_lines_in_order_and_loses_none(max_wait):
    lines = [str(i) for i in range(23)]
    grouped = list(buffers(lines, 5, max_wait))
    assert [line for group in grouped for line in group] == lines
    assert [len(group) for group in grouped] == [5, 5, 5, 5, 3]
    assert list(buffers([], 5, max_wait)) == []


def test_a_slow_producer_gets_a_buffer_of_its_lines_so_far():
    answered = threading.Event()

    def slow():
        yield "first"
        yield "second"
        assert answered.wait(30)  # comes on only when it has its answer
        yield "third"

    stream = buffers(slow(), 100, 0.05)
    given = next(stream)
    while len(given) < 2:  # a busy machine may split the two
        given += next(stream)
    assert given == ["first", "second"]
    answered.set()
    assert list(stream) == [["third"]]


def test_an_error_of_the_reader_comes_after_its_lines():
    def fail():
        yield "a"
        raise ValueError("damaged")

    stream = buffers(fail(), 100, 0.01)
    assert next(stream) == ["a"]
    with pytest.raises(ValueError, match="damaged"):
        next(stream)


def test_the_reader_ends_with_its_consumer():
    before = threading.active_count()
    stream = buffers((str(i) for i in range(10**9)), 2, 0.01)
    next(stream)
    stream.close()
    for _ in range(300):
        if threading.active_count() <= before:
            break
        time.sleep(0.02)
    assert threading.active_count() <= before


def test_a_prefetcher_gives_all_items_in_order_and_ends():
    worker = Prefetcher(iter(range(100)), 3)
    assert list(worker) == list(range(100))
    worker.close()
