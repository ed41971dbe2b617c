import re
from html.parser import HTMLParser

import pytest

from tests.evaluate.comparison.test_compare import compared
from tformer_cli.evaluate.comparison.report import comparison_document
from tformer_cli.show.html import render_html
from tformer_cli.show.markup import render_latex, render_markdown

HOSTILE = '<script>&\\|{}$#_%~^*`"'
SYSTEMS = {
    "base": ("a b c d e", "f g h i j"),
    HOSTILE: ("a b c d e", f"f g h {HOSTILE}"),
}
REFERENCES = ("a b c d e", "f g h i j")


@pytest.fixture(scope="module")
def document():
    return comparison_document([compared(systems=SYSTEMS, references=REFERENCES)])


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
    one = compared(systems=SYSTEMS, references=REFERENCES)
    overview, *others = comparison_document([one, one]).sections
    assert [section.title for section in others] == ["tiny: 2 sentences"] * 2
    assert overview.tables[0].head == ("System", "tiny", "tiny", "Mean")
    for row in overview.tables[0].rows:
        assert row[1] == row[2] == row[3]


RENDERERS = {"html": render_html, "latex": render_latex, "markdown": render_markdown}


@pytest.mark.parametrize("name", RENDERERS)
def test_a_copy_of_the_baseline_has_no_mark_and_is_named_below_the_table(name):
    systems = {**SYSTEMS, "copy": SYSTEMS["base"]}
    document = comparison_document([compared(systems=systems, references=REFERENCES)])
    table = document.sections[0].tables[0]
    assert table.rows[1][4].text.endswith("*")
    assert table.rows[2][3].text == "+0.00"
    assert table.rows[2][4].text == f"{1 / 51:.4f}"
    said = "No sentence differs from the baseline by this metric, so that p says nothing: copy"
    assert table.remark == said
    assert RENDERERS[name](document).count(said) == len(document.sections[0].tables[:2])


@pytest.mark.parametrize("name", RENDERERS)
def test_one_system_has_scores_and_no_columns_of_a_comparison(name):
    document = comparison_document(
        [compared(systems={"one": SYSTEMS["base"]}, references=REFERENCES)]
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
