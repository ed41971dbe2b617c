"""A shell in which `tformer` and `python` are forked from one process that has imported everything.

An import of torch takes seconds, and the documents have more than a hundred examples. So the two
names are small scripts on the path: each hands its arguments, directory, environment and standard
streams to a server, which forks a child that runs the command as the program itself does. Pipes,
redirections, globs and exit statuses are bash's own.

    python tests/example_shell.py SOCKET     serves until its standard input ends
"""

import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

NAMES = ("tformer", "python")
NOT_IMPORTED = {"tformer_cli.__main__", "tformer_cli.build_hook"}
CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = [{name!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]
socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
server.shutdown(socket.SHUT_WR)
sys.exit(int(server.recv(8) or b"70"))
"""


class ExampleShell:
    """Runs bash commands in a directory; use it as a context manager."""

    def __init__(self, environment: dict[str, str]):
        self._scratch = TemporaryDirectory()  # the path of a socket must be short
        scratch = Path(self._scratch.name)
        address = str(scratch / "s")
        for name in NAMES:
            script = scratch / name
            script.write_text(CLIENT.format(python=sys.executable, address=address, name=name))
            script.chmod(script.stat().st_mode | stat.S_IXUSR)
        path = f"{scratch}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, **environment, "PATH": path}
        self._server = subprocess.Popen(
            [sys.executable, __file__, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
        )
        assert self._server.stdout.readline() == b"ready\n"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()
        self._scratch.cleanup()

    def run(self, command: str, directory: Path) -> tuple[int, str]:
        """Runs a command; returns its status and, as on a screen, all that it writes.

        Both streams go to one regular file, so commands write what they write for people.
        """
        screen = directory / ".screen"
        with screen.open("w+", encoding="utf-8", errors="replace") as file:
            done = subprocess.run(
                ["bash", "-c", f"set -o pipefail\n{command}"],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self._environment,
                check=False,
                timeout=300,
            )
            file.seek(0)
            text = file.read()
        screen.unlink()
        return done.returncode, text


def serve(address: str) -> None:
    """Forks a child for each request; the child writes its exit status into the connection."""
    import torch

    import tformer_cli
    from tformer_cli.cli.app import main

    for module in pkgutil.walk_packages(tformer_cli.__path__, "tformer_cli."):
        if module.name not in NOT_IMPORTED:
            importlib.import_module(module.name)
    import sacrebleu.metrics  # noqa: F401

    # Where an installation has `import tformer`
    sys.path.append(str(Path(tformer_cli.__file__).parent / "api/alias"))
    os.fsync = os.fstat  # as in all tests: nothing here cuts the power
    torch.set_num_threads(1)
    gc.freeze()  # else a child's first collection copies the memory that it shares with all
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)  # noqa: T201
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        request, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        while part := connection.recv(1 << 20):
            request += part
        if not os.fork():
            status = 1
            try:
                status = _run(json.loads(request), descriptors, main)
            finally:
                connection.sendall(str(status).encode())
                os._exit(0)
        connection.close()
        for descriptor in descriptors:
            os.close(descriptor)


def _run(request, descriptors, main) -> int:
    name, arguments, directory, environment = request
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    streams = [
        open(number, mode, buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, mode in enumerate("rww")
    ]  # a stream that is not referred to any more closes its buffer
    sys.stdin, sys.stdout, sys.stderr = streams
    sys.argv = [name, *arguments]
    try:
        if name == "tformer":
            main()
        else:
            sys.argv = arguments
            if arguments[0] == "-c":
                exec(arguments[1], {"__name__": "__main__"})  # noqa: S102
            else:
                runpy.run_path(str(Path(arguments[0]).absolute()), run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as Python itself ends a program
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
