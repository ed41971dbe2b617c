"""Mappings from TOML and JSON files into frozen dataclasses, strictly.

pydantic does the checking; this module makes its first complaint a sentence with the key's path and
the nearest right key.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import GenericAlias
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from tformer_cli.wording import did_you_mean, suggestions

Settings = TypeVar("Settings")


KINDS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": 'must be text in quotes ("…")',
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "dataclass_type": "must be a table",
}
"""Expected kinds of values, by pydantic's names of errors."""
_MOST_LOOKED_AT = 10_000


class StructureError(ValueError):
    """A mapping does not fit its dataclass."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key = key
        self.problem = problem


def structure(kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Creates a dataclass, and those inside it, from a mapping.

    Numbers are not made from strings, nor strings from numbers; unknown keys are errors.
    """
    try:
        text = json.dumps(values)
    except (TypeError, ValueError, RecursionError):
        problem = "must be a string, a number, true or false, a list or a table"
        raise StructureError(_path_of_odd(values), problem) from None
    try:
        settings: Settings = _adapter(cast("Any", kind)).validate_json(f"[{text}]")[0]
    except ValidationError as error:
        raise _explained(kind, error) from None
    return settings


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    # pydantic hands its settings down to plain dataclasses, not to one at the top: hence a tuple
    one: Any = GenericAlias(tuple, (kind,))
    return TypeAdapter(one, config=ConfigDict(extra="forbid", strict=True))


def _explained(kind: type, error: ValidationError) -> StructureError:
    found = error.errors(include_url=False)
    # an unknown key explains a missing one, not the other way round
    first = next(
        (item for item in found if item["type"] == "unexpected_keyword_argument"), found[0]
    )
    location = first["loc"][1:]  # the first part is the place in `_adapter`'s tuple
    path = ".".join(str(part) for part in location)
    match first["type"]:
        case "unexpected_keyword_argument":
            return StructureError(path, _unknown_key(kind, location))
        case "missing" | "missing_keyword_only_argument":
            return StructureError(path, "is missing; it has no default")
        case "value_error":
            message = str(first["ctx"]["error"])
            key, colon, problem = message.partition(": ")
            if colon and key.isidentifier():
                return StructureError(f"{path}.{key}" if path else key, problem)
            return StructureError(path, message)
        case "literal_error":
            return StructureError(
                path, f"must be {first['ctx']['expected']}; found {_shown(first)}"
            )
        case kind_of_error:
            problem = KINDS.get(kind_of_error) or _lower(
                first["msg"].replace("Input should be ", "must be ")
            )
            return StructureError(path, f"{problem}; found {_shown(first)}")


def _path_of_odd(values: Any) -> str:
    """The path of the first value that JSON does not know, such as a date; empty if none is found.

    It steps into no more than a few tables: what is nested too deeply has no path to tell.
    """
    waiting = [(str(key), value) for key, value in values.items()]
    for _ in range(_MOST_LOOKED_AT):
        if not waiting:
            break
        path, value = waiting.pop(0)
        if isinstance(value, Mapping):
            waiting += [(f"{path}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(f"{path}.{place}", inner) for place, inner in enumerate(value)]
        elif not isinstance(value, str | int | float | None):
            return path
    return ""


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _shown(item: Any) -> str:
    text = json.dumps(item["input"], ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def _unknown_key(kind: type, location: tuple[int | str, ...]) -> str:
    names = [field.name for field in fields(_owner(kind, location[:-1]))]
    elsewhere = [path for path in _paths(kind) if path.rpartition(".")[2] == location[-1]]
    meant = elsewhere or suggestions(str(location[-1]), names)
    if meant:
        quoted = [f'"{name}"' for name in meant]
        return f"unknown key; {did_you_mean(quoted)}"
    return f"unknown key; the known keys are {', '.join(names)}"


def _paths(kind: Any, above: str = "") -> Iterator[str]:
    """Yields the path of every key of a dataclass and of those inside it, but not inside tuples."""
    for name, type_of_value in get_type_hints(kind).items():
        yield above + name
        if is_dataclass(type_of_value):
            yield from _paths(type_of_value, f"{above}{name}.")


def _owner(kind: type, path: tuple[int | str, ...]) -> Any:
    """Finds the dataclass that lies at a path, stepping through tuples."""
    current: Any = kind
    for part in path:
        if is_dataclass(current) and isinstance(part, str):
            current = get_type_hints(current)[part]
        candidates = [current, *get_args(current)] if get_origin(current) else [current]
        current = next((item for item in candidates if is_dataclass(item)), current)
    return current
