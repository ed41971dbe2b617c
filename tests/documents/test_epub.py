import io
import zipfile

import pytest

from tests.documents.making import member, packed, read, shown, translated
from tformer_cli.errors import DataError

XHTML = """<?xml version="1.0" encoding="utf-8"?>
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en"><head><title>One</title></head>
<body><p>The <em>old</em> house<br/></p></body></html>"""
NAV = """<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">
<body><nav epub:type="toc"><ol>
<li><a href="text/ch%201.xhtml">First</a></li></ol></nav></body></html>"""
NCX = """<?xml version="1.0"?>
<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">
<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><docTitle><text>The&#160;book</text></docTitle>
<navMap><navPoint id="a">
<navLabel><text> First </text></navLabel><content src="x"/></navPoint></navMap></ncx>"""
OPF = """<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">
<metadata><dc:title id="t">The book</dc:title><dc:language>en</dc:language></metadata>
<manifest><item id="n" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="2" href="text/ch%202.xhtml" media-type="application/xhtml+xml"/>
<item id="1" href="text/../text/ch%201.xhtml" media-type="application/xhtml+xml"/>
<item id="w" href="https://example.org/a.xhtml" media-type="application/xhtml+xml"/>
<item id="c" href="toc.ncx" media-type="application/x-dtbncx+xml"/>
<item id="s" href="a.css" media-type="text/css"/></manifest>
<spine toc="c"><itemref idref="1"/><itemref idref="2"/></spine></package>"""
CONTAINER = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="Book/a.opf"
 media-type="application/oebps-package+xml"/></rootfiles></container>"""
MEMBERS = {
    "mimetype": "application/epub+zip",
    "Book/a.css": "p {}",
    "Book/text/ch 2.xhtml": XHTML.replace("house", "garden"),
    "Book/text/ch 1.xhtml": XHTML,
    "Book/toc.ncx": NCX,
    "Book/nav.xhtml": NAV,
    "META-INF/container.xml": CONTAINER,
    "Book/a.opf": OPF,
}


def test_chapters_come_in_their_order():
    data = packed(MEMBERS)
    document = read("epub", data)
    assert shown(document.segments) == [
        *("One", ("The old house", (4, 7, "repeat"))),
        *("One", ("The old garden", (4, 7, "repeat"))),
        *("First", "The\xa0book", "First", "The book"),
    ]
    assert document.write(document.segments) == data
    assert document.write([None] * len(document.segments)) == data


def test_a_translated_book_opens():
    data = packed(MEMBERS)
    document = read("epub", data, target_language="de")
    made = translated(document, {"First": "Erstes & Letztes", "The book": "Das Buch"})
    with zipfile.ZipFile(io.BytesIO(made)) as book:
        first = book.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        assert made[30:58] == b"mimetypeapplication/epub+zip"
        assert book.namelist() == list(MEMBERS)
    assert "<text> Erstes &amp; Letztes </text>" in member(made, "Book/toc.ncx")
    assert "The&#160;book" in member(made, "Book/toc.ncx")
    assert '<a href="text/ch%201.xhtml">Erstes &amp; Letztes</a>' in member(made, "Book/nav.xhtml")
    expected = OPF.replace("The book", "Das Buch").replace(">en<", ">de<")
    assert member(made, "Book/a.opf") == expected


def locked(name):
    return f"""<encryption xmlns:enc="http://www.w3.org/2001/04/xmlenc#"><enc:EncryptedData>
    <enc:CipherData>
<enc:CipherReference URI="{name}"/></enc:CipherData></enc:EncryptedData></encryption>"""


def test_errors():
    fonts = {**MEMBERS, "META-INF/encryption.xml": locked("Book/a.otf")}
    assert len(read("epub", packed(fonts)).segments) == 8
    cases = {
        "a.epub: is locked for other programs (DRM)": {
            **MEMBERS,
            "META-INF/encryption.xml": locked("Book/text/ch%202.xhtml"),
        },
        "a.epub: has no META-INF/container.xml; it is damaged or of another format": {"a": ""},
        "a.epub: has no Book/a.opf; it is damaged or of another format": {
            "META-INF/container.xml": CONTAINER
        },
        "a.epub: Book/toc.ncx: is damaged or not XML (line 1: no element found)": {
            **MEMBERS,
            "Book/toc.ncx": "<ncx>",
        },
    }
    for message, members in cases.items():
        with pytest.raises(DataError) as caught:
            read("epub", packed(members))
        assert str(caught.value) == message
