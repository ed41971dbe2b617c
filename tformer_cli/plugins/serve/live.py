"""Our own API: results of every verb, with inspections, as lines of JSON, cheapest first."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, get_args

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tformer_cli.errors import DataError
from tformer_cli.plugins.serve.config import MOST_BEAM, MOST_HYPOTHESES, MOST_TOKENS
from tformer_cli.plugins.serve.events import RESULTS, SCHEMA, add_pieces, alignment_of
from tformer_cli.plugins.serve.requests import Fields, Refused, read_json
from tformer_cli.plugins.serve.scheduler import FEW_UNITS, Late
from tformer_cli.plugins.serve.site import Priority, Route, Site, prepend, refusal
from tformer_cli.search.constraints import LineConstraints
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from tformer_cli.artifacts.config_file import Verb
    from tformer_cli.plugins.serve.models import ModelInfo

MOST_MODELS = 4
MOST_PHRASES = 50
MOST_SENTENCES = 10_000
IMAGE = "data:"
"""Prefix of an inline image; any other address would name a file."""
MOST_IMAGE = 1_000_000
"""Maximum characters of an image's address, which must fit into a body."""
INSPECTED = ("alignment", "heads", "tree", "next", "lens", "off", "report", "positions")
"""Values of `want`, the events beyond the translation, in addition to all views of sentences. The
inspector computes them, except for the alignment of a text that was just translated."""


_LIMITS: Mapping[str, tuple[type, float, float]] = {
    "beam_size": (int, 1, MOST_BEAM),
    "length_penalty": (float, 0.0, 10.0),
    "n_best": (int, 1, MOST_HYPOTHESES),
    "max_length": (int, 1, MOST_TOKENS),
    "temperature": (float, 0.01, 10.0),
    "top_k": (int, 0, 10_000),
    "top_p": (float, 1e-6, 1.0),
    "seed": (int, 0, 2**63 - 1),
    "top": (int, 1, 100),
}
"""Numeric fields: type, minimum and maximum."""
_SAMPLED = ("temperature", "top_k", "top_p")
_COMMON = (
    *("model", "models", "text", "priority", "timeout_ms", "want", "heads_off", "target"),
    *("head", "token"),
)
_DECISION = ("model", "text", "other", "target", "foil", "timeout_ms")
_LANGUAGES = ("source_language", "target_language")
_PHRASES = ("require", "ban")
_TEXTS = ("prefix", "target", "stop", *_PHRASES)
"""Text fields besides `text`, with the same limit."""
_SEARCH = ("beam_size", "length_penalty", "n_best", "max_length", *_SAMPLED, "seed")


_FIELDS: "Mapping[Verb, tuple[str, ...]]" = {
    "translate": (*_SEARCH, *_LANGUAGES, "prefix", *_PHRASES, "sentence", "doubt"),
    "generate": (*_SEARCH, "stop", "stream"),
    "fill": ("top",),
    "embed": ("pooling", "normalize"),
}
"""Fields of some verbs in addition to the common ones."""


def _settings(fields: Fields, known: Sequence[str]) -> dict[str, object]:
    """Returns the settings of a request, each within its limits."""
    settings: dict[str, object] = {}
    for name in known:
        if name in _LIMITS:
            kind, low, high = _LIMITS[name]
            ask = fields.integer if kind is int else fields.number
            settings[name] = ask(name, low, high)  # type: ignore[arg-type]
    if any(settings.get(name) is not None for name in _SAMPLED):
        settings["sampling"] = True
    settings |= {name: fields.text(name) or None for name in _LANGUAGES if name in known}
    if "doubt" in known:
        settings["doubt"] = fields.flag("doubt") or None
    if "stop" in known:
        settings["stops"] = fields.texts("stop") or None
    if "pooling" in known:
        settings["pooling"] = fields.text("pooling") or None
        has_flag = fields.get("normalize") is not None
        settings["unit_length"] = fields.flag("normalize") if has_flag else None
    return settings


def _constraints(fields: Fields, n_lines: int) -> list[LineConstraints] | None:
    phrases = {name: fields.texts(name) for name in _PHRASES}
    for name, texts in phrases.items():
        if len(texts) > MOST_PHRASES or any(map(is_blank, texts)):
            raise Refused(400, f"{name}: must be at most {MOST_PHRASES} phrases, none empty")
    prefix = fields.text("prefix")
    if not prefix and not any(phrases.values()):
        return None
    constraints = LineConstraints(prefix, phrases["require"], phrases["ban"])
    return [constraints] * n_lines


def _check_length(site: Site, models: "Sequence[ModelInfo]", text: str, where: str) -> None:
    """Refuses a text that is too long; addresses of images may be longer, for image models."""
    if all(model.kind == "image" for model in models) and text.startswith(IMAGE):
        images = text.split("\n")
        if max(map(len, images)) > MOST_IMAGE:
            raise Refused(400, f"{where}: has an image of more than {MOST_IMAGE:,} characters")
        site.check_texts([""] * len(images), where)
    else:
        site.check_texts([text], where)


def _choice(fields: Fields, name: str, known: Sequence[str]) -> str | None:
    value = fields.text(name)
    if value and value not in known:
        raise Refused(400, f"{name}: must be {' or '.join(known)}")
    return value or None


async def answer(verb: "Verb", site: Site, request: Request) -> Response:
    """Streams the results of a verb as events."""
    site.check_key(request)
    fields = await read_json(request)
    known = _FIELDS.get(verb, ())
    if unknown := fields.unknown((*_COMMON, *known)):
        raise Refused(400, f"{unknown[0][:40]}: no such field of /api/{verb}")
    text = fields.get("text")
    if not isinstance(text, str):
        raise Refused(400, "text: is missing, or is not text")
    lines = text.split("\n") if verb != "generate" else [text]
    names = fields.texts("models") or (fields.text("model"),)
    if len(names) > MOST_MODELS:
        raise Refused(400, f"models: give at most {MOST_MODELS}")
    infos = [site.model(name, verb) for name in names]
    _check_length(site, infos, text, "text")
    # Check the types of fields that go to the inspector unchanged
    fields.texts("heads_off"), fields.text("target"), fields.text("prefix"), fields.text("head")
    if not isinstance(fields.get("token"), str):  # a token is also named by its position
        fields.integer("token", 0, MOST_TOKENS)
    for field in _TEXTS:
        site.check_texts(fields.texts(field), field)
    fields.integer("sentence", 0, MOST_SENTENCES)
    wanted = fields.texts("want")
    if unknown_want := set(wanted) - set(known_events()):
        kinds = ", ".join(known_events())
        raise Refused(400, f"want: {min(unknown_want)[:40]} is not an event; use {kinds}")
    events = _Events(
        site,
        verb,
        infos,
        lines,
        settings=_settings(fields, known),
        constraints=_constraints(fields, len(lines)) if "prefix" in known else None,
        priority=_choice(fields, "priority", get_args(Priority)),
        deadline=site.deadline(fields),
        wanted=wanted,
        # With several texts, or a beam, nothing can be streamed
        is_streamed=verb == "generate"
        and fields.flag("stream", default=True)
        and fields.get("n_best") in (None, 1),
        values=fields.values,
    )
    stream = _lines(events.in_time())
    # Await the first event before sending the status, so that an error can set the status
    first = await anext(stream)
    return StreamingResponse(prepend(first, stream), media_type="application/x-ndjson")


async def _lines(events: AsyncGenerator[dict[str, Any], None]) -> AsyncGenerator[bytes, None]:
    """Yields events as lines; an error after the first event becomes the last line."""
    is_first = True
    async with aclosing(events):
        try:
            async for event in events:
                yield _line(
                    {"event": event["event"], "schema": SCHEMA, **event} if is_first else event
                )
                is_first = False
        except Exception as error:
            if is_first:
                raise
            # The status is already sent, so the error becomes an event
            yield _line({"event": "error", "message": refusal(error).message})


def _line(event: dict[str, Any]) -> bytes:
    return json.dumps(event, ensure_ascii=False).encode() + b"\n"


@dataclass(kw_only=True)
class _Request:
    settings: dict[str, object]
    constraints: list[LineConstraints] | None
    priority: Priority | None
    deadline: float
    wanted: Sequence[str]
    is_streamed: bool
    values: dict[str, Any]

    @property
    def needs_torch(self) -> bool:
        """True if the answer itself needs torch: for head gates or an incomplete last word."""
        prefix = str(self.values.get("prefix") or "")
        return bool(self.values.get("heads_off")) or prefix[-1:].isalnum()


class _Events:
    """The events of one request, one model after another."""

    def __init__(
        self,
        site: Site,
        verb: "Verb",
        models: "Sequence[ModelInfo]",
        lines: Sequence[str],
        **request: Any,  # noqa: ANN401 - fields of `_Request`
    ) -> None:
        self._site, self._verb, self._models, self._lines = site, verb, models, lines
        self._request = _Request(**request)
        self._queue_seconds = self._compute_seconds = 0.0
        self._aligned: set[str] = set()
        """Names of models whose alignment was already sent."""

    async def in_time(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yields all events; for few lines, the first result must come before the deadline."""
        is_awaited = len(self._lines) <= FEW_UNITS
        async with aclosing(self.all()) as events:
            while True:
                left = self._request.deadline - time.monotonic() if is_awaited else None
                try:
                    async with asyncio.timeout(left):
                        event = await anext(events)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    raise Late("the request could not be answered in time") from None
                is_awaited = is_awaited and event["event"] == "loading"
                yield event

    async def all(self) -> AsyncGenerator[dict[str, Any], None]:
        if not self._request.needs_torch:
            for model in self._models:
                # Opening may take seconds, so tell the client
                if model.state != "loaded":
                    yield {"event": "loading", "model": model.name}
                async for event in self._compute(model.name):
                    yield event
        started = time.monotonic()
        for model in self._models:
            done = ("alignment",) if model.name in self._aligned else ()
            wanted = [name for name in self._request.wanted if name not in done]
            if wanted or self._request.needs_torch:
                async for event in self._inspect(model.name, wanted):
                    yield event
        seconds = {
            "queue": self._queue_seconds,
            "compute": self._compute_seconds,
            "inspect": time.monotonic() - started,
        }
        yield {"event": "done", "ms": {name: round(1000 * s, 3) for name, s in seconds.items()}}

    async def _compute(self, name: str) -> AsyncGenerator[dict[str, Any], None]:
        request = self._request
        name_of_event, record = RESULTS[self._verb]
        # With several lines, the inspector numbers the sentences of all of them
        is_aligned = self._verb == "translate" and len(self._lines) == 1
        is_aligned = (
            is_aligned and "alignment" in request.wanted and not request.values.get("target")
        )
        results = self._site.results(
            name,
            self._verb,
            self._lines,
            settings={**request.settings, "aligned": True if is_aligned else None},
            constraints=request.constraints,
            priority=request.priority,
            deadline=request.deadline,
            is_streamed=request.is_streamed,
        )
        async with aclosing(results):
            async for result in results:
                if isinstance(result, str):
                    yield {"event": "text", "model": name, "text": result}
                    continue
                event = {"event": name_of_event, "model": name, **record(result)}
                tokenizer = getattr(results, "tokenizer", None)
                if tokenizer is not None:
                    add_pieces(event, tokenizer)
                yield {**event, "cached": getattr(results, "is_cached", False)}
                if is_aligned and is_blank(self._lines[0]):
                    self._aligned.add(name)  # a blank line has no words to align
                    continue
                aligner = self._site.service.aligner(name) if is_aligned else None
                if aligner is not None:
                    number = max(int(request.values.get("sentence") or 0), 0)
                    alignment = alignment_of(aligner, result, number)
                    if alignment is not None:
                        self._aligned.add(name)
                        yield {"event": "alignment", "model": name, **alignment}
        self._queue_seconds += getattr(results, "queue_seconds", 0.0)
        self._compute_seconds += getattr(results, "compute_seconds", 0.0)

    async def _inspect(
        self, name: str, names: Sequence[str]
    ) -> AsyncGenerator[dict[str, Any], None]:
        request = self._request
        wanted = [*(["translation"] if request.needs_torch else []), *names]
        async with aclosing(_inspector_events(self._site, name, wanted, request.values)) as events:
            async for event in events:
                if event["event"] != "done":  # we send our own after the last model
                    yield {"event": event["event"], "model": name, **event}


async def _inspector_events(
    site: Site, name: str, wanted: Sequence[str], values: Mapping[str, Any]
) -> AsyncGenerator[dict[str, Any], None]:
    """Yields the events of the inspecting process; raises its errors."""
    if site.inspector is None:
        raise Refused(501, "inspecting models needs PyTorch, which is not installed here")
    request = {**values, "model": name, "want": list(wanted)}
    async with aclosing(site.inspector.events(site.paths[name], request)) as events:
        async for event in events:
            if event["event"] == "error":
                raise refusal(DataError(str(event["message"])))
            yield event


@cache
def known_events() -> tuple[str, ...]:
    """Lists the values of `want`."""
    from tformer_cli.inspect.view import SentenceView
    from tformer_cli.inspect.views import VIEWS

    views = (name for name, view in VIEWS.items() if isinstance(view, SentenceView))
    return tuple(dict.fromkeys((*INSPECTED, *views)))


async def decide(site: Site, request: Request) -> Response:
    """Answers with the causes of a decision, as `tformer inspect-decision` does."""
    site.check_key(request)
    fields = await read_json(request)
    known = (*_DECISION, *_LANGUAGES, "beam_size", "length_penalty")
    if unknown := fields.unknown(known):
        raise Refused(400, f"{unknown[0][:40]}: no such field of /api/decision")
    texts = {name: fields.text(name) for name in ("text", "other", "target", "foil")}
    if is_blank(texts["text"]):
        raise Refused(400, "text: is missing, or is blank; give a sentence")
    model = site.model(fields.text("model"), *RESULTS)
    for name, text in texts.items():
        _check_length(site, [model], text, name)
    _settings(fields, known)  # checked here, sent unchanged
    deadline = site.deadline(fields)
    try:
        async with (
            asyncio.timeout(deadline - time.monotonic()),
            aclosing(_inspector_events(site, model.name, ["decision"], fields.values)) as events,
        ):
            event = await anext(events)
    except TimeoutError:
        raise Late("the request could not be answered in time") from None
    return JSONResponse(event["data"])


async def models(site: Site, request: Request) -> Response:
    site.check_key(request)
    return JSONResponse({"models": [asdict(info) for info in site.service.info()]})


async def _change(site: Site, request: Request, *, is_wanted: bool) -> Response:
    site.check_key(request)
    await read_json(request)
    name = request.path_params["name"]
    await (site.service.load(name) if is_wanted else site.service.unload(name))
    info = next((info for info in site.service.info() if info.name == name), None)
    return JSONResponse(asdict(info) if info else {})


ROUTES = (
    *(Route("POST", f"/api/{verb}", partial(answer, verb)) for verb in RESULTS),
    Route("POST", "/api/decision", decide),
    Route("GET", "/api/models", models),
    Route("POST", "/api/models/{name}/load", partial(_change, is_wanted=True)),
    Route("POST", "/api/models/{name}/unload", partial(_change, is_wanted=False)),
)
