"""Parts that all calls share: their errors in a program's words, and locks that forks wait for."""

from __future__ import annotations

import importlib
import inspect
import os
import re
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
from tformer_cli.search.keywords import DecodingOverrides, LoadSettings
from tformer_cli.search.opening import settings_of_load
from tformer_cli.settings import Limits, check_limits, literal_values, type_problem, types_of
from tformer_cli.text.lines import check_lines, given_lines
from tformer_cli.wording import as_named, did_you_mean, suggestions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

P = ParamSpec("P")
R = TypeVar("R")


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Makes a function's errors name its arguments, and its signature spell out its settings."""
    signature, kinds = _spelled_out(function)
    known = [name for name, part in signature.parameters.items() if part.kind != part.VAR_KEYWORD]
    takes_others = len(known) < len(signature.parameters)
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        for name in options:
            if name not in known and not takes_others:
                raise _unknown(function.__name__, name, known)
        # Python itself reports extra arguments
        for name, value in (*zip(positional, args, strict=False), *options.items()):
            if name in kinds and (problem := _problem(value, kinds[name])):
                raise UsageError(f"{name}: {problem}")
        with in_python():
            result = function(*args, **options)
        if isinstance(result, Results) and not any(
            isinstance(argument, Iterator) for argument in (*args, *options.values())
        ):
            result.again = partial(cast("Callable[..., Results[Any]]", function), *args, **options)
        return result

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _spelled_out(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, str]]:
    """Returns a signature with settings in the place of their TypedDict, and its types as texts."""
    signature = inspect.signature(function)
    *parts, last = signature.parameters.values()
    table = str(last.annotation).removeprefix("Unpack[").removesuffix("]")
    if last.kind is not last.VAR_KEYWORD or table not in SETTINGS:
        parts.append(last)
    else:
        types, named = SETTINGS[table].__annotations__, inspect.Parameter.KEYWORD_ONLY
        for name, (_, default) in settings_of_load().items():
            if name in types:
                kind = re.sub(r"\b[a-z_.]+\.(?=[A-Z])", "", inspect.formatannotation(types[name]))
                kind = re.sub(r"^Optional\[(.*)\]$", r"\1 | None", kind)
                parts.append(inspect.Parameter(name, named, default=default, annotation=kind))
    return signature.replace(parameters=parts), {part.name: str(part.annotation) for part in parts}


def _problem(value: object, kind: str) -> str:
    """Returns why an argument does not take a word or list; empty if it may."""
    is_single = isinstance(value, str) or not isinstance(value, Iterable)
    if kind in ONLY_LISTS and is_single:
        what = "path" if isinstance(value, Path) else type(value).__name__
        return f"is one {what}; give a list, such as [{value!r}]"
    words = _kind_of_words(kind)
    return type_problem(value, words) if literal_values(words) else ""


@cache
def _kind_of_words(kind: str) -> Any:  # noqa: ANN401 - a type
    """The type of an argument, if it is a `Literal` or one of ours; else None."""
    # Only for an argument that is passed: others have types that nothing here imports
    words = {
        word: getattr(importlib.import_module(module), word)
        for word, module in WORDS.items()
        if word in kind
    }
    if not words and "Literal[" not in kind:
        return None
    argument = type("_Argument", (), {"__annotations__": {"kind": kind}})
    return get_type_hints(argument, {"Literal": Literal}, words)["kind"]


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
    known = {field.name: field for field in fields(kind)}
    if unknown := [name for name in values if name not in known]:
        use = f"use {', '.join(known)}" if known else "there are none"
        raise UsageError(f"{unknown[0]}: no such setting; {use}")
    for name, field in known.items():
        if field.default is MISSING is field.default_factory and name not in values:
            raise UsageError(f"{name}: is missing")
    settings = {}
    for name, value in values.items():
        of_type = types_of(kind)[name]
        is_list = get_origin(of_type) is tuple
        if is_list and (isinstance(value, str) or not isinstance(value, Iterable)):
            what = type(value).__name__
            raise UsageError(f"{name}: is one {what}; give a list, such as [{value!r}]")
        settings[name] = tuple(value) if is_list else value
        for part in settings[name] if is_list else [value]:
            if problem := _kind_problem(part, get_args(of_type)[0] if is_list else of_type):
                raise UsageError(f"{name}: {problem}")
    chosen = kind(**settings)
    try:
        check_limits(chosen)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return chosen


def _kind_problem(value: object, kind: Any) -> str:  # noqa: ANN401 - a type
    """Explains why an option cannot have a value of this type; empty if it can."""
    if value is None and NoneType in get_args(kind):
        return ""
    if not literal_values(kind) and get_args(kind):
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    return type_problem(value, kind)


def _unknown(function: str, name: str, known: Sequence[str]) -> Exception:
    ours = ELSEWHERE.get(name, name)
    if ours in known:
        guess = f"use {ours}"
    elif ours in LoadSettings.__annotations__:
        guess = f"give {'it' if ours == name else ours} to tformer.load"
    else:
        guess = did_you_mean(suggestions(name, known)) or "see `tformer guide python`"
    if function == "load":
        return UsageError(f"{name}: is not a setting of a loaded model; {guess}")
    # As Python raises it of an unknown argument
    return TypeError(f"{name}: is not an argument of {function}(); {guess}")


def drop_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings without those that are None, which are as if not given."""
    return {name: value for name, value in settings.items() if value is not None}


def log_note(line: str, level: Literal["info", "warning"] = "info") -> None:
    """Logs a note for the program that calls; Python prints a warning unless a program says how."""
    import logging

    getattr(logging.getLogger("tformer"), level)("%s", line)


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


ONLY_LISTS = ("Sequence[str]", "Sequence[Path | str]")
"""Types of arguments that a string would satisfy, a letter each."""
SETTINGS = {"DecodingOverrides": DecodingOverrides, "LoadSettings": LoadSettings}
ELSEWHERE = {
    **dict.fromkeys(("nbest", "num_hypotheses", "num_return_sequences"), "n_best"),
    **dict.fromkeys(("max_new_tokens", "max_decoding_length", "max_len_b"), "max_length"),
    **dict.fromkeys(("min_new_tokens", "min_decoding_length", "min_len"), "min_length"),
    **dict.fromkeys(("num_beam_groups", "diverse_beam_groups"), "diversity_groups"),
    **dict.fromkeys(("max_batch_size", "max_tokens"), "batch_tokens"),
    **dict.fromkeys(("compute_type", "dtype", "torch_dtype"), "precision"),
    **dict.fromkeys(("inter_threads", "intra_threads", "num_threads"), "threads"),
    **dict.fromkeys(("bad_words_ids", "suppress_sequences"), "banned"),
    **dict.fromkeys(("forced_bos_token_id", "tgt_lang"), "target_language"),
    "batch_size": "buffer_lines", "device_map": "device",
    "diverse_beam_strength": "diversity_penalty", "do_sample": "sampling",
    "lenpen": "length_penalty", "max_len_a": "max_length_ratio",
    "no_repeat_ngram_size": "no_repeat_ngram", "num_beams": "beam_size",
    "sampling_temperature": "temperature", "sampling_topk": "top_k", "sampling_topp": "top_p",
    "src_lang": "source_language", "stop_strings": "stops", "truncation": "too_long",
}  # fmt: skip
"""Arguments of transformers, CTranslate2 and fairseq, and those that do the same here."""
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
