"""The order in which a model computes for many requests, so that all make progress.

A request is a sequence of units. Requests take turns by deficit round robin (Shreedhar & Varghese
1996): a turn is worth `QUANTUM` tokens, and unused tokens carry over. So a document does not delay
a sentence, and long sentences slow down only their sender. Interactive requests go before bulk
ones, which get a quarter of the computation while both wait. Each class has its own queue, and a
client may fill only a share of it.

A batch never waits for more units, and should take at most `BATCH_SECONDS` at the speed of earlier
batches. Nothing here computes or knows about HTTP; any thread may call, but only the engine asks
for batches.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field
from threading import Condition
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tformer_cli.errors import TformerError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

QUANTUM = 64
"""Source tokens of a turn, about two sentences."""
# Here the kernels are fastest per token: smaller batches reread the weights too often, larger ones
# overflow the cache, and delay the next request.
BATCH_UNITS, BATCH_TOKENS = 16, 256
BATCH_SECONDS = 0.03
BULK_TURNS = 3
"""Tokens of interactive requests per token of bulk requests, while both wait."""
FEW_UNITS = 3
"""Up to this many units, a request is interactive by default."""
MOST_TOKENS = 64 * 1024
"""Maximum tokens in the queue of a class."""
SHARE = 0.5
"""Share of a queue that one client may fill."""
MOST_COUNTED = 256
"""Maximum units of one request that count as queue length: more do not delay others."""
READY_UNITS = 2 * BATCH_UNITS
"""Units of a request prepared ahead."""
OPEN_LINES = 128
"""Maximum lines of a request that are prepared but not yet fetched by the client: results of a long
document must not fill the memory."""
FORGETTING = 0.9
"""Weight of all earlier batches in the mean speed, relative to the last one."""
CAUTION = 1.5
"""Safety factor on the predicted wait."""
ASSUMED_SPEED = 3000.0
"""Tokens per second assumed before the first batch."""


class Busy(TformerError):  # noqa: N818 - a state, not a failure
    """The queue is full; the client may retry."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds until a retry, at least 1."""


class Draining(TformerError):  # noqa: N818 - a state, not a failure
    """The service is shutting down and takes no requests."""


class Late(TformerError):  # noqa: N818 - an ordinary end
    """The deadline passed before the request was answered."""


class Sized(Protocol):
    """A unit, as the scheduler sees it."""

    @property
    def tokens(self) -> int: ...


U = TypeVar("U", bound=Sized)


@dataclass(eq=False, slots=True, kw_only=True)
class Request(Generic[U]):
    """A sequence of units that waits for its turns."""

    is_interactive: bool
    deadline: float
    """Clock time by which all units must have begun; for a bulk request, the first."""
    owner: Any = None
    """Receiver of the results; opaque to the scheduler."""
    client: Hashable = None
    """Identity of the client; None if its share is not limited."""
    has_place: bool = False
    """True if limited elsewhere, as documents are: it does not count for a queue."""
    group: Hashable = None
    """Only units of the same group share a batch."""
    units: deque[U] = field(default_factory=deque)
    n_rest: int = 0
    """Approximate number of units that are not prepared yet."""
    rest_tokens: int = 0
    ready_tokens: int = 0
    n_open: int = 0
    """Lines prepared, but not fetched by the client yet."""
    deficit: int = 0
    has_turn: bool = False
    has_begun: bool = False
    is_over: bool = False
    """True once nothing is left to compute."""

    @property
    def n_left(self) -> int:
        return len(self.units) + self.n_rest

    @property
    def tokens_left(self) -> int:
        return self.ready_tokens + self.rest_tokens

    @property
    def is_hungry(self) -> bool:
        """True if its next units should be prepared."""
        return self.n_rest > 0 and len(self.units) < READY_UNITS and self.n_open < OPEN_LINES


class Scheduler(Generic[U]):
    """The requests of one model."""

    def __init__(
        self,
        *,
        max_queue: int = 1000,
        n_threads: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes the queue limit of a class in units, and the number of computing threads."""
        self._max_queue = max_queue
        self._n_threads = n_threads
        self._clock = clock
        self._changed = Condition()
        self._interactive: deque[Request[U]] = deque()
        self._bulk: deque[Request[U]] = deque()
        self._owed = 0
        """Tokens of interactive requests since the last bulk batch."""
        self._running = 0
        """Tokens in the current batch."""
        self._speed = self._pace = (ASSUMED_SPEED * BATCH_SECONDS, BATCH_SECONDS)
        """Tokens and seconds of batches, without and with the time between batches."""
        self._sums: dict[object, float] = {}
        """Cached sums over waiting requests, cleared when these change: refusing a request must be
        cheap, or a flood of requests would leave no time for admitted ones."""
        self._is_draining = False
        self._is_awake = False

    @property
    def tokens_per_second(self) -> float:
        tokens, seconds = self._speed
        return tokens / seconds

    def _seconds(self, n_tokens: float) -> float:
        """Predicts the seconds to answer a number of tokens."""
        tokens, seconds = self._pace
        return n_tokens * seconds / tokens

    def _sum(self, key: object, values: Iterable[float]) -> float:
        if key not in self._sums:
            self._sums[key] = sum(values)
        return self._sums[key]

    @property
    def n_requests(self) -> int:
        """Number of waiting requests."""
        return len(self._interactive) + len(self._bulk)

    @property
    def n_requests_by_class(self) -> dict[str, int]:
        return {"interactive": len(self._interactive), "bulk": len(self._bulk)}

    @property
    def n_tokens(self) -> int:
        with self._changed:
            return sum(request.tokens_left for request in self._all())

    @property
    def is_idle(self) -> bool:
        return not (self.n_requests or self._running)

    @property
    def has_work(self) -> bool:
        """True if something can be prepared or computed."""
        with self._changed:
            return any(request.units or request.is_hungry for request in self._all())

    def admit(
        self,
        *,
        n_units: int,
        n_tokens: int,
        is_interactive: bool | None = None,
        deadline: float = math.inf,
        owner: object = None,
        client: Hashable = None,
        has_place: bool = False,
        is_admitted: bool = False,
    ) -> Request[U]:
        """Admits a request, whose units follow by `put`, or raises `Busy` or `Draining`.

        The continuation of an admitted request is always admitted.
        """
        if is_interactive is None:
            is_interactive = n_units <= FEW_UNITS
        with self._changed:
            if not is_admitted:
                self._check_end()
                if not has_place:
                    self._check_room(client, is_interactive=is_interactive)
                self._check_wait(n_tokens, is_interactive=is_interactive, deadline=deadline)
            request = Request[U](
                is_interactive=is_interactive,
                deadline=deadline,
                owner=owner,
                client=client,
                has_place=has_place,
                n_rest=n_units,
                rest_tokens=n_tokens,
                has_begun=is_admitted,
            )
            self._ring(request).append(request)
            self._sums.clear()
            self._changed.notify_all()
        return request

    def _check_end(self) -> None:
        if self._is_draining:
            raise Draining("the service is shutting down; try another one")

    def _check_room(self, client: Hashable, *, is_interactive: bool) -> None:
        """Raises `Busy` if a queue, or the share of the client in it, is full."""
        ring = self._interactive if is_interactive else self._bulk
        limits = (
            [(client, SHARE, "too many of your requests are waiting")] if client is not None else []
        )
        for whose, share, reason in (*limits, (None, 1.0, "too many requests are waiting")):
            if self._is_filled(ring, whose, share):
                wait = self._seconds(self._tokens(ring, whose))
                raise Busy(reason, max(1, math.ceil(wait)))

    def _check_wait(self, n_tokens: int, *, is_interactive: bool, deadline: float) -> None:
        wait = self._wait(n_tokens, is_interactive=is_interactive)
        # Other programs may slow us down, and admitted requests should be in time
        if CAUTION * wait > deadline - self._clock():
            seconds = max(1, math.ceil(wait))
            raise Busy(f"it would wait {seconds} seconds, beyond its timeout", seconds)

    @property
    def is_full(self) -> bool:
        """True if the interactive queue is full."""
        with self._changed:
            return self._is_filled(self._interactive)

    def _is_filled(
        self, ring: deque[Request[U]], client: Hashable = None, share: float = 1.0
    ) -> bool:
        n_units = self._sum(
            ("units", ring is self._bulk, client),
            (min(request.n_left, MOST_COUNTED) for request in self._waiting(ring, client)),
        )
        return (
            n_units >= share * self._max_queue or self._tokens(ring, client) >= share * MOST_TOKENS
        )

    def _tokens(self, ring: deque[Request[U]], client: Hashable = None) -> float:
        return self._sum(
            ("tokens", ring is self._bulk, client),
            (min(request.tokens_left, MOST_TOKENS // 4) for request in self._waiting(ring, client)),
        )

    def _waiting(self, ring: deque[Request[U]], client: Hashable) -> Iterable[Request[U]]:
        """Returns the requests that count for a queue; with a client, only its own."""
        return (
            request
            for request in ring
            if not request.has_place and (client is None or request.client == client)
        )

    def _wait(self, n_tokens: int, *, is_interactive: bool) -> float:
        """Predicts the seconds until a bulk request begins, or an interactive one ends.

        Requests take turns, so a long document counts only as much as it delays this request.
        """
        # The deadline is for the end of an interactive request, but the start of a bulk one
        own = (n_tokens if is_interactive else min(n_tokens, BATCH_TOKENS)) + QUANTUM
        ahead, bulk = (
            self._sum((place, own), (min(request.tokens_left, own) for request in ring))
            for place, ring in enumerate((self._interactive, self._bulk))
        )
        if is_interactive:
            bulk = min(bulk, ahead // BULK_TURNS + BATCH_TOKENS)
        return self._seconds(self._running + ahead + bulk)

    def _ring(self, request: Request[U]) -> deque[Request[U]]:
        return self._interactive if request.is_interactive else self._bulk

    def _all(self) -> Iterable[Request[U]]:
        yield from self._interactive
        yield from self._bulk

    def requests(self) -> list[Request[U]]:
        """Returns all waiting requests."""
        with self._changed:
            return list(self._all())

    def hungry(self) -> list[Request[U]]:
        """Returns the requests whose next units should be prepared, in the order of turns."""
        with self._changed:
            return [request for request in self._all() if request.is_hungry]

    def put(
        self,
        request: Request[U],
        units: Iterable[U],
        *,
        group: Hashable,
        n_lines: int,
        n_rest: int,
        rest_tokens: int,
    ) -> None:
        """Adds prepared units of `n_lines` lines of a request, and updates the rest."""
        with self._changed:
            if request.is_over:  # its client has left meanwhile
                return
            self._sums.clear()
            added = list(units)
            request.group = group
            request.units += added
            request.ready_tokens += sum(unit.tokens for unit in added)
            request.n_open += n_lines
            request.n_rest, request.rest_tokens = n_rest, rest_tokens
            self._end_if_done(request)

    def note_taken(self, request: Request[U], n_lines: int = 1) -> None:
        """Notes that the client fetched the results of lines, which makes room for more."""
        with self._changed:
            was_hungry = request.is_hungry
            request.n_open -= n_lines
            if request.is_hungry and not was_hungry:
                self._changed.notify_all()

    def _end_if_done(self, request: Request[U]) -> None:
        if not request.n_left and not request.is_over:
            request.is_over = True
            self._ring(request).remove(request)

    def overdue(self) -> list[Request[U]]:
        """Removes and returns the requests past their deadline."""
        now = self._clock()
        with self._changed:
            # A bulk request that has begun may take as long as it needs
            late = [
                request
                for request in self._all()
                if request.deadline < now and (request.is_interactive or not request.has_begun)
            ]
            for request in late:
                self._remove(request)
        return late

    def cancel(self, request: Request[U]) -> bool:
        """Removes a request; returns False if nothing of it was waiting."""
        with self._changed:
            if request.is_over:
                return False
            self._remove(request)
            self._changed.notify_all()  # wakes `wait_until_idle`
        return True

    def cancel_all(self) -> list[Request[U]]:
        """Removes and returns all requests."""
        with self._changed:
            removed = list(self._all())
            for request in removed:
                self._remove(request)
            self._running = 0  # the caller computes nothing more
            self._changed.notify_all()
        return removed

    def _remove(self, request: Request[U]) -> None:
        self._sums.clear()
        request.is_over = True
        request.units.clear()
        request.n_rest = request.rest_tokens = request.ready_tokens = 0
        self._ring(request).remove(request)

    def next_batch(self) -> list[tuple[Request[U], U]]:
        """Takes the next units to compute, all of one group; empty if none is ready."""
        with self._changed:
            waiting = sum(request.ready_tokens for request in self._interactive)
            has_bulk = any(request.units for request in self._bulk)
            is_bulk = has_bulk and (not waiting or self._owed >= BULK_TURNS * BATCH_TOKENS)
            # With a long queue, the next request waits anyway, so batches may be longer
            long = 0 if is_bulk else waiting // 4
            most = max(int(BATCH_SECONDS * self.tokens_per_second), long)
            most = min(most, BATCH_TOKENS) * self._n_threads
            # One class per batch: without bulk units, interactive ones finish sooner
            batch = self._batch(self._bulk if is_bulk else self._interactive, most)
            tokens = sum(unit.tokens for _, unit in batch)
            if is_bulk:
                self._owed = max(0, self._owed - BULK_TURNS * tokens)
            else:
                self._owed = self._owed + tokens if has_bulk else 0
            self._running = tokens
            self._sums.clear()
        return batch

    def _batch(self, ring: deque[Request[U]], most: int) -> list[tuple[Request[U], U]]:
        """Gives turns until a batch is full, or no unit of its group is ready."""
        batch: list[tuple[Request[U], U]] = []
        room, most_units = most, BATCH_UNITS * self._n_threads
        passed: list[Request[U]] = []
        resting: list[Request[U]] = []
        while ring:
            request = ring.popleft()
            if not request.units or (batch and request.group != batch[0][0].group):
                passed.append(request)
                continue
            if not request.has_turn:
                request.deficit += QUANTUM
            request.has_turn = True
            while request.units and request.units[0].tokens <= request.deficit:
                # The first unit always fits
                if batch and (request.units[0].tokens > room or len(batch) == most_units):
                    break
                unit = request.units.popleft()
                batch.append((request, unit))
                room -= unit.tokens
                request.deficit -= unit.tokens
                request.ready_tokens -= unit.tokens
                request.has_begun = True
            if not request.n_left:
                request.is_over = True
            elif request.units and request.units[0].tokens <= request.deficit:
                ring.appendleft(request)  # the batch is full: the next one continues its turn
                break
            elif request.units:
                request.has_turn = False
                ring.append(request)
            else:  # without ready units, no deficit is saved
                request.has_turn, request.deficit = False, 0
                resting.append(request)
        # Requests of other groups keep their places in the queue
        ring.extendleft(reversed(passed))
        ring.extend(resting)
        return batch

    def finish_batch(self, seconds: float, since: float | None = None) -> None:
        """Notes the duration of the current batch, and the time since the end of the last one.

        `since` defaults to `seconds`, and is longer if units were prepared in between.
        """
        since = seconds if since is None else since
        with self._changed:
            self._speed, self._pace = (
                (
                    FORGETTING * tokens + self._running,
                    FORGETTING * before + max(spent, 1e-6),
                )
                for (tokens, before), spent in ((self._speed, seconds), (self._pace, since))
            )
            self._running = 0
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until there is work or `wake` is called; returns False on timeout."""
        with self._changed:
            is_due = self._changed.wait_for(lambda: self._is_awake or self.has_work, timeout)
            self._is_awake = False
        return is_due

    def wake(self) -> None:
        """Wakes the engine."""
        with self._changed:
            self._is_awake = True
            self._changed.notify_all()

    def close(self) -> None:
        """Admits no more requests; waiting ones are still computed."""
        with self._changed:
            self._is_draining = True

    def wait_until_idle(self, timeout: float) -> bool:
        """Waits until nothing is waiting or running; returns False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_idle, timeout)
