"""Parts that all calls share: their errors in a program's words, and locks that forks wait for."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from functools import cache, partial, wraps
from pathlib import Path
from threading import RLock
from types import MappingProxyType, NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from weakref import WeakSet

from tformer_cli.api.results import Results
from tformer_cli.errors import TformerError, UsageError
from tformer_cli.search.keywords import DecodingOverrides, TranslatorOptions
from tformer_cli.settings import Limits, Option, literal_values, type_problem, types_of
from tformer_cli.text.lines import check_lines, given_lines
from tformer_cli.wording import as_named, did_you_mean, suggestions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P = ParamSpec("P")
R = TypeVar("R")


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a function's errors name its arguments, and suggest one for a wrong name."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    takes_others = bool(code.co_flags & inspect.CO_VARKEYWORDS)

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        for name in options:
            if name not in known and not takes_others:
                raise _unknown(function.__name__, name, known)
        # Python itself reports extra arguments
        for name, value in (*zip(known, args, strict=False), *options.items()):
            if problem := _problem(value, name, function):
                raise UsageError(f"{name}: {problem}")
        with in_python():
            result = function(*args, **options)
        if isinstance(result, Results) and not any(
            isinstance(argument, Iterator) for argument in (*args, *options.values())
        ):
            result.again = partial(cast("Callable[..., Results[Any]]", function), *args, **options)
        return result

    return call


def _problem(value: object, name: str, function: Callable[..., Any]) -> str:
    """Returns why an argument does not take a word or list; empty if it may."""
    if function.__annotations__.get(name) in ONLY_LISTS and isinstance(value, str | Path):
        what = "str" if isinstance(value, str) else "path"
        return f"is one {what}; give a list, such as [{value!r}]"
    kind = _kind_of_words(function, name)
    return type_problem(value, kind) if literal_values(kind) else ""


@cache
def _kind_of_words(function: Callable[..., Any], name: str) -> Any:  # noqa: ANN401 - a type
    """The type of an argument, if it is a `Literal` or one of ours; else None."""
    annotation = str(function.__annotations__.get(name))
    # Only for an argument that is passed: others have types that nothing here imports
    words = {
        word: getattr(importlib.import_module(module), word)
        for word, module in WORDS.items()
        if word in annotation
    }
    if not words and "Literal[" not in annotation:
        return None
    argument = type("_Argument", (), {"__annotations__": {name: annotation}})
    return get_type_hints(argument, {"Literal": Literal}, words)[name]


def check_number(name: str, value: object, kind: type, limits: Limits) -> None:
    """Refuses other values than the numbers that an argument takes."""
    if problem := type_problem(value, kind):
        raise UsageError(f"{name}: {problem}")
    if not limits.hold(value):
        raise UsageError(f"{name}: must be {limits.words}, but is {value}")


def make_settings(kind: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a dataclass
    """Makes settings of values from Python, checked by their options as those of a command.

    Raises:
        UsageError: if a setting is unknown, missing or impossible; it names the first.
    """
    hints = get_type_hints(kind, include_extras=True)
    known = {field.name: field for field in fields(kind)}
    if unknown := [name for name in values if name not in known]:
        use = f"use {', '.join(known)}" if known else "there are none"
        raise UsageError(f"{unknown[0]}: no such setting; {use}")
    for name, field in known.items():
        if field.default is MISSING is field.default_factory and name not in values:
            raise UsageError(f"{name}: is missing")
    settings = {}
    for name, value in values.items():
        extras = (known[name].metadata.get("option"), *getattr(hints[name], "__metadata__", ()))
        option = next((extra for extra in extras if isinstance(extra, Option)), Option(""))
        of_type = types_of(kind)[name]
        is_list = get_origin(of_type) is tuple
        if is_list and (isinstance(value, str) or not isinstance(value, Iterable)):
            what = type(value).__name__
            raise UsageError(f"{name}: is one {what}; give a list, such as [{value!r}]")
        settings[name] = tuple(value) if is_list else value
        for part in settings[name] if is_list else [value]:
            if problem := _option_problem(
                part, get_args(of_type)[0] if is_list else of_type, option
            ):
                raise UsageError(f"{name}: {problem}")
    return kind(**settings)


def _option_problem(value: Any, kind: Any, option: Option) -> str:  # noqa: ANN401 - any value
    """Explains why an option cannot have a value; empty if it can."""
    if value is None and NoneType in get_args(kind):
        return ""
    if not literal_values(kind) and get_args(kind):
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    if problem := type_problem(value, kind):
        return problem
    if option.min is not None and not value >= option.min:
        return f"must be at least {option.min:g}, but is {value}"
    if option.max is not None and not value <= option.max:
        return f"must be at most {option.max:g}, but is {value}"
    return ""


def _unknown(function: str, name: str, known: tuple[str, ...]) -> Exception:
    guess = did_you_mean(suggestions(name, known)) or "see `tformer guide python`"
    if function == "load":
        return UsageError(f"{name}: is not a setting of a loaded model; {guess}")
    if name in TranslatorOptions.__annotations__:
        guess = "give it to tformer.load"
    # As Python raises it of an unknown argument
    return TypeError(f"{name}: is not an argument of {function}(); {guess}")


def search_given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Picks the settings of the search among the arguments of a call; None is as if not given."""
    known = DecodingOverrides.__annotations__
    return {name: value for name, value in arguments.items() if name in known and value is not None}


def as_streams(references: Iterable[str] | Iterable[Iterable[str]]) -> list[list[str]]:
    """Reads one list of references or several."""
    check_lines(references, "references")
    streams = list(references)
    if all(isinstance(stream, str) for stream in streams):
        return [cast("list[str]", streams)]
    return [
        list(given_lines(stream, f"references[{number}]")) for number, stream in enumerate(streams)
    ]


@contextmanager
def in_python() -> Iterator[None]:
    """Lets errors name arguments where the command line has options, and what the caller named."""
    try:
        yield
    except TformerError as error:
        error.args = (as_named(error.in_arguments), *error.args[1:])
        raise


ONLY_LISTS = ("Sequence[str]", "Sequence[Path]")
"""Types of arguments that a string would satisfy, a letter each."""
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "CaptureMode": "tformer_cli.heads.names",
        "Convention": "tformer_cli.inspect.alignment",
        "WeightingName": "tformer_cli.inspect.weighting",
    }
)
"""Words that arguments take and nothing else checks, and the modules that have them."""


# A child of a fork has the locks of all threads, but one thread only: a fork waits for all of them.
_locks: WeakSet[Any] = WeakSet()
_adding, _held = RLock(), list[Any]()


def new_lock() -> Any:  # noqa: ANN401 - the type of locks has no name that can be called
    """Returns a lock that no thread holds when the process forks."""
    lock = RLock()
    with _adding:
        _locks.add(lock)
    return lock


def _acquire_all() -> None:
    _adding.acquire()
    _held[:] = _locks
    for lock in _held:
        lock.acquire()


def _release_all() -> None:
    while _held:
        _held.pop().release()
    _adding.release()


# Hooks run in the reverse order of their registration. The thread pool library also locks for
# forks, and computing code takes its lock: ours must be acquired first.
importlib.import_module("concurrent.futures.thread")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all
    )
