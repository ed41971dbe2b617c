"""Parts that all calls share: their errors in a program's words, and locks that forks wait for."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial, wraps
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast
from weakref import WeakSet

from tformer_cli.api.results import Results
from tformer_cli.errors import TformerError, UsageError
from tformer_cli.files.cache import as_named
from tformer_cli.search.keywords import DecodingOverrides, TranslatorOptions
from tformer_cli.wording import did_you_mean, suggestions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

P = ParamSpec("P")
R = TypeVar("R")


def called(function: Callable[P, R]) -> Callable[P, R]:
    """Has the errors of a function name its arguments, and the one that a wrong name is nearest."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        for name in options:
            if name not in known:
                raise _unknown(function.__name__, name, known)
        with in_python():
            found = function(*args, **options)
        if isinstance(found, Results) and not any(
            isinstance(one, Iterator) for one in (*args, *options.values())
        ):
            found.again = partial(cast("Callable[..., Results[Any]]", function), *args, **options)
        return found

    return call


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
    return {name: one for name, one in arguments.items() if name in known and one is not None}


def as_streams(references: Sequence[str] | Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Returns the lists of references, of which there may be one."""
    is_one = not isinstance(references, str) and all(isinstance(one, str) for one in references)
    return [references] if is_one else references  # type: ignore[list-item]


@contextmanager
def in_python() -> Iterator[None]:
    """Lets errors name arguments where the command line has options, and what the caller named."""
    try:
        yield
    except TformerError as error:
        error.args = (python_words(as_named(str(error))), *error.args[1:])
        raise


def python_words(message: str) -> str:
    """Writes ``--beam-size`` as ``beam_size``, but in commands, which stand in backticks."""
    parts = message.replace(" (--images takes all)", "").split("`")
    parts[::2] = [_OPTION.sub(_argument, part) for part in parts[::2]]
    return "`".join(parts)


def _argument(option: re.Match[str]) -> str:
    name = ARGUMENTS.get(option[1], option[1].replace("-", "_"))
    return name if option[2] is None else f'{name}="{option[2]}"'


_OPTION = re.compile(r"(?<![\w/])--([a-z][a-z-]*[a-z])(?: (truncate|error)\b)?")
ARGUMENTS: Mapping[str, str] = MappingProxyType({"stop": "stops", "target": "targets"})
"""Arguments that are not called as the options are."""


# A child of a fork has the locks of all threads, but one thread only: a fork waits for all of them.
_locks: WeakSet[Any] = WeakSet()
_adding, _held = RLock(), list[Any]()


def new_lock() -> Any:  # noqa: ANN401 - the type of locks has no name that can be called
    """Makes a lock that nobody holds when the process is forked."""
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


# What is registered last is called first. The library of thread pools has a lock for forks, too,
# which whoever computes asks for: it must be acquired after ours.
importlib.import_module("concurrent.futures.thread")
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_acquire_all, after_in_parent=_release_all, after_in_child=_release_all
    )
