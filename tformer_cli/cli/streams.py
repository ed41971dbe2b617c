"""The streams: results on stdout or in a file, everything else on stderr, lines from stdin.

A command reads by `input_lines`, writes by `results`, and speaks by `note`, `warn`, `error_line`.
"""

import errno
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from codecs import getwriter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from shutil import get_terminal_size, which
from stat import S_ISREG
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from tformer_cli.errors import UsageError
from tformer_cli.text.lines import (
    COMPRESSED,
    MARKUP,
    LineCounts,
    check_file,
    decode_line,
    read_lines,
    without_surrogates,
)
from tformer_cli.wording import as_named, count_of, visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from tformer_cli.kinds.lines.job import ResultCounts
    from tformer_cli.kinds.stored_model import Opened


def prepare_standard_streams() -> None:
    """Makes the three streams usable, or their use an ordinary error."""
    # A stream that the parent process closed is opened on the null device the wrong way round:
    # using it fails as it should, and none of our files takes its descriptor. Results are UTF-8
    # bytes; only pictures and tables are text in the terminal's own encoding.
    if sys.stdin is None:
        sys.stdin = open(os.open(os.devnull, os.O_WRONLY))  # noqa: PTH123, SIM115
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # In a narrow encoding, such characters become ?, and the command goes on
        sys.stdout.reconfigure(errors="replace")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    elif isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _Persistent(
            sys.stderr.buffer,
            encoding=sys.stderr.encoding,
            errors=sys.stderr.errors,
            # As Python's own: a message is seen when it is written
            line_buffering=True,
        )


def is_regular_file(stream: IO[str]) -> bool:
    """True if a stream is a file on disk, not a terminal, pipe, socket or device."""
    try:
        return S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # closed, or in memory
        return False


def discard_stdout() -> None:
    """Sends the rest of stdout to the null device: Python flushes it on exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


class _Persistent(io.TextIOWrapper):
    """A message stream whose failure does not end the work: a full disk, a closed terminal."""

    # A closed pipe does: its reader wants nothing more.

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            return _without(error, len(text))

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            _without(error, 0)


def _without(error: OSError, n_characters: int) -> int:
    if error.errno == errno.EPIPE:
        raise error
    return n_characters


# Variables by which rich takes a stream for a terminal that is none.
FORCE_TERMINAL = {"FORCE_COLOR", "TTY_COMPATIBLE"}
# Characters of an error, warning or note, and of its end where it is cut in the middle.
LONGEST_MESSAGE, _END_KEPT = 2000, 500


@cache
def stderr_console() -> "Console":
    """Creates the console for progress, notes, warnings and errors."""
    return _console(stderr=True, soft_wrap=True)


def stdout_console() -> "Console":
    """Creates the console for results that are tables or pictures made of text."""
    # It is as wide as the terminal, elsewhere 80 columns; $COLUMNS counts before both. A file gets
    # no escape codes, whatever the environment asks for.
    return _console(force_terminal=False if is_regular_file(sys.stdout) else None, width=_width())


def file_console(stream: BinaryIO) -> "Console":
    """Creates the same console for a file other than stdout: plain text in UTF-8."""
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
        # Else rich colors numbers and paths, in results, too
        highlight=False,
    )


def is_live() -> bool:
    """Returns whether stderr is a terminal that live displays can be drawn on."""
    if not sys.stderr.isatty() and not os.environ.keys() & FORCE_TERMINAL:
        return False  # without loading rich, which takes a third of a short command's time
    return stderr_console().is_terminal


def error_line(message: str) -> None:
    """Shows an error: always one line, whatever the message holds."""
    _print_labeled("error", "bold red", message)


def warn(message: str) -> None:
    """Shows a warning; `--quiet` does not silence it."""
    _print_labeled("warning", "yellow", message)


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
    """Shortens and escapes a message: quoted files must not fill or control a terminal."""
    shown = "\n".join(map(visible, message.split("\n")))
    if len(shown) <= LONGEST_MESSAGE:
        return shown
    return f"{shown[: LONGEST_MESSAGE - _END_KEPT]} … {shown[-_END_KEPT:]}"  # what to do


def _print_labeled(label: str, style: str, message: str) -> None:
    line = _readable(" ".join(as_named(message).split()))
    if not is_live():
        _write(f"{label}: {line}")
        return
    from rich.text import Text

    stderr_console().print(Text.assemble((f"{label}:", style), " ", line), soft_wrap=True)


def _write(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


# The name of stdin where something is read, of stdout where something is written.
STANDARD_STREAM = "-"
STDIN, STDOUT, STDERR = 0, 1, 2
_STREAMS = {STANDARD_STREAM: STDOUT, "/dev/stdout": STDOUT, "/dev/stderr": STDERR}


def input_lines(
    texts: Sequence[str] | None,
    file: str | None,
    counts: LineCounts,
    option: str,
    *,
    quiet: bool = False,
) -> Iterator[str]:
    """Returns the lines of the arguments, else those of a file or stdin."""
    if texts and file is not None:
        raise UsageError(f"{option}: texts are already given as arguments; omit one of the two")
    if texts and list(texts) != [STANDARD_STREAM]:
        return argument_lines(texts, counts)
    return file_lines(STANDARD_STREAM if file is None else file, counts, quiet=quiet)


def file_lines(file: str, counts: LineCounts, *, quiet: bool = False) -> Iterator[str]:
    """Returns the lines of a file or stdin; a missing file is an error now, not later."""
    if file != STANDARD_STREAM:
        check_file(file)
        return read_lines(file, counts)
    return _read_prompted(read_lines(file, counts), quiet=quiet)


def telling_of_markup(lines: Iterable[str], first_index: int = 0) -> Iterator[str]:
    """Yields the same lines; warns of the first with tags of HTML or XML, which are not text."""
    is_told = False
    for number, line in enumerate(lines, first_index + 1):
        # The quick test first: nearly all lines have no tag
        if not is_told and "<" in line and (tag := re.search(MARKUP, line)):
            is_told = True
            warn(
                f"line {number} has tags of HTML or XML ({tag[0][:40]}), which are translated as "
                "words; `tformer translate --document html` keeps them"
            )
        yield line


def stdin_is_terminal() -> bool:
    """True if stdin is typed at a terminal."""
    return sys.stdin.isatty()


def prompt_at_terminal(
    what: str = "sentences", files: Sequence[object] = (STANDARD_STREAM,), *, quiet: bool
) -> None:
    """Notes at a terminal what to type and how to end it; the program would seem to hang."""
    if STANDARD_STREAM in map(str, files) and stdin_is_terminal():
        key = "Ctrl-Z and Enter end" if sys.platform == "win32" else "Ctrl-D ends"
        note(f"type {what}, one a line; {key}", quiet=quiet)


def _read_prompted(lines: Iterator[str], *, quiet: bool) -> Iterator[str]:
    """Yields the lines of stdin; waits for the first only when everything else is ready."""
    prompt_at_terminal(quiet=quiet)
    yield from lines


def argument_lines(texts: Sequence[str], counts: LineCounts) -> Iterator[str]:
    """Yields arguments as lines; line ends in an argument separate lines."""
    for text in texts:
        # Not splitlines: U+2028, form feed and the like are characters
        for line in text.removesuffix("\n").split("\n"):
            # The bytes as they were typed: invalid UTF-8 is counted as in a file
            yield decode_line(os.fsencode(line), counts)


def check_stdin_is_read_once(files: Sequence[object]) -> None:
    """Refuses to read two files from stdin."""
    if [str(file) for file in files].count(STANDARD_STREAM) > 1:
        raise UsageError("-: stdin can be read only once; name a file for all inputs but one")


@contextmanager
def results(output: str | Path) -> Iterator[BinaryIO]:
    """Opens stdout, or a file that in the end exists whole or not at all."""
    descriptor = open_stream(output)
    # /dev/stdout is written through Python's own buffer, in order with all other results
    if descriptor == STDOUT:
        yield sys.stdout.buffer
        # Now: a full disk is an error of the command, not of Python's exit
        sys.stdout.buffer.flush()
        return
    from tformer_cli.files.atomic import not_writable, written_aside

    # Through a link its target is replaced, and the link stays
    path = Path(output).resolve()
    try:
        if path.is_dir():
            raise UsageError(f"--output: {output} is a directory; name a file")
        is_written_aside = descriptor is None and (path.is_file() or not path.exists())
    except OSError as error:  # such as a name that is too long
        raise not_writable(path, error) from None
    check_not_compressed(output)
    if not is_written_aside:  # a device, a named pipe or an open stream is written, not replaced
        try:
            with (
                path.open("wb")
                if descriptor is None
                else os.fdopen(os.dup(descriptor), "wb") as stream
            ):
                yield stream
        except OSError as error:
            if error.errno == errno.EPIPE:  # ends the command quietly, as on stdout
                raise
            raise not_writable(path, error) from None
        return
    with written_aside(path) as aside, aside.open("wb") as stream:
        yield stream


def text_console(output: str, stream: BinaryIO) -> "Console":
    """Creates the console for readable text, on the output of `results`."""
    if output == STANDARD_STREAM:
        return stdout_console()
    return file_console(stream)


def open_stream(output: str | Path) -> int | None:
    """The descriptor of the open stream that a name means; None for a file."""
    # A file that a stream was redirected to is written on, not replaced: `-o /dev/stdout >> FILE`.
    numbered = re.fullmatch(r"(?:/dev|/proc/self)/fd/(\d{1,9})", str(output))
    return _STREAMS.get(str(output)) if numbered is None else int(numbered[1])


COMPRESSORS = {ending: program for program, ending in COMPRESSED.values()}
"""Programs by the endings of what they write, which files of lines are read with."""


def check_not_compressed(output: str | Path) -> None:
    """Refuses names with the ending of a compressed file: reading it again would fail."""
    suffix = Path(output).suffix
    if program := COMPRESSORS.get(suffix.casefold()):
        raise UsageError(
            f"--output: {output} would not be compressed; name it without {suffix}, or omit "
            f"the option and add | {program} > FILE"
        )


def note_choices(opened: "Opened", *, quiet: bool) -> None:
    """Notes the device, precision and engine of a model, which "auto" may have chosen."""
    by = "" if opened.engine == "tformer" else f" by {opened.engine}"
    note(f"computing on {opened.place} in {opened.precision}{by}", quiet=quiet)


def warn_of_bytes(read: LineCounts) -> None:
    """Warns if lines were not UTF-8."""
    if read.not_utf8:
        warn(
            f"{count_of_lines(read.not_utf8)} with bytes that are not UTF-8; they were read as "
            "U+FFFD"
        )


def warn_of_results(
    counts: "ResultCounts",
    *,
    quiet: bool = False,
    cut: str = "truncated",
    blank: str = "left blank",
) -> None:
    """Warns of lines that were split, cut off, miss a constraint, or have unknown words.

    `cut` and `blank` say what became of lines that were too long, and of damaged images.
    """
    if counts.damaged:
        warn(f"{count_of(counts.damaged, 'image')} that cannot be read; {blank}")
    if counts.sentences:
        note(
            f"{count_of_lines(counts.sentences)} of several sentences, translated one by one; "
            "--split-sentences none translates lines whole",
            quiet=quiet,
        )
    if counts.split:
        warn(f"{count_of_lines(counts.split)} longer than the model takes; read in parts")
    if counts.unsatisfied:
        warn(
            f"{count_of_lines(counts.unsatisfied)} without a required phrase, or with a "
            'banned one; --format jsonl lists them under "unsatisfied"'
        )
    if counts.moved:
        warn(
            f"{count_of_lines(counts.moved)} with their own fields named like those of the "
            'output, such as "index" or "score"; they are kept in "input_fields"'
        )
    if counts.fewer:
        warn(
            f"{count_of_lines(counts.fewer)} with fewer than --n-best {counts.n_best}: the search "
            "found no others that differ"
        )
    if counts.truncated:
        warn(f"{count_of_lines(counts.truncated)} longer than the model takes; {cut}")
    if counts.unknown:
        warn(
            f"{count_of(counts.unknown, 'word or character', 'words or characters')} that the "
            "model does not know; it read <unk> there"
        )
    if counts.untrained:
        kinds = ", ".join(f"{kind} ({n:,})" for kind, n in counts.untrained_kinds.most_common())
        kinds = kinds or "special spaces, decomposed letters and the like"
        warn(
            f"{count_of_lines(counts.untrained)} with characters that the model was not trained "
            f"with: {kinds}; they split words; replace them, or train a model with "
            "tokenizer.normalization"
        )
    if counts.unseen:
        first = counts.first_unseen
        example = ", ".join(first.unseen[:3]) if first is not None else ""
        where = f" (line {first.index + 1}: {example})" if first is not None else ""
        warn(
            f"{count_of_lines(counts.unseen)} mostly of words that the model was not trained "
            f"on{where}; do not trust the translation"
        )


def count_of_lines(n_lines: int) -> str:
    """Writes "1 line" or "1,234 lines"."""
    return count_of(n_lines, "line")


PAGER = "less"
# Options of less, as git sets them: leave if all fits on a screen, keep colors and the text.
LESS = "FRX"


def print_paged(console: "Console", renderable: "RenderableType", *, is_paged: bool = True) -> None:
    """Shows a result by $PAGER, less by default; as it is where there is no terminal or pager."""
    command = shlex.split(os.environ.get("PAGER", PAGER))
    # A dumb terminal, such as that of an editor, cannot turn pages
    is_screen = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if not (is_paged and is_screen and command and which(command[0])):
        console.print(renderable, crop=False)
        return
    with console.capture() as capture:
        console.print(renderable, crop=False)
    # Ctrl-C is the pager's while it reads the keyboard: it stops a search, not the pager
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # A user's own $LESS goes before ours
        environment = {"LESS": LESS, **os.environ}
        subprocess.run(command, input=capture.get().encode(), env=environment, check=False)  # noqa: S603
    finally:
        signal.signal(signal.SIGINT, before)
