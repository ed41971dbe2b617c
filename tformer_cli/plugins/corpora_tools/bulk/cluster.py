"""A Dask cluster that translates shards: an existing scheduler and whatever workers it has.

Only names of files and facts go through the scheduler: sources and shards lie on a file system that
all machines share. Workers may come and go. Dask gives the shard of a worker that has died to
another, and after some deaths (the scheduler's `distributed.scheduler.allowed-failures`) an error;
the shard is then submitted again, until it is given up.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from tformer_cli.errors import TformerError, UsageError
from tformer_cli.plugins.corpora_tools.bulk.shards import MOST_ATTEMPTS, Event
from tformer_cli.plugins.corpora_tools.bulk.translate_shard import (
    check_answer,
    describe,
    translate_shard,
)
from tformer_cli.wording import installing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tformer_cli.plugins.corpora_tools.bulk.shards import Task

SHARDS_AHEAD = 4
"""Shards that each worker has or will have next: more would only fill the scheduler's memory."""
CONNECT_SECONDS = 20


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """Files in PEM format that prove who is who."""

    ca: str
    """Certificate of the authority that both sides trust."""
    certificate: str
    """That of this program, signed by it."""
    key: str | None = None
    """Its key; None: it is in the same file."""


class DaskCluster:
    """The engine of `--cluster`."""

    def __init__(
        self,
        address: str,
        tls: TlsFiles | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Connects to nothing yet."""
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise UsageError(
                f"--cluster: needs the package distributed; {installing('cluster')} here and on "
                "every worker"
            ) from None
        protocol = "tcp" if tls is None else "tls"
        scheme, sign, rest = address.rpartition("://")
        if sign and scheme == "tcp" and tls is not None:  # certificates must not be ignored
            raise UsageError(f"--cluster: {address} is not encrypted; write tls://{rest}")
        self._address = address if sign else f"{protocol}://{address}"
        self._tls = tls
        self._tell = tell

    @contextmanager
    def start(self, opening: str) -> Iterator[_Cluster]:
        """Connects to the scheduler; see `BulkEngine`."""
        from distributed import Client, Security

        tls = self._tls
        security = None
        if tls is not None:
            security = Security(
                tls_ca_file=tls.ca,
                tls_client_cert=tls.certificate,
                tls_client_key=tls.key or tls.certificate,  # one file may hold both
                require_encryption=True,
            )
        with _quiet(), self._scheduler_errors():
            try:
                client = Client(
                    self._address,
                    security=security,
                    timeout=CONNECT_SECONDS,
                    set_as_default=False,  # a program may have a client of its own
                )
            except (OSError, ValueError, TypeError) as error:
                reason = next(iter(str(error).splitlines()), type(error).__name__)
                raise UsageError(
                    f"--cluster: {self._address} cannot be reached ({reason}); name a running "
                    "scheduler"
                ) from None
            try:
                running = _Cluster(client, opening)
                if not client.nthreads():  # workers may come later: none is no error
                    self._tell(f"{self._address} has no worker; waiting for one")
                running.open()
                yield running
            finally:
                # A scheduler that is gone is waited for in vain
                with suppress(Exception):
                    client.close(timeout=2)

    @contextmanager
    def _scheduler_errors(self) -> Iterator[None]:
        """Says that the scheduler is gone, whatever Dask calls that."""
        from distributed.comm import CommClosedError

        try:
            yield
        except (CancelledError, CommClosedError, TimeoutError):
            raise TformerError(
                f"--cluster: {self._address} is gone; all finished shards are kept: start the "
                "scheduler and run the command again"
            ) from None


class _Cluster:
    """The workers of one corpus."""

    def __init__(self, client: Any, opening: str) -> None:  # noqa: ANN401 - Dask's
        self.facts: dict[str, Any] = {}
        self._client = client
        self._opening = opening

    def open(self) -> None:
        """Has a worker open the model, so that all open it alike."""
        # Dask takes equal calls of pure functions for one, and would not ask again
        future = self._client.submit(_describe, self._opening, pure=False)
        self.facts = _result(future)
        check_answer(self.facts)
        about = json.loads(self._opening)
        about["options"]["precision"] = self.facts["precision"]  # one "auto" for all workers
        about["options"]["device"] = str(self.facts["place"]).partition(":")[0]
        self._opening = json.dumps(about)

    def run(self, tasks: Iterable[tuple[int, Task]]) -> Iterator[Event]:
        """Translates shards; see `Running`."""
        from distributed import as_completed

        by_number: dict[int, Task] = {}
        waiting = iter(tasks)
        numbers: dict[str, int] = {}
        attempts: Counter[int] = Counter()
        futures = as_completed(loop=self._client.loop)  # else the default client's: this is none

        def submit(number: int) -> None:
            attempts[number] += 1
            record = by_number[number].as_json()
            future = self._client.submit(_translate, self._opening, record, pure=False)
            numbers[future.key] = number
            futures.add(future)

        def fill() -> None:
            most = SHARDS_AHEAD * max(1, len(self._client.nthreads()))
            while len(numbers) < most and (following := next(waiting, None)):
                by_number[following[0]] = following[1]
                submit(following[0])

        fill()
        for future in futures:
            number = numbers.pop(future.key)
            event = self._event(future, number, attempts[number])
            if event.kind == "lost":
                submit(number)
            else:
                del by_number[number]
            fill()
            yield event

    def _event(self, future: Any, number: int, n_attempts: int) -> Event:  # noqa: ANN401 - Dask's
        from distributed import KilledWorker

        try:
            answer = _result(future)
        except KilledWorker as error:
            worker = str(getattr(error.last_worker, "address", "unknown"))
            reason = f"{error.allowed_failures + 1} workers in turn"  # Dask tried others first
            if n_attempts == MOST_ATTEMPTS:
                return Event(kind="given up", worker=worker, number=number, reason=reason)
            return Event(kind="lost", worker=worker, number=number, reason=reason)
        return Event(
            kind="done",
            worker=answer["worker"],
            number=number,
            answer=answer["answer"],
            seconds=answer["seconds"],
        )


def _result(future: Any) -> Any:  # noqa: ANN401 - Dask's
    """The result of a function that a worker has called."""
    from distributed import KilledWorker

    try:
        return future.result()
    except (CancelledError, KilledWorker, OSError):  # `_scheduler_errors` and `_event` know these
        raise
    except Exception as error:  # noqa: BLE001 - whatever unpickling and importing raise
        reason = next(iter(str(error).splitlines()), "no message")
        raise TformerError(
            f"--cluster: a worker cannot translate ({type(error).__name__}: {reason}); install "
            "the same tformer for every worker"
        ) from None


def _of_this_worker(opening: str) -> tuple[str, str]:
    """The name of the worker that calls it; and the opening, with its number of threads."""
    from distributed import get_worker

    worker = get_worker()
    about = json.loads(opening)
    about["options"]["threads"] = about["options"].get("threads") or worker.state.nthreads
    return str(worker.name), json.dumps(about)


def _describe(opening: str) -> dict[str, Any]:
    """Called by a worker: `describe`."""
    return describe(_of_this_worker(opening)[1])


def _translate(opening: str, task: dict[str, Any]) -> dict[str, Any]:
    """Called by a worker: `translate_shard`, with the worker's name and the time that it took."""
    name, own = _of_this_worker(opening)
    began = monotonic()  # the client is not told when a shard begins
    answer = translate_shard(own, task)
    return {"worker": name, "answer": answer, "seconds": monotonic() - began}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what Dask logs of lost connections from the terminal: the error says it."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # CRITICAL itself would pass
    try:
        yield
    finally:
        logger.setLevel(before)
