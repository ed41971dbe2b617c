"""Tables of the keys of the files that come with a foreign model.

A `Keys` is the table of one file of one family: each key is *used* (read elsewhere), *without
effect* (with the reason), *noted* (its sentence is shown at import), or *supported for some values
only*. A key that the table lacks is refused by name, unless its value is null, which is as if it
were missing. So a setting that a library adds later is never silently computed as something else.

An importer reads a file with `read_json_file`, hands it to `Keys.read`, and appends the sentences
that this returns to its model's notes. Rows that families share are merged as mappings:
`{**COMMON, "hidden_act": only("gelu")}`; a row may be an object's, or a list of objects'. `Setting`
names a setting of the model both ways.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tformer_cli.errors import ArtifactError
from tformer_cli.files.regular_file import read_regular
from tformer_cli.foreign.formats.mapped_file import check_no_pointer
from tformer_cli.settings import ANY


@dataclass(frozen=True)
class Fate:
    """The fate of one key."""

    # read by the importer, ignored, ignored with a note, or refused but for some values
    kind: Literal["used", "no effect", "noted", "only"]
    why: str = ""  # why it has no effect, or the sentence of the note
    values: Container[Any] = ANY  # values that are supported, or that need no note


@dataclass(frozen=True)
class Parts:
    """An object with a `type`, such as a normalizer."""

    kinds: Mapping[str | None, "KeyRows"]
    in_sequence: bool = False  # it may also be a `Sequence` of such objects, in any order


Row: TypeAlias = "Fate | Parts | Mapping[str, Row]"
KeyRows: TypeAlias = Mapping[str, Row]

USED: Final = Fate("used")  # the importer reads the key, and checks its value


def no_effect(why: str) -> Fate:
    """The key changes nothing here, for a reason."""
    return Fate("no effect", why)


def omit(sentence: str, *neutral: object) -> Fate:
    """The key is omitted, which a note says, unless its value is null or a neutral one."""
    return Fate("noted", sentence, (None, *neutral))


def only(*values: object) -> Fate:
    """The key is refused unless its value is one of these."""
    return Fate("only", "", values)


def rows_of(names: str, row: Row) -> KeyRows:
    """The same row for several keys, which a text names with spaces between them."""
    return dict.fromkeys(names.split(), row)


@dataclass(frozen=True)
class Keys:
    """The table of a file of one family of models."""

    file: str
    models: str
    rows: KeyRows = field(repr=False)

    def read(self, path: Path, values: Mapping[str, Any]) -> list[str]:
        """Refuses the first unknown key or unsupported value; returns notes on omitted keys."""
        return list(dict.fromkeys(_read(path, values, self.rows, "")))


def _read(path: Path, values: Mapping[str, Any], rows: KeyRows, within: str) -> Iterator[str]:
    for key, value in values.items():
        name = within + (key if key.isascii() and key.isprintable() else json.dumps(key))[:60]
        row = rows.get(key)
        if row is None:
            if value is not None:  # null is how libraries write a key that is not set
                raise ArtifactError(
                    f"{path}: {name} = {quote(value)} is unknown, so it could change results; "
                    "remove it if the model is computed without it"
                )
        elif isinstance(row, Fate):
            if row.kind == "only" and value not in row.values:
                raise unsupported_error(path, name, value)
            if row.kind == "noted" and value not in row.values:
                yield f"{name} = {quote(value)}: {row.why}"
        elif isinstance(row, Parts):
            yield from _read_parts(path, value, row, name)
        else:
            for inner in value if isinstance(value, list) else (value or {},):
                if not isinstance(inner, dict):
                    raise unsupported_error(path, name, value)
                yield from _read(path, inner, row, f"{name}.")


def _read_parts(path: Path, value: object, row: Parts, name: str) -> Iterator[str]:
    part = {"type": None} if value is None else value
    kind = part.get("type") if isinstance(part, dict) else part
    if not isinstance(part, dict) or not isinstance(kind, str | None):
        raise unsupported_error(path, name, value)
    if kind == "Sequence" and row.in_sequence:
        for inner in (item for items in part.values() if isinstance(items, list) for item in items):
            yield from _read_parts(path, inner, row, name)
    elif kind in row.kinds:
        yield from _read(path, part, {"type": USED, **row.kinds[kind]}, f"{name}.")
    else:
        raise unsupported_error(path, f"{name}.type", kind)


def unsupported_error(path: Path, name: str, value: object) -> ArtifactError:
    return ArtifactError(f"{path}: {name} = {quote(value)} is not supported; import another model")


_LARGEST_JSON, _MOST_VALUES = 1 << 26, 1 << 22  # bytes and values of the largest tokenizer.json
_MOST_LINES = 1 << 20


def read_json_file(path: Path) -> dict[str, Any]:
    try:
        values = parse_json(read_regular(path, _LARGEST_JSON))
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such file; download the whole model") from None
    except (OSError, ValueError, RecursionError) as error:
        message = getattr(error, "strerror", None) or str(error)
        reason = " ".join(message.split())[:200]
        raise ArtifactError(f"{path}: is not readable JSON ({reason}); download it again") from None
    if not isinstance(values, dict):
        raise ArtifactError(f"{path}: is not a JSON object; download it again")
    return values


def parse_json(data: bytes) -> Any:  # noqa: ANN401
    """Reads JSON of a size that makes sense: a value takes some hundred bytes of memory."""
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        raise ValueError(f"has more than {_MOST_VALUES:,} values")
    values = json.loads(data)
    if b"\\ud" in data.lower():  # no file could hold it again
        json.dumps(values, ensure_ascii=False).encode()
    return values


def read_bytes(path: Path, most_bytes: int = 1 << 26) -> bytes:
    try:
        check_no_pointer(path)
        return read_regular(path, most_bytes)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(
            f"{path}: cannot be read ({reason}); download the whole model"
        ) from None


def read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise ArtifactError(f"{path}: is not UTF-8 text; download it again") from None


def read_lines(path: Path) -> list[str]:
    """Reads a vocabulary with one piece per line; the last line must end, too."""
    lines = read_text(path).split("\n", _MOST_LINES + 1)
    if len(lines) > _MOST_LINES + 1:
        raise ArtifactError(f"{path}: has more than {_MOST_LINES:,} lines; use the model's own")
    if lines.pop():
        raise ArtifactError(
            f"{path}: ends inside a line, so it may be cut short; download it again, or end its "
            "last line if that is whole"
        )
    return [line.removesuffix("\r") for line in lines]


def check_settings(
    path: Path, settings: Mapping[str, Any], known: Mapping[str, Iterable[Any]]
) -> None:
    """Refuses settings whose values are not the known ones; a missing one is as by default."""
    for name, values in known.items():
        if name in settings and settings[name] not in values:
            raise unsupported_error(path, name, settings[name])


def quote(value: object) -> str:
    """Formats a foreign setting for a message; for a nested value, its type, which is short."""
    parts = value if isinstance(value, list) else [value]
    if len(parts) < 10 and all(isinstance(part, str | int | float | None) for part in parts):
        return json.dumps(value)[:60]
    return f"a {type(value).__name__}"


def number(path: Path, settings: Mapping[str, Any], name: str) -> int:
    value = settings.get(name)
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:20])
    if isinstance(value, list) and name.endswith("_token_id"):
        raise ArtifactError(
            f"{path}: {name} = {quote(value)} is a list, which is not supported; leave the one "
            "that texts were trained with, or import another model"
        )
    if type(value) is not int or value < 0:
        stored = quote(value) if name in settings else "nothing"
        raise ArtifactError(
            f"{path}: {name} is not a whole number (found {stored}); use this model's own settings"
        )
    return value


@dataclass(frozen=True)
class Setting:
    """A setting of a model by tformer's name and by another tool's."""

    ours: str
    theirs: str
    default: Any = None  # the tool's, where the file lacks the key; None: the file must have it
    # tformer's value of each of the tool's; None: the same numbers
    values: Mapping[Any, Any] | None = None

    def read(self, file: Path, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401
        value = settings.get(self.theirs)
        is_missing = value is None
        value = self.default if is_missing else value
        if self.values is not None:
            if value not in self.values:
                raise unsupported_error(file, self.theirs, value)
            return self.values[value]
        if isinstance(self.default, float):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ArtifactError(
                    f"{file}: {self.theirs} = {quote(value)} is not a number; import another model"
                )
            return value
        return value if is_missing and value is not None else number(file, settings, self.theirs)

    def write(self, value: Any) -> Any:  # noqa: ANN401
        names = [] if self.values is None else self.values.items()
        return next((theirs for theirs, ours in names if ours == value), value)


def read_shape(file: Path, settings: Mapping[str, Any], table: Iterable[Setting]) -> dict[str, Any]:
    """Reads the settings of a model by tformer's names; those with two keys must agree."""
    shape: dict[str, Any] = {}
    for setting in table:
        value = setting.read(file, settings)
        if shape.setdefault(setting.ours, value) != value:
            raise ArtifactError(
                f"{file}: encoder and decoder differ in {setting.theirs.removeprefix('decoder_')}, "
                "which is not supported; import another model"
            )
    return shape
