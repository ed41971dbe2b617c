"""Documents of the command translate: how they are chosen and written, and what is refused."""

import json
import re
import zipfile

import pytest

from tests.commands import run
from tests.models import LINES
from tests.plugins.documents.test_xlsx import workbook
from tformer_cli.documents.known_formats import REFUSED, REFUSED_TEXTS

PAGE = f"<html lang=en><p>{LINES[0]} <b>{LINES[1]}</b></p><p>{{x}}</p><!-- {LINES[0]} --></html>\n"


@pytest.fixture
def page(tmp_path):
    file = tmp_path / "a.html"
    file.write_text(PAGE)
    return file


def test_a_file_is_a_document_by_its_ending(model, page, tmp_path):
    out, told = tmp_path / "b.html", tmp_path / "b.json"
    done = run("translate", model, page, "-o", out, "--summary", told)
    assert done.exit_code == 0, done.stderr
    assert "1 segment of html in" in done.stderr
    made = out.read_text()
    assert made.startswith("<html lang=en><p>")
    assert made.endswith(f"</p><p>{{x}}</p><!-- {LINES[0]} --></html>\n")
    assert made.count("<b>") == made.count("</b>") >= 1
    summary = json.loads(told.read_text())
    assert (summary["schema"], summary["format"]) == ("tformer.document/1", "html")
    assert (summary["segments"], summary["translated"], summary["kept"]) == (2, 1, 1)
    # By stdin, and by -i, the same
    assert run("translate", model, "--document", "html", stdin=PAGE.encode()).stdout == made
    assert run("translate", model, "-i", page, "-q").stdout == made
    assert run("translate", model, page, "--document", "HTML", "-q").stdout == made
    # By its name alone, to stdout
    assert run("translate", model, page, "-o", "-", "-q").stdout == made
    assert run("translate", model, page, "-q").stdout == made


def test_lines_stay_lines(model, page, tmp_path):
    lines = run("translate", model, "-i", page, "--document", "lines")
    assert "has tags of HTML or XML" in lines.stderr
    name = run("translate", model, page, "--document", "lines", "-q")
    assert (name.exit_code, name.stdout.count("\n")) == (0, 1), "the words of its name"
    text = tmp_path / "a.txt"
    text.write_text("\n".join(LINES) + "\n")
    plain = run("translate", model, "-i", text, "-q")
    assert plain.stdout == run("translate", model, *LINES, "-q").stdout
    # The same, line by line, as a document; its blanks stay
    text.write_text("\n".join(f"  {line}\r" for line in LINES))
    done = run("translate", model, text, "-o", tmp_path / "b.txt", "--no-protect")
    expected = "\n".join(f"  {line}\r" for line in plain.stdout.splitlines())
    assert (tmp_path / "b.txt").read_bytes().decode() == expected, done.stderr


def test_what_is_protected_is_copied(model, tmp_path):
    line = f"{LINES[0]} {{name}} https://example.org/a 😀"
    done = run("translate", model, line, "--protect", "-q")
    assert all(text in done.stdout for text in ("{name}", "https://example.org/a", "😀"))
    assert done.stdout.count("\n") == 1
    page = f"<p>{line}</p>".encode()
    told = run("translate", model, "--document", "html", stdin=page)
    assert "does not know" not in told.stderr
    # Nothing to copy: the same bytes
    assert run("translate", model, *LINES, "--protect", "-q").stdout == (
        run("translate", model, *LINES, "-q").stdout
    )
    assert run("translate", model, line, "--no-protect", "-q").stdout == (
        run("translate", model, line, "-q").stdout
    )


def test_text_in_which_nothing_is_translated_is_a_warning(model, page, tmp_path):
    page.write_text(f"<pre>{LINES[0]}</pre>")
    told = tmp_path / "b.json"
    done = run("translate", model, page, "-o", tmp_path / "b.html", "-q", "--summary", told)
    assert done.exit_code == 0
    assert done.stderr == (
        f"warning: {page}: no text to translate was found; the document is unchanged\n"
    )
    summary = json.loads(told.read_text())
    assert {name: summary[name] for name in ("segments", "left", "skipped")} == {
        "segments": 0,
        "left": {},
        "skipped": {},
    }
    # What a reader skips is named and counted
    table = tmp_path / "a.csv"
    table.write_text(f"a,b\n1,{LINES[0]}\n2,x,y\n3,x,y\n")
    done = run("translate", model, table, "-o", tmp_path / "b.csv", "-q", "--column", "b")
    assert (
        f"warning: {table}: 2 parts of its text left untranslated: row with more cells than "
        "the header (2)\n"
    ) in done.stderr


def test_tables(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "a.csv"
    table.write_text(f'id,"text"\n1.50,"{LINES[0]}"\n2,\n')
    plain = run("translate", model, LINES[0], "-q").stdout.rstrip("\n")
    quoted = plain.replace('"', '""')
    done = run("translate", model, "a.csv", "-o", "b.csv", "--column", "text")
    assert "1 segment of csv in" in done.stderr
    assert (tmp_path / "b.csv").read_text() == f'id,"text"\n1.50,"{quoted}"\n2,\n'
    same = [("-i", "a.csv", "--column", "2"), ("a.csv", "--column", "text", "--column", "2")]
    for words in same:
        assert run("translate", model, *words, "-q").stdout == (tmp_path / "b.csv").read_text()
    stdin = run("translate", model, "--document", "csv", "--column", "text", "-q",
                stdin=table.read_bytes())  # fmt: skip
    assert stdin.stdout == (tmp_path / "b.csv").read_text()
    lines = tmp_path / "a.jsonl"
    lines.write_text(json.dumps({"source": LINES[0], "n": 1.5}) + "\n")
    done = run("translate", model, "a.jsonl", "-o", "b.jsonl", "--key", "source", "-q")
    assert json.loads((tmp_path / "b.jsonl").read_text()) == {"source": plain, "n": 1.5}
    # As lines of JSON, all fields are passed through
    records = ("--input-format", "jsonl", "--format", "jsonl", "-q")
    done = run("translate", model, "-i", "a.jsonl", *records)
    assert json.loads(done.stdout)["n"] == 1.5
    assert run("translate", model, *records, stdin=lines.read_bytes()).stdout == done.stdout


@pytest.mark.parametrize("ending", [*REFUSED, *REFUSED_TEXTS])
def test_a_file_of_an_ending_that_is_not_read_has_a_way_out(ending, model, tmp_path):
    file, out = tmp_path / f"a{ending}", tmp_path / "b"
    file.write_text(LINES[0])
    for words in ([file, "-o", out], ["-i", file, "-o", out], [file]):
        done = run("translate", model, *words)
        assert (done.exit_code, out.exists()) == (2, False)
        assert done.stderr.startswith(f"error: {file}: ")
        assert re.search(r"; (save|make|convert|export|add) ", done.stderr)
    missing = run("translate", model, f"nosuch{ending}", "-o", out)
    assert "no such file" in missing.stderr
    if ending in REFUSED_TEXTS:
        done = run("translate", model, "-i", file, "--document", "lines", "-q")
        assert done.stdout == run("translate", model, LINES[0], "-q").stdout


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["a.pdf", "-o", "b.pdf"], "a.pdf: a PDF cannot be translated in place; convert it to"),
        (["no.pdf"], "no.pdf: no such file; name an existing file"),
        (["no.docx"], "no.docx: no such file; name an existing file"),
        (["d.html"], "d.html: is a directory; name an existing file"),
        (["no.pdf", "-o", "b.pdf"], "no.pdf: no such file; name an existing file"),
        (["no.html", "-o", "b.html"], "no.html: no such file; name an existing file, or send"),
        (["a.html", "-o", "b.pdf"], "b.pdf: html stays html; name a file that ends in .html"),
        (["-i", "a.html", "-o", "b.docx"], "--output: b.docx: html stays html; name a file that"),
        (["--document", "html", "-o", "b.md"], "b.md: html stays html; name a file that ends in"),
        (["--document", "html", "c.txt", "-o", "b.json"], "json: html stays html; name a file"),
        (["a cat", "-o", "b.pdf"], "--output: b.pdf: cannot be written; name a file of text"),
        (["-i", "c.txt", "-o", "b.pdf"], "b.pdf: cannot be written; name a file of text"),
        (["a.html.gz", "-o", "b.html"], "not read compressed; unpack it: gzip -dk a.html.gz"),
        (["-i", "a.html.gz"], "a.html.gz: documents are not read compressed"),
        (["d.html", "-o", "b.html"], "d.html: is a directory; name an existing file"),
        (["-i", "d.html", "-o", "b.html"], "d.html: is a directory; name a file"),
        (["hi", "a.html", "-o", "b.html"], "a.html: is a file, but this argument is text"),
        (["a.html", "-o", "b.html", "--buffer-lines", "9"], "--buffer-lines: lines have it, doc"),
        (["-i", "a.pdf"], "a.pdf: a PDF cannot be translated in place"),
        (["--document", "htlm"], "--document: unknown format htlm; did you mean html?"),
        (["--document", "html", "a", "b"], "--document: takes one file; name it once"),
        (["a.html", "-o", "b.html", "--n-best", "2", "--format", "tsv"], "lines have it"),
        (["a.html", "-o", "b.html", "--shard", "0/2"], "--shard: lines have it, documents do not"),
        (["a.html", "-o", "a.html"], "a.html is also the input (TEXT); name another file"),
        (["a.html", "-o", "b.html", "--summary", "b.html"], "b.html is also the output"),
        (["a.html", "-o", "no/b.html"], "no/b.html"),
        (["-i", "no.html", "-o", "b.html"], "no.html: no such file"),
        (["bad.html", "-o", "b.html"], "bad.html: is not text; save it as HTML in UTF-8"),
        (["a", "--summary", "s.json"], "--summary: documents have it, lines do not"),
        (["a", "--protect", "--format", "tsv", "--alignments", "soft"], "--alignments: does not"),
    ],
)  # fmt: skip
def test_what_is_refused(words, error, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.html").mkdir()
    page = PAGE.encode()
    files = {
        "a.pdf": b"%PDF-1.4",
        "a.html": page,
        "bad.html": b"PK\0",
        "a.html.gz": page,
        "c.txt": page,
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    before = {file: file.is_file() and file.read_bytes() for file in tmp_path.iterdir()}
    done = run("translate", model, *words)
    assert done.exit_code == 2, done.stdout
    assert error in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")
    after = {file: file.is_file() and file.read_bytes() for file in tmp_path.iterdir()}
    assert after == before


def test_a_document_is_read_before_the_model(model, page, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_bytes((model / "config.json").read_bytes())
    out = tmp_path / "b.html"
    assert "broken" in run("translate", broken, page, "-o", out).stderr
    page.write_bytes(b"PK\0")
    assert "a.html: is not text" in run("translate", broken, page, "-o", out).stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "written", "format_"),
    [("a.html", "b.htm", None), ("a.html", "b", None), ("a.page", "b.page", "html"),
     ("a.md", "b.md", "text")],
)  # fmt: skip
def test_endings_that_fit(name, written, format_, model, tmp_path):
    file = tmp_path / name
    file.write_text(PAGE)
    words = ["--document", format_] if format_ else []
    done = run("translate", model, file, "-o", tmp_path / written, *words, "-q")
    assert (done.exit_code, (tmp_path / written).exists()) == (0, True), done.stderr


def zip_files(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def documents(folder):
    """Writes a document of each kind of content."""
    (folder / "a.html").write_text(f"<!doctype html>{PAGE}")
    (folder / "a.json").write_text(json.dumps({"title": LINES[0]}))
    (folder / "b.json").write_text(json.dumps([LINES[0]]))
    (folder / "a.md").write_text(f"x = 1\n\n{LINES[0]}\n")
    (folder / "b.md").write_text(f"<svg></svg>\n\n{LINES[0]}\n")
    (folder / "a.txt").write_text(f"#!{LINES[0]}\n")
    (folder / "a.csv").write_text(f"id;c\n1;{LINES[0]}\n")
    (folder / "a.jsonl").write_text(json.dumps({"c": LINES[0]}) + "\n")
    (folder / "a.xlsx").write_bytes(workbook())
    (folder / "a.srt").write_text(f"1\n00:00:01,000 --> 00:00:02,000\n{LINES[0]}\n")
    body = f"<w:p><w:r><w:t>{LINES[0]}</w:t></w:r></w:p>"
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    types = "http://schemas.openxmlformats.org/package/2006/content-types"
    zip_files(
        folder / "a.docx",
        {
            "[Content_Types].xml": f'<Types xmlns="{types}"><Override PartName="/word/document.xml"'
            f' ContentType="{kind}"/></Types>',
            "word/document.xml": f'<w:document xmlns:w="{word}"><w:body>{body}</w:body>'
            "</w:document>",
        },
    )


@pytest.mark.parametrize(
    "name",
    [
        *("a.html", "a.json", "b.json", "a.md", "b.md", "a.txt", "a.srt", "a.docx"),
        *("a.csv", "a.jsonl", "a.xlsx"),
    ],
)
def test_the_same_command_again_replaces_its_document(model, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    documents(tmp_path)
    plain = () if name in ("a.md", "b.md", "a.txt") else ("out",)
    options = {"a.csv": ("--column", "c"), "a.xlsx": ("--column", "C"), "a.jsonl": ("--key", "c")}
    for output in (f"out{name[1:]}", *plain):
        for _ in range(2):
            done = run("translate", model, name, "-o", output, "-q", *options.get(name, ()))
            assert done.exit_code == 0, done.stderr
    # Not what is clearly something else, under a name that says nothing
    for other, content in (("r.toml", "[model]\nd_model = 8\n"), ("x.jpg", b"\xff\xd8\xff\0\0")):
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / other).write_bytes(data)
        refused = run("translate", model, name, "-o", other, "-q")
        assert refused.exit_code == 2
        assert (tmp_path / other).read_bytes() == data
    # Nor by lines, which are no document
    (tmp_path / "package.json").write_text('{"name": "mine"}')
    assert run("translate", model, "A man", "-o", "package.json").exit_code == 2


def test_front_matter_is_translated_on_request(model, tmp_path):
    text = "---\ntitle: A man\nid: a-man\n---\n\nA man\n"
    (tmp_path / "a.md").write_text(text)
    plain, asked = (
        run("translate", model, tmp_path / "a.md", "-q", *option).stdout.splitlines()
        for option in ((), ("--front-matter",))
    )
    assert plain[:4] == text.splitlines()[:4]
    assert asked[1] != plain[1]
    assert (asked[0], *asked[2:]) == (plain[0], *plain[2:])


@pytest.mark.parametrize("option", ["--front-matter", "--unwrap", "--fuzzy", "--no-header"])
def test_options_of_other_formats_are_refused(model, tmp_path, option):
    (tmp_path / "a.html").write_text("<p>A man</p>")
    refused = run("translate", model, tmp_path / "a.html", "-q", option)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: {option}: ")


def test_a_text_that_would_take_all_memory_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr("tformer_cli.cli.commands.document.MOST_CHARACTERS", 20)
    (tmp_path / "a.json").write_text('["short", "longer than twenty characters"]')
    done = run("translate", model, tmp_path / "a.json", "-o", tmp_path / "b.json")
    assert done.exit_code == 2
    assert "a.json: has a text of 29 characters, and at most 20 are translated" in done.stderr
    assert not (tmp_path / "b.json").exists()
