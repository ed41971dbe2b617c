"""LibreTranslate's API; clients rely on its paths, fields, answers and error texts."""

import json
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tformer_cli.documents.known_formats import FORMATS, format_with
from tformer_cli.documents.segments import ReadSettings
from tformer_cli.errors import ArtifactError, TformerError
from tformer_cli.plugins.serve.config import MOST_ALTERNATIVES
from tformer_cli.plugins.serve.dialects import plain_error
from tformer_cli.plugins.serve.downloads import attachment
from tformer_cli.plugins.serve.languages import UNDETECTED, Languages, name_of
from tformer_cli.plugins.serve.proxies import PREFIX, public_url
from tformer_cli.plugins.serve.requests import Fields, Refused, read_fields
from tformer_cli.plugins.serve.site import Route, Site, client_name, no_room, report
from tformer_cli.plugins.serve.spec import describe_routes
from tformer_cli.plugins.serve.suggestions import FULL
from tformer_cli.plugins.serve.translations import (
    guess_language,
    translate_document,
    translate_pages,
    translate_texts,
)
from tformer_cli.text.language_codes import label_of

FRONTEND_MILLISECONDS = 500
"""Milliseconds that a page waits after the last key before it sends a request."""
SHOWN = 40
"""Characters of a client's value that an error quotes."""


def libre_error(error: Refused) -> Response:
    """Formats an error; in this API a missing key is status 400."""
    if error.code == "missing_api_key":
        error = Refused(400, error.message)
    return plain_error(error)


def _check_required(fields: Fields, *names: str) -> None:
    for name in names:
        if not fields.get(name):
            raise Refused(400, f"Invalid request: missing {name} parameter")


async def _read(site: Site, request: Request) -> Fields:
    fields = await read_fields(request)
    site.check_key(request, fields.get("api_key"))
    return fields


def _texts(site: Site, fields: Fields) -> list[str]:
    texts = fields.texts("q")
    settings = site.settings
    sizes = [(len(texts), settings.max_texts), *((len(q), settings.max_characters) for q in texts)]
    for size, most in sizes:
        if size > most:
            raise Refused(400, f"Invalid request: request ({size}) exceeds text limit ({most})")
    return list(texts)


def _n_alternatives(fields: Fields) -> int:
    value = fields.get("alternatives")
    try:
        number = 0 if value in (None, "") else int(value)
    except (TypeError, ValueError, OverflowError):
        raise Refused(400, "Invalid request: alternatives parameter is not a number") from None
    if number > MOST_ALTERNATIVES:
        raise Refused(
            400, f"Invalid request: alternatives parameter must be <= {MOST_ALTERNATIVES}"
        )
    return max(0, number)


def _language(languages: Languages, text: str) -> str:
    code = languages.find(text)
    if code is None:
        raise Refused(400, f"{text[:SHOWN]} is not supported")
    return code


async def translate(site: Site, request: Request) -> Response:
    """Translates a text or a list of texts."""
    fields = await _read(site, request)
    _check_required(fields, "q", "source", "target")
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
        translations = await translate_texts(site, way, texts, 1 + n_more, deadline)
        return JSONResponse(_answer(fields, translations, guess, n_more))
    pages = await translate_pages(site, way, texts, deadline)
    answer = _answer(fields, [[content.decode()] for content in pages.contents], guess, n_more)
    # Only LibreTranslate's own fields, if everything was translated
    has_more = "warning" in pages.summary
    return JSONResponse({**answer, "summary": pages.summary} if has_more else answer)


def _answer(
    fields: Fields, translations: list[list[str]], guess: tuple[str, float] | None, n_more: int
) -> dict[str, Any]:
    is_list = isinstance(fields.get("q"), list)
    best = [texts[0] for texts in translations]
    alternatives = [
        [text for text in dict.fromkeys(texts[1:]) if text not in ("", texts[0])]
        for texts in translations
    ]
    answer: dict[str, Any] = {"translatedText": best if is_list else best[0]}
    if n_more:
        answer["alternatives"] = alternatives if is_list else alternatives[0]
    if guess is not None:
        detected = {"confidence": guess[1], "language": guess[0]}
        answer["detectedLanguage"] = [detected] * len(best) if is_list else detected
    return answer


async def detect(site: Site, request: Request) -> Response:
    """Guesses the language of a text among the served languages."""
    fields = await _read(site, request)
    _check_required(fields, "q")
    text = "\n".join(_texts(site, fields))
    guesses = await site.apart(site.detector.guesses, text, site.languages.codes)
    guesses = guesses or [(UNDETECTED, 0.0)]
    return JSONResponse([{"confidence": share, "language": code} for code, share in guesses])


async def languages(site: Site, request: Request) -> Response:  # noqa: ARG001 - a body is ignored
    return JSONResponse(site.languages.listed)


async def translate_file(site: Site, request: Request) -> Response:
    """Translates a document, and returns the URL of the translation."""
    with site.documents.received.place(client_name()):
        fields = await _read(site, request)
    file = fields.files.get("file")
    if file is None:
        raise Refused(400, "Invalid request: missing file parameter")
    _check_required(fields, "source", "target")
    if not file.name:
        raise Refused(400, "Invalid request: empty file")
    file_format = format_with(PurePath(file.name).suffix.lower())
    if file_format is None:
        raise Refused(400, "Invalid request: file format not supported")
    served = site.languages
    target = _language(served, fields.text("target"))
    settings = ReadSettings(
        name=file.name,
        target_language=label_of(target),
        # A form has one value per name, so several are separated by newlines
        keys=tuple(fields.text("key").split("\n")) if fields.get("key") else (),
        columns=tuple(fields.text("column").split("\n")) if fields.get("column") else (),
        has_header=not fields.flag("no_header"),
    )
    deadline = site.deadline(fields)
    # Drop other references to the bytes, so that the reader can free them
    contents = [fields.files.pop("file").content]
    del file
    with site.documents.in_work.place(client_name()):
        async with site.documents.reading(file_format.name, contents, settings, deadline) as reader:
            if fields.text("source").lower() == "auto":
                source, _ = await guess_language(site, served, reader.texts, target)
            else:
                source = _language(served, fields.text("source"))
            way = served.checked_way(source, target)
            await translate_document(site, way, reader, deadline, is_long=True)
        try:
            place = await site.apart(site.downloads.add, settings.name, reader.contents.pop())
        except (ArtifactError, OSError) as error:  # from the temporary directory
            report(error)
            raise no_room() from None
    url = public_url(request.scope, f"/download_file/{place}")
    return JSONResponse({"translatedFileUrl": url, "summary": reader.summary})


async def download_file(site: Site, request: Request) -> Response:
    file = None
    with suppress(OSError, ArtifactError):  # from the temporary directory
        file = site.downloads.find(request.path_params["name"])
    if file is None:
        raise Refused(404, "there is no such file, or it was removed after half an hour")
    name, content = file
    headers = {"content-disposition": attachment(name)}
    return Response(content, media_type="application/octet-stream", headers=headers)


async def suggest(site: Site, request: Request) -> Response:
    """Stores a better translation from a user."""
    fields = await _read(site, request)
    file = site.settings.suggestions
    if file is None:
        raise Refused(403, "Suggestions are disabled on this server.")
    _check_required(fields, "q", "s", "source", "target")
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
    """Tells LibreTranslate's web page which features to offer."""
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
            "supportedFilesFormat": [e for row in FORMATS.values() for e in row.extensions],
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": target, "name": name_of(target)},
            },
        }
    )


async def health(site: Site, request: Request) -> Response:  # noqa: ARG001 - answering is enough
    return JSONResponse({"status": "ok"})


async def spec(site: Site, request: Request) -> Response:
    """Describes these routes in Swagger 2."""
    return JSONResponse(describe_routes(site, ROUTES, request.scope.get(PREFIX, "")))


ROUTES = (
    Route("POST", "/translate", translate, libre_error),
    Route("POST", "/detect", detect, libre_error),
    Route("GET", "/languages", languages, libre_error),
    # LibreTranslate's own Python client sends POST
    Route("POST", "/languages", languages, libre_error),
    Route("POST", "/translate_file", translate_file, libre_error),
    Route("GET", "/download_file/{name}", download_file, libre_error),
    Route("POST", "/suggest", suggest, libre_error),
    Route("GET", "/frontend/settings", frontend_settings, libre_error),
    Route("GET", "/health", health, libre_error),
    Route("GET", "/spec", spec, libre_error),
)
