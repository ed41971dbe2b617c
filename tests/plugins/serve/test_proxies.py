import io
import urllib.request
from urllib.parse import urlsplit

import pytest

from tests.plugins.serve.fake import Client
from tests.plugins.serve.test_libretranslate import upload
from tformer_cli.errors import UsageError
from tformer_cli.plugins.serve.config import ServeSettings
from tformer_cli.plugins.serve.request_log import RequestLog

TOLD = {
    "x-forwarded-proto": "https",
    "x-forwarded-host": "models.example",
    "x-forwarded-prefix": "/tr",
}


def client_of(**settings):
    return Client(settings=ServeSettings(**settings))


def file_url(client, headers=(), path="/translate_file", name="a.txt", **options):
    request = upload(name, b"The house.", source="en", target="fr")
    request["headers"] = {**request["headers"], **dict(headers)}
    answer = client.post(path, **request, **options)
    assert answer.status == 200, answer.text
    return answer.json["translatedFileUrl"]


@pytest.mark.parametrize(
    ("settings", "headers", "start"),
    [
        ({}, {}, "http://localhost:5000/download_file/"),
        ({}, TOLD, "https://localhost:5000/tr/download_file/"),
        ({"allow_host": ("models.example",)}, TOLD, "https://models.example/tr/download_file/"),
        ({"trust_proxy": ("none",)}, TOLD, "http://localhost:5000/download_file/"),
        ({"trust_proxy": ("10.0.0.7",)}, TOLD, "http://localhost:5000/download_file/"),
        ({"trust_proxy": ("127.0.0.0/30",)}, TOLD, "https://localhost:5000/tr/download_file/"),
        ({"url_prefix": "/a/b"}, {}, "http://localhost:5000/a/b/download_file/"),
        ({"url_prefix": "a/"}, {}, "http://localhost:5000/a/download_file/"),
        ({"url_prefix": "/a"}, TOLD, "https://localhost:5000/tr/download_file/"),
        ({}, {"x-forwarded-proto": "https, http"}, "https://localhost:5000/download_file/"),
        ({}, {"x-forwarded-proto": "javascript"}, "http://localhost:5000/download_file/"),
        ({}, {"x-forwarded-prefix": "/tr/"}, "http://localhost:5000/tr/download_file/"),
        *(
            ({}, {"x-forwarded-prefix": bad}, "http://localhost:5000/download_file/")
            for bad in ("tr", "//evil.example", "/a/../b", '/a"b', "/a b", "@evil.example", "/")
        ),
    ],
)
def test_addresses_are_those_that_a_client_can_ask(settings, headers, start):
    assert file_url(client_of(**settings), headers).startswith(start)


def test_a_forwarded_host_replaces_no_check_of_the_host():
    client = client_of(allow_host=("models.example",))
    rebound = {"x-forwarded-host": "models.example", "origin": "http://evil.example"}
    assert client.get("/languages", host="evil.example", headers=rebound).status == 403
    # The page under the name of the proxy is our own
    own = {"x-forwarded-host": "models.example", "origin": "https://models.example"}
    assert client.get("/languages", headers=own).status == 200
    assert client_of().get("/languages", headers=own).status == 403


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/a/b/languages", 200),
        ("GET", "/languages", 200),
        ("GET", "/a/b/", 200),
        ("GET", "/a/b/page/live.js", 200),
        ("GET", "/a/b/v1/models", 200),
        ("GET", "/a/b", 308),
        ("HEAD", "/a/b", 308),
        ("POST", "/a/b", 404),
        ("GET", "/a/bc/languages", 404),
        ("GET", "/a/languages", 404),
        ("GET", "/a/b/a/b/languages", 404),
    ],
)
def test_routes_are_found_below_the_prefix_and_where_a_proxy_took_it_off(method, path, status):
    client = client_of(url_prefix="/a/b")
    answer = client.ask(method, path)
    assert answer.status == status
    if status == 308:
        assert answer.named["location"] == "/a/b/"


@pytest.mark.parametrize("path", ["/health", "/ready", "/tr/health", "/tr/ready"])
def test_load_balancers_ask_below_the_prefix_and_without_it(path):
    client = client_of(url_prefix="/tr")
    for host in (None, ""):
        assert client.get(path, host=host, version="1.0").status == 200
        assert client.get(path, host=host).status == 403
        assert client.get("/tr/languages", host=host, version="1.0").status == 403


def test_a_prefix_may_be_called_as_a_path_is():
    client = client_of(url_prefix="/translate")
    question = {"q": "hello", "source": "en", "target": "fr"}
    for path in ("/translate", "/translate/translate"):
        assert client.post(path, json_=question).json == {"translatedText": "HELLO"}
    assert "/translate/download_file/" in file_url(client)


@pytest.mark.parametrize(
    "name",
    [
        *("Überblick.txt", "my file.txt", 'a "quoted" name.txt', "a\nb.txt", "../../etc/x.txt"),
        *("日本語.txt", "100%.txt", "a#b?c.txt", "😀.txt", "C:\\Temp\\é.txt", "%2e%2e.txt"),
        "x" * 300 + ".txt",
    ],
)  # fmt: skip
def test_the_address_of_a_file_is_a_url(name):
    client = client_of()
    url = file_url(client, name=name)
    assert url.isascii()
    assert not set(url) & set(' "<>\\^`{|}\n\r\t')
    # As `urlopen` and `curl` do
    request = urllib.request.Request(url)
    assert request.selector == urlsplit(url).path
    path = urllib.request.unquote(request.selector)
    answer = client.get(path)
    assert (answer.status, answer.body) == (200, b"THE HOUSE.")
    disposition = answer.named["content-disposition"]
    assert disposition.isascii()
    assert "\n" not in disposition
    assert ".." not in disposition.partition("filename*")[0].replace(".txt", "")


@pytest.mark.parametrize(
    ("trusted", "forwarded", "client"),
    [
        ((), "203.0.113.5", "203.0.113.5"),
        ((), "198.51.100.1, 203.0.113.5", "203.0.113.5"),
        ((), "203.0.113.5, 127.0.0.1", "203.0.113.5"),
        ((), "203.0.113.5:4711", "203.0.113.5"),
        ((), "[2001:db8::1]:4711", "2001:db8::1"),
        ((), "2001:db8::1", "2001:db8::1"),
        ((), "nonsense", "127.0.0.1"),
        ((), "203.0.113.5, <script>", "127.0.0.1"),
        ((), "", "127.0.0.1"),
        (("none",), "203.0.113.5", "127.0.0.1"),
        (("127.0.0.1", "10.0.0.0/8"), "203.0.113.5, 10.1.2.3", "203.0.113.5"),
        (("127.0.0.1",), "203.0.113.5, 10.1.2.3", "10.1.2.3"),
    ],
)  # fmt: skip
def test_the_client_is_the_last_one_that_is_no_proxy(trusted, forwarded, client, tmp_path):
    log = RequestLog(tmp_path / "log", print)
    settings = ServeSettings(trust_proxy=trusted)
    Client(settings=settings, log=log).get("/health", headers={"x-forwarded-for": forwarded})
    log.close()
    assert f'"client": "{client}"' in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"trust_proxy": ("proxy",)}, '--trust-proxy: "proxy" is not an address'),
        ({"trust_proxy": ("10.0.0.0/99",)}, "is not an address"),
        ({"trust_proxy": ("none", "10.0.0.1")}, '"none" is not an address'),
        *(
            ({"url_prefix": bad}, "--url-prefix: .* is not a path; write it as /translate")
            for bad in ("/", "/a b", "/a?b", "http://a", "/..", "/a/../b", "/é", "/a\n", "//a")
        ),
    ],
)  # fmt: skip
def test_strange_values_are_refused(values, words):
    with pytest.raises(UsageError, match=words):
        ServeSettings(**values)


def test_a_mapped_address_is_the_one_that_it_maps():
    from tformer_cli.plugins.serve.proxies import ProxyHeaders

    proxies = ProxyHeaders(io, (), frozenset())
    assert proxies._is_trusted("::ffff:127.0.0.1")
    assert not proxies._is_trusted("::ffff:203.0.113.5")
    assert not proxies._is_trusted("testclient")
