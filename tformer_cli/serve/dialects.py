"""Errors as the clients of each API read them; the path tells which API a request is for."""

from collections.abc import Callable
from typing import Any

from starlette.responses import JSONResponse, Response

from tformer_cli.serve.requests import Refused

Dialect = Callable[[Refused], Response]
"""Makes the response of an error, as a client of one API expects it."""
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


def plain_error(error: Refused) -> Response:
    """Answers an error as LibreTranslate does, and our own API."""
    return JSONResponse({"error": error.message}, error.status, headers=error.headers)


def openai_error(error: Refused) -> Response:
    """Answers an error as OpenAI's clients read it."""
    status = 401 if error.code == "invalid_api_key" else error.status
    return JSONResponse({"error": openai_object(error)}, status, headers=error.headers)


def openai_object(error: Refused) -> dict[str, Any]:
    usual = "server_error" if error.status >= 500 else "invalid_request_error"
    kind = _TYPES.get(error.status, usual)
    return {"message": error.message, "type": kind, "param": error.param, "code": error.code}


def dialect_of(path: str) -> Dialect:
    """Returns how errors are answered where no route says so."""
    return openai_error if path == "/v1" or path.startswith("/v1/") else plain_error
