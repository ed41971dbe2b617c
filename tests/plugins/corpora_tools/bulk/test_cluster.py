"""Dask: what is made of its answers, by a stand-in; and real schedulers and workers on loopback.

The slow tests need the package distributed, here or in the environment of the Python that
$TFORMER_DASK names.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import CancelledError
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tformer_cli.cli.app import app
from tformer_cli.errors import ArtifactError, TformerError, UsageError
from tformer_cli.kinds.lines.translate import translate_file
from tformer_cli.plugins.corpora_tools.bulk import cluster
from tformer_cli.plugins.corpora_tools.bulk.cluster import DaskCluster, TlsFiles
from tformer_cli.plugins.corpora_tools.bulk.shards import Fields, Shard, Source, Task
from tformer_cli.version import __version__

LINES = ["A man sleeps.", "Two dogs run in the snow.", "", "the street", "A woman and a dog."]
OPENING = json.dumps({"version": __version__, "model": "m", "options": {}, "glossary": []})


class KilledWorker(Exception):  # noqa: N818 - Dask's name
    allowed_failures = 3
    last_worker = SimpleNamespace(address="tcp://w1")


class StandIn:
    """A client of Dask whose one worker calls functions at once, or fails as it is told to."""

    def __init__(self, failures=()):
        self.failures = {key: list(errors) for key, errors in dict(failures).items()}
        self.calls = Counter()
        self.loop = None
        self.most = 0
        self.waiting = []

    def __call__(self, address, **settings):
        self.address, self.settings = address, settings
        if isinstance(self.failures.get("connect"), list):
            raise self.failures["connect"][0]
        return self

    def nthreads(self):
        return {"tcp://w1": 2} if self.calls["nthreads"] else {}

    def submit(self, function, opening, *arguments, pure):
        assert not pure
        name = json.dumps(arguments[0]["shard"]["first"]) if arguments else "open"
        self.calls[name] += 1
        self.calls["nthreads"] += 1
        errors = self.failures.get(name, [])
        error = errors.pop(0) if errors else None

        def result():
            if error is not None:
                raise error
            answer = function(opening, *arguments)
            assert json.loads(json.dumps(answer)) == answer
            return answer

        return SimpleNamespace(key=f"{name} {self.calls[name]}", result=result)

    def as_completed(self, loop):
        client = self

        class Completed:
            def add(self, future):
                client.waiting.append(future)
                client.most = max(client.most, len(client.waiting))

            def __iter__(self):
                while client.waiting:
                    yield client.waiting.pop()

        return Completed()

    def close(self, timeout):
        self.calls["close"] += 1


@pytest.fixture
def dask(monkeypatch):
    """Puts a stand-in in the place of the package; returns what makes a cluster of it."""
    module, comm = ModuleType("distributed"), ModuleType("distributed.comm")
    comm.CommClosedError = type("CommClosedError", (OSError,), {})
    worker = SimpleNamespace(name="w1", state=SimpleNamespace(nthreads=2))
    module.get_worker = lambda: worker
    module.KilledWorker = KilledWorker
    module.Security = lambda **settings: settings
    monkeypatch.setitem(sys.modules, "distributed", module)
    monkeypatch.setitem(sys.modules, "distributed.comm", comm)
    opened = {"place": "cpu", "precision": "float32", "engine": "tformer", "notes": []}
    requests = []
    monkeypatch.setattr(cluster, "describe", lambda opening: requests.append(opening) or opened)
    monkeypatch.setattr(
        cluster,
        "translate_shard",
        lambda opening, task: requests.append(opening) or {"sha256": "5"},
    )

    def make(failures=(), address="node1:8786", **more):
        client = StandIn(failures)
        module.Client, module.as_completed = client, client.as_completed
        client.asked = requests
        return client, DaskCluster(address, **more)

    return make


def tasks(n_shards):
    source = Source(kind="text", name="a", path="/a", rows=9, content="")
    for number in range(n_shards):
        shard = Shard(file=f"{number}", source=0, first=number, rows=1)
        yield number, Task(directory="/d", shard=shard, source=source, fields=Fields())


def run(engine, n_shards=3):
    with engine.start(OPENING) as running:
        return list(running.run(tasks(n_shards)))


def test_shards_are_submitted_a_few_ahead_and_all_open_the_model_alike(dask):
    notes = []
    client, engine = dask(tell=notes.append)
    events = run(engine, 30)
    assert Counter(event.number for event in events) == Counter(range(30))
    assert {(event.kind, event.worker) for event in events} == {("done", "w1")}
    assert client.most == cluster.SHARDS_AHEAD
    assert client.address == "tcp://node1:8786"
    assert notes == ["tcp://node1:8786 has no worker; waiting for one"]
    first, *others = (json.loads(opening)["options"] for opening in client.asked)
    assert first == {"threads": 2}
    assert all(
        options == {"threads": 2, "precision": "float32", "device": "cpu"} for options in others
    )
    assert client.calls["close"] == 1


def test_a_shard_whose_workers_die_is_submitted_again_and_then_given_up(dask):
    client, engine = dask({"1": [KilledWorker()], "2": [KilledWorker()] * 9})
    events = run(engine)
    assert Counter((event.kind, event.number) for event in events) == {
        ("done", 0): 1, ("done", 1): 1, ("lost", 1): 1, ("lost", 2): 2, ("given up", 2): 1
    }  # fmt: skip
    assert {event.reason for event in events if event.reason} == {"4 workers in turn"}
    assert client.calls["2"] == 3


def test_a_lost_scheduler_and_a_worker_without_tformer_are_told(dask):
    _, engine = dask({"1": [CancelledError()]})
    with pytest.raises(TformerError, match=r"tcp://node1:8786 is gone; all finished shards are"):
        run(engine)
    _, engine = dask({"open": [ModuleNotFoundError("No module named 'tformer_cli'")]})
    with pytest.raises(TformerError, match=r"cannot translate \(ModuleNotFoundError: No module"):
        run(engine)
    _, engine = dask({"connect": [OSError("Timed out trying to connect\nafter 3 s")]})
    with pytest.raises(UsageError, match=r"cannot be reached \(Timed out trying to connect\); n"):
        run(engine)


def test_an_error_of_the_model_is_that_of_the_program(dask, monkeypatch):
    _, engine = dask()
    monkeypatch.setattr(
        cluster, "describe", lambda opening: {"error": "m: no model", "kind": "ArtifactError"}
    )
    with pytest.raises(ArtifactError, match="m: no model"):
        run(engine)


def test_the_files_of_tls_go_to_dask_and_addresses_must_be_encrypted(dask):
    tls = TlsFiles(ca="ca.pem", certificate="me.pem")
    client, engine = dask(tls=tls)
    run(engine, 1)
    assert client.address == "tls://node1:8786"
    assert client.settings["security"] == {
        "tls_ca_file": "ca.pem", "tls_client_cert": "me.pem", "tls_client_key": "me.pem",
        "require_encryption": True,
    }  # fmt: skip
    with pytest.raises(UsageError, match=r"tcp://a:1 is not encrypted; write tls://a:1"):
        dask(address="tcp://a:1", tls=tls)


def test_options_that_exclude_each_other(model, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    text = tmp_path / "in.txt"
    text.write_text("A man\n")
    monkeypatch.setitem(sys.modules, "distributed", None)
    for options, message in (
        (["--cluster", "a:1"], "--cluster: needs the package distributed; pip install 'tformer[cl"),
        (["--cluster", "a:1", "--workers", "2"], "--workers: only for processes on this machine"),
        (["--tls-ca", str(text)], "--tls-ca: only for a cluster; add --cluster"),
        (["--cluster", "a:1", "--tls-ca", str(text)], "--tls-ca: TLS needs --tls-ca and --tls-c"),
        (["--cluster", "a:1", "--tls-cert", str(tmp_path / "no")], "no: no such file"),
    ):
        arguments = [str(model), str(text), "-o", str(tmp_path / "out"), *options]
        result = CliRunner().invoke(app, ["translate-corpus", *arguments])
        assert result.exit_code == 2, options
        assert message in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.fixture
def python():
    """A Python that has Dask."""
    if "TFORMER_DASK" in os.environ:
        return os.environ["TFORMER_DASK"]
    if find_spec("distributed") is None:
        pytest.skip("needs the package distributed; TFORMER_DASK may name a Python that has it")
    return sys.executable


class Processes:
    """A scheduler, workers and clients, which can be killed."""

    def __init__(self, python, folder, tls=()):
        self.python, self.folder, self.tls = python, folder, list(tls)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.running = []

    def start(self, *arguments, **streams):
        log = (self.folder / f"{len(self.running)}.log").open("wb")
        command = [self.python, "-m", *map(str, arguments)]
        streams = {"stdout": log, "stderr": log, **streams}
        self.running.append(subprocess.Popen(command, cwd=self.folder, **streams))
        log.close()
        return self.running[-1]

    def scheduler(self):
        host, port = self.address.split(":")
        protocol = ["--protocol", "tls"] if self.tls else []
        module = "distributed.cli.dask_scheduler"
        options = ["--host", host, "--port", port, "--no-dashboard", *protocol, *self.tls]
        return self.start(module, *options)

    def worker(self):
        address = f"{'tls' if self.tls else 'tcp'}://{self.address}"
        options = ["--nthreads", 1, "--no-nanny", "--no-dashboard", *self.tls]
        return self.start("distributed.cli.dask_worker", address, *options)

    def client(self, model, text, output, *more):
        options = ["-o", output, "--cluster", self.address, "--lines-per-shard", 256, *more]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return self.start("tformer_cli", "translate-corpus", model, text, *options, **pipes)


@pytest.fixture
def processes(python, tmp_path):
    with start_processes(python, tmp_path) as running:
        yield running


@contextmanager
def start_processes(python, folder, tls=()):
    local = Processes(python, folder, tls)
    try:
        yield local
    finally:
        for process in local.running:
            process.kill()
            process.communicate()


def wait_for_shards(output, n_shards, client):
    end = time.monotonic() + 200
    while len(list(output.glob("part-*.txt"))) < n_shards:
        assert client.poll() is None, client.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def corpus(model, tmp_path):
    text = tmp_path / "in.txt"
    text.write_text("".join(line + "\n" for line in LINES * 1500))
    translate_file(model, text, tmp_path / "expected.txt", device="cpu", precision="float32")
    return text, tmp_path / "out", (tmp_path / "expected.txt").read_bytes()


def join_parts(directory):
    assert not list(directory.glob("*.partial"))
    return b"".join(file.read_bytes() for file in sorted(directory.glob("part-*")))


@pytest.mark.long
def test_workers_die_and_join(processes, model, corpus):
    text, output, expected = corpus
    processes.scheduler()
    client = processes.client(model, text, output)  # before there is any worker
    workers = [processes.worker(), processes.worker()]
    wait_for_shards(output, 3, client)
    workers[0].send_signal(signal.SIGKILL)
    processes.worker()
    wait_for_shards(output, 9, client)
    workers[1].send_signal(signal.SIGKILL)
    stdout, stderr = client.communicate(timeout=200)
    assert client.returncode == 0, stderr
    assert stdout.decode() == f"{output}\n"
    assert join_parts(output) == expected


@pytest.mark.long
def test_client_and_scheduler_die_and_the_same_command_continues(processes, model, corpus):
    text, output, expected = corpus
    scheduler = processes.scheduler()
    workers = [processes.worker(), processes.worker()]
    client = processes.client(model, text, output)
    wait_for_shards(output, 3, client)
    client.send_signal(signal.SIGKILL)
    client.communicate()
    client = processes.client(model, text, output)
    wait_for_shards(output, 12, client)
    scheduler.send_signal(signal.SIGKILL)
    _, stderr = client.communicate(timeout=200)
    assert client.returncode == 1
    assert b"lines done; resuming after them" in stderr
    assert stderr.splitlines()[-1].startswith(b"error: --cluster: tcp://127.0.0.1:")
    assert b" is gone; all finished shards are kept: " in stderr
    for process in (scheduler, *workers):
        process.kill()
        process.wait()
    assert len(list(output.glob("part-*.txt"))) < 30
    processes.scheduler()
    processes.worker()
    client = processes.client(model, text, output)
    _, stderr = client.communicate(timeout=200)
    assert client.returncode == 0, stderr
    assert join_parts(output) == expected


@pytest.mark.long
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
def test_tls(python, tmp_path, model, corpus):
    text, output, expected = corpus
    ca, key, certificate = (tmp_path / name for name in ("ca.pem", "key.pem", "cert.pem"))

    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    new, secret = ["-newkey", "rsa:2048", "-nodes"], tmp_path / "ca.key"
    request = tmp_path / "request.csr"
    openssl("req", "-x509", *new, "-keyout", secret, "-out", ca, "-subj", "/CN=ca", "-days", 9)
    openssl("req", *new, "-keyout", key, "-out", request, "-subj", "/CN=me")
    signed = ["-CA", ca, "-CAkey", secret, "-CAcreateserial", "-out", certificate, "-days", 9]
    openssl("x509", "-req", "-in", request, *signed)
    files = ["--tls-ca-file", ca, "--tls-cert", certificate, "--tls-key", key]
    ours = ["--tls-ca", ca, "--tls-cert", certificate, "--tls-key", key]
    with start_processes(python, tmp_path, files) as processes:
        processes.scheduler()
        processes.worker()
        client = processes.client(model, text, output, *ours)
        _, stderr = client.communicate(timeout=200)
        assert client.returncode == 0, stderr
        assert join_parts(output) == expected
        refused = processes.client(model, text, tmp_path / "other")
        _, stderr = refused.communicate(timeout=200)
        assert refused.returncode == 2
        assert b"cannot be reached" in stderr
    assert not (Path(tmp_path) / "other").exists()
