import time
from dataclasses import replace

import pytest

from tests.documents.making import read, shown, translated
from tformer_cli.errors import DataError

XLIFF = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file original="a" source-language='en' datatype="plaintext"><body>
    <group>
    <trans-unit id="1">
      <source>The <g id="1" ctype="bold">old</g> house &amp;<x id="2"/> garden</source>
    </trans-unit>
    <trans-unit id="2"><source>Done</source><target state="final">Fertig</target></trans-unit>
    <trans-unit id="3">
      <source>Set <bpt id="1" rid="7">&lt;b></bpt>name<ept id="2" rid="7">&lt;/b></ept> to
        <mrk mtype="protected">tformer</mrk></source>
      <target />
    </trans-unit>
    <trans-unit id="4"><source>Copied</source><target state="new">Copied</target></trans-unit>
    <trans-unit id="5" translate="no"><source>Kept</source></trans-unit>
    <trans-unit id="6"><source>Seen</source><target state="needs-review-translation">x</target>
    <alt-trans><source>Not this</source><target/></alt-trans></trans-unit>
    <trans-unit id="7" xml:space="preserve"><source>Two  blanks</source></trans-unit>
    </group>
    <group translate="no"><trans-unit id="8"><source>Nor this</source></trans-unit></group>
  </body></file>
</xliff>
"""
TEXTS = [
    ("The old house & garden", (4, 7, "once"), (15, 15, "void")),
    ("Set name to tformer", (4, 8, "once"), (12, 19, "protected")),
    "Copied",
    "Two  blanks",
]
STATE = ' state="needs-review-translation"'


def test_xliff_1():
    document = read("xliff", XLIFF.encode())
    assert shown(document.segments) == TEXTS
    assert document.write([None] * 4) == XLIFF.encode()
    first = document.segments[0]
    spans = (replace(first.spans[0], start=0, end=3), replace(first.spans[1], start=4, end=4))
    made = document.write([replace(first, text="Alt & <neu>", spans=spans), None, None, None])
    target = '<g id="1" ctype="bold">Alt</g> <x id="2"/>&amp; &lt;neu>'
    assert made.decode() == XLIFF.replace(
        "garden</source>", f"garden</source>\n      <target{STATE}>{target}</target>"
    )


def test_a_copy_of_the_source_is_a_translation():
    document = read("xliff", XLIFF.encode(), target_language="de")
    made = document.write(document.segments).decode()
    code = '<bpt id="1" rid="7">&lt;b></bpt>name<ept id="2" rid="7">&lt;/b></ept>'
    mark = '<mrk mtype="protected">tformer</mrk>'
    assert f"<target{STATE}>Set {code} to {mark}</target>" in made
    assert f"<target{STATE}>Copied</target>" in made
    assert f"<target{STATE}>Two  blanks</target>" in made
    assert '<file target-language="de" original="a"' in made
    again = read("xliff", made.encode()).segments
    assert not again


def test_doubtful_targets_are_translated_on_request():
    document = read("xliff", XLIFF.encode(), fills_fuzzy=True)
    made = translated(document, {"Seen": "Gesehen"}).decode()
    assert made == XLIFF.replace(">x<", ">Gesehen<")


def test_xliff_2():
    text = """<x:xliff xmlns:x="urn:oasis:names:tc:xliff:document:2.0" version="2.1" srcLang="en">
 <x:file id="f"><x:unit id="1"><x:originalData><x:data id="d">%s</x:data></x:originalData>
  <x:segment><x:source><x:pc id="1">All</x:pc></x:source></x:segment>
  <x:segment state="initial"><x:source>A<x:sc id="2"/> b<x:ec startRef="2"/> <x:ph id="3"/>\
<x:mrk id="m" translate="no">c</x:mrk></x:source><x:target/></x:segment></x:unit>
  <x:unit id="2" translate="no"><x:segment><x:source>Kept</x:source></x:segment></x:unit></x:file>
</x:xliff>
"""
    document = read("xliff", text.encode(), target_language="de")
    assert shown(document.segments) == [
        "All",
        ("A b c", (1, 3, "once"), (4, 4, "void"), (4, 5, "protected")),
    ]
    made = translated(document, {"All": "Alles"}).decode()
    source = '<x:source><x:pc id="1">All</x:pc></x:source>'
    target = '\n  <x:target><x:pc id="1">Alles</x:pc></x:target>'.replace("\n  ", "")
    assert made == text.replace("<x:xliff", '<x:xliff trgLang="de"').replace(
        source, source + target
    )


def test_the_language_is_an_attribute_wherever_it_is_added():
    language = 'd"<&'
    text = XLIFF.replace("</xliff>", '<file c="d"/></xliff>')
    document = read("xliff", text.encode(), target_language=language)
    made = translated(document, {"Copied": "Kopiert"})
    assert b'<file target-language="d&quot;&lt;&amp;" c="d"/>' in made
    assert len(read("xliff", made).segments) == len(document.segments) - 1
    made = translated(read("tmx", TMX, target_language=language), {"Door": "x"}).decode("utf-16")
    assert '<tuv xml:lang="d&quot;&lt;&amp;"><seg>x<' in made
    assert read("tmx", made.encode("utf-16"), target_language="de").segments


def test_the_text_of_an_attribute_is_no_attribute():
    text = XLIFF.replace('<trans-unit id="1">', """<trans-unit note=' translate="no"' id="1">""")
    assert shown(read("xliff", text.encode()).segments) == TEXTS


def test_units_are_found_in_a_long_file():
    comment = f"<!--{' ' * 20_000_000}-->"
    units = "\n <trans-unit><source>a</source></trans-unit>" * 2000
    data = f"<xliff>{comment}<file><body>{units}</body></file></xliff>".encode()
    begin = time.process_time()
    document = read("xliff", data)
    made = translated(document, {"a": "b"})
    assert made.count(f"<target{STATE}>b</target></trans-unit>".encode()) == 2000
    # each unit took a copy of all that stands before it
    assert time.process_time() - begin < 5


TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en-US" segtype="sentence"/>
<body>
  <tu>
   <tuv xml:lang="en-US"><seg>Hello <bpt i="1">[b]</bpt>world<ept i="1">[/b]</ept>!</seg></tuv>
    <tuv xml:lang="fr"><seg>Bonjour</seg></tuv>
  </tu>
  <tu><tuv xml:lang="fr"><seg>Maison</seg></tuv><tuv xml:lang="en"><seg>House</seg></tuv></tu>
  <tu><tuv lang="EN-us"><seg>Door</seg></tuv><tuv lang="DE_de"><seg/></tuv></tu>
</body></tmx>
""".replace("\n", "\r\n").encode("utf-16")  # fmt: skip


def test_tmx():
    document = read("tmx", TMX, target_language="de", source_language="en")
    assert shown(document.segments) == [("Hello world!", (6, 11, "once")), "House", "Door"]
    assert document.write([None] * 3) == TMX
    made = translated(document, {"House": "Haus", "Door": "Tür"})
    english = '<tuv xml:lang="en"><seg>House</seg></tuv>'
    assert made.decode("utf-16") == (
        TMX.decode("utf-16")
        .replace(english, english + '<tuv xml:lang="de"><seg>Haus</seg></tuv>')
        .replace("<seg/>", "<seg>Tür</seg>")
    )
    # a French source; what has its French stays without a segment
    assert shown(read("tmx", TMX, target_language="de", source_language="fr").segments) == [
        *("Bonjour", "Maison")
    ]
    assert shown(read("tmx", TMX, target_language="fr").segments) == ["Door"]
    inserted = translated(read("tmx", TMX, target_language="fr"), {"Door": "Porte"}).decode(
        "utf-16"
    )
    assert '<seg/></tuv><tuv xml:lang="fr"><seg>Porte</seg></tuv></tu>' in inserted


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("xliff", b"<tmx/>", "a.xliff: its root element is tmx and not xliff"),
        ("tmx", TMX, "a.tmx: a .tmx file needs to know the language to translate into; "),
        ("tmx", b"<tmx><tu>", "a.tmx: is damaged or not XML (line 1: no element found)"),
        ("tmx", b'<!DOCTYPE tmx [<!ENTITY a "b">]><tmx/>', "a.tmx: defines entities of its own"),
    ],
)
def test_errors(name, data, message):
    with pytest.raises(DataError) as caught:
        read(name, data)
    assert str(caught.value).startswith(message)
