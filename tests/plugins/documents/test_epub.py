import io
import zipfile
from urllib.parse import unquote

import pytest

from tests.documents.making import list_texts, member, pack, read, translate
from tformer_cli.errors import DataError

XHTML = """<?xml version="1.0" encoding="utf-8"?>
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en"><head><title>One</title></head>
<body><p>The <em>old</em> house<br/></p></body></html>"""
NAV = """<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">
<body><nav epub:type="toc"><ol>
<li><a href="text/ch%201.xhtml">First</a></li></ol></nav></body></html>"""
NCX = """<?xml version="1.0"?>
<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">
<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/" xml:lang="en"><docTitle>
<text>The&#160;book</text></docTitle>
<navMap><navPoint id="a">
<navLabel><text> First </text></navLabel><content src="x"/></navPoint></navMap></ncx>"""
OPF = """<package xmlns="http://www.idpf.org/2007/opf" xml:lang='en' xmlns:dc="http://purl.org/dc/elements/1.1/">
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
    data = pack(MEMBERS)
    document = read("epub", data)
    assert list_texts(document.segments) == [
        *("One", ("The old house", (4, 7, "repeat"))),
        *("One", ("The old garden", (4, 7, "repeat"))),
        *("First", "The\xa0book", "First", "The book"),
    ]
    assert document.write(document.segments) == data
    assert document.write([None] * len(document.segments)) == data


def test_a_translated_book_opens():
    data = pack(MEMBERS)
    document = read("epub", data, target_language="de")
    output = translate(document, {"First": "Erstes & Letztes", "The book": "Das Buch"})
    with zipfile.ZipFile(io.BytesIO(output)) as book:
        first = book.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        assert output[30:58] == b"mimetypeapplication/epub+zip"
        assert book.namelist() == list(MEMBERS)
    assert "<text> Erstes &amp; Letztes </text>" in member(output, "Book/toc.ncx")
    assert "The&#160;book" in member(output, "Book/toc.ncx")
    assert '<a href="text/ch%201.xhtml">Erstes &amp; Letztes</a>' in member(
        output, "Book/nav.xhtml"
    )
    expected = OPF.replace("The book", "Das Buch").replace(">en<", ">de<").replace("'en'", "'de'")
    assert 'xml:lang="de"><docTitle>' in member(output, "Book/toc.ncx")
    assert member(output, "Book/a.opf") == expected


def lock_of(name):
    return f"""<encryption xmlns:enc="http://www.w3.org/2001/04/xmlenc#"><enc:EncryptedData>
    <enc:CipherData>
<enc:CipherReference URI="{name}"/></enc:CipherData></enc:EncryptedData></encryption>"""


def test_errors():
    fonts = {**MEMBERS, "META-INF/encryption.xml": lock_of("Book/a.otf")}
    assert len(read("epub", pack(fonts)).segments) == 8
    cases = {
        "a.epub: is protected by DRM": {
            **MEMBERS,
            "META-INF/encryption.xml": lock_of("Book/text/ch%202.xhtml"),
        },
        "a.epub: has no META-INF/container.xml; it is damaged or has another format": {"a": ""},
        "a.epub: has no Book/a.opf; it is damaged or has another format": {
            "META-INF/container.xml": CONTAINER
        },
        "a.epub: Book/toc.ncx: is damaged or not XML (line 1: no element found)": {
            **MEMBERS,
            "Book/toc.ncx": "<ncx>",
        },
    }
    for message, members in cases.items():
        with pytest.raises(DataError) as caught:
            read("epub", pack(members))
        assert str(caught.value) == message


def book(*items, metadata="", **members):
    """A book whose package stands in a folder; `items`: href, media type and content."""
    manifest = "".join(
        f'<item id="i{n}" href="{href}" media-type="{kind}"/>'
        for n, (href, kind, _) in enumerate(items)
    )
    spine = "".join(f'<itemref idref="i{n}"/>' for n in range(len(items)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
        f"{metadata}</metadata><manifest>{manifest}</manifest><spine>{spine}</spine></package>"
    )
    contents = {f"Book/{unquote(href)}": content for href, _, content in items}
    return pack(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": CONTAINER,
            "Book/a.opf": package,
            **contents,
            **members,
        }
    )


PAGE = "<html><body><p>The old house</p></body></html>"
CHAPTERS = {
    "of type text/html": ("a.html", "text/html", PAGE),
    "of a type in capitals": ("a.xhtml", "Application/XHTML+XML", PAGE),
    "of a type with a charset": ("a.xhtml", "application/xhtml+xml; charset=utf-8", PAGE),
    "of DAISY": ("a.xml", "application/x-dtbook+xml", f"<dtbook>{PAGE}</dtbook>"),
    "of OEB": ("a.htm", "text/x-oeb1-document", PAGE),
    "with CDATA": (
        "a.xhtml",
        "application/xhtml+xml",
        PAGE.replace("The old house", "<![CDATA[The old]]> house"),
    ),
    "with an encoded name": ("a%20b%C3%A9.xhtml", "application/xhtml+xml", PAGE),
    "with a fragment": ("a.xhtml#start", "application/xhtml+xml", PAGE),
    "drawn": ("a.svg", "image/svg+xml", "<svg><text>The old house</text></svg>"),
}


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapters(name):
    href, kind, content = CHAPTERS[name]
    data = book((href, kind, content)).replace(b"#start", b"#start")
    if "#" in href:
        data = book((href, kind, content), **{"Book/a.xhtml": content})
    document = read("epub", data)
    assert list_texts(document.segments) == ["The old house"]
    assert not document.skipped
    assert document.write([None]) == data
    again = read("epub", translate(document, {"The old house": "La vieille maison & l'autre"}))
    assert list_texts(again.segments) == ["La vieille maison & l'autre"]


def test_names_in_another_case():
    data = book(("A.XHTML", "application/xhtml+xml", PAGE))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    folded = {name.lower() if "A.X" in name else name: text for name, text in members.items()}
    assert list_texts(read("epub", pack(folded)).segments) == ["The old house"]


def test_chapters_of_other_types_are_counted():
    data = book(("a.pdf", "application/pdf", "%PDF"), ("b.xhtml", "application/xhtml+xml", PAGE))
    document = read("epub", data)
    assert list_texts(document.segments) == ["The old house"]
    assert document.skipped == {"chapter of type application/pdf": 1}


def test_metadata():
    metadata = (
        "<dc:title>The book</dc:title><dc:creator>Ann Poe</dc:creator>"
        "<dc:description>&lt;p&gt;It is &lt;b&gt;old&lt;/b&gt; &amp;amp; green.&lt;/p&gt;\n"
        "&lt;p class='x'&gt;Read it&lt;br/&gt;now&lt;/p&gt;</dc:description>"
        "<dc:description><![CDATA[<p>A <i>fine</i> one</p>]]></dc:description>"
    )
    data = book(metadata=metadata)
    document = read("epub", data)
    assert list_texts(document.segments) == [
        "The book",
        ("It is old & green.", (6, 9, "repeat")),
        "Read it",
        "now",
        ("A fine one", (2, 6, "repeat")),
    ]
    assert document.write([None] * 5) == data
    output = member(
        translate(document, {"Read it": "Lis <ça>", "A fine one": "Un bon <x>"}), "Book/a.opf"
    )
    assert "Lis &amp;lt;ça&amp;gt;&lt;br/&gt;" in output
    assert "<![CDATA[<p>Un<i> bon</i> &lt;x&gt;</p>]]>" in output


def test_the_author_in_the_contents_stays():
    ncx = NCX.replace("<navMap>", "<docAuthor><text>Ann</text></docAuthor><navMap>")
    data = pack({**MEMBERS, "Book/toc.ncx": ncx})
    assert "Ann" not in list_texts(read("epub", data).segments)


def test_ebooklib_reads_what_is_written(tmp_path):
    epub = pytest.importorskip("ebooklib.epub")
    book = epub.EpubBook()
    book.set_title("The book")
    chapter = epub.EpubHtml(title="One", file_name="one.xhtml")
    chapter.content = "<p>The old house</p>"
    book.add_item(chapter)
    book.toc, book.spine = [chapter], ["nav", chapter]
    book.add_item(epub.EpubNcx())
    book.add_item(epub.EpubNav())
    epub.write_epub(tmp_path / "a.epub", book)
    document = read("epub", (tmp_path / "a.epub").read_bytes())
    (tmp_path / "b.epub").write_bytes(translate(document, {"The old house": "La maison"}))
    again = epub.read_epub(tmp_path / "b.epub", {"ignore_ncx": True})
    assert b"<p>La maison</p>" in again.get_item_with_href("one.xhtml").get_content()
