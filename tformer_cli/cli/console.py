"""The two streams: results on stdout as bytes, everything else on stderr through rich."""

import errno
import os
import sys
from codecs import getwriter
from functools import cache
from shutil import get_terminal_size
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from tformer_cli.cli.standard_streams import is_regular_file
from tformer_cli.data.lines import without_surrogates
from tformer_cli.files.cache import as_named
from tformer_cli.wording import visible

if TYPE_CHECKING:
    from rich.console import Console

FORCE_TERMINAL = {"FORCE_COLOR", "TTY_COMPATIBLE"}
"""Variables by which rich takes a stream for a terminal that is none."""
LONGEST_MESSAGE, _END_KEPT = 2000, 500
"""Characters of an error, warning or note, and of its end where it is cut in the middle."""


@cache
def stderr_console() -> "Console":
    """Makes the console that all progress, notes, warnings and errors are shown on."""
    return _console(stderr=True, soft_wrap=True)


def stdout_console() -> "Console":
    """Makes the console for results that are tables or pictures made of text.

    It is as wide as the terminal, elsewhere 80 columns; $COLUMNS counts before both. A file gets
    no escape codes, whatever the environment asks for.
    """
    return _console(force_terminal=False if is_regular_file(sys.stdout) else None, width=_width())


def file_console(stream: BinaryIO) -> "Console":
    """Makes the console for the same in a file that is not stdout: plain text in UTF-8."""
    file = cast("IO[str]", getwriter("utf-8")(stream, "replace"))
    return _console(file=file, force_terminal=False, width=_width())


def _width() -> int:
    return get_terminal_size((80, 25)).columns


def _console(
    *,
    file: IO[str] | None = None,
    stderr: bool = False,
    soft_wrap: bool = False,
    force_terminal: bool | None = None,
    width: int | None = None,
) -> "Console":
    from rich.console import Console

    class PlainConsole(Console):
        """Raises an error when a pipe is closed, where rich would exit."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    return PlainConsole(
        file=file,
        stderr=stderr,
        soft_wrap=soft_wrap,
        force_terminal=force_terminal,
        width=width,
        highlight=False,
    )


def is_live() -> bool:
    """Returns whether stderr is a terminal that live displays can be drawn on."""
    if not sys.stderr.isatty() and not os.environ.keys() & FORCE_TERMINAL:
        return False  # without loading rich, which takes a third of a short command's time
    return stderr_console().is_terminal


def error_line(message: str) -> None:
    """Shows an error: always one line, whatever the message holds."""
    _labeled("error", "bold red", message)


def warn(message: str) -> None:
    """Shows a warning; `--quiet` does not silence it."""
    _labeled("warning", "yellow", message)


def note(message: str, *, quiet: bool = False) -> None:
    """Shows a message on stderr, unless `quiet`."""
    if quiet:
        return
    message = _readable(as_named(message))
    if is_live():
        # a terminal would cut the line inside of words; a command in it stays whole
        stderr_console().print(message, markup=False, soft_wrap="`" in message)
    else:
        _write(message)


def utf8_line(text: str) -> bytes:
    """Encodes a line of a result with its line end; lone surrogates become U+FFFD."""
    return without_surrogates(text).encode("utf-8") + b"\n"


def write_line(text: str) -> None:
    """Writes a result and a line end to stdout, as UTF-8 whatever the locale."""
    sys.stdout.buffer.write(utf8_line(text))


def flush_results() -> None:
    """Flushes stdout, so that its reader has every result now."""
    sys.stdout.buffer.flush()


def _readable(message: str) -> str:
    """A message whose quotations of files neither fill a terminal nor control it."""
    shown = "\n".join(map(visible, message.split("\n")))
    if len(shown) <= LONGEST_MESSAGE:
        return shown
    return f"{shown[: LONGEST_MESSAGE - _END_KEPT]} … {shown[-_END_KEPT:]}"  # what to do


def _labeled(label: str, style: str, message: str) -> None:
    line = _readable(" ".join(as_named(message).split()))
    if not is_live():
        _write(f"{label}: {line}")
        return
    from rich.text import Text

    stderr_console().print(Text.assemble((f"{label}:", style), " ", line), soft_wrap=True)


def _write(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
