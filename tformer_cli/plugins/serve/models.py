"""The models of a service by name, loaded within a memory limit, each with its engine.

Start reading at `Service`; `engine.py` runs one model, `scheduler.py` decides the order of work.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from tformer_cli.artifacts.config_file import (
    COMMANDS,
    read_config,
)
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.plugins.serve.cache import (
    ResultCache,
    freeze_memory,
    give_back_memory,
    private_bytes,
)
from tformer_cli.plugins.serve.engine import Answers, Engine, Job, Part
from tformer_cli.plugins.serve.scheduler import FEW_UNITS, Busy, Draining, Late, Scheduler
from tformer_cli.plugins.serve.served_model import (
    ModelInfo,
    ServedModel,
    choose_languages,
    hash_of,
    pack_model,
)
from tformer_cli.plugins.serve.stats import Stats
from tformer_cli.plugins.serve.watching import (
    UnusableModel,
    changing,
    rested_state,
    state_of,
    unusable,
)
from tformer_cli.runtime import has_fast
from tformer_cli.search.opening import OpeningSettings
from tformer_cli.text.languages import main_code
from tformer_cli.wording import did_you_mean, suggestions, visible

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
    from pathlib import Path

    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.inspect.jobs.align import Aligner
    from tformer_cli.kinds.serving import Serving
    from tformer_cli.search.constraints import LineConstraints
    from tformer_cli.search.translator import Translation

__all__ = ["Answers", "Busy", "Draining", "Late", "ModelInfo", "Service", "UnknownModel"]
CACHE_BYTES = 64 << 20
HOPELESS_SECONDS = 10.0
"""A service ends after this many seconds with no usable model and no change of files."""
RELAYED_LINES = 32
"""Lines that the first model of a pivot translates before the second starts."""
Priority = Literal["interactive", "bulk"]
Versions: TypeAlias = dict[Engine, str]


class UnknownModel(UsageError):  # noqa: N818 - of the request
    """No model has this name, language pair or verb."""


class Service:
    """Models that serve many clients at once; call its methods from an event loop.

    Models opened before a fork share their memory with the child processes. Threads start with the
    first request of a process.
    """

    def __init__(
        self,
        models: Mapping[str, Path],
        *,
        memory: int | None = None,
        threads: int = 0,
        max_queue: int = 1000,
        cache_bytes: int = CACHE_BYTES,
        pivot: str | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """Reads the settings of models; `preload` opens them.

        `memory` limits the bytes of open models. Settings that need PyTorch are refused, since it
        takes seconds and half a gigabyte to import; models that need PyTorch still use it.
        """
        from tformer_cli.kinds.opening import resolve_directory

        self._memory, self._pivot = memory, pivot
        self._threads, self._tell = threads, tell
        self._stats = Stats()
        self._cache = ResultCache(cache_bytes)
        self._opening = Lock()
        self._is_draining = False
        self._n_relayed = 0
        self._models: dict[str, ServedModel] = {}
        n_threads = threads or _usual_threads()
        for name, directory in models.items():
            path = resolve_directory(directory, OpeningSettings(tell=tell))
            model = self._models[name] = ServedModel(name, path, read_config(path))
            model.engine = Engine(
                open_model=partial(self._open, model),
                scheduler=Scheduler[Part](max_queue=max_queue, n_threads=n_threads),
                cache=self._cache,
                stats=self._stats,
                look=partial(state_of, path),
                changed=partial(changing, name, path),
            )
        infos = self.info()
        codes = {c for m in infos for c in (m.source_language, m.target_language, *m.languages)}
        codes.discard("")
        if pivot is not None and main_code(pivot) not in set(map(main_code, codes)):
            raise UsageError(
                f"--pivot: no model translates from or into {visible(pivot, 40)}; name one of "
                f"{', '.join(sorted(codes)) or 'their languages'}, or omit it"
            )

    @property
    def stats(self) -> Stats:
        """Current statistics."""
        engines = [model.engine for model in self._models.values()]
        waiting = [engine.scheduler.n_requests_by_class for engine in engines]
        self._stats.queue_requests = {
            name: sum(counts[name] for counts in waiting) for name in get_args(Priority)
        }
        self._stats.queue_tokens = sum(engine.scheduler.n_tokens for engine in engines)
        self._stats.cache_bytes = self._cache.n_bytes
        self._stats.cache_hits_total = self._cache.n_hits
        self._stats.cache_misses_total = self._cache.n_misses
        return self._stats

    def info(self) -> list[ModelInfo]:
        return [model.info() for model in self._models.values()]

    def route(self, source: str, target: str) -> tuple[str, ...]:
        """Returns the names of the models between two languages: one, or two through the pivot."""
        direct = self._between(source, target)
        if direct is not None:
            return (direct,)
        if self._pivot is not None:
            parts = self._between(source, self._pivot), self._between(self._pivot, target)
            if parts[0] is not None and parts[1] is not None:
                return (parts[0], parts[1])
        raise UnknownModel(f"no model translates from {source} to {target}")

    def _between(self, source: str, target: str) -> str | None:
        for is_exact in (True, False):
            for name, model in self._models.items():
                if model.translates(source, target, is_exact=is_exact):
                    return name
        return None

    def submit(
        self,
        name: str | Sequence[str],
        verb: Verb,
        texts: Sequence[str],
        *,
        settings: Mapping[str, Any] | None = None,
        constraints: Sequence[LineConstraints] | None = None,
        priority: Priority | None = None,
        deadline: float | None = None,
        is_streamed: bool = False,
        client: Hashable = None,
        has_place: bool = False,
        is_admitted: bool = False,
        versions: Versions | None = None,
    ) -> Answers | AsyncGenerator[Any]:
        """Runs a verb on texts; yields the results in order, each as soon as it is computed.

        Args:
            name: a model; or several, as from `route`, which translate one after another.
            verb: what to compute.
            texts: the texts.
            settings: of the search or the verb; `seed`, which determines sampling together with
                the number of a text; `source_language` and `target_language`, if multilingual.
            constraints: required and banned phrases of each translation.
            priority: None means interactive for few texts, bulk for many.
            deadline: `time.monotonic` time by which texts are answered or, if many, begun.
            is_streamed: first yields parts of the only text, as strings, while it is generated.
            client: identifies the client, whose share of the queue is limited; None: no limit.
            has_place: limited elsewhere, as documents are, and exempt from queue limits.
            is_admitted: continues a request that was admitted.
            versions: shared by all parts of an answer, which must come from one version.

        Raises:
            UnknownModel: before the first result, like the following.
            Busy: if it would begin too late, or the queue is full.
            Draining: if the service is shutting down.
            Late: if it was admitted, but not answered in time.
            UnusableModel: if the files of the model changed meanwhile.
        """
        job = Job(
            verb=verb,
            texts=texts,
            settings=settings or {},
            constraints=constraints,
            is_interactive=None if priority is None else priority == "interactive",
            deadline=math.inf if deadline is None else deadline,
            is_streamed=is_streamed,
            client=client,
            has_place=has_place,
            is_admitted=is_admitted,
            versions={} if versions is None else versions,
        )
        *before, last = (name,) if isinstance(name, str) else name
        if not before:
            return Answers(partial(self._start, last), job)
        # Count all texts: the last part of a document is short, but not urgent
        if job.is_interactive is None:
            job.is_interactive = len(texts) <= FEW_UNITS
        return self._relay(before, last, job)

    def _start(self, name: str, job: Job) -> Engine:
        model = self._models.get(name)
        if model is None:
            guess = did_you_mean(suggestions(name, self._models))
            raise UnknownModel(
                f"model: there is no {visible(name, 80)}; {guess or 'see /api/models'}"
            )
        if job.verb not in model.verbs:
            raise UnknownModel(f"model: {name} {COMMANDS[model.config.task].partition(';')[0]}")
        try:
            model.engine.submit(job)
        except Busy:
            self._stats.count("rejected_total")
            raise
        return model.engine

    async def _relay(
        self, before: Sequence[str], last: str, job: Job
    ) -> AsyncGenerator[Translation]:
        """Translates with several models in turn, some texts at a time."""
        first_settings = {key: value for key, value in job.settings.items() if key != "n_best"}
        self._n_relayed += 1
        try:
            for start in range(0, len(job.texts), RELAYED_LINES):
                part = slice(start, start + RELAYED_LINES)
                # An admitted request stays admitted for all its parts
                first = replace(
                    job,
                    texts=job.texts[part],
                    settings=first_settings,
                    constraints=None,
                    first_index=start,
                    is_admitted=job.is_admitted or start > 0,
                )
                passed = [translation async for translation in self._through(before, first)]
                second = replace(
                    job,
                    texts=[translation.text for translation in passed],
                    constraints=None if job.constraints is None else job.constraints[part],
                    first_index=start,
                    is_admitted=True,
                )
                async with aclosing(self._through([last], second)) as results:
                    async for translation in results:
                        yield _join_translations(passed[translation.index - start], translation)
        finally:
            self._n_relayed -= 1

    def _through(self, names: Sequence[str], job: Job) -> AsyncGenerator[Any]:
        *before, last = names
        if before:
            return self._relay(before, last, job)
        return _yield_results(Answers(partial(self._start, last), job))

    def aligner(self, name: str, versions: Versions | None = None) -> Aligner | None:
        """Returns the word aligner of a model, if the model is open and has alignment heads.

        Raises:
            UnusableModel: if the model was replaced since it translated.
        """
        model = self._find_model(name)
        aligner = None if model.aligner is None else model.aligner()
        current = model.engine.hash
        if versions is not None and versions.get(model.engine, current) != current:
            raise changing(name, model.path)
        return aligner

    async def load(self, name: str) -> None:
        """Opens a model, or waits if it is already being opened."""
        await asyncio.to_thread(self._find_model(name).engine.ask_to_load)

    async def unload(self, name: str) -> None:
        """Unloads a model once its queue is empty; the next request opens it again."""
        await asyncio.to_thread(self._find_model(name).engine.ask_to_leave)

    def _find_model(self, name: str) -> ServedModel:
        if name not in self._models:
            raise UnknownModel(f"model: there is no {visible(name, 80)}; see /api/models")
        return self._models[name]

    def preload(self) -> None:
        """Opens models in this thread, as many as fit in memory; call it before any fork."""
        for model in self._models.values():
            room = math.inf if self._memory is None else self._memory - self._used_bytes()
            if model.assumed_bytes <= room or not self._used_bytes():
                model.engine.load()
        freeze_memory()

    def ready(self) -> bool:
        """True if a sentence would be admitted and answered soon."""
        engines = [model.engine for model in self._models.values()]
        return not self._is_draining and all(
            engine.state in ("loaded", "unloaded") and not engine.scheduler.is_full
            for engine in engines
        )

    def hopeless(self) -> Exception | None:
        """Returns the error if no model is usable and no file has changed for a while."""
        engines = [model.engine for model in self._models.values()]
        errors = [engine.error for engine in engines if engine.state == "failed"]
        latest = max((engine.failed for engine in engines), default=0.0)
        if len(errors) < len(engines) or time.monotonic() - latest < HOPELESS_SECONDS:
            return None
        return next((error for error in errors if isinstance(error, UnusableModel)), None)

    async def drain(self, seconds: float, has_more: Callable[[], bool] = lambda: False) -> None:
        """Stops admitting requests, finishes waiting ones, and ends after at most `seconds`.

        `has_more` returns True while admitted work, such as a document, will bring more requests.
        """
        self._is_draining = True
        until = time.monotonic() + seconds
        engines = [model.engine for model in self._models.values()]
        for engine in engines:
            engine.scheduler.close()
        while time.monotonic() < until:
            left = until - time.monotonic()
            idle = [
                await asyncio.to_thread(engine.scheduler.wait_until_idle, left)
                for engine in engines
            ]
            if all(idle) and not self._n_relayed and not has_more():
                break
            await asyncio.sleep(0.01)
        for engine in engines:
            await asyncio.to_thread(engine.close)

    def _used_bytes(self) -> int:
        return sum(
            model.engine.bytes for model in self._models.values() if model.engine.state == "loaded"
        )

    def _make_room(self, model: ServedModel, wanted: int) -> None:
        """Unloads other models, the least recently used first, until the new one fits."""
        if self._memory is None:
            return
        while self._used_bytes() + wanted > self._memory:
            loaded = [
                served.engine
                for served in self._models.values()
                if served is not model and served.engine.state == "loaded"
            ]
            if not loaded:
                return
            # Prefer idle models: a busy one would be reopened at once
            min(
                loaded, key=lambda engine: (not engine.scheduler.is_idle, engine.last_used)
            ).ask_to_leave()

    def _open(self, model: ServedModel, engine: Engine) -> Callable[[Verb], Serving]:
        """Opens a model, in the engine's thread; see `Engine`."""
        with self._opening:  # one at a time, to measure the memory of each
            self._make_room(model, model.assumed_bytes)
            before = private_bytes()
            make_serving = self._read(model)
            # Free temporary data first
            give_back_memory()
            after = private_bytes()
            if before is not None and after is not None:
                # A reopened model reuses freed memory, so that its growth looks too small
                engine.bytes = max(1, engine.bytes, after - before)
            if self._memory is not None and engine.bytes > self._memory:
                raise ArtifactError(
                    f"{model.name}: takes {in_megabytes(engine.bytes)}, but --memory is "
                    f"{in_megabytes(self._memory)}; raise it"
                )
            # Again, now that its size is known
            self._make_room(model, engine.bytes)
        self._stats.count("loads_total")
        if self._tell is not None:
            self._tell(f"{model.name}: {in_megabytes(engine.bytes)}")
        return make_serving

    def _read(self, model: ServedModel) -> Callable[[Verb], Serving]:
        """Opens a model, and makes sure that its files did not change meanwhile."""
        engine, path = model.engine, model.path
        try:
            files = state_of(path)
            if engine.hash and files != engine.files:
                rested = rested_state(path)
                if rested is None:
                    raise changing(model.name, path)
                files = rested
                model.check_kind()
            make_serving, file_hash = self._open_model(model), hash_of(path)
        except UnusableModel:
            raise
        except ArtifactError as error:
            raise unusable(model.name, path, error) from None
        if state_of(path) != files:
            raise changing(model.name, path)
        engine.files, engine.hash = files, file_hash
        return make_serving

    def _open_model(self, model: ServedModel) -> Callable[[Verb], Serving]:
        from tformer_cli.kinds.opening import device_of, open_model

        options: dict[str, Any] = {
            "threads": self._threads,
            "tell": self._tell,
            "before_torch": self._prepare_torch,
            **choose_languages(model.tokenizer),
        }
        verb = model.kind.verbs[0]
        is_searched = model.kind.searches and device_of(OpeningSettings()) == "cpu"
        if is_searched:
            try:
                return pack_model(model, open_model(model.path, verb, engine="compiled", **options))
            except UsageError:
                pass  # this model needs torch
        return pack_model(model, open_model(model.path, verb, **options))

    def _prepare_torch(self) -> None:
        from tformer_cli.runtime import prepare_cpu, set_threads

        set_threads(self._threads)
        prepare_cpu()


def in_megabytes(n_bytes: int) -> str:
    return f"{n_bytes / (1 << 20):.3g} MB"


def _usual_threads() -> int:
    if not has_fast():
        return 1
    from tformer_cli.runtime import default_threads

    return default_threads()


def _join_translations(first: Translation, second: Translation) -> Translation:
    """Joins a translation and the translation of it into one."""
    return replace(
        second,
        source=first.source,
        source_ids=first.source_ids,
        is_truncated=first.is_truncated or second.is_truncated,
        is_too_long=first.is_too_long or second.is_too_long,
        unseen=first.unseen,
        through=first,
    )


async def _yield_results(answers: Answers) -> AsyncGenerator[Any]:
    async with aclosing(answers):
        async for result in answers:
            yield result
