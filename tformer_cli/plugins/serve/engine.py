"""One model of a service, and the thread that computes with it.

The thread prepares lines, asks the scheduler for a batch, computes it, and hands the results to the
event loops that wait for them. It also tokenizes, which in the event loop would block all
connections. It opens the model on the first request.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Literal

from tformer_cli.kinds.serving import size_of
from tformer_cli.plugins.serve.cache import MISSING, give_back_memory, trim_memory
from tformer_cli.plugins.serve.scheduler import FORGETTING, Draining, Late, Scheduler
from tformer_cli.plugins.serve.watching import FilesState, UnusableModel, is_replaced
from tformer_cli.search.generator import StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.kinds.serving import ServedLine, Serving, Unit
    from tformer_cli.plugins.serve.cache import ResultCache
    from tformer_cli.plugins.serve.scheduler import Request
    from tformer_cli.plugins.serve.stats import Stats
    from tformer_cli.search.constraints import LineConstraints
    from tformer_cli.text.tokenizer import Tokenizer

State = Literal["unloaded", "loading", "loaded", "failed"]
LINES_AT_ONCE = 32
"""Lines of one request prepared in one go."""
REQUESTS_AT_ONCE = 64
"""Requests prepared between two batches; a bound keeps both from waiting long."""
SIZE_AT_ONCE = 4096
"""Approximate limit of the tokens (by `size_of`) prepared between two batches."""
KEPT_SETTINGS = 64
"""Distinct settings whose prepared computations are cached."""
REST_SECONDS = 2.0
"""Idle seconds after which the memory of batches is returned to the system."""
PATIENCE = 5.0
"""Seconds that a model being unloaded may still work on its queue."""
LOOK_SECONDS = 1.0
"""Seconds between checks whether an unusable model was repaired."""


@dataclass(eq=False, slots=True)
class _Line:
    """A line with units that are not computed yet."""

    number: int
    served: ServedLine
    results: list[Any]
    n_missing: int


@dataclass(eq=False, slots=True)
class Part:
    """A unit, and where its result belongs."""

    unit: Unit
    hash: str
    key: Hashable
    line: _Line
    place: int

    @property
    def tokens(self) -> int:
        return self.unit.tokens


@dataclass(eq=False, kw_only=True)
class Job:
    """A call: its texts and their progress."""

    verb: Verb
    texts: Sequence[str]
    settings: Mapping[str, Any]
    constraints: Sequence[LineConstraints] | None = None
    is_interactive: bool | None = None
    deadline: float = math.inf
    first_index: int = 0
    """Number of the first text; sampling depends on it."""
    is_streamed: bool = False
    """True to get parts of the only text while it is generated."""
    is_admitted: bool = False
    """True if it continues a call that was admitted."""
    client: Hashable = None
    has_place: bool = False
    """See `scheduler.Request`, as for `client`."""
    versions: dict[Engine, str] = field(default_factory=dict)
    """Hashes of the models that began the answer; this call may be only a part of it."""
    answers: Answers = field(init=False)
    request: Request[Part] = field(init=False)
    n_prepared: int = 0
    rest_size: int = 0
    """Size of the texts that are not prepared yet; see `size_of`."""
    serving: Serving | None = None
    has_begun: bool = False


@dataclass(slots=True)
class _Post:
    """Results and errors for one call, handed to its event loop."""

    results: list[tuple[int, Any, bool]] = field(default_factory=list)
    error: BaseException | None = None


class Answers:
    """The results of one call in the order of its texts, each as soon as it is computed.

    If the text is streamed, its parts come first, as strings. The object belongs to an event loop.
    The call is submitted when the first result is awaited; closing drops units not yet begun.
    """

    def __init__(self, start: Callable[[Job], Engine], job: Job) -> None:
        """Takes the function that submits a job to its engine."""
        self._start, self._job = start, job
        self._next = 0
        self._results: dict[int, tuple[Any, bool]] = {}
        self._parts: deque[str] = deque()
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._engine: Engine | None = None
        self.is_closed = False
        self.is_cached = False
        """True if the last result came entirely from the cache."""
        self.asked_at = 0.0
        self.queue_seconds = 0.0
        """Time until the first unit was computed."""
        self.compute_seconds = 0.0
        """Total time of the batches with its units."""

    def __aiter__(self) -> Answers:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 - results of each verb
        if self.is_closed or self._next == len(self._job.texts):
            raise StopAsyncIteration
        if self._engine is None:
            self.loop = asyncio.get_running_loop()
            self.asked_at = time.monotonic()
            self._job.answers = self
            self._engine = self._start(self._job)
        while not self._parts and self._next not in self._results:
            if self._error is not None:
                self.is_closed = True
                raise self._error
            self._waiter = self.loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                await self.aclose()
                raise
        if self._parts:
            return self._parts.popleft()
        result, self.is_cached = self._results.pop(self._next)
        self._next += 1
        self._engine.scheduler.note_taken(self._job.request)
        return result

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Tokenizer of the texts; None if it is not known."""
        # Results may still be read after the model was unloaded to make room
        return None if self._job.serving is None else self._job.serving.tokenizer

    def receive(self, post: _Post) -> None:
        """Receives results; runs in the event loop."""
        self._results |= {number: (result, cached) for number, result, cached in post.results}
        self._error = self._error or post.error
        self._wake()

    def receive_part(self, text: str) -> None:
        """Receives a part of the streamed text; runs in the event loop."""
        self._parts.append(text)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def aclose(self) -> None:
        """Drops the units that have not begun."""
        self.is_closed = True
        self._results.clear()
        self._parts.clear()
        if self._engine is not None:
            self._engine.drop(self._job.request)


class Engine:
    """A model with its own thread, which opens it and computes."""

    def __init__(
        self,
        *,
        open_model: Callable[[Engine], Callable[[Verb], Serving]],
        scheduler: Scheduler[Part],
        cache: ResultCache,
        stats: Stats,
        look: Callable[[], FilesState] = tuple,
        changed: Callable[[], UnusableModel] | None = None,
    ) -> None:
        """Takes the function that opens the model in the engine's thread; opens nothing yet.

        `look` returns the state of the model's files; `changed` makes the error for requests that
        wait while the files are overwritten.
        """
        self._open, self._look, self._changed_error = open_model, look, changed
        self.scheduler = scheduler
        self._cache, self._stats = cache, stats
        self._make: Callable[[Verb], Serving] | None = None
        self._servings: dict[Hashable, Serving] = {}
        self._thread: Thread | None = None
        self._changed = Condition()
        self._leaves_at: float | None = None
        self._wants_load = False
        self._is_closed = False
        self._costs = (1.0, 1.0)
        """Estimated sizes of texts, and their actual tokens."""
        self._busy_since = 0.0
        """When work on the current batch began, preparation included."""
        self._computing: set[Request[Part]] = set()
        """Requests in the current batch; the scheduler may hold no more units of them."""
        self._posts: defaultdict[Answers, _Post] = defaultdict(_Post)
        self.state: State = "unloaded"
        self.error: Exception | None = None
        """Why it could not be opened."""
        self.bytes = 0
        """Private memory that opening it took last time."""
        self.hash = ""
        """Hash of its files, once it was opened."""
        self.files: FilesState = ()
        """State of the files when the model was last opened, or failed to open."""
        self.failed = 0.0
        """When opening these files first failed."""
        self.last_used = 0.0

    # Called from other threads

    def submit(self, job: Job) -> None:
        """Admits a call, or raises `Busy` or `Draining`."""
        self.last_used = time.monotonic()
        job.rest_size = sum(map(size_of, job.texts))
        job.request = self.scheduler.admit(
            n_units=len(job.texts),
            n_tokens=self._cost(job.rest_size),
            is_interactive=job.is_interactive,
            deadline=job.deadline,
            owner=job,
            client=job.client,
            has_place=job.has_place,
            is_admitted=job.is_admitted,
        )
        self.start()

    def drop(self, request: Request[Part]) -> None:
        """Drops the units of a call that have not begun, after its client has left."""
        if self.scheduler.cancel(request):
            self._stats.count("cancelled_gone_total")

    def start(self) -> None:
        """Starts the thread if this process has none, as after a fork."""
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="tformer-engine", daemon=True)
                self._thread.start()

    def load(self) -> None:
        """Opens the model in the calling thread; see `Service.preload`."""
        if self.state != "loaded":
            self._load()
            if self.error is not None:
                raise self.error

    def ask_to_load(self, timeout: float | None = None) -> None:
        """Asks the thread to open the model, and waits until it is open."""
        if self._is_closed:  # no thread is left
            raise Draining("the service has shut down; try another one")
        with self._changed:
            if self.state == "failed":
                self.state = "unloaded"
            self._wants_load, self._leaves_at = self.state != "loaded", None
            self._changed.notify_all()  # wakes callers of `ask_to_leave`
        self.start()
        self.scheduler.wake()
        with self._changed:
            self._changed.wait_for(
                lambda: self.state in ("loaded", "failed") or self._is_closed, timeout
            )
        if self.error is not None:
            raise self.error
        if self._is_closed:
            raise Draining("the service has shut down; try another one")

    def ask_to_leave(self, patience: float = PATIENCE) -> None:
        """Asks the thread to unload the model once its queue is empty, and waits until it has."""
        with self._changed:
            # The last caller decides
            self._wants_load, self._leaves_at = False, time.monotonic() + patience
        self.start()
        self.scheduler.wake()
        with self._changed:
            self._changed.wait_for(
                lambda: self.state != "loaded" or self._leaves_at is None or self._is_closed
            )

    def close(self) -> None:
        """Ends the thread after its current batch."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.scheduler.wake()
        if self._thread is not None:
            self._thread.join()

    # Called from the engine's thread

    def _run(self) -> None:
        is_trimmed = False
        self._busy_since = time.monotonic()
        while not self._is_closed:
            left = None if self._leaves_at is None else self._leaves_at - time.monotonic()
            rest = None if is_trimmed else REST_SECONDS
            look = LOOK_SECONDS if self.state == "failed" else None
            waits = [max(0.0, seconds) for seconds in (left, rest, look) if seconds is not None]
            is_waiting = not self.scheduler.has_work
            is_trimmed = not self.scheduler.wait(min(waits, default=None))
            if is_waiting:
                self._busy_since = time.monotonic()
            if is_trimmed:
                # Only when idle: between batches it would cost more than it frees
                trim_memory()
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 - a bug; nobody must wait forever
                self._fail_all(error)
        self._fail_all(Draining("the service has shut down; try another one"))

    def _fail_all(self, error: Exception) -> None:
        for request in (*self._computing, *self.scheduler.cancel_all()):
            self._fail(request, error)
        self._computing = set()
        self._deliver()

    def step(self) -> None:
        """Does one round of work: opens or unloads the model, prepares lines, computes a batch."""
        self._leave()
        self._check_files()
        if self.scheduler.n_requests or self._wants_load:
            self._wants_load = False
            if self.state != "loaded":
                self._load()
        for request in self.scheduler.overdue():
            self._stats.count("cancelled_late_total")
            self._fail(request, Late("the request could not be answered in time"))
        if self.state == "loaded":
            room = SIZE_AT_ONCE
            for request in self.scheduler.hungry()[:REQUESTS_AT_ONCE]:
                if room > 0:
                    room -= self._prepare(request, room)
            # Before the batch: cached results need not wait for it
            self._deliver()
            if batch := self.scheduler.next_batch():
                self._compute(batch)
        self._deliver()

    def _check_files(self) -> None:
        """Drops a model whose files have changed."""
        is_unusable = self.state == "failed" and isinstance(self.error, UnusableModel)
        if not is_unusable and not (self.state == "loaded" and self.scheduler.n_requests):
            return
        files = self._look()
        if is_unusable:
            if files != self.files:
                self._wants_load = True
            elif self.error is not None:
                self.error = self._refuse_all(self.error)
        elif files != self.files:
            if self._changed_error is not None and not is_replaced(self.files, files):
                self._refuse_all(self._changed_error())
            self.unload()

    def _refuse_all(self, error: Exception) -> Exception:
        """Fails all waiting requests; returns the error for the next request."""
        for request in self.scheduler.cancel_all():
            self._fail(request, error)
            error = error.repeat() if isinstance(error, UnusableModel) else error
        return error

    def _load(self) -> None:
        self._become("loading")
        before, files = self.hash, self._look()
        try:
            self._make = self._open(self)
        except Exception as error:  # noqa: BLE001 - waiting requests get it, and the thread goes on
            # The state before reading, so that later changes lead to a new attempt
            self.files, self.failed = files, time.monotonic()
            self.error = error
            self._become("failed")
            self.error = self._refuse_all(error)
        else:
            self.error = None
            self.last_used = self._busy_since = time.monotonic()
            self._become("loaded")
            if before not in ("", self.hash):
                self._refuse_begun()

    def _refuse_begun(self) -> None:
        """Refuses requests that the previous model began: no answer mixes two models."""
        for request in self.scheduler.requests():
            if request.owner.n_prepared and self._changed_error is not None:
                self._fail(request, self._changed_error())

    def _leave(self) -> None:
        with self._changed:
            at = self._leaves_at
            if at is None or (self.scheduler.n_requests and time.monotonic() < at):
                return
        self.unload()
        with self._changed:
            self._leaves_at = None

    def unload(self) -> None:
        """Unloads the model; waiting requests will open it again."""
        self._make = None
        self._servings.clear()
        for request in self.scheduler.requests():
            request.owner.serving = None  # it would keep the model in memory
        give_back_memory()
        self._become("unloaded")

    def _become(self, state: State) -> None:
        with self._changed:
            self.state = state
            self._changed.notify_all()

    def _serving_of(self, job: Job) -> Serving:
        if job.serving is None:
            job.serving = self._serving(job.verb, job.settings)
        return job.serving

    def _serving(self, verb: Verb, settings: Mapping[str, Any]) -> Serving:
        """Returns the computation of a verb with these settings, cached across requests."""
        hashable = {n: tuple(v) if isinstance(v, list) else v for n, v in settings.items()}
        key = (verb, *sorted(hashable.items()))
        serving = self._servings.pop(key, None)
        if serving is None and hashable:
            serving = self._serving(verb, {}).having(hashable)
        elif serving is None:
            assert self._make is not None  # noqa: S101 - the model is open
            serving = self._make(verb)
        self._servings[key] = serving
        if len(self._servings) > KEPT_SETTINGS:
            del self._servings[next(iter(self._servings))]
        return serving

    def _prepare(self, request: Request[Part], room: int) -> int:
        """Tokenizes the next lines of a request, and looks them up in the cache.

        Takes lines up to a size of `room`, which the last one may exceed; returns their size.
        """
        job: Job = request.owner
        start = end = job.n_prepared
        size = 0
        is_other = job.versions.setdefault(self, self.hash) != self.hash
        if is_other and self._changed_error is not None:  # no answer mixes two models
            self._fail(request, self._changed_error())
            return size
        while end < len(job.texts) and end < start + LINES_AT_ONCE and size < room:
            size += size_of(job.texts[end])
            end += 1
        texts = job.texts[start:end]
        try:
            serving = self._serving_of(job)
            lines = serving.prepare(
                texts,
                job.first_index + start,
                None if job.constraints is None else job.constraints[start:end],
            )
            parts = [
                part
                for number, line in enumerate(lines, start)
                for part in self._parts(job, number, line, serving)
            ]
        except Exception as error:  # noqa: BLE001 - fails only this request
            self._fail(request, error)
            return size
        job.n_prepared = end
        self._learn(size, parts)
        job.rest_size -= size
        self.scheduler.put(
            request,
            parts,
            # A streamed text is generated alone
            group=(job.verb, serving.group, job if job.is_streamed else None),
            n_lines=len(lines),
            n_rest=len(job.texts) - end,
            rest_tokens=self._cost(job.rest_size),
        )
        return size

    def _cost(self, size: int) -> int:
        """Estimates the tokens of texts from their size, before tokenizing."""
        guess, cost = self._costs
        return math.ceil(size * cost / guess)

    def _learn(self, size: int, parts: Sequence[Part]) -> None:
        """Calibrates the estimate with the actual tokens; skips fully cached lines."""
        # Vocabularies differ by a factor of four, which matters for deadlines
        if parts:
            guess, cost = self._costs
            self._costs = (
                FORGETTING * guess + size,
                FORGETTING * cost + sum(part.tokens for part in parts),
            )

    def _parts(self, job: Job, number: int, served: ServedLine, serving: Serving) -> list[Part]:
        """Makes parts for the uncached units of a line; delivers a line that has none."""
        line = _Line(number, served, [], 0)
        missing = []
        for place, unit in enumerate(served.units):
            key = (self.hash, job.verb, serving.group, unit.key)
            cached = self._cache.get(key)
            line.results.append(cached)
            if cached is MISSING:
                missing.append(Part(unit, self.hash, key, line, place))
        line.n_missing = len(missing)
        if not missing:
            result = serving.finish(served, line.results)
            self._posts[job.answers].results.append((number, result, bool(served.units)))
        return missing

    def _compute(self, batch: Sequence[tuple[Request[Part], Part]]) -> None:
        started = time.monotonic()
        self._computing = {request for request, _ in batch}
        results = self._compute_missing(batch)
        seconds = time.monotonic() - started
        for job in {request.owner for request, _ in batch}:
            if not job.has_begun:
                job.has_begun = True
                job.answers.queue_seconds = started - job.answers.asked_at
                self._stats.add_wait(job.answers.queue_seconds)
            job.answers.compute_seconds += seconds
        for (request, part), result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                self._fail(request, result)
            else:
                self._put(request, part, result)
        self._computing = set()
        # Before counting and caching, which nobody needs to wait for
        self._deliver()
        now = time.monotonic()
        self.scheduler.finish_batch(seconds, now - self._busy_since)
        self._busy_since = now
        self.last_used = started + seconds
        self._stats.add_batch(len(batch), sum(part.tokens for _, part in batch), seconds)
        for (request, part), result in zip(batch, results, strict=True):
            # The model may have been replaced, and opened again, since the unit was prepared
            is_whole = not request.owner.is_streamed  # a streamed text may have been stopped early
            if is_whole and part.hash == self.hash and not isinstance(result, Exception):
                self._cache.put(part.key, result)

    def _compute_missing(self, batch: Sequence[tuple[Request[Part], Part]]) -> list[Any]:
        """Computes a batch, except for results cached since its units were prepared."""
        job: Job = batch[0][0].owner
        if job.is_streamed:
            return self._compute_units(job, [part.unit for _, part in batch])
        by_key = {part.key: self._cache.peek(part.key) for _, part in batch}
        missing = {part.key: part.unit for _, part in batch if by_key[part.key] is MISSING}
        if missing:  # each only once, even if several requests need it
            results = self._compute_units(job, list(missing.values()))
            by_key |= zip(missing, results, strict=True)
        return [by_key[part.key] for _, part in batch]

    def _compute_units(self, job: Job, units: list[Unit]) -> list[Any]:
        """Computes units; an error becomes the result of the unit that caused it."""
        try:
            serving = self._serving_of(job)
            if job.is_streamed:
                return [serving.stream_unit(unit, partial(self._tell, job)) for unit in units]
            return serving.compute(units)
        except Exception as error:  # noqa: BLE001 - it becomes the result
            if len(units) == 1:
                return [error]
        return [result for unit in units for result in self._compute_units(job, [unit])]

    def _tell(self, job: Job, text: str) -> None:
        """Hands a part of a text to its client; stops the search if the client has left."""
        if job.answers.is_closed:
            raise StoppedError
        job.answers.loop.call_soon_threadsafe(job.answers.receive_part, text)

    def _put(self, request: Request[Part], part: Part, result: Any) -> None:  # noqa: ANN401
        line, job = part.line, request.owner
        line.results[part.place] = result
        line.n_missing -= 1
        if line.n_missing or job.answers.is_closed:
            return
        try:
            finished = self._serving_of(job).finish(line.served, line.results)
        except Exception as error:  # noqa: BLE001
            self._fail(request, error)
        else:
            self._posts[job.answers].results.append((line.number, finished, False))

    def _fail(self, request: Request[Part], error: BaseException) -> None:
        self.scheduler.cancel(request)
        self._posts[request.owner.answers].error = error

    def _deliver(self) -> None:
        """Hands results to event loops, in one call per loop, since each call wakes it."""
        by_loop: defaultdict[asyncio.AbstractEventLoop, list[tuple[Answers, _Post]]]
        by_loop = defaultdict(list)
        for answers, post in self._posts.items():
            by_loop[answers.loop].append((answers, post))
        self._posts.clear()
        for loop, posts in by_loop.items():
            try:
                loop.call_soon_threadsafe(partial(_receive_all, posts))
            except RuntimeError:  # the loop has ended, and its clients with it
                for answers, _ in posts:
                    answers.is_closed = True


def _receive_all(posts: Sequence[tuple[Answers, _Post]]) -> None:
    for answers, post in posts:
        answers.receive(post)
