"""A process that trains one run of a study: `python -m` this with the arguments of `tformer`.

It stops as after SIGTERM, with a checkpoint, when its parent is gone: once its stdin ends.
"""

import os
import signal
import sys
import threading

from tformer_cli.__main__ import main

STDIN = 0


def _end_with_parent() -> None:
    # Not `sys.stdin`: its lock would be held while the interpreter ends
    while os.read(STDIN, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.argv[0] = "tformer"
    main()
