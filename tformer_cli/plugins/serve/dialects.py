"""Error responses in the format of each API; the path tells which API applies."""

from collections.abc import Callable
from typing import Any

from starlette.responses import JSONResponse, Response

from tformer_cli.plugins.serve.requests import Refused

Dialect = Callable[[Refused], Response]
"""Turns an error into the response that clients of one API expect."""
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


def plain_error(error: Refused) -> Response:
    """Formats an error as LibreTranslate and our own API do."""
    return JSONResponse({"error": error.message}, error.status, headers=error.headers)


def openai_error(error: Refused) -> Response:
    """Formats an error as OpenAI's API does."""
    status = 401 if error.code == "invalid_api_key" else error.status
    return JSONResponse({"error": openai_object(error)}, status, headers=error.headers)


def openai_object(error: Refused) -> dict[str, Any]:
    usual = "server_error" if error.status >= 500 else "invalid_request_error"
    kind = _TYPES.get(error.status, usual)
    return {"message": error.message, "type": kind, "param": error.param, "code": error.code}


def dialect_of(path: str) -> Dialect:
    """Returns the error format for a path without a route."""
    return openai_error if path == "/v1" or path.startswith("/v1/") else plain_error
