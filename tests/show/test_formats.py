"""Documents in every format, pictures among them."""

import functools
import io
import re
import struct
from html.parser import HTMLParser
from xml.etree.ElementTree import SubElement

import numpy as np
import pytest

from tests.plugins.corpora_tools.comparison.test_compare import compare_all
from tformer_cli.errors import UsageError
from tformer_cli.plugins.corpora_tools.comparison.report import comparison_document, mark_best
from tformer_cli.show import png
from tformer_cli.show.html import render_html
from tformer_cli.show.markup import render_latex, render_markdown
from tformer_cli.show.png import SHARPNESS, render_png
from tformer_cli.show.svg import draw_labels, draw_map, draw_text, new_svg, svg_text
from tformer_cli.wording import installing

HOSTILE = '<script>&\\|{}$#_%~^*`"'
SYSTEMS = {
    "base": ("a b c d e", "f g h i j"),
    HOSTILE: ("a b c d e", f"f g h {HOSTILE}"),
}
REFERENCES = ("a b c d e", "f g h i j")


@pytest.fixture(scope="module")
def document():
    return comparison_document([compare_all(systems=SYSTEMS, references=REFERENCES)])


def test_the_table_says_what_was_found(document):
    table = document.sections[0].tables[0]
    assert table.title == "BLEU"
    assert table.note.startswith("nrefs:1|bs:50|seed:12345|")
    rows = [[cell.text for cell in row] for row in table.rows]
    assert rows[0][:2] == ["base (baseline)", "100.00"]
    assert rows[0][3:] == [""] * 5
    assert rows[1][5:] == ["0", "1", "1"]
    assert [row[1].is_best for row in table.rows] == [True, False]
    assert document.sections[0].tables[1].title == "TER, less is better"
    assert document.sections[0].tables[1].rows[0][1].is_best


def test_several_test_sets_have_an_overview_with_means():
    comparison = compare_all(systems=SYSTEMS, references=REFERENCES)
    overview, *others = comparison_document([comparison, comparison]).sections
    assert [section.title for section in others] == ["tiny: 2 sentences"] * 2
    assert overview.tables[0].head == ("System", "tiny", "tiny", "Mean")
    for row in overview.tables[0].rows:
        assert row[1].text == row[2].text == row[3].text


@pytest.mark.parametrize(
    ("values", "differs", "less", "marked"),
    [
        ([30.0, 31.0], [False, True], False, [1]),
        ([30.0, 31.0], [False, False], False, []),  # no more than chance
        ([30.0, 31.0], [False, True], True, [0]),
        ([31.0, 30.0, 29.0], [False, True, True], False, [0]),
        ([31.0, 30.9, 29.0], [False, False, True], False, []),  # the baseline is not told apart
        ([30.0, 31.0, 31.0], [False, True, True], False, []),  # ties
        ([30.0, 31.001, 31.002], [False, True, True], False, []),  # ties to a reader
        ([30.0], [False], False, []),
    ],
)
def test_only_a_best_score_that_the_test_tells_apart_is_marked(values, differs, less, marked):
    cells = mark_best(values, differs, less=less)
    assert [cell.text for cell in cells] == [f"{value:.2f}" for value in values]
    assert [place for place, cell in enumerate(cells) if cell.is_best] == marked


RENDERERS = {"html": render_html, "latex": render_latex, "markdown": render_markdown}


@pytest.mark.parametrize("name", RENDERERS)
def test_a_copy_of_the_baseline_has_no_mark_and_is_named_below_the_table(name):
    systems = {**SYSTEMS, "copy": SYSTEMS["base"]}
    document = comparison_document([compare_all(systems=systems, references=REFERENCES)])
    table = document.sections[0].tables[0]
    assert table.rows[1][4].text.endswith("*")
    assert table.rows[2][3].text == "+0.00"
    assert table.rows[2][4].text == "–"
    said = "No p for copy: no sentence differs from the baseline."
    assert table.remark == said
    assert RENDERERS[name](document).count(said) == len(document.sections[0].tables[:2])


@pytest.mark.parametrize("name", RENDERERS)
def test_one_system_has_scores_and_no_columns_of_a_comparison(name):
    document = comparison_document(
        [compare_all(systems={"one": SYSTEMS["base"]}, references=REFERENCES)]
    )
    for table in document.sections[0].tables[:2]:
        assert table.head[2:] == ("Mean ± 95 %",)
        ((_, value, mean),) = table.rows
        assert mean.text.startswith(value.text)
        assert table.rows[0][0].text == "one"
    text = RENDERERS[name](document)
    assert "aseline" not in text
    assert "Change" not in text


def test_markdown_shows_every_text_as_it_is(document):
    text = render_markdown(document)
    tables = [line for line in text.splitlines() if line.startswith("|")]
    unescaped = [len(re.findall(r"(?<!\\)\|", line)) for line in tables]
    assert set(unescaped) == {9, 5}  # tables of eight and of four columns
    assert "<script>" not in text
    assert "**100.00**" in text


def test_latex_has_no_command_of_a_text(document):
    text = render_latex(document)
    assert r"\textless{}script\textgreater{}\&\textbackslash{}\textbar{}\{\}\$\#\_\%" in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 4
    for row in re.findall(r"\\midrule\n(.*?)\\bottomrule", text, re.DOTALL):
        for line in row.strip().splitlines():
            assert len(re.findall(r"(?<!\\)&", line)) in (3, 7)
            assert line.endswith(r" \\")


class Page(HTMLParser):
    """Collects the tags and the text of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.open, self.texts = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_is_whole_and_runs_nothing(document):
    page = render_html(document)
    read = Page(page)
    assert read.open == []
    assert "script" not in read.tags
    assert read.tags.count("table") == 4
    assert HOSTILE in read.texts
    assert "default-src 'none'" in page
    assert page == render_html(document)


def color_of(value):
    return "#ff0000" if value > 0.5 else "#0000ff"


def draw_svg(title="", label="$x$"):
    root = new_svg(title)
    draw_map(root, [[1.0, 0.0], [0.25, 1.0]], color_of, (20, 10), (10, 15))
    draw_labels(root, ((label, "b"), ("c", "d")), (20, 10), 10, 8)
    SubElement(root, "path", {"d": "M60 10H90V40", "stroke": "#008000", "fill": "none"})
    draw_text(root, "end", 90, 55, 10, anchor="end")
    return svg_text(root, 100, 60)


def pixels(picture):
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(io.BytesIO(picture)).convert("RGB"), int)


@pytest.mark.needs("png")
def test_the_same_figure_gives_the_same_bytes_and_keeps_its_description():
    first, second, plain = map(render_png, (draw_svg("Zoë"), draw_svg("Zoë"), draw_svg()))
    assert first == second
    assert first.startswith(b"\x89PNG")
    assert (b"Description" in first, b"Description" in plain) == (True, False)


@pytest.mark.needs("png")
def test_every_cell_has_its_place_and_its_color():
    picture = render_png(draw_svg())
    size = struct.unpack(">II", picture[16:24])
    assert size == (100 * SHARPNESS, 60 * SHARPNESS)
    image = pixels(picture)

    def at(x, y):
        return tuple(image[y * SHARPNESS, x * SHARPNESS])

    assert at(25, 17) == at(35, 32) == (255, 0, 0)
    assert at(25, 32) == (0, 0, 255)
    assert at(35, 17) == at(5, 50) == (255, 255, 255)  # 0 is not drawn
    # a cell ends where the next begins, to the pixel
    row = image[17 * SHARPNESS, 20 * SHARPNESS + 2 : 40 * SHARPNESS - 2]
    edge = 10 * SHARPNESS - 2
    assert (row[: edge - 1] == (255, 0, 0)).all()
    assert (row[edge + 1 :] == 255).all()
    assert at(70, 10)[1] > max(at(70, 10)[0], at(70, 10)[2])  # a green line


@pytest.mark.needs("png")
def test_texts_are_written_where_they_end():
    image = pixels(render_png(draw_svg()))
    ink = np.argwhere(image[45 * SHARPNESS :].sum(axis=2) < 300)
    assert ink[:, 1].min() > 60 * SHARPNESS
    assert 85 * SHARPNESS < ink[:, 1].max() <= 91 * SHARPNESS


@pytest.mark.needs("png")
@pytest.mark.filterwarnings("error")
def test_a_character_without_a_glyph_is_no_warning():
    assert render_png(draw_svg(label="漢\U0001f642שלום"))


def test_without_resvg_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setattr(png, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=re.escape(installing("png"))):
        render_png(draw_svg())


@pytest.mark.needs("png")
def test_without_fonts_no_picture_lacks_its_text(monkeypatch):
    import resvg_py as resvg

    assert png._has_fonts()
    bare = functools.partial(resvg.svg_to_bytes, skip_system_fonts=True)
    monkeypatch.setattr(resvg, "svg_to_bytes", lambda text, **_: bare(text))
    png._has_fonts.cache_clear()
    with pytest.raises(UsageError, match="this machine has no fonts"):
        render_png(draw_svg())
    png._has_fonts.cache_clear()
