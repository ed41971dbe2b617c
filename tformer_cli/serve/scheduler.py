"""The order in which a model computes for many requests, so that each gets its share at once.

A request is a row of units. Requests take turns by deficit round robin (Shreedhar & Varghese 1996):
a turn is worth `QUANTUM` tokens, and what a request does not use it keeps for the next one. So a
document does not hold up a sentence, and long sentences cost those who send them. Interactive
requests come before bulk ones, which keep a quarter of what is computed while both wait. Each class
has a queue of its own, and no client more than a share of it.

A batch never waits for more units, and is no longer than `BATCH_SECONDS` by the speed of the
batches before. Nothing here computes or knows of HTTP; any thread may call, and only one, the
engine, asks for batches.
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
# Where the kernels are fastest for each token: fewer read the weights for little, more leave the
# nearest cache. Larger batches would make whoever comes next wait longer, too.
BATCH_UNITS, BATCH_TOKENS = 16, 256
BATCH_SECONDS = 0.03
BULK_TURNS = 3
"""Tokens of interactive requests for each one that bulk requests are owed, where both wait."""
FEW_UNITS = 3
"""As many make a request interactive, unless it asks otherwise."""
MOST_TOKENS = 64 * 1024
"""Tokens of all requests of a class that wait."""
SHARE = 0.5
"""Part of a queue that one client may fill."""
MOST_COUNTED = 256
"""Units of one request that count for the length of the queue: more delay nobody else."""
READY_UNITS = 2 * BATCH_UNITS
"""Units of a request that are prepared ahead."""
OPEN_LINES = 128
"""Lines of a request that are prepared but not yet taken by whoever asked, so that the results of a
long document do not fill the memory."""
FORGETTING = 0.9
"""Weight of all batches before in the mean speed, relative to the last one."""
CAUTION = 1.5
"""Times the predicted wait that there must be time for."""
ASSUMED_SPEED = 3000.0
"""Tokens a second before anything was computed."""


class Busy(TformerError):  # noqa: N818 - a state, not a failure
    """Too much is waiting; the client may come back."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds until then, at least 1."""


class Draining(TformerError):  # noqa: N818 - a state, not a failure
    """The service ends, and takes no requests."""


class Late(TformerError):  # noqa: N818 - an ordinary end
    """The deadline passed before the request was answered."""


class Sized(Protocol):
    """A unit as far as the order of work is concerned."""

    @property
    def tokens(self) -> int: ...


U = TypeVar("U", bound=Sized)


@dataclass(eq=False, slots=True, kw_only=True)
class Request(Generic[U]):
    """A row of units that waits for its turns."""

    is_interactive: bool
    deadline: float
    """Moment of the clock until which all its units must be begun, or of a bulk one the first."""
    owner: Any = None
    """Whoever gets the results; not looked at."""
    client: Hashable = None
    """Whoever asked, as far as is known; None: nobody whose share is limited."""
    has_place: bool = False
    """True of what was limited elsewhere, as documents are: it fills no queue."""
    group: Hashable = None
    """Units of one group may be in a batch."""
    units: deque[U] = field(default_factory=deque)
    n_rest: int = 0
    """Units that are not prepared yet, about."""
    rest_tokens: int = 0
    ready_tokens: int = 0
    n_open: int = 0
    """Lines that are prepared and not taken yet."""
    deficit: int = 0
    has_turn: bool = False
    has_begun: bool = False
    is_over: bool = False
    """True once nothing more of it is to be computed."""

    @property
    def n_left(self) -> int:
        return len(self.units) + self.n_rest

    @property
    def tokens_left(self) -> int:
        return self.ready_tokens + self.rest_tokens

    @property
    def is_hungry(self) -> bool:
        """True if its next units are to be prepared."""
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
        """Takes the most units of a class that may wait, and the threads that compute a batch."""
        self._max_queue = max_queue
        self._n_threads = n_threads
        self._clock = clock
        self._changed = Condition()
        self._interactive: deque[Request[U]] = deque()
        self._bulk: deque[Request[U]] = deque()
        self._owed = 0
        """Tokens of interactive requests since bulk ones had theirs."""
        self._running = 0
        """Tokens that are being computed."""
        self._speed = self._pace = (ASSUMED_SPEED * BATCH_SECONDS, BATCH_SECONDS)
        """Tokens and seconds of batches, without and with what is done between two of them."""
        self._sums: dict[object, float] = {}
        """Of the requests that wait, until these change: who is refused must cost next to nothing,
        or a flood of them would leave no time for those who were let in."""
        self._is_draining = False
        self._is_awake = False

    @property
    def tokens_per_second(self) -> float:
        tokens, seconds = self._speed
        return tokens / seconds

    def _seconds(self, n_tokens: float) -> float:
        """Predicts the seconds from taking tokens in until they are answered."""
        tokens, seconds = self._pace
        return n_tokens * seconds / tokens

    def _sum(self, key: object, values: Iterable[float]) -> float:
        if key not in self._sums:
            self._sums[key] = sum(values)
        return self._sums[key]

    @property
    def n_requests(self) -> int:
        """Requests of which something waits."""
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
        """True if something is to be prepared or computed."""
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
        """Lets a request in, whose units `put` brings, or raises `Busy` or `Draining`.

        What continues another request is let in, whatever waits.
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
            raise Draining("the service is ending; ask another one")

    def _check_room(self, client: Hashable, *, is_interactive: bool) -> None:
        """Raises an error if a queue is full, or the share of a client in it."""
        ring = self._interactive if is_interactive else self._bulk
        limits = [(client, SHARE, "too much of yours is waiting")] if client is not None else []
        for whose, share, reason in (*limits, (None, 1.0, "too much is waiting")):
            if self._is_filled(ring, whose, share):
                wait = self._seconds(self._tokens(ring, whose))
                raise Busy(reason, max(1, math.ceil(wait)))

    def _check_wait(self, n_tokens: int, *, is_interactive: bool, deadline: float) -> None:
        wait = self._wait(n_tokens, is_interactive=is_interactive)
        # Other programs may take the processor, and a promise is to be kept
        if CAUTION * wait > deadline - self._clock():
            seconds = max(1, math.ceil(wait))
            raise Busy(f"it would wait {seconds} seconds, longer than it can", seconds)

    @property
    def is_full(self) -> bool:
        """True if no interactive request is let in because of those that wait."""
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
        """Returns what fills a queue, of one client if it is named."""
        return (
            request
            for request in ring
            if not request.has_place and (client is None or request.client == client)
        )

    def _wait(self, n_tokens: int, *, is_interactive: bool) -> float:
        """Predicts the seconds until a bulk request begins, or an interactive one ends.

        While it has its turns the others have as many, so a document counts as little as it delays.
        """
        # An interactive one is to end in time, a bulk one to begin
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
        """Returns all that wait."""
        with self._changed:
            return list(self._all())

    def hungry(self) -> list[Request[U]]:
        """Returns the requests whose next units are to be prepared, in the order of turns."""
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
        """Brings units of so many lines of a request, and says what is not prepared yet."""
        with self._changed:
            if request.is_over:  # meanwhile its client has left
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
        """Notes that results of lines were taken, so that there is room for others."""
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
        """Removes and returns the requests that are over their deadline."""
        now = self._clock()
        with self._changed:
            # A document that is being answered takes as long as it takes, and its client sees so
            late = [
                request
                for request in self._all()
                if request.deadline < now and (request.is_interactive or not request.has_begun)
            ]
            for request in late:
                self._remove(request)
        return late

    def cancel(self, request: Request[U]) -> bool:
        """Removes a request; False if all of it was computed, or is being computed."""
        with self._changed:
            if request.is_over:
                return False
            self._remove(request)
            self._changed.notify_all()  # whoever waits for an empty queue
        return True

    def cancel_all(self) -> list[Request[U]]:
        """Removes and returns all requests."""
        with self._changed:
            removed = list(self._all())
            for request in removed:
                self._remove(request)
            self._running = 0  # whoever drops all computes nothing more
            self._changed.notify_all()
        return removed

    def _remove(self, request: Request[U]) -> None:
        self._sums.clear()
        request.is_over = True
        request.units.clear()
        request.n_rest = request.rest_tokens = request.ready_tokens = 0
        self._ring(request).remove(request)

    def next_batch(self) -> list[tuple[Request[U], U]]:
        """Takes the units to compute next, all of one group; none if none is ready."""
        with self._changed:
            waiting = sum(request.ready_tokens for request in self._interactive)
            has_bulk = any(request.units for request in self._bulk)
            is_bulk = has_bulk and (not waiting or self._owed >= BULK_TURNS * BATCH_TOKENS)
            # Where many wait, whoever comes next waits for a quarter of them anyway
            long = 0 if is_bulk else waiting // 4
            most = max(int(BATCH_SECONDS * self.tokens_per_second), long)
            most = min(most, BATCH_TOKENS) * self._n_threads
            # Of one class: a sentence that somebody waits for is there sooner without bulk
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
        """Goes round until a batch is full, or nothing of its group is ready."""
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
                # The first is computed however long it is
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
            else:  # who has nothing ready saves up nothing
                request.has_turn, request.deficit = False, 0
                resting.append(request)
        # Those of other settings were not due to this batch, so they keep their places
        ring.extendleft(reversed(passed))
        ring.extend(resting)
        return batch

    def finish_batch(self, seconds: float, since: float | None = None) -> None:
        """Says how long the batch took that was being computed, and how long since the last one.

        The latter is the same if it is not given, and longer if what it computes was prepared.
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
        """Waits until there is something to do or `wake` was called; False: the time is over."""
        with self._changed:
            is_due = self._changed.wait_for(lambda: self._is_awake or self.has_work, timeout)
            self._is_awake = False
        return is_due

    def wake(self) -> None:
        """Ends a wait of the engine."""
        with self._changed:
            self._is_awake = True
            self._changed.notify_all()

    def close(self) -> None:
        """Lets no more requests in; those that wait are computed."""
        with self._changed:
            self._is_draining = True

    def wait_until_idle(self, timeout: float) -> bool:
        """Waits until nothing waits or is computed; False: the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_idle, timeout)
