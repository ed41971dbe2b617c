"""The parts of `.ci/build_site.py` that nobody sees fail: `.ci/run` builds the site itself."""

import re
import runpy
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

pytest.importorskip("sphinx", reason="it builds the site: `pip install -e . --group site`")
pytestmark = pytest.mark.needs("site")
SITE = runpy.run_path(str(Path(__file__).parents[1] / ".ci/build_site.py"))


def test_links_that_lead_nowhere_and_loads_from_elsewhere_are_found(tmp_path):
    problems_of = SITE["problems_of"]
    (tmp_path / "commands").mkdir()
    page = tmp_path / "index.html"
    (tmp_path / "commands/fill.html").write_text('<h1 id="top">fill</h1><a href="../index.html">')
    page.write_text(
        '<p id="here"><a href="#here"><a href="#t=a+b"><a class="x" href="commands/fill.html#top">'
        '<a href="https://example.org"><img src="data:image/png;base64,AA==">'
    )
    assert problems_of(tmp_path) == []
    page.write_text(
        '<a href="#gone"><a href="commands/fill.html#bottom"><a href="commands/absent.html">'
        '<img src="https://example.org/a.png"><link rel="stylesheet" href="//example.org/a.css">'
    )
    (tmp_path / "site.css").write_text("@import 'https://example.org/font.css';")
    assert set(problems_of(tmp_path)) == {
        *("index.html: #gone", "index.html: commands/absent.html"),
        *("index.html: commands/fill.html#bottom", "index.html: //example.org/a.css"),
        *("index.html: https://example.org/a.png", "site.css: https://example.org/font.css"),
    }


def test_links_between_documents_have_the_names_of_the_site(tmp_path):
    root = Path(__file__).parents[1]
    names = {**SITE["PAGES"], "tformer_cli/guide/performance.md": "performance.md"}
    text = SITE["with_links"](root / "README.md", names)
    for link in ("](recipes.md)", "](performance.md#on-a-gpu)", "](.pictures/heads.png)"):
        assert link in text


def test_the_figure_is_drawn_in_its_page_so_that_its_boxes_are_links():
    guide = Path(__file__).parents[1] / "tformer_cli/guide/how-a-transformer-works.md"
    text = SITE["with_links"](guide, {})
    assert '```{raw} html\n<div class="figure">\n<svg xmlns=' in text
    assert "</svg>\n</div>\n```\n" in text
    assert "](transformer.svg)" not in text


@pytest.mark.parametrize(
    "sentence",
    ["Keys such as menu.*.title or a_b_c", "a <file>, [default: none] | x", "C:\\*"],
)
def test_help_is_not_read_as_markup(sentence):
    (paragraph,) = MarkdownIt().parse(SITE["escaped"](sentence))[1:2]
    assert [token.type for token in paragraph.children] == ["text"]
    assert paragraph.content.replace("\\", "") == sentence.replace("\\", "")


def test_every_command_has_a_page_with_its_options():
    pages = SITE["command_pages"]()
    assert {"commands/index.md", "commands/translate.md", "commands/tokenize-train.md"} <= {*pages}
    assert "`--no-repeat-ngram N`\n: Never repeat" in pages["commands/translate.md"]
    assert "`tformer tokenize encode`\n: " in pages["commands/tokenize.md"]


@pytest.mark.parametrize("name", ["translate", "classifier", None])
def test_a_page_computes_a_model_and_says_which(zoo, tmp_path, monkeypatch, name):
    write = SITE["write_model"]
    monkeypatch.setitem(write.__globals__, "SMALL", {"training.max_steps": 1})
    (tmp_path / "extra").mkdir()
    write(tmp_path, zoo[name] if name else None)
    assert [path.name for path in tmp_path.iterdir() if path.name != "extra"] == ["live-model.md"]
    text = (tmp_path / "live-model.md").read_text()
    page = (tmp_path / "extra/model.html").read_text()
    address = "model.html" if name else "model.html#t=h+a+b+e+d"
    assert set(re.findall('(?:src|href)="([^"]+)"', text)) == {address}
    assert '<script type="text/plain" id="weights">' in page
    said = {
        "translate": "It is `translate` (en to fr, step 1).",
        "classifier": "It is `classifier` (step 1).",
        None: "`tformer train reverse` made in 1 steps",
    }
    assert said[name] in text
