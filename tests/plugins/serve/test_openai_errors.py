"""Errors below /v1: all are objects that OpenAI's clients can read."""

import asyncio

import pytest

from tests.plugins.serve.fake import FAULTS, Client, FakeService, messages_without_a_body
from tformer_cli.plugins.serve.config import ServeSettings
from tformer_cli.plugins.serve.security import Keys

JSON = {"content-type": "application/json"}
POSTED = ("/v1/completions", "/v1/embeddings", "/v1/chat/completions", "/v1/responses")
LONG = "x" * 5000
ASKED = [{"role": "user", "content": "a"}]
KEYS = Keys(["k" * 16])


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        *(
            (method, path, {}, 404)
            for method, path in (
                ("POST", "/v1/images/generations"), ("POST", "/v1/audio/speech"), ("GET", "/v1"),
                ("POST", "/v1/audio/transcriptions"), ("GET", "/v1/"), ("GET", "/v1/files"),
                ("GET", "/v1/models/a/b"), ("GET", "/v1/models/nosuch"), ("POST", "/v1/nosuch"),
                ("GET", "/v1/responses/resp_1"), ("DELETE", "/v1/assistants/a"),
                ("POST", "/v1/moderations"), ("GET", "/v1/models/%00"), ("GET", "/v1//models"),
            )
        ),
        ("GET", "/v1/chat/completions", {}, 405),
        ("GET", "/v1/responses", {}, 405),
        ("DELETE", "/v1/models/lm", {}, 405),
        ("PUT", "/v1/embeddings", {}, 405),
        ("OPTIONS", "/v1/models", {}, 405),
        *(
            ("POST", path, {"form": {"prompt": "a"}}, 415)
            for path in POSTED
        ),
        ("POST", "/v1/completions", {"body": b"{", "headers": JSON}, 400),
        ("POST", "/v1/responses", {"body": b"[]", "headers": JSON}, 400),
        ("POST", "/v1/embeddings", {"headers": {**JSON, "content-encoding": "br"}}, 415),
        ("POST", "/v1/chat/completions", {"headers": {"content-length": "9" * 12}}, 413),
        ("POST", "/v1/chat/completions", {"headers": {"content-length": "x"}}, 400),
        ("POST", "/v1/completions", {"headers": JSON, "chunks": [b" " * 600_000] * 2}, 413),
        ("GET", "/v1/models", {"host": "evil.example"}, 403),
        ("GET", "/v1/models", {"headers": {"origin": "https://evil.example"}}, 403),
        ("GET", "/v1/models", {"headers": {"sec-fetch-site": "cross-site"}}, 403),
    ],
)  # fmt: skip
def test_every_refusal_is_an_object(method, path, options, status):
    answer = Client().ask(method, path, **options)
    assert answer.status == status
    error = answer.json["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert error["type"] == "invalid_request_error"
    assert 0 < len(error["message"]) < 200
    assert ("allow" in answer.named) is (status == 405)
    assert ("accept-encoding" in answer.named) is ("br" in str(options))


@pytest.mark.parametrize(
    ("header", "kind", "code"),
    [
        ("", "authentication_error", "missing_api_key"),
        ("Basic eDp5", "authentication_error", "missing_api_key"),
        ("Bearer nosuch", "invalid_request_error", "invalid_api_key"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/lm"])
def test_keys(path, header, kind, code):
    answer = Client(keys=KEYS).get(path, headers={"authorization": header})
    assert answer.status == 401
    assert (answer.json["error"]["type"], answer.json["error"]["code"]) == (kind, code)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/embeddings", {"model": "bert", "input": "a"}),
    ],
)
@pytest.mark.parametrize("fault", FAULTS)
def test_faults(path, fields, fault):
    service = FakeService()
    service.fails, status = FAULTS[fault]
    answer = Client(service).post(path, json_=fields)
    assert answer.status == status
    kind = "rate_limit_error" if status == 429 else "server_error"
    assert answer.json["error"]["type"] == kind
    assert ("retry-after" in answer.named) is (status in (429, 503))


def test_a_failure_inside(capsys):
    service = FakeService()
    service.fails = RuntimeError("/secret")
    answer = Client(service).post("/v1/completions", json_={"prompt": "a"})
    assert (answer.status, answer.json["error"]["code"]) == (500, "internal_error")
    assert "secret" not in answer.text
    assert "secret" in capsys.readouterr().err


def test_a_body_that_does_not_come():
    start, body = asyncio.run(messages_without_a_body("/v1/completions"))
    assert start["status"] == 408
    assert b'"type":"invalid_request_error"' in body["body"]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"model": LONG, "prompt": "a"}),
        ("/v1/completions", {"model": "lm", "prompt": "a", LONG: 1, "suffix": LONG}),
        ("/v1/embeddings", {"model": LONG, "input": "a"}),
        ("/v1/embeddings", {"model": "bert", "input": "a", "encoding_format": LONG}),
        ("/v1/chat/completions", {"model": LONG, "messages": ASKED}),
        ("/v1/responses", {"model": "en-fr", "input": "a", "source": LONG}),
        ("/v1/responses", {"model": LONG + "-fr", "input": "a"}),
        ("/v1/responses", {"model": "lm", "input": [{"role": LONG, "content": "a"}]}),
    ],
)  # fmt: skip
def test_no_error_repeats_a_long_word_of_a_client(path, fields):
    answer = Client().post(path, json_=fields)
    if answer.status != 200:
        assert len(answer.json["error"]["message"]) < 300


def test_other_paths_answer_as_they_did():
    for path in ("/nosuch", "/v1x", "/v2/models"):
        assert Client().get(path).json == {"error": "there is no such path"}
    settings = ServeSettings(url_prefix="/tr")
    prefixed = Client(settings=settings).get("/tr/v1/nosuch")
    assert set(prefixed.json["error"]) == {"message", "type", "param", "code"}
