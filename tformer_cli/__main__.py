"""`python -m tformer_cli` is the same as `tformer`.

Signals end the program as they should from its first moment: loading the commands takes longer.
"""

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from tformer_cli.runtime import without_garbage_collection


def main() -> None:
    """Runs the program with the process's arguments."""
    signal.signal(signal.SIGTERM, _leave)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _leave)
    try:
        with without_garbage_collection():
            from tformer_cli.cli.app import main as run

        run()
    except KeyboardInterrupt:  # while the commands are loaded; they have their own ways later
        sys.exit(128 + signal.SIGINT)


def _leave(signal_number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    with suppress(OSError):  # stderr may be closed
        os.write(2, f"stopped by {signal.Signals(signal_number).name}\n".encode())
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    main()
