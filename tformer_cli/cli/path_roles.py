"""Roles of the file or directory that an option or argument names.

A parameter that names one declares its role behind its `typer.Option` or `typer.Argument`:
``Annotated[str, typer.Option(metavar="FILE"), PathRole.reads_file]``.
"""

import inspect
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from tformer_cli.artifacts.overwriting import Writes

Found = TypeVar("Found")


class PathRole(Enum):
    """Role of a path in a command."""

    reads_file = "file"
    reads_directory = "directory"
    """A directory, or a file of one in its place."""
    reads_model = "model"
    """A model directory, or a foreign model, which is imported when it is first used."""
    reads_tokenizer = "tokenizer or model"
    """A tokenizer's file or a model directory, or a foreign model, which is imported."""
    reads_adapter = "adapter's directory"
    """The directory of a low-rank adapter, or that of its run."""
    reads_system = "system"
    """A file or a model directory, which a name may stand before: see `named_path`."""
    writes_file = Writes.FILE
    writes_new_file = Writes.NEW_FILE
    """A file that must not exist: the command refuses it itself."""
    writes_directory = Writes.DIRECTORY
    """A directory of its own: all that is in it is replaced."""
    writes_run = Writes.RUN
    """A run directory: the files of a run are written into it, other files stay."""
    adds_files = Writes.FILES
    """A directory that files are added to, which the command looks after itself."""

    @property
    def names(self) -> str:
        """The kind of path to name: a file or a directory."""
        return "file" if self in _FILES else "directory"


_FILES = (
    *(PathRole.reads_file, PathRole.reads_system),
    *(PathRole.writes_file, PathRole.writes_new_file),
)


class Holds(frozenset[str]):
    """Formats of an output's file, as `content_of` names them, where no `--format` chooses it."""


def path_roles(command: Callable[..., Any]) -> dict[str, PathRole]:
    """Reads the roles that the parameters of a command's function declare, by their names."""
    return _declared(command, PathRole)


def held_formats(command: Callable[..., Any]) -> dict[str, Holds]:
    """Reads the formats that the parameters of a command's function declare, by their names."""
    return _declared(command, Holds)


def _declared(command: Callable[..., Any], kind: type[Found]) -> dict[str, Found]:
    parameters = inspect.signature(command).parameters.values()
    return {
        parameter.name: one
        for parameter in parameters
        for one in getattr(parameter.annotation, "__metadata__", ())
        if isinstance(one, kind)
    }


def named_path(value: str) -> tuple[str, str]:
    """Separates ``NAME=PATH`` into both; the name is empty if there is none.

    A file whose name has an equals sign is found as it is.
    """
    name, sign, path = value.partition("=")
    return ("", value) if not (name and sign) or Path(value).exists() else (name, path)
