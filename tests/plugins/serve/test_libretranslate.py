"""LibreTranslate's API, one endpoint after another."""

import asyncio
import errno
import json
import re
import shutil
import stat
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.plugins.serve.fake import Client, FakeService, model
from tests.plugins.serve.test_requests import BOUNDARY
from tformer_cli.documents.known_formats import BY_EXTENSION
from tformer_cli.files.atomic import remove_unheld
from tformer_cli.plugins.documents import html
from tformer_cli.plugins.serve.config import ServeSettings
from tformer_cli.plugins.serve.downloads import PREFIX

QUESTION = {"q": "hello", "source": "en", "target": "fr"}


def translate(client=None, **fields):
    return (client or Client()).post("/translate", json_={**QUESTION, **fields})


def test_a_text_and_a_list():
    assert translate().json == {"translatedText": "HELLO"}
    assert translate(q=["a", "b"]).json == {"translatedText": ["A", "B"]}
    assert translate(q=["a"]).json == {"translatedText": ["A"]}


def test_lines_are_translated_one_by_one_and_blank_ones_stay():
    client = Client()
    assert translate(client, q="a b\n\n  \nc\n").json["translatedText"] == "A B\n\n  \nC\n"
    # One request to the engine, without blank lines
    (call,) = client.service.calls
    assert call.texts == ["a b", "c"]
    assert call.name == ("en-fr",)
    assert call.settings == {}


def test_emoji_and_spaces_stay():
    client = Client()
    assert translate(client, q=["😀 🎉", " ", "😀 a"]).json["translatedText"] == [
        "😀 🎉",
        " ",
        "😀 A",
    ]
    assert client.service.calls[0].texts == ["😀 a"]
    assert translate(q="😀").json == {"translatedText": "😀"}


def test_the_language_is_detected():
    english = "The old house is green, and the cat sleeps."
    answer = translate(source="auto", q=english).json
    assert list(answer) == ["translatedText", "detectedLanguage"]
    assert answer["detectedLanguage"]["language"] == "en"
    assert 50 < answer["detectedLanguage"]["confidence"] <= 100
    listed = translate(source="auto", q=[english, english]).json["detectedLanguage"]
    assert len(listed) == 2
    assert listed[0] == listed[1]
    # Only the target, and languages with a model into it, are candidates
    french = "La vieille maison est verte, et le chat dort."
    same = translate(source="AUTO", q=french).json
    assert same["translatedText"] == french
    assert same["detectedLanguage"]["language"] == "fr"
    unknown = translate(source="auto", q="123").json["detectedLanguage"]
    assert unknown == {"confidence": 0.0, "language": "en"}


def test_alternatives_are_those_that_differ():
    assert translate(alternatives=2).json == {
        "translatedText": "HELLO", "alternatives": ["HELLO!", "HELLO!!"],
    }  # fmt: skip
    assert translate(alternatives="1", q=["a", "b"]).json["alternatives"] == [["A!"], ["B!"]]
    assert translate(alternatives=1, q="a\n\nb").json["alternatives"] == ["A!\n\nB!"]
    assert "alternatives" not in translate(alternatives=0).json
    assert "alternatives" not in translate(alternatives=-3).json
    service = FakeService()
    service.result = lambda verb, index, text, settings: FakeService().result(
        verb, index, "", settings
    )
    # Blank alternatives and copies of the first are dropped, so the list may be shorter
    assert translate(Client(service), alternatives=1).json["alternatives"] == ["!"]


def test_the_same_language_changes_nothing():
    client = Client()
    assert translate(client, target="en").json == {"translatedText": "hello"}
    assert not client.service.calls


def test_a_pivot_joins_two_models():
    client = Client(FakeService(pivot="fr"))
    assert translate(client, target="de").json == {"translatedText": "HELLO"}
    assert client.service.calls[0].name == ("en-fr", "fr-de")
    languages = client.get("/languages").json
    english = next(language for language in languages if language["code"] == "en")
    assert english == {"code": "en", "name": "English", "targets": ["en", "fr", "de"]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"source": ""}, "Invalid request: missing source parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"source": "xx"}, "xx is not supported"),
        ({"target": "xx"}, "xx is not supported"),
        (
            {"source": "de", "target": "en"},
            "English (en) is not available as a target language from German (de)",
        ),
        ({"alternatives": "x"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": [1]}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 10_000}, "Invalid request: alternatives parameter must be <= 10"),
        ({"alternatives": 1e300}, "Invalid request: alternatives parameter must be <= 10"),
        ({"format": "pdf"}, "pdf format is not supported"),
        ({"q": "x" * 5001}, "Invalid request: request (5001) exceeds text limit (5000)"),
        ({"q": ["a"] * 129}, "Invalid request: request (129) exceeds text limit (128)"),
        ({"q": ["a", "x" * 5001]}, "Invalid request: request (5001) exceeds text limit (5000)"),
        ({"q": 3}, "q: must be text or a list of texts"),
        ({"q": ["a", 3]}, "q: must be text or a list of texts"),
        ({"q": {"a": "b"}}, "q: must be text or a list of texts"),
        ({"source": ["en"]}, "source: must be text"),
        ({"target": 3}, "target: must be text"),
    ],
)
def test_error_texts_are_those_that_clients_know(fields, message):
    answer = translate(**fields)
    assert (answer.status, answer.json) == (400, {"error": message})


def test_codes_are_found_in_any_case_and_by_their_short_forms():
    pairs = [("pt-BR", "zh"), ("en-US", "zt")]
    service = FakeService([model(f"{s}-{t}", source=s, target=t) for s, t in pairs])
    client = Client(service)
    codes = {language["code"]: language["name"] for language in client.get("/languages").json}
    # Answers have the long form
    assert codes == {
        "pt-BR": "Portuguese (Brazil)", "zh-Hans": "Chinese", "en-US": "English",
        "zh-Hant": "Chinese (traditional)",
    }  # fmt: skip
    for source, target, name in (
        *(("pb", "zh", "pt-BR-zh"), ("PT-br", "ZH-hans", "pt-BR-zh"), ("pt", "zh", "pt-BR-zh")),
        *(("en", "zt", "en-US-zt"), ("EN", "zh-Hant", "en-US-zt")),
    ):
        assert translate(client, source=source, target=target).status == 200
        assert client.service.calls[-1].name == (name,)
    assert translate(client, source="en-GB", target="zt").json == {
        "error": "en-GB is not supported"
    }


def test_detect_lists_the_best_first():
    guesses = Client().post("/detect", form={"q": "The cat is old, and the house is green."}).json
    assert [set(guess) for guess in guesses] == [{"confidence", "language"}] * len(guesses)
    assert guesses[0]["language"] == "en"
    assert len(guesses) <= 3
    shares = [guess["confidence"] for guess in guesses]
    assert shares == sorted(shares, reverse=True)
    assert Client().post("/detect", form={"q": "12 + 3"}).json == [
        {"confidence": 0.0, "language": "en"}
    ]
    assert Client().post("/detect", form={}).json == {
        "error": "Invalid request: missing q parameter"
    }


def test_languages_are_listed_for_both_methods_and_whatever_the_body():
    listed = [
        {"code": "en", "name": "English", "targets": ["en", "fr"]},
        {"code": "fr", "name": "French", "targets": ["fr", "de"]},
        {"code": "de", "name": "German", "targets": ["de"]},
    ]
    client = Client()
    assert client.get("/languages").json == listed
    assert client.get("/languages", form={"api_key": "x"}).json == listed
    assert client.post("/languages").json == listed


def upload(name="text.txt", content=b"hello\nyou\n", **fields):
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in {"source": "en", "target": "fr", **fields}.items()
        if value is not None
    ]
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
    parts.append(f"{head}Content-Type: text/plain\r\n\r\n".encode() + content + b"\r\n")
    return {
        "body": b"".join(parts) + f"--{BOUNDARY}--\r\n".encode(),
        "headers": {"content-type": f"multipart/form-data; boundary={BOUNDARY}"},
    }


def test_a_file_is_translated_and_fetched():
    client = Client()
    url = client.post("/translate_file", **upload()).json["translatedFileUrl"]
    match = re.fullmatch(r"http://localhost:5000(/download_file/[0-9a-f]{32}\.text\.txt)", url)
    fetched = client.get(match[1])
    assert (fetched.status, fetched.text) == (200, "HELLO\nYOU\n")
    assert fetched.named["content-disposition"].startswith('attachment; filename="text.txt"')
    assert client.service.calls[0].priority == "bulk"
    detected = upload(content=b"The old house is green.\n", source="auto")
    url = client.post("/translate_file", **detected).json["translatedFileUrl"]
    assert client.get(url.removeprefix("http://localhost:5000")).text == "THE OLD HOUSE IS GREEN.\n"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (upload(name="a.pdf"), "Invalid request: file format not supported"),
        (upload(name=""), "Invalid request: empty file"),
        (upload(source=None), "Invalid request: missing source parameter"),
        (upload(target=""), "Invalid request: missing target parameter"),
        (upload(target="xx"), "xx is not supported"),
        ({"form": {"source": "en", "target": "fr"}}, "Invalid request: missing file parameter"),
        ({"json_": {"file": "a.txt"}}, "Invalid request: missing file parameter"),
    ],
)
def test_files_that_cannot_be_translated(request_, message):
    answer = Client().post("/translate_file", **request_)
    assert (answer.status, answer.json) == (400, {"error": message})


def test_html_is_translated_and_its_tags_stay():
    fields = {"source": "en", "target": "fr", "format": "html"}
    client = Client()
    question = {**fields, "q": "<p>a <b>b</b></p>", "alternatives": 2}
    answer = client.post("/translate", json_=question)
    assert answer.json == {"translatedText": "<p>A <b>B</b></p>", "alternatives": []}
    assert client.post("/translate", json_={**fields, "q": ["<p>a</p>", "b"]}).json == {
        "translatedText": ["<p>A</p>", "B"]
    }
    # Script is text here, and markup stays markup
    attack = "</script><img src=x onerror=alert(1)>"
    assert client.post("/translate", json_={**fields, "q": attack}).json["translatedText"] == attack
    # Without alignment heads, text between tags is translated separately
    pivot = Client(FakeService(pivot="fr"))
    page = "<p>the <b>old</b> house {x}</p>"
    answer = pivot.post("/translate", json_={**fields, "target": "de", "q": page}).json
    assert answer["translatedText"] == "<p>THE <b>OLD</b> HOUSE {x}</p>"
    assert [call.texts for call in pivot.service.calls] == [
        ["the old house {x}"],
        ["the", "old", "house"],
    ]
    same = pivot.post("/translate", json_={**fields, "target": "en", "q": page}).json
    assert same["translatedText"] == page


def test_a_document_of_any_format_is_translated():
    client = Client()
    page = b"<html lang='en'><p>hello <b>you</b></p><pre>hello</pre>"
    url = client.post("/translate_file", **upload("a.html", page)).json["translatedFileUrl"]
    place = url.removeprefix("http://localhost:5000")
    expected = "<html lang='fr'><p>HELLO <b>YOU</b></p><pre>hello</pre>"
    assert client.get(place).text == expected
    assert client.service.calls[0].settings["aligned"] is True
    memory = b'<tmx version="1.4"><tu><tuv xml:lang="en"><seg>hello</seg></tuv></tu></tmx>'
    url = client.post("/translate_file", **upload("a.tmx", memory)).json["translatedFileUrl"]
    document = client.get(url.removeprefix("http://localhost:5000")).text
    assert '<tuv xml:lang="fr"><seg>HELLO</seg></tuv>' in document
    german = b'msgid ""\nmsgstr "Language: de\\n"\n\nmsgid "hello"\nmsgstr ""\n'
    other = client.post("/translate_file", **upload("a.po", german))
    assert other.status == 400
    assert other.json["error"].startswith("a.po: is for de (Language), but the target language is")
    damaged = client.post("/translate_file", **upload("a.docx", b"PK\0"))
    assert damaged.status == 400
    assert damaged.json["error"].startswith("a.docx: ")


def test_what_was_not_translated_is_said():
    client = Client()
    counts = {"segments": 1, "translated": 1, "kept": 0, "left": {}, "skipped": {}}
    assert client.post("/translate_file", **upload(content=b"hello")).json["summary"] == counts
    nothing = client.post("/translate_file", **upload("a.html", b"<pre>hello</pre>")).json
    assert nothing["summary"] == {
        **dict.fromkeys(("segments", "translated", "kept"), 0),
        "left": {},
        "skipped": {},
        "warning": "no text to translate was found; the document is unchanged",
    }
    fields = {"source": "en", "target": "fr", "format": "html", "q": "<pre>hello</pre>"}
    answer = client.post("/translate", json_=fields).json
    assert answer["translatedText"] == fields["q"]
    assert answer["summary"] == nothing["summary"]


@pytest.mark.parametrize(
    ("name", "content", "fields", "expected"),
    [
        ("a.csv", b"a,b\n1,one\n", {"column": "b"}, "a,b\n1,ONE\n"),
        ("a.tsv", b"a\tb\tc\nx\tone\ttwo", {"column": "b\nc"}, "a\tb\tc\nx\tONE\tTWO"),
        ("a.csv", b"a,b\n", {"column": "2", "no_header": "true"}, "a,B\n"),
        ("a.json", b'[{"a": "one", "b": "two"}]', {"key": "b"}, '[{"a": "one", "b": "TWO"}]'),
        ("a.jsonl", b'{"a": "one", "b": "two"}', {"key": "b"}, '{"a": "one", "b": "TWO"}'),
    ],
)
def test_columns_of_tables_are_translated(name, content, fields, expected):
    client = Client()
    answer = client.post("/translate_file", **upload(name, content, **fields)).json
    place = answer["translatedFileUrl"].removeprefix("http://localhost:5000")
    assert client.get(place).text == expected


def test_a_table_without_a_column_is_told_its_columns():
    answer = Client().post("/translate_file", **upload("a.csv", b"a,b\n1,one\n"))
    assert (answer.status, answer.json["error"]) == (
        400,
        "a.csv: is a table, not lines of text; add column NAME for each column to translate: a, b",
    )


def test_no_name_of_a_file_is_a_path(tmp_path):
    client = Client()
    for name in (
        "../../etc/passwd.txt",
        "..\\x.txt",
        "/etc/x.txt",
        "é\u202e.txt",
        "a" * 400 + ".txt",
    ):
        url = client.post("/translate_file", **upload(name=name)).json["translatedFileUrl"]
        place = url.removeprefix("http://localhost:5000")
        assert re.fullmatch(r"/download_file/[0-9a-f]{32}\.[\w.%-]+\.txt", place)
        assert client.get(place).text == "HELLO\nYOU\n"
    folder = client.site.downloads.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(re.fullmatch("[0-9a-f]{32}", file.name) for file in folder.iterdir())
    token = next(folder.iterdir()).name
    outside = tmp_path / "secret"
    outside.write_text("secret")
    for place in (
        *("nosuch", f"../{token}", "../../etc/passwd", f"..%2f{token}", f"{token[:-1]}.txt"),
        *("", f"{token[:-1]}/", str(outside), "0" * 32, f"{token}\n.txt"),
    ):
        assert client.get(f"/download_file/{place}").status == 404
    # The name from the client reaches only the header
    strange = client.get(f'/download_file/{token}.a"b\r\nx: y')
    assert strange.named["content-disposition"] == (
        "attachment; filename=\"a_b_x_y\"; filename*=UTF-8''a_b_x_y"
    )


def test_files_go_after_a_while(monkeypatch):
    client = Client()
    downloads = client.site.downloads
    first = downloads.add("a.txt", b"x" * 100)
    assert downloads.find(first) == ("a.txt", b"x" * 100)
    monkeypatch.setattr(downloads, "_most_bytes", 250)
    later = [downloads.add("b.txt", b"y" * 100) for _ in range(3)]
    assert len(list(downloads.folder.iterdir())) == 2
    assert downloads.find(later[-1]) is not None
    monkeypatch.setattr(downloads, "_seconds", -1.0)
    assert downloads.find(later[-1]) is None
    assert not list(downloads.folder.iterdir())


def test_a_folder_that_somebody_removes_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    client = Client()
    downloads = client.site.downloads
    n_open = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        gone = client.post("/translate_file", **upload()).json["translatedFileUrl"]
        shutil.rmtree(downloads.folder)
        assert client.get(gone.removeprefix("http://localhost:5000")).status == 404
        kept = client.post("/translate_file", **upload()).json["translatedFileUrl"]
        assert client.get(kept.removeprefix("http://localhost:5000")).status == 200
        assert stat.S_IMODE(downloads.folder.stat().st_mode) == 0o700
        remove_unheld(PREFIX)
        assert downloads.folder.is_dir()
        assert list(downloads.folder.iterdir())
    assert len(list(Path("/proc/self/fd").iterdir())) <= n_open + 1
    # No file is written where others could read it
    shutil.rmtree(downloads.folder)
    downloads._first_folder.mkdir(0o755)
    assert client.post("/translate_file", **upload()).status == 507
    downloads._first_folder.rmdir()
    downloads._first_folder.symlink_to(tmp_path)
    assert client.post("/translate_file", **upload()).status == 507


def test_no_temporary_directory_is_no_fault_of_the_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nosuch"))
    client = Client()
    answer = client.post("/translate_file", **upload())
    assert (answer.status, answer.json) == (507, {"error": "there is no room for the result"})
    assert "error: serve: TMPDIR: temporary files cannot be written" in capsys.readouterr().err
    assert client.get(f"/download_file/{'0' * 32}.txt").status == 404


def test_a_full_disk_keeps_no_half_of_a_file(monkeypatch, capsys):
    def full(path, content):
        with path.open("wb") as file:
            file.write(content[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    client = Client()
    monkeypatch.setattr(Path, "write_bytes", full)
    answer = client.post("/translate_file", **upload())
    assert (answer.status, answer.json) == (507, {"error": "there is no room for the result"})
    assert not list(client.site.downloads.folder.iterdir())
    assert "No space left" in capsys.readouterr().err


def test_suggestions_are_kept_if_they_are_asked_for(tmp_path):
    fields = {"q": "hello", "s": "salut", "source": "en", "target": "FR"}
    off = Client().post("/suggest", form=fields)
    assert off.status == 403
    assert "disabled" in off.json["error"]
    file = tmp_path / "suggestions.jsonl"
    client = Client(settings=ServeSettings(suggestions=file))
    assert client.post("/suggest", form=fields).json == {"success": True}
    assert client.post("/suggest", json_={**fields, "s": "a\nb"}).json == {"success": True}
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines == [
        {"q": "hello", "s": "salut", "source": "en", "target": "fr"},
        {"q": "hello", "s": "a\nb", "source": "en", "target": "fr"},
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert client.post("/suggest", form={**fields, "s": ""}).json == {
        "error": "Invalid request: missing s parameter"
    }
    assert client.post("/suggest", form={**fields, "s": "x" * 5001}).status == 400
    assert len(file.read_text().splitlines()) == 2


def test_a_place_for_suggestions_that_is_gone_is_no_traceback(tmp_path, capsys):
    client = Client(settings=ServeSettings(suggestions=tmp_path / "nosuch" / "file"))
    answer = client.post("/suggest", form={**QUESTION, "s": "salut"})
    assert answer.status == 503
    assert str(tmp_path) not in answer.text
    assert "No such file" in capsys.readouterr().err


def test_settings_of_a_page():
    settings = Client().get("/frontend/settings").json
    assert settings == {
        "charLimit": 5000, "frontendTimeout": 500, "apiKeys": False, "keyRequired": False,
        "suggestions": False, "filesTranslation": True, "supportedFilesFormat": list(BY_EXTENSION),
        "language": {
            "source": {"code": "en", "name": "English"},
            "target": {"code": "fr", "name": "French"},
        },
    }  # fmt: skip


def test_health_and_readiness():
    client = Client()
    assert client.get("/health").json == {"status": "ok"}
    assert client.get("/ready").status == 200
    client.service.is_ready = False
    assert client.get("/health").status == 200
    assert client.get("/ready").status == 503


def test_the_description_has_every_path_and_field():
    spec = Client().get("/spec").json
    assert spec["swagger"] == "2.0"
    assert set(spec["paths"]) == {
        "/translate", "/detect", "/languages", "/translate_file", "/suggest",
        "/frontend/settings", "/health", "/spec",
    }  # fmt: skip
    answers = {
        path: operation["responses"]["200"]["schema"]
        for path, methods in spec["paths"].items()
        for operation in methods.values()
    }
    unknown = [path for path, schema in answers.items() if schema == {"type": "object"}]
    assert unknown == ["/spec"], "write the shape of the answer in _ANSWERS of spec.py"
    parameters = spec["paths"]["/translate"]["post"]["parameters"]
    names = {parameter["name"]: parameter for parameter in parameters}
    assert set(names) == {"q", "source", "target", "format", "alternatives", "api_key"}
    assert [names["q"]["required"], names["format"]["required"]] == [True, False]
    assert names["source"]["enum"] == ["auto", "en", "fr", "de"]
    assert names["target"]["enum"] == ["en", "fr", "de"]
    assert names["format"]["enum"] == ["text", "html"]


def test_the_description_is_what_clients_know_a_server_by():
    spec = Client().get("/spec").json
    # The client Dialect accepts a server only with this title
    assert spec["info"]["title"] == "LibreTranslate"
    assert "tformer" in spec["info"]["description"]
    assert spec["info"]["x-server"] == "tformer"
    for path, methods in spec["paths"].items():
        for operation in methods.values():
            assert operation["responses"]["403"]["schema"] == {"$ref": "#/definitions/Error"}
            assert operation["produces"] == ["application/json"]
            assert ("consumes" in operation) is bool(operation["parameters"]), path
    assert spec["paths"]["/translate_file"]["post"]["consumes"] == ["multipart/form-data"]


def test_hundreds_of_languages_are_listed_from_one_look_at_the_models():
    codes = tuple(f"{a}{b}" for a in "abcdefghij" for b in "abcdefghijklmnopqrst")
    many = FakeService([replace(model("many"), languages=codes)])
    many.route = lambda source, target: ("many",)
    looks = []
    infos = many.info()
    many.info = lambda: looks.append(1) or infos
    client = Client(many)
    for _ in range(3):
        languages = client.get("/languages").json
    assert len(languages) == len(languages[0]["targets"]) == 200
    assert len(looks) == 1


def test_without_languages_nothing_is_listed():
    client = Client(FakeService([model("mine")]))
    assert client.get("/languages").json == []
    assert translate(client).json == {"error": "fr is not supported"}
    assert client.get("/frontend/settings").status == 200
    assert translate(client, source="auto").status == 400


@pytest.mark.parametrize("step", ["read", "write"])
def test_a_large_page_holds_up_nobody(step, monkeypatch):
    def slow(*arguments):
        begun.set()
        assert may_end.wait(10)
        return rightly(*arguments)

    begun, may_end = threading.Event(), threading.Event()
    owner, name = (html, "read") if step == "read" else (html.HtmlDocument, "write")
    rightly = getattr(owner, name)
    monkeypatch.setattr(owner, name, slow)
    client = Client()

    async def run():
        body = {**QUESTION, "q": "<p>a</p>", "format": "html"}
        page = asyncio.create_task(client.ask_async("POST", "/translate", json_=body))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        assert (await client.ask_async("GET", "/health")).status == 200
        may_end.set()
        return (await page).json

    assert asyncio.run(run()) == {"translatedText": "<p>A</p>"}
