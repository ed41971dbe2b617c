"""Many requests, and overload: memory stays constant, and admitted requests are in time."""

import asyncio
import json
import time
from itertools import count

import pytest

from tests.plugins.serve.fake import Client
from tests.plugins.serve.test_serving import serving
from tformer_cli.plugins.serve.cache import give_back_memory, private_bytes
from tformer_cli.plugins.serve.models import Service

pytestmark = pytest.mark.skipif(private_bytes() is None, reason="the system does not say")
AT_ONCE = 32
CACHE = 1 << 20


def client_of(zoo):
    service = Service({"m": zoo["translate"]}, cache_bytes=CACHE, threads=1)
    service.preload()
    return Client(service)


async def ask(client, number):
    """Sends one of several typical requests; returns the status."""
    # Mostly repeated texts, and more others than the cache holds
    text = f"dog {number % 5000}" if number % 10 == 0 else "The old house is green."
    if number % 50 == 1:
        return (await client.ask_async("GET", f"/no/such/path/{number}")).status
    if number % 50 == 2:
        return (await client.ask_async("POST", "/translate", json_={"q": text})).status
    if number % 50 == 3:
        return (await client.ask_async("GET", "/metrics")).status
    body = {"text": text, "beam_size": 1, "max_length": 2, "model": "m"}
    if number % 10 == 0:
        return (await client.ask_async("POST", "/api/translate", json_=body)).status
    question = {"q": text, "source": "en", "target": "fr"}
    return (await client.ask_async("POST", "/translate", json_=question)).status


async def ask_many(client, n, numbers):
    """Sends n requests, AT_ONCE at a time; returns the number of answers by status."""
    statuses = {}
    end = next(numbers) + n

    async def one_by_one():
        while (number := next(numbers)) < end:
            status = await ask(client, number)
            statuses[status] = statuses.get(status, 0) + 1

    await asyncio.gather(*(one_by_one() for _ in range(AT_ONCE)))
    return statuses


def growth(zoo, n_before, n):
    """Returns the growth in memory over n requests, after a warm-up."""
    client, numbers = client_of(zoo), count()

    async def run():
        await ask_many(client, n_before, numbers)
        give_back_memory()
        before = private_bytes()
        statuses = await ask_many(client, n, numbers)
        give_back_memory()
        after = private_bytes()
        await client.service.drain(5.0)
        assert set(statuses) == {200, 400, 404}
        assert statuses[200] > 0.9 * n
        return after - before

    return asyncio.run(run())


def test_requests_leave_no_memory_behind(zoo):
    assert growth(zoo, 300, 300) < 4 << 20


@pytest.mark.long
def test_a_million_requests_leave_no_memory_behind(zoo):
    assert growth(zoo, 20_000, 1_000_000) < 8 << 20


@pytest.mark.long
def test_at_ten_times_what_there_is_time_for_promises_are_kept(zoo):
    timeout, seconds = 2.0, 30.0
    with serving(f"m={zoo['translate']}", "--timeout", timeout, "--cache", "0") as server:
        asyncio.run(clients_of(server, 100, 5.0))
        before = server.n_bytes
        answers, stalled = asyncio.run(clients_of(server, 200, seconds))
        assert server.n_bytes - before < 16 << 20
    answered = [wait for status, _, wait in answers if status == 200]
    refused = [head for status, head, _ in answers if status == 429]
    assert {status for status, _, _ in answers} <= {200, 429, 504}
    assert all(b"\r\nretry-after: " in head for head in refused)
    assert len(refused) > 100
    assert len(answered) > 100
    assert len(answers) - len(refused) - len(answered) <= 0.1 * len(answered)
    assert sorted(answered)[int(0.99 * len(answered))] < timeout + 0.5 + stalled


async def clients_of(server, n, seconds):
    """Keeps connections busy, whatever the answers; returns statuses, headers and waits.

    Also returns the longest stall of the machine.
    """
    numbers, answers, until, stalled = count(), [], time.monotonic() + seconds, 0.0

    async def watch():
        nonlocal stalled
        while (before := time.monotonic()) < until:
            await asyncio.sleep(0.05)
            stalled = max(stalled, time.monotonic() - before - 0.05)

    async def client():
        reader, writer = await asyncio.open_connection(server.host, server.port)
        while time.monotonic() < until:
            text = f"{next(numbers)} " + "dog house " * 20
            body = json.dumps({"q": text, "source": "en", "target": "fr"}).encode()
            start = time.monotonic()
            writer.write(
                b"POST /translate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                b"content-length: %d\r\n\r\n%b" % (len(body), body)
            )
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
            answers.append((int(head.split()[1]), head, time.monotonic() - start))
        writer.close()
        await writer.wait_closed()  # or they would count in the next call

    await asyncio.gather(watch(), *(client() for _ in range(n)))
    return answers, stalled
