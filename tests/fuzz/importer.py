"""Imports one mutant after another, each in a process of its own that is forked from this one.

Reads lines of JSON from stdin, [source, output, file of stderr], and answers each with [status,
seconds, MiB of memory]. A status below 0 is a signal; 124: it took too long.
"""

import json
import os
import resource
import signal
import sys
import time
from importlib import import_module

LONGEST, MOST_ADDRESSES = 20, 3 << 30
PRELOADED = (
    "tformer_cli.cli.commands.import_model",
    "tformer_cli.foreign.import_model",
    "tformer_cli.artifacts.model_directory",
    "tformer_cli.foreign.completeness",
)


def run(source, output, message_file):
    """Imports a mutant; never returns."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stream = os.open(message_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    sys.argv = ["tformer", "import", source, "-o", output]
    from tformer_cli.cli.app import main

    status = 0
    try:
        main()
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    sys.stderr.flush()
    os._exit(status)


def main():
    """Answers until stdin ends."""
    for name in PRELOADED:
        import_module(name)
    for line in sys.stdin:
        begun, status = time.monotonic(), None
        child = os.fork()
        if child == 0:
            run(*json.loads(line))
        while status is None:
            ended, state, used = os.wait4(child, os.WNOHANG)
            if ended:
                status = os.waitstatus_to_exitcode(state)
            elif time.monotonic() - begun > LONGEST:
                os.kill(child, signal.SIGKILL)
                _, _, used = os.wait4(child, 0)
                status = 124
            else:
                time.sleep(0.005)
        answer = [status, time.monotonic() - begun, used.ru_maxrss >> 10]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
