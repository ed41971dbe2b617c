"""JSON and JSON Lines: translates all strings or those at given paths; all else stays."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from functools import cache

from tformer_cli.documents.segments import (
    LINE,
    Document,
    Encoding,
    ReadSettings,
    SegmentBuilder,
    Slot,
    TextDocument,
    add_message,
    decode_file,
)
from tformer_cli.errors import DataError, UsageError
from tformer_cli.plugins.documents.tables import list_names
from tformer_cli.text.lines import without_surrogates
from tformer_cli.wording import is_blank

# Possessive: otherwise the regex keeps a backtrack point for each character of a long string
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[{}\[\],:]', re.DOTALL)
_LAST_COMMA = re.compile(r",\s*(?=[]}])")
DEEPEST = 500
"""Maximum nesting of lists and objects."""
_LABEL = re.compile(r"""("@@locale"\s*:\s*")[^"\\]*""")
"""The language key of an ARB file; texts cannot contain it, because their quotes are escaped."""
_LOOKED_AT = 100
"""Number of lines searched for field names."""
_MOST_FIELDS = 1000
_NOTES = ("@", "$")
"""First characters of metadata keys, in ARB files and schemas."""


def read(data: bytes, settings: ReadSettings) -> Document:
    text, encoding = decode_file(data, settings)
    reader = _Reader(text, settings)
    reader.read(0, len(text))
    reader.check_keys()
    label = json.dumps(settings.target_language.replace("-", "_"))[1:-1]

    def relabel(text: str) -> str:
        return _LABEL.sub(lambda match: match[1] + label, text, count=1) if label else text

    return reader.document(encoding, relabel)


def read_lines(data: bytes, settings: ReadSettings) -> Document:
    """Reads JSON Lines: one value per line; translates the named fields."""
    text, encoding = decode_file(data, settings)
    reader = _Reader(text, settings)
    lines = [line for line in LINE.finditer(text) if not is_blank(line[0])]
    if lines and not settings.keys:
        with suppress(DataError):  # the message below is more useful
            for line in lines[:_LOOKED_AT]:
                reader.read(*line.span())
        raise UsageError.of(
            "{}: is a table, not lines of text; {add --input-format jsonl, or }{key} NAME for each "
            "field to translate: {}",
            settings.name,
            list_names(reader.fields),
        )
    for line in lines:
        reader.read(*line.span())
    reader.check_keys()
    return reader.document(encoding)


class _Reader:
    """Collects the texts of one or more values."""

    def __init__(self, text: str, settings: ReadSettings) -> None:
        self.parts: list[str | Slot] = []
        self.place = 0
        """End of the text already in `parts`."""
        self.skipped: Counter[str] = Counter()
        self.fields: dict[str, None] = {}
        """Key paths of objects."""
        self._text = text
        self._settings = settings
        self._patterns = {path: _pattern(path) for path in settings.keys}
        self._any = re.compile("|".join(f"(?:{path.pattern})" for path in self._patterns.values()))
        self._unused = set(settings.keys)
        # If a file is pure ASCII, its reader may not know other characters
        self._escapes = text.isascii() and re.search(r"\\u(?!00[0-7])", text) is not None

    def read(self, start: int, end: int) -> None:
        """Reads the value in a range."""
        text, settings = self._text, self._settings
        try:
            # Values are only checked, not kept; Python cannot parse numbers of thousands of digits
            json.loads(
                text[start:end],
                parse_int=_nothing,
                parse_float=_nothing,
                object_pairs_hook=_nothing,
            )
            self._add_strings(start, end)
        except json.JSONDecodeError as error:
            # Python 3.13 reports the position of a trailing comma, others the bracket after it
            place = start + error.pos
            comma = _LAST_COMMA.match(text, place)
            line = text.count("\n", 0, comma.end() if comma else place) + 1
            raise DataError(f"{settings.name}:{line}: is not JSON ({error.msg})") from None
        except RecursionError:
            raise DataError(f"{settings.name}: has values nested too deep") from None

    def _add_strings(self, start: int, end: int) -> None:
        text = self._text
        is_list = text[start:end].lstrip().startswith("[")
        for path, match, n_lists in _strings(text, start, end):
            if n_lists is None:  # a key
                if len(self.fields) < _MOST_FIELDS:
                    self.fields[".".join(path[is_list:])] = None
                self._is_wanted(path, is_in_list=is_list)
                continue
            if not self._patterns:
                is_read = not any(key.startswith(_NOTES) for key in path)
            else:
                # Texts in a list belong to the key of the list
                whole = [path[: len(path) - n] for n in range(n_lists + 1)]
                is_read = any(self._is_wanted(keys, is_in_list=is_list) for keys in whole)
                if not is_read and any(
                    self._is_wanted(path[:n], is_in_list=is_list) for n in range(1, len(path))
                ):
                    self.skipped["text of an object at a key"] += not is_blank(match[0][1:-1])
            if not is_read:
                continue
            builder = SegmentBuilder(".".join(path))
            raw = match[0][1:-1]
            escape = _make_escape("\\/" if "\\/" in raw else "/", ascii_only=self._escapes)
            add_message(builder, _value(match[0]), builder.text, escape)
            if not builder.is_blank:
                slot = Slot(builder.build(), raw, escape)
                self.parts += text[self.place : match.start() + 1], slot
                self.place = match.end() - 1

    def _is_wanted(self, path: list[str], *, is_in_list: bool) -> bool:
        # A list of objects is a table: its keys need no index
        whole = "\0".join(path) + "\0"
        paths = [whole, whole.partition("\0")[2]] if is_in_list else [whole]
        if not any(map(self._any.fullmatch, paths)):
            return False
        matches = [
            key
            for key, pattern in self._patterns.items()
            if any(pattern.fullmatch(joined) for joined in paths)
        ]
        self._unused.difference_update(matches)
        return bool(matches)

    def document(self, encoding: Encoding, relabel: Callable[[str], str] = str) -> TextDocument:
        document = TextDocument([*self.parts, self._text[self.place :]], encoding, relabel)
        document.skipped += self.skipped
        return document

    def check_keys(self) -> None:
        """Refuses keys that do not occur: otherwise a typo would silently translate nothing."""
        for key in self._settings.keys:
            if key in self._unused and self.fields:
                names = list(self.fields)
                near = get_close_matches(key, names, n=1)
                advice = f"did you mean {near[0]}?" if near else f"it has {list_names(names)}"
                raise UsageError.of(
                    "{key}: {} has nothing at {}; {}", self._settings.name, key, advice
                )


def _nothing(_value: object) -> None:
    """Discards a value."""


@cache
def _make_escape(slash: str, *, ascii_only: bool) -> Callable[[str], str]:
    return lambda text: json.dumps(text, ensure_ascii=ascii_only)[1:-1].replace("/", slash)


def _value(raw: str) -> str:
    return without_surrogates(json.loads(raw, strict=False))


def _pattern(path: str) -> re.Pattern[str]:
    """Compiles a path such as `menu.*.title` or `items[0].text`; ** matches any number of keys."""
    parts = re.sub(r"\[([^\[\]]*)\]", r".\1", path.removeprefix("$")).strip(".").split(".")
    return re.compile(
        "".join(
            r"(?:[^\x00]*\x00)*"
            if part == "**"
            else re.escape(part).replace(r"\*", r"[^\x00]*") + r"\x00"
            for part in parts
        )
    )


def _strings(
    text: str, start: int, end: int
) -> Iterator[tuple[list[str], re.Match[str], int | None]]:
    """Yields each string with its path of keys and indices, and the number of lists around it.

    Counts only the lists directly around it, up to the next object. None marks a key.
    """
    path: list[str] = []
    kinds: list[str] = []
    is_key = False
    for match in _TOKEN.finditer(text, start, end):
        sign = match[0]
        if sign in "{[":
            kinds.append(sign)
            if len(kinds) > DEEPEST:  # Python's own limit varies by version
                raise RecursionError
            path.append("0")
            is_key = sign == "{"
        elif sign in "}]":
            kinds.pop()
            path.pop()
            is_key = False
        elif sign == ",":
            is_key = kinds[-1] == "{"
            if not is_key:
                path[-1] = str(int(path[-1]) + 1)
        elif sign == ":":
            is_key = False
        elif is_key:
            path[-1] = _value(sign)
            yield path, match, None
        else:
            n_lists = (
                len(kinds) - 1 - max((n for n, kind in enumerate(kinds) if kind == "{"), default=0)
            )
            yield path, match, max(n_lists, 0)
