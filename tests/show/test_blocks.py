"""Blocks as HTML and as SVG: every kind of block, texts that look like markup, exact numbers."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import get_args

import pytest

from tests.show.test_formats import HOSTILE, Page
from tformer_cli.show.document import (
    BLANK,
    Block,
    Cell,
    Facts,
    Field,
    Label,
    Map,
    SideBySide,
    Table,
    Text,
    Texts,
    text,
)
from tformer_cli.show.figure import COLUMNS, FIELD, WIDEST, render_figure
from tformer_cli.show.html import STEPS, render_blocks, render_page
from tformer_cli.show.palette import color, signed_hex_color
from tformer_cli.show.svg import MARGIN

HEBREW = "שלום"
TABLE = Table(
    title=HOSTILE,
    head=("head", "share", HOSTILE),
    rows=[
        ["enc.0.0", Cell("0.50", is_best=True), text(("a", "dim"), Label(HEBREW))],
        ["b", "1", ""],
    ],
    note=HOSTILE,
    remark="below",
    texts=(2,),
    row_styles=("", "dim"),
)
MAP = Map(kind="cross", labels=(["x", HOSTILE], ["a", HEBREW]), values=[[1.0, 1 / 3], [0.0, 0.004]])
EXAMPLES = {
    Text: text(("first", "bold"), " line\nsecond ", HOSTILE, style="dim"),
    Table: TABLE,
    SideBySide: SideBySide([replace(MAP, title=HOSTILE), TABLE]),
    Texts: Texts([("source", HOSTILE), ("target", HEBREW)]),
    Facts: Facts([(HOSTILE, "one"), ("name", text(("two", "green")))]),
    Map: MAP,
    Field: Field("enc", [[0.0, 0.5, 1.0], [1.0, 0.5, 0.0]]),
}


def svg_of(*blocks):
    return ET.fromstring(render_figure("The title", blocks))  # noqa: S314 - made here


def texts_of(svg):
    return ["".join(element.itertext()) for element in svg.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("kind", get_args(Block))
def test_a_block_is_drawn_and_no_text_of_it_is_markup(kind):
    block = EXAMPLES[kind]
    page = render_page(HOSTILE, [(HOSTILE, render_blocks([BLANK, block]))])
    read = Page(page)
    assert read.open == []
    assert {"script", "img"}.isdisjoint(read.tags)
    assert "default-src 'none'" in page
    assert HOSTILE in "".join(read.texts)
    svg = svg_of(BLANK, block)
    assert sum(HOSTILE in words for words in texts_of(svg)) == str(block).count(repr(HOSTILE)[1:-1])
    assert float(svg.get("width")) > 2 * MARGIN


def test_a_map_shows_hundredths_and_its_numbers_where_one_points():
    page = render_blocks([MAP])
    cells = re.findall(r'<td class="(\w+)" title="(.*?)">(.*?)</td>', page)
    assert cells == [
        ("cross20", "1", "100"),
        ("cross7", "0.333333", "33"),
        ("cross0", "0", ""),
        ("cross0", "0.004", ""),
    ]
    signed = replace(MAP, values=[[-0.5, 0.25]], labels=("a", "bc"), largest=0.5, is_signed=True)
    cells = re.findall(r'<td class="(\w+)" title="(.*?)">(.*?)</td>', render_blocks([signed]))
    assert cells == [("enc16", "-0.5", "-50"), ("dec8", "0.25", "+25")]


def test_a_page_has_the_colors_that_it_shows_on_a_light_and_a_dark_ground():
    page = render_page("t", [("", render_blocks([MAP]))])
    rules = re.findall(
        r"^\.(cross\d+) \{ background: light-dark\((\S+), (\S+)\)", page, re.MULTILINE
    )
    assert [name for name, _, _ in rules] == ["cross0", "cross20", "cross7"]
    for name, *shades in rules:
        share = int(name[5:]) / STEPS
        for is_dark, shade in enumerate(shades):
            red_green_blue = color("cross", share, on_dark=bool(is_dark))
            assert tuple(bytes.fromhex(shade.strip("#"))) == red_green_blue
    assert "light-dark(#ffffff, #161b26); color: light-dark(#0c0f16, #ffffff)" in page
    assert ".cross" not in render_page("t", [("", render_blocks([TABLE]))])


def test_lines_whose_places_matter_stand_together():
    lines = [replace(text((word, "bold"), "  1"), wraps=False) for word in "ab"]
    html = render_blocks([*lines, text("c")])
    assert '<pre><span class="bold">a</span>  1\n<span class="bold">b</span>  1</pre>' in html
    assert "<p>c</p>" in html
    svg = svg_of(*lines)
    assert texts_of(svg) == ["The title", "a  1", "b  1"]
    assert "monospace" in svg[-1].get("font-family")


def test_styles_are_classes_and_attributes():
    block = text(("a", "not dim bold"), "b", style="dim")
    assert '<span class="bold">a</span><span class="dim">b</span>' in render_blocks([block])
    first, second = svg_of(block)[-1]
    assert (first.attrib, second.attrib) == ({"font-weight": "600"}, {"fill": "#5c6370"})


def test_a_figure_breaks_long_texts_and_puts_below_what_has_no_room():
    words = " ".join(["word"] * 60)
    lines = texts_of(svg_of(Texts([("source", words)])))[2:]
    assert " ".join(map(str.strip, lines)) == words
    assert max(map(len, lines)) <= COLUMNS + 1
    wide = replace(MAP, labels=("a", ["k"] * 30), values=[[0.5] * 30])
    few, many = (svg_of(SideBySide([wide] * n)) for n in (1, 4))
    assert float(many.get("height")) > float(few.get("height"))
    assert float(few.get("width")) < float(many.get("width")) < WIDEST + 2 * MARGIN


def test_a_figure_has_the_colors_of_its_numbers():
    signed = replace(MAP, values=[[-0.5, 0.25]], labels=("a", "bc"), largest=0.5, is_signed=True)
    fills = [path.get("fill") for path in svg_of(signed).iter("{http://www.w3.org/2000/svg}path")]
    assert fills[:2] == [signed_hex_color(-1.0), signed_hex_color(0.5)]
    scale = [round(64 * step / 5) / 64 for step in range(-5, 6) if step]
    assert fills[2:] == [signed_hex_color(share) for share in scale]
    assert float(svg_of(EXAMPLES[Field]).get("width")) == FIELD + 2 * MARGIN
