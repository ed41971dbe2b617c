"""The recipes that ship with the package: their summaries, and copies to change."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tformer_cli.errors import UsageError
from tformer_cli.files.atomic import write_text
from tformer_cli.recipe import find_recipe, recipe_names


@dataclass(frozen=True, kw_only=True)
class RecipeSummary:
    """Entry of a recipe in the list."""

    name: str
    """Its name, as `tformer train` takes it."""
    summary: str
    """The first sentence of its first comment."""
    origin: str
    """Origin of its data; empty if unknown."""


def shipped_recipes() -> list[RecipeSummary]:
    """Summarizes each shipped recipe."""
    return [_summary(name, recipe_text(name)) for name in recipe_names()]


def recipe_text(name: str) -> str:
    """Reads a recipe with its comments."""
    return find_recipe(name).read_text(encoding="utf-8")


def copy_recipe(name: str, output: Path | None = None) -> Path:
    """Copies a recipe, to be changed and trained."""
    text = recipe_text(name)
    path = output or Path(f"{Path(name).stem}.toml")
    if path.exists() or path.is_symlink():
        raise UsageError(f"--output: {path} exists already; name another file")
    write_text(path, text)
    return path


def _summary(name: str, text: str) -> RecipeSummary:
    comment = re.match(r"(?:# .*\n)+", text)
    prose = " ".join(re.sub(r"^# ", "", comment[0], flags=re.MULTILINE).split()) if comment else ""
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z])", prose, maxsplit=1)[0]
    origin = tomllib.loads(text).get("data", {}).get("origin", "")
    return RecipeSummary(name=name, summary=sentence, origin=str(origin))
