"""A running service as its handlers see it, and the type of its routes."""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from tformer_cli.documents.segments import TooLargeError
from tformer_cli.errors import ArtifactError, DataError, TformerError, UsageError
from tformer_cli.plugins.serve.config import ServeSettings
from tformer_cli.plugins.serve.dialects import Dialect, plain_error
from tformer_cli.plugins.serve.documents import Documents, EndedProcess
from tformer_cli.plugins.serve.downloads import Downloads
from tformer_cli.plugins.serve.languages import Detector, Languages
from tformer_cli.plugins.serve.metrics import Board, Labels, Metrics, counter
from tformer_cli.plugins.serve.models import Busy, Draining, Late, UnknownModel
from tformer_cli.plugins.serve.request_log import RequestLog, note_model
from tformer_cli.plugins.serve.requests import Fields, Refused
from tformer_cli.plugins.serve.security import Keys
from tformer_cli.plugins.serve.suggestions import FULL, SuggestionFile
from tformer_cli.plugins.serve.watching import UnusableModel
from tformer_cli.wording import visible

if TYPE_CHECKING:
    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.plugins.serve.models import Answers, ModelInfo, Service, Versions
    from tformer_cli.search.constraints import LineConstraints

Priority = Literal["interactive", "bulk"]
Chunk = TypeVar("Chunk")
Result = TypeVar("Result")
Results: TypeAlias = "Answers | AsyncGenerator[Any, None]"


@dataclass
class Client:
    """The client of a request, for limits: identified by its key, or else its address."""

    name: str


CLIENT: ContextVar[Client] = ContextVar("client")
"""The client of the current request; unset outside requests."""


@dataclass(kw_only=True)
class Site:
    """A running service, as handlers see it."""

    service: "Service"
    settings: ServeSettings = field(default_factory=ServeSettings)
    keys: Keys = field(default_factory=Keys)
    downloads: Downloads = field(default_factory=Downloads)
    documents: Documents = field(default_factory=Documents)
    metrics: Metrics = field(default_factory=Metrics)
    board: Board | None = None
    """Metrics shared by workers; None with a single process."""
    detector: Detector = field(default_factory=Detector)
    paths: Mapping[str, Path] = field(default_factory=dict)
    """Model directories by name, for the inspector."""
    inspector: Any = None
    """Inspects models in a process with torch; None without torch."""
    is_draining: bool = False
    log: RequestLog | None = None

    @cached_property
    def languages(self) -> Languages:
        return Languages(self.service)

    @cached_property
    def suggestions(self) -> SuggestionFile:
        assert self.settings.suggestions is not None  # noqa: S101 - else none are accepted
        return SuggestionFile(self.settings.suggestions)

    def check_key(self, request: Request, field_key: object = None) -> None:
        """Refuses a request without a valid key, if keys are required."""
        if not self.keys:
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else field_key
        if not isinstance(key, str) or not key:
            raise Refused(401, NO_KEY, code="missing_api_key")
        if not self.keys.accepts(key):
            raise Refused(403, "Invalid API key", code="invalid_api_key")
        if (client := CLIENT.get(None)) is not None:
            client.name = f"key {sha256(key.encode()).hexdigest()}"

    def check_texts(self, texts: Sequence[str], where: str) -> None:
        """Refuses texts beyond the limits of one request."""
        if len(texts) > self.settings.max_texts:
            raise Refused(
                400, f"{where}: has {len(texts)} texts, more than {self.settings.max_texts}"
            )
        longest = max(map(len, texts), default=0)
        if longest > self.settings.max_characters:
            most = self.settings.max_characters
            raise Refused(400, f"{where}: has {longest} characters, more than {most}")

    def model(self, name: str, *verbs: "Verb") -> "ModelInfo":
        """Finds a model by name, or the only model with one of the verbs."""
        infos = [info for info in self.service.info() if not set(verbs).isdisjoint(info.verbs)]
        if name:
            infos = [info for info in infos if info.name == name]
        elif len(infos) > 1:
            names = ", ".join(info.name for info in infos)
            raise Refused(400, f"model: is missing; there are {names}", param="model")
        if not infos:
            what = f'there is no model "{visible(name, 80)}"' if name else "there is no model"
            of = f" for {verbs[0]}" if len(verbs) == 1 else ""
            raise Refused(404, f"{what}{of}", code="model_not_found", param="model")
        note_model(infos[0].name)
        return infos[0]

    def deadline(self, fields: Fields) -> float:
        """Returns the `time.monotonic` time by which a request must be answered."""
        most = self.settings.timeout
        milliseconds = fields.integer("timeout_ms", 1, 3_600_000)
        return time.monotonic() + (most if milliseconds is None else min(milliseconds / 1000, most))

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        # Few, since they block the event loop while they hold the interpreter lock
        return ThreadPoolExecutor(2, "tformer-apart")

    async def apart(
        self,
        function: Callable[..., Result],
        *arguments: Any,  # noqa: ANN401
        **options: Any,  # noqa: ANN401
    ) -> Result:
        """Runs a function in a thread, so that it does not block the event loop."""
        work = partial(function, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def share(self) -> Board:
        """Creates the board that all workers share, before they start."""
        self.board = Board(self.downloads.folder / "metrics")
        return self.board

    def metrics_text(self) -> str:
        """Writes the metrics of this process."""
        documents: dict[Labels, float] = {(): len(self.documents.in_work)}
        own = counter("tformer_documents", "Documents in work.", documents, "gauge")
        return self.metrics.text(self.service.info(), self.service.stats) + "\n".join(own) + "\n"

    def results(
        self,
        name: str | Sequence[str],
        verb: "Verb",
        texts: Sequence[str],
        *,
        settings: Mapping[str, object],
        constraints: "Sequence[LineConstraints] | None" = None,
        priority: Priority | None = None,
        deadline: float,
        is_streamed: bool = False,
        has_place: bool = False,
        is_admitted: bool = False,
        versions: "Versions | None" = None,
    ) -> Results:
        """Requests the results of texts, in order; closing early drops units that have not begun.

        If the only text is streamed, its parts come first, as strings.
        """
        note_model(name, texts)
        return self.service.submit(
            name,
            verb,
            texts,
            settings={key: value for key, value in settings.items() if value is not None},
            constraints=constraints,
            priority=priority,
            deadline=deadline,
            is_streamed=is_streamed,
            client=client_name(),
            has_place=has_place,
            is_admitted=is_admitted,
            versions=versions,
        )


def client_name() -> str | None:
    """Returns the name of the client of the current request."""
    client = CLIENT.get(None)
    return None if client is None else client.name


async def prepend(first: Chunk, rest: AsyncGenerator[Chunk, None]) -> AsyncGenerator[Chunk, None]:
    """Yields a first chunk, which the caller has already awaited, and then the rest."""
    async with aclosing(rest):
        yield first
        async for chunk in rest:
            yield chunk


def refusal(error: Exception) -> Refused:
    """Turns an error into the response that the client gets."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, Busy):
        wait = {"retry-after": str(error.retry_after)}
        return Refused(429, f"Slowdown: {error}", code="rate_limit_exceeded", headers=wait)
    if isinstance(error, Draining):
        return Refused(503, str(error), code="unavailable", headers={"retry-after": "1"})
    if isinstance(error, Late):
        return Refused(504, str(error), code="deadline_exceeded")
    if isinstance(error, UnknownModel):
        return Refused(404, str(error), code="model_not_found", param="model")
    if isinstance(error, TooLargeError):
        return Refused(413, str(error))
    if isinstance(error, UsageError | DataError):
        return Refused(400, error.in_arguments)
    if isinstance(error, UnusableModel):
        if not error.is_known:
            report(error)
        wait = {"retry-after": "1"}
        return Refused(503, error.public, code="unavailable", headers=wait)
    # Only for the operator: other messages may name local files
    report(error)
    if isinstance(error, OSError) and error.errno in FULL:
        return no_room()
    if isinstance(error, EndedProcess):
        words = "the process that read the document has ended; send it again"
        return Refused(503, words, code="unavailable", headers={"retry-after": "10"})
    if isinstance(error, MemoryError):
        return Refused(503, "there is not enough memory now", code="unavailable")
    if isinstance(error, ArtifactError):
        return Refused(503, "the model cannot be used now", code="unavailable")
    return Refused(500, "the service failed; its operator can see why", code="internal_error")


def no_room() -> Refused:
    return Refused(507, "there is no room for the result", headers={"retry-after": "60"})


def report(error: BaseException) -> None:
    """Reports an error on stderr, in one line; clients do not see it."""
    reason = str(error).partition("\n")[0]
    name = "" if isinstance(error, TformerError) else f"{type(error).__name__}: "
    sys.stderr.write(f"error: serve: {name}{visible(reason, LONGEST_REPORT)}\n")
    sys.stderr.flush()


LONGEST_REPORT = 500
NO_KEY = "Please contact the server operator to get an API key"
Handler = Callable[[Site, Request], Awaitable[Response]]


@dataclass(frozen=True)
class Route:
    """A path with its handler and its error format."""

    method: Literal["GET", "POST"]
    path: str
    """The handler gets parts such as {name} as `request.path_params`."""
    handler: Handler
    error: Dialect = plain_error
