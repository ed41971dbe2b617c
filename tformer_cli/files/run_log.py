"""Logs of runs: files of lines, to which a run at work appends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tformer_cli.errors import DataError
from tformer_cli.files.regular_file import read_regular

LARGEST_LOG = 1 << 30
"""Millions of reports, or of looks at a head."""
Entry = TypeVar("Entry")


def read_run_log(
    run: Path, name: str, absent: str, parse: Callable[[bytes], Entry | None]
) -> Iterator[Entry]:
    """Reads what a run has written so far; a last line that is still being written is omitted.

    Args:
        run: the run directory.
        name: of the log.
        absent: what to do where there is none, in the message.
        parse: reads a line; None: it is none of the log's.

    Raises:
        DataError: if the directory is missing or has no log, or the log is damaged.
    """
    file = run / name
    if not run.is_dir():
        raise DataError(f"{run}: no such run directory; name one that `tformer train` has made")
    try:
        lines = read_regular(file, LARGEST_LOG).split(b"\n")
    except FileNotFoundError:
        raise DataError(f"{run}: has no {name}; {absent}") from None
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise DataError(f"{file}: cannot be read ({reason}); name another run") from None
    for number, line in enumerate(lines, start=1):
        entry = parse(line)
        if entry is not None:
            yield entry
        elif number < len(lines):
            raise DataError(f"{file}, line {number}: is damaged; remove that line")
