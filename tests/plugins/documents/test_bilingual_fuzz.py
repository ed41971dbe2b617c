"""Random and damaged bilingual files, read again by other programs."""

import random
import re
import shutil
import subprocess
from collections import Counter
from xml.etree import ElementTree as ET
from xml.parsers import expat

import pytest

from tests.documents.making import read, reorder_words
from tests.plugins.documents import test_po
from tests.plugins.documents.test_damaged import damage
from tformer_cli.errors import TformerError

WORDS = ("the", "old", "house", "was", "green", "and", "my", "sister", "saw", "garden")
TAG = re.compile(r"</?[a-z]+[^<>]*>")
PAIRED = {
    "x": '<x id="START_B{0}"/>{1}<x id="CLOSE_B{0}"/>',
    "bpt": '<bpt id="{0}">&lt;b></bpt>{1}<ept id="{0}">&lt;/b></ept>',
    "ph": '<ph id="{0}">&lt;b></ph>{1}<ph id="{0}x">&lt;/b></ph>',
    "g": '<g id="{0}">{1}</g>',
    "text": '&lt;i class="{0}"&gt;{1}&lt;/i&gt;',
    "section": '<![CDATA[<u id="{0}">]]>{1}<![CDATA[</u>]]>',
}
SINGLE = (
    *('<x id="{0}"/>', "&amp;", " ", '<mrk mtype="protected">copied {0}</mrk>', "<!-- {0} -->"),
    '<![CDATA[the <u id="{0}">house</u>]]>',
    '<bx id="{0}"/>the <bx id="{0}y"/>old<ex id="{0}"/> house<ex id="{0}y"/>',
)


def content(chance, numbers, depth=0):
    """Draws text with codes."""
    page = ""
    for _ in range(chance.randrange(1, 5)):
        kind, number = chance.randrange(10 if depth < 3 else 5), next(numbers)
        if kind < 5:
            text = " ".join(chance.choices(WORDS, k=chance.randrange(1, 4)))
            page += text + chance.choice(["", " ", " ", ".", ", "])
        elif kind < 8:
            inner = content(chance, numbers, depth + 1)
            page += PAIRED[chance.choice([*PAIRED])].format(number, inner)
        else:
            page += chance.choice(SINGLE).format(number)
    return page


def translate(document, chance):
    """Writes a document with words in random order, some lost or without links."""

    def order(words):
        kept = [word for word in words if chance.random() < share] or list(words)
        return chance.sample(kept, len(kept)) if chance.random() < 0.5 else kept[::-1]

    def some(links):
        return [link for link in links if chance.random() < linked]

    share, linked = chance.choice((1.0, 0.8)), chance.choice((1.0, 0.5))
    return document.write([reorder_words(segment, order, some) for segment in document.segments])


def codes(element):
    return [
        (code.tag, tuple(code.attrib.items())) for code in element.iter() if code is not element
    ]


def check_order(source, target):
    """Checks that no code is missing or closes before it opens."""
    assert Counter(codes(source)) == Counter(codes(target))
    text, other = ("".join(side.itertext()) for side in (source, target))
    assert Counter(TAG.findall(text)) <= Counter(TAG.findall(other))
    opened = []
    for tag in TAG.findall(other):
        if tag[1] == "/":
            assert opened.pop() == tag[2:-1]
        else:
            opened.append(re.match("<([a-z]+)", tag)[1])
    assert not opened
    places = {code: place for place, code in enumerate(codes(target))}
    for (name, attributes), place in places.items():
        number = dict(attributes).get("id", "")
        closing = {
            "bpt": ("ept", number),
            "bx": ("ex", number),
            "ph": ("ph", f"{number}x"),
            "x": ("x", number.replace("START", "CLOSE")),
        }.get(name)
        end = closing and places.get((closing[0], (("id", closing[1]),)))
        assert end is None or place <= end


def check_xliff(seed):
    chance, numbers = random.Random(seed), iter(range(10_000))
    units = "".join(
        f'<trans-unit id="u{unit}"><source>{content(chance, numbers)}</source></trans-unit>'
        for unit in range(3)
    )
    data = f'<xliff version="1.2"><file><body>{units}</body></file></xliff>'.encode()
    document = read("xliff", data)
    assert document.write([None] * len(document.segments)) == data
    for unit in ET.fromstring(translate(document, chance)).iter("trans-unit"):  # noqa: S314
        source, target = unit.find("source"), unit.find("target")
        if target is not None:
            check_order(source, target)


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_codes_of_any_text_are_kept_in_pairs(start):
    for seed in range(start, start + 10):
        check_xliff(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 1600, 250))
def test_codes_of_many_texts_are_kept_in_pairs(start):
    for seed in range(start, start + 250):
        check_xliff(seed)


def is_taken(data, *options):
    command = ["msgfmt", *options, "-o", "/dev/null", "-"]
    return subprocess.run(command, check=False, input=data, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("msgfmt"), reason="needs msgfmt of gettext")
@pytest.mark.parametrize(
    "text", [test_po.PO, test_po.TEMPLATE, test_po.OBSOLETE["comments"] + test_po.PO]
)
def test_what_gettext_takes_it_takes_translated(text):
    chance, counts, refused = random.Random(3), Counter(), []
    for _ in range(150):
        data = damage(text.encode(), chance)
        try:
            document = read("po", data)
        except TformerError as refusal:
            counts["refused"] += 1
            refused.append("is not a line" in str(refusal) and is_taken(data))
            continue
        assert document.write([None] * len(document.segments)) == data
        output = translate(document, chance)
        if is_taken(data):
            counts["taken"] += 1
            assert is_taken(output), output.decode()
    assert min(counts.values()) > 5
    assert not any(refused)


@pytest.mark.parametrize("text", [test_po.PO, test_po.TEMPLATE])
def test_polib_reads_the_same_messages(text):
    polib = pytest.importorskip("polib")
    document = read("po", text.encode(), target_language="pl")
    output = translate(document, random.Random(1)).decode()
    before, after = polib.pofile(text), polib.pofile(output)
    names = [
        [(entry.msgctxt, entry.msgid, entry.obsolete) for entry in file] for file in (before, after)
    ]
    assert names[0] == names[1]
    assert not after.untranslated_entries()
    assert after.metadata["Content-Type"] == "text/plain; charset=UTF-8"


@pytest.mark.parametrize(("kind", "version"), [("xliff", "1.2"), ("tmx", "1.4")])
def test_the_translate_toolkit_reads_what_is_written(kind, version):
    pytest.importorskip("translate.storage.xliff")
    from translate.storage import tmx, xliff

    texts = ["The old house", "a &lt;b&gt;cat&lt;/b&gt; &amp; dog", 'Hello <ph id="1">x</ph> you']
    if kind == "xliff":
        units = "".join(
            f'<trans-unit id="{number}"><source>{text}</source></trans-unit>'
            for number, text in enumerate(texts)
        )
        data = (
            '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" '
            f'source-language="en" datatype="plaintext"><body>{units}</body></file></xliff>'
        )
    else:
        units = "".join(f'<tu><tuv xml:lang="en"><seg>{text}</seg></tuv></tu>' for text in texts)
        data = f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>'
    document = read(kind, data.encode(), target_language="de")
    output = translate(document, random.Random(2))
    file = (xliff.xlifffile if kind == "xliff" else tmx.tmxfile).parsestring(output)
    assert [bool(unit.target) for unit in file.units] == [True] * 3
    assert str(file.units[0].source) == "The old house"


RICH = {
    "xliff": """<xliff version="1.2"><file source-language="en"><body><group>
<trans-unit id="a"><source>the <x id="START_B" equiv-text="&lt;b&gt;"/>old<x id="CLOSE_B"/> <g
 id="1">house &amp; &lt;i&gt;my &lt;/i&gt;</g></source><target state="new">x</target></trans-unit>
<trans-unit id="b"><source><![CDATA[a <b>green</b> garden]]></source><seg-source><mrk mtype="seg"
 mid="0">a <bpt id="1">&lt;</bpt>green</mrk> <mrk mtype="seg" mid="1">house<ept id="1"/></mrk>
</seg-source><alt-trans><source>c</source><target/></alt-trans></trans-unit></group></body></file>
</xliff>""",
    "tmx": """<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>the
<ph x="1">&lt;b></ph>old<ph x="2">&lt;/b></ph> <hi>house</hi> &lt;i>was&lt;/i> <![CDATA[<b>]]>green
<![CDATA[</b>]]></seg></tuv><tuv xml:lang="de"><seg/></tuv></tu></body></tmx>""",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RICH)
def test_damaged_files_stay_well_formed(kind):
    chance, counts = random.Random(5), Counter()
    for _ in range(1500):
        data = damage(RICH[kind].encode(), chance)
        try:
            document = read(kind, data, target_language="de")
        except TformerError:
            counts["refused"] += 1
            continue
        assert document.write([None] * len(document.segments)) == data
        expat.ParserCreate().Parse(translate(document, chance), True)
        counts["translated"] += bool(document.segments)
    assert min(counts.values()) > 50
