"""`tformer recipes`: the recipes that ship with the package."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tformer_cli.cli.command import CommandGroup
from tformer_cli.cli.help import show_list
from tformer_cli.cli.options import QuietOption, complete_recipes, option_field
from tformer_cli.cli.streams import note, stdout_console, utf8_line, write_line
from tformer_cli.settings import Option

recipes_app = CommandGroup(
    "recipes",
    invoke_without_command=True,
)
NameArgument = Annotated[
    str,
    Option(
        "Name of a shipped recipe.",
        metavar="RECIPE",
        complete=complete_recipes,
        role="reads_file",
        is_argument=True,
    ),
]


@recipes_app.callback()
def recipes(ctx: typer.Context) -> None:
    """List the shipped recipes, show one, or copy one to change.

    Without a command the recipes are listed: what each trains, and where its data come from.

    Examples:
        tformer recipes
        tformer recipes show multi30k-en-de
        tformer recipes copy template -o my.toml
    """
    if ctx.invoked_subcommand is not None:
        return
    from tformer_cli.workflows.recipes import shipped_recipes

    rows = [
        (one.name, f"{one.summary} Data: {one.origin}" if one.origin else one.summary)
        for one in shipped_recipes()
    ]
    show_list(stdout_console(), rows)


@recipes_app.add("show")
def show(
    name: NameArgument,
    *,
    quiet: QuietOption = False,  # noqa: ARG001 - every command takes it; this one is quiet
) -> None:
    """Print a recipe with its comments.

    Examples:
        tformer recipes show quickstart
        tformer recipes show template > my.toml
    """
    from tformer_cli.workflows.recipes import recipe_text

    sys.stdout.buffer.write(utf8_line(recipe_text(name).rstrip("\n")))


@recipes_app.add("copy")
def copy(
    name: NameArgument,
    *,
    output: Path | None = option_field(
        None, "The new file; it must not exist.", "-o", shown="RECIPE.toml", role="writes_new_file"
    ),
    quiet: QuietOption = False,
) -> None:
    """Copy a recipe to a file of yours, to change and train.

    An existing file is never overwritten.

    Examples:
        tformer recipes copy template
        tformer recipes copy multi30k-en-de -o my.toml
    """
    from tformer_cli.workflows.recipes import copy_recipe

    path = copy_recipe(name, output)
    note(f"copied {name}; next: `tformer train {path} --dry-run`", quiet=quiet)
    write_line(str(path))
