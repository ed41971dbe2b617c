"""Documents of requests: places, windows, and the processes that read them."""

import asyncio
import json
import time
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial

import pytest

from tests.plugins.serve.fake import Client, FakeService
from tests.plugins.serve.test_libretranslate import upload
from tformer_cli.documents.known_formats import FORMATS
from tformer_cli.documents.segments import ReadSettings
from tformer_cli.plugins.serve import document_process, documents
from tformer_cli.plugins.serve.config import ServeSettings
from tformer_cli.plugins.serve.document_process import WINDOW_LINES, Session
from tformer_cli.plugins.serve.documents import Documents, Places, Process
from tformer_cli.plugins.serve.scheduler import Busy
from tformer_cli.plugins.serve.security import Keys

QUESTION = {"q": "hello", "source": "en", "target": "fr"}
KEYS = ("a-key-of-the-first-client", "a-key-of-another-client")
HANGING, DEAD = ("sleep", "60"), ("true",)
"""Commands that stand in for the reading process."""


def test_a_client_has_some_places_and_all_have_some():
    places = Places(2, 3)
    with places.place("a"), places.place("a"):
        with pytest.raises(Busy, match="2 of your documents") as caught, places.place("a"):
            pass
        assert caught.value.retry_after >= 1
        with places.place("b"):
            with pytest.raises(Busy, match="too many documents"), places.place("c"):
                pass
            assert len(places) == 3
        with places.place("c"):
            pass
    assert len(places) == 0


def lines(n):
    """Distinct lines without anything that must be copied."""
    letters = str.maketrans("0123456789", "abcdefghij")
    return "".join(f"line {number}\n".translate(letters) for number in range(n)).encode()


def test_a_document_is_translated_window_by_window():
    client = Client()
    n_lines = 2 * WINDOW_LINES + 10
    answer = client.post("/translate_file", **upload(content=lines(n_lines)))
    url = answer.json["translatedFileUrl"]
    assert client.get(url.removeprefix("http://localhost:5000")).body == lines(n_lines).upper()
    calls = client.service.calls
    assert [len(call.texts) for call in calls] == [WINDOW_LINES, WINDOW_LINES, 10]
    assert {(call.priority, call.has_place) for call in calls} == {("bulk", True)}
    # An admitted document continues, however long it takes
    assert [call.is_admitted for call in calls] == [False, True, True]
    assert [call.deadline < float("inf") for call in calls] == [True, False, False]
    # All windows share one model version, other documents have their own
    client.post("/translate_file", **upload(content=lines(2)))
    assert len({id(call.versions) for call in calls[:3]}) == 1
    assert calls[3].versions is not calls[0].versions


def test_a_window_has_only_so_many_characters(monkeypatch):
    monkeypatch.setattr(document_process, "WINDOW_CHARACTERS", 20)
    client = Client()
    client.post("/translate_file", **upload(content=lines(10)))
    assert [len(call.texts) for call in client.service.calls] == [4, 4, 2]


class Held(FakeService):
    """Holds bulk requests until a test releases them."""

    def __init__(self):
        super().__init__()
        self.may_go = asyncio.Event()

    async def submit(self, *arguments, **options):
        if options.get("priority") == "bulk":
            await self.may_go.wait()
        async for result in super().submit(*arguments, **options):
            yield result


async def until(condition):
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("never happened")


def beside(n, tell, **details):
    """Calls a function while documents are in work; returns the answers to the documents."""

    async def run():
        client = Client(Held(), documents=Documents(2, is_apart=False), **details)
        sent = [
            asyncio.create_task(client.ask_async("POST", "/translate_file", **upload()))
            for _ in range(n)
        ]
        in_work = client.site.documents.in_work
        await until(lambda: len(in_work) + sum(task.done() for task in sent) == n)
        await tell(client)
        client.service.may_go.set()
        answers = await asyncio.gather(*sent)
        assert len(in_work) == 0
        return answers

    return asyncio.run(run())


def test_a_client_with_all_its_documents_is_told_to_wait_and_nobody_else():
    async def tell(client):
        metrics = (await client.ask_async("GET", "/metrics")).text
        assert "tformer_documents 2\n" in metrics
        assert (await client.ask_async("POST", "/translate", json_=QUESTION)).status == 200
        page = {**QUESTION, "q": "<p>hello</p>", "format": "html"}
        assert (await client.ask_async("POST", "/translate", json_=page)).status == 200
        # A long page counts as a document
        long = {**page, "q": ["<p>hello</p>" * 400] * 3}
        refused = await client.ask_async("POST", "/translate", json_=long)
        assert refused.status == 429
        assert "of your documents" in refused.json["error"]
        assert (await client.ask_async("GET", "/ready")).status == 200
        other = asyncio.create_task(
            client.ask_async("POST", "/translate_file", **upload(), client="192.0.2.7")
        )
        await until(lambda: len(client.site.documents.in_work) == 3)
        client.service.may_go.set()
        assert (await other).status == 200

    answers = beside(4, tell)
    assert sorted(answer.status for answer in answers) == [200, 200, 429, 429]
    refused = next(answer for answer in answers if answer.status == 429)
    assert refused.named["retry-after"] == "10"
    assert refused.json == {
        "error": "Slowdown: 2 of your documents are in work; send this one later"
    }


def test_few_bodies_of_a_client_are_received_at_once():
    client = Client(documents=Documents(1, is_apart=False))
    with ExitStack() as held:
        for _ in range(documents.RECEIVED):
            held.enter_context(client.site.documents.received.place("192.0.2.7"))
        post = partial(client.ask_async, "POST", "/translate_file", **upload())
        assert asyncio.run(post(client="192.0.2.7")).status == 429
        assert asyncio.run(post(client="192.0.2.8")).status == 200
    assert asyncio.run(post(client="192.0.2.7")).status == 200


@pytest.mark.parametrize("place", ["header", "field"])
def test_clients_are_told_apart_by_their_keys(place):
    def upload_with_key(key):
        if place == "field":
            return upload(api_key=key)
        sent = upload()
        return {**sent, "headers": {**sent["headers"], "authorization": f"Bearer {key}"}}

    async def run():
        client = Client(Held(), documents=Documents(2, is_apart=False), keys=Keys(KEYS))
        ask = [
            asyncio.create_task(client.ask_async("POST", "/translate_file", **upload_with_key(key)))
            for key in (KEYS[0], KEYS[0], KEYS[1], KEYS[0])
        ]
        await until(lambda: len(client.site.documents.in_work) == 3 and ask[3].done())
        client.service.may_go.set()
        return [answer.status for answer in await asyncio.gather(*ask)]

    assert asyncio.run(run()) == [200, 200, 200, 429]


@pytest.mark.parametrize(
    ("first", "second", "are_same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        (None, None, True),
    ],
)
def test_clients_without_keys_are_told_apart_by_their_addresses(first, second, are_same):
    client = Client()
    for address in (first, second):
        asyncio.run(client.ask_async("POST", "/translate", json_=QUESTION, client=address))
    names = {call.client for call in client.service.calls}
    assert len(names) == (1 if are_same else 2)
    assert KEYS[0] not in str(names)


def test_a_place_is_free_again_when_the_client_leaves():
    async def run():
        client = Client(Held(), documents=Documents(2, is_apart=False))
        leaves = asyncio.Event()
        sent = asyncio.create_task(
            client.ask_async("POST", "/translate_file", **upload(), leaves=leaves)
        )
        await until(lambda: len(client.site.documents.in_work) == 1)
        leaves.set()
        await sent
        assert len(client.site.documents.in_work) == len(client.site.documents.received) == 0
        assert client.site.metrics.gone == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("content", "name", "reason"),
    [
        (b"a\n" * 11, "a.txt", "a.txt: has more than 10 segments; divide it"),
        (b"[" + b'"x",' * 20 + b'"x"]', "a.json", "has more than 10 segments"),
        (b"<p>a" * 11, "a.html", "has more than 10 segments"),
        (b"a" * 51, "a.txt", "a.txt: has a paragraph of 51 characters, more than 50; divide it"),
        (b"a\n" * 101, "a.txt", "has more than 200 bytes"),
    ],
)
def test_what_is_too_large_is_refused_in_a_line(content, name, reason, monkeypatch):
    monkeypatch.setattr(document_process, "MOST_SEGMENTS", 10)
    monkeypatch.setattr(document_process, "MOST_BYTES", 200)
    monkeypatch.setattr(document_process, "LONGEST_LINE", 50)
    client = Client()
    answer = client.post("/translate_file", **upload(name, content))
    assert answer.status == 413
    assert reason in answer.json["error"]
    assert "\n" not in answer.json["error"]
    assert not client.service.calls


def apart(command, **options):
    return Client(documents=Documents(command=command, **options))


def noted_processes(monkeypatch):
    """Returns a list that collects the started processes."""
    processes = []

    class Noted(Process):
        def __init__(self, command):
            super().__init__(command)
            processes.append(self)

    monkeypatch.setattr(documents, "Process", Noted)
    return processes


def test_reading_has_a_deadline_after_which_its_process_is_gone(monkeypatch):
    processes = noted_processes(monkeypatch)
    client = apart(HANGING)
    answer = client.post("/translate_file", **upload(timeout_ms=20))
    assert answer.status == 504
    assert answer.json["error"].startswith("the document was not read or written in")
    processes[0]._process.wait(10)
    assert len(client.site.documents.in_work) == 0
    # Other requests, and short pages, are answered meanwhile
    page = {**QUESTION, "q": "<p>hello</p>", "format": "html"}
    assert client.post("/translate", json_=page).json == {"translatedText": "<p>HELLO</p>"}
    long = {**page, "q": ["<p>hello</p>" * 400] * 3, "timeout_ms": 20}
    assert client.post("/translate", json_=long).status == 504


def test_reading_ends_with_its_client(monkeypatch):
    processes = noted_processes(monkeypatch)
    client = apart(HANGING)

    async def run():
        leaves = asyncio.Event()
        sent = asyncio.create_task(
            client.ask_async("POST", "/translate_file", **upload(), leaves=leaves)
        )
        await until(lambda: processes)
        assert processes[0].can_be_kept
        leaves.set()
        await sent

    asyncio.run(run())
    processes[0]._process.wait(10)
    assert client.site.metrics.gone == 1


def test_a_process_that_ends_is_an_error_in_a_line(capsys):
    client = apart(DEAD)
    answer = client.post("/translate_file", **upload())
    assert answer.status == 503
    assert answer.json == {"error": "the process that read the document has ended; send it again"}
    assert answer.named["retry-after"] == "10"
    assert "the process that reads documents has ended unexpectedly" in capsys.readouterr().err
    assert len(client.site.documents.in_work) == 0


def test_a_process_that_does_not_start_is_no_failure():
    answer = apart(("nosuch-program",)).post("/translate_file", **upload())
    assert answer.status == 429
    assert "no document can be read now (no such file or directory)" in answer.json["error"]


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        ({"error": "DataError", "is_known": True, "message": "a.po:1: odd"}, "DataError", "odd"),
        (
            {"error": "TooLargeError", "is_known": True, "message": "a: big"},
            "TooLargeError",
            "a: big",
        ),
        ({"error": "MemoryError", "is_known": False, "message": ""}, "TooLargeError", "MB to read"),
        ({"error": "KeyError", "is_known": False, "message": "1"}, "RuntimeError", "KeyError: 1"),
        ({"error": "Strange", "is_known": True, "message": "x"}, "DataError", "x"),
    ],
)
def test_errors_of_a_process_are_those_of_its_readers(reply, error, message):
    with pytest.raises(Exception, match=message) as caught:
        documents._raise_error(reply)
    assert type(caught.value).__name__ == error


async def translate_document(kept, name, content):
    """Upper-cases a document with `Documents`."""
    deadline = time.monotonic() + 60
    async with kept.reading(name, [content], ReadSettings(), deadline) as reader:
        lines = await reader.next([])
        while lines:
            answers = [document_process.Answer(line.text.upper(), ()) for line in lines]
            lines = await reader.next(answers)
    return reader


@pytest.mark.slow
def test_a_process_reads_what_a_thread_reads_one_document_after_the_other():
    contents = {
        "text": lines(3 * WINDOW_LINES),
        "html": b"<p>a <b>b</b> c</p><img alt='d'>",
        "json": b'{"a": "b c", "d": [1, "\\ud83d\\ude00 e"]}',
        "po": b'msgid "a"\nmsgstr ""\n',
        "srt": b"1\n00:00:01,000 --> 00:00:02,000\nhello\n",
    }
    assert contents.keys() <= {*FORMATS}

    async def run(kept):
        return [await translate_document(kept, *document) for document in contents.items()]

    apart = Documents()
    here = Documents(is_apart=False)
    readers, expected = (asyncio.run(run(kept)) for kept in (apart, here))
    assert [reader.contents for reader in readers] == [reader.contents for reader in expected]
    assert [reader.summary for reader in readers] == [reader.summary for reader in expected]
    assert readers[0].contents == [contents["text"].upper()]
    (process,) = apart._kept  # a single process read everything
    process.kill()  # as the system does when memory runs out
    process._process.wait()
    again = asyncio.run(translate_document(apart, "text", b"a\n"))
    assert again.contents == [b"A\n"]
    (process,) = apart._kept
    apart.close()
    assert process._process.returncode is not None


@pytest.mark.slow
def test_a_process_has_only_so_much_memory_and_tells_of_bad_documents(monkeypatch):
    code = (
        "from tformer_cli.plugins.serve import document_process as p; p.MEMORY = 80 << 20;"
        "p.MOST_SEGMENTS = None; p.main()"
    )
    kept = Documents(command=(documents.COMMAND[0], "-c", code))
    with pytest.raises(documents.TooLargeError, match="MB to read"):
        asyncio.run(translate_document(kept, "text", b"a\n" * 500_000))
    assert kept._kept == []
    with pytest.raises(documents.errors.DataError, match="document: "):
        asyncio.run(translate_document(kept, "docx", b"PK\0"))
    assert asyncio.run(translate_document(kept, "text", b"a\n")).contents == [b"A\n"]
    kept.close()


def test_a_process_that_took_much_memory_is_not_kept():
    process = Process(HANGING)
    assert process.can_be_kept
    process._is_large = True
    assert not process.can_be_kept
    process.close()
    assert not process.can_be_kept


def test_settings_of_readers_pass_as_json():
    order = {"do": "read", "format": "json", "settings": asdict(ReadSettings(keys=("a",)))}
    session = Session()
    session.obey(order, [b'{"a": "b", "c": "d"}'])
    reply, _ = session.obey({"do": "next", "answers": []}, [])
    assert reply == {"lines": [("b", False)]}
    session = Session()
    session.obey(json.loads(json.dumps(order)), [b'{"a": "b", "c": "d"}'])
    assert session.obey({"do": "next", "answers": []}, []) == (reply, [])


def test_the_option_says_how_many_documents_a_client_has():
    assert ServeSettings().max_documents == documents.MOST_OF_CLIENT
