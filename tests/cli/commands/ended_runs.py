"""Runs commands in child processes and ends them by signals; a script for the tests of training.

Standard input holds JSON: `arguments` of the program, the `run` directory, and `ends`, a list of
[signal name, when] for one child after the other; `when` is a number of lines of the run's
metrics.jsonl, or seconds if it is no whole number; an empty signal name waits for the child's end.
Standard output gets a JSON list with [exit status, standard output, standard error] of each child.
Children are forked from a process that has imported everything, which spares seconds a child.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from tformer_cli.cli.app import app


def start(arguments: list[str], out: Path, err: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    for descriptor, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), descriptor)
    status = 1
    try:
        app(arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait_until(run: Path, when: float, pid: int) -> bool:
    """Waits for the moment; says whether the child still lives then."""
    began = time.monotonic()
    metrics = run / "metrics.jsonl"
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        seconds = time.monotonic() - began
        n_lines = metrics.read_bytes().count(b"\n") if metrics.is_file() else 0
        if (n_lines >= when) if isinstance(when, int) else (seconds >= when):
            return True
        if seconds > 60:
            raise TimeoutError(f"{n_lines} lines after a minute")
        time.sleep(0.001)
    return False


def main() -> None:
    request = json.load(sys.stdin)
    run = Path(request["run"])
    out, err = run.with_name("stdout.txt"), run.with_name("stderr.txt")
    ended = []
    for name, when in request["ends"]:
        pid = start(request["arguments"], out, err)
        if name and wait_until(run, when, pid):
            os.kill(pid, signal.Signals[name])
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        ended.append([status, out.read_text(), err.read_text()])
    json.dump(ended, sys.stdout)


if __name__ == "__main__":
    main()
