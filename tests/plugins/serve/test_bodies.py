"""Bodies in other charsets, compressed, and of other types."""

import gzip
import json
import zlib
from urllib.parse import urlencode

import pytest

from tests.plugins.serve.fake import Client
from tests.plugins.serve.test_libretranslate import upload
from tformer_cli.plugins.serve.config import BODY_BYTES

QUESTION = {"q": "Café", "source": "en", "target": "fr"}
ANSWER = {"translatedText": "CAFÉ"}
FORM = "application/x-www-form-urlencoded"
BOUNDARY = "----b"


def send(body, content_type=None, path="/translate", client=None, **headers):
    named = {} if content_type is None else {"content-type": content_type}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    return (client or Client()).post(path, body=body, headers=named)


def form(text, charset):
    return urlencode({**QUESTION, "q": text.encode(charset)})


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("ISO-8859-1", "Café"),
        ("iso-8859-1", "“Café” 5 €"),
        ("windows-1252", "Café"),
        ('"Windows-1252"', "Café"),
        ("latin1", "Café"),
        ("iso-8859-15", "5 €"),
        ("iso-8859-2", "zażółć"),
        ("windows-1251", "Дом"),
        ("koi8-r", "Дом"),
        ("Shift_JIS", "表示ソ"),
        ("euc-jp", "日本語"),
        ("iso-2022-jp", "日本語"),
        ("gbk", "房子"),
        ("GB18030", "房子😀"),
        ("big5", "功能"),
        ("euc-kr", "집"),
        ("utf-8", "Café 😀"),
        ("UTF8", "Café"),
    ],
)
def test_a_form_is_read_in_its_charset(charset, text):
    # Clients that declare Latin-1 may send Windows quotation marks, as browsers do
    name = "cp1252" if "“" in text else charset.strip('"')
    expected = {"translatedText": text.upper()}
    escaped = send(form(text, name).encode(), f"{FORM}; charset={charset}")
    assert (escaped.status, escaped.json) == (200, expected)
    # As `curl --data-binary` sends a file, without escapes
    raw = b"source=en&target=fr&q=" + text.encode(name).replace(b"&", b"%26").replace(b"+", b"%2B")
    assert send(raw, f"{FORM};charset={charset}").json == expected
    own = part("q", text.encode(name), f"Content-Type: text/plain; charset={charset}")
    assert multipart(own).json == expected
    whole = multipart(part("q", text.encode(name)), more=f"; charset={charset}")
    assert whole.json == expected


def part(name, value, *headers):
    lines = (f"--{BOUNDARY}", f'Content-Disposition: form-data; name="{name}"', *headers, "", "")
    return "\r\n".join(lines).encode() + value + b"\r\n"


def multipart(*parts, more=""):
    fields = [part(name, QUESTION[name].encode()) for name in ("source", "target")]
    body = b"".join([*parts, *fields]) + f"--{BOUNDARY}--\r\n".encode()
    return send(body, f"multipart/form-data; boundary={BOUNDARY}{more}")


def test_a_form_may_name_its_charset_in_a_field():
    body = form("Café", "latin-1").encode() + b"&_charset_=iso-8859-1"
    assert send(body, FORM).json == ANSWER
    parts = part("_charset_", b"windows-1252"), part("q", "Café".encode("cp1252"))
    assert multipart(*parts).json == ANSWER


def test_letters_of_several_bytes_may_be_escaped_in_part():
    # The second byte of this letter is a backslash, that of the next one an A
    body = b"source=en&target=fr&q=%83%5C" + b"%83A"
    assert send(body, f"{FORM}; charset=shift_jis").json == {"translatedText": "ソア"}


@pytest.mark.parametrize(
    ("body", "content_type", "status", "words"),
    [
        (form("Café", "latin-1"), FORM, 400, "the body is not UTF-8"),
        (form("Café", "latin-1"), f"{FORM}; charset=utf-8", 400, "the body is not utf-8"),
        ("q=%E9&source=en", f"{FORM}; charset=euc-jp", 400, "the body is not euc-jp"),
        *(
            (form("a", "ascii"), f"{FORM}; charset={bad}", 415, "is not supported; send UTF-8")
            for bad in ("idna", "punycode", "unicode_escape", "rot13", "utf-7", "utf-16", "zlib")
        ),
        (form("a", "ascii"), f"{FORM}; charset={'x' * 5000}", 415, "x" * 40 + " is not supported"),
        (form("a", "ascii") + "&_charset_=hex", FORM, 415, "charset=hex is not supported"),
        ("{}", "application/json; charset=klingon", 415, "charset=klingon is not supported"),
        ("<q>a</q>", "text/xml", 415, "send JSON or a form"),
        ("q=a", "text/plain", 415, "send JSON or a form"),
        ("q=a", None, 415, "send JSON or a form"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_a_line(body, content_type, status, words):
    answer = send(body.encode(), content_type)
    assert answer.status == status
    assert words in answer.json["error"]
    assert len(answer.json["error"]) < 200


def test_a_query_is_utf_8():
    assert send(b"", path="/translate?q=Caf%C3%A9&source=en&target=fr").json == ANSWER
    answer = send(b"", path="/translate?q=Caf%E9&source=en&target=fr")
    assert (answer.status, "not UTF-8" in answer.text) == (400, True)


def test_parts_that_are_not_of_their_charset_are_refused():
    answer = multipart(part("q", b"Caf\xe9"))
    assert (answer.status, "not UTF-8" in answer.text) == (400, True)
    answer = multipart(part("q", b"a", "Content-Type: text/plain; charset=hex"))
    assert answer.status == 415


def test_files_are_bytes_whatever_the_charset_of_the_form():
    request = upload("é.txt", "Café".encode(), source="en", target="fr")
    client = Client()
    url = client.post("/translate_file", **request).json["translatedFileUrl"]
    path = "/" + url.partition("5000/")[2]
    assert client.get(path.replace("%C3%A9", "é")).text == "CAFÉ"


JSON = json.dumps(QUESTION, ensure_ascii=False)
# Without a timestamp: workers that start in different seconds would collect different test names
GZIP = gzip.compress(JSON.encode(), mtime=0)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (JSON.encode("utf-8-sig"), "application/json"),
        (JSON.encode("utf-8-sig"), "application/json; charset=utf-8"),
        (JSON.encode("utf-16"), "application/json; charset=utf-16"),
        (JSON.encode("utf-16-le"), "application/json; charset=utf-16"),
        (JSON.encode("utf-16-be"), "application/json; charset=utf-16be"),
        (JSON.encode("utf-16"), "application/json"),
        (JSON.encode("utf-32"), "application/json; charset=utf-32"),
        (JSON.encode("latin-1"), "application/json; charset=iso-8859-1"),
        (JSON.encode(), "Application/JSON"),
        (JSON.encode(), "text/json"),
        (JSON.encode(), "application/vnd.api+json"),
        (JSON.encode(), "application/problem+json; charset=UTF-8"),
        (JSON.encode(), "text/plain;charset=UTF-8"),
        (b"\n " + JSON.encode(), None),
        (JSON.encode(), FORM),  # `curl -d` without a header
    ],
)
def test_json_is_read_by_any_of_its_names_and_encodings(body, content_type):
    answer = send(body, content_type)
    assert (answer.status, answer.json) == (200, ANSWER)


def test_what_a_form_of_another_page_can_send_is_no_json_of_our_own_api():
    for kind in (None, "text/plain", FORM):
        assert send(b'{"text": "a"}', kind, "/api/translate").status == 415
    assert send(b'{"text": "a", "model": "en-fr"}', "text/json", "/api/translate").status == 200


def raw_deflate(data):
    compressor = zlib.compressobj(wbits=-15)
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("GZip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("identity", bytes),
        ("gzip", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
        ("gzip", lambda data: gzip.compress(data, 0)),
    ],
)
@pytest.mark.parametrize("n_chunks", [1, 1000])
def test_compressed_bodies_are_unpacked(encoding, pack, n_chunks):
    for body, kind in ((JSON.encode(), "application/json"), (form("Café", "utf-8").encode(), FORM)):
        packed = pack(body)
        size = max(1, len(packed) // n_chunks)
        chunks = [packed[at : at + size] for at in range(0, len(packed), size)]
        headers = {"content-type": kind, "content-encoding": encoding}
        answer = Client().post("/translate", chunks=chunks, headers=headers)
        assert (answer.status, answer.json) == (200, ANSWER)


def test_a_compressed_file_is_unpacked_within_the_limit_of_files():
    page = b"<!--" + b" " * 2 * BODY_BYTES + b"--><p>The house.</p>"
    request = upload("a.html", page, source="en", target="fr")
    packed = gzip.compress(request["body"])
    headers = {**request["headers"], "content-encoding": "gzip"}
    answer = Client().post("/translate_file", body=packed, headers=headers)
    assert answer.status == 200


@pytest.mark.parametrize(
    "encoding", ["br", "zstd", "compress", "gzip, gzip", "x" * 5000, "gzip;q=1"]
)
@pytest.mark.parametrize("path", ["/translate", "/v1/completions"])
def test_other_encodings_are_refused_with_what_is_read(encoding, path):
    answer = send(b"x", "application/json", path, content_encoding=encoding)
    assert answer.status == 415
    assert answer.named["accept-encoding"] == "gzip, deflate"
    assert "send gzip, deflate or none" in answer.text
    assert len(answer.text) < 250


@pytest.mark.parametrize(
    "body",
    [GZIP[:-1], GZIP[:20], b"\x1f\x8b", JSON.encode(), GZIP + b"more", b"\x1f"],
)
def test_a_body_that_is_not_what_it_says_is_refused(body):
    answer = send(body, "application/json", content_encoding="gzip")
    assert answer.status == 400
    assert "the body is not gzip" in answer.text
    assert send(b"\x78\x9c", "application/json", content_encoding="deflate").status == 400


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_small_body_does_not_unpack_to_a_large_one(encoding):
    compress = gzip.compress if encoding == "gzip" else zlib.compress
    fits = b'{"q": "' + b" " * (BODY_BYTES - 9) + b'"}'
    headers = {"content_encoding": encoding}
    answer = send(compress(fits), "application/json", **headers)
    assert answer.status == 400  # the body fits, but its text is too long
    assert send(compress(fits + b" "), "application/json", **headers).status == 413
    bomb = compress(b"\0" * (16 * BODY_BYTES), 9)
    assert len(bomb) < BODY_BYTES
    answer = send(bomb, "application/json", **headers)
    assert (answer.status, "the body has more than" in answer.text) == (413, True)


def test_an_empty_body_is_empty_however_it_is_packed():
    path = "/translate?q=Caf%C3%A9&source=en&target=fr"
    assert send(b"", path=path, content_encoding="gzip").json == ANSWER
