"""`tformer help`: the text of `--help` as a command."""

import typer

from tformer_cli.cli.options import argument, complete_commands


def help_command(
    ctx: typer.Context,
    command: list[str] | None = argument(
        "COMMAND",
        "The command, such as translate or tokenize train; without it, all are listed.",
        default=None,
        complete=complete_commands,
    ),
) -> None:
    """Show the help of a command.

    Examples:
        tformer help translate
        tformer help tokenize train
    """
    root = ctx.find_root()
    root.command.main([*(command or []), "--help"], prog_name=root.info_name)
