"""The service's end of the inspecting process: sends requests to it, and receives its events.

Importing torch takes seconds, so the process starts when the live page is opened, not with the
first request. It ends when idle, since torch holds 300 MB. If it crashes, waiting requests get an
error, and the next request starts a new process.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

COMMAND = (sys.executable, "-m", "tformer_cli.plugins.serve.inspection")
IDLE_SECONDS = 600.0
LONGEST_LINE = 1 << 26
"""Maximum bytes of an event: the maps of 256 tokens in a large model."""
DIED = "the inspection ended unexpectedly; try again"


class Inspector:
    """Inspects in a process that starts on demand and ends when idle."""

    def __init__(
        self, *, idle_seconds: float = IDLE_SECONDS, command: Sequence[str] = COMMAND
    ) -> None:
        self._idle_seconds = idle_seconds
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._numbers = count()
        self._waiting: dict[int, asyncio.Queue[dict[str, Any] | None]] = {}
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """Process id; None if no process is running."""
        is_alive = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and is_alive else None

    async def start(self) -> None:
        """Starts the process if there is none; does not wait until it is ready."""
        async with self._starting:
            if self.pid is None:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    limit=LONGEST_LINE,
                    # Ctrl-C in the terminal reaches only the service, which then ends it
                    start_new_session=True,
                )
                # A new table, so that the end of the previous process affects no new request
                self._waiting = {}
                self._reading = asyncio.create_task(_read(self._process, self._waiting))
        self._rest()

    async def events(
        self, model: Path, request: Mapping[str, Any]
    ) -> AsyncIterator[dict[str, Any]]:
        """Yields the events of a request; closing the iterator cancels the rest."""
        await self.start()
        number = next(self._numbers)
        waiting = self._waiting
        events = waiting[number] = asyncio.Queue()
        is_running = self._send({"id": number, "model": str(model), "request": dict(request)})
        try:
            while is_running:
                event = await events.get()
                if event is None:
                    yield {"event": "error", "message": DIED}
                    return
                is_running = event["event"] not in ("done", "error")
                yield event
        finally:
            del waiting[number]
            # A keystroke abandons the answer to the previous one, so cancel it
            if is_running:
                self._send({"cancel": number})
            self._rest()

    async def close(self) -> None:
        """Ends the process."""
        if self._idle is not None:
            self._idle.cancel()
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.wait()
        if self._reading is not None:
            await self._reading

    def _send(self, order: Mapping[str, Any]) -> bool:
        """Writes a line; if the process has just died, the reader notices."""
        if self._process is None or self._process.stdin is None:
            return False
        with suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
        return True

    def _rest(self) -> None:
        """Restarts the timer that ends an idle process."""
        if self._idle is not None:
            self._idle.cancel()
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(self._idle_seconds, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self._waiting:
            self._rest()
        elif self.pid is not None and self._process is not None:
            self._process.kill()


async def _read(
    process: asyncio.subprocess.Process, waiting: Mapping[int, asyncio.Queue[dict[str, Any] | None]]
) -> None:
    """Passes on the events of a process until it ends."""
    assert process.stdout is not None  # noqa: S101
    with suppress(ValueError, ConnectionError):  # a line longer than any event
        async for line in process.stdout:
            event = json.loads(line)
            events = waiting.get(event.pop("id", -1))
            if events is not None:
                events.put_nowait(event)
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
    for events in waiting.values():
        events.put_nowait(None)
