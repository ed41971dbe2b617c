"""The live page in a browser: actions of a user, and their effects."""

import asyncio
import gzip
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from time import monotonic

import pytest

from tests.chromium import CONTRAST, chromium, violations
from tests.commands import record_of
from tests.models import LINES, save_random
from tests.plugins.serve.live_server import serve_models
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.artifacts.doubt_file import SCHEMA, Calibration, store_calibration
from tformer_cli.inspect.doubt import SIGNALS
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.serve.page_files import page_files
from tformer_cli.plugins.serve.security import Keys

TEXT = "Two dogs run in the snow."
SLOW = "A woman and a dog."
LATE = "A man sleeps in the old house."
HOSTILE = '</script><img src=x onerror="document.title=1"> "><svg onload=document.title=2>'
MOST_SECONDS = 20
MOST_BYTES = 80_000
"""Limit on the compressed size of all files of the page."""
SHAPE = {"d_model": 16, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2}
DECODING = {"beam_size": 3, "max_length": 8}


@pytest.fixture(scope="module")
def models(tmp_path_factory, zoo, one_thread):
    """Translators that write random words, and one model of each other kind."""
    folder = tmp_path_factory.mktemp("served")
    info = {"several_sentences": 0.0}  # translates sentence by sentence
    words = {"algorithm": "word", "scale": 4.0, "decoding": DECODING, "info": info, **SHAPE}
    return {
        "words": save_random(folder / "words", LINES * 3, **words),
        "others": save_random(folder / "others", LINES * 3, seed=5, **words),
        **{name: zoo[name] for name in ("classifier", "tagger", "masked", "language_model")},
        "images": zoo["images"],
    }


def slow(app):
    """Delays the answers to two texts."""

    async def wrap_app(scope, receive, send):
        delay = 0.0

        async def watch_send():
            nonlocal delay
            message = await receive()
            body = message.get("body", b"")
            delay = 0.6 if SLOW.encode() in body else 2.0 if LATE.encode() in body else delay
            return message

        async def late(message):
            if delay and message["type"] == "http.response.start":
                await asyncio.sleep(delay)
            await send(message)

        await app(scope, watch_send, late)

    return wrap_app


@pytest.fixture(scope="module")
def address(models):
    with serve_models(models, slow) as url:
        yield url


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


class Page:
    """The page of a test, with its console messages and requests."""

    def __init__(self, page, address):
        self.page, self.address = page, address
        self.problems, self.requests, self.bodies = [], [], []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._note_problem)
        page.on("request", self._note_request)
        page.set_default_timeout(20_000)

    def _note_problem(self, message):
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _note_request(self, request):
        self.requests.append((request.method, request.url))
        self.bodies.append(request.post_data)

    def open(self, text=TEXT, model="words"):
        self.page.goto(self.address)
        self.page.wait_for_selector("#source-0")
        if model != "words":
            self.page.select_option("#model-0", label=model)
        if text is not None:
            self.page.fill("#source-0", text)
        return self

    @property
    def target(self):
        return self.page.input_value("#target-0")

    def until(self, script, argument=None):
        """Waits; not by `wait_for_function`, which evaluates strings, as the policy forbids."""
        end = monotonic() + MOST_SECONDS
        while not self.page.evaluate(script, argument):
            assert monotonic() < end, (script, argument, self.target, self.problems)
            self.page.wait_for_timeout(20)

    def wait_for_answer(self):
        """Waits until the answer to the typed text, with its heads, is shown."""
        self.until(
            "text => document.querySelector('#source-text').textContent === text"
            " && document.querySelector('.thumb')",
            self.page.input_value("#source-0"),
        )
        return self

    def shows_sentence(self, text):
        """Waits until a sentence is the inspected one."""
        self.until("text => document.querySelector('#source-text').textContent === text", text)
        self.until("!document.querySelector('#sentence').hidden")

    def point_at(self, word):
        box = word.bounding_box()  # the field lies above its words
        self.page.mouse.move(box["x"] + 4, box["y"] + 6)

    def texts(self, selector):
        return self.page.locator(selector).all_inner_texts()


@pytest.fixture
def live(browser, address):
    context = browser.new_context(viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
    page = Page(context.new_page(), address)
    yield page
    context.close()
    assert page.problems == []


@pytest.fixture(scope="module")
def translate(models):
    return lambda name, text: open_model(models[name], device="cpu").translator.translate([text])[0]


def test_the_translation_follows_what_is_typed_and_the_last_answer_wins(live, translate):
    live.open(None)
    live.page.fill("#source-0", SLOW)  # answered late
    live.page.wait_for_timeout(200)
    live.page.fill("#source-0", "")
    live.page.type("#source-0", TEXT)
    expected = translate("words", TEXT)
    live.until("text => document.querySelector('#target-0').value === text", expected.text)
    live.page.wait_for_timeout(700)
    assert live.target == expected.text
    score = f"{expected.hypotheses[0].score:.3f}".replace("-", "−")
    assert re.search(rf"score {score} · \d+ ms", live.page.inner_text(".status"))
    live.until("text => document.querySelector('#said').textContent === text", expected.text)
    live.page.fill("#source-0", " ")
    live.until("document.querySelector('#target-0').value === ''")


def test_a_first_inspection_that_takes_long_says_that_pytorch_starts(live):
    live.open(LATE)
    waiting = live.page.locator("#waiting")
    assert waiting.inner_text() == "Heads, the search and the next words appear here."
    live.until("document.querySelector('#waiting').textContent.startsWith('PyTorch is starting')")
    assert waiting.get_attribute("role") == "status"
    live.wait_for_answer()
    assert not waiting.is_visible()


def test_a_word_that_is_pointed_at_shows_its_partners_and_its_probability(live):
    live.open().wait_for_answer()
    word = live.page.locator(".written .word").nth(1)
    live.point_at(word)
    live.until("document.querySelectorAll('.written .word.pointed').length === 1")
    assert live.page.locator(".read .word.linked").count() >= 1
    linked = live.page.locator(".read .word.linked").first.inner_text()
    status = live.page.inner_text(".status")
    assert status.startswith(f"{word.inner_text()} ← {linked}")
    assert re.search(r"probability [01]\.\d\d · score", status)
    live.page.mouse.move(2, 2)
    live.until("document.querySelectorAll('.pointed, .linked').length === 0")
    # also with the caret, for users without a pointer
    live.page.focus("#source-0")
    live.page.keyboard.press("Home")
    live.until("document.querySelectorAll('.read .word.pointed').length === 1")
    assert live.page.locator(".probabilities span").count() == len(live.target.split())


def test_a_dropped_hypothesis_of_the_tree_becomes_the_prefix(live):
    live.open().wait_for_answer()
    before = live.target
    live.page.click("#tab-search")
    dropped = live.page.locator(".node[aria-label$=', dropped']").filter(has_text="▁").nth(2)
    prefix = dropped.get_attribute("aria-label").removesuffix(", dropped")
    assert not before.startswith(prefix)
    dropped.focus()
    live.page.keyboard.press("Enter")
    live.until("start => document.querySelector('#target-0').value.startsWith(start)", prefix)
    grey = "".join(live.texts(".written .rest"))
    assert live.target.replace(" ", "") == (prefix + grey).replace(" ", "")
    live.until("document.querySelector('.node') !== null")
    live.page.click(".free")
    live.until("text => document.querySelector('#target-0').value === text", before)


def test_the_translation_is_edited_word_by_word(live):
    live.open().wait_for_answer()
    before = live.target
    live.page.focus("#target-0")
    live.page.keyboard.press("Control+a")
    live.page.keyboard.type("street")
    live.until("document.querySelector('#target-0').value.startsWith('street ')")
    whole = live.target
    assert whole != before
    assert "street" not in "".join(live.texts(".written .rest"))
    live.page.keyboard.press("Tab")
    taken = len(f"street {whole.split(' ')[1]}")
    live.until("taken => document.activeElement.selectionStart === taken", taken)
    assert live.page.evaluate("document.activeElement.id") == "target-0"
    grey = "".join(live.texts(".written .rest"))
    assert grey == whole[taken:].replace(" ", "")
    live.page.keyboard.press("Control+Enter")
    live.until("end => document.activeElement.selectionStart === end", len(whole))
    assert live.target.startswith(whole)  # a model that never ends continues after it
    live.page.keyboard.press("Escape")
    live.until("text => document.querySelector('#target-0').value === text", before)
    live.page.keyboard.press("Tab")  # nothing to accept: Tab moves the focus
    assert live.page.evaluate("document.activeElement.id") != "target-0"


def test_a_head_that_is_switched_off_changes_words_that_are_underlined(live, models):
    from tformer_cli.inspect.jobs.reader import open_for_inspection
    from tformer_cli.plugins.instruments.jobs.ablate import translate_without

    opened = open_for_inspection(models["words"], device="cpu")
    without = translate_without(opened, TEXT)
    head, text = next(
        (name, text)
        for name, text in without.without.items()
        if name.count(".") == 2 and text != without.whole
    )
    live.open().wait_for_answer()
    assert live.target == without.whole
    live.page.click("#switch")
    live.page.click(f"[data-head='{head}']")
    live.until("text => document.querySelector('#target-0').value === text", text)
    kept = Counter(without.whole.split()) & Counter(text.split())
    changed = live.texts(".written .changed")
    assert len(changed) >= len(text.split()) - kept.total()
    live.wait_for_answer()
    assert live.page.get_attribute(f"[data-head='{head}']", "aria-label") == f"{head}, off"
    live.page.click("#all-on")
    live.until("text => document.querySelector('#target-0').value === text", without.whole)
    assert live.page.locator(".thumb.off").count() == 0
    live.page.click("#look")
    live.page.click("[data-head='enc.1.0']")
    assert live.page.inner_text("#head") == "enc.1.0"
    live.page.keyboard.press("x")
    live.until("document.querySelector('.thumb.off') !== null")


def test_each_head_off_and_the_lens_have_their_tabs(live):
    live.open().wait_for_answer()
    live.page.click("#tab-ablation")
    assert live.page.locator(".ablation button").count() == 12
    live.page.click("#tab-logits")
    assert "layer 1" in live.page.inner_text("#panel-logits")
    live.page.click("#tab-flow")
    assert live.page.locator("#panel-flow svg, #panel-flow canvas").count() >= 1


def test_the_steps_of_a_head_for_a_token_are_asked_for_when_their_tab_is_open(live, models):
    live.open().wait_for_answer()
    live.until("document.querySelector('#tab-ablation') !== null")  # the last answer is there
    n_asked = len(live.requests)
    live.page.click("#tab-steps")
    live.page.wait_for_selector(".step")
    live.page.focus("#steps-head")
    live.page.select_option("#steps-head", "dec.1.1")
    live.until("/^dec.1.1/.test(document.querySelector('#panel-steps h3')?.textContent)")
    assert live.page.evaluate("document.activeElement.id") == "steps-head"
    live.page.select_option("#steps-token", "1")
    live.until("/position 1,/.test(document.querySelector('#panel-steps').textContent)")
    assert len(live.requests) <= n_asked + 3  # none for steps that are there
    named = ("--head", "dec.1.1", "--token", "1", "--format", "json")
    steps = record_of("inspect-step", models["words"], TEXT, *named)["steps"]
    assert len(live.texts(".step")) == len(steps)
    for step, shown in zip(steps, live.texts(".step"), strict=True):
        first = step["tables"][0]["values"][0][0]
        assert f"{first:.3f}".replace("-", "\u2212") in shown, step["title"]
    # All heads must be on
    live.page.click("#tab-heads")
    live.page.click("#switch")
    live.page.locator(".thumb").first.click()
    live.wait_for_answer()
    live.page.click("#tab-steps")
    assert "with all its heads on" in live.page.inner_text("#panel-steps .status")


def test_positions_are_asked_for_once_a_model(live):
    live.open().wait_for_answer()
    live.page.click("#tab-positions")
    live.page.wait_for_selector("#panel-positions canvas")
    assert "Sinusoidal positions" in live.page.inner_text("#panel-positions")
    asked = sum("positions" in (body or "") for body in live.bodies)
    live.page.fill("#source-0", "A man sleeps.")
    live.wait_for_answer()
    live.page.wait_for_selector("#panel-positions canvas")
    assert asked == sum("positions" in (body or "") for body in live.bodies) == 1


def test_a_decision_is_asked_for_and_leads_to_the_head_that_causes_it(live):
    live.open().wait_for_answer()
    live.until("document.querySelector('#tab-ablation') !== null")
    live.page.click("#tab-decision")
    assert live.page.locator(".parted").count() == 0
    live.page.fill("#decision-other", "A man sleeps.")
    live.page.keyboard.press("Enter")
    live.page.wait_for_selector(".parted")
    assert live.texts(".parted mark")
    live.until("document.querySelector('#decision-status').textContent === ''")
    assert live.page.input_value("#decision-other") == "A man sleeps."
    assert live.page.evaluate("document.activeElement.id") == "decision-other"
    assert violations(live.page) == []
    live.page.emulate_media(color_scheme="dark")
    assert violations(live.page, CONTRAST) == []
    assert live.page.evaluate("document.documentElement.scrollWidth") <= 1280
    causes = live.page.locator("#panel-decision tbody button")
    strongest = causes.first.inner_text()
    causes.first.click()
    assert live.texts("#head") == [strongest]
    assert strongest in live.page.inner_text("#guide-says")
    # Another text has another decision, but the entered words stay
    live.page.fill("#source-0", "Two dogs run.")
    live.wait_for_answer()
    live.page.click("#tab-decision")
    assert live.page.locator(".parted").count() == 0
    live.page.fill("#decision-other", "Two dogs run.")
    live.page.click("#decide")
    live.until("document.querySelector('#decision-status.wrong') !== null")
    assert "decides alike for both" in live.page.inner_text("#decision-status")
    assert len(live.problems) == 1  # the browser reports the status
    live.problems.clear()


def test_the_next_words_move_with_the_temperature_without_asking(live):
    live.open().wait_for_answer()
    live.until("document.querySelector('#tab-ablation') !== null")  # the last answer is there
    live.page.click("#tab-next")

    def shares():
        return [float(text) for text in live.texts(".next .number")]

    cold, n_asked = shares(), len(live.requests)
    assert cold == sorted(cold, reverse=True)
    live.page.fill("#next-temperature", "3")
    hot = shares()
    assert hot[0] < cold[0]
    live.page.fill("#next-k", "2")
    assert live.page.locator(".next.kept").count() == 2
    live.page.fill("#next-k", "0")
    live.page.fill("#next-p", "0.05")
    assert live.page.locator(".next.kept").count() == 1
    assert len(live.requests) == n_asked
    other = live.page.locator(".next:not([aria-current])").filter(has_text="▁").first
    piece = other.locator(".piece").inner_text().replace("▁", "")
    other.click()
    live.until("piece => document.querySelector('#target-0').value.startsWith(piece)", piece)


def test_two_models_stand_side_by_side_and_what_differs_is_marked(live, translate):
    live.open().wait_for_answer()
    live.page.click("#compare")
    a, b = (translate(name, TEXT).text for name in ("words", "others"))
    live.until("text => document.querySelector('#target-1')?.value === text", b)
    assert live.target == a
    assert a != b
    assert live.page.input_value("#source-1") == TEXT
    assert live.page.locator(".changed").count() >= 1
    common = set(a.split()) & set(b.split())
    for text in live.texts(".changed"):
        assert text not in common or a.split().count(text) + b.split().count(text) > 1
    live.page.focus("#source-1")
    live.until("document.querySelector('#facts').textContent.includes('others')")
    live.page.fill("#source-1", "A man sleeps.")  # two sentences of one page
    live.until("text => document.querySelector('#target-1').value !== text", b)
    live.page.click("#compare")
    live.until("document.querySelector('#target-1') === null")
    assert live.page.locator(".changed").count() == 0


def test_of_several_sentences_the_one_with_the_cursor_is_looked_into(live, translate):
    texts = ["A man sleeps.", TEXT, "A woman reads."]
    free = [translate("words", text).text for text in texts]
    live.open(" ".join(texts)).shows_sentence(texts[2])
    assert live.target == " ".join(free)
    chooser = live.page.locator("#sentence")
    assert chooser.evaluate("one => one.value") == "2"  # it was typed last
    live.page.focus("#source-0")
    live.page.keyboard.press("Home")
    live.shows_sentence(texts[0])
    for _ in range(len(texts[0]) + 3):
        live.page.keyboard.press("ArrowRight")
    live.shows_sentence(texts[1])
    assert chooser.evaluate("one => one.value") == "1"
    aside = live.texts(".read .word.aside")
    assert aside == [*texts[0].split(), *texts[2].split()]
    # words go together within the sentence, and the strip is of its words
    live.point_at(live.page.locator(".written .word").nth(len(free[0].split())))
    live.until("document.querySelectorAll('.written .word.pointed').length === 1")
    linked = live.texts(".read .word.linked")
    assert set(linked) <= set(texts[1].split())
    assert live.page.locator(".probabilities span").count() == len(free[1].split())
    # what is typed into its translation is its prefix; the others stay
    start = len(free[0]) + 1
    live.page.evaluate("at => document.querySelector('#target-0').setSelectionRange(at, at)", start)
    live.page.focus("#target-0")
    live.page.keyboard.type("street")
    live.until("document.querySelector('.written .rest') !== null")
    begun = f"{free[0]} street "
    live.until(
        "([begun, end]) => [document.querySelector('#target-0').value]"
        ".every(one => one.startsWith(begun) && one.endsWith(end))",
        [begun, f" {free[2]}"],
    )
    led = live.target[start : -len(free[2]) - 1]
    assert led != free[1]
    assert "".join(live.texts(".written .rest")) == led.removeprefix("street").replace(" ", "")
    live.page.keyboard.press("Escape")
    live.until("text => document.querySelector('#target-0').value === text", " ".join(free))
    live.page.click("#tab-heads")
    live.page.keyboard.press("[")
    live.shows_sentence(texts[0])
    live.page.click("#switch")
    live.page.click("[data-head='cross.0.0']")
    live.until("document.querySelector('#sentence').options.length === 3")
    live.page.select_option("#sentence", "2")
    live.shows_sentence(texts[2])
    live.page.fill("#source-0", texts[0])
    live.wait_for_answer()
    live.until("document.querySelector('#sentence').hidden")


def test_a_tab_stays_while_one_types_and_shows_what_belongs_together(live):
    live.open().wait_for_answer()
    for tab in ("next", "logits"):
        live.page.click(f"#tab-{tab}")
        live.page.evaluate("""
            window.seen = new Set();
            new MutationObserver(() => window.seen.add(
                document.querySelector('#tabs [aria-selected=true]').id)
            ).observe(document.querySelector('#tabs'), { childList: true, subtree: true });
        """)
        for text in ("A man sleeps.", TEXT):
            live.page.fill("#source-0", text)
            live.wait_for_answer()
        assert live.page.evaluate("[...window.seen]") == [f"tab-{tab}"]
        assert live.page.locator(f"#panel-{tab} .waiting-tab").count() == 0


@pytest.mark.parametrize(
    ("model", "text", "shown"),
    [
        ("classifier", "A man sleeps.", ".labels div"),
        ("tagger", "A man sleeps.", ".tag"),
        ("masked", "A man [MASK].", ".filled"),
    ],
)
def test_other_kinds_answer_in_the_same_frame(live, model, text, shown):
    live.open(text, model)
    live.page.wait_for_selector(shown)
    assert live.page.locator(shown).count() == (1 if model == "masked" else 3)
    live.wait_for_answer()
    live.until("document.querySelector('#tab-flow') !== null")
    live.page.click("#tab-next")
    assert live.page.locator(".next").count() >= 3


def test_a_language_model_writes_on_while_one_looks(live):
    live.open(None, "language_model")
    live.page.fill("#source-0", "A man")
    lengths = []
    for _ in range(60):
        lengths.append(len(live.target))
        live.page.wait_for_timeout(10)
    live.until("document.querySelector('.thumb') !== null")
    grown = [b for a, b in pairwise(lengths) if b > a]
    assert live.target
    grey = "[...document.querySelectorAll('.written .rest')].map(one => one.textContent).join('')"
    assert live.page.evaluate(grey) == re.sub(r"[ \t\n\r\f\v]", "", live.target)
    assert len(grown) >= 1
    live.page.click("#tab-next")
    assert live.page.locator(".next").count() >= 3


def test_an_image_is_read_from_a_file(live, zoo):
    live.open(None, "images")
    picture = next(zoo.inputs.rglob("*.png"))
    live.page.set_input_files("#file-0", picture)
    live.page.wait_for_selector(".labels div")
    live.page.wait_for_selector(".thumb")
    live.until("document.querySelector('#tab-image') !== null")
    live.page.click("#tab-image")
    assert live.page.locator(".picture").count() >= 3


def test_what_is_shown_is_saved_as_the_static_report(live):
    live.open().wait_for_answer()
    with live.page.expect_download() as download:
        live.page.click("#report")
    text = download.value.path().read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert live.target.split()[0] in text
    assert "script-src 'unsafe-inline'" in text  # it needs no other file


def test_text_never_becomes_markup(live):
    live.open(HOSTILE).wait_for_answer()
    live.page.fill("#target-0", HOSTILE)
    live.page.wait_for_timeout(400)
    assert live.page.title() == "tformer"
    assert live.page.evaluate("document.querySelectorAll('img[onerror], svg[onload]').length") == 0


def test_a_problem_is_told_in_the_words_of_the_service(live):
    live.open(None)
    live.page.fill("#source-0", "x" * 6000)
    live.until("document.querySelector('.status.wrong') !== null")
    assert live.page.inner_text(".status").startswith("text: has 6000 characters, more than 5000")
    live.page.fill("#source-0", TEXT)
    live.until("document.querySelector('.status.wrong') === null")
    live.problems.clear()  # the browser reports the error status


def test_a_service_with_keys_asks_for_one(browser, models):
    key = "a-key-of-sixteen-or-more"
    with serve_models({"words": models["words"]}, keys=Keys([key])) as address:
        live = Page(browser.new_context().new_page(), address)
        live.page.goto(address)
        assert "API key" in live.page.inner_text(".status.wrong")
        live.page.fill("#key", key)
        live.page.keyboard.press("Enter")
        live.page.wait_for_selector("#source-0")
        live.page.fill("#source-0", TEXT)
        live.wait_for_answer()
        live.page.context.close()


def test_a_projector_shows_what_matters_above_the_fold(live):
    live.open().wait_for_answer()
    for selector in ("#source-0", "#target-0", ".status", "#tabs", "#switch", "#head"):
        box = live.page.locator(selector).bounding_box()
        assert box["y"] + box["height"] <= 720, selector
    last = live.page.locator(".thumb").last.bounding_box()  # all heads, of all three kinds
    assert last["y"] + last["height"] <= 720
    size = "parseFloat(getComputedStyle(document.querySelector('#target-0')).fontSize)"
    before = live.page.evaluate(size)
    live.page.click("#tab-heads")
    live.page.keyboard.press("p")
    assert live.page.evaluate(size) > 1.3 * before
    for figure in ("#one", "#all"):  # redrawn for the available width
        inside = f"{figure} .scroll"
        assert live.page.evaluate(
            "([box]) => box.scrollWidth <= box.clientWidth + 1",
            [live.page.locator(inside).element_handle()],
        )
    live.page.keyboard.press("p")
    assert live.page.evaluate(size) == before


def test_paper_shows_all_tabs_and_nothing_to_press(live):
    live.open().wait_for_answer()
    live.until("document.querySelector('#tab-ablation') !== null")
    live.page.evaluate("""
        () => addEventListener('beforeprint', () => {
            window.shown = [...document.querySelectorAll('#panels > section:not([hidden])')]
                .map(one => one.id.replace('panel-', ''));
        })
    """)
    pdf = live.page.pdf(format="A4")
    assert set(live.page.evaluate("shown")) == set(OPENED["words"][1])
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 8
    assert live.page.locator("#panels > section:visible").count() == 1
    live.page.emulate_media(media="print", color_scheme="dark")
    assert live.page.locator("button:visible", has_text="Save").count() == 0
    assert live.page.locator(".written .word:visible").count() == len(live.target.split())
    ground = live.page.evaluate("getComputedStyle(document.body).color")
    assert int(re.search(r"\d+", ground)[0]) < 128  # ink is dark, whatever the screen has


@pytest.mark.parametrize("width", [400, 780, 1280])
def test_nothing_is_wider_than_the_window(live, width):
    live.page.set_viewport_size({"width": width, "height": 800})
    live.open().wait_for_answer()
    for tab in ("heads", "search", "next", "logits", *ASKED):
        live.page.click(f"#tab-{tab}")
        live.page.wait_for_selector(ASKED.get(tab, f"#panel-{tab}"))
        assert live.page.evaluate("document.documentElement.scrollWidth") <= width, tab


OPENED = {
    "words": (TEXT, ("heads", "search", "next", "logits", "flow", "ablation")),
    "classifier": ("A man sleeps.", ("heads", "next")),
    "tagger": ("A man sleeps.", ("heads",)),
    "masked": ("A man [MASK].", ("heads",)),
    "language_model": ("A man", ("heads", "next")),
    "images": (None, ("heads", "image")),
}
"""A text for each kind of model, and the tabs specific to it."""
ASKED = {"steps": ".step", "positions": "#panel-positions .panel"}
"""Tabs that ask for their data when they are opened, and what shows that the data are there."""


# Contrast checks take as long as all others together
@pytest.mark.parametrize("contrast", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("model", OPENED)
def test_axe_finds_nothing_against_its_rules(live, zoo, model, contrast):
    text, tabs = OPENED[model]
    rules = {} if contrast else {"without": CONTRAST}
    live.open(text, model)
    if text is None:
        live.page.set_input_files("#file-0", next(zoo.inputs.rglob("*.png")))
    live.page.wait_for_selector(".thumb")
    if model == "words":  # what is grey, underlined, off
        live.page.keyboard.type(" A woman reads.")
        live.until("!document.querySelector('#sentence').hidden")
        live.page.focus("#target-0")
        live.page.keyboard.press("Home")
        live.page.keyboard.type("street")
        live.until("document.querySelector('.rest') !== null")
        live.page.click(".search-settings summary")
    live.until(f"document.querySelector('#tab-{tabs[-1]}') !== null")
    for tab in (*tabs, *ASKED):
        live.page.click(f"#tab-{tab}")
        live.page.wait_for_selector(ASKED.get(tab, f"#panel-{tab}"))
        live.page.emulate_media(color_scheme="light")
        assert violations(live.page, **rules) == [], tab
        live.page.emulate_media(color_scheme="dark")
        ground = live.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert int(re.search(r"\d+", ground)[0]) < 128
        assert not contrast or violations(live.page, CONTRAST) == [], tab


def test_a_screen_reader_hears_the_names_of_what_there_is(live):
    live.open().wait_for_answer()
    live.until("document.querySelector('#tab-search') !== null")
    tree = live.page.locator("body").aria_snapshot()
    for name in ('textbox "Source"', 'textbox "Translation"', 'tab "Heads"', 'button "Compare"'):
        assert name in tree


def test_the_keyboard_alone_reaches_everything_and_answers_steal_no_focus(live):
    live.open().wait_for_answer()
    assert live.page.evaluate("document.activeElement.id") == "source-0"
    seen = []
    for _ in range(14):
        live.page.keyboard.press("Tab")
        seen.append(live.page.evaluate("document.activeElement.id"))
    assert {"target-0", "tab-heads", "filter", "look"} <= set(seen)
    live.until("document.querySelector('#tab-decision') !== null")
    live.page.focus("#tab-heads")
    for tab in ("tab-decision", "tab-search"):
        live.page.keyboard.press("ArrowRight")
        assert live.page.evaluate("document.activeElement.id") == tab
    live.page.evaluate("""
        const source = document.querySelector('#source-0');
        source.value = 'A man sleeps.';
        source.dispatchEvent(new Event('input'));
    """)
    live.wait_for_answer()
    assert live.page.evaluate("document.activeElement.id") == "tab-search"


def test_the_page_is_small_quick_and_asks_nobody_else(live):
    sizes = {name: len(gzip.compress(file.content, 6)) for name, file in page_files().items()}
    assert sum(sizes.values()) <= MOST_BYTES, sizes
    live.open().wait_for_answer()
    assert {url.split("/", 3)[2] for _, url in live.requests} == {live.address.split("//")[1]}
    painted = live.page.evaluate(
        "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    assert painted < 2000  # 300 ms on an idle machine
    policy = live.page.evaluate(
        "fetch('.').then(one => one.headers.get('Content-Security-Policy'))"
    )
    assert "script-src 'self'; style-src 'self'" in policy


def calibration(path, odds):
    """A calibration with fixed odds, whatever the signals."""
    names = [signal.name for signal in SIGNALS]
    n = len(names)
    return Calibration(
        schema=SCHEMA, step=read_config(path).step, signals=names,
        means=[0.0] * n, deviations=[1.0] * n, weights=[0.0] * 2 * n, intercept=odds,
        log_ratio=0.0, lines=50, below=0.3, broken=0.1, scores={},
    )  # fmt: skip


def test_a_model_that_is_calibrated_no_more_goes_on_answering(browser, tmp_path):
    path = save_random(tmp_path / "m", LINES * 3, algorithm="word", decoding=DECODING, **SHAPE)
    doubt = calibration(path, 3.0)
    store_calibration(path, doubt)
    with serve_models({"m": path}) as address:
        context = browser.new_context(reduced_motion="reduce")
        live = Page(context.new_page(), address).open().wait_for_answer()
        assert live.page.locator(".written .word.suspect").count() > 0
        # As after further training
        store_calibration(path, replace(doubt, step=doubt.step + 1))
        live.page.evaluate("""fetch('api/models/m/unload', {
            method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}',
        }).then(one => one.ok)""")
        live.page.fill("#source-0", "A man sleeps.")
        live.wait_for_answer()
        assert live.page.locator(".status.wrong").count() == 0
        assert live.page.locator(".written .word.suspect").count() == 0
        context.close()
    assert live.problems == []


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [(TEXT, False), ("Two dogs run. A woman and a dog.", True)],
)
def test_a_doubtful_translation_is_marked_and_its_tooltip_says_so(
    browser, tmp_path, text, is_wrong
):
    info = {"several_sentences": 0.0}
    words = {"algorithm": "word", "decoding": DECODING, "info": info, **SHAPE}
    path = save_random(tmp_path / "m", LINES * 3, **words)
    store_calibration(path, calibration(path, 3.0 if is_wrong else -3.0))
    with serve_models({"m": path}) as address:
        context = browser.new_context(reduced_motion="reduce")
        live = Page(context.new_page(), address).open(text)
        # Words are assigned to sentences once each sentence came alone
        live.until(
            "wanted => document.querySelectorAll('.written .word.suspect').length === wanted"
            " || (wanted < 0 && document.querySelectorAll('.written .word').length > 0)",
            len(open_model(path).translator.translate([text])[0].text.split()) if is_wrong else -1,
        )
        # Until the inspected sentence is drawn, a pointed word may be redrawn
        live.until(
            "text => document.querySelector('#source-text').textContent === text"
            " && document.querySelector('.thumb')",
            SLOW if is_wrong else text,
        )
        improbable = live.page.locator(".written .word.doubtful")
        live.point_at(improbable.first)
        warning = "Wrong with probability 0.95. " if is_wrong else ""
        live.until(
            "text => document.querySelector('#target-0').title === text",
            f"{warning}The model finds this word improbable.",
        )
        live.page.mouse.move(2, 2)
        live.until("document.querySelector('#target-0').title === ''")
        context.close()
    assert live.problems == []
