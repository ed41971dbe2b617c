"""Office packages as programs write them: parts found, and parts counted as skipped."""

import io

import pytest

from tests.documents.making import list_texts, member, pack, read, translate
from tests.plugins.documents.test_office import HEAD, OFFICE, A, P, W, odt
from tformer_cli.errors import DataError

TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
KINDS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"
STRICT = "http://purl.oclc.org/ooxml/officeDocument/relationships/"
TYPE = "application/vnd.openxmlformats-officedocument."
MAIN = f"{TYPE}wordprocessingml.document.main+xml"
HEADER = f"{TYPE}wordprocessingml.header+xml"
XML = "application/xml"
RELS = 'Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"'


def part(text, name="document", space=W, prefix="w"):
    return (
        f'{HEAD}<{prefix}:{name} xmlns:{prefix}="{space}"><{prefix}:p><{prefix}:r><{prefix}:t>'
        f"{text}</{prefix}:t></{prefix}:r></{prefix}:p></{prefix}:{name}>"
    )


def relations(*targets, kinds=KINDS, more=""):
    elements = (
        f'<Relationship Id="r{n}" Type="{kinds}{kind}" Target="{target}"{more}/>'
        for n, (kind, target) in enumerate(targets)
    )
    return f'{HEAD}<Relationships xmlns="{RELATIONS}">{"".join(elements)}</Relationships>'


def types(*entries):
    return f'{HEAD}<Types xmlns="{TYPES}"><Default {RELS}/>{"".join(entries)}</Types>'


def default(ending, kind):
    return f'<Default Extension="{ending}" ContentType="{kind}"/>'


def override(name, kind):
    return f'<Override PartName="{name}" ContentType="{kind}"/>'


DOCUMENT = {"word/document.xml": part("Text"), "word/header1.xml": part("Top", "hdr")}
TO_MAIN = relations(("officeDocument", "word/document.xml"))
TO_HEADER = relations(("header", "header1.xml"))
BOTH = override("/word/document.xml", MAIN) + override("/word/header1.xml", HEADER)


def members(content_types, root=TO_MAIN, inner=TO_HEADER, **more):
    return {
        "[Content_Types].xml": content_types,
        "_rels/.rels": root,
        **DOCUMENT,
        "word/_rels/document.xml.rels": inner,
        **more,
    }


def rename_members(names, files):
    return {names.get(name, name): content for name, content in files.items()}


PACKAGES = {
    "overrides": members(types(default("xml", XML), BOTH)),
    "a default for the main part": members(
        types(default("xml", MAIN), override("/word/header1.xml", HEADER))
    ),
    "an ending in capitals": members(
        types(default("XML", MAIN), override("/word/header1.xml", HEADER))
    ),
    "names in another case": members(types(BOTH.upper().replace("OVERRIDE", "Override"))).copy(),
    "no types, only relationships": members(types(default("xml", XML))),
    "types in capitals and with parameters": members(
        types(
            override("/word/document.xml", f"{MAIN.upper()}; charset=utf-8"),
            override("/word/header1.xml", f" {HEADER} "),
        ),
        relations(),
        relations(),
    ),
    "absolute targets": members(
        types(default("xml", XML)),
        relations(("officeDocument", "/word/document.xml")),
        relations(("header", "/word/header1.xml")),
    ),
    "targets with dots": members(
        types(default("xml", XML)),
        relations(("officeDocument", "./word/../word/document.xml")),
        relations(("header", "../word/./header1.xml#a")),
    ),
    "strict relationships": members(
        types(default("xml", XML)),
        relations(("officeDocument", "word/document.xml"), kinds=STRICT),
        relations(("header", "header1.xml"), kinds=STRICT),
    ),
    "percent-encoded names": rename_members(
        {
            "word/document.xml": "word/my%20text.xml",
            "word/_rels/document.xml.rels": "word/_rels/my%20text.xml.rels",
        },
        members(types(override("/word/my%20text.xml", MAIN), default("xml", HEADER))),
    ),
    "names decoded in the archive": rename_members(
        {"word/document.xml": "word/té xt.xml"},
        members(types(override("/word/t%C3%A9%20xt.xml", MAIN), default("xml", HEADER))),
    ),
    "another prefix and quotes": members(
        types(BOTH)
        .replace('"', "'")
        .replace("<?xml version='1.0' encoding='UTF-8' standalone='yes'?>", "")
        .replace("xmlns=", "xmlns:ct=")
        .replace("<Types", "<ct:Types")
        .replace("</Types", "</ct:Types")
        .replace("<Default", "<ct:Default")
        .replace("<Override", "<ct:Override")
    ),
    "backslashes": rename_members(
        {"word/document.xml": "word\\document.xml", "word/header1.xml": "word\\header1.xml"},
        members(types(BOTH)),
    ),
    "types in another case": rename_members(
        {"[Content_Types].xml": "[content_types].xml"}, members(types(BOTH))
    ),
    "other names of parts": rename_members(
        {
            "word/document.xml": "a/b.c",
            "word/header1.xml": "x.y",
            "word/_rels/document.xml.rels": "a/_rels/b.c.rels",
        },
        members(
            types(default("c", XML), default("y", XML)),
            relations(("officeDocument", "a/b.c")),
            relations(("header", "../x.y")),
        ),
    ),
}
PACKAGES["names in another case"]["[Content_Types].xml"] = types(
    override("/Word/DOCUMENT.xml", MAIN), override("/WORD/Header1.XML", HEADER)
)


@pytest.mark.parametrize("name", PACKAGES)
def test_parts_are_found(name):
    data = pack(PACKAGES[name])
    document = read("docx", data)
    assert list_texts(document.segments) == ["Text", "Top"]
    assert not document.skipped
    assert document.write([None, None]) == data
    output = translate(document, {"Text": "Texte"})
    assert list_texts(read("docx", output).segments) == ["Texte", "Top"]


def test_a_package_without_a_main_part_is_refused():
    data = pack(members(types(default("xml", XML)), relations()))
    with pytest.raises(
        DataError, match=r"^a\.docx: has no main part; it is damaged or has another"
    ):
        read("docx", data)
    sheet = types(override("/word/document.xml", f"{TYPE}spreadsheetml.sheet.main+xml"))
    with pytest.raises(DataError, match=r"^a\.docx: is a spreadsheet; rename it to \.xlsx$"):
        read("docx", pack(members(sheet)))


def chunk(ending, kind, content):
    data = members(
        types(BOTH, default(ending, kind)),
        inner=relations(("header", "header1.xml"), ("aFChunk", f"/word/chunk.{ending}")),
    )
    return pack({**data, f"word/chunk.{ending}": content})


CHUNKS = {
    "html": ("html", "text/html", "<p>In the <b>chunk</b></p>", ["In the chunk"], 0),
    "xhtml": ("xht", "application/xhtml+xml", "<p>Chunk</p>", ["Chunk"], 0),
    "text": ("txt", "text/plain", "A line\n", ["A line"], 0),
    "docx": ("docx", MAIN, pack(members(types(BOTH))), ["Text", "Top"], 0),
    "rtf": ("rtf", "application/rtf", r"{\rtf1 Text}", [], 1),
    "mht": ("mht", "message/rfc822", "MIME-Version: 1.0\n\n<p>Text</p>", [], 1),
    "damaged": ("docx", MAIN, "no archive", [], 1),
    "docx in docx": (
        "docx",
        MAIN,
        chunk("docx", MAIN, pack(members(types(BOTH)))),
        ["Text", "Top"],
        1,
    ),
}


@pytest.mark.parametrize("name", CHUNKS)
def test_documents_that_word_takes_in(name):
    ending, kind, content, texts, n_skipped = CHUNKS[name]
    data = chunk(ending, kind, content)
    document = read("docx", data)
    assert [segment.text for segment in document.segments] == ["Text", "Top", *texts]
    assert document.skipped["embedded document (altChunk)"] == n_skipped
    assert document.write([None] * len(document.segments)) == data
    if texts:
        output = translate(document, {texts[0]: "Other"})
        again = [segment.text for segment in read("docx", output).segments]
        assert "Other" in again
        assert texts[0] not in again[2:]


def test_what_is_not_read_is_counted():
    inner = relations(
        ("package", "embeddings/a.xlsx"),
        ("oleObject", "embeddings/b.bin"),
        ("oleObject", "embeddings/c.bin"),
        ("glossaryDocument", "glossary/document.xml"),
        ("chart", "charts/chart1.xml"),
    )
    outside = relations(("oleObject", "file:///a.xls"), more=' TargetMode="External"')
    data = pack(
        {
            **members(
                types(
                    BOTH,
                    default("xlsx", "x/y"),
                    override("/word/charts/chart1.xml", f"{TYPE}drawingml.chart+xml"),
                    default("xml", XML),
                ),
                inner=inner,
            ),
            "word/embeddings/a.xlsx": "PK",
            "word/embeddings/b.bin": "x",
            "word/embeddings/c.bin": "x",
            "word/embeddings/chart.xlsx": "x",
            "word/glossary/document.xml": part("Click here"),
            "word/charts/chart1.xml": part("Sales", "x", A, "a"),
            "word/charts/_rels/chart1.xml.rels": relations(("package", "../embeddings/chart.xlsx")),
            "word/_rels/header1.xml.rels": outside,
        }
    )
    document = read("docx", data)
    assert [segment.text for segment in document.segments] == ["Text", "Top", "Sales"]
    assert document.skipped == {
        "embedded document": 1,
        "embedded object": 2,
        "collection of building blocks": 1,
    }


def word(body):
    return pack({**members(types(BOTH)), "word/document.xml": body})


RUBY = (
    "<w:r><w:ruby><w:rt><w:r><w:t>a</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>b</w:t></w:r>"
    "</w:rubyBase></w:ruby></w:r>"
)
COUNTED = {
    "text in w:strange": "<w:strange><w:r><w:t>inside</w:t></w:r></w:strange>",
    "text in mc:AlternateContent": (
        "<mc:AlternateContent><mc:Choice><w:r><w:t>x</w:t></w:r></mc:Choice></mc:AlternateContent>"
    ),
    "text in w:ruby": RUBY,
}


@pytest.mark.parametrize("kind", COUNTED)
def test_text_that_cannot_be_placed_is_counted(kind):
    content = f"A</w:t></w:r>{COUNTED[kind]}<w:oMath/><w:r><w:t>C"
    data = word(part(content).replace("<w:p>", '<w:p xmlns:mc="urn:mc">', 1))
    document = read("docx", data)
    assert document.segments[0].text == "AC"
    assert document.skipped == {kind: 1}
    output = translate(document, {"AC": "CA"})
    assert COUNTED[kind] in member(output, "word/document.xml")


def test_text_outside_of_paragraphs_is_counted():
    loose = part("Loose").replace("<w:p>", "<w:x>").replace("</w:p>", "</w:x>")
    assert read("docx", word(loose)).skipped == {"text outside of paragraphs": 1}
    assert not read("docx", word(part(" "))).skipped


@pytest.mark.parametrize("space", [W, "http://purl.oclc.org/ooxml/wordprocessingml/main"])
@pytest.mark.parametrize("prefix", ["w", "ns0", "x-1"])
def test_prefixes_and_strict_documents(space, prefix):
    data = word(part("Strict", space=space, prefix=prefix))
    document = read("docx", data)
    assert list_texts(document.segments) == ["Strict", "Top"]
    output = translate(document, {"Strict": "Other"})
    assert f"<{prefix}:t>Other</{prefix}:t>" in member(output, "word/document.xml")


@pytest.mark.parametrize(
    "text",
    [
        "<text:p>See {} there</text:p>",
        "<text:p>See <text:span>there {}</text:span>again</text:p>",
        "<text:p>See <text:span>{} there</text:span></text:p>",
    ],
)
def test_an_image_between_blanks_keeps_them_and_its_title(text):
    text = text.format("<draw:frame><svg:title>A cat</svg:title></draw:frame>")
    document = read("odt", odt(text))
    words = {"See there": "Vus xxxxx", "See there again": "Vus xxxxx again", "A cat": "Un chat"}
    output = member(translate(document, words), "content.xml")
    expected = text.replace("See", "Vus").replace("there", "xxxxx").replace("A cat", "Un chat")
    assert output[output.index("<text:p>") :].startswith(expected)


MASTER = (
    f'<p:sldMaster xmlns:p="{P}" xmlns:a="{A}"><p:sp><p:nvSpPr><p:nvPr><p:ph type="title"/>'
    "</p:nvPr></p:nvSpPr><a:p><a:r><a:t>Click to edit</a:t></a:r></a:p></p:sp>"
    "<p:sp><p:nvSpPr><p:nvPr/></p:nvSpPr><a:p><a:r><a:t>Our firm</a:t></a:r></a:p></p:sp>"
    "</p:sldMaster>"
)


def test_masters_have_prompts_and_text():
    main = f"{TYPE}presentationml.presentation.main+xml"
    data = pack(
        {
            "[Content_Types].xml": types(
                override("/ppt/presentation.xml", main),
                override("/ppt/master.xml", f"{TYPE}presentationml.slideMaster+xml"),
                override("/ppt/layout.xml", f"{TYPE}presentationml.slideLayout+xml"),
            ),
            "ppt/presentation.xml": f'<p:presentation xmlns:p="{P}"/>',
            "ppt/master.xml": MASTER,
            "ppt/layout.xml": MASTER.replace("Our firm", "Draft"),
        }
    )
    assert list_texts(read("pptx", data).segments) == ["Our firm", "Draft"]


def test_titles_of_documents():
    core = (
        f'{HEAD}<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/'
        'metadata/core-properties" xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The house'
        "</dc:title><dc:creator>Ann</dc:creator><cp:keywords>old, green</cp:keywords>"
        "<dc:description/></cp:coreProperties>"
    )
    kind = "application/vnd.openxmlformats-package.core-properties+xml"
    data = pack(
        {**members(types(BOTH, override("/docProps/core.xml", kind))), "docProps/core.xml": core}
    )
    document = read("docx", data)
    assert list_texts(document.segments) == ["Text", "Top", "The house", "old, green"]
    output = translate(document, {"The house": "La maison"})
    assert member(output, "docProps/core.xml") == core.replace("The house", "La maison")


def test_other_attributes_with_text():
    extra = (
        '</w:t></w:r></w:p><w:tbl><w:tblPr><w:tblCaption w:val="Sales"/></w:tblPr></w:tbl><w:pict>'
        '<x:shape xmlns:x="urn:schemas-microsoft-com:vml" alt="A cat"><x:textpath string="DRAFT"/>'
        "</x:shape></w:pict><w:p><w:r><w:t>"
    )
    data = pack({**members(types(BOTH)), "word/document.xml": part(extra)})
    assert list_texts(read("docx", data).segments) == ["Sales", "A cat", "DRAFT", "Top"]


def test_forms():
    entries = '<w:ddList><w:listEntry w:val="Red"/></w:ddList>'
    field = f'<w:fldChar w:fldCharType="begin"><w:ffData>{entries}</w:ffData></w:fldChar>'
    choice = '<w:sdt><w:sdtPr><w:listItem w:displayText="Green" w:value="1"/></w:sdtPr></w:sdt>'
    data = word(part(f"A</w:t></w:r></w:p><w:p><w:r>{field}</w:r></w:p>{choice}<w:p><w:r><w:t>B"))
    document = read("docx", data)
    assert list_texts(document.segments) == ["A", "Red", "Green", "B", "Top"]
    output = translate(document, {"Red": "Rouge", "Green": "Vert"})
    expected = (
        member(data, "word/document.xml").replace('"Red"', '"Rouge"').replace("Green", "Vert")
    )
    assert member(output, "word/document.xml") == expected
    form = f'<form:button xmlns:form="{OFFICE}form:1.0" form:label="Send"/><text:p>A</text:p>'
    assert list_texts(read("odt", odt(form)).segments) == ["Send", "A"]


def test_attributes_in_a_sentence():
    link = '<w:hyperlink w:tooltip="Go there"><w:r><w:t>there</w:t></w:r></w:hyperlink>'
    choice = (
        '<w:sdt><w:sdtPr><w:listItem w:displayText="Green"/></w:sdtPr><w:sdtContent><w:r><w:t>now'
        "</w:t></w:r></w:sdtContent></w:sdt>"
    )
    data = word(part(f"Look </w:t></w:r>{link}{choice}<w:r><w:t>."))
    document = read("docx", data)
    texts = [segment.text for segment in document.segments]
    assert texts == ["Look therenow.", "Go there", "Green", "Top"]
    words = {"Look therenow.": "Lire iciicoui.", "Go there": "Va", "Green": "Vert"}
    text = member(translate(document, words), "word/document.xml")
    assert 'w:tooltip="Va"' in text
    assert 'w:displayText="Vert"' in text
    # the sentence around them is not translated
    text = member(translate(document, {"Green": "Vert"}), "word/document.xml")
    assert text == member(data, "word/document.xml").replace("Green", "Vert")


FLAT = (
    f'{HEAD}<office:document xmlns:office="{OFFICE}office:1.0" xmlns:text="{OFFICE}text:1.0" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/"><office:meta><dc:title>Title</dc:title>'
    "</office:meta><office:body><text:p>A <text:span>bold</text:span> text</text:p></office:body>"
    "</office:document>"
)


def test_flat_open_document():
    document = read("fodt", FLAT.encode())
    assert list_texts(document.segments) == ["Title", ("A bold text", (2, 6, "repeat"))]
    assert document.write([None, None]) == FLAT.encode()
    output = translate(document, {"Title": "Titre"}).decode()
    assert output == FLAT.replace("<dc:title>Title", "<dc:title>Titre")


def test_objects_of_open_document_are_counted():
    manifest = '<manifest><x media-type="application/vnd.sun.star.oleobject"/></manifest>'
    content = FLAT.replace("office:document", "office:x")
    data = pack({"content.xml": content, "META-INF/manifest.xml": manifest})
    assert read("odt", data).skipped == {"embedded object": 1}


def test_python_docx_reads_what_is_written():
    docx = pytest.importorskip("docx")
    original = docx.Document()
    original.core_properties.title = "The title"
    original.add_heading("The old house", 0)
    paragraph = original.add_paragraph("It is ")
    paragraph.add_run("green").bold = True
    original.add_table(1, 1).cell(0, 0).text = "In a cell"
    original.sections[0].header.paragraphs[0].text = "At the top"
    stream = io.BytesIO()
    original.save(stream)
    document = read("docx", stream.getvalue())
    texts = [segment.text for segment in document.segments]
    assert {"The title", "The old house", "It is green", "In a cell", "At the top"} <= set(texts)
    words = {"It is green": "C'est vert", "In a cell": "Dans", "At the top": "En haut"}
    again = docx.Document(io.BytesIO(translate(document, words)))
    assert [paragraph.text for paragraph in again.paragraphs] == ["The old house", "C'est vert"]
    assert again.paragraphs[1].runs[1].bold
    assert again.tables[0].cell(0, 0).text == "Dans"
    assert again.sections[0].header.paragraphs[0].text == "En haut"


def test_python_pptx_reads_what_is_written():
    pptx = pytest.importorskip("pptx")
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "The old house"
    slide.placeholders[1].text = "It is green"
    slide.notes_slide.notes_text_frame.text = "Say hello"
    stream = io.BytesIO()
    presentation.save(stream)
    document = read("pptx", stream.getvalue())
    texts = [segment.text for segment in document.segments]
    assert {"The old house", "It is green", "Say hello"} <= set(texts)
    assert not any(text.startswith("Click") for text in texts)
    again = pptx.Presentation(io.BytesIO(translate(document, {"Say hello": "Salut"})))
    assert again.slides[0].notes_slide.notes_text_frame.text == "Salut"
