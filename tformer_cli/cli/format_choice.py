"""Which format a result is in: what `--format` says, or FILE's name, or who reads stdout."""

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import typer

from tformer_cli.cli.text_io import STANDARD_STREAM
from tformer_cli.errors import UsageError

Format = TypeVar("Format", bound=StrEnum)

ENDINGS: dict[str, tuple[str, ...]] = {
    "tty": ("txt", "text", "log"),
    "table": ("txt", "text", "log"),
    "json": ("json", "jsonl", "ndjson"),
    "jsonl": ("jsonl", "json", "ndjson"),
    "html": ("html", "htm"),
    "svg": ("svg",),
    "png": ("png",),
    "npz": ("npz",),
    "safetensors": ("safetensors",),
    "tsv": ("tsv",),
    "pharaoh": ("align", "pharaoh", "txt", "text", "log"),
}
"""The endings of files in each format, the one to recommend first."""
OF_NO_FORMAT = (
    *("pdf", "eps", "ps", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff"),
    *("csv", "xlsx", "ods", "parquet", "arrow", "xml", "yaml", "yml", "toml", "md", "tex"),
    *("doc", "docx", "odt", "rtf", "ppt", "pptx"),
    *("npy", "pt", "pth", "pkl", "onnx", "h5", "gz", "xz", "bz2", "zst", "zip", "tar"),
)
"""Endings that promise something which no command here writes."""


def format_option(in_a_pipe: str) -> Any:  # noqa: ANN401 - typer's options have no type of their own
    """Makes the option `--format`, whose default `chosen_format` finds."""
    help_text = f"[tty on a terminal, {in_a_pipe} elsewhere; by FILE's name]."
    return typer.Option("--format", help=help_text, show_default=False)


def chosen_format(
    given: Format | None,
    output: str,
    formats: type[Format],
    in_a_pipe: Format,
    on_terminal: str = "tty",
) -> Format:
    """Chooses a format where none is given: by the file's name, else by who reads stdout.

    Args:
        given: what `--format` says.
        output: what `--output` says.
        formats: the formats there are.
        in_a_pipe: where the file's name says nothing, or stdout is no terminal.
        on_terminal: name of the one for people.

    Raises:
        UsageError: if the file's name promises another format than the one that is written.
    """
    if output == STANDARD_STREAM:
        return given or (formats(on_terminal) if sys.stdout.isatty() else in_a_pipe)
    ending = _ending(output)
    if given is not None:
        check_ending(output, [given])
        return given
    check_ending(output, formats)
    # of a command's formats at most one has an ending as its first
    by_rank = sorted(formats, key=lambda one: ENDINGS[one][:1] != (ending,))
    return next((one for one in by_rank if ending in ENDINGS[one]), in_a_pipe)


def check_ending(output: str, formats: Iterable[str]) -> None:
    """Makes sure that a file's name does not promise another format than the one that is written.

    A name without an ending, or with one that stands for no format, promises nothing.

    Args:
        output: what `--output` says.
        formats: what would be written: one format, or those there are.

    Raises:
        UsageError: if it does.
    """
    chosen = list(formats)
    fitting = {ending for one in chosen for ending in ENDINGS[one]}
    ending = _ending(output)
    known = {*OF_NO_FORMAT, *(name for names in ENDINGS.values() for name in names)}
    if output == STANDARD_STREAM or ending in fitting or ending not in known:
        return
    names = ", ".join(f".{name}" for name in dict.fromkeys(ENDINGS[one][0] for one in chosen))
    raise UsageError(
        f"--output: {output} would not be a .{ending} file; what is written goes into {names}: "
        "name such a file"
    )


def _ending(output: str) -> str:
    return Path(output).suffix.removeprefix(".").lower()
