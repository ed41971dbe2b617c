"""Errors of a command line, in one sentence like those of all other errors."""

import re
import sys
from collections.abc import Collection
from contextlib import redirect_stdout
from typing import Any, ClassVar

from typer.core import TyperGroup
from typer.exceptions import TyperException

from tformer_cli.cli.help_screen import ReadableHelp
from tformer_cli.wording import did_you_mean, suggestions

NO_SUCH_COMMAND = re.compile(r"no such command (['\"])(.*?)\1(?:$|\.)")

OTHER_NAMES = {
    "--batch-size": ("--batch-tokens", "--set training.tokens_per_batch=N"),
    "--config": ("RECIPE without an option",),
    "--cuda": ("--device cuda",),
    "--gpu": ("--device cuda",),
    "--head": ("--heads",),
    "--hypothesis": ("--rank",),
    "--input": ("--source",),
    "--lang": ("--source-language", "--target-language"),
    "--layer": ("--heads",),
    "--lr": ("--set training.learning_rate=X",),
    "--model": ("MODEL without an option",),
    "--nbest": ("--n-best-file",),
    "--source": ("--input",),
    "--src": ("--source", "--input"),
    "--symmetrise": ("--symmetrize",),
    "--target": ("--target-file",),
    "--tgt": ("--target", "--target-file", "--reference"),
    "--top": ("--top-k",),
    "--topk": ("--top-k",),
    "--verbose": ("to omit --quiet",),
}
"""Options of other tools, earlier versions and other commands, and what to write where a command
has it."""


class HelpfulGroup(ReadableHelp, TyperGroup):
    """A group of commands that, named alone, shows its help on stderr, as it has no result."""

    unlisted: ClassVar[tuple[str, ...]] = ()
    """Commands that work and are suggested, but not listed in the help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Parses the arguments; see `typer.core.TyperGroup.parse_args`."""
        if not (args or ctx.resilient_parsing or self.invoke_without_command):
            with redirect_stdout(sys.stderr):
                sys.stderr.write(ctx.get_help())  # empty where Typer has drawn it itself
            ctx.exit(2)
        return super().parse_args(ctx, args)


def usage_message(error: TyperException) -> str:
    """Writes an error of Typer as ``WHERE: WHAT; WHAT TO DO``."""
    context = getattr(error, "ctx", None)
    problem = _problem(error)
    if context is None:
        return problem
    unknown = getattr(error, "option_name", "") if "no such option" in problem else ""
    if unknown:
        options = _options_of(context)
        near = _other_names(unknown, options, context)
        if not near and unknown.startswith("--"):
            near = suggestions(unknown, options)
        hint = did_you_mean(near) or _without_guess(unknown, context)
        return f"{unknown}: no such option of {context.command_path}; {hint}"
    parameter = getattr(error, "param", None)
    if parameter is not None and problem.startswith("missing "):
        long = [name for name in parameter.opts if name.startswith("--")]
        pieces = " ".join(context.command.collect_usage_pieces(context))
        missing = long[0] if long else parameter.metavar
        return f"{missing}: is missing; usage: {context.command_path} {pieces}"
    command = NO_SUCH_COMMAND.match(problem)
    if command:
        shown = [name for name, one in context.command.commands.items() if not one.hidden]
        known = [*shown, *context.command.unlisted]
        hint = did_you_mean(suggestions(command[2], known)) or _without_guess("", context)
        if command[2] == "list" and context.command.invoke_without_command:
            hint = f"did you mean `{context.command_path}`?"
        return f"{command[2]}: no such command of {context.command_path}; {hint}"
    where = "" if problem.startswith("--") else f"{context.command_path}: "
    return f"{where}{problem}; see `{context.command_path} --help`"


def _other_names(unknown: str, options: Collection[str], context: Any) -> list[str]:  # noqa: ANN401
    """Names that this command has for an option it lacks; an argument needs no option."""
    known = {*options, *(str(one.metavar) for one in context.command.params)}
    return [name for name in OTHER_NAMES.get(unknown, ()) if known & set(name.split())]


def _options_of(context: Any) -> list[str]:  # noqa: ANN401 - Typer's
    """Lists the long names of a command's options that are not hidden."""
    shown = [
        one for one in context.command.get_params(context) if not getattr(one, "hidden", False)
    ]
    return [name for one in shown for name in one.opts + one.secondary_opts if name[:2] == "--"]


def _without_guess(unknown: str, context: Any) -> str:  # noqa: ANN401 - Typer's
    """Advice where no name is near; a word with a leading dash may have been meant as a text."""
    takes_text = any("TEXT" in str(one.metavar) for one in context.command.params)
    if unknown[1:2] != "-" and takes_text:
        return (
            f'put -- before a text that begins with -: {context.command_path} MODEL -- "{unknown}…"'
        )
    return f"`{context.command_path} --help` lists them"


def _problem(error: TyperException) -> str:
    parameter = getattr(error, "param", None)
    options = [] if parameter is None else [n for n in parameter.opts if n.startswith("--")]
    if options and isinstance(error.__cause__, ValueError):  # of a value; see `cli.values`
        return f"{options[0]}: {str(error.__cause__).rstrip('.')}"
    format_message = getattr(error, "format_message", error.__str__)
    message: str = " ".join(format_message().split())
    return message[:1].lower() + message[1:].rstrip(".")
