"""Values of options and arguments, read from their text.

Typer asks pydantic, which takes as long to load as a line to translate, and answers in its words.
"""

import re
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from typer import BadParameter

from tformer_cli.errors import UsageError

# Scripts compute counts as 5.0 or 5.00
WHOLE = re.compile(r"\.0+$")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,3})?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)


class PlainValue:
    """Reads the values of a parameter in the place of Typer's `RuntimeParam`."""

    def __init__(self, descriptor: Any) -> None:  # noqa: ANN401 - Typer's
        self._info = descriptor.parameter_info
        self._choices = descriptor.choices
        self._kind = (
            get_args(descriptor.annotation)[0] if descriptor.is_list else descriptor.annotation
        )

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ANN401 - Typer's
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        try:
            return [self._read(one) for one in value] if is_list else self._read(value)
        except ValueError as error:
            # `help.usage_message` takes its words from the cause
            raise BadParameter(str(error), ctx=ctx, param=param) from error

    def _read(self, value: Any) -> Any:  # noqa: ANN401 - of the parameter's type
        if self._info.parser is not None:
            return self._info.parser(value)
        if self._choices is not None:
            return _choice(value, self._choices)
        if self._kind in (int, float):
            return self._number(value)
        return Path(value) if self._kind is Path else value

    def _number(self, value: Any) -> int | float:  # noqa: ANN401 - a text, or a default
        # A long text that was given by mistake would hide what is wrong
        shown = f'"{str(value)[:60]}"'
        try:
            number = int(WHOLE.sub("", str(value))) if self._kind is int else float(value)
        except ValueError:
            word = "whole number" if self._kind is int else "number"
            raise ValueError(f"must be a {word}, but is {shown}") from None
        # NaN fails both
        if self._info.min is not None and not number >= self._info.min:
            raise ValueError(f"must be at least {self._info.min:g}, but is {shown}")
        if self._info.max is not None and not number <= self._info.max:
            raise ValueError(f"must be at most {self._info.max:g}, but is {shown}")
        return number


def _choice(value: Any, choices: Iterable[Any]) -> Any:  # noqa: ANN401 - one of the choices
    known = {str(one.value if isinstance(one, Enum) else one): one for one in choices}
    if str(value) not in known:
        raise ValueError(f"{value!r} is not one of {', '.join(map(repr, known))}")
    return known[str(value)]


def parse_size(text: str, option: str) -> int:
    """Reads a number of bytes: 1000, 500M, 2.5G, 2GiB; units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    n_bytes = 0 if match is None else int(float(match[1]) * UNITS[match[2].upper()])
    if n_bytes < 1:
        raise UsageError(f'{option}: "{text}" is not a size above 0; write 500M or 20G')
    return n_bytes


def format_size(n_bytes: int) -> str:
    size = float(n_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
