"""The log of requests: a line of JSON for each, never with a key, and with texts only if asked.

A thread writes it, so that a disk that hangs holds up no answer; lines that it cannot take are
counted and left out. A line is one write to the end of the file, of one process at a time. A file
that was renamed or removed is made anew, so that programs that rotate logs need no signal.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import secrets
import tempfile
import threading
import time
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tformer_cli.errors import TformerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

STDERR = "-"
MOST_WAITING = 10_000
"""Lines that wait for a disk."""
LEFT = 499
"""Status of a request whose client left before there was one, as nginx counts it."""
METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE")


@dataclass
class Entry:
    """A line of the log: one request."""

    id: str
    client: str
    method: str
    route: str = "other"
    models: dict[str, None] = field(default_factory=dict)
    texts: list[str] | None = None
    """Texts that the models were given; None: not to be kept."""
    n_texts: int = 0
    n_characters: int = 0
    n_received: int = 0
    n_sent: int = 0
    status: int = 0

    def line(self, began: float, seconds: float) -> bytes:
        """Writes it as a line, in ASCII: whatever a client sent, it ends nowhere else."""
        record: dict[str, object] = {
            "time": datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds"),
            "id": self.id,
            "client": self.client,
            "method": self.method,
            "route": self.route,
            "model": ",".join(self.models),
            "texts": self.n_texts,
            "characters": self.n_characters,
            "received": self.n_received,
            "sent": self.n_sent,
            "status": self.status or LEFT,
            "milliseconds": round(1000 * seconds, 1),
        }
        if self.texts is not None:
            record["text"] = self.texts
        return json.dumps(record).encode() + b"\n"


ENTRY: ContextVar[Entry | None] = ContextVar("ENTRY", default=None)
"""That of the request which is being answered."""


def note_model(name: str | Sequence[str], texts: Sequence[str] = ()) -> None:
    """Notes a model that a request uses, or several, and the texts that it gets."""
    entry = ENTRY.get()
    if entry is None:
        return
    entry.models |= dict.fromkeys((name,) if isinstance(name, str) else name)
    entry.n_texts += len(texts)
    entry.n_characters += sum(map(len, texts))
    if entry.texts is not None:
        entry.texts += texts


class RequestLog:
    """A file, or stderr, that lines are appended to."""

    def __init__(self, path: Path, tell: Callable[[BaseException], None]) -> None:
        """Takes how to tell the operator that it cannot be written; made before any fork."""
        self._path, self._tell = path, tell
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._descriptor: int | None = None
        self._problem = ""
        # Of all processes: a pipe takes long lines in parts
        self._lock = tempfile.TemporaryFile()  # noqa: SIM115 - until `close`
        self.n_lost = 0

    def add(self, line: bytes) -> None:
        if self._thread is None:  # in the process that writes: threads do not survive a fork
            self._thread = threading.Thread(target=self._run, name="tformer-log", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self.n_lost += 1

    def close(self, seconds: float = 2.0) -> None:
        """Waits until all is written, but not for a disk that hangs."""
        if self._thread is not None:
            with suppress(queue.Full):
                self._waiting.put_nowait(None)
            self._thread.join(seconds)
        if self._thread is None or not self._thread.is_alive():
            self._lock.close()
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                fcntl.lockf(self._lock, fcntl.LOCK_EX)
                try:
                    self._write(line)
                finally:
                    fcntl.lockf(self._lock, fcntl.LOCK_UN)
                self._problem = ""
            except OSError as error:
                self.n_lost += 1
                reason = error.strerror or str(error)
                if reason != self._problem:  # once, until it works again
                    self._problem = reason
                    words = f"--log: {self._path}: {reason.lower()}; lines are lost"
                    with suppress(OSError, ValueError):  # stderr may be gone, too
                        self._tell(TformerError(words))

    def _write(self, line: bytes) -> None:
        place = self._open()
        n_written = os.write(place, line)
        while n_written < len(line):
            try:
                n_written += os.write(place, line[n_written:])
            except OSError:
                # The next line must not continue it
                with suppress(OSError):
                    os.write(place, b"\n")
                raise

    def _open(self) -> int:
        """Returns where to write, opened anew if the file is another one by now."""
        if str(self._path) == STDERR:
            return 2
        if self._descriptor is not None:
            with suppress(OSError):
                if os.path.samestat(os.stat(self._path), os.fstat(self._descriptor)):  # noqa: PTH116
                    return self._descriptor
            os.close(self._descriptor)
            self._descriptor = None
        # Without waiting: a pipe that nobody reads is an error at once
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY
        self._descriptor = os.open(self._path, flags, 0o600)
        return self._descriptor


class LogRequests:
    """Stands before the application: names each request, and notes how it was answered."""

    def __init__(self, app: ASGIApp, log: RequestLog | None, *, has_text: bool = False) -> None:
        self._app, self._log, self._has_text = app, log, has_text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, started = time.time(), time.monotonic()
        client = (scope.get("client") or ("",))[0]
        method = scope["method"] if scope["method"] in METHODS else "other"
        entry = Entry(secrets.token_hex(8), client, method)
        entry.texts = [] if self._has_text else None
        ENTRY.set(entry)

        async def count_received() -> Message:
            message = await receive()
            entry.n_received += len(message.get("body", b""))
            return message

        async def count_sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                entry.status = message["status"]
                more = (b"x-request-id", entry.id.encode())
                message = {**message, "headers": [*message["headers"], more]}
            entry.n_sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, count_received, count_sent)
        finally:
            if self._log is not None:
                seconds = time.monotonic() - started
                self._log.add(entry.line(began, seconds))
