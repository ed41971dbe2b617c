import asyncio
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plugins.serve.fake import FAULTS, Client, FakeService
from tformer_cli.plugins.serve.requests import Fields, Refused, json_object

QUESTION = {"q": "hello", "source": "en", "target": "fr"}
BOUNDARY = "----b"


def multipart(**fields):
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    ]
    body = ("".join(parts) + f"--{BOUNDARY}--\r\n").encode()
    return {
        "body": body,
        "headers": {"content-type": f"multipart/form-data; boundary={BOUNDARY}"},
    }


@pytest.mark.parametrize(
    "request_",
    [
        {"json_": QUESTION},
        {"form": QUESTION},
        multipart(**QUESTION),
        {"path": "/translate?q=hello&source=en&target=fr"},
        {"path": "/translate?source=en&target=fr", "form": {"q": "hello"}},
        {"path": "/translate?q=no&source=en&target=fr", "json_": {"q": "hello"}},
        {
            "body": b'{"q": "hello", "source": "en", "target": "fr"}',
            "headers": {"content-type": "application/json; charset=utf-8"},
        },
        {
            "chunks": [b"q=hel", b"lo&source=en", b"&target=fr"],
            "headers": {"content-type": "application/x-www-form-urlencoded"},
        },
    ],
)
def test_fields_come_in_every_form(request_):
    request_ = dict(request_)
    answer = Client().post(request_.pop("path", "/translate"), **request_)
    assert (answer.status, answer.json) == (200, {"translatedText": "HELLO"})


def test_lines_of_forms_end_as_in_files():
    form = {"form": {**QUESTION, "q": "a\r\nb\rc"}}
    for request in (form, multipart(**QUESTION | {"q": "a\r\nb"})):
        answer = Client().post("/translate", **request)
        assert "\r" not in answer.json["translatedText"]
    # JSON has the line ends that were meant
    kept = Client().post("/translate", json_={**QUESTION, "q": "a\r\nb"})
    assert kept.json["translatedText"] == "A\r\nB"


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"[]", b"3", b"null", b'"q"', b"\xff", b'{"q": NaN}', b'{"q": Infinity}'),
        *(b'{"q": 1e999}', b'{"q":' + b"9" * 5000 + b"}", b"[" * 100_000),
        b'{"q":' + b"[" * 900 + b"]" * 900 + b"}",
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused(body):
    headers = {"content-type": "application/json"}
    for path in ("/translate", "/api/translate", "/v1/completions"):
        answer = Client().post(path, body=body, headers=headers)
        assert answer.status == 400
        assert "Invalid JSON format" in answer.text


def test_lone_surrogates_become_text_that_can_be_sent():
    answer = Client().post("/translate", json_={**QUESTION, "q": "a\ud800b \ud83d\ude00"})
    assert answer.json["translatedText"] == "A\ufffdB 😀"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "multipart/form-data"),
        (b"x", "multipart/form-data; boundary=b"),
        (b"--b\r\n\r\nx\r\n--b--\r\n", "multipart/form-data; boundary=b"),
        (
            b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--",
            "multipart/form-data; boundary=b",
        ),
        (b"--b\r\n" + b"A: b\r\n" * 5000, "multipart/form-data; boundary=b"),
        (b"x", "multipart/form-data; boundary=" + "b" * 500),
        (b"--b--", "multipart/form-data; boundary=b; charset=idna"),
        (b"a=1&" * 200, "application/x-www-form-urlencoded"),
    ],
)  # fmt: skip
def test_forms_that_are_damaged_or_endless_are_refused(body, content_type):
    answer = Client().post("/translate", body=body, headers={"content-type": content_type})
    assert answer.status == 400
    assert answer.json["error"]


def test_our_own_api_takes_json_alone():
    for path in ("/api/translate", "/v1/completions", "/api/models/en-fr/load", "/embed"):
        answer = Client().post(path, form={"text": "hello"})
        assert answer.status == 415
        assert "application/json" in answer.text


def test_numbers_are_read_from_text_and_kept_within_limits():
    fields = Fields({"a": "3", "b": 2.0, "c": "x", "d": True, "e": 2.5, "f": "nan", "g": 99})
    assert fields.integer("a", 1, 5) == 3
    assert fields.integer("b", 1, 5) == 2
    assert fields.number("e", 0, 3) == 2.5
    assert fields.integer("nosuch", 1, 5) is None
    for name in "cdefg":
        with pytest.raises(Refused) as refused:
            fields.integer(name, 1, 5)
        assert refused.value.status == 400
        assert refused.value.message.startswith(f"{name}: must be")
    with pytest.raises(Refused, match="f: must be from 0 to 1"):
        fields.number("f", 0.0, 1.0)


def test_words_have_their_types():
    fields = Fields({"a": 3, "b": ["x", 3], "c": "true", "d": "maybe", "e": ["x"]})
    assert fields.flag("c")
    assert fields.flag("nosuch", default=True)
    assert fields.texts("e") == ("x",)
    assert fields.texts("nosuch") == ()
    calls = (fields.text, "a"), (fields.texts, "b"), (fields.flag, "d"), (fields.flag, "a")
    for call, name in calls:
        with pytest.raises(Refused, match=f"{name}: must be"):
            call(name)


@given(st.binary(max_size=60))
def test_bytes_are_an_object_or_refused(body):
    fields = None
    with suppress(Refused):
        fields = json_object(body)
    assert fields is None or isinstance(fields, dict)


def test_paths_and_methods_that_no_one_answers():
    assert Client().get("/nosuch").status == 404
    assert Client().get("/nosuch").json == {"error": "there is no such path"}
    answer = Client().get("/translate")
    assert (answer.status, answer.named["allow"]) == (405, "POST")
    assert Client().post("/health").status == 405
    assert Client().ask("HEAD", "/health").status == 200
    assert Client().ask("DELETE", "/api/models/en-fr/load").status == 405


@pytest.mark.parametrize("name", FAULTS)
def test_states_of_the_engine_have_their_status(name):
    service = FakeService()
    service.fails, status = FAULTS[name]
    for path, json_ in (
        ("/translate", QUESTION),
        ("/api/translate", {"text": "hello"}),
        ("/v1/completions", {"prompt": "hello", "model": "lm"}),
        ("/v1/completions", {"prompt": "hello", "model": "lm", "stream": True}),
    ):
        if path == "/api/translate":
            json_ = {**json_, "model": "en-fr"}
        answer = Client(service).post(path, json_=json_)
        assert answer.status == status
        assert ("retry-after" in answer.named) == (status in (429, 503))
        if status == 429:
            assert answer.named["retry-after"] == "3"
            assert "Slowdown: " in answer.text


def test_the_deadline_is_the_clients_or_the_options():
    client = Client()
    for given_, seconds in ({}, 30), ({"timeout_ms": 500}, 0.5), ({"timeout_ms": 99_000}, 30):
        before = time.monotonic()
        client.post("/translate", json_={**QUESTION, **given_})
        assert before <= client.service.calls[-1].deadline - seconds <= time.monotonic()


@pytest.mark.parametrize(
    ("path", "json_"),
    [
        ("/translate", {**QUESTION, "q": ["hello"] * 50}),
        ("/api/translate", {"text": "hello\n" * 50, "model": "en-fr"}),
        ("/v1/completions", {"prompt": ["hello"] * 50, "model": "lm"}),
        ("/v1/completions", {"prompt": ["hello"] * 50, "model": "lm", "stream": True}),
        ("/v1/embeddings", {"input": ["hello"] * 50, "model": "bert"}),
    ],
)
def test_work_ends_when_the_client_leaves(path, json_):
    service = FakeService()
    service.seconds = 0.02

    async def run():
        client, leaves = Client(service), asyncio.Event()
        task = asyncio.ensure_future(client.ask_async("POST", path, json_=json_, leaves=leaves))
        while not service.n_yielded:
            assert not task.done()
            await asyncio.sleep(0.01)
        leaves.set()
        await asyncio.wait_for(task, 60)
        return client

    client = asyncio.run(run())
    # One more may have been on its way
    assert 0 < service.n_yielded < 15
    assert service.n_ended == 1
    if "stream" not in json_ and path != "/api/translate":
        assert client.site.metrics.gone == 1


def test_a_client_that_leaves_within_the_body_is_no_error(capsys):
    async def run():
        client, leaves = Client(), asyncio.Event()
        leaves.set()
        scope = {
            "type": "http", "method": "POST", "path": "/translate", "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }  # fmt: skip

        async def receive():
            return {"type": "http.disconnect"}

        sent = []

        async def send(message):
            sent.append(message)

        await client.app(scope, receive, send)
        return sent

    assert asyncio.run(run()) == []
    assert capsys.readouterr().err == ""
