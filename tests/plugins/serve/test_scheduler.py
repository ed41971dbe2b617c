"""The scheduler, with a simulated clock and engine."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tformer_cli.plugins.serve.scheduler import (
    BATCH_TOKENS,
    BATCH_UNITS,
    BULK_TURNS,
    MOST_TOKENS,
    OPEN_LINES,
    QUANTUM,
    Busy,
    Draining,
    Scheduler,
)

SPEED = 10_000
"""Tokens per second of the engine."""
LONGEST = 200


@dataclass(frozen=True)
class Unit:
    tokens: int
    name: object = None


class Model:
    """A scheduler with a simulated clock and engine."""

    def __init__(self, *, is_strict=False, **options):
        self.now = 0.0
        self.is_strict = is_strict
        self.scheduler = Scheduler(clock=lambda: self.now, **options)
        self.order = []
        self.scheduler._speed = self.scheduler._pace = (SPEED, 1.0)  # as after some batches

    def admit(self, sizes, *, name=None, group="g", is_ready=True, **options):
        is_admitted = "deadline" not in options and not self.is_strict
        request = self.scheduler.admit(
            n_units=len(sizes),
            n_tokens=sum(sizes),
            owner=name,
            **{"is_admitted": is_admitted, **options},
        )
        if is_ready:
            self.put(request, sizes, group)
        return request

    def put(self, request, sizes, group="g", n_rest=0):
        self.scheduler.put(
            request,
            [Unit(size, (request.owner, number)) for number, size in enumerate(sizes)],
            group=group,
            n_lines=len(sizes),
            n_rest=n_rest,
            rest_tokens=0,
        )

    def step(self):
        batch = self.scheduler.next_batch()
        seconds = sum(unit.tokens for _, unit in batch) / SPEED
        self.now += seconds
        self.scheduler.finish_batch(seconds)
        self.order += [(self.now, request, unit) for request, unit in batch]
        return batch

    def run(self):
        while self.step():
            pass
        return [unit.name for _, _, unit in self.order]


sizes = st.lists(st.integers(1, LONGEST), min_size=1, max_size=40)


@given(st.lists(st.tuples(sizes, st.sampled_from("ab"), st.booleans()), max_size=12))
def test_every_unit_is_computed_once_and_in_the_order_of_its_request(requests):
    model = Model()
    for name, (row, group, is_interactive) in enumerate(requests):
        model.admit(row, name=name, group=group, is_interactive=is_interactive)
    order = model.run()
    assert sorted(order) == [
        (n, k) for n, (row, *_) in enumerate(requests) for k in range(len(row))
    ]
    for name in range(len(requests)):
        assert [k for n, k in order if n == name] == sorted(k for n, k in order if n == name)
    assert model.scheduler.is_idle
    assert model.scheduler.n_tokens == 0


@given(st.lists(st.tuples(sizes, st.sampled_from("ab"), st.booleans()), max_size=12))
def test_a_batch_is_of_one_group_and_bounded(requests):
    model = Model()
    for row, group, is_interactive in requests:
        model.admit(row, group=group, is_interactive=is_interactive)
    while batch := model.step():
        assert len({request.group for request, _ in batch}) == 1
        assert len({request.is_interactive for request, _ in batch}) == 1
        assert len(batch) <= BATCH_UNITS
        assert len(batch) == 1 or sum(unit.tokens for _, unit in batch) <= BATCH_TOKENS


@given(st.lists(st.integers(1, LONGEST), min_size=1, max_size=8), st.integers(2, 6))
def test_requests_that_all_have_work_get_the_same_within_a_turn(row, n_requests):
    model = Model()
    requests = [
        model.admit(row * 20, name=name, is_interactive=False) for name in range(n_requests)
    ]
    while all(request.units for request in requests):
        model.step()
        tokens = [sum(u.tokens for _, r, u in model.order if r is request) for request in requests]
        # Shreedhar & Varghese 1996, lemma 2, and the batch that is being filled
        assert max(tokens) - min(tokens) <= QUANTUM + 2 * LONGEST


@given(sizes, st.integers(1, LONGEST), st.integers(0, 60))
def test_a_sentence_waits_one_batch_whatever_a_document_has(document, tokens, n_before):
    model = Model()
    model.admit(document * 20, name="document")
    for _ in range(n_before):
        model.step()
    model.admit([tokens], name="sentence")
    batch = model.step()
    assert [unit.name for _, unit in batch] == [("sentence", 0)]


@given(st.lists(st.integers(1, LONGEST), min_size=1, max_size=4), st.integers(1, LONGEST))
def test_bulk_keeps_a_quarter_beside_any_number_of_sentences(interactive, size):
    model = Model()
    bulk = model.admit([size] * 30, name="bulk", is_interactive=False)
    had = [0, 0]
    while bulk.units:
        while model.scheduler.n_requests < 10:
            model.admit(interactive, is_interactive=True)
        for request, unit in model.step():
            had[not request.is_interactive] += unit.tokens
        assert had[0] <= BULK_TURNS * (had[1] + 2 * BATCH_TOKENS)


@given(st.data())
def test_what_is_cancelled_is_not_computed(data):
    model = Model()
    requests = [
        model.admit(data.draw(sizes), name=name, is_interactive=data.draw(st.booleans()))
        for name in range(data.draw(st.integers(1, 8)))
    ]
    for _ in range(data.draw(st.integers(0, 5))):
        model.step()
    cancelled = [request for request in requests if data.draw(st.booleans())]
    dropped = {id(request) for request in cancelled if model.scheduler.cancel(request)}
    n_before = len(model.order)
    model.run()
    assert not any(id(request) in dropped for _, request, _ in model.order[n_before:])
    assert model.scheduler.is_idle
    assert not model.scheduler.cancel(requests[0])  # nothing of it is left


@given(st.lists(st.integers(1, 64), min_size=1, max_size=400), st.integers(1, 20))
def test_who_was_let_in_begins_in_time_at_any_overload(arrivals, per_step):
    model = Model(max_queue=10**6)
    deadline, n_late, n_busy = 0.5, 0, 0
    rest = list(arrivals) * 5
    while rest or not model.scheduler.is_idle:
        for size in rest[:per_step]:
            try:
                model.admit([size], deadline=model.now + deadline)
            except Busy as busy:
                n_busy += busy.retry_after >= 1
        del rest[:per_step]
        n_late += len(model.scheduler.overdue())
        model.step()
    assert n_late == 0
    assert n_busy + len(model.order) == 5 * len(arrivals)


def test_a_full_queue_and_a_long_wait_are_busy_and_say_when_to_come_back():
    model = Model(is_strict=True, max_queue=4)
    for _ in range(4):
        model.admit([10])
    with pytest.raises(Busy, match="too many requests are waiting") as caught:
        model.admit([10])
    assert caught.value.retry_after == 1
    model = Model(is_strict=True)
    for _ in range(400):
        model.admit([100])
    assert model.scheduler.n_tokens == 40_000
    with pytest.raises(Busy, match="it would wait 4 seconds") as caught:
        model.admit([100], deadline=model.now + 2.0)
    assert caught.value.retry_after == 4
    model.admit([100], deadline=model.now + 7.0)


def test_a_document_delays_others_no_more_than_its_turns_and_is_let_in_beside_another():
    model = Model(is_strict=True)
    model.admit([30] * 200_000, is_ready=False)
    model.admit([30], deadline=model.now + 0.1)
    model.admit([30] * 200_000, deadline=model.now + 0.1, is_ready=False)
    for _ in range(2):
        model.admit([30] * 200_000, is_ready=False)
    assert model.scheduler.n_tokens > MOST_TOKENS
    with pytest.raises(Busy, match="too many requests are waiting"):
        model.admit([30] * 200_000, is_ready=False)  # memory is limited
    assert not model.scheduler.is_full
    model.admit([30], deadline=model.now + 0.2)


BULK, SENTENCES = {"is_interactive": False}, {"is_interactive": True}


def fill(model, **options):
    """Admits requests of 10 units until one is refused; returns their number."""
    for number in range(1000):
        try:
            model.admit([1] * 10, **options)
        except Busy:
            return number
    raise AssertionError("never full")


@pytest.mark.parametrize(("filled", "other"), [(BULK, SENTENCES), (SENTENCES, BULK)])
def test_each_class_has_a_queue_of_its_own_of_which_a_client_has_a_share(filled, other):
    model = Model(is_strict=True, max_queue=100)
    assert fill(model, client="a", **filled) == 5
    with pytest.raises(Busy, match="of your requests"):
        model.admit([1], client="a", **filled)
    assert not model.scheduler.is_full
    assert fill(model, client="b", **filled) == 5
    with pytest.raises(Busy, match="too many requests are waiting"):
        model.admit([1], client="c", **filled)
    assert model.scheduler.is_full == filled["is_interactive"]
    # The other class is unaffected, even for the same client
    assert fill(model, client="a", **other) == 5
    assert model.scheduler.n_requests_by_class == {
        "interactive": 10 if filled is SENTENCES else 5,
        "bulk": 10 if filled is BULK else 5,
    }


@pytest.mark.parametrize("options", [BULK, SENTENCES, {}])
def test_a_client_has_its_share_again_once_its_requests_are_computed_or_dropped(options):
    model = Model(is_strict=True, max_queue=100)
    assert fill(model, client="a", **options) == 5
    model.run()
    assert fill(model, client="a", **options) == 5
    for request in model.scheduler.requests():
        model.scheduler.cancel(request)
    assert fill(model, client="a", **options) == 5


def test_requests_that_have_a_place_fill_no_queue_and_wait_as_others():
    model = Model(is_strict=True, max_queue=100)
    for number in range(50):
        model.admit([1] * 90, client="a", has_place=True, name=number, **BULK)
    assert fill(model, client="a", **BULK) == 5
    with pytest.raises(Busy, match="it would wait"):
        model.admit([1], has_place=True, deadline=model.now, **BULK)
    model.scheduler.close()
    with pytest.raises(Draining):
        model.admit([1], has_place=True, **BULK)


def test_a_request_larger_than_the_share_is_let_in_where_nothing_of_its_client_waits():
    model = Model(is_strict=True, max_queue=2)
    model.admit([1] * 500, client="a", **BULK)
    with pytest.raises(Busy, match="of your requests"):
        model.admit([1], client="a", **BULK)


def test_the_overdue_are_removed_unless_they_are_long_and_have_begun():
    model = Model()
    begun = model.admit([200] * 9, deadline=1.0, is_interactive=False)
    model.step()
    short = model.admit([200] * 3, deadline=1.0, is_interactive=True)
    model.step()
    assert short.has_begun
    late = model.admit([10], deadline=1.0)
    model.now = 2.0
    assert model.scheduler.overdue() == [short, late]
    assert short.is_over
    assert late.is_over
    assert not begun.is_over
    assert {name for name in model.run() if name[0] is None} == {(None, n) for n in range(9)}


def test_lines_are_prepared_as_far_as_there_is_room_for_results():
    model = Model()
    request = model.admit([10] * 300, is_ready=False)
    n_put = 0
    while model.step() or model.scheduler.hungry():
        if model.scheduler.hungry() == [request]:
            n_put += 32
            model.put(request, [10] * 32, n_rest=300 - n_put)
    assert n_put == OPEN_LINES
    model.run()
    assert not model.scheduler.wait(0.0)  # everything ready is computed, but not fetched
    model.scheduler.note_taken(request, 1)
    assert model.scheduler.hungry() == [request]
    assert model.scheduler.wait(0.0)


def test_settings_take_turns():
    model = Model()
    for name in range(6):
        model.admit([50] * 12, name=name, group=name % 2, is_interactive=False)
    groups = [{request.group for request, _ in model.step()} for _ in range(4)]
    assert groups == [{0}, {1}, {0}, {1}]


def test_a_slow_model_gets_small_batches():
    model = Model()
    for _ in range(200):
        model.scheduler._running = 100
        model.scheduler.finish_batch(0.1)
    assert math.isclose(model.scheduler.tokens_per_second, 1000, rel_tol=0.01)
    model.admit([10] * 20, is_interactive=False)
    assert len(model.step()) == 3  # 30 ms
    for _ in range(40):
        model.admit([10])
    assert len(model.step()) == 10  # a quarter of the queue


def test_a_closed_scheduler_ends_what_it_has():
    model = Model(is_strict=True)
    model.admit([10] * 5, name="old")
    model.scheduler.close()
    with pytest.raises(Draining):
        model.admit([10])
    model.admit([10], name="old", is_admitted=True)  # continues an admitted request
    assert len(model.run()) == 6
    assert model.scheduler.wait_until_idle(0.0)
