import io
import re
import struct
import zipfile
from dataclasses import replace

import pytest

from tests.documents.making import list_texts, member, pack, read, translate
from tformer_cli.errors import DataError
from tformer_cli.plugins.documents import archives

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
C = "http://schemas.openxmlformats.org/drawingml/2006/chart"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
WP = "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"
TYPE = "application/vnd.openxmlformats-officedocument."
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n'


def docx(body, **parts):
    """A Word document; `parts` are other parts by type, with underscores for dots."""
    contents = {f"wordprocessingml.{name.replace('_', '.')}": text for name, text in parts.items()}
    contents = {"wordprocessingml.document.main": body, **contents}
    members = {f"word/{number}.xml": text for number, text in enumerate(contents.values())}
    types = "".join(
        f'<Override PartName="/{name}" ContentType="{TYPE}{kind}+xml"/>'
        for name, kind in zip(members, contents, strict=True)
    )
    address = "http://schemas.openxmlformats.org/package/2006/content-types"
    return pack(
        {
            "[Content_Types].xml": f'{HEAD}<Types xmlns="{address}">{types}</Types>',
            "word/media/image1.png": b"\x89PNG\0\1",
            **{
                name: f'{HEAD}<w:x xmlns:w="{W}" xmlns:a="{A}" xmlns:c="{C}" '
                f'xmlns:p="{P}" xmlns:d="{WP}">{text}</w:x>'
                for name, text in members.items()
            },
        }
    )


def run(text, properties="", rsid=""):
    return f"<w:r{rsid}>{properties and f'<w:rPr>{properties}</w:rPr>'}<w:t>{text}</w:t></w:r>"


BOLD = "<w:b/>"


def p(*content):
    return f"<w:p>{''.join(content)}</w:p>"


def body(data, part="word/0.xml"):
    return re.search(r"<w:x [^>]*>(.*)</w:x>", member(data, part), re.DOTALL)[1]


def test_runs_that_look_the_same_are_one():
    paragraph = p(
        "<w:pPr><w:jc/></w:pPr>",
        run("Hel", '<w:lang w:val="en-US"/>', ' w:rsidR="1"'),
        '<w:proofErr w:type="spellStart"/>',
        run("lo ", "", ' w:rsidR="2"'),
        run("wor", BOLD),
        run("ld", BOLD + "<w:noProof/>"),
        run(" ", "<w:i/>"),
        run("again &amp; again"),
    )
    document = read("docx", docx(paragraph))
    assert list_texts(document.segments) == [("Hello world again & again", (6, 12, "repeat"))]
    (segment,) = document.segments
    moved = replace(
        segment, text="Welt & <hallo>", spans=(replace(segment.spans[0], start=0, end=4),)
    )
    first = '<w:r w:rsidR="1"><w:rPr><w:lang w:val="en-US"/></w:rPr>'
    assert body(document.write([moved])) == p(
        "<w:pPr><w:jc/></w:pPr>",
        run("Welt", BOLD),
        f'{first}<w:t xml:space="preserve"> &amp; &lt;hallo></w:t></w:r>',
    )


def test_hyphens_of_word_are_read_with_their_words():
    data = docx(
        p(
            "<w:r><w:t>A low</w:t><w:noBreakHyphen/><w:t>cost ho</w:t><w:softHyphen/></w:r>",
            run("use"),
            "<w:r><w:noBreakHyphen/></w:r>",
            run("boat"),
        )
        + p("<w:r><w:noBreakHyphen/></w:r>")
    )
    document = read("docx", data)
    assert list_texts(document.segments) == ["A low-cost house-boat", "-"]
    assert document.write([None, None]) == data
    output = document.write([replace(segment, text="Ein Boot") for segment in document.segments])
    assert body(output) == p("<w:r><w:t>Ein Boot</w:t></w:r>") * 2


FIELD = (
    '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> {} </w:instrText></w:r>'
    '<w:r><w:fldChar w:fldCharType="separate"/></w:r>{}<w:r><w:fldChar w:fldCharType="end"/></w:r>'
)
BOX = "<w:pict><w:txbxContent>" + p(run("In the box")) + "</w:txbxContent></w:pict>"
WORD = {
    "tab and break": (
        p("<w:r><w:t>One</w:t><w:tab/><w:t>two</w:t></w:r>", "<w:r><w:br/></w:r>", run("three")),
        [("One two three", (4, 4, "void"), (8, 8, "void"))],
    ),
    "choices": (
        p(
            "<w:sdt><w:sdtPr><w:dropDownList><w:listItem w:displayText='One' w:value='1'/>"
            f"</w:dropDownList></w:sdtPr><w:sdtContent>{run('Two')}</w:sdtContent></w:sdt>"
        ),
        ["Two", "One"],
    ),
    "link": (
        p(
            run("See "),
            f'<w:hyperlink r:id="7">{run("this page", "<w:u/>")}</w:hyperlink>',
            run("."),
        ),
        [("See this page.", (4, 13, "once"), (4, 13, "repeat"))],
    ),
    "all in a link": (p(f'<w:hyperlink r:id="7">{run("this page")}</w:hyperlink>'), ["this page"]),
    "content control": (
        p(f"<w:sdt><w:sdtPr><w:id/></w:sdtPr><w:sdtContent>{run('Choose')}</w:sdtContent></w:sdt>"),
        ["Choose"],
    ),
    "field": (
        p(
            run("Page "),
            FIELD.format("PAGE", run("3")),
            run(" of "),
            FIELD.format("NUMPAGES", run("9")),
        ),
        [("Page 3 of 9", (5, 6, "protected"), (10, 11, "protected"))],
    ),
    "simple field": (
        p(
            run("By "),
            f'<w:fldSimple w:instr="AUTHOR">{run("Ann Poe")}</w:fldSimple>',
            run(" in May"),
        ),
        [("By Ann Poe in May", (3, 10, "protected"))],
    ),
    "link by a field": (
        p(run("Go "), FIELD.format('HYPERLINK "x"', run("there", "<w:u/>")), run(" now")),
        [("Go there now", (3, 8, "once"), (3, 8, "repeat"))],
    ),
    "field over paragraphs": (
        p('<w:r><w:fldChar w:fldCharType="begin"/></w:r>', run("Contents")),
        ["Contents"],
    ),
    "deletion": (
        p(run("Kept"), "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>", run(" word")),
        [("Kept word", (4, 4, "void"))],
    ),
    "moved away": (p("<w:moveFrom>", run("was here"), "</w:moveFrom>"), []),
    "insertion": (
        p(run("A "), f"<w:ins>{run('new')}</w:ins>", run(" word")),
        [("A new word", (2, 5, "once"))],
    ),
    "bookmarks": (
        p(
            run("The "),
            '<w:bookmarkStart w:id="1"/>',
            run("old"),
            '<w:bookmarkEnd w:id="1"/>',
            run(" one"),
        ),
        [("The old one", (4, 7, "once"))],
    ),
    "bookmarks that cross": (
        p(
            *(
                run("a "),
                '<w:bookmarkStart w:id="1"/>',
                run("b "),
                '<w:commentRangeStart w:id="2"/>',
            ),
            *(run("c "), '<w:bookmarkEnd w:id="1"/>', run("d "), '<w:commentRangeEnd w:id="2"/>'),
            run("e"),
        ),
        [("a b c d e", (2, 6, "once"), (4, 4, "void"), (8, 8, "void"))],
    ),
    "footnote": (
        p(run("Said"), '<w:r><w:footnoteReference w:id="1"/></w:r>', run(" once.")),
        [("Said once.", (4, 4, "void"))],
    ),
    "text box, twice": (
        p(
            run("Before "),
            f"<w:r><mc:AlternateContent><mc:Choice>{BOX}</mc:Choice>"
            f"<mc:Fallback>{BOX}</mc:Fallback></mc:AlternateContent></w:r>",
            run("after"),
        ),
        [("Before after", (7, 7, "void")), "In the box", "In the box"],
    ),
    "table": (f"<w:tbl><w:tc>{p(run('Cell'))}</w:tc><w:tc>{p(run(' '))}</w:tc></w:tbl>", ["Cell"]),
    "chart": (
        (
            "<c:strCache><c:pt><c:v>Year &lt; 9</c:v></c:pt></c:strCache>"
            "<c:numCache><c:pt><c:v>3</c:v></c:pt></c:numCache>"
        ),
        ["Year < 9"],
    ),
    "slide": (
        (
            "<a:p><a:r><a:rPr lang='en'/><a:t>On the</a:t></a:r><a:br/>"
            "<a:r><a:rPr lang='fr'/><a:t>slide</a:t></a:r>"
            "<a:fld type='slidenum'><a:t>4</a:t></a:fld><a:endParaRPr/></a:p>"
        ),
        [("On the slide4", (7, 7, "void"), (12, 13, "protected"))],
    ),
}


@pytest.mark.parametrize("name", WORD)
def test_what_is_text_and_what_is_markup(name):
    content, expected = WORD[name]
    data = docx(content)
    document = read("docx", data)
    assert list_texts(document.segments) == expected
    assert document.write(document.segments) == data
    assert document.write([None] * len(document.segments)) == data
    again = document.write(
        [replace(segment, text=segment.text.swapcase()) for segment in document.segments]
    )
    if "protected" not in str(expected):
        assert str(list_texts(read("docx", again).segments)).lower() == str(expected).lower()
        assert again != data or not expected

    # the same elements, except runs
    def elements(text):
        tags = re.findall(r"<(?!/?[wa]:(?:r|t|rPr|proofErr)\b)[^>]*>", text)
        return sorted(tag.lower() for tag in tags)

    assert elements(body(again)) == elements(content)


def test_translations_stand_in_the_runs_of_the_original():
    document = read("docx", docx(WORD["text box, twice"][0]))
    data = translate(document, {"Before after": "Avant après", "In the box": "Dans la boîte"})
    box = BOX.replace("In the box", "Dans la boîte")
    assert body(data).count(box) == 2
    assert f"{run('Avant a')}<w:r><mc:Alt" in body(data)
    document = read("docx", docx(WORD["tab and break"][0]))
    (segment,) = document.segments
    spans = (segment.spans[0], replace(segment.spans[1], start=9, end=9))
    assert body(document.write([replace(segment, text="Eins und zwei", spans=spans)])) == p(
        "<w:r><w:t>Eins</w:t><w:tab/><w:t>und</w:t></w:r><w:r><w:br/></w:r>", run("zwei")
    )


def test_a_picture_is_described_in_the_other_language():
    drawing = "<w:r><w:drawing><d:docPr id='1' name=' descr=\"no\"' {}/></w:drawing></w:r>"
    cat = drawing.format("title='Cat' descr='Tom&#39;s &quot;cat&quot;&#xA;sleeps'")
    slide = '<p:cNvPr descr="A cat" id="2"/><p:cNvPr descr=" " id="3"/>'
    document = read("docx", docx(p(cat) + p(run("See "), cat, run("there")), slide=slide))
    described = ["Cat", 'Tom\'s "cat"\nsleeps']
    see = ("See there", (4, 4, "void"))
    assert list_texts(document.segments) == [*described, see, *described, "A cat"]
    output = translate(
        document,
        {
            "See there": "SIEH DA",
            "Cat": "<Kater>",
            described[1]: "Toms 'Katze'\nruht",
            "A cat": '"x"',
        },
    )
    cat = drawing.format("title='&lt;Kater>' descr='Toms &#39;Katze&#39;&#xA;ruht'")
    last = run(" DA").replace("<w:t>", '<w:t xml:space="preserve">')
    assert body(output) == p(cat) + p(run("SIEH"), cat, last)
    assert body(output, "word/1.xml") == slide.replace("A cat", "&quot;x&quot;")


def test_parts_are_found_by_their_types():
    parts = {
        name: p(run(name))
        for name in ("header", "footer", "footnotes", "endnotes", "comments", "styles", "settings")
    }
    document = read("docx", docx(p(run("Text")), **parts))
    assert list_texts(document.segments) == [
        *("Text", "header", "footer", "footnotes", "endnotes", "comments")
    ]


def test_the_language_is_told():
    language = '<w:rPr><w:lang w:val="en-US" w:eastAsia="zh-CN"/></w:rPr>'
    data = docx(p(run("Text", '<w:lang w:val="en-US"/>')), styles=language)
    document = read("docx", data, target_language="pt_BR")
    assert document.write([None]) == data
    output = translate(document, {"Text": "Texto"})
    assert body(output) == p(run("Texto", '<w:lang w:val="pt-BR"/>'))
    assert body(output, "word/1.xml") == language.replace("en-US", "pt-BR")


def test_any_prefix_and_encoding():
    head = '<?xml version="1.0" encoding="utf-16"?>'
    text = f'{head}<n:x xmlns:n="{W}"><n:p><n:r><n:t>Caf\u00e9</n:t></n:r></n:p></n:x>'
    data = docx(p(run("x")))
    archive = archives.Archive(data, "a")
    data = archive.rewrite({"word/0.xml": b"\xff\xfe" + text.encode("utf-16-le")})
    document = read("docx", data)
    assert list_texts(document.segments) == ["Caf\u00e9"]
    output = translate(document, {"Caf\u00e9": "\u041a\u043e\u0444\u0435"})
    with zipfile.ZipFile(io.BytesIO(output)) as unpacked:
        assert unpacked.read("word/0.xml").decode("utf-16") == text.replace(
            "Caf\u00e9", "\u041a\u043e\u0444\u0435"
        )


OFFICE = "urn:oasis:names:tc:opendocument:xmlns:"


def odt(content, **more):
    names = ("office", "text", "drawing", "style", "svg-compatible", "xsl-fo-compatible")
    spaces = "".join(
        f' xmlns:{name.split("-")[-2 if "xsl" in name else 0]}="{OFFICE}{name}:1.0"'
        for name in names
    )
    return pack(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"{HEAD}<office:x{spaces}>{content}</office:x>",
            "META-INF/manifest.xml": "<manifest/>",
            **more,
        }
    )


OPEN_DOCUMENT = {
    "spans and spaces": (
        '<text:p>A <text:span a="b">bold</text:span>\n   word<text:s text:c="2"/>here</text:p>',
        [("A bold word here", (2, 6, "repeat"), (12, 12, "void"))],
    ),
    "link": ('<text:h><text:a href="x">Title</text:a></text:h>', ["Title"]),
    "note": (
        (
            "<text:p>One<text:note><text:note-citation>1</text:note-citation><text:note-body>"
            "<text:p>Deep</text:p></text:note-body></text:note> two.</text:p>"
        ),
        [("One two.", (3, 3, "void")), "Deep"],
    ),
    "deletion": (
        (
            "<text:tracked-changes><text:deletion><text:p>Gone</text:p></text:deletion>"
            "</text:tracked-changes><text:p>A<text:change change-id='1'/> b</text:p>"
        ),
        [("A b", (1, 1, "void"))],
    ),
    "field": (
        "<text:p>Page <text:page-number>3</text:page-number> of it</text:p>",
        [("Page 3 of it", (5, 6, "protected"))],
    ),
    "image": (
        "<text:p>A<draw:frame><svg:title>Photo</svg:title></draw:frame>b</text:p>",
        [("Ab", (1, 1, "void")), "Photo"],
    ),
    "comment": ("<text:p>A<!-- <b> --> b</text:p>", [("A b", (1, 1, "void"))]),
    "characters": ("<text:p><![CDATA[a < b]]> &amp;&#x2014;&quot;</text:p>", ['a < b &\u2014"']),
}


@pytest.mark.parametrize("name", OPEN_DOCUMENT)
def test_open_document(name):
    content, expected = OPEN_DOCUMENT[name]
    data = odt(content)
    document = read("odt", data)
    assert list_texts(document.segments) == expected
    assert document.write(document.segments) == data


def test_open_document_is_written_with_its_references():
    document = read("odt", odt("<text:p>a&#x2014;b &gt; &quot;c&quot;</text:p>"))
    output = translate(document, {'a\u2014b > "c"': '"d" > e\u2014f & g'})
    assert "<text:p>&quot;d&quot; &gt; e&#x2014;f &amp; g</text:p>" in member(output, "content.xml")


def headers(data):
    """Name, date, flags, method, attributes and packed bytes of each member in order."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            sizes = struct.unpack_from("<2H", data, info.header_offset + 26)
            start = info.header_offset + 30 + sum(sizes)
            raw = data[start : start + info.compress_size]
            yield info.filename, info.date_time, info.compress_type, info.external_attr, raw


def test_other_members_are_copied():
    data = b"#!/bin/sh\n" + odt("<text:p>Text</text:p>", Thumbnail=b"\x89PNG" * 999)
    document = read("odt", data)
    output = translate(document, {"Text": "Texte"})
    before, after = list(headers(data)), list(headers(output))
    assert output.startswith(b"#!/bin/sh\nPK")
    assert [entry[:4] for entry in before] == [entry[:4] for entry in after]
    assert [entry[0] for entry, other in zip(before, after, strict=True) if entry != other] == [
        "content.xml"
    ]


def test_a_member_with_its_sizes_behind_it_is_replaced():
    stream = io.BytesIO()

    class Pipe:
        write, flush = stream.write, stream.flush

    with zipfile.ZipFile(Pipe(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a", "content.xml", "b"):
            with archive.open(name, "w", force_zip64=True) as file:
                file.write(name.encode())
    archive = archives.Archive(stream.getvalue(), "x.odt")
    output = archive.rewrite({"content.xml": b"other"})
    assert [member(output, name) for name in ("a", "content.xml", "b")] == ["a", "other", "b"]


def cut_half(data):
    return data[: len(data) // 2]


def encrypt(data):
    # the flag is in the header and in the directory
    data = bytearray(data)
    for match in re.finditer(rb"PK\x01\x02", bytes(data)):
        data[match.start() + 8] |= 1
    return bytes(data)


def damaged_member(data):
    place = data.index(b"content.xml") + len("content.xml") + 5
    return data[:place] + b"\xff\xff\xff" + data[place + 3 :]


DTD = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
DAMAGED = {
    "no zip": (b"%PDF-1.4", "a.odt: is damaged or not a zip archive (File is not a zip file)"),
    "cut": (cut_half(odt("<text:p/>")), "a.odt: is damaged or not a zip archive"),
    "old": (b"\xd0\xcf\x11\xe0" + bytes(600), "a.odt: is in an old format or has a password"),
    "other": (pack({"a": "b"}), "a.odt: has no content.xml; it is damaged or has another format"),
    "checksum": (
        damaged_member(odt("<text:p>a</text:p>")),
        "a.odt: its member content.xml is damaged (",
    ),
    "password": (encrypt(odt("<text:p/>")), "a.odt: has a password; save it without one"),
    "open": (odt("<text:p>"), "a.odt: content.xml: is damaged or not XML (line 2: mismatched tag)"),
    "bomb": (
        pack({"content.xml": f"{DTD}<x>&b;</x>", "META-INF/manifest.xml": ""}),
        "a.odt: content.xml: defines its own entities (in a DTD), which is not allowed",
    ),
    "external": (
        pack(
            {
                "content.xml": '<!DOCTYPE x [<!ENTITY a SYSTEM "/etc/passwd">]><x>&a;</x>',
                "META-INF/manifest.xml": "",
            }
        ),
        "a.odt: content.xml: defines its own entities (in a DTD), which is not allowed",
    ),
    "deep": (
        odt("<a>" * 300 + "</a>" * 300),
        "a.odt: content.xml: has elements nested more than 200",
    ),
    "encoding": (
        pack({"content.xml": b"<x>\xff</x>", "META-INF/manifest.xml": ""}),
        "a.odt: content.xml: is damaged or not XML (line 1: not well-formed (invalid token))",
    ),
    "unknown encoding": (
        pack(
            {"content.xml": '<?xml version="1.0" encoding="x-y"?><x/>', "META-INF/manifest.xml": ""}
        ),
        "a.odt: content.xml: ",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused_in_a_line(name):
    data, message = DAMAGED[name]
    with pytest.raises(DataError) as caught:
        read("odt", data)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_limits(monkeypatch):
    data = odt(f"<text:p>{'a' * 5000}</text:p>")
    assert len(data) < 1500
    monkeypatch.setattr(archives, "LARGEST_PART", 5000)
    with pytest.raises(DataError, match=r"^a.odt: is too large when unpacked \(content.xml\)$"):
        read("odt", data)
    monkeypatch.undo()
    monkeypatch.setattr(archives, "MOST_MEMBERS", 2)
    with pytest.raises(DataError, match=r"^a.odt: has more than 2 members$"):
        read("odt", data)


def test_names_in_archives_reach_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outside = tmp_path.parent / "outside.xml"
    data = odt("<text:p>Text</text:p>", **{"../outside.xml": "<x/>", "/etc/x/content.xml": "<x/>"})
    output = translate(read("odt", data), {"Text": "Texte"})
    assert member(output, "../outside.xml") == "<x/>"
    assert not outside.exists()
    assert not list(tmp_path.iterdir())
