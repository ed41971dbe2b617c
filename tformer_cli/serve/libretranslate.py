"""The API of LibreTranslate: its paths, fields, answers and error texts, which clients rely on."""

import json
import math
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from pathlib import PurePath
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tformer_cli.documents.answers import links_of
from tformer_cli.documents.known_formats import BY_EXTENSION, format_named
from tformer_cli.documents.messages import LanguagePair
from tformer_cli.documents.segments import Document, ReadSettings, Segment
from tformer_cli.documents.translating import Answer, Translated, translating
from tformer_cli.documents.translating import Request as Line
from tformer_cli.errors import TformerError
from tformer_cli.serve.config import MOST_ALTERNATIVES
from tformer_cli.serve.downloads import attachment
from tformer_cli.serve.languages import UNDETECTED, Languages, Way, name_of
from tformer_cli.serve.requests import Fields, Refused, read_fields
from tformer_cli.serve.site import Priority, Route, Site, plain_error
from tformer_cli.wording import is_blank

FRONTEND_MILLISECONDS = 500
"""Milliseconds that a page waits after the last key before it asks."""
_LOOKED_AT = 100
"""Segments of a document by which its language is guessed."""
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


async def _detected(
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
        guess = await _detected(site, languages, texts, target)
        source = guess[0]
    else:
        source = _language(languages, fields.text("source"))
    way = languages.checked_way(source, target)
    if text_format == "html":
        deadline = site.deadline(fields)
        pages = await site.apart(_pages, texts)
        written = await _documents(site, way, pages, LanguagePair(source, target), deadline)
        found = [[one.decode()] for one in written]
    else:
        found = await _translated(site, way, texts, 1 + n_more, site.deadline(fields))
    return JSONResponse(_answer(fields, found, guess, n_more))


def _pages(texts: Sequence[str]) -> list[Document]:
    read = format_named("html").read
    return [read(text.encode(errors="replace"), ReadSettings()) for text in texts]


async def _documents(
    site: Site,
    way: Way,
    documents: Sequence[Document],
    languages: LanguagePair,
    deadline: float,
    priority: Priority | None = None,
) -> list[bytes]:
    """Translates documents; their lines are one request, in which equal ones are sent once."""
    segments = [document.segments for document in documents]
    all_segments = [one for some in segments for one in some]
    job = translating(all_segments, protects=True, languages=languages)
    lines, made = await site.apart(_next, job, None)
    while made is None:
        answers = await _lines(site, way, lines, deadline, priority)
        lines, made = await site.apart(_next, job, answers)
        deadline = math.inf  # as of any request that was begun in time, and has many lines
    return await site.apart(_written, documents, segments, made.segments)


def _next(
    job: Generator[list[Line], Sequence[Answer], Translated], answers: Sequence[Answer] | None
) -> tuple[list[Line], Translated | None]:
    """Returns the next lines to translate, or what was made of all."""
    try:
        return next(job) if answers is None else job.send(answers), None
    except StopIteration as end:
        return [], end.value


def _written(
    documents: Sequence[Document],
    segments: Sequence[Sequence[Segment]],
    made: Sequence[Segment | None],
) -> list[bytes]:
    left = iter(made)
    return [
        document.write(list(islice(left, len(own))))
        for document, own in zip(documents, segments, strict=True)
    ]


async def _lines(
    site: Site, way: Way, lines: Sequence[Line], deadline: float, priority: Priority | None
) -> list[Answer]:
    """Translates lines, with what goes together where that is needed."""
    texts = [line.text for line in lines]
    if not way.models or not texts:
        return [Answer(line.text, None if line.needs_links else ()) for line in lines]
    needed = [n for n, line in enumerate(lines) if line.needs_links]
    settings = {**way.settings, "aligned": bool(needed) or None}
    results = site.results(
        way.models, "translate", texts, settings=settings, priority=priority, deadline=deadline
    )
    async with aclosing(results):
        found = [one async for one in results]
    links = dict[int, Any]()
    aligners = [one for name in way.models if (one := site.service.aligner(name)) is not None]
    if needed and len(aligners) == len(way.models):
        codes = [way.settings.get(f"{side}_language") for side in ("source", "target")]
        source, target = (None if code is None else str(code) for code in codes)
        tokenizer = aligners[-1].tokenizer.for_languages(source, target)
        # Without a second pass: the service does without torch
        made = await site.apart(
            links_of, aligners, [found[n] for n in needed], tokenizer=tokenizer, passes=False
        )
        links = dict(zip(needed, made, strict=True))
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
    lines = [text.split("\n") for text in texts]
    # The lines of all texts are one request, which the engine cuts into batches as it likes
    wanted = [line.removesuffix("\r") for one in lines for line in one if _has_words(line)]
    found: Iterator[list[str]] = iter(())
    if way.models and wanted:
        settings = {**way.settings, "n_best": n_best if n_best > 1 else None}
        results = site.results(
            way.models, "translate", wanted, settings=settings, priority=priority, deadline=deadline
        )
        async with aclosing(results):
            found = iter([[one.text for one in result.hypotheses] async for result in results])
    translated = [
        [next(found, [line]) if _has_words(line) else [line] for line in one] for one in lines
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


def _has_words(line: str) -> bool:
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
    settings = ReadSettings(name=file.name, target_language=target)
    document = await site.apart(known.read, file.content, settings)
    if fields.text("source").lower() == "auto":
        start = [one.text for one in document.segments[:_LOOKED_AT]]
        source, _ = await _detected(site, served, start, target)
    else:
        source = _language(served, fields.text("source"))
    way = served.checked_way(source, target)
    pair = LanguagePair(source, target)
    (written,) = await _documents(site, way, [document], pair, site.deadline(fields), "bulk")
    place = site.downloads.add(file.name, written)
    url = request.url.replace(path=f"/download_file/{place}", query="", fragment="")
    return JSONResponse({"translatedFileUrl": str(url)})


async def download_file(site: Site, request: Request) -> Response:
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
        # One write to the end: workers do not mix their lines
        place = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(place, line.encode())
        finally:
            os.close(place)
    except OSError as error:
        raise TformerError(f"--suggestions: {file}: {error.strerror}") from None
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


_FIELDS = {
    "/translate": ("q", "source", "target", "format", "alternatives", "api_key"),
    "/detect": ("q", "api_key"),
    "/translate_file": ("file", "source", "target", "api_key"),
    "/suggest": ("q", "s", "source", "target", "api_key"),
}
_OPTIONAL = frozenset({"format", "alternatives", "api_key"})


async def spec(site: Site, request: Request) -> Response:  # noqa: ARG001 - the same for all
    """Describes these paths in Swagger 2."""
    paths: dict[str, Any] = {}
    for route in ROUTES:
        if "{" in route.path:
            continue
        fields = [
            {
                "name": name,
                "in": "formData",
                "type": "file" if name == "file" else "string",
                "required": name not in _OPTIONAL,
            }
            for name in _FIELDS.get(route.path, ())
        ]
        summary = (route.handler.__doc__ or route.path.strip("/")).partition("\n")[0]
        operation = {
            "summary": summary,
            "parameters": fields,
            "responses": {"200": {"description": "the answer"}, "400": {"description": "an error"}},
        }
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    from tformer_cli.version import __version__

    info = {"title": "tformer", "version": __version__}
    return JSONResponse({"swagger": "2.0", "info": info, "paths": paths})


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
