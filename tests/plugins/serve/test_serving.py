"""The command in its own process, and popular clients."""

import asyncio
import http.client
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.plugins.serve.test_libretranslate import upload
from tformer_cli import load
from tformer_cli.plugins.serve import run
from tformer_cli.text.tokenizer import read_tokenizer

SECONDS = 60


class Server:
    """A running `tformer serve`."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "tformer_cli", "serve", *map(str, arguments)]
        # Background jobs of a shell ignore SIGINT, and their children would, too
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.process = subprocess.Popen(
            [*command, "--port", "0"],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        signal.signal(signal.SIGINT, before)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line.decode().rstrip("\n"))
            if match := re.search(r" at (http://\S+/) \(Ctrl-C ends\)", self.lines[-1]):
                self.url = match[1]
                break
        else:
            raise AssertionError(self.lines)
        self.host, port = re.fullmatch(r"http://(.*):(\d+)/", self.url).groups()
        self.port = int(port)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        self.lines += [line.decode().rstrip("\n") for line in self.process.stderr]

    def post(self, path, fields, **headers):
        body = json.dumps(fields).encode()
        headers = {"content-type": "application/json", **headers}
        with urlopen(Request(self.url + path, body, headers), timeout=SECONDS) as answer:
            return answer.read()

    def get(self, path):
        with urlopen(self.url + path, timeout=SECONDS) as answer:
            return answer.read().decode()

    def end(self, number=signal.SIGTERM):
        """Ends it with a signal; returns its exit status and its lines on stderr."""
        if number != signal.SIGTERM:  # from a terminal: all processes get it
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        status = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        assert self.process.stdout.read() == b""
        return status, self.lines

    @property
    def n_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


@contextmanager
def serving(*arguments):
    server = Server(*arguments)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        server._reader.join(SECONDS)
        server.process.stdout.close()
        server.process.stderr.close()


@pytest.fixture(scope="module")
def server(zoo):
    models = [
        f"en-fr={zoo['translate']}", f"int8={zoo['int8']}", f"lm={zoo['language_model']}",
        f"stars={zoo['classifier']}", f"tags={zoo['tagger']}", f"gaps={zoo['masked']}",
    ]  # fmt: skip
    with serving(*models, "--cache", "1MB") as server:
        yield server


def translate_directly(zoo, text, model="translate", **search):
    (translation,) = load(zoo[model]).translate([text], **search)
    return translation


def test_answers_are_those_of_the_command(server, zoo):
    for text in ("The old house.", "A man and a dog.", "it is cold"):
        answer = server.post("translate", {"q": text, "source": "en", "target": "fr"})
        assert json.loads(answer) == {"translatedText": translate_directly(zoo, text).text}
        for name, model in (("en-fr", "translate"), ("int8", "int8")):
            events = server.post("api/translate", {"text": text, "model": name, "n_best": 2})
            first = json.loads(events.splitlines()[0])
            expected = translate_directly(zoo, text, model, n_best=2)
            hypotheses = [(row["text"], row["score"]) for row in first["hypotheses"]]
            assert hypotheses == [(row.text, row.score) for row in expected.hypotheses]
            target = read_tokenizer(zoo[model]).target
            assert first["target"]["pieces"] == target.pieces(first["target"]["ids"])
            assert len(first["source"]["pieces"]) == len(first["source"]["ids"])
        sampled = {"text": text, "model": "en-fr", "temperature": 0.5, "top_k": 5, "seed": 3}
        event = json.loads(server.post("api/translate", sampled).splitlines()[0])
        drawn = load(zoo["translate"], seed=3).translate(
            [text], sampling=True, temperature=0.5, top_k=5
        )
        assert event["target"]["text"] == next(iter(drawn)).text


def test_clients_at_once_get_what_each_would_alone(server, zoo):
    texts = [f"{words} {n}" for n in range(8) for words in ("The house", "A dog sleeps in the")]
    expected = {text: translate_directly(zoo, text).text for text in texts}
    wrong, order = [], random.Random(3)

    def ask(mine):
        for text in mine:
            answer = server.post("translate", {"q": text, "source": "en", "target": "fr"})
            if json.loads(answer)["translatedText"] != expected[text]:
                wrong.append(text)

    threads = [
        threading.Thread(target=ask, args=(order.sample(texts, len(texts)),)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert wrong == []


def test_libretranslatepy(server, zoo):
    from libretranslatepy import LibreTranslateAPI

    client = LibreTranslateAPI(server.url, api_key="any")
    text = "The old house."
    assert client.translate(text, "en", "fr") == translate_directly(zoo, text).text
    assert client.detect("The old house is green.")[0]["language"] == "en"
    assert [language["code"] for language in client.languages()] == ["en", "fr"]


def test_openai(server):
    import openai

    with openai.OpenAI(base_url=f"{server.url}v1", api_key="any", max_retries=0) as client:
        assert "lm" in [model.id for model in client.models.list()]
        request = {"model": "lm", "prompt": "The old", "max_tokens": 5, "seed": 3}
        streamed = list(client.completions.create(**request, stream=True))
        assert len(streamed) > 2
        whole = client.completions.create(**request)
        assert whole.choices[0].text
        assert whole.choices[0].finish_reason in ("stop", "length")
        # The same seed writes the same, streamed or not
        assert "".join(chunk.choices[0].text for chunk in streamed) == whole.choices[0].text
        (cached,) = client.completions.create(**request, stream=True)
        assert cached.choices[0].text == whole.choices[0].text
        vectors = client.embeddings.create(model="stars", input=["a man", "a dog"])
        assert len(vectors.data) == 2
        assert len(vectors.data[0].embedding) == 16
        assert vectors.usage.prompt_tokens > 2
        with pytest.raises(openai.NotFoundError, match="there is no model"):
            client.completions.create(model="nosuch", prompt="a")
        messages = [{"role": "user", "content": "The old"}]
        with pytest.raises(openai.BadRequestError, match="use /v1/completions"):
            client.chat.completions.create(model="lm", messages=messages)
        with pytest.raises(openai.BadRequestError, match="is a translation model"):
            client.completions.create(model="en-fr", prompt="a")


def curl(*arguments):
    done = subprocess.run(
        ["curl", "-sS", "--max-time", str(SECONDS), *arguments], capture_output=True, check=True
    )
    return done.stdout.decode()


def test_curl(server, zoo, tmp_path):
    expected = {"translatedText": translate_directly(zoo, "The dog.").text}
    fields = ["q=The dog.", "source=en", "target=fr"]
    url = f"{server.url}translate"
    multipart = [part for field in fields for part in ("-F", field)]
    form = [part for field in fields for part in ("--data-urlencode", field)]
    assert json.loads(curl(*multipart, url)) == expected
    assert json.loads(curl(*form, url)) == expected
    query = f"{url}?q=The%20dog.&source=en&target=fr"
    assert json.loads(curl("-X", "POST", query)) == expected
    assert "405" in curl("-w", "%{http_code}", query)
    file = tmp_path / "text.txt"
    file.write_text("The dog.\n\nA man.\n")
    uploaded = curl("-F", f"file=@{file}", *multipart[2:], f"{server.url}translate_file")
    file_url = json.loads(uploaded)["translatedFileUrl"]
    first, second = (translate_directly(zoo, text).text for text in ("The dog.", "A man."))
    assert curl(file_url) == f"{first}\n\n{second}\n"


def test_other_verbs(server):
    text = "The old house"
    for verb, model, event in (
        *(("classify", "stars", "classification"), ("tag", "tags", "tags")),
        *(("fill", "gaps", "filled"), ("embed", "stars", "embedding")),
        ("generate", "lm", "generation"),
    ):
        line = text.replace("old", "<mask>") if verb == "fill" else text
        request = {"text": line, "model": model}
        *parts, first, done = map(json.loads, server.post(f"api/{verb}", request).splitlines())
        assert (first["event"], first["model"], done["event"]) == (event, model, "done")
        if verb == "generate":
            assert len(parts) > 1
            assert "".join(part["text"] for part in parts) == first["texts"][0]["text"]
            cut = server.post("api/generate", {**request, "stop": [first["texts"][0]["text"][3:5]]})
            # A stopped text has no score, which must be valid JSON
            assert json.loads(cut.splitlines()[-2], parse_constant=pytest.fail)["score"] is None


def test_a_name_of_a_file_is_no_picture(zoo, tmp_path):
    file = next(zoo.inputs.rglob("*.png"))
    with serving(f"photos={zoo['images']}") as server:
        with pytest.raises(HTTPError) as refused:
            server.post("api/classify", {"text": str(file)})
        assert refused.value.code == 400
        assert "data:image" in refused.value.read().decode()


def test_html_is_translated_as_by_the_command(zoo):
    page = "<p>The <b>old</b> house is <a href='x'>green</a>, and {x}.</p><p>The cat</p>"
    code = (
        "import sys; from tformer_cli.cli.app import main\n"
        "sys.argv = ['tformer', 'translate', *sys.argv[1:]]; main()"
    )
    words = [sys.executable, "-c", code, zoo["translate"], "--document", "html", "-q"]
    done = subprocess.run(words, input=page.encode(), capture_output=True, check=True)
    with serving(zoo["translate"]) as server:
        fields = {"q": page, "source": "en", "target": "fr", "format": "html"}
        answer = json.loads(server.post("translate", fields))
    assert answer["translatedText"] == done.stdout.decode()
    assert answer["translatedText"].count("<a href='x'>") == 1


def test_the_service_imports_no_torch():
    code = (
        "import sys, tformer_cli.plugins.serve.run, tformer_cli.plugins.serve.models\n"
        "assert 'starlette' in sys.modules\n"
        "print(sorted({'torch', 'datasets', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_it_when_all_is_answered(zoo, number, status, workers):
    with serving(zoo["translate"], "--workers", workers) as server:
        answers, begun = [], threading.Semaphore(0)

        def ask():
            text = "\n".join(f"The old house {n}." for n in range(100))
            body = json.dumps({"text": text}).encode()
            headers = {"Content-Type": "application/json"}
            http_request = Request(server.url + "api/translate", body, headers)
            with urlopen(http_request, timeout=SECONDS) as answer:
                events = [json.loads(answer.readline())]
                begun.release()  # it is admitted, and far from its end
                events += map(json.loads, answer)
            assert events[-1]["event"] == "done"
            answers.append(sum(event["event"] == "translation" for event in events))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert all(begun.acquire(timeout=SECONDS) for _ in threads)
        ended, lines = server.end(number)
        for thread in threads:
            thread.join(SECONDS)
        # No admitted request is lost or cut off
        assert answers == [100] * 4
        assert ended == status
        assert len([line for line in lines if "serving" in line]) == 1
        assert not [line for line in lines if "error" in line or "Traceback" in line]
        with pytest.raises(OSError, match="refused"):
            server.get("health")


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def both_workers(server):
    """The process ids of two workers, which may start after the address was printed."""
    until = time.monotonic() + SECONDS
    while len(workers := children(server.process.pid)) < 2:
        assert time.monotonic() < until
        time.sleep(0.02)
    return workers


def test_a_second_signal_ends_workers_at_once(zoo):
    with serving(zoo["translate"], "--workers", "2") as server:
        pid = both_workers(server)[0]
        os.kill(int(pid), signal.SIGSTOP)  # it reacts only to SIGKILL
        try:
            until = time.monotonic() + SECONDS
            while ") T " not in Path(f"/proc/{pid}/stat").read_text():
                assert time.monotonic() < until
            server.process.terminate()
            time.sleep(0.3)
            assert server.process.poll() is None
            while server.process.poll() is None:  # two at the same time count as one
                server.process.terminate()
                time.sleep(0.1)
            assert server.end()[0] == 143
        finally:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_service_that_still_answers(zoo, number):
    with serving(zoo["translate"], "--cache", 0) as server:
        lines = [b"dog %d and cat %d\n" % (n, 7 * n) for n in range(30_000)]
        request = upload(content=b"".join(lines))
        with socket.create_connection((server.host, server.port), timeout=SECONDS) as connection:
            head = "".join(f"{name}: {value}\r\n" for name, value in request["headers"].items())
            head += f"Host: localhost\r\nContent-Length: {len(request['body'])}\r\n\r\n"
            head = f"POST /translate_file HTTP/1.1\r\n{head}"
            connection.sendall(head.encode() + request["body"])
            while "tformer_documents 1\n" not in server.get("metrics"):
                time.sleep(0.05)
            server.process.send_signal(number)
            time.sleep(1.0)
            assert server.process.poll() is None
            started = time.monotonic()
            server.process.send_signal(number)
            assert server.process.wait(SECONDS) == 128 + number
            assert time.monotonic() - started < 10
        server._reader.join(SECONDS)
        assert not [line for line in server.lines if "error" in line or "Traceback" in line]


def test_the_page_is_opened_with_workers_too(zoo, tmp_path, monkeypatch):
    page = tmp_path / "browser"
    page.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    page.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(page))
    with serving(zoo["translate"], "--workers", "2", "--open") as server:
        until = time.monotonic() + SECONDS
        while not (tmp_path / "opened").is_file():
            assert time.monotonic() < until
            time.sleep(0.05)
        assert (tmp_path / "opened").read_text().strip() == server.url


def test_workers_end_when_their_parent_is_killed(zoo):
    with serving(zoo["translate"], "--workers", "2") as server:
        workers = both_workers(server)
        server.process.kill()
        until = time.monotonic() + SECONDS
        while any(Path(f"/proc/{pid}").exists() for pid in workers):
            assert time.monotonic() < until
            time.sleep(0.05)


def test_workers_share_a_port_and_are_replaced(zoo):
    with serving(zoo["translate"], "--workers", "2") as server:
        fields = {"q": "The dog.", "source": "en", "target": "fr"}
        expected = {"translatedText": translate_directly(zoo, "The dog.").text}
        for _ in range(10):
            assert json.loads(server.post("translate", fields)) == expected
        before = both_workers(server)
        assert len(before) == 2
        time.sleep(1.0)
        os.kill(int(before[0]), signal.SIGKILL)
        until = time.monotonic() + SECONDS
        while before[0] in children(server.process.pid) or len(children(server.process.pid)) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
        for _ in range(10):
            assert json.loads(server.post("translate", fields)) == expected
        # Any worker can return a file that another translated
        request = upload(content=b"The dog.\n")
        http_request = Request(server.url + "translate_file", request["body"], request["headers"])
        with urlopen(http_request, timeout=SECONDS) as answer:
            url = json.loads(answer.read())["translatedFileUrl"]
        path = url.removeprefix(server.url)
        # Every worker reports the metrics of all
        counter_line = 'tformer_requests_total{endpoint="/translate",status="200"}'
        until = time.monotonic() + SECONDS
        while not re.search(f"{re.escape(counter_line)} (1[0-9]|20)\n", server.get("metrics")):
            assert time.monotonic() < until
            time.sleep(0.2)
        assert {server.get(path) for _ in range(10)} == {f"{expected['translatedText']}\n"}
        status, lines = server.end()
        assert status == 143
        assert not [line for line in lines if "error" in line]
        assert [pid for pid in before if Path(f"/proc/{pid}").exists()] == []


def total(server, name):
    counts = re.findall(rf"^{name}(?:{{.*}})? (\d+)$", server.get("metrics"), re.MULTILINE)
    return sum(map(int, counts))


@pytest.mark.slow
def test_totals_never_fall_when_workers_die(zoo):
    with serving(zoo["translate"], "--workers", "2") as server:
        totals = []
        for n in range(20):
            server.post("translate", {"q": f"A dog {n}.", "source": "en", "target": "fr"})
            totals.append(total(server, "tformer_requests_total"))
            if n % 8 == 7:
                pids = both_workers(server)
                os.kill(int(pids[0]), signal.SIGKILL)
                until = time.monotonic() + SECONDS
                while pids[0] in children(server.process.pid):
                    assert time.monotonic() < until
                    time.sleep(0.01)
        until = time.monotonic() + SECONDS
        while total(server, "tformer_requests_total") < 40:
            assert time.monotonic() < until
    assert totals == sorted(totals)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_documents_of_a_killed_service_go_when_the_next_one_starts(
    zoo, tmp_path, monkeypatch, workers
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for n in range(2):
        with serving(zoo["translate"], "--workers", workers) as server:
            request = upload(content=b"The dog.\n")
            url = server.url + "translate_file"
            with urlopen(
                Request(url, request["body"], request["headers"]), timeout=SECONDS
            ) as answer:
                answer.read()
            assert len(list(tmp_path.glob("tformer-serve-*"))) == 1
            files = list(tmp_path.glob("tformer-serve-*/????????????????????????????????"))
            assert len(files) == 1
            if n:
                assert server.end()[0] == 143
            else:
                pids = children(server.process.pid)
                server.process.kill()
                while any(Path(f"/proc/{pid}").exists() for pid in pids):
                    time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []


def status_and_text(server, text):
    """Requests a translation; returns the status, and the translation or the error."""
    try:
        answer = server.post("translate", {"q": text, "source": "en", "target": "fr"})
    except HTTPError as error:
        with error:
            return error.code, json.load(error)["error"]
    return 200, json.loads(answer)["translatedText"]


def written_over(weights, twin):
    with weights.open("r+b") as file:  # as `cp` does: the same file with other numbers
        file.write(twin.read_bytes())


def cut(weights, twin):
    with weights.open("r+b") as file:
        file.truncate(1000)


CHANGES = {
    "written over": (written_over, True),
    "cut": (cut, False),
    "emptied": (lambda weights, twin: weights.write_bytes(b""), False),
    "removed": (lambda weights, twin: weights.unlink(), False),
    "directory removed": (lambda weights, twin: shutil.rmtree(weights.parent), False),
    "renamed": (
        lambda weights, twin: Path(shutil.copy(twin, f"{weights}.new")).replace(weights),
        None,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_are_changed_are_refused_until_the_new_ones_are_read(zoo, tmp_path, change):
    model = shutil.copytree(zoo["translate"], tmp_path / "m")
    weights, text = model / "model.safetensors", "A man and a dog."
    old, new = (translate_directly(zoo, text, name).text for name in ("translate", "twin"))
    make, is_whole = CHANGES[change]
    with serving(f"m={model}", "--cache", 0) as server:
        before = json.loads(server.get("api/models"))["models"][0]["hash"]
        assert status_and_text(server, text) == (200, old)
        make(weights, zoo["twin"] / "model.safetensors")
        status, answer = status_and_text(server, text)
        if is_whole is None:
            assert (status, answer) == (200, new)
        else:
            assert status == 503
            assert answer == "m: its files are being changed; try again in a moment"
        if is_whole is False:
            status, answer = status_and_text(server, text)
            assert status == 503
            assert answer.startswith("m")
            assert str(tmp_path) not in answer
            model.mkdir(exist_ok=True)
            for name in ("config.json", "tokenizer.json", "model.safetensors"):
                Path(shutil.copy(zoo["twin"] / name, tmp_path / "new")).replace(model / name)
        assert status_and_text(server, text) == (200, new)
        after = json.loads(server.get("api/models"))["models"][0]
        assert after["hash"] != before
        assert after["state"] == "loaded"
        assert server.end()[0] == 143
        assert not any("Traceback" in line for line in server.lines)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_without_a_usable_model_ends_in_one_line(zoo, tmp_path, workers):
    model = shutil.copytree(zoo["translate"], tmp_path / "m")
    with serving(f"m={model}", "--cache", 0, "--workers", workers) as server:
        (model / "model.safetensors").write_bytes(b"")
        for _ in range(6 * workers):
            with suppress(OSError):
                assert status_and_text(server, "A man.")[0] == 503
        assert server.process.wait(SECONDS) == 2
        server._reader.join(SECONDS)
        assert "is damaged or not a safetensors file" in server.lines[-1]


def test_too_few_open_files_are_refused_at_once(zoo):
    program = "import resource, sys; from tformer_cli.__main__ import main\n"
    program += "resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30)); main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "serve", zoo["translate"]],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "error: serve: `ulimit -n` allows 30 open files, too few for connections; raise it to "
        "1024\n"
    )


def test_a_port_in_use_is_an_error_before_anything_is_loaded(zoo):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "tformer_cli", "serve", zoo["translate"], "--port", port]
        done = subprocess.run([*map(str, command)], capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.decode() == (
        f"error: --port: {port} is in use on 127.0.0.1; choose another, or 0 for a free one\n"
    )


def test_half_open_connections_end(server):
    # A silent connection, one that stops within the header, one with an endless header
    silent, slow, long = (socket.create_connection((server.host, server.port)) for _ in range(3))
    slow.sendall(b"POST /translate HTTP/1.1\r\nHost: local")
    with long:
        long.settimeout(SECONDS)
        try:
            for _ in range(200):
                long.sendall(b"X-A: " + b"b" * 1000 + b"\r\n")
            ended = long.recv(1000)
        except OSError:
            ended = b""
        assert ended == b"" or b" 400 " in ended
    started = time.monotonic()
    for connection in (silent, slow):
        with connection:
            connection.settimeout(SECONDS)
            assert connection.recv(1000) == b""
    assert time.monotonic() - started < 20
    # After a whole header, a connection stays open until the answer
    connection = http.client.HTTPConnection(server.host, server.port, timeout=SECONDS)
    for _ in range(2):
        connection.request("GET", "/health")
        assert connection.getresponse().read() == b'{"status":"ok"}'
    connection.close()


def test_who_does_not_read_an_answer_is_left(monkeypatch):
    closed = asyncio.run(asyncio.wait_for(_unread(monkeypatch), SECONDS))
    assert closed == ["abort", "close"]


async def _unread(monkeypatch):
    """One client stops reading, another resumes in time; returns which connections ended."""
    closed = []
    monkeypatch.setattr(run, "STUCK_SECONDS", 0.02)
    config = uvicorn.Config(lambda *_: None, lifespan="off", ws="none", log_config=None)
    config.load()
    transport = SimpleNamespace(
        get_extra_info=lambda name: None, is_closing=lambda: False,
        abort=lambda: closed.append("abort"), close=lambda: closed.append("close"),
    )  # fmt: skip
    for is_read in (False, True):
        # Long enough to drop a client that does not read, but not one that resumed
        monkeypatch.setattr(run, "HEADER_SECONDS", 0.05 if is_read else 60.0)
        protocol = run.TimedProtocol(config=config, server_state=ServerState(), app_state={})
        protocol.connection_made(transport)
        protocol.pause_writing()
        if is_read:
            protocol.resume_writing()
        while len(closed) <= is_read:
            await asyncio.sleep(0.01)
        protocol.connection_lost(RuntimeError())
    return closed


def hostile_bodies(draw, n):
    """Yields methods, paths, headers and bodies that no real client sends."""
    words = [
        *("q", "source", "target", "format", "alternatives", "text", "model", "prompt", "input"),
        *("n", "beam_size", "seed", "temperature", "top", "timeout_ms", "stream", "ban", "inputs"),
    ]
    values = [
        *(None, True, -1, 0, 10**30, 1e308, 2.5, "", "en", "fr", "auto", "html", "x" * 6000),
        "a\ud800",
        *([], ["a"] * 200, [[1]], {}, {"a": []}, "\x00", "en-fr", "lm", "</script>", "../../etc"),
    ]  # fmt: skip
    paths = [
        *("translate", "detect", "languages", "translate_file", "suggest", "api/translate"),
        *("api/generate", "api/embed", "v1/completions", "v1/embeddings", "embed", "page/../x"),
        *("api/models/x/load", "api/models/en-fr/load", "download_file/x", "metrics", "%00", "é"),
    ]
    kinds = [
        *("application/json", "application/x-www-form-urlencoded", "text/plain", ""),
        *("multipart/form-data; boundary=b", "multipart/form-data", "application/json; charset=x"),
    ]
    for _ in range(n):
        fields = {draw.choice(words): draw.choice(values) for _ in range(draw.randint(0, 6))}
        body = json.dumps(fields).encode()
        if draw.random() < 0.3:
            place = draw.randrange(len(body))
            body = body[:place] + draw.randbytes(draw.randint(0, 20)) + body[place:]
        if draw.random() < 0.2:
            body = b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\n' + body + b"\r\n--b--"
        headers = {"Content-Type": draw.choice(kinds)}
        if draw.random() < 0.2:
            headers[draw.choice(["X-A", "Authorization", "Accept", "Origin"])] = draw.choice(
                ["Bearer x", "a" * 3000, "null", "\xff", "http://localhost"]
            )
        method = draw.choice(["POST"] * 6 + ["GET", "PUT", "OPTIONS", "BREW"])
        path = (
            "/" + draw.choice(paths).replace("é", "%C3%A9") + draw.choice(["", "?q=%ff&a", "?a=1"])
        )
        yield method, path, headers, body


def ask_hostile(server, n, seed):
    draw, statuses = random.Random(seed), []
    connection = http.client.HTTPConnection(server.host, server.port, timeout=SECONDS)
    for method, path, headers, body in hostile_bodies(draw, n):
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (http.client.HTTPException, OSError):  # refused before the whole body was read
            connection.close()
            continue
        statuses.append(answer.status)
        assert answer.status < 500 or answer.status in (501, 503, 504), (method, path, body, text)
        assert b"Traceback" not in text
        assert b"/tmp" not in text  # no local path
        if answer.getheader("connection") == "close":
            connection.close()
    connection.close()
    return statuses


def check_hostile(server, n, seed):
    # The first requests load the language detector and buffers, which stay
    server.post("translate", {"q": "The old house.", "source": "auto", "target": "fr"})
    ask_hostile(server, n // 3, seed + 1)
    before = server.n_bytes
    statuses = ask_hostile(server, n, seed)
    assert len(statuses) > n * 0.9
    assert {200, 400, 404, 405, 415} <= set(statuses)
    assert server.n_bytes - before < 40 << 20
    assert server.get("health") == '{"status":"ok"}'
    assert not [line for line in server.lines if "Traceback" in line or "error" in line]


def test_hostile_requests_are_answered_with_errors(server):
    check_hostile(server, 300, 1)


@pytest.mark.long
def test_many_hostile_requests(server):
    check_hostile(server, 10_000, 2)


def test_a_client_that_leaves_ends_its_work(zoo):
    with serving(zoo["translate"]) as server:
        texts = [f"dog {n} " * 20 for n in range(128)]
        body = json.dumps({"q": texts, "source": "en", "target": "fr"}).encode()
        head = (
            f"POST /translate HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        until = time.monotonic() + SECONDS
        while "tformer_disconnected_total 0\n" in server.get("metrics"):
            assert time.monotonic() < until
            # Retry if this process stalled until everything was answered
            with socket.create_connection((server.host, server.port)) as connection:
                connection.sendall(head.encode() + body)
                time.sleep(0.05)
        while 'tformer_queue_requests{class="bulk"} 0\n' not in server.get("metrics"):
            assert time.monotonic() < until


ASKED = b'{"q": "A man and a dog.", "source": "en", "target": "fr"}'


def raw_request(path, body=b"", version="1.1", headers=b"Host: localhost\r\n"):
    method = "POST" if body else "GET"
    kind = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body) if body else b""
    return f"{method} {path} HTTP/{version}\r\n".encode() + headers + kind + b"\r\n" + body


def exchange(server, data, *, half=True):
    """Sends bytes and, like `nc -N`, an end; returns everything up to the end of the answer."""
    with socket.create_connection((server.host, server.port), timeout=SECONDS) as connection:
        connection.sendall(data)
        if half:
            connection.shutdown(socket.SHUT_WR)
        response = b""
        while part := connection.recv(65536):
            response += part
    return response


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (raw_request("/health"), [200]),
        (raw_request("/health", version="1.0"), [200]),
        (raw_request("/translate", ASKED), [200]),
        (raw_request("/translate", ASKED) * 3 + raw_request("/health"), [200] * 4),
        (raw_request("/nosuch"), [404]),
        (raw_request("/translate", ASKED)[:-5], []),
        (raw_request("/health") + raw_request("/translate", ASKED)[:-5], [200]),
        (b"GET /hea", []),
        (b"", []),
    ],
)
def test_a_client_that_sends_nothing_more_gets_its_answer(server, data, statuses):
    response = exchange(server, data)
    assert [int(status) for status in re.findall(rb"HTTP/1.1 (\d+) ", response)] == statuses


NOT_HTTP = {
    "no version": b"GET /health\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + b"a" * 190,
    "spaces": b"GET  /health  HTTP/1.1\r\n\r\n",
    "header": b"GET /health HTTP/1.1\r\nHost localhost\r\n\r\n",
    "length": b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
    "chunk": b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("data", NOT_HTTP.values(), ids=NOT_HTTP)
def test_what_is_not_http_is_an_error_as_all_others(server, data):
    head, _, body = exchange(server, data, half=False).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 4")
    assert b"\r\ncontent-type: application/json" in head
    assert b"x-content-type-options: nosniff" in head
    assert head.lower().count(b"connection: close") == 1
    assert set(json.loads(body)) == {"error"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "kind", "n_bytes"),
    [
        ("/translate_file", "multipart/form-data; boundary=x", 30 << 20),
        ("/translate", "application/json", 5 << 20),
        ("/v1/chat/completions", "application/json", 5 << 20),
        ("/nosuch", "application/json", 900_000),
    ],
)
@pytest.mark.parametrize("is_chunked", [True, False])
def test_who_is_refused_before_all_is_sent_reads_why(server, path, kind, n_bytes, is_chunked):
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
    head += "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {n_bytes}"
    start = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    body = start + b"x" * (n_bytes - len(start))
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (n_bytes, body) if is_chunked else body
    response = exchange(server, head.encode() + b"\r\n\r\n" + body, half=False)
    status = 404 if path == "/nosuch" else 413
    assert response.startswith(b"HTTP/1.1 %d " % status)
    assert "error" in json.loads(response.rpartition(b"\r\n\r\n")[2])


@pytest.mark.slow
def test_a_long_answer_reaches_a_client_that_sends_nothing_more(zoo):
    texts = [f"dog {n} " * 40 for n in range(128)]
    body = json.dumps({"q": texts, "source": "en", "target": "fr"}).encode()
    with serving(zoo["translate"], "--cache", 0) as server:
        response = exchange(server, raw_request("/translate", body))
        head, _, answer = response.rpartition(b"\r\n\r\n")
        assert len(json.loads(answer)["translatedText"]) == 128
        assert head.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
        assert "tformer_disconnected_total 0\n" in server.get("metrics")


@pytest.mark.slow
def test_who_comes_when_all_places_are_taken(server):
    idle = []
    try:
        for _ in range(run.CONNECTIONS + 20):
            connection = socket.create_connection((server.host, server.port), timeout=SECONDS)
            connection.sendall(b"GET /languages HTTP/1.1\r\n")
            idle.append(connection)
        for path, status in (("/languages", 503), ("/health", 200), ("/v1/models", 503)):
            response = exchange(server, raw_request(path), half=False)
            head, _, body = response.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status)
            assert b"x-content-type-options: nosniff" in head
            assert head.count(b"connection: close") == 1
            assert (b"retry-after: 1" in head) == (status == 503)
            assert json.loads(body)
        # Earlier connections are still answered
        idle[0].sendall(b"Host: localhost\r\n\r\n")
        assert idle[0].recv(100).startswith(b"HTTP/1.1 200 OK")
    finally:
        for connection in idle:
            connection.close()


@pytest.mark.slow
def test_health_is_answered_where_few_files_can_be_open(zoo):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
        try:
            server = stack.enter_context(serving(zoo["translate"]))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for _ in range(120):
            connection = socket.create_connection((server.host, server.port), timeout=SECONDS)
            stack.enter_context(connection)
            assert exchange(server, raw_request("/health")).startswith(b"HTTP/1.1 200 OK")
        assert not [line for line in server.lines if "error" in line]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "version", "headers", "status"),
    [
        ("/health", "1.0", b"", b"200"),
        ("/ready", "1.0", b"", b"200"),
        ("/health", "1.0", b"Host:\r\n", b"200"),
        ("/languages", "1.0", b"", b"403"),
        ("/languages", "1.0", b"Host:\r\n", b"403"),
        ("/health", "1.0", b"Host: evil.example\r\n", b"403"),
        ("/health", "1.0", b"Host:\r\nHost:\r\n", b"40[03]"),
        ("/health", "1.0", b"Host:\r\nOrigin: file://\r\n", b"403"),
        ("/", "1.0", b"", b"403"),
        ("/metrics", "1.0", b"", b"403"),
        ("/health", "1.1", b"", b"40[03]"),
        ("/health", "1.1", b"Host:\r\nConnection: close\r\n", b"40[03]"),
    ],
)
def test_a_load_balancer_that_sends_no_host(server, path, version, headers, status):
    response = exchange(server, raw_request(path, version=version, headers=headers), half=False)
    assert re.match(b"HTTP/1.1 %s " % status, response)


@pytest.mark.slow
def test_sentences_are_answered_beside_four_documents(zoo):
    with serving(zoo["translate"]) as server:
        lines = b"".join(b"dog %d and cat %d\n" % (n, 7 * n) for n in range(30_000))
        request = upload(content=lines)
        kind = request["headers"]["content-type"]
        head = (
            f"POST /translate_file HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(request['body'])}\r\n\r\n"
        )
        until = time.monotonic() + SECONDS
        with ExitStack() as uploads:
            for _ in range(4):
                connection = socket.create_connection((server.host, server.port))
                uploads.enter_context(connection)
                connection.sendall(head.encode() + request["body"])
            while "tformer_documents 4\n" not in server.get("metrics"):
                assert time.monotonic() < until
            for number in range(20):
                question = {"q": f"house {number}", "source": "en", "target": "fr"}
                assert json.loads(server.post("translate", question))["translatedText"]
                assert server.get("ready")
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(server.url + "translate_file", request["body"], request["headers"]))
            assert refused.value.code == 429
            assert int(refused.value.headers["retry-after"]) >= 1
            refused.value.close()
            assert "tformer_documents 4\n" in server.get("metrics")
        while "tformer_documents 0\n" not in server.get("metrics"):
            assert time.monotonic() < until
