"""A service under load: tformer's, a lock around each call, and CTranslate2 with both ways.

Every contestant is a process of its own behind the same HTTP stack (starlette on uvicorn), on one
core; a client on another core keeps so many connections busy with one sentence each. Contestants
alternate within a round. A row shows the processor time of the server for a request, requests a
second, and the latency's median and 99th percentile.

    python tests/benchmarks/serve.py MODEL --text FILE [--export DIR] [--connections 1,4,16,64]

`--export` is MODEL for CTranslate2 (`tformer export MODEL --format ctranslate2 -o DIR`); without it
only tformer is measured. `--fairness` measures one sentence at a time beside a document instead.

    python tests/benchmarks/serve.py MODEL --text FILE --uploads 4 [--before CHECKOUT]

asks `tformer serve` for one sentence at a time, without and with four uploads of 2,500 lines, in
turns with another version of tformer where a checkout of it is named.
"""

import argparse
import asyncio
import http.client
import json
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from harness import print_table, write

from tformer_cli.text.lines import read_lines

WINDOW = 0.1
"""Seconds in which a server that batches by time waits for more sentences, as Eole's does."""
MOST_AT_ONCE = 64
"""Sentences of a batch of CTranslate2."""
CONTESTANTS = {
    "bare": "tformer's call, one after the other, behind nothing",
    "tformer": "deficit round robin, no waiting",
    "tformer-cache": "the same, with its cache",
    "lock": "tformer, a lock around each call",
    "ctranslate2-lock": "CTranslate2, a lock around each call",
    "ctranslate2-window": f"CTranslate2, batches of {WINDOW:g} s",
}
DOCUMENT_LINES = 400
UPLOAD_LINES = 2500
UPLOAD_WORDS = 8
PAUSE = 0.05
"""Seconds between two sentences of who asks beside documents."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--export", type=Path)
    parser.add_argument("--lines", type=int, default=400)
    parser.add_argument("--connections", default="1,4,16,64")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contestants", default=",".join(CONTESTANTS))
    parser.add_argument("--fairness", action="store_true")
    parser.add_argument("--uploads", type=int, default=0)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve == "bare":
        call_bare(options)
        return
    if options.serve:
        serve(options.serve, options)
        return
    lines = lines_of(options)
    names = [
        name
        for name in options.contestants.split(",")
        if options.export or not name.startswith("ctranslate2")
    ]
    if options.uploads:
        measure_uploads(options, lines)
    elif options.fairness:
        measure_fairness(options, names, lines)
    else:
        measure_load(options, names, lines)


def lines_of(options):
    return [line for line in read_lines(options.text) if line.strip()][: options.lines]


# The servers


def serve(name, options):
    """Answers `POST /` with translations of a JSON list, `GET /` with the processor time."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    translate = BACKENDS[name](options)

    async def answer(request):
        return JSONResponse(await translate(json.loads(await request.body())))

    async def read_time(request):
        return JSONResponse(time.process_time())

    routes = [Route("/", answer, methods=["POST"]), Route("/", read_time, methods=["GET"])]
    config = uvicorn.Config(
        Starlette(routes=routes), port=0, log_level="critical", access_log=False
    )
    server = uvicorn.Server(config)

    async def run():
        running = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        write(str(server.servers[0].sockets[0].getsockname()[1]))
        await running

    asyncio.run(run())


def schedule_lines(options, cache_bytes=0):
    from tformer_cli.plugins.serve.models import Service

    service = Service({"m": options.model}, cache_bytes=cache_bytes)
    service.preload()

    async def translate(lines):
        return [translation.text async for translation in service.submit("m", "translate", lines)]

    return translate


def lock_calls(translate):
    """Lets threads wait for a lock, as servers that know no better do."""
    lock = threading.Lock()

    def one_by_one(lines):
        with lock:
            return translate(lines)

    return lambda lines: asyncio.to_thread(one_by_one, lines)


def tformer_locked(options):
    from tformer_cli import load

    model = load(options.model)
    return lock_calls(lambda lines: [translation.text for translation in model.translate(lines)])


def ctranslate2_translate(options):
    import ctranslate2

    from tformer_cli.artifacts.config_file import read_config
    from tformer_cli.text.tokenizer import EOS_ID, read_tokenizer

    config = read_config(options.model)
    decoding = config.decoding
    tokenizer = read_tokenizer(options.model)
    engine = ctranslate2.Translator(
        str(options.export),
        device="cpu",
        compute_type=config.weight_type,
        inter_threads=1,
        intra_threads=1,
    )
    names = tokenizer.target.pieces(range(tokenizer.vocab_size))
    ids = {name: token for token, name in enumerate(names)}

    def translate(lines):
        encoded = tokenizer.source.encode_batch(lines)
        results = engine.translate_batch(
            [tokenizer.source.pieces(source) for source in encoded],
            beam_size=decoding.beam_size,
            length_penalty=decoding.length_penalty,
            max_input_length=0,
            max_decoding_length=max(map(len, encoded), default=0) * 3 + 20,
            suppress_sequences=[[name] for name in names[:EOS_ID]],
        )
        return tokenizer.target.decode_batch(
            [[ids[name] for name in result.hypotheses[0]] for result in results]
        )

    return translate


def collect_windows(options):
    """Collects sentences for a while, then translates them together."""
    translate = ctranslate2_translate(options)
    waiting = []

    async def collect():
        while True:
            while not waiting:
                await asyncio.sleep(0.001)
            await asyncio.sleep(WINDOW)
            some = waiting[:MOST_AT_ONCE]
            del waiting[:MOST_AT_ONCE]
            flat = [line for lines, _ in some for line in lines]
            found = iter(await asyncio.to_thread(translate, flat))
            for lines, future in some:
                if not future.cancelled():
                    future.set_result([next(found) for _ in lines])

    tasks = []

    async def answer(lines):
        if not tasks:
            tasks.append(asyncio.create_task(collect()))
        future = asyncio.get_running_loop().create_future()
        waiting.append((lines, future))
        return await future

    return answer


BACKENDS = {
    "tformer": schedule_lines,
    "tformer-cache": lambda options: schedule_lines(options, 64 << 20),
    "lock": tformer_locked,
    "ctranslate2-lock": lambda options: lock_calls(ctranslate2_translate(options)),
    "ctranslate2-window": collect_windows,
}


# The client

ALONE = {
    "env": {**os.environ, "OMP_NUM_THREADS": "1"},
    "preexec_fn": lambda: os.sched_setaffinity(0, {cores()[0]}),
}
"""How a contestant's process is started."""


class Server:
    """A contestant in a process of its own, on the first core that there is."""

    def __init__(self, name, options):
        command = [sys.executable, __file__, options.model, "--serve", name]
        command += ["--text", options.text]
        if options.export:
            command += ["--export", options.export]
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            text=True,
            **ALONE,
        )
        self.port = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def cores():
    return sorted(os.sched_getaffinity(0))


class Connection:
    """An HTTP/1.1 connection that is kept open."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, port):
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, lines=None):
        body = b"" if lines is None else json.dumps(lines).encode()
        method = "GET" if lines is None else "POST"
        head = f"{method} / HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise SystemExit(head.decode())
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        return json.loads(await self.reader.readexactly(length))


async def used_by(port):
    return await (await Connection.to(port)).ask()  # one that idles is closed


async def load_of(port, lines, n_connections, seconds):
    """Keeps connections busy; returns processor seconds a request, requests a second, latencies."""
    connections = [await Connection.to(port) for _ in range(n_connections)]
    latencies, place = [], 0
    begun, used = time.perf_counter(), await used_by(port)

    async def client(connection):
        nonlocal place
        while time.perf_counter() - begun < seconds:
            line = lines[place % len(lines)]
            place += 1
            asked = time.perf_counter()
            await connection.ask([line])
            latencies.append(time.perf_counter() - asked)

    await asyncio.gather(*map(client, connections))
    wall = time.perf_counter() - begun
    used = await used_by(port) - used
    return used / len(latencies), len(latencies) / wall, latencies


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, math.floor(share * len(values)))]


def bare_calls(options, seconds):
    """Calls the model in a process of its own, as the servers are; returns as `load_of` does."""
    command = [sys.executable, __file__, options.model, "--serve", "bare", "--text", options.text]
    command += ["--lines", options.lines, "--seconds", seconds]
    found = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True, **ALONE
    )
    return json.loads(found.stdout)


def call_bare(options):
    from tformer_cli import load

    model = load(options.model)
    lines = lines_of(options)
    for line in lines[:8]:
        list(model.translate([line]))
    latencies, used, begun = [], time.process_time(), time.perf_counter()
    while time.perf_counter() - begun < options.seconds:
        asked = time.perf_counter()
        list(model.translate([lines[len(latencies) % len(lines)]]))
        latencies.append(time.perf_counter() - asked)
    wall = time.perf_counter() - begun
    cpu = (time.process_time() - used) / len(latencies)
    write(json.dumps([cpu, len(latencies) / wall, latencies]))


def measure_load(options, names, lines):
    counts = [int(number) for number in options.connections.split(",")]
    found = {(name, n): [] for name in names for n in ([1] if name == "bare" else counts)}
    # The client must not take the server's time
    apart = cores()[-1:]
    for _ in range(options.rounds):
        for name in names:
            if name == "bare":
                found[name, 1].append(bare_calls(options, options.seconds))
                continue
            with Server(name, options) as server:
                os.sched_setaffinity(0, apart)
                asyncio.run(load_of(server.port, lines, 4, options.seconds / 4))
                for n in counts:
                    found[name, n].append(
                        asyncio.run(load_of(server.port, lines, n, options.seconds))
                    )
                os.sched_setaffinity(0, range(os.cpu_count() or 1))
    rows = []
    for (name, n), runs in found.items():
        latencies = [1000 * latency for _, _, some in runs for latency in some]
        rows.append(
            (
                name,
                n,
                f"{1000 * statistics.median(cpu for cpu, _, _ in runs):.2f}",
                f"{statistics.median(rate for _, rate, _ in runs):.0f}",
                f"{quantile(latencies, 0.5):.1f}",
                f"{quantile(latencies, 0.99):.1f}",
            )
        )
    columns = ("contestant", "connections", "CPU ms", "requests/s", "p50 ms", "p99 ms")
    print_table(f"{options.model.name}, {len(lines)} lines", columns, rows)


async def beside_document(port, lines, seconds):
    """Asks for one sentence after the other while documents are translated."""
    document, single = await Connection.to(port), await Connection.to(port)
    is_over = False

    async def documents():
        while not is_over:
            await document.ask((lines * DOCUMENT_LINES)[:DOCUMENT_LINES])

    running = asyncio.create_task(documents())
    await asyncio.sleep(0.1)
    latencies, begun = [], time.perf_counter()
    while time.perf_counter() - begun < seconds or not latencies:
        asked = time.perf_counter()
        await single.ask([lines[len(latencies) % len(lines)]])
        latencies.append(1000 * (time.perf_counter() - asked))
        await asyncio.sleep(PAUSE)
    is_over = True
    await running
    return latencies


def measure_fairness(options, names, lines):
    rows = []
    for name in names:
        if name == "bare":
            continue
        with Server(name, options) as server:
            found = asyncio.run(beside_document(server.port, lines, options.seconds))
        rows.append(
            (name, len(found), *(f"{quantile(found, share):.0f}" for share in (0.5, 0.99, 1.0)))
        )
    columns = ("contestant", "sentences", "p50 ms", "p99 ms", "max ms")
    print_table(f"a sentence beside documents of {DOCUMENT_LINES} lines", columns, rows)


class Service:
    """`tformer serve` in a process of its own."""

    def __init__(self, options, checkout):
        env = {**os.environ, "PYTHONPATH": str(checkout)}
        command = [sys.executable, "-m", "tformer_cli", "serve", f"m={options.model.absolute()}"]
        command += ["--port", "0", "--threads", "1"]
        self.process = subprocess.Popen(
            command, env=env, cwd=checkout, stderr=subprocess.PIPE, text=True
        )
        for line in self.process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                self.port = int(found[1])
                break

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def upload(self, text):
        """Sends a document in a thread; returns the connection, whose end ends the work."""
        fields = {"source": "en", "target": "fr"}
        parts = [f'name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()]
        parts.append(f'name="file"; filename="a.txt"\r\n\r\n{text}\r\n')
        body = "".join(f"--b\r\nContent-Disposition: form-data; {part}" for part in parts) + "--b--"
        connection = self.connect()
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        connection.request("POST", "/translate_file", body.encode(), kind)
        return connection

    def sentences(self, words, seconds):
        """Asks for one sentence after the other; returns milliseconds, statuses and readiness."""
        connection, latencies, statuses = self.connect(), [], Counter()
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds:
            body = {"q": " ".join(words.sample(8)), "source": "en", "target": "fr"}
            asked = time.perf_counter()
            connection.request(
                "POST", "/translate", json.dumps(body), {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            answer.read()
            latencies.append(1000 * (time.perf_counter() - asked))
            statuses[answer.status] += 1
            connection.request("GET", "/ready")
            answer = connection.getresponse()
            answer.read()
            statuses[f"ready {answer.status}"] += 1
            time.sleep(PAUSE)
        return latencies, statuses


class Words:
    """Words of a text, drawn so that no sentence comes twice."""

    def __init__(self, lines, seed):
        self.words = " ".join(lines).split()
        self.random = random.Random(seed)

    def sample(self, n):
        return self.random.choices(self.words, k=n)

    def document(self):
        return "".join(" ".join(self.sample(UPLOAD_WORDS)) + ".\n" for _ in range(UPLOAD_LINES))


def measure_uploads(options, lines):
    checkouts = {"now": Path(__file__).parents[2]}
    if options.before:
        checkouts = {"before": options.before.absolute(), **checkouts}
    found = {(name, n): ([], Counter()) for name in checkouts for n in (0, options.uploads)}
    for seed in range(options.rounds):
        for name, checkout in checkouts.items():
            words = Words(lines, seed)
            with Service(options, checkout) as service:
                service.sentences(words, 1)
                for n in (0, options.uploads):
                    uploads = [service.upload(words.document()) for _ in range(n)]
                    latencies, statuses = service.sentences(words, options.seconds)
                    found[name, n][0].extend(latencies)
                    found[name, n][1].update(statuses)
                    for upload in uploads:
                        upload.close()
    rows = [
        (
            name,
            n,
            len(latencies),
            *(f"{quantile(latencies, share):.0f}" for share in (0.5, 0.99, 1.0)),
            ", ".join(f"{status}: {n}" for status, n in statuses.items()),
        )
        for (name, n), (latencies, statuses) in found.items()
    ]
    columns = ("version", "uploads", "sentences", "p50 ms", "p99 ms", "max ms", "answers")
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    print_table(f"sentences beside uploads of {UPLOAD_LINES} lines, load {load}", columns, rows)


if __name__ == "__main__":
    main()
