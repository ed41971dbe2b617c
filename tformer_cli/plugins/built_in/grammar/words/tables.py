"""The tables of `lexicon.toml` as text, before the parsers of `entries`."""

import re
import tomllib
from pathlib import Path
from typing import Any

TABLES: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "lexicon.toml").read_text(encoding="utf-8")
)


def entries(table: str) -> list[str]:
    """Split a table into its entries, which ``;`` or the end of a line divide."""
    return [part.strip() for part in re.split("[;\n]", table) if part.strip()]
