"""Documents of requests: limits per client, and the processes that read documents.

The service itself sees only one window of lines at a time. A process that reads or writes a
document can be stopped at once, when its client leaves or time runs out.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from weakref import finalize

from tformer_cli import errors
from tformer_cli.documents.segments import TooLargeError
from tformer_cli.documents.translating import Request as Line
from tformer_cli.plugins.serve.cache import trim_memory
from tformer_cli.plugins.serve.document_process import (
    MEMORY,
    Frame,
    Session,
    read_frame,
    write_frame,
)
from tformer_cli.plugins.serve.scheduler import Busy, Late

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from tformer_cli.documents.segments import ReadSettings
    from tformer_cli.documents.translating import Answer

MOST_OF_CLIENT = 4
CLIENTS = 2
"""Total documents, as a multiple of the limit per client; each is a process."""
RECEIVED = 2
"""Uploads received at once, as a multiple of the documents in work; each is held in memory."""
SHORT = 10_000
"""Documents up to this many characters are read in a thread, which beats starting a process."""
STEP_SECONDS = 300.0
"""Time limit for a process to insert a window of translations into a document."""
RETRY_SECONDS = 10
"""Seconds after which a client may send a refused document again."""
KEPT = 2
"""Idle processes kept for the next document."""
KEPT_BYTES = 128 << 20
"""A process above this memory ends after its document, to return the memory."""
COMMAND = (sys.executable, "-m", "tformer_cli.plugins.serve.document_process")


class EndedProcess(errors.TformerError):
    """A document process was killed, for example because memory ran out."""


class Places:
    """Limits the documents at one time, per client and in total."""

    def __init__(self, most_of_client: int, most: int) -> None:
        self._most_of_client, self._most = most_of_client, most
        self._held: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        return self._held.total()

    @contextmanager
    def place(self, client: Hashable) -> Iterator[None]:
        """Holds a place, or raises `Busy`."""
        if self._held[client] >= self._most_of_client:
            raise Busy(
                f"{self._most_of_client} of your documents are in work; send this one later",
                RETRY_SECONDS,
            )
        if len(self) >= self._most:
            raise Busy("too many documents are in work; send this one later", RETRY_SECONDS)
        self._held[client] += 1
        try:
            yield
        finally:
            self._held[client] -= 1
            if not self._held[client]:  # clients come and go
                del self._held[client]


class Process:
    """A process that reads and writes documents, one after the other."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this program itself
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal is only for the service
        )
        self._is_large = False
        self.close = finalize(self, _end, self._process)
        """Kills the process and waits until it has ended."""

    @property
    def can_be_kept(self) -> bool:
        return self._process.poll() is None and not self._is_large

    def obey(self, order: Mapping[str, Any], contents: list[bytes]) -> Frame:
        """Sends an order and waits for the reply; `kill` ends the wait."""
        assert self._process.stdin is not None  # noqa: S101 - they are pipes
        assert self._process.stdout is not None  # noqa: S101
        with suppress(OSError, ValueError):  # it has ended, as its reply says
            write_frame(self._process.stdin, order, contents)
        contents.clear()
        reply = read_frame(self._process.stdout)
        if reply is None:
            raise EndedProcess("the process that reads documents has ended unexpectedly")
        self._is_large = reply[0]["peak"] > KEPT_BYTES
        _raise_error(reply[0])
        return reply

    def kill(self) -> None:
        self._process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):  # what was not sent yet
            if stream is not None:
                stream.close()


def _raise_error(reply: Mapping[str, Any]) -> None:
    """Raises the error that a reply carries, if any."""
    name, message = reply.get("error"), reply.get("message", "")
    if name is None:
        return
    if name == MemoryError.__name__:
        raise TooLargeError(f"the document takes more than {MEMORY >> 20} MB to read; divide it")
    if name == TooLargeError.__name__:
        raise TooLargeError(message)
    if not reply["is_known"]:
        raise RuntimeError(f"{name}: {message}")
    raise getattr(errors, name, errors.DataError)(message)


class Reader:
    """Hands out the lines of the documents of one request, and takes their translations."""

    def __init__(self, session: Session | Process, executor: Executor) -> None:
        self._session, self._executor = session, executor
        self.texts: list[str] = []
        """Texts from which to guess the language."""
        self.contents: list[bytes] = []
        """The translated documents, complete once `next` returns no lines."""
        self.summary: dict[str, Any] = {}
        """Counts over all documents, and a warning if some text was not translated."""

    async def read(
        self, name: str, contents: list[bytes], settings: ReadSettings, deadline: float
    ) -> None:
        order = {"do": "read", "format": name, "settings": asdict(settings)}
        reply, _ = await self._reply(order, contents, deadline - time.monotonic())
        self.texts = reply["texts"]

    async def next(self, answers: Sequence[Answer]) -> list[Line]:
        """Takes the translations of the last window; returns the lines of the next one."""
        order = {"do": "next", "answers": [(answer.text, answer.links) for answer in answers]}
        reply, contents = await self._reply(order, [], STEP_SECONDS)
        if "lines" in reply:
            return [Line(text, needs_links) for text, needs_links in reply["lines"]]
        self.contents, self.summary = contents, reply["summary"]
        return []

    async def _reply(self, order: dict[str, Any], contents: list[bytes], seconds: float) -> Frame:
        loop = asyncio.get_running_loop()
        order["seconds"] = seconds
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                return await loop.run_in_executor(
                    self._executor, self._session.obey, order, contents
                )
        except TimeoutError:
            reason = f"the document was not read or written in {seconds:.0f} seconds; divide it"
            raise Late(reason) from None


class Documents:
    """The documents of a service."""

    def __init__(
        self,
        most_of_client: int = MOST_OF_CLIENT,
        *,
        is_apart: bool = True,
        command: Sequence[str] = COMMAND,
    ) -> None:
        """Takes the limit per client; if `is_apart` is false, a thread reads the documents."""
        self._is_apart, self._command = is_apart, command
        most = CLIENTS * most_of_client
        self.in_work = Places(most_of_client, most)
        self.received = Places(RECEIVED * most_of_client, RECEIVED * most)
        # Two each: the thread of a process that was just killed ends a moment later
        self._threads = ThreadPoolExecutor(2 * most, "tformer-documents")
        self._short_threads = ThreadPoolExecutor(1, "tformer-pages")
        self._kept: list[Process] = []

    @asynccontextmanager
    async def reading(
        self,
        name: str,
        contents: list[bytes],
        settings: ReadSettings,
        deadline: float,
        *,
        is_short: bool = False,
    ) -> AsyncIterator[Reader]:
        """Reads documents of one format; ends all their work when the context exits."""
        if is_short or not self._is_apart:
            reader = Reader(Session(), self._short_threads)
            await reader.read(name, contents, settings, deadline)
            yield reader
            return
        # Skip processes that have ended meanwhile
        self._kept = [process for process in self._kept if process.can_be_kept]
        process = self._kept.pop() if self._kept else await self._start_process()
        is_good = False
        try:
            reader = Reader(process, self._threads)
            await reader.read(name, contents, settings, deadline)
            yield reader
            is_good = bool(reader.contents)
        finally:
            if is_good and process.can_be_kept and len(self._kept) < KEPT:
                self._kept.append(process)
            else:
                process.kill()
                self._threads.submit(process.close)
            self._threads.submit(trim_memory)

    async def _start_process(self) -> Process:
        loop = asyncio.get_running_loop()
        try:
            # In a thread: on a busy machine this takes a while
            return await loop.run_in_executor(self._threads, Process, self._command)
        except OSError as error:
            reason = (error.strerror or "an error of the system").lower()
            raise Busy(f"no document can be read now ({reason})", RETRY_SECONDS) from None

    def close(self) -> None:
        """Ends the idle processes."""
        while self._kept:
            self._kept.pop().close()
