"""Reading requests: fields from JSON, forms, multipart and the query; every number within limits.

A client's mistake raises `Refused`, which the application answers in the dialect of the route.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from tformer_cli.serve.config import FILE_BYTES
from tformer_cli.text.lines import without_surrogates
from tformer_cli.wording import with_short_quotes

MOST_FIELDS = 100
MOST_DEPTH = 20
"""Of lists and objects in each other; a request needs three."""
JSON, FORM, MULTIPART = (
    *("application/json", "application/x-www-form-urlencoded"),
    "multipart/form-data",
)


class Refused(Exception):  # noqa: N818 - an answer, not a failure
    """A request that is answered with an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        message = with_short_quotes(message)
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = dict(headers or {})


class Gone(Exception):  # noqa: N818 - of the client
    """The client has left: there is no one to answer."""


@dataclass(frozen=True)
class Upload:
    """A file that came with a form."""

    name: str
    content: bytes


@dataclass
class Fields:
    """Fields of a request, whatever they came as."""

    values: dict[str, Any]
    files: dict[str, Upload] = field(default_factory=dict)
    is_form: bool = False

    def get(self, name: str) -> Any:  # noqa: ANN401 - of any type of JSON
        return self.values.get(name)

    def text(self, name: str, default: str = "") -> str:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise Refused(400, f"{name}: must be text", param=name)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns a list of texts, or one text as a list."""
        value = self.values.get(name)
        found = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise Refused(400, f"{name}: must be text or a list of texts", param=name)
        return tuple(found)

    def flag(self, name: str, *, default: bool = False) -> bool:
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
            return value.lower() in ("true", "1")
        if not isinstance(value, bool):
            raise Refused(400, f"{name}: must be true or false", param=name)
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        """Returns a whole number within limits; None if it is not given."""
        value = self._number(name, int)
        return value if value is None else int(_within(name, value, low, high))

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self._number(name, float)
        return value if value is None else _within(name, value, low, high)

    def _number(self, name: str, kind: Callable[[Any], float]) -> float | None:
        value = self.values.get(name)
        if value is None:
            return None
        # Forms have only text; True is an int to Python, and 2.5 must not become 2
        with suppress(ValueError, OverflowError):
            if isinstance(value, str):
                return kind(value)
            if isinstance(value, int | float) and value is not True and value is not False:
                found = kind(value)
                if found == value:
                    return found
        word = "a whole number" if kind is int else "a number"
        raise Refused(400, f"{name}: must be {word}", param=name)

    def unknown(self, known: Sequence[str]) -> list[str]:
        """Returns the names of fields that are none of those."""
        return sorted(self.values.keys() - set(known))


def _within(name: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:  # NaN, too
        raise Refused(400, f"{name}: must be from {low:g} to {high:g}", param=name)
    return value


async def read_fields(request: Request) -> Fields:
    """Reads the fields of JSON, forms or the query; what the body has counts before the query."""
    kind = content_type(request)
    query = _pairs(request.scope["query_string"].decode("latin-1"))
    if kind == MULTIPART:
        values, files = await _multipart(request)
        return Fields({**query, **values}, files, is_form=True)
    body = await whole_body(request)
    if kind == JSON or kind.endswith("+json"):
        return Fields({**query, **json_object(body)})
    if kind == FORM:
        return Fields({**query, **_pairs(body.decode("utf-8", "replace"))}, is_form=True)
    return Fields(query, is_form=True)


async def read_json(request: Request) -> Fields:
    """Reads the fields of JSON and of nothing else: a form of another page cannot send it."""
    kind = content_type(request)
    if kind != JSON and not kind.endswith("+json"):
        raise Refused(415, "send JSON, with Content-Type: application/json")
    return Fields(json_object(await whole_body(request)))


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def whole_body(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect:
        raise Gone from None


def json_object(body: bytes) -> dict[str, Any]:
    """Reads an object of JSON; its texts can be written as UTF-8 again."""
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    # A number of a million digits is a ValueError, a million brackets a RecursionError
    except (ValueError, RecursionError):
        raise Refused(400, "Invalid JSON format") from None
    if not isinstance(found, dict) or _is_deep(found):
        raise Refused(400, "Invalid JSON format")
    return {str(name): _clean(value) for name, value in found.items()}


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _is_deep(value: object, depth: int = 0) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner: Iterator[Any] = iter(value.values() if isinstance(value, dict) else value)
    return depth > MOST_DEPTH or any(_is_deep(one, depth + 1) for one in inner)


def _clean(value: Any) -> Any:  # noqa: ANN401 - of any type of JSON
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, list):
        return [_clean(one) for one in value]
    if isinstance(value, dict):
        return {without_surrogates(name): _clean(one) for name, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):  # 1e999
        raise Refused(400, "Invalid JSON format")
    return value


def _pairs(text: str) -> dict[str, str]:
    """Reads a urlencoded form; of several values the first counts, and a line ends in LF."""
    try:
        found = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Refused(400, f"more than {MOST_FIELDS} fields") from None
    return {name: _unix_lines(value) for name, value in reversed(found)}


def _unix_lines(text: str) -> str:
    # Browsers send \r\n, whatever was typed
    return text.replace("\r\n", "\n").replace("\r", "\n")


async def _multipart(request: Request) -> tuple[dict[str, str], dict[str, Upload]]:
    # Any charset that Python knows would be tried, slow ones, too
    parameters = request.headers["content-type"].lower()
    if "charset" in parameters and "utf-8" not in parameters:
        raise Refused(400, "the form must be in UTF-8")
    parser = MultiPartParser(request.headers, request.stream(), max_files=1, max_fields=MOST_FIELDS)
    # In memory: nothing of a client's is left on a disk
    parser.spool_max_size = FILE_BYTES + 1
    try:
        form = await parser.parse()
    except ClientDisconnect:
        raise Gone from None
    except MultiPartException as error:
        raise Refused(400, f"the form cannot be read: {error.message}") from None
    except (ValueError, IndexError, KeyError, LookupError):  # a parser's word on a strange boundary
        raise Refused(400, "the form cannot be read") from None
    values: dict[str, str] = {}
    files: dict[str, Upload] = {}
    for name, value in form.multi_items():
        if isinstance(value, str):
            values.setdefault(without_surrogates(name), _unix_lines(without_surrogates(value)))
        else:
            content = await value.read()
            files.setdefault(name, Upload(without_surrogates(value.filename or ""), content))
            await value.close()
    return values, files
