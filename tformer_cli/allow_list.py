"""Allow-lists of settings: values that a part knows, and the reason why it refuses the others.

An engine, an export or a cache that reads settings by itself names every field that it knows, each
with the values that it knows. A field or value that is added later is refused by all of them until
their tables name it, and is never silently computed as something else.
"""

from __future__ import annotations

from dataclasses import fields
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
    """Names the first setting that a table does not know; None if it knows all.

    Args:
        settings: a dataclass.
        known: for each field the values that are known, or `ANY`.

    Returns:
        Field and value (``norm = "rms"``), or the field alone where the table does not have it.
    """
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name not in known:
            return field.name
        if value not in known[field.name]:
            return (
                f'{field.name} = "{value}"' if isinstance(value, str) else f"{field.name} = {value}"
            )
    return None
