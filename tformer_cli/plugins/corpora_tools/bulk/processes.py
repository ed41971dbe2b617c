"""Processes of this machine that translate shards; one that dies is replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from contextlib import contextmanager, suppress
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Literal

from tformer_cli.errors import TformerError
from tformer_cli.plugins.corpora_tools.bulk.shards import MOST_ATTEMPTS, Event
from tformer_cli.plugins.corpora_tools.bulk.translate_shard import TIMES, check_answer
from tformer_cli.runtime import n_processors
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tformer_cli.plugins.corpora_tools.bulk.shards import Task

SECONDS_TO_END = 10.0
MODULE = "tformer_cli.plugins.corpora_tools.bulk.worker"


class LocalProcesses:
    """The engine that needs no other program."""

    def __init__(self, workers: int | None = None, threads: int = 0) -> None:
        """Starts nothing yet."""
        processors = n_processors()
        self._is_chosen = workers is not None
        self._n_workers = workers or processors
        self._threads = threads or max(1, processors // self._n_workers)

    @contextmanager
    def start(self, opening: str) -> Iterator[_Processes]:
        """Starts the first process; see `BulkEngine`."""
        about = json.loads(opening)
        about["options"]["threads"] = self._threads
        running = _Processes(json.dumps(about), self._n_workers, self._threads)
        try:
            running.open()
            # The number of processors says nothing about a GPU
            if str(running.facts["place"]) != "cpu" and not self._is_chosen:
                running.n_workers = max(1, len(running.devices))
            elif running.n_workers > len(running.devices) > 0:
                gpus = count_of(len(running.devices), "GPU")
                note = (
                    f"--workers: {running.n_workers} share {gpus}, each with its copy of the model"
                )
                running.facts["notes"] = [*running.facts.get("notes", ()), note]
            yield running
        finally:
            running.stop()


class _Worker:
    """A process, and the shard that it translates."""

    def __init__(
        self, name: str, opening: str, threads: int, queue: SimpleQueue[tuple[_Worker, Any]]
    ) -> None:
        self.name = name
        self.device = str(json.loads(opening)["options"].get("device", "auto"))
        self.number: int | None = None
        self.is_ready = False
        n_threads = str(threads)
        own = {"OMP_NUM_THREADS": n_threads, "RAYON_NUM_THREADS": n_threads}
        # To import this very package
        path = os.pathsep.join(folder or os.curdir for folder in sys.path)
        self.process = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-P", "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**own, **os.environ, "PYTHONPATH": path},  # what a user has set stays
        )
        self._listener = threading.Thread(target=self._listen, args=(queue,), daemon=True)
        self._listener.start()
        self.tell({"opening": opening})

    def tell(self, record: dict[str, Any]) -> None:
        """Sends something to the process; one that has died is heard of otherwise."""
        assert self.process.stdin is not None  # noqa: S101 - for mypy
        with suppress(OSError):
            self.process.stdin.write(json.dumps(record).encode() + b"\n")
            self.process.stdin.flush()

    def close(self) -> None:
        """Closes its stdin: it ends at once, whatever it is doing."""
        assert self.process.stdin is not None  # noqa: S101 - for mypy
        with suppress(OSError):
            self.process.stdin.close()

    def end(self) -> str:
        """Waits for its end, in the end by force, and describes that."""
        self.close()
        try:
            status = self.process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._listener.join()
        if status >= 0:
            return f"exit status {status}"
        name = signal.strsignal(-status) or str(-status)
        memory = "; memory may be short" if -status == signal.SIGKILL else ""
        return f"{name.lower()}{memory}"

    def _listen(self, queue: SimpleQueue[tuple[_Worker, Any]]) -> None:
        assert self.process.stdout is not None  # noqa: S101 - for mypy
        with self.process.stdout as answers:
            for line in answers:
                if line.endswith(b"\n"):  # a kill may cut the last one off
                    queue.put((self, json.loads(line)))
        queue.put((self, None))


class _Processes:
    """The processes of one corpus."""

    def __init__(self, opening: str, n_workers: int, threads: int) -> None:
        self.facts: dict[str, Any] = {}
        self.n_workers = n_workers
        self.devices: list[str] = []
        """GPUs that the processes are spread over; empty: they compute where the first one does."""
        self._opening = opening
        self._threads = threads
        self._workers: list[_Worker] = []
        self._answers: SimpleQueue[tuple[_Worker, Any]] = SimpleQueue()
        self._names = map(str, count(1))
        self._n_failed_starts = 0

    def open(self) -> None:
        """Has a first process open the model."""
        while not self.facts:
            self._start_one()
            worker, message = self._answers.get()
            if message is None:
                self._count_failed_start(worker)
            else:
                self.facts = self._ready(worker, message)
                # An index in --device is a choice; CUDA_VISIBLE_DEVICES bounds what is counted
                if ":" not in worker.device:
                    self.devices = [f"cuda:{n}" for n in range(self.facts.get("n_gpus", 0))]
                    worker.device = next(iter(self.devices), worker.device)

    def run(self, tasks: Iterable[tuple[int, Task]]) -> Iterator[Event]:
        """Translates shards; see `Running`."""
        by_number = dict(tasks)
        waiting, deaths = deque(by_number), Counter[int]()
        try:
            yield from (Event(kind="ready", worker=worker.name) for worker in self._workers)
            while waiting or any(worker.number is not None for worker in self._workers):
                self._employ(waiting, by_number)
                worker, message = self._answers.get()
                if message is not None:
                    yield self._event(worker, message)
                elif worker.number is None:
                    self._count_failed_start(worker)
                else:
                    yield self._requeue_shard(worker, deaths, waiting)
        finally:
            self.stop()

    def stop(self) -> None:
        """Ends all processes."""
        for worker in self._workers:  # all are told first, so that they end side by side
            worker.close()
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def _employ(self, waiting: deque[int], tasks: Mapping[int, Task]) -> None:
        """Starts as many processes as there is work for, and gives the idle ones some."""
        busy = sum(worker.number is not None for worker in self._workers)
        # A process without a shard would open the model in vain
        while len(self._workers) < min(self.n_workers, busy + len(waiting)):
            self._start_one()
        for worker in self._workers:
            if waiting and worker.is_ready and worker.number is None:
                worker.number = waiting.popleft()
                worker.tell({"task": tasks[worker.number].as_json()})

    def _requeue_shard(self, worker: _Worker, deaths: Counter[int], waiting: deque[int]) -> Event:
        """Gives the shard of a process that has died to another, unless several have."""
        self._workers.remove(worker)
        number = worker.number
        assert number is not None  # noqa: S101 - for mypy
        deaths[number] += 1
        is_last = deaths[number] == MOST_ATTEMPTS  # a shard that kills all would never end
        if not is_last:
            waiting.appendleft(number)
        kind: Literal["lost", "given up"] = "given up" if is_last else "lost"
        return Event(kind=kind, worker=worker.name, number=number, reason=worker.end())

    def _start_one(self) -> None:
        opening = self._opening
        if self.devices:
            about = json.loads(opening)
            used = Counter(worker.device for worker in self._workers)
            about["options"]["device"] = min(self.devices, key=lambda device: used[device])
            about["options"]["precision"] = self.facts["precision"]  # one "auto" for all
            opening = json.dumps(about)
        self._workers.append(_Worker(next(self._names), opening, self._threads, self._answers))

    def _ready(self, worker: _Worker, message: dict[str, Any]) -> dict[str, Any]:
        facts: dict[str, Any] = message["ready"]
        check_answer(facts)
        worker.is_ready = True
        self._n_failed_starts = 0  # only failures in a row count
        return facts

    def _event(self, worker: _Worker, message: dict[str, Any]) -> Event:
        if "ready" in message:
            self._ready(worker, message)
            return Event(kind="ready", worker=worker.name)
        number = worker.number
        assert number is not None  # noqa: S101 - for mypy
        if "rows" in message:
            rows, times = message["rows"], message.get(TIMES, {})
            return Event(kind="rows", worker=worker.name, number=number, rows=rows, times=times)
        worker.number = None
        return Event(kind="done", worker=worker.name, number=number, answer=message["done"])

    def _count_failed_start(self, worker: _Worker) -> None:
        """Forgets a process that died without a shard."""
        self._n_failed_starts += 1
        end = worker.end()
        if worker in self._workers:
            self._workers.remove(worker)
        if self._n_failed_starts == MOST_ATTEMPTS:
            raise TformerError(
                f"--workers: {count_of(MOST_ATTEMPTS, 'process', 'processes')} ended before the "
                f"model was open ({end}); name fewer workers"
            )
