"""The description of LibreTranslate's API in Swagger 2, by which programs recognize the API."""

from collections.abc import Mapping, Sequence
from typing import Any

from tformer_cli.plugins.serve.config import MOST_ALTERNATIVES
from tformer_cli.plugins.serve.site import Route, Site

NAME = "LibreTranslate"
"""The title by which clients recognize the API; `x-server` has our own name."""
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
    "400": "the request is invalid, or lacks a required key",
    "403": "the key is invalid, or the origin is not allowed",
    "413": "the body is too large",
    "415": "the body is neither JSON nor a form",
    "429": "too many requests are waiting",
    "500": "the service failed",
    "503": "the service is shutting down, or the model cannot be used now",
    "504": "the request took too long",
    "507": "there is no room to store it",
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
}
"""Shapes of answers; one that is not here is any object."""


def describe_field(site: Site, name: str, *, detects: bool) -> dict[str, Any]:
    """Describes a form field, with its values if they are known."""
    parameter: dict[str, Any] = {
        "name": name, "in": "formData", "type": "string", "required": name not in _OPTIONAL
    }  # fmt: skip
    codes = site.languages.codes
    if name == "file":
        parameter["type"] = name
    elif name in ("q", "s"):
        parameter |= {"minLength": 1, "maxLength": site.settings.max_characters}
    elif name == "alternatives":
        parameter |= {"type": "integer", "minimum": 0, "maximum": MOST_ALTERNATIVES, "default": 0}
    elif name == "format":
        parameter |= {"enum": ["text", "html"], "default": "text"}
    elif name in ("source", "target"):
        parameter["enum"] = ["auto", *codes] if name == "source" and detects else codes
    return parameter


def describe_routes(site: Site, routes: Sequence[Route], prefix: str) -> dict[str, Any]:
    """Describes the fields and answers of each path."""
    paths: dict[str, Any] = {}
    error = {"$ref": "#/definitions/Error"}
    for route in routes:
        if "{" in route.path:
            continue
        names = _FIELDS.get(route.path, ())
        summary = (route.handler.__doc__ or route.path.strip("/")).partition("\n")[0]
        answers: dict[str, Any] = {
            "200": {
                "description": "the answer",
                "schema": _ANSWERS.get(route.path, {"type": "object"}),
            }
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

    return {
        "swagger": "2.0",
        "info": {
            "title": NAME,
            "version": __version__,
            "description": "The API of LibreTranslate, served by tformer.",
            "x-server": "tformer",
        },
        "basePath": prefix or "/",
        "paths": paths,
        "definitions": {"Error": object_schema(error=_TEXT)},
    }
