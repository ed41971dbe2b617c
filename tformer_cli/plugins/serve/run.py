"""Running the service: the listening socket, the workers, and a graceful shutdown.

Workers are forked after the models are loaded, and so share the memory of the weights. All accept
connections on one socket. After SIGTERM or SIGINT, current requests have limited time to finish.
"""

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from types import FrameType
from typing import Any, NoReturn

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from tformer_cli.errors import ArtifactError, TformerError, UsageError
from tformer_cli.plugins.serve.app import make_app
from tformer_cli.plugins.serve.config import CONNECTIONS, DRAIN_SECONDS, HEADER_SECONDS
from tformer_cli.plugins.serve.dialects import plain_error
from tformer_cli.plugins.serve.requests import Refused
from tformer_cli.plugins.serve.security import ENCODED_HEADERS, IS_CROWDED
from tformer_cli.plugins.serve.site import Site, report
from tformer_cli.plugins.serve.watching import UnusableModel
from tformer_cli.runtime import soft_limit

HEADER_BYTES = 64 << 10
STUCK_SECONDS = 60.0
"""Seconds that a client may leave sent data unread."""
LITTLE_BYTES = 4096
"""Requests below this many bytes are cheap, even if the client has already left."""
PATIENT_SECONDS, IMPATIENT_SECONDS = 0.3, 0.05
"""Seconds before checking whether a client that closed its sending side has left."""
LINGER_SECONDS, LINGER_BYTES = 2.0, 64 << 20
"""Seconds and bytes that a refused client may continue to send."""
CROWDED_SECONDS = 1.0
"""Seconds that a client may take to send its header when all places are taken."""
MORE_CONNECTIONS = 16
"""Connections beyond the limit, kept open to be refused properly, before one is closed."""
OTHER_FILES = 32
"""Open files besides connections: models, pipes, files being written."""
BACKLOG = 512
TICKS = 10
"""Ticks of uvicorn per second."""
FASTEST_DEATH = 1.0
"""A worker that lives shorter than this many seconds will probably die again."""
MOST_DEATHS = 3
HOPELESS = 3
"""Exit status of a worker that found no usable model; a new worker would not help."""
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that shut down the service gracefully; the last one is ignored under nohup."""
TOGETHER_SECONDS = 0.2
"""Within these seconds a repeated signal is the same one, passed on by another program."""


class LingeringTransport:
    """A connection that closes only after its client has finished sending.

    Closed earlier, a sending client would get a connection reset, and most clients would then never
    read the answer.
    """

    def __init__(self, transport: asyncio.Transport, has_more: Callable[[], bool]) -> None:
        """`has_more` returns True while the client has not sent its whole request."""
        self._transport = transport
        self._has_more: Callable[[], bool] = has_more
        self.left_bytes = LINGER_BYTES
        self.timer: asyncio.TimerHandle | None = None
        """Set once the connection is closing."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self.timer is not None or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing() or not self._has_more():
            self._transport.close()
            return
        loop = asyncio.get_running_loop()
        self.timer = loop.call_later(LINGER_SECONDS, self._transport.abort)
        with suppress(OSError):  # it has left
            self._transport.write_eof()
            self._transport.resume_reading()

    def forget(self) -> None:
        """Drops the reference to the protocol, so that no cycle keeps its memory."""
        self._has_more = bool
        if self.timer is not None:
            self.timer.cancel()

    def skip(self, data: bytes) -> None:
        """Discards data of a refused request."""
        self.left_bytes -= len(data)
        if self.left_bytes < 0:
            self._transport.abort()


class TimedProtocol(AutoHTTPProtocol):  # type: ignore[valid-type, misc] # h11 or httptools
    """HTTP with limits on the time and size of a request header."""

    _timer: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _leaving: asyncio.TimerHandle | None = None
    """Set once the client closed its sending side: it has left, or waits for its answer."""
    _n_bytes = 0

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - uvicorn's
        self._lingering = LingeringTransport(transport, lambda: self._has_unread)
        super().connection_made(self._lingering)
        n_more = len(self.connections) - most_connections()
        if n_more > 0:
            self.app_state: dict[str, Any] = {**self.app_state, IS_CROWDED: True}
        if n_more > MORE_CONNECTIONS:  # each is an open file, and /health needs one, too
            self._make_room()
        self._wait()

    def _make_room(self) -> None:
        """Closes an idle connection beyond the limit."""
        for connection in self.connections:
            is_crowded = connection is not self and IS_CROWDED in connection.app_state
            if is_crowded and not connection._is_answering:
                connection.transport.abort()
                return

    def data_received(self, data: bytes) -> None:
        if self._lingering.timer is not None:
            self._lingering.skip(data)
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
            return
        self._n_bytes += len(data)
        # httptools would buffer an endless header
        if self._n_bytes > HEADER_BYTES:
            self.transport.close()
        self._wait()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - plain text
        """Answers invalid HTTP in the same format as other errors."""
        if self.cycle is not None and not self.cycle.response_complete:
            has_begun = self.cycle.response_started
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if has_begun:
                self.transport.abort()
                return
        answer = plain_error(Refused(400, "the request is not HTTP"))
        headers = [*answer.raw_headers, *ENCODED_HEADERS, (b"connection", b"close")]
        lines = [b"HTTP/1.1 400 Bad Request", *(b": ".join(pair) for pair in headers), b"", b""]
        self.transport.write(b"\r\n".join(lines) + bytes(answer.body))
        self.transport.close()

    def pause_writing(self) -> None:
        """Starts a timeout for a client that does not read, so that it cannot hold its place."""
        super().pause_writing()
        self._stuck = self.loop.call_later(STUCK_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_stuck()
        super().resume_writing()

    def eof_received(self) -> bool:
        """Keeps the connection if the client, such as `nc -N`, still waits for an answer."""
        if self._is_answering and self._leaving is None:
            length = dict(self.cycle.scope["headers"]).get(b"content-length", b"0")
            is_small = length.isdigit() and int(length) < LITTLE_BYTES
            self._leaving = self.loop.call_later(
                PATIENT_SECONDS if is_small else IMPATIENT_SECONDS, self._ask_whether_gone
            )
        return self._leaving is not None

    @property
    def _has_unread(self) -> bool:
        """True if a request was answered before its whole body arrived."""
        cycle = self.cycle
        return cycle is not None and bool(cycle.response_complete and cycle.more_body)

    @property
    def _is_answering(self) -> bool:
        """True while a complete request is being answered."""
        cycle = self.cycle
        return cycle is not None and not (cycle.response_complete or cycle.more_body)

    def _ask_whether_gone(self, *, is_first: bool = True) -> None:
        """Closes the connection if the client has left: sending to it then causes an error."""
        has_left = bool(
            self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        )
        if is_first and not (self.cycle.response_started or getattr(self, "pipeline", ())):
            # HTTP/1.1 clients ignore an interim response; older ones cannot be probed
            if self.cycle.scope["http_version"] == "1.1":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            else:
                has_left = True
        if has_left:
            self.transport.abort()
            return
        seconds = IMPATIENT_SECONDS if is_first else PATIENT_SECONDS
        ask_again = partial(self._ask_whether_gone, is_first=False)
        self._leaving = self.loop.call_later(seconds, ask_again)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._leaving is not None and not self._is_answering:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        self._lingering.forget()
        self._stop_waiting()
        self._stop_stuck()
        super().connection_lost(exc)

    def _stop_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _wait(self) -> None:
        if self._timer is None:
            # When all places are taken, a client must send its request quickly
            seconds = CROWDED_SECONDS if IS_CROWDED in self.app_state else HEADER_SECONDS
            self._timer = self.loop.call_later(seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        self._n_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@cache
def most_connections() -> int:
    """Maximum number of client connections, given the limit on open files."""
    limit = soft_limit("RLIMIT_NOFILE")
    return CONNECTIONS if limit is None else min(CONNECTIONS, limit - OTHER_FILES)


class _Reporter(logging.Handler):
    """Reports errors of the event loop, such as too many open files, in one line, once each."""

    _last: type[BaseException] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and type(error) is not self._last:
            self._last = type(error)
            report(error)


class DrainingServer(uvicorn.Server):
    """A server that finishes current requests on shutdown and admits no new ones."""

    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self._site = site
        self._signals: dict[int, float] = {}
        self.fault: Exception | None = None
        """The error that ended it, if no signal did."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Ctrl-C also reaches workers; with the SIGTERM of their parent it would be a second signal,
        # which makes uvicorn quit without answering
        if self._site.board is not None:
            if sig != signal.SIGINT:
                self.should_exit = True
            return
        # A second signal means: do not wait
        before = self._signals.setdefault(sig, time.monotonic())
        if time.monotonic() - before > TOGETHER_SECONDS:
            self.force_exit = True
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            is_main = threading.current_thread() is threading.main_thread()
            before = signal.getsignal(signal.SIGHUP)
            if not is_main or before == signal.SIG_IGN:
                yield
                return
            signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:  # it is raised again at the end
                signal.signal(signal.SIGHUP, before)

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS == 0 and self.fault is None:
            self.fault = self._site.service.hopeless()
            self.should_exit = self.should_exit or self.fault is not None
        if self._site.board is not None and counter % TICKS == 0:
            with suppress(OSError, ArtifactError):  # a full disk
                _ = self._site.downloads.folder  # creates the folder of the board, if needed
                self._site.board.write(self._site.metrics_text())
            # If the parent was killed, nothing else would end this worker
            self.should_exit = self.should_exit or os.getppid() != self._site.board.owner
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.is_draining = True
        # Between two windows, a document has no lines in the queue, but must be finished
        documents = self._site.documents
        drained = asyncio.ensure_future(
            self._site.service.drain(DRAIN_SECONDS, lambda: bool(len(documents.in_work)))
        )
        await super().shutdown(sockets)
        while not drained.done() and not self.force_exit:
            await asyncio.wait([drained], timeout=1 / TICKS)
        if not drained.done():
            drained.cancel()
            await self._site.service.drain(0.0)
        documents.close()
        if self._site.inspector is not None:
            await self._site.inspector.close()
        if self._site.log is not None:
            await asyncio.to_thread(self._site.log.close)


def listening_socket(host: str, port: int) -> socket.socket:
    """Opens the socket on which all workers accept connections."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise UsageError(f"--host: {host} is not an address of this machine; omit it") from None
    listening = socket.socket(family, kind, protocol)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"--port: {port} is in use on {host}; choose another, or 0 for a free one"
            ) from None
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"--host, --port: {host}, {port}: {reason}; choose others") from None
    listening.setblocking(False)
    return listening


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def open_browser(url: str) -> None:
    """Opens the page, which loads once a worker accepts connections."""
    # In a thread: a text browser would block the service
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def serve_here(site: Site, listening: socket.socket) -> None:
    """Serves in this process until a signal, which is raised again after shutdown."""
    # Its messages have another style, and tracebacks; the app reports what matters
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "python_multipart.multipart"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger("asyncio").handlers = [_Reporter()]
    logging.getLogger("asyncio").propagate = False
    config = uvicorn.Config(
        make_app(site),
        http=TimedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # by --trust-proxy
        server_header=False,
        timeout_graceful_shutdown=int(DRAIN_SECONDS),
        h11_max_incomplete_event_size=HEADER_BYTES,
    )
    server = DrainingServer(config, site)
    server.run([listening])
    if server.fault is not None:
        raise server.fault


class Workers:
    """Worker processes on one socket; a worker that dies is replaced."""

    def __init__(
        self,
        n_workers: int,
        serve: Callable[[], None],
        on_start: Callable[[], object],
        on_end: Callable[[int], object] = int,
    ) -> None:
        """Takes the work of a worker, and callbacks of the parent for start and end."""
        self._n_workers, self._serve = n_workers, serve
        self._on_start, self._on_end = on_start, on_end
        self._started: dict[int, float] = {}
        self._signals: list[int] = []
        self._n_deaths = 0

    def run(self) -> None:
        """Runs until a signal has ended all workers."""
        is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        handled = HANDLED[:-1] if is_ignored else HANDLED
        before = {signum: signal.signal(signum, self._end) for signum in handled}
        signal.signal(signal.SIGALRM, self._kill)
        try:
            for _ in range(self._n_workers):
                self._start()
            self._on_start()  # after the forks, which a thread would disturb
            while self._started:
                pid, status = os.wait()
                self._on_end(pid)
                if os.waitstatus_to_exitcode(status) == HOPELESS and not self._signals:
                    raise ArtifactError("")  # the worker has reported the error
                lived = time.monotonic() - self._started.pop(pid, 0.0)
                if not self._signals:
                    self._replace(lived)
        finally:
            signal.alarm(0)
            self._kill(signal.SIGKILL, None)
            for signum, handler in before.items():
                signal.signal(signum, handler)
        # So that the program ends with the status of the signal
        signal.raise_signal(self._signals[0])

    def _start(self) -> None:
        # Block signals during the fork: the parent must know the process to pass them on, and the
        # worker must not run the handlers of the parent
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        if not self._signals:
            pid = os.fork()
            if pid == 0:
                self._be_worker()
            self._started[pid] = time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)

    def _be_worker(self) -> NoReturn:
        status = 1
        try:
            for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
                signal.signal(signum, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the parent passes it on as SIGTERM
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            self._serve()
            status = 0
        except UnusableModel as error:
            report(error)
            status = HOPELESS
        except Exception as error:  # noqa: BLE001 - the process ends here
            report(error)
        finally:
            # Not `sys.exit`, which would run the cleanup of the parent
            sys.stderr.flush()
            os._exit(status)

    def _replace(self, lived: float) -> None:
        self._n_deaths = self._n_deaths + 1 if lived < FASTEST_DEATH else 0
        if self._n_deaths >= MOST_DEATHS:
            raise TformerError("serve: workers end as soon as they start; try --workers 1")
        self._start()

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        if len(self._signals) > 1:  # a second signal means: do not wait
            self._kill(number, frame)
            return
        self._send(signal.SIGTERM)
        signal.alarm(int(DRAIN_SECONDS) + 5)

    def _kill(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        for pid in self._started:
            with suppress(ProcessLookupError):  # it has just been waited for
                os.kill(pid, number)
