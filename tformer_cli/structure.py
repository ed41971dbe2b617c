"""Mappings from TOML and JSON files into frozen dataclasses, strictly.

No library does it: pydantic takes as long to load as a line to translate, and msgspec accepts
unknown keys of dataclasses. Finding these takes the same walk over types as the whole conversion.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from tformer_cli.settings import literal_values, types_of
from tformer_cli.wording import did_you_mean, suggestions

Settings = TypeVar("Settings")
IS_NOT_TEXT = 'must be text in quotes ("…")'
_SCALARS = {
    int: "must be a whole number",
    float: "must be a number",
    bool: "must be true or false",
    str: IS_NOT_TEXT,
}


class StructureError(ValueError):
    """A mapping does not fit its dataclass."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key = key
        self.problem = problem
        self.others: list[StructureError] = []
        """Errors of other keys, in the one that is raised."""


class _UnknownKeyError(StructureError):
    def __init__(self, path: str, known: list[str]) -> None:
        super().__init__(path, "unknown key")
        self.known = known


def structure(kind: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Creates a dataclass, and those inside it, from a mapping.

    Numbers are not made from strings, nor strings from numbers; unknown keys are errors.
    """
    try:
        settings: Settings = _convert(kind, values, "")
    except StructureError as error:
        first, *others = (_with_hint(kind, each) for each in (error, *error.others))
        first.others = others
        raise first from None
    return settings


def _with_hint(kind: type[Settings], error: StructureError) -> StructureError:
    """Adds to the error of an unknown key which one was meant."""
    if not isinstance(error, _UnknownKeyError):
        return error
    name = error.key.rpartition(".")[2]
    elsewhere = [path for path in _paths(kind) if path.rpartition(".")[2] == name]
    meant = [f'"{path}"' for path in elsewhere or suggestions(name, error.known)]
    hint = did_you_mean(meant) or f"the known keys are {', '.join(error.known)}"
    return StructureError(error.key, f"unknown key; {hint}")


def _convert(kind: Any, value: Any, path: str) -> Any:
    if is_dataclass(kind):
        return _record(kind, value, path)
    origin, parts = get_origin(kind), get_args(kind)
    if choices := literal_values(kind):
        *others, last = [repr(choice) for choice in choices if choice is not None]
        known = " or ".join(filter(None, [", ".join(others).replace(" or ", ", "), last]))
        _check(value in choices, path, f"must be {known}", value)
        return value
    if origin in (Union, UnionType):  # of types, or of a type and None
        if value is None and NoneType in parts:
            return None
        errors = []
        for part in parts:
            if part is not NoneType:
                try:
                    return _convert(part, value, path)
                except StructureError as error:
                    errors.append(error)
        raise _join_expectations(errors, path)
    if origin in (tuple, list):
        _check(isinstance(value, list | tuple), path, "must be a list", value)
        if origin is list or parts[-1] is Ellipsis:
            parts = parts[:1] * len(value)
        _check(len(value) == len(parts), path, f"must be a list of {len(parts)}", value)
        pairs = enumerate(zip(parts, value, strict=True))
        return origin(_convert(part, item, _below(path, at)) for at, (part, item) in pairs)
    if origin is not None:  # a mapping; JSON's and TOML's keys are texts
        _check(isinstance(value, Mapping), path, "must be a table", value)
        return {key: _convert(parts[1], item, _below(path, key)) for key, item in value.items()}
    return value if kind is Any else _scalar(kind, value, path)


def _join_expectations(errors: list[StructureError], path: str) -> StructureError:
    """Says of a value that has none of several types which they are."""
    *_, error = errors
    # What is wrong inside of a list or a table says more
    if any(each.key != path or not each.problem.startswith("must be ") for each in errors):
        return error
    problems = [each.problem.removeprefix("must be ").partition("; found ") for each in errors]
    *others, last = dict.fromkeys(words for words, _, _ in problems)
    joint = ", " if " or " in last else " or "
    words = joint.join(filter(None, [", ".join(others).replace(" or ", ", "), last]))
    return StructureError(path, f"must be {words}{''.join(problems[-1][1:])}")


def _record(kind: Any, value: Any, path: str) -> Any:
    _check(isinstance(value, Mapping), path, "must be a table", value)
    types, settings = types_of(kind), dict[str, Any]()
    errors: list[StructureError] = [
        _UnknownKeyError(_below(path, key), list(types)) for key in value if key not in types
    ]
    for key in filter(types.__contains__, value):
        try:
            settings[key] = _convert(types[key], value[key], _below(path, key))
        except StructureError as error:
            errors += [error, *error.others]
    # Before the keys that are missing: an unknown one inside may explain them
    if errors:
        errors[0].others = errors[1:]
        raise errors[0]
    for field in fields(kind):
        if field.name not in settings and field.default is field.default_factory is MISSING:
            raise StructureError(_below(path, field.name), "is missing; it has no default")
    try:
        return kind(**settings)
    except ValueError as error:
        # `check_limits` begins with the name of the field
        key, colon, problem = str(error).partition(": ")
        if colon and key.isidentifier():
            raise StructureError(_below(path, key), problem) from None
        raise StructureError(path, str(error)) from None


def _scalar(kind: type, value: Any, path: str) -> Any:
    fits = isinstance(value, int | float if kind is float else kind)
    # Python's True is an int, JSON's true is none
    _check(fits and (kind is bool) == isinstance(value, bool), path, _SCALARS[kind], value)
    if kind is float:
        try:
            return float(value)
        except OverflowError:  # JSON's whole numbers have no bounds
            raise StructureError(path, "must be a smaller number") from None
    if kind is str and any("\ud800" <= character <= "\udfff" for character in value):
        # JSON can write half a character, which no stream could
        raise StructureError(path, "must be text without lone surrogates")
    return value


def _check(fits: bool, path: str, words: str, value: Any) -> None:
    if fits:
        return
    try:
        text = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()
    except (TypeError, ValueError, RecursionError):  # TOML's dates, cycles, deep nesting
        words = "must be a string, a number, true or false, a list or a table"
        raise StructureError(path, words) from None
    raise StructureError(path, f"{words}; found {text if len(text) <= 60 else text[:57] + '…'}")


def _below(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _paths(kind: Any, above: str = "") -> Iterator[str]:
    """Yields the path of every key of a dataclass and of those inside it, but not inside tuples."""
    for name, type_of_value in types_of(kind).items():
        yield above + name
        if is_dataclass(type_of_value):
            yield from _paths(type_of_value, f"{above}{name}.")
