"""`tformer help`: the text of `--help` as a command."""

from typing import Annotated

import typer

from tformer_cli.cli.options import complete_commands


def help_command(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help="The command, such as translate or tokenize train; without it, all are listed.",
            autocompletion=complete_commands,
        ),
    ] = None,
) -> None:
    """Show the help of a command.

    Examples:
        tformer help translate
        tformer help tokenize train
    """
    root = ctx.find_root()
    root.command.main([*(command or []), "--help"], prog_name=root.info_name)
