"""The page as a browser runs it; `selftest.js` does in it what a person would do."""

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch

from tests.chromium import CONTRAST, violations
from tests.inspect.cases import pixels_of
from tests.models import LINES
from tests.plugins.instruments.views.test_image import directory
from tests.sample_package.tformer_sample.entropy import EntropyView
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import save_model_directory
from tformer_cli.heads.names import HeadId
from tformer_cli.heads.roles import METRICS
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.pages import render_html, render_report, render_view, sample_page
from tformer_cli.inspect.view import ReportOptions
from tformer_cli.inspect.views import VIEWS
from tformer_cli.inspect.views.timeline import HeadCourse, HeadTimeline
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.jobs.decision import inspect_decision
from tformer_cli.plugins.instruments.jobs.diff import inspect_diff
from tformer_cli.plugins.instruments.jobs.report import inspect_report
from tformer_cli.plugins.instruments.views.decision import VIEW as DECISION_VIEW
from tformer_cli.plugins.instruments.views.decision import DecisionOptions
from tformer_cli.plugins.instruments.views.positions import PositionsOptions
from tformer_cli.plugins.instruments.walkthrough.worksheet import make_quiz
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.tokenizer import TokenizerSide
from tformer_cli.text.train_tokenizer import train_tokenizer

SELFTEST, ALONE, PROJECTOR = (
    Path(__file__).with_name(name).read_text(encoding="utf-8")
    for name in ("selftest.js", "alone.js", "projector.js")
)


HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    '"><svg onload=alert(2)>',
    "🙂🏽‍↔️",
    "שלום!",
    "\u202eevil",
    "e\u0301\u0302\u0303",
    "漢字",
    "\x00\x07",
    '=1+1,"x"\r\ny',
    "{{data}}",
    "&lt;b&gt;",
    "▁a-very-long-token-that-does-not-end-soon",
)


CONTROL = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f]")


SHOWN = ["A man sleeps in the snow.", "Two dogs."]


@pytest.fixture(scope="module")
def hostile_report(model):
    """A report of two sentences, every token of which has a hostile label."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            TokenizerSide, "pieces", lambda self, ids: [HOSTILE[i % len(HOSTILE)] for i in ids]
        )
        return inspect_report(model, SHOWN, device="cpu", options=ReportOptions(mode="live"))


def test_a_person_uses_the_page_of_a_hostile_report(hostile_report, visit):
    visited = visit(render_report(hostile_report), script=SELFTEST)
    page = visited.selftest
    assert visited.console == []
    assert page["errors"] == []
    assert (page["alerts"], page["injected"], page["scripts"]) == (0, 0, 2)

    record = hostile_report.sentences[0].heads
    assert page["chips"][0] == list(record.source_pieces)
    assert page["chips"][1] == [*record.input_pieces, record.target_pieces[-1]]
    # By cause, where a decision is known
    causes = hostile_report.views["decision"].heads
    assert page["first"]["head"] == causes[0].id
    assert len(page["first"]["tabs"]) == 8
    for head in record.heads:
        np.testing.assert_allclose(
            page["weights"][str(head)],
            record.captured.weights(head).flatten(),
            atol=0.5 / 65535 + 1e-7,
        )

    assert page["select"]["isOther"]
    assert page["select"]["shown"] == page["select"]["to"]
    assert page["select"]["said"].startswith(page["select"]["to"] + ", encoder self-attention")
    assert f"head={page['select']['to']}" in page["select"]["hash"]
    assert page["lines"]["isOther"]
    assert page["lines"]["all"] > page["lines"]["paths"] > len(record.source_pieces)
    assert page["scope"] == {"isOther": True, "hues": 2}  # two encoder layers, a color each
    assert page["legend"] == {"isOther": True, "pressed": "false"}
    assert page["hover"] == {"marks": 1, "queries": 1}
    assert page["unhovered"] == 0
    assert "row=0" in page["pinned"]["hash"]
    assert page["pinned"]["marks"] == 1

    assert page["keys"] == {
        "1": "0 enc.0.0",
        "l": "0 enc.0.1",
        "h": "0 enc.0.0",
        "j": "0 enc.1.0",
        "k": "0 enc.0.0",
        "3": "0 cross.0.0",
        "]": "1 cross.0.0",
        "[": "0 cross.0.0",
    }
    assert page["focus"] == "filter"
    assert page["filter"] == {"count": "4 of 8", "out": 4}
    n_rows, n_columns = len(record.target_pieces), len(record.source_pieces)
    assert page["table"]["size"] == [n_rows + 1, n_columns + 1]
    weight = record.captured.weights(HeadId("cross", 0, 0))[0, 0].item()
    assert float(page["table"]["first"]) == pytest.approx(weight, abs=6e-4)
    theme = page["theme"]
    assert theme["onPaper"] == theme["onLight"] != theme["onDark"]
    tabs = {"heads", "decision", "search", "steps", "logits", "flow", "positions", "ablation"}
    assert set(page["tabs"]) == tabs
    assert min(page["tabs"].values()) > 150

    assert page["nameless"] == []
    check_words(page, record, causes)
    check_products(page)
    check_paper(page, tabs)
    check_tree(page, record)
    check_saved(page, record)


def check_words(page, record, causes):
    assert page["texts"] == [CONTROL.sub("\ufffd", text) for text in (record.source, record.target)]
    says, does = page["guide"]["says"]
    part = next(head for head in causes if head.id == "cross.0.0")
    check_cause(says, page["first"]["decision"], causes, part)
    assert does.startswith("On the map, find this at row ")
    of_row = page["guide"]["ofRow"]
    assert of_row["says"][0].startswith(f"When the model writes {of_row['word']}, head cross.0.0 ")
    assert page["guide"]["isFolded"]
    assert "SHA-256" in page["guide"]["about"]
    measure = METRICS["entropy"]
    assert page["term"] == {
        "name": measure.label,
        "code": "entropy",
        "tip": f"{measure.meaning}.In the filter: entropy",
        "description": f"{measure.meaning}.",
        "after": "none",
    }


def check_cause(says, decision, heads, part, effect="patch"):
    """Compares the sentence about a head with the record's numbers, and what it must not claim."""
    d, (a, b) = decision
    changes = {head.id: d + head.effects[effect] for head in heads}
    turning = [name for name, changed in changes.items() if (changed > 0) != (d > 0)]
    before, after = (spell_piece(a if value > 0 else b) for value in (d, changes[part.id]))
    sizes = [abs(head.effects[effect]) for head in heads]
    rank = 1 + sum(size > abs(part.effects[effect]) for size in sizes)
    changed = "give it what it computed for the other sentence, and the model"
    if part.id in turning:
        assert says.startswith(f"Head {part.id} decides: {changed} writes {after}. ")
    elif turning or rank > 1:
        assert says.startswith(f"Head {part.id} does not decide: {changed} still writes {before}. ")
    else:
        opening = f"None of the {len(heads)} heads decides alone. The strongest is {part.id}: "
        assert says.startswith(f"{opening}{changed} still writes {before}. ")
    others = len(turning) - 1
    assert (" as well." in says) == (part.id in turning and others > 0)
    if " as well." in says:
        assert f" {others} other head{'s decide' if others > 1 else ' decides'} as well." in says
    assert says.endswith(f"Its effect is number {rank} of {len(heads)}.") == (rank > 1)


def spell_piece(piece):
    return CONTROL.sub("\ufffd", piece.replace("▁", "") or piece)


def check_products(page):
    assert [product["id"] for product in page["products"]] == list(page["weights"])
    assert max(product["error"] for product in page["products"]) < 2e-3  # float16
    pair = page["pair"]
    assert "row=1&key=2" in pair["hash"]
    assert "row" not in page["released"]
    assert pair["bars"] == pair["width"] == len(pair["products"]) == 32
    assert pair["marks"] == 3  # the row, the column and the cell
    total = sum(pair["products"])
    for number in (total, total / math.sqrt(32)):
        assert f"{number:.2f}".replace("-", "−") in pair["says"]
    least = page["least"]
    assert least["fewer"] < least["byItself"] <= least["most"]
    assert least["shown"] == "0.90"


def check_paper(page, tabs):
    assert page["onScreen"] == page["afterPaper"] == ["panel-heads"]
    assert set(page["onPaper"]) == {f"panel-{name}" for name in tabs}
    assert len(page["paperTitles"]) == len(tabs)
    # and every sentence, the views of the model once
    assert [copy["source"] for copy in page["printed"]] == SHOWN
    first, second = page["printed"]
    assert set(first["panels"]) == set(page["onPaper"])
    assert set(second["panels"]) == set(page["onPaper"]) - {
        f"panel-{name}" for name in ("positions", "decision", "steps")
    }
    assert first["only"] == ""
    names = "Decision, Step by step, Positions"
    assert second["only"] == f"Only with the first sentence: {names}."
    assert min(copy["thumbs"] for copy in page["printed"]) > 0
    assert (page["isCopied"], page["leftOver"]) == (True, 0)


def check_tree(page, record):
    tree, seen = record.extras.search, page["search"]
    n_finished = sum(node.state == "finished" for node in tree.nodes)
    n_dropped = sum(node.state == "dropped" for node in tree.nodes)
    assert seen["withAll"] == len(tree.nodes) + n_finished  # a second frame
    assert seen["withoutDropped"] == seen["withAll"] - n_dropped < seen["withAll"]
    assert seen["rows"] == len(tree.nodes) - 1
    assert seen["finished"] == n_finished
    pieces = "".join(record.target_pieces[:-1]).replace("▁", " ")
    assert seen["best"] == CONTROL.sub("\ufffd", pieces.strip())
    assert page["index"]["entries"] == page["index"]["cards"] > 5
    assert page["index"]["to"] == page["index"]["name"]


def check_saved(page, record):
    cross = HeadId("cross", 0, 0)
    weights = record.captured.weights(cross)
    for text in page["svg"]:
        root = ET.fromstring(text.encode())  # noqa: S314 - our own page wrote it
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert not [tag for tag in root.iter() if tag.tag.rsplit("}")[-1] in ("script", "image")]
        labels = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
        assert "漢字" in labels or "שלום!" in labels
    (head, *columns), *lines = csv.reader(io.StringIO(page["csv"][0], newline=""))
    assert head == "cross.0.0"
    assert columns == list(record.source_pieces)
    assert [line[0] for line in lines] == list(record.target_pieces)
    np.testing.assert_allclose(
        np.array([line[1:] for line in lines], dtype=float), weights, atol=2e-5
    )
    names, *long_lines = csv.reader(io.StringIO(page["csv"][1], newline=""))
    assert names == ["head", "row", "column", "query", "key", "weight"]
    assert len(long_lines) == 2 * weights.size  # both heads of the layer
    assert page["downloads"] == [
        ["model-cross.0.0.svg", "blob"],
        ["model-cross.0.0.png", "blob"],
        ["model-cross.0.all.csv", "blob"],
    ]
    assert page["png"]["type"] == "image/png"
    assert bytes(page["png"]["start"][:8]) == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(bytes(page["png"]["start"][16:20])) > 400  # pixels wide


@pytest.mark.long
def test_the_address_opens_the_view_that_it_names(hostile_report, visit):
    page = render_report(hostile_report)
    visited = visit(page, "#s=1&head=dec.0.1&view=lines&tab=logits&theme=dark&q=enc&row=1")
    assert visited.console == []
    assert visited.text_of("filter-count") == "4 of 8"
    assert 'data-theme="dark"' in visited.dom
    assert 'id="tab-logits" aria-controls="panel-logits" aria-selected="true"' in visited.dom
    assert 'id="panel-heads" role="tabpanel" aria-labelledby="tab-heads" hidden' in visited.dom
    visited = visit(page, "#enc.1.0")
    assert visited.text_of("head") == "enc.1.0"


@pytest.mark.long
@pytest.mark.parametrize(
    "address",
    [
        "#s=99&head=<img src=x onerror=alert(1)>&tab=none&view=x&row=-1",
        "#%E0%A4%A",
        "#=&&",
        "#row=1e9",
    ],
)
def test_an_address_that_names_nothing_opens_the_first_view(hostile_report, visit, address):
    visited = visit(render_report(hostile_report), address)
    assert visited.console == []
    assert visited.text_of("head") == hostile_report.views["decision"].heads[0].id


@pytest.mark.long
def test_the_page_of_heads_has_no_tabs_and_an_empty_one_says_so(hostile_report, visit):
    records = [sentence.heads for sentence in hostile_report.sentences]
    visited = visit(render_html([replace(record, extras=None) for record in records]))
    assert visited.console == []
    assert 'role="tablist" aria-label="Views" hidden' in visited.dom
    assert re.search(r'<section class="panel" id="qk"[^>]* hidden', visited.dom)
    visited = visit(render_html(records))  # with a search there are two
    assert visited.console == []
    assert visited.dom.count('role="tab" id="tab-') == 2
    visited = visit(render_html([]))
    assert visited.console == []
    assert "There is no sentence to show." in visited.text_of("sentences")


@pytest.mark.long
def test_a_selection_of_heads_and_a_narrow_window_are_no_obstacle(hostile_report, visit):
    records = [
        replace(hostile_report.sentences[0].heads, heads=(HeadId("dec", 0, 1),)),
    ]
    visited = visit(render_html(records), "#view=lines&scope=kind", size=(360, 700))
    assert visited.console == []
    assert visited.text_of("head") == "dec.0.1"


@pytest.mark.long
def test_the_sample_page_opens_every_tab(visit):
    visited = visit(sample_page(), script=SELFTEST)
    assert visited.console == []
    assert visited.selftest["errors"] == []
    assert min(visited.selftest["tabs"].values()) > 150
    assert visited.selftest["nameless"] == []
    says = visited.text_of("guide-says")
    assert re.match(r"Head \S+ (decides|does not decide): give it what it computed", says)


@pytest.fixture
def tabs(tmp_path, browser):
    """The sample page, opened once for each of its tabs."""
    # Not when a page is open: one that a skipped test leaves is closed by the garbage collector,
    # in the midst of the browser's own loop, which then never ends
    pytest.importorskip("axe_playwright_python.sync_playwright")

    def open_tabs():
        with browser.new_page() as page:
            page.goto(path.as_uri())
            names = page.locator("#tabs button").evaluate_all("all => all.map(one => one.id)")
        assert len(names) >= 7
        for name in names:
            # Anew, as axe looks at what other tabs have drawn, too
            with browser.new_page() as page:
                page.goto(path.as_uri())
                page.click(f"#{name}")
                yield page, name

    path = tmp_path / "sample.html"
    path.write_text(sample_page(), encoding="utf-8")
    return open_tabs()


def test_axe_finds_nothing_against_its_rules_in_a_report(tabs):
    for page, name in tabs:
        assert violations(page, without=CONTRAST) == [], name
        page.set_viewport_size({"width": 400, "height": 800})  # where wide tables scroll
        page.reload()
        assert violations(page, without=CONTRAST) == [], name


@pytest.mark.long  # it looks through everything drawn at each place: half a minute
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_against_its_contrasts_in_a_report(tabs, scheme):
    for page, name in tabs:
        page.emulate_media(color_scheme=scheme)
        assert violations(page, CONTRAST) == [], name


WIDTHS = """
const wide = {};
for (const tab of tabs) {
  update({ tab: tab.id });
  wide[tab.id] = document.documentElement.scrollWidth - innerWidth;
}
const most = { inner: innerWidth, wide };
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(most))));
"""


@pytest.mark.long
@pytest.mark.parametrize("width", [500, 1000, 1400])
def test_no_tab_is_wider_than_the_window(hostile_report, visit, width):
    visited = visit(render_report(hostile_report), script=WIDTHS, size=(width, 900))
    assert visited.console == []
    assert visited.selftest["inner"] <= width
    assert max(visited.selftest["wide"].values()) <= 0, visited.selftest


def alone(view, records, options, visit):
    """What a browser has seen of the page of one view."""
    visited = visit(render_view(view, records, options), script=ALONE)
    assert visited.console == []
    page = visited.selftest
    assert page["seen"] == page["printed"]
    assert (page["tabs"], page["injected"], page["scripts"]) == (True, 0, 2)
    assert page["wide"] <= 0
    assert page["length"] > 150
    return page


@pytest.mark.parametrize("name", ["logits", "flow", "step"])
def test_a_view_of_a_sentence_is_a_page_of_its_own(hostile_report, visit, name):
    view = VIEWS[name]
    records = [sentence.views[name] for sentence in hostile_report.sentences]
    if name == "step":
        (record, *_), *_ = records
        records = [replace(record, quiz=make_quiz(record, 1))]
    options = None if name == "step" else view.Options()
    page = alone(view, records, options, visit)
    assert page["seen"] == [f"panel-{'steps' if name == 'step' else name}"]
    assert (page["blanks"] > 5) == page["answers"] == (name == "step")


def test_a_printed_worksheet_has_no_empty_box(hostile_report, tmp_path, browser):
    (record, *_), *_ = [sentence.views["step"] for sentence in hostile_report.sentences]
    path = tmp_path / "sheet.html"
    sheet = replace(record, quiz=make_quiz(record, 1))
    path.write_text(render_view(VIEWS["step"], [sheet], None), encoding="utf-8")
    with browser.new_page() as page:
        page.goto(path.as_uri())
        page.emulate_media(media="print")
        texts = page.locator(".panel:visible").evaluate_all("all => all.map(box => box.innerText)")
        assert len(texts) > 5
        assert all(map(str.strip, texts))
        assert "Answers" not in "".join(texts)


def test_views_of_models_are_pages_of_their_own(model, hostile_report, visit):
    page = alone(VIEWS["positions"], [hostile_report.views["positions"]], PositionsOptions(), visit)
    assert page["seen"] == ["panel-positions"]


def test_pages_of_blocks_need_no_script_and_fit_a_phone(model, hostile_report, visit):
    diff = inspect_diff(model, model, ["A man <b>sleeps</b>."], device="cpu")
    head = HeadCourse(head=HeadId("enc", 0, 0), roles=("other", "self"), metrics={})
    run = HeadTimeline(run="<img src=x>", steps=(0, 10), n_sentences=3, courses=(head,))
    entropy = EntropyView()
    shown = [entropy.read(None, sentence.heads, None) for sentence in hostile_report.sentences]
    for view, records in ((VIEWS["diff"], [diff]), (VIEWS["timeline"], [run]), (entropy, shown)):
        page = visit(render_view(view, records, view.Options()), size=(400, 800))
        assert (page.console, page.overflow) == ([], 0)
        assert not re.search("<(script|img|b|iframe|link)[ >]", page.dom)
        assert page.dom.count("<section>") == len(records)


ENTROPY = """
const seen = ["0", "1"].map(s => {
  update({ s, tab: "entropy" });
  return [...elements("#panel-entropy td")].map(cell => cell.textContent);
});
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(seen))));
"""


def test_a_view_without_a_script_has_a_tab_in_the_report(hostile_report, visit, monkeypatch):
    entropy = EntropyView()
    monkeypatch.setitem(VIEWS.shipped, entropy.name, entropy)
    heads = [sentence.heads for sentence in hostile_report.sentences]
    views = [{entropy.name: entropy.read(None, record, None)} for record in heads]
    sentences = [
        replace(sentence, views={**sentence.views, **view})
        for sentence, view in zip(hostile_report.sentences, views, strict=True)
    ]
    visited = visit(render_report(replace(hostile_report, sentences=sentences)), script=ENTROPY)
    assert visited.console == []
    shown = [
        [cell for head, nats in view[entropy.name].heads.items() for cell in (head, f"{nats:.3f}")]
        for view in views
    ]
    assert visited.selftest == shown
    assert shown[0] != shown[1]


DECISION = """
const panel = byId("panel-decision"), [first] = elements("tbody button", panel);
const texts = (selector) => [...elements(selector, panel)].map(one => one.textContent);
const seen = { isOpen: !panel.hidden, marks: texts("mark"), rows: texts("tbody th") };
Object.assign(seen, { titles: texts("h2"), says: panel.textContent, grids: texts("svg").length });
elements(".choices button", panel)[1]?.click();
seen.turned = texts("svg").length;
first.click();
Object.assign(seen, { head: byId("head").textContent, row: state.row, tab: state.tab });
const { row } = state;
update({ s: String(data.sentences.length - 1), row: "" });
seen.other = byId("guide-says").textContent;
update({ row });
seen.otherRow = byId("guide-says").textContent;
elements("tbody button", panel)[0].click();
seen.sentence = state.s;
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(seen))));
"""


def test_a_decision_is_a_page_that_leads_from_causes_to_maps(zoo, visit):
    record = inspect_decision(zoo["translate"], ["The old house.", "A dog."])
    visited = visit(render_view(DECISION_VIEW, [record], DecisionOptions()), script=DECISION)
    assert visited.console == []
    page = visited.selftest
    assert page["isOpen"]
    plain = [name.replace("▁", " ") for name in record.names]
    assert [mark for mark in page["marks"] if mark in plain] == plain
    parts = [part.id for part in record.heads]
    assert [row for row in page["rows"] if row in parts][: len(parts)] == parts
    assert {"Heads by effect", "Single attention weights", "Layers"} < set(page["titles"])
    directions = {
        way: sum(each.direction == way for each in record.maps) for way in ("patch", "back")
    }
    assert (page["grids"], page["turned"]) == (directions["patch"], directions["back"])
    strongest = record.heads[0]
    assert (page["head"], page["tab"]) == (strongest.id, "heads")
    assert page["row"] == str(strongest.row)
    # The other sentence's d is changed by values of the first
    check_cause(page["other"], (record.d[1], record.names), record.heads, strongest, "back")
    assert "looks at" not in page["other"]  # these numbers belong to the first sentence
    # The same number is another row there, of which the guide says what it is, and no cause
    assert page["otherRow"].startswith("When the model ")
    assert page["sentence"] == "0"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classifier", "A good dog."),
        ("tagger", "A good dog."),
        ("masked", "A <mask> dog."),
        ("language_model", "The old"),
        ("images", None),
    ],
)
def test_a_decision_of_every_kind_is_a_page(zoo, visit, name, text):
    record = inspect_decision(zoo[name], [text or str(next(zoo.inputs.rglob("*.png")))])
    visited = visit(render_view(DECISION_VIEW, [record], DecisionOptions()), script=DECISION)
    assert visited.console == []
    page = visited.selftest
    assert len([row for row in page["rows"] if row == record.heads[0].id]) >= 1
    assert page["head"] == record.heads[0].id
    assert record.place in page["says"]
    assert len(page["marks"]) == (record.written_at != (None,))


def test_the_page_of_a_decision_says_what_an_estimate_is_of(zoo, visit):
    settings = DecisionOptions(method=("gradients",))
    record = inspect_decision(zoo["translate"], ["The old house."], settings=settings)
    visited = visit(render_view(DECISION_VIEW, [record], settings), script=DECISION)
    assert visited.console == []
    d, effect = (f"{x:+.2f}".replace("-", "−") for x in (record.d[0], record.heads[0].cause))
    says = f"switching head {record.heads[0].id} off changes d from {d} by {effect}."
    assert says in visited.selftest["says"]
    assert says in visited.selftest["otherRow"]


READING = """
const shown = (id) => byId(id).getClientRects().length > 0;
const ids = ["source-text", "source", "target-text", "target"];
const found = { shown: ids.filter(shown), label: byId("target-label").textContent };
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(found))));
"""


def test_the_page_of_a_language_model_has_a_text_and_no_source(language_model, visit):
    record = next(inspect_heads(language_model, ["A man sleeps."], device="cpu"))
    visited = visit(render_html([record]), script=READING)
    assert visited.console == []
    assert visited.selftest == {"shown": ["target-text", "target"], "label": "Text"}


def test_the_page_of_a_classifier_has_a_label_and_no_target(classifier, visit):
    (record,) = inspect_heads(classifier, ["A man sleeps."], device="cpu", for_page=True)
    script = READING.replace('byId("target-label").textContent', 'byId("target-text").textContent')
    visited = visit(render_html([record]), script=script)
    assert visited.console == []
    shown = ["source-text", "source", "target-text"]
    assert visited.selftest == {"shown": shown, "label": record.labeled}


READ_BY_AN_ENCODER = """
const found = { says: byId("reading").textContent, hint: byId("filter").placeholder };
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(found))));
"""


def test_the_page_of_a_classifier_has_no_words_of_a_translation(classifier, visit):
    (record,) = inspect_heads(classifier, ["A man sleeps."], device="cpu", for_page=True)
    page = visit(render_html([record]), script=READ_BY_AN_ENCODER).selftest
    assert "query: token." in page["says"]
    assert "source token" not in page["says"]
    assert "cross" not in page["hint"]


def test_a_projector_shows_the_map_and_one_sentence_in_large_letters(visit):
    seen = visit(sample_page(), script=PROJECTOR, size=(1280, 720))
    assert seen.console == []
    page = seen.selftest
    before, large, after = (page[name] for name in ("before", "large", "after"))
    assert page["listed"]
    assert (before["pressed"], large["pressed"]) == ("false", "true")
    assert "projector=1" in large["hash"]
    assert large["says"].startswith("Head dec.2.1 decides: give it what it ")
    # The tab of another view is left for the map, with the row that the sentence is about
    assert "row=" in large["hash"]
    assert "tab=" not in large["hash"]
    assert large["figures"] == ["one"]
    assert large["panels"] == ["title", "guide", "panel-heads", "figures"]
    assert large["letters"] == page["lines"] == [20]
    assert large["least"] >= 20
    assert large["below"] <= 0
    assert max(page["paper"]["letters"]) <= 13
    assert not page["paper"]["isLarge"]
    assert max(before["letters"]) <= 13
    assert after["panels"] == before["panels"]
    assert after["letters"] == before["letters"]
    opened = visit(sample_page(), "#projector=1", size=(1280, 720))
    assert 'id="projector" aria-pressed="true"' in opened.dom


ROWS = """
const rows = head => rowsOf(head).map((piece, row) => [linkOfRow(head, row), row]);
const found = sentence.heads.filter(head => head.kind !== "enc").flatMap(head =>
  rows(head).filter(([link]) => link).map(([link, row]) => {
    const k = columnsOf(head).length, own = [...weightsOf(head).slice(row * k, (row + 1) * k)];
    const sum = own.reduce((all, one) => all + one, 0);
    return [link.rows.length, link.weight - Math.max(...own), sum - link.weight];
  }));
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(found))));
"""


def test_a_row_of_a_map_is_described_by_its_own_weights(visit):
    found = visit(sample_page(), script=ROWS).selftest
    assert len(found) > 100
    # A word's weight is that of its tokens together: at least the largest, and at most all
    assert all(n == 1 and more > -1e-6 and rest > -1e-3 for n, more, rest in found)


ABLATION = """
update({ tab: "ablation" });
const found = byId("panel-ablation").textContent;
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(found))));
"""


def test_effects_that_round_to_nothing_look_like_nothing(classifier, visit):
    report = inspect_report(classifier, ["A man sleeps."], device="cpu")
    effects = report.sentences[0].views["ablation"].effects
    effects.update({head: 4e-4 for head in effects})
    words = visit(render_report(report), script=ABLATION).selftest
    assert "The strongest color is 0.010 nats" in words
    assert "No single head matters" in words


APART = """
const words = wordsOf("target").texts;
const found = { apart: [...tellingApart(words)], links: sentence.links };
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(found))));
"""


def test_of_two_sentences_alike_the_page_knows_the_words_that_differ(model, visit):
    targets = ["Zwei Hunde rennen im Schnee.", "Zwei Katzen rennen im Schnee."]
    records = list(
        inspect_heads(model, ["Two dogs run."] * 2, targets=targets, device="cpu", for_page=True)
    )
    page = visit(render_html(records), script=APART).selftest
    assert page["apart"] == ["Hunde"]
    assert page["links"] == [list(link) for link in sorted(records[0].aligned.links)]
    assert page["links"]


NAMES = """
const words = ["'t", "’re", "l'animal", "'tis,", '"old"', "dog.", "'"].map(bare);
Object.assign(sentence, { sourceWords: null, sourcePieces: ["▁didn", "'t", "▁(a", "▁", "</s>"] });
const found = { words, pieces: wordsOf("source").texts };
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(found))));
"""


def test_captions_keep_the_apostrophe_of_a_piece(model, visit):
    records = list(inspect_heads(model, ["Two dogs run."], device="cpu", for_page=True))
    page = visit(render_html(records), script=NAMES).selftest
    assert page["words"] == ["'t", "’re", "animal", "tis", "old", "dog", "'"]
    assert page["pieces"] == ["didn", "'t", "(a", "▁"]


LOOK = """
const seen = {
  heading: document.querySelector("h1").textContent,
  ids: sentence.heads.map(head => head.id),
  thumbs: document.querySelectorAll(".thumb").length,
  head: byId("head").textContent,
  reading: byId("reading").textContent,
  largest: byId("largest").textContent,
  role: byId("role").textContent,
  links: [...byId("links").rows].map(row => row.cells[3].textContent),
  csv: csvFile("one"),
  scopes: document.querySelectorAll("span:not([hidden]) > [data-scope]").length,
};
press("o");
press("m");
showTip("one", { row: 0, column: 0 }, { clientX: 10, clientY: 10 });
update({ q: "cross" });
seen.tip = byId("tip").textContent;
seen.passing = byId("filter-count").textContent;
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(seen))));
"""


@pytest.mark.parametrize("weighting", ["norm", "rollout", "alti"])
def test_the_page_shows_the_numbers_of_the_weighting(model, visit, weighting):
    record = next(inspect_heads(model, ["A man sleeps."], weights=weighting, targets=["dogs run"]))
    visited = visit(render_html([record]), script=LOOK)
    assert visited.console == []
    seen = visited.selftest
    assert seen["ids"] == [str(head) for head in record.heads]
    assert seen["thumbs"] == len(record.heads)
    chosen = record.first_head()
    assert seen["head"] == str(chosen)
    assert record.weighting.sums in seen["reading"]

    rows = list(csv.reader(io.StringIO(seen["csv"])))
    assert rows[0] == [str(chosen), *record.source_pieces]
    weights = np.array([row[1:] for row in rows[1:]], dtype=float)
    expected = record.captured.weights(chosen)
    # 16 bits of the largest, and five digits of the file
    np.testing.assert_allclose(weights, expected, atol=0.5 / 65535 * record.largest + 6e-6)
    strongest = [float(text) for text in seen["links"]]
    np.testing.assert_allclose(strongest, expected.max(axis=1), rtol=0.01, atol=6e-4)
    first = float(expected[0, 0])
    if weighting == "norm":
        assert seen["heading"] == "Attention heads: norm"
        assert float(seen["largest"]) == pytest.approx(record.largest, rel=0.01)
        assert seen["scopes"] == 2
        assert "takes from" in seen["tip"]
        assert float(seen["tip"].split("predicting")[0]) == pytest.approx(first, rel=1e-3)
        assert seen["passing"] == "2 of 8"
    else:
        assert seen["heading"] == f"Layers: {weighting}"
        assert seen["largest"] == "1"
        assert seen["scopes"] == 0
        assert seen["role"].startswith("All heads of this layer")
        assert "is made of" in seen["tip"]
        assert seen["passing"] == "1 of 4"


SELFTEST_IMAGE_TAB = """
  const shown = document.createElement("pre");
  shown.id = "selftest";
  update({ tab: "image" });
  const all = selector => [...document.querySelectorAll(`#panel-image ${selector}`)];
  const names = all("figcaption").map(one => one.firstChild.textContent);
  const largest = all("canvas").map(one => one.getAttribute("aria-label"));
  const given = viewOf(sentence, "image").maps.map(one => one.weights);
  document.querySelector("#panel-image figcaption button").click();
  const texts = ["guide-says", "source-label", "source-name"].map(id => byId(id).textContent);
  update({ tab: "flow" });
  const flow = document.querySelector("#panel-flow canvas").getAttribute("aria-label");
  const found = { names, largest, given, texts, flow, hash: location.hash };
  shown.textContent = encodeURIComponent(JSON.stringify(found));
  document.body.append(shown);
"""


@pytest.mark.parametrize("has_class", [True, False])
def test_a_report_shows_maps_over_the_image(tmp_path, visit, has_class):
    pooling = "first" if has_class else "mean"
    path, _ = directory(tmp_path / "m", class_token=has_class, pooling=pooling)
    options = ReportOptions(ablation=False)
    report = inspect_report(path, [pixels_of(1)], device="cpu", options=options)
    visited = visit(render_report(report), script=SELFTEST_IMAGE_TAB)
    assert visited.console == []
    page = visited.selftest
    looked = report.sentences[0].views["image"].looked
    guide, *labels = page["texts"]
    assert labels == ["Image", "Patches"]
    ways = ["the image", "attention rollout", "ALTI"]
    assert page["names"] == [*ways, *(layer.name for layer in looked[:-2])]
    ordered = [*looked[-2:], *looked[:-2]]
    expected = ["{}: most at row {}, column {}".format(row.label, *row.peak) for row in ordered]
    assert page["largest"] == expected
    for shares, layer in zip(page["given"], looked, strict=True):
        assert torch.allclose(torch.tensor(shares), layer.shares, atol=1 / 254 + 1e-6)
    assert "head=enc.0.0" in page["hash"]
    assert re.match(r"When the model reads (patch \d,\d|class), head enc.0.0 ", guide)
    assert page["flow"] == expected[1].replace("ALTI", "ALTI+")


KINDS = {
    "dot": {"similarity": "dot"},
    "cosine": {"similarity": "cosine"},
    "distance": {"similarity": "distance"},
    "additive": {"similarity": "additive", "positions": "alibi"},
    "relative": {"positions": "relative"},
    "distance and relative": {"similarity": "distance", "positions": "relative"},
    "rotary": {"positions": "rotary"},
    "segments": {
        "positions": "segments", "n_encoder_layers": 0, "memory": 4, "max_positions": 6,
        "target_eos": False, "target_bos": False,
    },
}  # fmt: skip


SELFTEST_SCORE_TERMS = """
  const shown = document.createElement("pre");
  shown.id = "selftest";
  const found = [];
  for (let s = 0; s < data.sentences.length; s++) for (const head of data.sentences[s].heads) {
    update({ s: String(s), head: head.id });
    const vectors = vectorsOf(head), k = columnsOf(head).length;
    const own = weightsOf(head);
    let error = 0;
    for (let row = 0; row < vectors.queries.length; row++) {
      const { first, weights } = scoresOf(head, vectors, row), whole = new Float32Array(k);
      whole.set(weights, first);
      whole.forEach((one, j) => error = Math.max(error, Math.abs(one - own[row * k + j])));
    }
    const text = document.getElementById("qk-terms")?.textContent ?? "";
    found.push({ sentence: data.sentences.indexOf(sentence), id: head.id, error, text,
      title: byId("qk-title").textContent,
      bars: document.querySelectorAll("#qk-body svg").length });
  }
  shown.textContent = encodeURIComponent(JSON.stringify(found));
  document.body.append(shown);
"""


def record_of(path, changes):
    tokenizer = train_tokenizer(LINES * 3, TokenizerConfig(vocab_size=300))
    settings = {
        "d_model": 32, "n_heads": 2, "d_ff": 32, "n_encoder_layers": 2, "n_decoder_layers": 1,
        "max_positions": 40, "positions": "none",
    }  # fmt: skip
    config = ModelConfig(**{**settings, **changes})
    torch.manual_seed(7)
    weights = Transformer(config, tokenizer.vocab_size).state_dict()
    random = {name: tensor + 0.3 * torch.randn_like(tensor) for name, tensor in weights.items()}
    save_model_directory(
        path, random, config=config, tokenizer=tokenizer, decoding=DecodingConfig(max_length=6),
        info=ModelInfo(),
    )  # fmt: skip
    (record,) = inspect_heads(path, ["Two dogs run in the street"], for_page=True, device="cpu")
    return record


# A browser takes half a second to open a page: all models that read a source are on one
@pytest.mark.parametrize(
    "kinds",
    [[kind for kind in KINDS if kind != "segments"], ["segments"]],
    ids=["translation", "text"],
)
def test_terms_make_the_weights_that_the_map_has(tmp_path, visit, kinds):
    records = [record_of(tmp_path / kind, KINDS[kind]) for kind in kinds]
    visited = visit(render_html(records), script=SELFTEST_SCORE_TERMS)
    assert visited.console == []
    for number, (kind, record) in enumerate(zip(kinds, records, strict=True)):
        heads = [head for head in visited.selftest if head["sentence"] == number]
        assert [head["id"] for head in heads] == [str(head) for head in record.heads]
        check_terms(kind, heads)


def check_terms(kind, heads):
    for head in heads:
        assert head["error"] < 5e-3  # queries and keys are float16
        is_cross, has_positions = head["id"].startswith("cross"), "positions" in KINDS[kind]
        assert head["title"].endswith("The query times the key") == (kind == "rotary")
        assert head["bars"] == (kind != "additive")
        assert ("the term for positions" in head["text"]) == (
            has_positions and not is_cross and kind != "rotary"
        )
        assert ("the constant of the similarity" in head["text"]) == ("distance" in kind)
    if kind == "additive":
        assert "v·tanh(q + k_j)" in heads[0]["text"]
