import asyncio

import pytest

from tests.plugins.serve.fake import Client, FakeService, messages_without_a_body
from tformer_cli.errors import DataError, UsageError
from tformer_cli.plugins.serve import security
from tformer_cli.plugins.serve.config import BODY_BYTES, FILE_BYTES, ServeSettings
from tformer_cli.plugins.serve.hosts import host_name, is_loopback
from tformer_cli.plugins.serve.security import Keys, allowed_names, read_keys

QUESTION = {"q": "hello", "source": "en", "target": "fr"}
EVERYWHERE = "0.0.0.0"  # noqa: S104 - nothing listens there
KEY = "0123456789abcdef0123"


def settings(**values):
    return ServeSettings(**values)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost", 200), ("localhost:5000", 200), ("127.0.0.1:8080", 200)),
        *(("[::1]:5000", 200), ("LOCALHOST:5000", 200), ("localhost.:5000", 200)),
        *(("evil.example", 403), ("evil.example:5000", 403), ("localhost.evil.example", 403)),
        *(("127.0.0.1.evil.example", 403), ("localhost@evil.example", 403), ("", 403)),
        *((None, 403), ("localhost:evil", 403), ("localhost:80:80", 403), ("[::1]evil", 403)),
        *(("192.168.0.7", 403), ("::1", 403), ("localhost/x", 403)),
    ],
)  # fmt: skip
def test_only_the_names_of_this_machine_are_answered(host, status):
    client = Client()
    assert client.post("/translate", json_=QUESTION, host=host).status == status
    assert client.get("/health", host=host).status == status
    assert len(client.service.calls) == (status == 200)


def test_two_host_headers_are_refused():
    more = [("host", "evil.example")]
    assert Client().get("/health", headers=more).status == 403


def test_names_follow_the_address_and_the_option():
    names = allowed_names(settings(host="192.168.0.7", allow_host=("Models.Example",)))
    assert "192.168.0.7" in names
    assert "models.example" in names
    assert "192.168.0.8" not in names
    assert None not in names
    everywhere = allowed_names(settings(host=EVERYWHERE))
    # A rebound name is never an address
    assert "192.168.0.8" in everywhere
    assert "[fe80::1]" in everywhere
    assert "evil.example" not in everywhere
    assert "[::1]" in allowed_names(settings(host="::1"))


def test_a_host_header_is_read_strictly():
    assert host_name("a.example:80") == "a.example"
    assert host_name("[::1]") == "[::1]"
    assert [host_name(header) for header in ("", ":80", "a:b", "[::1]:x")] == [None] * 4


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
        ({"origin": "http://localhost:5000", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[::bad"}, 403),
        ({"origin": "https://good.example", "sec-fetch-site": "cross-site"}, 200),
        ({"origin": "https://good.example.evil.example", "sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_pages_of_other_sites_are_refused(headers, status):
    client = Client(settings=settings(allow_origin=("https://good.example",)))
    # Forms need no preflight: any page could send one
    answer = client.post("/translate", form=QUESTION, headers=headers)
    assert answer.status == status
    assert len(client.service.calls) == (status == 200)


def test_a_link_to_the_page_can_be_followed():
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert Client().get("/", headers=link).status != 403
    assert Client().get("/languages", headers=link).status == 403
    below = Client(settings=settings(url_prefix="/tr"))
    assert below.get("/tr", headers=link).status == 308
    assert below.get("/tr/", headers=link).status == 200
    assert Client().get("/", headers={**link, "sec-fetch-mode": "no-cors"}).status == 403


def test_behind_a_proxy_the_page_may_have_another_scheme():
    client = Client(settings=settings(allow_host=("models.example",)))
    headers = {"origin": "https://models.example"}
    answer = client.post("/translate", json_=QUESTION, host="models.example", headers=headers)
    assert answer.status == 200


def test_cors_is_for_the_allowed_origins_alone():
    client = Client(settings=settings(allow_origin=("https://good.example",)))
    asks = {"access-control-request-method": "POST"}
    good = client.ask("OPTIONS", "/translate", headers={**asks, "origin": "https://good.example"})
    assert good.status == 204
    assert good.named["access-control-allow-origin"] == "https://good.example"
    assert good.named["access-control-allow-credentials"] == "true"
    bad = client.ask("OPTIONS", "/translate", headers={**asks, "origin": "https://evil.example"})
    assert bad.status == 403
    plain = client.post("/translate", json_=QUESTION)
    assert "access-control-allow-origin" not in plain.named
    assert plain.named["vary"] == "origin"
    none = Client().post("/translate", json_=QUESTION)
    assert not any(name.startswith("access-control") for name in none.named)


def test_headers_forbid_what_a_page_does_not_need():
    for path in ("/health", "/nosuch", "/languages"):
        named = Client().get(path).named
        assert named["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in named["content-security-policy"]
        assert named["x-content-type-options"] == "nosniff"
        assert named["referrer-policy"] == "no-referrer"
        assert named["cross-origin-resource-policy"] == "same-origin"
        assert named["cross-origin-opener-policy"] == "same-origin"
    refused = Client().get("/health", host="evil.example").named
    assert refused["x-content-type-options"] == "nosniff"


def keyed_client():
    return Client(keys=Keys([KEY, "another-key-of-a-client"]))


@pytest.mark.parametrize(
    "path", ["/translate", "/detect", "/suggest", "/translate_file", "/v1/completions",
             "/v1/embeddings", "/embed", "/api/translate", "/api/models/en-fr/unload"],
)  # fmt: skip
def test_what_computes_or_changes_asks_for_a_key(path):
    client = keyed_client()
    without = client.post(path, json_={})
    wrong = client.post(path, json_={}, headers={"authorization": "Bearer nosuch"})
    is_libre = path in ("/translate", "/detect", "/suggest", "/translate_file")
    # LibreTranslate's clients expect 400 where none was given
    assert without.status == (400 if is_libre else 401)
    assert wrong.status == (401 if path.startswith("/v1/") else 403)
    right = client.post(path, json_={}, headers={"authorization": f"Bearer {KEY}"})
    assert right.status not in (401, 403) or path == "/suggest"
    assert "API key" not in right.text
    assert not client.service.calls


def test_keys_are_asked_for_where_models_are_listed_and_counted():
    for path in ("/v1/models", "/v1/models/lm", "/api/models", "/metrics"):
        assert keyed_client().get(path).status == 401
        assert keyed_client().get(path, headers={"authorization": f"bearer {KEY}"}).status == 200
    for path in ("/health", "/ready", "/languages", "/frontend/settings", "/spec"):
        assert keyed_client().get(path).status == 200


def test_the_clients_of_libretranslate_send_the_key_as_a_field():
    right, wrong = {**QUESTION, "api_key": KEY}, {**QUESTION, "api_key": "nosuch"}
    assert keyed_client().post("/translate", json_=right).json == {"translatedText": "HELLO"}
    assert keyed_client().post("/translate", form=right).json == {"translatedText": "HELLO"}
    assert keyed_client().post("/translate", form=wrong).json == {"error": "Invalid API key"}
    assert keyed_client().post("/translate", json_={**QUESTION, "api_key": [KEY]}).status == 400


def test_all_keys_are_compared_whatever_was_found(monkeypatch):
    compared = []

    def compare(own, key):
        compared.append(own)
        return own == key

    monkeypatch.setattr(security.hmac, "compare_digest", compare)
    keys = Keys(["a" * 16, "b" * 16, "c" * 16])
    assert keys.accepts("a" * 16)
    assert not keys.accepts("\ud800")
    assert len(compared) == 6
    # Digests have equal lengths, which hides the lengths of keys
    assert {len(digest) for digest in compared} == {32}


def test_keys_are_read_from_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"# of the office\n{KEY}\n\n  another-key-of-ours \n")
    keys = read_keys(file)
    assert keys.accepts(KEY)
    assert keys.accepts("another-key-of-ours")
    assert not keys.accepts("# of the office")
    assert not read_keys(None)
    for text, message in (
        ("short\n", r"key 1 of .*keys has 5 characters; make one of 16 or more"),
        ("# none\n", "has no key; write one per line"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=message):
            read_keys(file)
    file.write_bytes(b"\xff\xfe" * 20)
    with pytest.raises(DataError, match="cannot be read \\(not utf-8\\)"):
        read_keys(file)
    with pytest.raises(DataError, match="no such file"):
        read_keys(tmp_path / "nosuch")


def test_a_body_is_counted_while_it_is_read():
    client = Client()
    long = {"content-length": str(BODY_BYTES + 1)}
    assert client.post("/translate", headers=long).status == 413
    assert client.post("/translate", headers={"content-length": "9" * 5000}).status == 413
    for strange in ("-1", "x", "\u0665"):
        header = [("content-length", strange.encode().decode("latin-1"))]
        assert client.post("/translate", headers=header).status == 400
    # Without Content-Length, or with a wrong one
    chunks = [b"x" * 100_000] * 12
    kinds = ({}, {"content-length": "5"}, {"content-type": "application/json"})
    for headers in kinds:
        assert client.post("/translate", chunks=chunks, headers=headers).status == 413
    assert not client.service.calls


def test_files_may_be_larger_but_not_endless():
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
    headers = {"content-type": "multipart/form-data; boundary=b"}
    n_chunks = FILE_BYTES // 1_000_000

    def status(n):
        chunks = [head, *[b"x" * 1_000_000] * n, b"\r\n--b--\r\n"]
        return Client().post("/translate_file", chunks=chunks, headers=headers).status

    assert [status(n_chunks + 1), status(n_chunks - 1)] == [413, 400]


def test_a_body_that_does_not_come_is_given_up():
    start, _ = asyncio.run(messages_without_a_body("/translate"))
    assert start["status"] == 408


def test_a_websocket_is_closed():
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(Client().app({"type": "websocket", "headers": []}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1003}]


def test_connections_end_while_the_service_does():
    client = Client()
    assert "connection" not in client.get("/health").named
    client.site.is_draining = True
    assert client.get("/health").named["connection"] == "close"
    assert client.get("/ready").status == 503


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"allow_origin": ("*",)}, '--allow-origin: "\\*" lets in any page'),
        ({"allow_origin": ("null",)}, "or require keys with --api-key-file"),
        ({"allow_origin": ("https://*",)}, "lets in any page"),
        ({"allow_origin": ("https://*.com",)}, "lets in any page"),
        ({"allow_origin": ("https://a.example/path",)}, "without a path"),
        ({"allow_origin": ("a.example",)}, "is not an origin"),
        ({"allow_host": ("a.example:80",)}, "--allow-host: .* without port and path"),
        ({"allow_host": ("*",)}, "is not a name of a machine"),
    ],
)
def test_strange_names_are_refused(values, message):
    with pytest.raises(UsageError, match=message):
        settings(**values)


def test_addresses_of_this_machine_are_told_from_others():
    assert all(map(is_loopback, ("127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost")))
    assert not any(map(is_loopback, (EVERYWHERE, "::", "10.0.0.1", "models.example", "")))


def test_no_answer_tells_what_failed_inside(capsys):
    service = FakeService()
    service.fails = RuntimeError("/secret/path\nmore")
    answer = Client(service).post("/translate", json_=QUESTION)
    assert answer.status == 500
    assert answer.json == {"error": "the service failed; its operator can see why"}
    assert capsys.readouterr().err == "error: serve: RuntimeError: /secret/path\n"
