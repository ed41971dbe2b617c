"""The API of LibreTranslate: its paths, fields, answers and error texts, which clients rely on."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from pathlib import PurePath
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tformer_cli.documents.answers import links_of
from tformer_cli.documents.known_formats import BY_EXTENSION
from tformer_cli.documents.segments import ReadSettings
from tformer_cli.documents.translating import Answer
from tformer_cli.documents.translating import Request as Line
from tformer_cli.errors import ArtifactError, TformerError
from tformer_cli.serve.config import MOST_ALTERNATIVES
from tformer_cli.serve.dialects import plain_error
from tformer_cli.serve.documents import SHORT, Reader
from tformer_cli.serve.downloads import attachment
from tformer_cli.serve.languages import UNDETECTED, Languages, Way, name_of
from tformer_cli.serve.models import Versions
from tformer_cli.serve.proxies import PREFIX, public_url
from tformer_cli.serve.requests import Fields, Refused, read_fields
from tformer_cli.serve.site import Priority, Route, Site, client_name, no_room, report
from tformer_cli.serve.suggestions import FULL
from tformer_cli.text.language_codes import label_of
from tformer_cli.wording import is_blank

FRONTEND_MILLISECONDS = 500
"""Milliseconds that a page waits after the last key before it asks."""
LINKED_LINES = 32
"""Lines that are aligned in one go, so that others do not wait for those of a document."""
SHOWN = 40
"""Characters of a client's word in an error."""


def libre_error(error: Refused) -> Response:
    """Answers an error; a missing key is a bad request here."""
    if error.code == "missing_api_key":
        error = Refused(400, error.message)
    return plain_error(error)


def _required(fields: Fields, *names: str) -> None:
    for name in names:
        if not fields.get(name):
            raise Refused(400, f"Invalid request: missing {name} parameter")


async def _read(site: Site, request: Request) -> Fields:
    fields = await read_fields(request)
    site.check_key(request, fields.get("api_key"))
    return fields


def _texts(site: Site, fields: Fields) -> list[str]:
    given = fields.texts("q")
    settings = site.settings
    sizes = [(len(given), settings.max_texts), *((len(q), settings.max_characters) for q in given)]
    for size, most in sizes:
        if size > most:
            raise Refused(400, f"Invalid request: request ({size}) exceeds text limit ({most})")
    return list(given)


def _n_alternatives(fields: Fields) -> int:
    given = fields.get("alternatives")
    try:
        number = 0 if given in (None, "") else int(given)
    except (TypeError, ValueError, OverflowError):
        raise Refused(400, "Invalid request: alternatives parameter is not a number") from None
    if number > MOST_ALTERNATIVES:
        raise Refused(
            400, f"Invalid request: alternatives parameter must be <= {MOST_ALTERNATIVES}"
        )
    return max(0, number)


def _language(languages: Languages, given: str) -> str:
    found = languages.find(given)
    if found is None:
        raise Refused(400, f"{given[:SHOWN]} is not supported")
    return found


async def guess_language(
    site: Site, languages: Languages, texts: Sequence[str], target: str
) -> tuple[str, float]:
    """Guesses the language of texts, among those that can be translated into another."""
    codes = [code for code in languages.codes if languages.way(code, target) is not None]
    guesses = await site.apart(site.detector.guesses, "\n".join(texts), codes)
    if guesses:
        return guesses[0]
    return (UNDETECTED if UNDETECTED in codes else (codes or [target])[0]), 0.0


async def translate(site: Site, request: Request) -> Response:
    """Translates a text or a list of texts."""
    fields = await _read(site, request)
    _required(fields, "q", "source", "target")
    texts = _texts(site, fields)
    n_more = _n_alternatives(fields)
    text_format = fields.text("format") or "text"
    if text_format not in ("text", "html"):
        raise Refused(400, f"{text_format[:SHOWN]} format is not supported")
    languages = site.languages
    target = _language(languages, fields.text("target"))
    guess = None
    if fields.text("source").lower() == "auto":
        guess = await guess_language(site, languages, texts, target)
        source = guess[0]
    else:
        source = _language(languages, fields.text("source"))
    way = languages.checked_way(source, target)
    deadline = site.deadline(fields)
    if text_format != "html":
        found = await _translated(site, way, texts, 1 + n_more, deadline)
        return JSONResponse(_answer(fields, found, guess, n_more))
    pages = await _pages(site, way, texts, deadline)
    answer = _answer(fields, [[one.decode()] for one in pages.contents], guess, n_more)
    # LibreTranslate's own fields and no others, where all was translated
    has_more = "warning" in pages.summary
    return JSONResponse({**answer, "summary": pages.summary} if has_more else answer)


async def _pages(site: Site, way: Way, texts: Sequence[str], deadline: float) -> Reader:
    """Translates texts of HTML, in which equal lines are sent once; long ones are documents."""
    contents = [text.encode(errors="replace") for text in texts]
    is_long = sum(map(len, contents)) > SHORT
    place = site.documents.in_work.place(client_name()) if is_long else nullcontext()
    reading = site.documents.reading(
        "html", contents, ReadSettings(), deadline, is_short=not is_long
    )
    with place:
        async with reading as reader:
            await _translate_all(site, way, reader, deadline, is_long=is_long)
    return reader


async def _translate_all(
    site: Site, way: Way, reader: Reader, deadline: float, *, is_long: bool
) -> None:
    """Translates what a reader hands out, a window of lines after the other."""
    options: dict[str, Any] = {"versions": {}}
    if is_long:
        options |= {"priority": "bulk", "has_place": True}
    lines = await reader.next([])
    while lines:
        answers = await _lines(site, way, lines, deadline, **options)
        # As of any request that was begun in time, and has many lines
        options["is_admitted"], deadline = True, math.inf
        lines = await reader.next(answers)


async def _lines(
    site: Site,
    way: Way,
    lines: Sequence[Line],
    deadline: float,
    *,
    versions: Versions,
    **options: Any,  # noqa: ANN401 - of `Site.results`
) -> list[Answer]:
    """Translates lines, with what goes together where that is needed."""
    texts = [line.text for line in lines]
    if not way.models or not texts:
        return [Answer(line.text, None if line.needs_links else ()) for line in lines]
    needed = [n for n, line in enumerate(lines) if line.needs_links]
    settings = {**way.settings, "aligned": bool(needed) or None}
    results = site.results(
        way.models, "translate", texts, settings=settings, deadline=deadline, versions=versions,
        **options,
    )  # fmt: skip
    async with aclosing(results):
        found = [one async for one in results]
    links = dict[int, Any]()
    known = (site.service.aligner(name, versions) for name in way.models)
    aligners = [aligner for aligner in known if aligner is not None]
    if needed and len(aligners) == len(way.models):
        codes = [way.settings.get(f"{side}_language") for side in ("source", "target")]
        source, target = (None if code is None else str(code) for code in codes)
        tokenizer = aligners[-1].tokenizer.for_languages(source, target)
        # Without a second pass: the service does without torch
        for start in range(0, len(needed), LINKED_LINES):
            part = needed[start : start + LINKED_LINES]
            heard = [found[n] for n in part]
            made = await site.apart(links_of, aligners, heard, tokenizer=tokenizer, passes=False)
            links |= zip(part, made, strict=True)
    return [
        Answer(one.text, links.get(n) if line.needs_links else ())
        for n, (line, one) in enumerate(zip(lines, found, strict=True))
    ]


def _answer(
    fields: Fields, found: list[list[str]], guess: tuple[str, float] | None, n_more: int
) -> dict[str, Any]:
    is_list = isinstance(fields.get("q"), list)
    best = [texts[0] for texts in found]
    others = [
        [text for text in dict.fromkeys(texts[1:]) if text not in ("", texts[0])] for texts in found
    ]
    answer: dict[str, Any] = {"translatedText": best if is_list else best[0]}
    if n_more:
        answer["alternatives"] = others if is_list else others[0]
    if guess is not None:
        detected = {"confidence": guess[1], "language": guess[0]}
        answer["detectedLanguage"] = [detected] * len(best) if is_list else detected
    return answer


async def _translated(
    site: Site,
    way: Way,
    texts: Sequence[str],
    n_best: int,
    deadline: float,
    priority: Priority | None = None,
) -> list[list[str]]:
    """Translates texts line by line: the best translations of each, at least one."""
    # Of a megabyte of texts this takes a while
    is_long = sum(map(len, texts)) > SHORT
    lines, wanted = await site.apart(_cut, texts) if is_long else _cut(texts)
    found: Iterator[list[str]] = iter(())
    if way.models and wanted:
        settings = {**way.settings, "n_best": n_best if n_best > 1 else None}
        results = site.results(
            way.models, "translate", wanted, settings=settings, priority=priority, deadline=deadline
        )
        async with aclosing(results):
            found = iter([[one.text for one in result.hypotheses] async for result in results])
    return await site.apart(_joined, lines, found) if is_long else _joined(lines, found)


def _cut(texts: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Returns the lines of texts, and those of all texts that are translated, in one request."""
    lines = [text.split("\n") for text in texts]
    return lines, [line.removesuffix("\r") for some in lines for line in some if has_words(line)]


def _joined(lines: Sequence[Sequence[str]], found: Iterator[list[str]]) -> list[list[str]]:
    """Puts the translations of lines in their places; returns the best ones of each text."""
    translated = [
        [next(found, [line]) if has_words(line) else [line] for line in some] for some in lines
    ]
    return [
        [_ranked(own, some, rank) for rank in range(max(map(len, some)))]
        for own, some in zip(lines, translated, strict=True)
    ]


def _ranked(lines: Sequence[str], found: Sequence[Sequence[str]], rank: int) -> str:
    """Joins the translations of lines; one with fewer alternatives than others has its last."""
    chosen = [some[min(rank, len(some) - 1)] for some in found]
    ends = ["\r" if line.endswith("\r") else "" for line in lines]
    return "\n".join(text.removesuffix("\r") + end for text, end in zip(chosen, ends, strict=True))


def has_words(line: str) -> bool:
    """Returns whether there is something to translate; emoji and spaces stay as they are."""
    return any(c.isascii() or c.isalnum() for c in line if not is_blank(c))


async def detect(site: Site, request: Request) -> Response:
    """Guesses the language of a text, among those that are served."""
    fields = await _read(site, request)
    _required(fields, "q")
    text = "\n".join(_texts(site, fields))
    guesses = await site.apart(site.detector.guesses, text, site.languages.codes)
    guesses = guesses or [(UNDETECTED, 0.0)]
    return JSONResponse([{"confidence": share, "language": code} for code, share in guesses])


async def languages(site: Site, request: Request) -> Response:  # noqa: ARG001 - a body is ignored
    return JSONResponse(site.languages.listed)


async def translate_file(site: Site, request: Request) -> Response:
    """Translates a document, and says where the translation can be fetched."""
    with site.documents.received.place(client_name()):
        fields = await _read(site, request)
    file = fields.files.get("file")
    if file is None:
        raise Refused(400, "Invalid request: missing file parameter")
    _required(fields, "source", "target")
    if not file.name:
        raise Refused(400, "Invalid request: empty file")
    known = BY_EXTENSION.get(PurePath(file.name).suffix.lower())
    if known is None:
        raise Refused(400, "Invalid request: file format not supported")
    served = site.languages
    target = _language(served, fields.text("target"))
    settings = ReadSettings(
        name=file.name,
        target_language=label_of(target),
        # A form has one value of a name: of several each stands on a line
        keys=tuple(fields.text("key").split("\n")) if fields.get("key") else (),
        columns=tuple(fields.text("column").split("\n")) if fields.get("column") else (),
        has_header=not fields.flag("no_header"),
        option_prefix="",
    )
    deadline = site.deadline(fields)
    # Nothing else refers to the bytes, which its reader then need not keep
    contents = [fields.files.pop("file").content]
    del file
    with site.documents.in_work.place(client_name()):
        async with site.documents.reading(known.name, contents, settings, deadline) as reader:
            if fields.text("source").lower() == "auto":
                source, _ = await guess_language(site, served, reader.texts, target)
            else:
                source = _language(served, fields.text("source"))
            way = served.checked_way(source, target)
            await _translate_all(site, way, reader, deadline, is_long=True)
        try:
            place = await site.apart(site.downloads.add, settings.name, reader.contents.pop())
        except (ArtifactError, OSError) as error:  # of the temporary directory
            report(error)
            raise no_room() from None
    url = public_url(request.scope, f"/download_file/{place}")
    return JSONResponse({"translatedFileUrl": url, "summary": reader.summary})


async def download_file(site: Site, request: Request) -> Response:
    found = None
    with suppress(OSError, ArtifactError):  # of the temporary directory
        found = site.downloads.find(request.path_params["name"])
    if found is None:
        raise Refused(404, "there is no such file, or it was removed after half an hour")
    name, content = found
    headers = {"content-disposition": attachment(name)}
    return Response(content, media_type="application/octet-stream", headers=headers)


async def suggest(site: Site, request: Request) -> Response:
    """Keeps a better translation of a user."""
    fields = await _read(site, request)
    file = site.settings.suggestions
    if file is None:
        raise Refused(403, "Suggestions are disabled on this server.")
    _required(fields, "q", "s", "source", "target")
    codes = {name: _language(site.languages, fields.text(name)) for name in ("source", "target")}
    texts = {name: fields.text(name) for name in ("q", "s")}
    site.check_texts(list(texts.values()), "q, s")
    line = json.dumps({**texts, **codes}, ensure_ascii=False) + "\n"
    try:
        await site.suggestions.append(line.encode())
    except OSError as error:
        report(TformerError(f"--suggestions: {file}: {error.strerror}"))
        is_full = error.errno in FULL
        reason = "there is no room for it" if is_full else "its file cannot be written now"
        message = f"The suggestion was not kept: {reason}."
        raise Refused(507 if is_full else 503, message, headers={"retry-after": "60"}) from None
    return JSONResponse({"success": True})


async def frontend_settings(site: Site, request: Request) -> Response:  # noqa: ARG001
    """Tells a page of LibreTranslate's kind what it may offer."""
    pairs = ((source, t) for source in site.languages.codes for t in site.languages.targets(source))
    source, target = next((pair for pair in pairs if pair[0] != pair[1]), (UNDETECTED, UNDETECTED))
    return JSONResponse(
        {
            "charLimit": site.settings.max_characters,
            "frontendTimeout": FRONTEND_MILLISECONDS,
            "apiKeys": bool(site.keys),
            "keyRequired": bool(site.keys),
            "suggestions": site.settings.suggestions is not None,
            "filesTranslation": True,
            "supportedFilesFormat": list(BY_EXTENSION),
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": target, "name": name_of(target)},
            },
        }
    )


async def health(site: Site, request: Request) -> Response:  # noqa: ARG001 - it only says: alive
    return JSONResponse({"status": "ok"})


NAME = "LibreTranslate"
"""What clients look for in the title, to know whom they speak to; our own name is beside it."""
_FIELDS = {
    "/translate": ("q", "source", "target", "format", "alternatives", "api_key"),
    "/detect": ("q", "api_key"),
    "/translate_file": ("file", "source", "target", "column", "key", "no_header", "api_key"),
    "/suggest": ("q", "s", "source", "target", "api_key"),
}
_OPTIONAL = frozenset({"format", "alternatives", "column", "key", "no_header", "api_key"})
_TEXT: Mapping[str, Any] = {"type": "string"}
_NUMBER: Mapping[str, Any] = {"type": "number"}
_YES_OR_NO: Mapping[str, Any] = {"type": "boolean"}
_ERRORS = {
    "400": "the request is wrong, or has no key where one is asked for",
    "403": "the key is wrong, or pages of this origin may not ask",
    "413": "the body is too large",
    "415": "the body is neither JSON nor a form",
    "429": "too much is waiting",
    "500": "the service failed",
    "503": "the service ends, or the model cannot be used now",
    "504": "it took too long",
}
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def object_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


def list_schema(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_GUESS = object_schema(confidence=_NUMBER, language=_TEXT)
_ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "/translate": {
        **object_schema(translatedText=_TEXT),
        "properties": {
            "translatedText": _TEXT,
            "alternatives": list_schema(_TEXT),
            "detectedLanguage": _GUESS,
        },
    },
    "/detect": list_schema(_GUESS),
    "/languages": list_schema(object_schema(code=_TEXT, name=_TEXT, targets=list_schema(_TEXT))),
    "/translate_file": object_schema(translatedFileUrl=_TEXT),
    "/suggest": object_schema(success=_YES_OR_NO),
    "/frontend/settings": object_schema(charLimit=_NUMBER, keyRequired=_YES_OR_NO),
    "/health": object_schema(status=_TEXT),
    "/spec": {"type": "object"},
}


def describe_field(site: Site, name: str, *, detects: bool) -> dict[str, Any]:
    """Describes a field of a form; those whose values are known list them."""
    found: dict[str, Any] = {
        "name": name, "in": "formData", "type": "string", "required": name not in _OPTIONAL
    }  # fmt: skip
    codes = site.languages.codes
    if name == "file":
        found["type"] = name
    elif name in ("q", "s"):
        found |= {"minLength": 1, "maxLength": site.settings.max_characters}
    elif name == "alternatives":
        found |= {"type": "integer", "minimum": 0, "maximum": MOST_ALTERNATIVES, "default": 0}
    elif name == "format":
        found |= {"enum": ["text", "html"], "default": "text"}
    elif name in ("source", "target"):
        found["enum"] = ["auto", *codes] if name == "source" and detects else codes
    return found


async def spec(site: Site, request: Request) -> Response:
    """Describes these paths in Swagger 2."""
    paths: dict[str, Any] = {}
    error = {"$ref": "#/definitions/Error"}
    for route in ROUTES:
        if "{" in route.path:
            continue
        names = _FIELDS.get(route.path, ())
        summary = (route.handler.__doc__ or route.path.strip("/")).partition("\n")[0]
        answers: dict[str, Any] = {
            "200": {"description": "the answer", "schema": _ANSWERS[route.path]}
        }
        for status, text in _ERRORS.items():
            if names or status == "403":
                answers[status] = {"description": text, "schema": error}
        operation: dict[str, Any] = {
            "summary": summary,
            "produces": ["application/json"],
            "parameters": [describe_field(site, name, detects="s" not in names) for name in names],
            "responses": answers,
        }
        if names:
            operation["consumes"] = list(_FORMS[1:] if "file" in names else _FORMS)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    from tformer_cli.version import __version__

    return JSONResponse(
        {
            "swagger": "2.0",
            "info": {
                "title": NAME,
                "version": __version__,
                "description": "The API of LibreTranslate, served by tformer.",
                "x-server": "tformer",
            },
            "basePath": request.scope.get(PREFIX) or "/",
            "paths": paths,
            "definitions": {"Error": object_schema(error=_TEXT)},
        }
    )


ROUTES = (
    Route("POST", "/translate", translate, libre_error),
    Route("POST", "/detect", detect, libre_error),
    Route("GET", "/languages", languages, libre_error),
    # The client of the same author as LibreTranslate's asks so
    Route("POST", "/languages", languages, libre_error),
    Route("POST", "/translate_file", translate_file, libre_error),
    Route("GET", "/download_file/{name}", download_file, libre_error),
    Route("POST", "/suggest", suggest, libre_error),
    Route("GET", "/frontend/settings", frontend_settings, libre_error),
    Route("GET", "/health", health, libre_error),
    Route("GET", "/spec", spec, libre_error),
)
