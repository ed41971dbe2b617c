"""The request log: one line of JSON per request, never with a key, and with texts only on demand.

A thread writes it, so that a slow disk delays no answer; when its queue is full, lines are dropped
and counted. Each line is one append, by one process at a time. A file that was renamed or removed
is created again, so that log rotation needs no signal.
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
"""Maximum lines waiting for the disk."""
LEFT = 499
"""Status of a request whose client left before the answer, as in nginx."""
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
    """Texts given to models; None if they are not logged."""
    n_texts: int = 0
    n_characters: int = 0
    n_received: int = 0
    n_sent: int = 0
    status: int = 0

    def line(self, began: float, seconds: float) -> bytes:
        """Formats the entry as one line of ASCII, whatever the client sent."""
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
"""Entry of the current request."""


def note_model(name: str | Sequence[str], texts: Sequence[str] = ()) -> None:
    """Records the models that a request uses, and the texts that they get."""
    entry = ENTRY.get()
    if entry is None:
        return
    entry.models |= dict.fromkeys((name,) if isinstance(name, str) else name)
    entry.n_texts += len(texts)
    entry.n_characters += sum(map(len, texts))
    if entry.texts is not None:
        entry.texts += texts


class RequestLog:
    """A log file, or stderr."""

    def __init__(self, path: Path, tell: Callable[[BaseException], None]) -> None:
        """Takes a function that reports write errors; create the log before any fork."""
        self._path, self._tell = path, tell
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._descriptor: int | None = None
        self._problem = ""
        # Shared by all processes: a pipe takes long lines in parts
        self._lock = tempfile.TemporaryFile()  # noqa: SIM115 - until `close`
        self.n_lost = 0

    def add(self, line: bytes) -> None:
        if self._thread is None:  # started here, since threads do not survive a fork
            self._thread = threading.Thread(target=self._run, name="tformer-log", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self.n_lost += 1

    def close(self, seconds: float = 2.0) -> None:
        """Waits for pending lines, up to a time limit."""
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
                if reason != self._problem:  # once per failure
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
                # End the partial line
                with suppress(OSError):
                    os.write(place, b"\n")
                raise

    def _open(self) -> int:
        """Returns the file descriptor; reopens the file if it was replaced."""
        if str(self._path) == STDERR:
            return 2
        if self._descriptor is not None:
            with suppress(OSError):
                if os.path.samestat(os.stat(self._path), os.fstat(self._descriptor)):  # noqa: PTH116
                    return self._descriptor
            os.close(self._descriptor)
            self._descriptor = None
        # Nonblocking: a pipe without a reader is an error at once
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY
        self._descriptor = os.open(self._path, flags, 0o600)
        return self._descriptor


class LogRequests:
    """Middleware that gives each request an id, and logs its answer."""

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
