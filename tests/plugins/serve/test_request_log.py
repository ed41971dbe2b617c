import asyncio
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.plugins.serve.fake import Client, FakeService
from tests.plugins.serve.test_libretranslate import upload
from tests.plugins.serve.test_serving import serving
from tformer_cli.plugins.serve import request_log
from tformer_cli.plugins.serve.config import ServeSettings
from tformer_cli.plugins.serve.request_log import RequestLog
from tformer_cli.plugins.serve.security import Keys

QUESTION = {"q": "The secret\nhouse", "source": "en", "target": "fr"}
GERMAN = {**QUESTION, "target": "de"}
EMBEDDED = {"model": "bert", "input": "a"}
FOREIGN = {"authorization": "Bearer secret", "origin": "null"}
NAMES = (
    "time", "id", "client", "method", "route", "model", "texts", "characters", "received", "sent",
    "status", "milliseconds",
)  # fmt: skip


@contextmanager
def logged_client(tmp_path, service=None, *, has_text=False, **site):
    """Yields a client, and a function that returns the logged lines."""
    file = tmp_path / "requests.log"
    log = RequestLog(file, print)
    settings = ServeSettings(log=file, log_text=has_text)

    def lines():
        log.close()
        return [json.loads(line) for line in file.read_text().splitlines()]

    yield Client(service, settings=settings, log=log, **site), lines


def test_a_request_is_a_line(tmp_path):
    with logged_client(tmp_path) as (client, lines):
        answer = client.post("/translate", json_=QUESTION)
        client.get("/languages")
    first, second = lines()
    assert tuple(first) == NAMES
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["time"])
    assert first["id"] == answer.named["x-request-id"] != second["id"]
    assert (first["client"], first["method"], first["route"]) == ("127.0.0.1", "POST", "/translate")
    assert (first["model"], first["texts"], first["characters"]) == ("en-fr", 2, 15)
    assert (first["received"], first["sent"]) == (len(json.dumps(QUESTION)), len(answer.body))
    assert first["status"] == 200
    assert 0 <= first["milliseconds"] < 60_000
    assert (second["route"], second["model"], second["texts"]) == ("/languages", "", 0)


@pytest.mark.parametrize(
    ("request_", "route", "model", "status"),
    [
        (("POST", "/translate", {"json_": GERMAN}), "/translate", "en-fr,fr-de", 200),
        (("POST", "/v1/completions", {"json_": {"prompt": "a"}}), "/v1/completions", "lm", 200),
        (("POST", "/v1/embeddings", {"json_": EMBEDDED}), "/v1/embeddings", "bert", 200),
        (("GET", "/nosuch/secret", {}), "other", "", 404),
        (("GET", "/v1/models/secret", {}), "/v1/models/{name}", "", 404),
        (("GET", "/languages?q=secret", {}), "/languages", "", 200),
        (("GET", "/health", {"host": "secret.example"}), "other", "", 403),
        (("POST", "/translate", {"body": b"secret"}), "/translate", "", 415),
        (("DELETE", "/translate", {}), "/translate", "", 405),
        (("SECRET\nX", "/translate", {}), "/translate", "", 405),
        (("GET", "/health", {"headers": FOREIGN}), "other", "", 403),
        (("POST", "/translate", {"headers": {"content-length": "9" * 30}}), "other", "", 413),
    ],
)  # fmt: skip
def test_every_answer_is_logged_and_nothing_that_was_said(request_, route, model, status, tmp_path):
    service = FakeService(pivot="fr")
    method, path, options = request_
    with logged_client(tmp_path, service, keys=Keys()) as (client, lines):
        assert client.ask(method, path, **options).status == status
    (line,) = lines()
    assert (line["route"], line["model"], line["status"]) == (route, model, status)
    assert "secret" not in json.dumps(line).lower()


def test_texts_are_written_where_they_are_asked_for(tmp_path):
    text = 'a "b"\\\n\u2028\r{"x": 1}'
    with logged_client(tmp_path, has_text=True, keys=Keys(["k" * 16])) as (client, lines):
        body = {**QUESTION, "q": text, "api_key": "k" * 16}
        assert client.post("/translate", json_=body).status == 200
    (line,) = lines()
    assert line["text"] == ['a "b"\\', '\u2028\r{"x": 1}']
    raw = (tmp_path / "requests.log").read_bytes()
    assert raw.isascii()
    assert raw.count(b"\n") == 1
    assert b"kkkk" not in raw


def test_a_client_that_leaves_is_logged(tmp_path):
    async def leave(client):
        left = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, left.set)
        await client.ask_async("POST", "/translate", json_=QUESTION, leaves=left)

    service = FakeService()
    service.seconds = 60
    with logged_client(tmp_path, service) as (client, lines):
        asyncio.run(leave(client))
    (line,) = lines()
    assert (line["status"], line["sent"], line["model"]) == (499, 0, "en-fr")


def test_a_document_counts_its_lines(tmp_path):
    with logged_client(tmp_path) as (client, lines):
        request = upload("secret.txt", b"One.\n\nTwo.\n", source="en", target="fr")
        client.post("/translate_file", **request)
    (line,) = lines()
    assert (line["route"], line["texts"], line["characters"]) == ("/translate_file", 2, 8)
    assert "secret" not in (tmp_path / "requests.log").read_text()


def wait_for_lines(log, file, n):
    until = time.monotonic() + 30
    while not file.exists() or len(file.read_bytes().splitlines()) < n:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_renamed_file_is_made_anew(tmp_path):
    file, old = tmp_path / "log", tmp_path / "log.1"
    log = RequestLog(file, print)
    log.add(b"one\n")
    wait_for_lines(log, file, 1)
    file.rename(old)
    log.add(b"two\n")
    wait_for_lines(log, file, 1)
    file.unlink()
    log.add(b"three\n")
    log.close()
    assert (old.read_bytes(), file.read_bytes()) == (b"one\n", b"three\n")
    assert file.stat().st_mode & 0o777 == 0o600
    log.close()


def test_lines_are_appended_to_what_is_there_and_after_a_file_was_emptied(tmp_path):
    file = tmp_path / "log"
    file.write_bytes(b"before\n")
    log = RequestLog(file, print)
    log.add(b"one\n")
    wait_for_lines(log, file, 2)
    os.truncate(file, 0)
    log.add(b"two\n")
    log.close()
    assert file.read_bytes() == b"two\n"


def test_what_cannot_be_written_is_lost_and_said_once(tmp_path):
    errors = []
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # without a reader
    log = RequestLog(pipe, errors.append)
    for _ in range(3):
        log.add(b"a\n")
    log.close()
    assert log.n_lost == 3
    assert [str(item) for item in errors] == [
        f"--log: {pipe}: no such device or address; lines are lost"
    ]


def test_a_line_that_was_cut_is_ended(tmp_path, monkeypatch):
    file, errors = tmp_path / "log", []
    plain, calls = os.write, []

    def write(place, data):
        calls.append(data)
        if len(calls) == 1:
            return plain(place, data[:3])
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return plain(place, data)

    monkeypatch.setattr(request_log.os, "write", write)
    log = RequestLog(file, errors.append)
    log.add(b"first line\n")
    log.add(b"second\n")
    log.close()
    assert file.read_bytes() == b"fir\nsecond\n"
    assert (log.n_lost, len(errors)) == (1, 1)


def test_a_disk_that_hangs_holds_up_no_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(request_log, "MOST_WAITING", 2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    log = RequestLog(pipe, lambda error: None)
    client = Client(settings=ServeSettings(log=pipe), log=log)
    monkeypatch.setattr(log, "_write", lambda line: time.sleep(0.5))
    started = time.monotonic()
    assert all(client.get("/health").status == 200 for _ in range(20))
    assert time.monotonic() - started < 5
    assert log.n_lost >= 15
    os.close(reader)


MANY = """
import os, sys
from pathlib import Path
from tformer_cli.plugins.serve.request_log import RequestLog

log = RequestLog(Path(sys.argv[1]), print)
pids = []
for n in range(4):
    if (pid := os.fork()) == 0:
        for _ in range(50):
            log.add(str(n).encode() * 20_000 + b"\\n")
        log.close(60)
        os._exit(0)
    pids.append(pid)
for pid in pids:
    os.waitpid(pid, 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["file", "-"])
def test_processes_do_not_mix_their_lines(place, tmp_path):
    path = place if place == "-" else tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(path)], capture_output=True, check=True, timeout=120
    )
    written = done.stderr if place == "-" else path.read_bytes()
    lines = written.splitlines()
    assert len(lines) == 200
    assert {(len(line), len(set(line))) for line in lines} == {(20_000, 1)}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["file", "-"])
def test_workers_write_a_line_for_each_request(place, zoo, tmp_path):
    path = place if place == "-" else tmp_path / "log"
    options = ("--workers", "2", "--log", path, "--log-text")
    with serving(f"en-fr={zoo['translate']}", *options) as server:
        texts = [f"A man and {n} dogs." for n in range(40)]
        questions = [{**QUESTION, "q": text} for text in texts]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda question: server.post("translate", question), questions))
        status, messages = server.end()
    assert status == 143
    written = messages if place == "-" else path.read_text().splitlines()
    lines = [json.loads(line) for line in written if line.startswith("{")]
    assert sorted(line["text"][0] for line in lines) == sorted(texts)
    assert {(line["route"], line["status"]) for line in lines} == {("/translate", 200)}
