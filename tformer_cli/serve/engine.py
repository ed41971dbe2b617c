"""One model of a service, and the thread that computes with it.

The thread prepares lines, asks the scheduler for a batch, computes it, and hands the results to the
event loops of those who wait for them. Tokenizing happens here, too: in the loop it would hold up
all connections. It opens the model when the first request comes.
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
from tformer_cli.search.generator import StoppedError
from tformer_cli.serve.cache import MISSING, give_back_memory, trim_memory
from tformer_cli.serve.scheduler import FORGETTING, Draining, Late, Scheduler
from tformer_cli.serve.watching import FilesState, UnusableModel, is_replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.kinds.serving import ServedLine, Serving, Unit
    from tformer_cli.search.constraints import LineConstraints
    from tformer_cli.serve.cache import ResultCache
    from tformer_cli.serve.scheduler import Request
    from tformer_cli.serve.stats import Stats
    from tformer_cli.text.tokenizer import Tokenizer

State = Literal["unloaded", "loading", "loaded", "failed"]
LINES_AT_ONCE = 32
"""Lines of one request that are prepared in one go."""
REQUESTS_AT_ONCE = 64
"""Requests that are prepared between two batches, so that neither waits long for the other."""
SIZE_AT_ONCE = 4096
"""Tokens, as `size_of` guesses them, that are prepared between two batches, and some more."""
KEPT_SETTINGS = 64
"""Settings of which the prepared computations are kept."""
REST_SECONDS = 2.0
"""Seconds without work after which the memory of batches is given back."""
PATIENCE = 5.0
"""Seconds that a model which is to make room may still compute what waits for it."""
LOOK_SECONDS = 1.0
"""Seconds after which somebody looks whether a model that was unusable has been repaired."""


@dataclass(eq=False, slots=True)
class _Line:
    """A line of which some units are not computed yet."""

    number: int
    served: ServedLine
    results: list[Any]
    n_missing: int


@dataclass(eq=False, slots=True)
class Part:
    """A unit and the place where its result belongs."""

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
    """A call: its texts, and how far they have come."""

    verb: Verb
    texts: Sequence[str]
    settings: Mapping[str, Any]
    constraints: Sequence[LineConstraints] | None = None
    is_interactive: bool | None = None
    deadline: float = math.inf
    first_index: int = 0
    """Number of the first text, on which depends what is drawn."""
    is_streamed: bool = False
    """Parts of its only text are wanted while that is written."""
    is_admitted: bool = False
    """True for what continues a call that was let in."""
    client: Hashable = None
    has_place: bool = False
    """See `scheduler.Request`, as of the client."""
    versions: dict[Engine, str] = field(default_factory=dict)
    """Hashes of the models that began an answer, of which this call may be but a part."""
    answers: Answers = field(init=False)
    request: Request[Part] = field(init=False)
    n_prepared: int = 0
    rest_size: int = 0
    """Of the texts that are not prepared yet; see `size_of`."""
    serving: Serving | None = None
    has_begun: bool = False


@dataclass(slots=True)
class _Post:
    """Results and errors for one call, handed to its event loop."""

    results: list[tuple[int, Any, bool]] = field(default_factory=list)
    error: BaseException | None = None


class Answers:
    """The results of one call, in the order of its texts, each as soon as it is there.

    Parts of a text that is streamed are strings, and come before its result. It belongs to an event
    loop. Nothing is asked for before the first result is; closing it drops what was not begun.
    """

    def __init__(self, start: Callable[[Job], Engine], job: Job) -> None:
        """Takes what submits a job to its engine, or raises."""
        self._start, self._job = start, job
        self._next = 0
        self._results: dict[int, tuple[Any, bool]] = {}
        self._parts: deque[str] = deque()
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._engine: Engine | None = None
        self.is_closed = False
        self.is_cached = False
        """True if nothing of the last result had to be computed."""
        self.asked_at = 0.0
        self.queue_seconds = 0.0
        """Time until the first unit was computed."""
        self.compute_seconds = 0.0
        """Time of the batches that it had units in."""

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
        """The tokenizer of its texts; None: it is not known."""
        # While a model is closed to make room, its results may still be read
        return None if self._job.serving is None else self._job.serving.tokenizer

    def receive(self, post: _Post) -> None:
        """Takes results, in the event loop."""
        self._results |= {number: (result, cached) for number, result, cached in post.results}
        self._error = self._error or post.error
        self._wake()

    def receive_part(self, text: str) -> None:
        """Takes a part of the text that is being written, in the event loop."""
        self._parts.append(text)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def aclose(self) -> None:
        """Drops what was not begun."""
        self.is_closed = True
        self._results.clear()
        self._parts.clear()
        if self._engine is not None:
            self._engine.drop(self._job.request)


class Engine:
    """A model that is opened and computes in a thread of its own."""

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
        """Takes what opens the model, in the engine's thread; nothing is opened yet.

        `look` tells the state of the model's files, and `changed` makes the error of whoever waits
        while they are written over.
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
        """Sizes of texts, and the tokens that they had."""
        self._busy_since = 0.0
        """When it began to work for the present batch."""
        self._computing: set[Request[Part]] = set()
        """Of the present batch; the scheduler may have no more of them."""
        self._posts: defaultdict[Answers, _Post] = defaultdict(_Post)
        self.state: State = "unloaded"
        self.error: Exception | None = None
        """Why it could not be opened."""
        self.bytes = 0
        """Private memory that opening it took the last time."""
        self.hash = ""
        """Of its files, once it was opened."""
        self.files: FilesState = ()
        """Their state then, or when it could not be opened."""
        self.failed = 0.0
        """When it could not be opened with these files for the first time."""
        self.last_used = 0.0

    # In the threads of those who ask

    def submit(self, job: Job) -> None:
        """Lets a call in, or raises `Busy` or `Draining`."""
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
        """Drops what was not begun of a call whose client has left."""
        if self.scheduler.cancel(request):
            self._stats.count("cancelled_gone_total")

    def start(self) -> None:
        """Starts the thread, if this process has none: forks leave threads behind."""
        with self._changed:
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="tformer-engine", daemon=True)
                self._thread.start()

    def load(self) -> None:
        """Opens the model in the present thread; see `Service.preload`."""
        if self.state != "loaded":
            self._load()
            if self.error is not None:
                raise self.error

    def ask_to_load(self, timeout: float | None = None) -> None:
        """Lets the thread open the model, and waits until it has; joins whoever waits already."""
        if self._is_closed:  # there is nobody to do so
            raise Draining("the service has ended; ask another one")
        with self._changed:
            if self.state == "failed":
                self.state = "unloaded"
            self._wants_load, self._leaves_at = self.state != "loaded", None
            self._changed.notify_all()  # whoever waits until it has left
        self.start()
        self.scheduler.wake()
        with self._changed:
            self._changed.wait_for(
                lambda: self.state in ("loaded", "failed") or self._is_closed, timeout
            )
        if self.error is not None:
            raise self.error
        if self._is_closed:
            raise Draining("the service has ended; ask another one")

    def ask_to_leave(self, patience: float = PATIENCE) -> None:
        """Lets the thread close the model once nothing waits for it, and waits until it has."""
        with self._changed:
            # Whoever asks last decides
            self._wants_load, self._leaves_at = False, time.monotonic() + patience
        self.start()
        self.scheduler.wake()
        with self._changed:
            self._changed.wait_for(
                lambda: self.state != "loaded" or self._leaves_at is None or self._is_closed
            )

    def close(self) -> None:
        """Ends the thread after its batch."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.scheduler.wake()
        if self._thread is not None:
            self._thread.join()

    # In the engine's thread

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
                # Between two batches it would take longer than what it frees is worth
                trim_memory()
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 - a mistake of ours; nobody waits for ever
                self._fail_all(error)
        self._fail_all(Draining("the service has ended; ask another one"))

    def _fail_all(self, error: Exception) -> None:
        for request in (*self._computing, *self.scheduler.cancel_all()):
            self._fail(request, error)
        self._computing = set()
        self._deliver()

    def step(self) -> None:
        """Does what there is to do: opens or closes the model, prepares lines, computes a batch."""
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
            # Before the batch: what was found in the cache need not wait for it
            self._deliver()
            if batch := self.scheduler.next_batch():
                self._compute(batch)
        self._deliver()

    def _check_files(self) -> None:
        """Drops a model whose files are other ones by now; its answers would be of no file."""
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
        """Tells whoever waits why the model cannot be used; returns the error of who comes next."""
        for request in self.scheduler.cancel_all():
            self._fail(request, error)
            error = error.repeat() if isinstance(error, UnusableModel) else error
        return error

    def _load(self) -> None:
        self._become("loading")
        before, files = self.hash, self._look()
        try:
            self._make = self._open(self)
        except Exception as error:  # noqa: BLE001 - those who wait are told, and the thread goes on
            # The files as they were before: what came while they were read is tried, too
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
        """Refuses what the model before has begun: no answer is of two models."""
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
        """Drops the model; its requests that wait will have it opened again."""
        self._make = None
        self._servings.clear()
        for request in self.scheduler.requests():
            request.owner.serving = None  # it would keep the model
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
        """Returns what computes a verb with settings, made once for many requests."""
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
        """Tokenizes the next lines of a request, and looks for what was computed before.

        Takes the size that there is room for, of which one line may have more, and returns theirs.
        """
        job: Job = request.owner
        start = end = job.n_prepared
        size = 0
        is_other = job.versions.setdefault(self, self.hash) != self.hash
        if is_other and self._changed_error is not None:  # no answer is of two models
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
        except Exception as error:  # noqa: BLE001 - of one request; the others go on
            self._fail(request, error)
            return size
        job.n_prepared = end
        self._learn(size, parts)
        job.rest_size -= size
        self.scheduler.put(
            request,
            parts,
            # A text that is streamed is written by itself
            group=(job.verb, serving.group, job if job.is_streamed else None),
            n_lines=len(lines),
            n_rest=len(job.texts) - end,
            rest_tokens=self._cost(job.rest_size),
        )
        return size

    def _cost(self, size: int) -> int:
        """Guesses the tokens of texts of a size, before they are made."""
        guess, cost = self._costs
        return math.ceil(size * cost / guess)

    def _learn(self, size: int, parts: Sequence[Part]) -> None:
        """Compares the guess with what there is to compute, unless some was computed before."""
        # Vocabularies differ by a factor of four; who promises an answer in time has to know
        if parts:
            guess, cost = self._costs
            self._costs = (
                FORGETTING * guess + size,
                FORGETTING * cost + sum(part.tokens for part in parts),
            )

    def _parts(self, job: Job, number: int, served: ServedLine, serving: Serving) -> list[Part]:
        """Makes parts of the units of a line that have to be computed; finishes it without any."""
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
        # Before they are counted and kept, which nobody needs to wait for
        self._deliver()
        now = time.monotonic()
        self.scheduler.finish_batch(seconds, now - self._busy_since)
        self._busy_since = now
        self.last_used = started + seconds
        self._stats.add_batch(len(batch), sum(part.tokens for _, part in batch), seconds)
        for (request, part), result in zip(batch, results, strict=True):
            # The model may have been replaced, and opened again, since the unit was prepared
            is_whole = not request.owner.is_streamed  # others may have been stopped
            if is_whole and part.hash == self.hash and not isinstance(result, Exception):
                self._cache.put(part.key, result)

    def _compute_missing(self, batch: Sequence[tuple[Request[Part], Part]]) -> list[Any]:
        """Computes a batch, or takes what was computed since its units were prepared."""
        job: Job = batch[0][0].owner
        if job.is_streamed:
            return self._compute_units(job, [part.unit for _, part in batch])
        by_key = {part.key: self._cache.peek(part.key) for _, part in batch}
        missing = {part.key: part.unit for _, part in batch if by_key[part.key] is MISSING}
        if missing:  # each once, however many ask for it
            results = self._compute_units(job, list(missing.values()))
            by_key |= zip(missing, results, strict=True)
        return [by_key[part.key] for _, part in batch]

    def _compute_units(self, job: Job, units: list[Unit]) -> list[Any]:
        """Computes units; an error is the result of the unit that has it, not of the others."""
        try:
            serving = self._serving_of(job)
            if job.is_streamed:
                return [serving.told(unit, partial(self._tell, job)) for unit in units]
            return serving.compute(units)
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            if len(units) == 1:
                return [error]
        return [result for unit in units for result in self._compute_units(job, [unit])]

    def _tell(self, job: Job, text: str) -> None:
        """Hands a part of a text to whoever waits for it; ends the search if nobody does."""
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
        """Hands results to event loops, in one call for each: a call wakes its loop."""
        by_loop: defaultdict[asyncio.AbstractEventLoop, list[tuple[Answers, _Post]]]
        by_loop = defaultdict(list)
        for answers, post in self._posts.items():
            by_loop[answers.loop].append((answers, post))
        self._posts.clear()
        for loop, posts in by_loop.items():
            try:
                loop.call_soon_threadsafe(partial(_receive_all, posts))
            except RuntimeError:  # the loop has ended, and with it whoever waited
                for answers, _ in posts:
                    answers.is_closed = True


def _receive_all(posts: Sequence[tuple[Answers, _Post]]) -> None:
    for answers, post in posts:
        answers.receive(post)
