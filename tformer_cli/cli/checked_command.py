"""Commands that refuse an empty name where a file or a directory is named."""

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from tformer_cli.errors import UsageError

NAMED = {
    "FILE": "file",
    "FILE…": "file",
    "TOKENIZER": "file or directory",
    "DIR": "directory",
    "RUN": "directory",
    "MODEL": "directory",
    "A": "directory",
    "B": "directory",
}
"""What the value of an option or argument names, by how its help calls it."""


class CheckedCommand(TyperCommand):
    """A command whose options and arguments that name a file or a directory are not empty.

    A script's unset variable gives an empty one. As a path it would be the current directory, and
    what is read or written would be other things than those that were meant.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's
        """Parses the arguments; see `typer.core.TyperCommand`.

        Raises:
            UsageError: if a name is empty.
        """
        if not ctx.resilient_parsing:
            given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
            for parameter in self.params:
                kind = NAMED.get(str(parameter.metavar))
                if kind is not None and _holds_empty(given.get(str(parameter.name))):
                    raise UsageError(f"{_name_of(parameter)}: is empty; name a {kind}")
        return super().parse_args(ctx, args)


def _holds_empty(value: str | Sequence[str] | None) -> bool:
    return value == "" or (isinstance(value, (list, tuple)) and "" in value)


def _name_of(parameter: Any) -> str:  # noqa: ANN401 - Typer's
    """The long name of an option, or what the help calls an argument."""
    options = [name for name in parameter.opts if name.startswith("--")]
    return str(options[0] if options else parameter.metavar)
