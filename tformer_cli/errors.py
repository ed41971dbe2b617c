"""Kinds of errors, each with its exit status.

A message is one line that a user can act on, ``WHERE: WHAT IS WRONG; WHAT TO DO``. WHERE is an
option (``--set``), a file and line (``train.tsv, line 3``), a recipe's key (``r.toml:
model.d_model``) or a directory; details of WHAT are in parentheses: ``a.en: cannot be read
(permission denied); name another file``.

Where Python or the service may get a message, too, it names settings and each surface spells them:
``UsageError.of("{beam_size}: must be at most {}; or add {too_long truncate}", most)`` has
``--beam-size`` and ``--too-long truncate``, or ``beam_size`` and ``too_long="truncate"``.
"""

from collections.abc import Sequence
from string import Formatter
from typing import Any, Self

OPTIONS = {
    "changes": "set", "lines": "text", "run": "output", "start": "from", "stops": "stop",
    "targets": "target",
}  # fmt: skip
"""Options by those arguments of Python that are named otherwise."""


class Setting(str):
    """The name of a setting, as a value of a message."""

    __slots__ = ()


class TformerError(Exception):
    """The work failed while running (exit status 1)."""

    exit_status = 1
    others: Sequence["TformerError"] = ()
    """Errors found besides, for commands that list all."""
    _in_arguments: str | None = None

    @classmethod
    def of(cls, template: str, *values: object) -> Self:
        """Fills in values for ``{}`` and settings for ``{name}`` and ``{name value}``.

        A value may be a `Setting`, or the error of a part. Only the command line shows what has
        dashes, such as ``{ (--images takes all)}``.
        """
        error = cls(_InOptions().format(template, *values))
        error._in_arguments = _InArguments().format(template, *values)
        return error

    @property
    def in_arguments(self) -> str:
        """The message for a program, whose settings are arguments or fields."""
        return str(self) if self._in_arguments is None else self._in_arguments


class _InOptions(Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], *_: object) -> object:
        value = args[key] if isinstance(key, int) else Setting(key)
        return self.spell(value) if isinstance(value, Setting) else value

    def spell(self, setting: str) -> str:
        if "--" in setting:
            return setting
        name, space, value = setting.partition(" ")
        return f"--{OPTIONS.get(name, name).replace('_', '-')}{space}{value}"


class _InArguments(_InOptions):
    def get_value(self, *arguments: Any) -> object:  # noqa: ANN401
        value = super().get_value(*arguments)
        return value.in_arguments if isinstance(value, TformerError) else value

    def spell(self, setting: str) -> str:
        name, _, value = setting.partition(" ")
        return "" if "--" in setting else f'{name}="{value}"' if value else name


class UsageError(TformerError):
    """An option, or a combination of options, cannot be used (exit status 2)."""

    exit_status = 2


class RecipeError(TformerError):
    """A recipe cannot be read or asks for something impossible (exit status 2)."""

    exit_status = 2


class DataError(TformerError):
    """An input file is missing, damaged or not what it should be (exit status 2)."""

    exit_status = 2


class ArtifactError(TformerError):
    """A model directory, run directory or checkpoint cannot be used (exit status 2)."""

    exit_status = 2


class ModelMemoryError(MemoryError):
    """A model's weights do not fit into memory; smaller batches would not help."""


class UnreadableError(ArtifactError):
    """A file is there, but the system did not read it: nothing is known of its content."""


class Interrupted(TformerError):  # noqa: N818 - an ordinary end of a run, not a failure
    """A run ended early on request; its state is saved (exit status 128 + the signal's number)."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_status = 128 + signal_number


class ProcessLost(TformerError):  # noqa: N818 - the failure is another one's
    """Another training process has ended or cannot be reached."""


class AnotherProcessFailed(TformerError):  # noqa: N818 - the failure is another one's
    """Another training process has failed and reported why; this one ends silently."""

    def __init__(self, exit_status: int = 1) -> None:
        super().__init__("")
        self.exit_status = exit_status
