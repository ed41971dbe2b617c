"""`--weights`, an option whose value may be omitted: then it means attention weights."""

from difflib import get_close_matches
from typing import Any, get_args

from tformer_cli.cli.command import CheckedCommand
from tformer_cli.inspect.weighting.weighting import WeightingName

NAME = "--weights"


class CommandWithWeights(CheckedCommand):
    """A command that reads ``--weights`` without a value as ``--weights alpha``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's
        """Writes the value in where it was omitted; see `CheckedCommand`."""
        return super().parse_args(ctx, with_value(args))


def with_value(args: list[str]) -> list[str]:
    """Gives every ``--weights`` that none of its values follows the value alpha.

    Arguments after a ``--`` are text, and so is a sentence after ``--weights``.
    """
    end = args.index("--") if "--" in args else len(args)
    following = [*args[1:], ""][:end]
    written = [
        f"{NAME}=alpha" if arg == NAME and not _is_meant_as_value(after) else arg
        for arg, after in zip(args[:end], following, strict=True)
    ]
    return [*written, *args[end:]]


def _is_meant_as_value(text: str) -> bool:
    """True if a text is a value or a misspelt one, which is refused and not read as a sentence."""
    return bool(get_close_matches(text, get_args(WeightingName), n=1, cutoff=0.7))
