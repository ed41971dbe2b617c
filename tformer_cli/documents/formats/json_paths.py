"""JSON: strings at given paths, or all of them; keys, numbers and the layout stay."""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache

from tformer_cli.documents.segments import (
    Document,
    ReadSettings,
    SegmentBuilder,
    Slot,
    TextDocument,
    add_message,
    decoded,
)
from tformer_cli.errors import DataError
from tformer_cli.text.lines import without_surrogates

# Possessive: else the search keeps a place to go back to for each character of a long string
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]', re.DOTALL)
_LAST_COMMA = re.compile(r",\s*(?=[]}])")
DEEPEST = 500
"""Lists and objects in each other."""
_LABEL = re.compile(r"""("@@locale"\s*:\s*")[^"\\]*""")
"""The language of an ARB file, by a key that no text has: there its quotes are escaped."""
_NOTES = ("@", "$")
"""First characters of keys that tell programs something: of ARB files, of schemas."""


def read(data: bytes, settings: ReadSettings) -> Document:
    text, encoding = decoded(data, settings)
    try:
        # Nothing of the values is kept; Python makes no number of thousands of digits
        json.loads(text, parse_int=_nothing, parse_float=_nothing, object_pairs_hook=_nothing)
        parts = _parts(text, settings)
    except json.JSONDecodeError as error:
        # Python 3.13 names the place of a comma too many, others that of the bracket behind it
        comma = _LAST_COMMA.match(text, error.pos)
        line = text.count("\n", 0, comma.end() if comma else error.pos) + 1
        raise DataError(f"{settings.name}:{line}: is not JSON ({error.msg})") from None
    except RecursionError:
        raise DataError(f"{settings.name}: has too many values in each other") from None
    label = json.dumps(settings.target_language.replace("-", "_"))[1:-1]

    def relabel(text: str) -> str:
        return _LABEL.sub(lambda found: found[1] + label, text, count=1) if label else text

    return TextDocument(parts, encoding, relabel)


def _nothing(_value: object) -> None:
    """Stands for a value that nobody needs."""


def _parts(text: str, settings: ReadSettings) -> list[str | Slot]:
    """Cuts a text into strings to translate and what is between them."""
    wanted = [_pattern(path) for path in settings.keys]
    # Where a file has only ASCII characters, perhaps its reader knows no others
    escapes = text.isascii() and re.search(r"\\u(?!00[0-7])", text) is not None
    parts: list[str | Slot] = []
    place = 0
    for path, found in _strings(text):
        if wanted:
            joined = "".join(f"{one}\0" for one in path)
            is_read = any(pattern.fullmatch(joined) for pattern in wanted)
        else:
            is_read = not any(one.startswith(_NOTES) for one in path)
        builder = SegmentBuilder(".".join(path))
        raw = found[0][1:-1]
        escape = _escaping("\\/" if "\\/" in raw else "/", ascii_only=escapes)
        add_message(builder, _value(found[0]), builder.text, escape)
        if is_read and not builder.is_blank:
            parts += text[place : found.start() + 1], Slot(builder.build(), raw, escape)
            place = found.end() - 1
    return [*parts, text[place:]]


@cache
def _escaping(slash: str, *, ascii_only: bool) -> Callable[[str], str]:
    return lambda text: json.dumps(text, ensure_ascii=ascii_only)[1:-1].replace("/", slash)


def _value(raw: str) -> str:
    return without_surrogates(json.loads(raw, strict=False))


def _pattern(path: str) -> re.Pattern[str]:
    """Compiles a path, `menu.*.title` or `items[0].text`; ** stands for any number of keys."""
    parts = re.sub(r"\[([^\[\]]*)\]", r".\1", path.removeprefix("$")).strip(".").split(".")
    return re.compile(
        "".join(
            r"(?:[^\x00]*\x00)*"
            if part == "**"
            else re.escape(part).replace(r"\*", r"[^\x00]*") + r"\x00"
            for part in parts
        )
    )


def _strings(text: str) -> Iterator[tuple[list[str], re.Match[str]]]:
    """Yields each value that is a string, with its path of keys and numbers."""
    path: list[str] = []
    kinds: list[str] = []
    is_key = False
    for found in _TOKEN.finditer(text):
        one = found[0]
        if one in "{[":
            kinds.append(one)
            if len(kinds) > DEEPEST:  # Python's own limit depends on its version
                raise RecursionError
            path.append("0")
            is_key = one == "{"
        elif one in "}]":
            kinds.pop()
            path.pop()
            is_key = False
        elif one == ",":
            is_key = kinds[-1] == "{"
            if not is_key:
                path[-1] = str(int(path[-1]) + 1)
        elif one == ":":
            is_key = False
        elif is_key:
            path[-1] = _value(one)
        else:
            yield path, found
