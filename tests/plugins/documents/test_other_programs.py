"""Translated documents, opened by other programs."""

import shutil
import subprocess

import pytest

from tests.documents.making import member, pack, read, translate
from tests.plugins.documents import test_bilingual, test_epub, test_packages
from tests.plugins.documents.test_office import OPEN_DOCUMENT, WORD, docx, odt

OFFICE = shutil.which("soffice") or shutil.which("libreoffice")
XMLLINT = shutil.which("xmllint")


def upper(document):
    return translate(
        document, {segment.text: segment.text.upper() for segment in document.segments}
    )


DOCUMENTS = {
    "docx": pack(test_packages.PACKAGES["overrides"]),
    "odt": odt(OPEN_DOCUMENT["spans and spaces"][0]),
    "fodt": test_packages.FLAT.encode(),
}


@pytest.mark.slow
@pytest.mark.skipif(OFFICE is None, reason="there is no LibreOffice")
@pytest.mark.parametrize("name", ["docx", "fodt"])
def test_libreoffice_opens_it(name, tmp_path):
    (tmp_path / f"a.{name}").write_bytes(upper(read(name, DOCUMENTS[name])))
    command = [OFFICE, "--headless", f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"]
    command += ["--convert-to", "txt:Text", "--outdir", tmp_path, tmp_path / f"a.{name}"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert {"docx": "TEXT", "fodt": "A BOLD TEXT"}[name] in (tmp_path / "a.txt").read_text()


def xml_parts():
    """Translates documents and yields their XML parts."""
    data = upper(
        read("docx", docx("".join(text for text, _ in WORD.values() if "mc:" not in text)))
    )
    yield member(data, "word/0.xml").replace("<w:hyperlink r:", "<w:hyperlink ")
    yield member(upper(read("odt", DOCUMENTS["odt"])), "content.xml")
    book = upper(read("epub", pack(test_epub.MEMBERS)))
    for name in ("Book/a.opf", "Book/nav.xhtml", "Book/text/ch 1.xhtml"):
        yield member(book, name)
    yield upper(read("xliff", test_bilingual.XLIFF.encode())).decode()


@pytest.mark.parametrize("parser", ["lxml", "xmllint"])
def test_xml_is_well_formed(parser, tmp_path):
    parts = list(xml_parts())
    assert len(parts) == 6
    if parser == "lxml":
        etree = pytest.importorskip("lxml.etree")
        for text in parts:
            etree.fromstring(text.encode())
        return
    if XMLLINT is None:
        pytest.skip("there is no xmllint")
    for text in parts:
        (tmp_path / "a.xml").write_text(text, encoding="utf-8")
        subprocess.run([XMLLINT, "--noout", "--nonet", tmp_path / "a.xml"], check=True)


def test_odfpy_reads_what_is_written(tmp_path):
    opendocument = pytest.importorskip("odf.opendocument")
    from odf.teletype import extractText
    from odf.text import H, P

    original = opendocument.OpenDocumentText()
    original.text.addElement(H(outlinelevel=1, text="The old house"))
    original.text.addElement(P(text="It is green & old"))
    original.save(tmp_path / "a.odt")
    document = read("odt", (tmp_path / "a.odt").read_bytes())
    (tmp_path / "b.odt").write_bytes(translate(document, {"It is green & old": "Vert & vieux"}))
    again = opendocument.load(tmp_path / "b.odt")
    assert [extractText(element) for element in again.getElementsByType(P)] == ["Vert & vieux"]
    assert [extractText(element) for element in again.getElementsByType(H)] == ["The old house"]
