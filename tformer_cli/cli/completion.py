"""Shell completion besides commands, options and choices; nothing heavy is imported."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import typer

HEADS = (
    *(f"{kind}{rest}" for kind in ("enc", "dec", "cross") for rest in (".", ".last", ".*.*")),
    *("self", "*"),
)
"""Selections of heads that fit every model."""


def complete_recipes(incomplete: str) -> list[str]:
    """Returns the shipped recipes, and the TOML files and directories that are there."""
    from tformer_cli.recipe import recipe_names

    folder, _, name = incomplete.rpartition("/")
    within = Path(folder or ("/" if incomplete.startswith("/") else "."))
    files = [
        f"{folder}/{path.name}" if "/" in incomplete else path.name
        for path in sorted(within.glob(f"{name}*"))
        if path.suffix == ".toml" or (path.is_dir() and name)
    ]
    return [*recipe_names(), *files]


def complete_keys(incomplete: str) -> list[str]:  # noqa: ARG001 - Typer sorts them out
    """Returns every key of a recipe, ready for its value."""
    from tformer_cli.recipe import OF_START, Recipe

    keys = (key for key in _keys(Recipe) if not key.startswith("start."))
    return [f"{key}=" for key in ("model.preset", *(f"model.{key}" for key in OF_START), *keys)]


def complete_heads(incomplete: str) -> list[str]:
    """Returns selections of heads for the last term typed."""
    before = incomplete[: max(incomplete.rfind(","), incomplete.rfind("!")) + 1]
    return [f"{before}{one}" for one in HEADS]


def complete_topics() -> list[str]:
    """Returns the topics of the guides."""
    from tformer_cli.workflows.guide import SAMPLE, guides

    return [*(guide.topic for guide in guides()), SAMPLE]


def complete_commands(ctx: typer.Context) -> list[str]:
    """Returns the commands that may follow those typed."""
    command: Any = ctx.find_root().command
    for word in ctx.params.get("command") or ():
        command = getattr(command, "commands", {}).get(word)
    return list(getattr(command, "commands", {}))


def _keys(kind: type) -> Iterator[str]:
    for name, value in get_type_hints(kind).items():
        if is_dataclass(value):
            yield from (f"{name}.{key}" for key in _keys(value))  # type: ignore[arg-type]
        else:
            yield name
