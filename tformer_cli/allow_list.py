"""Allow-lists of settings: values that a part knows, and the reason why it refuses the others.

An engine, an export or a cache that reads settings by itself names every field that it knows, each
with the values that it knows. A field or value that is added later is refused by all of them until
their tables name it, and is never silently computed as something else.
"""

from __future__ import annotations

import functools
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from _typeshed import DataclassInstance


class _Anything:
    """Holds every value."""

    def __contains__(self, value: object) -> bool:
        return True


ANY: Final = _Anything()
"""In a table: every value of the field is known."""


def unknown_setting(settings: DataclassInstance, known: Mapping[str, Container[Any]]) -> str | None:
    """Names the first setting that a table does not know; None if it knows all."""
    names, values_of = _fields(type(settings))
    for name, value in zip(names, values_of(settings), strict=True):
        values = known.get(name)
        if values is None:  # a field that was added after the table
            return name
        if values is not ANY and value not in values:
            shown = f'"{value}"' if isinstance(value, str) else value
            return f"{name} = {shown}"
    return None


@functools.cache
def _fields(kind: type[DataclassInstance]) -> tuple[tuple[str, ...], attrgetter[tuple[Any, ...]]]:
    """Names of the fields of a dataclass, and what gets their values: asked for every sentence."""
    names = tuple(field.name for field in fields(kind))
    return names, attrgetter(*names)
