"""What is asked of the translation of a single line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tformer_cli.errors import DataError


@dataclass(frozen=True, slots=True)
class Demands:
    """What a line's translation must be like."""

    target_prefix: str = ""
    """Text the translation begins with; of a line translated in parts, the first part's."""


NO_DEMANDS = Demands()


def demands_of(record: Mapping[str, Any], where: str) -> Demands:
    """Reads the demands of a JSONL object: "target_prefix", a text.

    Args:
        record: the object.
        where: file and line, for messages.

    Raises:
        DataError: if one is not of its kind.
    """
    prefix = record.get("target_prefix", "")
    if not isinstance(prefix, str):
        raise DataError(f'"target_prefix" is no text ({where}): write a string')
    return Demands(target_prefix=prefix)
