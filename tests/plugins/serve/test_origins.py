import json

import pytest

from tests.plugins.serve.fake import Client
from tformer_cli.errors import UsageError
from tformer_cli.plugins.serve.config import ServeSettings
from tformer_cli.plugins.serve.origins import Origins

CHROME = "chrome-extension://abcdefghijklmnopabcdefghijklmnop"
FIREFOX = "moz-extension://0f3b5c1e-6a5e-4c0e-9d57-1f2a3b4c5d6e"
SAFARI = "safari-web-extension://7E1C2F40-0A3B-4C5D-8E9F-001122334455"
QUESTION = {"q": "hello", "source": "en", "target": "fr"}


@pytest.mark.parametrize(
    ("allowed", "origin", "is_in"),
    [
        *((item, item, True) for item in (CHROME, FIREFOX, SAFARI)),
        ("tauri://localhost", "tauri://localhost", True),
        ("http://tauri.localhost", "http://tauri.localhost", True),
        ("capacitor://localhost", "capacitor://localhost", True),
        ("app://obsidian.md", "app://obsidian.md", True),
        ("app://-", "app://-", True),
        ("moz-extension://*", FIREFOX, True),
        ("moz-extension://*", CHROME, False),
        ("moz-extension://*", "https://moz-extension", False),
        ("safari-web-extension://*", SAFARI, True),
        (SAFARI.lower(), SAFARI, True),
        (CHROME, CHROME + "x", False),
        (CHROME, f"{CHROME}.evil.example", False),
        ("https://example.org", "https://example.org", True),
        ("https://Example.org/", "https://example.org", True),
        ("https://example.org:443", "https://example.org", True),
        ("http://example.org:80", "http://example.org", True),
        ("https://example.org:80", "https://example.org:80", True),
        ("https://example.org", "http://example.org", False),
        ("https://example.org", "https://example.org:8443", False),
        ("https://example.org", "https://example.org.evil.example", False),
        ("https://bücher.example", "https://xn--bcher-kva.example", True),
        ("https://*.example.org", "https://a.b.example.org", True),
        ("https://*.example.org", "https://example.org", False),
        ("https://*.example.org", "https://evilexample.org", False),
        ("https://*.example.org", "https://evil.example/.example.org", False),
        ("https://*.example.org", "https://a@b.example.org", False),
        ("https://*.example.org", "https://evil.example .example.org", False),
        ("http://localhost:*", "http://localhost:5173", True),
        ("http://localhost:*", "http://localhost", True),
        ("http://localhost:*", "http://localhost.evil.example:80", False),
        ("http://[::1]:3000", "http://[::1]:3000", True),
        ("https://example.org", "null", False),
        ("https://example.org", "", False),
    ],
)  # fmt: skip
def test_an_origin_is_the_named_one_and_no_other(allowed, origin, is_in):
    assert (origin in Origins([allowed])) is is_in
    client = Client(settings=ServeSettings(allow_origin=(allowed,)))
    headers = {"origin": origin, "sec-fetch-site": "cross-site"}
    assert client.post("/translate", json_=QUESTION, headers=headers).status == (
        200 if is_in else 403
    )


@pytest.mark.parametrize(
    "text",
    [
        *("example.org", "https://example.org/a", "https://a b", "https://", "://a", "", "file://"),
        *("https://user@example.org", "https://example.org?x", "moz-extension://*/a", "a*://b"),
        *("https://a.*.example", "https://example.org:99999999", "https://\ud800", "null,"),
        "https://a\r\nx: y",
    ],
)  # fmt: skip
def test_what_is_no_origin_is_refused(text):
    with pytest.raises(UsageError, match="is not an origin"):
        Origins([text])


@pytest.mark.parametrize("text", ["*", "null", "https://*", "http://*:*", "https://*.com"])
def test_any_page_may_ask_only_where_keys_are_asked_for(text, tmp_path):
    with pytest.raises(UsageError, match="lets in any page"):
        ServeSettings(allow_origin=(text,))
    settings = ServeSettings(allow_origin=(text,), api_key_file=tmp_path / "keys")
    origin = "null" if text == "null" else "https://any.com"
    if text.startswith("http:"):
        origin = "http://any.com:8080"
    named = Client(settings=settings).get("/languages", headers={"origin": origin}).named
    assert named["access-control-allow-origin"] == origin
    # No cookies for a wildcard origin
    assert "access-control-allow-credentials" not in named


def preflight(origin, allowed=("https://good.example", "moz-extension://*"), **more):
    request_headers = {"origin": origin, "access-control-request-method": "POST"}
    headers = request_headers | {name.replace("_", "-"): value for name, value in more.items()}
    client = Client(settings=ServeSettings(allow_origin=allowed))
    return client.ask("OPTIONS", "/v1/chat/completions", headers=headers)


@pytest.mark.parametrize("origin", ["https://good.example", FIREFOX])
@pytest.mark.parametrize(
    "requested",
    [
        "authorization,content-type,x-stainless-lang,x-stainless-os,x-stainless-retry-count",
        "x-requested-with",
        "OpenAI-Organization, OpenAI-Project, Idempotency-Key",
    ],
)
def test_a_preflight_is_answered_with_the_headers_that_it_asks_for(origin, requested):
    answer = preflight(origin, access_control_request_headers=requested)
    assert (answer.status, answer.body) == (204, b"")
    assert answer.named["access-control-allow-headers"] == requested
    assert answer.named["access-control-allow-origin"] == origin
    assert answer.named["access-control-allow-methods"] == "GET, HEAD, POST"
    assert answer.named["access-control-allow-credentials"] == "true"
    assert answer.named["access-control-max-age"] == "600"
    assert answer.named["vary"].startswith("origin, access-control-request-headers")


@pytest.mark.parametrize("requested", ["", ",", "a b", "a,,b", 'x"y', "é", "x: y", "a\r\nb: c"])
def test_only_names_of_headers_are_repeated(requested):
    answer = preflight("https://good.example", access_control_request_headers=requested)
    assert answer.status == 204
    assert "access-control-allow-headers" not in answer.named


@pytest.mark.parametrize("origin", ["https://evil.example", "null", CHROME])
def test_a_preflight_of_others_is_refused_without_a_word_of_cors(origin):
    answer = preflight(
        origin,
        access_control_request_headers="authorization",
        access_control_request_private_network="true",
    )
    assert answer.status == 403
    assert not any(name.startswith("access-control") for name in answer.named)
    # The path is OpenAI's, and so is the error
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}


def test_a_page_of_the_web_may_ask_a_private_network():
    name = "access-control-allow-private-network"
    request_headers = {"access_control_request_private_network": "true"}
    assert preflight("https://good.example", **request_headers).named[name] == "true"
    assert name not in preflight("https://good.example").named


def test_pages_may_read_what_clients_look_for():
    client = Client(settings=ServeSettings(allow_origin=("https://good.example",)))
    for path in ("/languages", "/nosuch", "/v1/models"):
        answer = client.get(path, headers={"origin": "https://good.example"})
        assert answer.named["access-control-expose-headers"] == (
            "content-disposition, retry-after, x-request-id"
        )
        assert answer.named["vary"] == "origin"
        assert len(answer.named["x-request-id"]) == 16


def test_own_pages_need_no_permission_and_an_empty_host_is_nobodys():
    own = {"origin": "http://localhost:5000"}
    assert Client().post("/translate", json_=QUESTION, headers=own).status == 200
    refused = Client().post("/translate", json_=QUESTION, headers={"origin": "null"})
    assert refused.status == 403
    assert json.loads(refused.body)["error"].endswith("see --allow-origin")
