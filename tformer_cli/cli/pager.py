"""Long results on a terminal, a screen at a time."""

import os
import shlex
import signal
import subprocess
import sys
from shutil import which
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PAGER = "less"
LESS = "FRX"
"""Options of less, as git sets them: leave if all fits on a screen, keep colors and the text."""


def print_paged(console: "Console", renderable: "RenderableType", *, is_paged: bool = True) -> None:
    """Shows a result by $PAGER, less by default; as it is where there is no terminal or pager."""
    command = shlex.split(os.environ.get("PAGER", PAGER))
    is_screen = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if not (is_paged and is_screen and command and which(command[0])):
        console.print(renderable, crop=False)
        return
    with console.capture() as capture:
        console.print(renderable, crop=False)
    # Ctrl-C is the pager's while it reads the keyboard: it stops a search, not the pager
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        environment = {"LESS": LESS, **os.environ}
        subprocess.run(command, input=capture.get().encode(), env=environment, check=False)  # noqa: S603
    finally:
        signal.signal(signal.SIGINT, before)
