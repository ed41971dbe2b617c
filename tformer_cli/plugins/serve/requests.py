"""Parses requests: fields from JSON, forms, multipart and the query, with limits on numbers.

Invalid requests raise `Refused`, which the application answers in the error format of the route.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from tformer_cli.plugins.serve.config import FILE_BYTES
from tformer_cli.text.lines import without_surrogates
from tformer_cli.wording import with_short_quotes

MOST_FIELDS = 100
MOST_DEPTH = 20
"""Maximum nesting of JSON; a request needs three levels."""
JSON = ("application/json", "text/json")
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
UNNAMED = ("", "text/plain", FORM)
"""Default types of HTTP clients: with these, a body that begins with { counts as JSON, as no form
begins with it."""
_CHARSETS = re.compile(
    r"utf-?8|us-ascii|iso-?8859-?(?:[1-9]|1[013-6])|latin-?[1-9]"
    r"|(?:windows-|cp)(?:125[0-8]|874|932|936|949|950)|koi8-[ru]|macintosh|shift[_-]jis|sjis"
    r"|euc-(?:jp|kr)|iso-2022-jp|gb2312|gbk|gb18030|big5(?:-hkscs)?|tis-620"
)
"""Charsets of forms; some other codecs of Python are slow, or not charsets."""
_UNICODE = re.compile(r"(?:utf-?(?:8|(?:16|32)(?:[bl]e)?))?")
"""Charsets of JSON, including none."""
_WESTERN = re.compile(r"us-ascii|iso-?8859-?1|latin-?1")
"""Charsets that browsers and most programs treat as Windows-1252."""


class Refused(Exception):  # noqa: N818 - an answer, not a failure
    """An error response to a request."""

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
    """The client has left."""


@dataclass(frozen=True)
class Upload:
    """An uploaded file."""

    name: str
    content: bytes


@dataclass
class Fields:
    """Fields of a request in any format."""

    values: dict[str, Any]
    files: dict[str, Upload] = field(default_factory=dict)
    is_form: bool = False

    def get(self, name: str) -> Any:  # noqa: ANN401 - any JSON value
        return self.values.get(name)

    def text(self, name: str, default: str = "") -> str:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise Refused(400, f"{name}: must be text", param=name)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns a list of texts; a single text becomes a list."""
        value = self.values.get(name)
        items = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise Refused(400, f"{name}: must be text or a list of texts", param=name)
        return tuple(items)

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
        """Returns a whole number within limits; None if it is missing."""
        value = self._number(name, int)
        return value if value is None else int(_within(name, value, low, high))

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self._number(name, float)
        return value if value is None else _within(name, value, low, high)

    def _number(self, name: str, kind: Callable[[Any], float]) -> float | None:
        value = self.values.get(name)
        if value is None:
            return None
        # Forms only have text; True is an int in Python, and 2.5 must not become 2
        with suppress(ValueError, OverflowError):
            if isinstance(value, str):
                return kind(value)
            if isinstance(value, int | float) and value is not True and value is not False:
                number = kind(value)
                if number == value:
                    return number
        word = "a whole number" if kind is int else "a number"
        raise Refused(400, f"{name}: must be {word}", param=name)

    def unknown(self, known: Sequence[str]) -> list[str]:
        """Returns the names of fields that are not in `known`."""
        return sorted(self.values.keys() - set(known))


def _within(name: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:  # NaN, too
        raise Refused(400, f"{name}: must be from {low:g} to {high:g}", param=name)
    return value


async def read_fields(request: Request) -> Fields:
    """Reads the fields of JSON, a form or the query; the body takes precedence over the query."""
    kind, charset = content_type(request), content_charset(request.headers.get("content-type", ""))
    query = _pairs(request.scope["query_string"], "")
    if kind == MULTIPART:
        values, files = await _multipart(request, charset)
        return Fields({**query, **values}, files, is_form=True)
    body = await whole_body(request)
    if _is_json(kind) or (kind in UNNAMED and body.lstrip().startswith(b"{")):
        return Fields({**query, **json_object(body, charset)})
    if kind == FORM:
        return Fields({**query, **_pairs(body, charset)}, is_form=True)
    if body:
        raise Refused(415, "send JSON or a form, with its Content-Type, such as application/json")
    return Fields(query, is_form=True)


async def read_json(request: Request) -> Fields:
    """Reads the fields of JSON only, which a form on another site cannot send."""
    if not _is_json(content_type(request)):
        raise Refused(415, "send JSON, with Content-Type: application/json")
    charset = content_charset(request.headers["content-type"])
    return Fields(json_object(await whole_body(request), charset))


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_json(kind: str) -> bool:
    return kind in JSON or kind.endswith("+json")


def content_charset(kind: str) -> str:
    """Returns the charset of a Content-Type; empty if it names none."""
    try:
        charset = parse_options_header(kind)[1].get(b"charset", b"").decode("ascii", "replace")
    except (ValueError, IndexError, LookupError):
        return ""
    return charset.strip().lower()


def decode_text(data: bytes, charset: str) -> str:
    """Decodes the text of a form; refuses text that does not match its charset."""
    if charset and _CHARSETS.fullmatch(charset) is None:
        raise Refused(415, f"charset={charset[:40]} is not supported; send UTF-8")
    name = "cp1252" if _WESTERN.fullmatch(charset) else charset.replace("windows-", "cp") or "utf-8"
    try:
        return data.decode(name)
    except UnicodeDecodeError:
        shown = charset or "UTF-8"
        raise Refused(
            400, f"the body is not {shown}; send UTF-8, or name its charset in Content-Type"
        ) from None


async def whole_body(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect:
        raise Gone from None


def json_object(body: bytes, charset: str = "") -> dict[str, Any]:
    """Parses a JSON object; replaces lone surrogates, so that its texts can be encoded as UTF-8.

    Skips a byte order mark, and recognizes UTF-16 by its zeros, whatever the named charset.
    """
    try:
        if _UNICODE.fullmatch(charset):
            text = body.decode(json.detect_encoding(body))
        else:
            text = decode_text(body, charset)
        fields = json.loads(text, parse_constant=_refuse_constant)
    # A million digits raise ValueError, a million brackets RecursionError
    except (ValueError, RecursionError):
        raise Refused(400, "Invalid JSON format") from None
    if not isinstance(fields, dict) or _is_deep(fields):
        raise Refused(400, "Invalid JSON format")
    return {str(name): _clean(value) for name, value in fields.items()}


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _is_deep(value: object, depth: int = 0) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner: Iterator[Any] = iter(value.values() if isinstance(value, dict) else value)
    return depth > MOST_DEPTH or any(_is_deep(item, depth + 1) for item in inner)


def _clean(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(name): _clean(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):  # 1e999
        raise Refused(400, "Invalid JSON format")
    return value


def _pairs(body: bytes, charset: str) -> dict[str, str]:
    """Parses a urlencoded form; the first of several values counts, and lines end in LF."""
    # Not with `parse_qsl`, which decodes each escape separately: some bytes of a character may be
    # unescaped
    parts = body.split(b"&", MOST_FIELDS)
    if len(parts) > MOST_FIELDS:
        raise Refused(400, f"more than {MOST_FIELDS} fields")
    pairs = [
        [unquote_to_bytes(side.replace(b"+", b" ")) for side in (name, value)]
        for name, _, value in (part.partition(b"=") for part in parts if part)
    ]
    charset = charset or charset_field([(name, value) for name, value in pairs])
    return {
        without_surrogates(decode_text(name, charset)): _unix_lines(decode_text(value, charset))
        for name, value in reversed(pairs)
    }


def charset_field(fields: Sequence[tuple[bytes, bytes]]) -> str:
    """Returns the value of the form field `_charset_`, which browsers fill in."""
    value = dict(fields).get(b"_charset_", b"")
    return value.decode("ascii", "replace").strip().lower()


def _unix_lines(text: str) -> str:
    # Browsers always send \r\n
    return text.replace("\r\n", "\n").replace("\r", "\n")


class CharsetParser(MultiPartParser):
    """A multipart parser that keeps the bytes and the charset of each field."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - Starlette's
        super().__init__(*arguments, **options)
        self.charsets: list[str] = []

    def on_headers_finished(self) -> None:
        super().on_headers_finished()
        headers = dict(self._current_part.item_headers)
        self.charsets.append(content_charset(headers.get(b"content-type", b"").decode("latin-1")))


async def _multipart(request: Request, charset: str) -> tuple[dict[str, str], dict[str, Upload]]:
    header = request.headers["content-type"].encode("latin-1")
    boundary = parse_options_header(header)[1].get(b"boundary", b"")
    # As Latin-1, which preserves the bytes; Starlette would guess invalid ones
    kind = f'{MULTIPART}; boundary="{boundary.decode("latin-1")}"; charset=latin-1'
    headers = {"content-type": kind} if boundary else {"content-type": MULTIPART}
    parser = CharsetParser(Headers(headers), request.stream(), max_files=1, max_fields=MOST_FIELDS)
    # In memory, so that no data of a client is left on disk
    parser.spool_max_size = FILE_BYTES + 1
    try:
        form = await parser.parse()
    except ClientDisconnect:
        raise Gone from None
    except MultiPartException as error:
        raise Refused(400, f"the form cannot be read: {error.message}") from None
    except (ValueError, IndexError, KeyError, LookupError):  # an invalid boundary
        raise Refused(400, "the form cannot be read") from None
    items = [(name.encode("latin-1"), value) for name, value in form.multi_items()]
    texts = [(name, value.encode("latin-1")) for name, value in items if isinstance(value, str)]
    charset = charset or charset_field(texts)
    values: dict[str, str] = {}
    files: dict[str, Upload] = {}
    for (encoded, value), own in zip(items, parser.charsets, strict=True):
        name = without_surrogates(decode_text(encoded, charset))
        if isinstance(value, str):
            text = decode_text(value.encode("latin-1"), own or charset)
            values.setdefault(name, _unix_lines(without_surrogates(text)))
        else:
            title = decode_text((value.filename or "").encode("latin-1"), charset)
            files.setdefault(name, Upload(without_surrogates(title), await value.read()))
            await value.close()
    return values, files
