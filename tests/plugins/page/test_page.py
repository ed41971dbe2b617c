"""The exported page in a browser, without a network: what it computes, and how it is used."""

import json
import math
from shutil import copytree
from time import monotonic

import numpy as np
import pytest

from tests.chromium import CONTRAST, chromium, violations
from tests.plugins.page.test_client import calibrate
from tests.plugins.page.test_steps import assert_steps, walk_of
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.kinds.lines.generate import generate_texts
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.page.export import export_page
from tformer_cli.plugins.serve.inspection import Inspection
from tformer_cli.wording import is_blank

TEXT = "Two dogs run in the snow."
TOLERANCE = 1e-5
TRANSLATORS = ("translate", "variant", "twin", "opus")
EVENTS = ["alignment", "heads", "tree", "next", "off"]
MOST_SECONDS = 20
OTHERS = {
    "classifier": "A man sleeps.", "tagger": "A man sleeps in the house.",
    "masked": "A [MASK] in the <mask>.", "language_model": "A man", "gpt": "The old house",
    "llama": "A man", "memory": "A man in the snow", "bert_classifier": "A man sleeps.",
    "sentences": "A man sleeps.",
}  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


class Page:
    """An exported page, opened from its file without a network."""

    def __init__(self, context, path):
        self.page, self.problems, self.requests = context.new_page(), [], []
        self.page.set_default_timeout(20_000)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#source-0, #file-0")

    def run(self, **request):
        return self.page.evaluate("request => tformer.run(request)", request)

    def events(self, text, **request):
        return by_name(self.run(text=text, want=EVENTS, **request)["events"])

    def type(self, text):
        """Types a text and waits for its heads."""
        self.page.fill("#source-0", text)
        self.until_shown(text)

    def until_shown(self, text):
        self.until(
            "text => document.querySelector('#source-text').textContent === text"
            " && document.querySelector('.thumb')",
            text,
        )

    def until_value(self, text):
        self.until("text => document.querySelector('#target-0').value === text", text)

    def until(self, script, argument):
        """Waits; not by `wait_for_function`, which evaluates strings, as the policy forbids."""
        end = monotonic() + MOST_SECONDS
        while not self.page.evaluate(script, argument):
            assert monotonic() < end, (script, argument, self.problems)
            self.page.wait_for_timeout(20)


@pytest.fixture(scope="module")
def exported(zoo, tmp_path_factory):
    """Exports models of the zoo once, in float32."""
    folder, paths = tmp_path_factory.mktemp("pages"), {}

    def export(name):
        if name not in paths:
            paths[name] = folder / f"{name}.html"
            export_page(zoo[name], paths[name], precision="float32")
        return paths[name]

    return export


@pytest.fixture
def opened(browser, exported):
    """Opens the page of a model; its problems are the test's."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 720}, offline=True, reduced_motion="reduce"
    )
    pages = []

    def open_page(name):
        pages.append(Page(context, exported(name)))
        return pages[-1]

    yield open_page
    context.close()
    for page in pages:
        assert page.problems == []
        assert len(page.requests) == 1  # its own file


def by_name(events):
    return {event["event"]: event for event in events}


def service_events(model, text, **request):
    """The events of the service, as its clients read them."""
    asked = {"text": text, "want": [*EVENTS, "translation"], **request}
    return by_name(json.loads(json.dumps([*Inspection().events(model, asked)])))


def assert_alike(answer, wanted):
    """Compares the events of the page with the service's, whose numbers are rounded."""
    assert wanted.keys() <= answer.keys()
    for name in wanted.keys() - {"done", "heads", "generation"}:
        assert_same(answer[name], wanted[name], name)
    for name in wanted["heads"].keys() - {"kinds", "residual", "mode", "sentences", "event"}:
        assert_same(answer["heads"][name], wanted["heads"][name], name)


def assert_same(answer, wanted, where):
    if isinstance(wanted, dict):
        for name in wanted.keys() - {"schema", "model", "index", "text", "cached", "flags"}:
            assert name in answer, f"{where}.{name}"
            assert_same(answer[name], wanted[name], f"{where}.{name}")
    elif isinstance(wanted, list):
        assert len(answer) == len(wanted), where
        for n, (item, expected) in enumerate(zip(answer, wanted, strict=True)):
            assert_same(item, expected, f"{where}[{n}]")
    elif isinstance(wanted, float):
        assert math.isclose(answer, wanted, rel_tol=2e-3, abs_tol=2e-4), (where, answer, wanted)
    else:
        assert answer == wanted, where


def assert_heads(answer, model, text):
    """Compares the weights of all heads; returns the record of `inspect-heads`."""
    record = next(inspect_heads(model, [text]))
    assert [head["id"] for head in answer["heads"]] == list(map(str, record.heads))
    for head, name in zip(answer["heads"], record.heads, strict=True):
        weights = np.array(head["weights"])
        assert np.abs(weights - record.maps.weights(name)).max() < TOLERANCE
    return record


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize(
    "text", [TEXT, "It is cold. My sister saw 25 children.", "Zo\u00eb! \U0001f600"]
)
def test_translations_and_heads_are_those_of_the_commands(opened, zoo, name, text):
    answer, model = opened(name).run(text=text), open_model(zoo[name], device="cpu")
    wanted = model.translator.translate([text])[0]
    assert answer["translation"] == wanted.text
    assert math.isclose(answer["score"], wanted.hypotheses[0].score, abs_tol=1e-4)
    record = assert_heads(answer, zoo[name], text)
    assert answer["source"] == {"text": record.source, "pieces": list(record.source_pieces)}
    assert answer["target"] == {"text": record.target, "pieces": list(record.target_pieces)}


@pytest.mark.parametrize("name", TRANSLATORS)
def test_events_are_those_of_the_service(opened, zoo, name):
    page = opened(name)
    answer = page.events(TEXT)
    assert_alike(answer, service_events(zoo[name], TEXT))
    head = answer["off"]["heads"][-1]
    assert_alike(
        page.events(TEXT, heads_off=[head]), service_events(zoo[name], TEXT, heads_off=[head])
    )


@pytest.mark.parametrize("prefix", ["The ", "Le chat", "Un h", "La vieille m", "Ceci,"])
@pytest.mark.parametrize("name", TRANSLATORS)
def test_the_model_continues_from_a_prefix_as_in_the_service(opened, zoo, name, prefix):
    answer = opened(name).events(TEXT, prefix=prefix)["translation"]
    wanted = service_events(zoo[name], TEXT, prefix=prefix)["translation"]
    assert answer["target"]["ids"] == wanted["target"]["ids"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_kinds_answer_as_the_service_does(opened, zoo, name):
    page, text = opened(name), OTHERS[name]
    answer, wanted = page.events(text), service_events(zoo[name], text)
    assert_alike(answer, wanted)
    answer = page.run(text=text)
    assert_heads(answer, zoo[name], text)
    event = next(iter(wanted.values()))
    for field, key in {"label": "label", "filled": "filled", "vector": "embedding"}.items():
        if field in event:
            assert_same(answer[key], event[field], key)
    if "words" in event:
        assert answer["labels"] == [word["label"] for word in event["words"]]


def test_a_language_model_continues_a_text_as_a_greedy_search_does(opened, zoo):
    (wanted,) = generate_texts(zoo["gpt"], ["The old house"], beam_size=1, sampling=False)
    assert opened("gpt").run(text="The old house")["continuation"] == wanted.texts[0].text


def test_a_text_that_is_typed_is_translated_and_shows_all_its_tabs(opened, zoo):
    page = opened("translate")
    page.type(TEXT)
    wanted = open_model(zoo["translate"], device="cpu").translator.translate([TEXT])[0]
    assert page.page.input_value("#target-0") == wanted.text
    page.page.wait_for_selector("#tab-ablation")
    tabs = page.page.locator("#tabs button").all_inner_texts()
    assert tabs == [
        "Heads",
        "Beam search",
        "Next word",
        "Step by step",
        "Logits and lens",
        "Ablation",
    ]
    assert page.page.locator("#report, #decide").count() == 0  # only a service computes them
    for tab in ("search", "next", "steps", "logits", "ablation", "heads"):
        page.page.click(f"#tab-{tab}")
        page.page.wait_for_selector(f"#panel-{tab} :is(svg, table, button)")
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 1280
        assert violations(page.page, without=CONTRAST) == []


def test_the_steps_of_a_head_for_a_token_are_those_of_the_command(opened, zoo):
    page = opened("translate")
    page.type(TEXT)
    page.page.click("#tab-steps")
    page.page.wait_for_selector(".step")
    page.page.focus("#steps-head")
    page.page.keyboard.press("End")  # by the keyboard alone
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Home")
    page.until("document.querySelector('#steps-token').value === '0'", None)
    page.until("/position 0,/.test(document.querySelector('#panel-steps').textContent)", None)
    head = page.page.input_value("#steps-head")
    answer = page.run(text=TEXT, want=["step"], head=head, token=0)
    assert_steps(walk_of(answer), zoo["translate"], TEXT, head, 0)
    shown = page.page.locator(".step").all_inner_texts()
    for step, text in zip(walk_of(answer)["steps"], shown, strict=True):
        first = step["tables"][0]["values"][0][0]
        assert f"{first:.3f}".replace("-", "\u2212") in text, step["title"]
    page.page.emulate_media(color_scheme="dark")
    assert violations(page.page) == []
    page.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.page.locator("#panel-steps:visible .step").count() == len(shown)
    assert page.page.locator("#steps-head").count() == 0  # nothing to press


def test_a_head_is_switched_off_and_on_again(opened, zoo):
    from tformer_cli.inspect.jobs.reader import open_for_inspection
    from tformer_cli.plugins.instruments.jobs.ablate import translate_without

    answer = translate_without(open_for_inspection(zoo["translate"], device="cpu"), TEXT)
    head = next(
        name
        for name, text in answer.without.items()
        if name.count(".") == 2 and text != answer.whole
    )
    page = opened("translate")
    page.type(TEXT)
    page.page.click("#switch")
    page.page.click(f"[data-head='{head}']")
    page.until_value(answer.without[head])
    assert page.page.locator(".written .changed").count()
    page.page.click("#all-on")
    page.until_value(answer.whole)


def test_two_sentences_stand_side_by_side(opened):
    page = opened("translate")
    page.type(TEXT)
    page.page.click("#compare")
    page.page.fill("#source-1", "A man sleeps.")
    page.until_shown("A man sleeps.")
    assert page.page.input_value("#target-1") not in ("", page.page.input_value("#target-0"))


def test_a_language_model_writes_on(opened):
    page = opened("language_model")
    page.page.fill("#source-0", "The old")
    page.until_shown("")
    assert page.page.input_value("#target-0")


def test_a_phone_has_room_for_all_of_it(browser, exported):
    context = browser.new_context(viewport={"width": 400, "height": 800}, offline=True)
    page = Page(context, exported("translate"))
    page.type(TEXT)
    page.page.wait_for_selector("#tab-ablation")
    for tab in ("search", "next", "steps", "logits", "ablation", "heads"):
        page.page.click(f"#tab-{tab}")
        page.page.wait_for_selector(f"#panel-{tab} :is(svg, table, button)")
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 400, tab
    context.close()


def test_what_cannot_be_computed_is_said_in_a_line(opened):
    page = opened("classifier")
    unseen = "".join(filter(is_blank, map(chr, range(0x110000))))
    for blank in (" ", unseen, None):
        with pytest.raises(Exception, match="text: is missing, or is blank; give a sentence"):
            page.run(text=blank)
    assert page.run(text="\u0600")["heads"]  # a format character that is seen
    page.page.fill("#source-0", "dog " * 200)
    page.until("document.querySelector('.status.wrong') !== null", None)
    assert "at most" in page.page.inner_text(".status")
    page.type(TEXT)
    assert page.page.locator(".status.wrong").count() == 0
    page.page.fill("#source-0", "\u200b")
    page.until("/is blank/.test(document.querySelector('.status.wrong')?.textContent)", None)


def test_a_text_longer_than_the_model_takes_is_shown_in_parts(opened, zoo):
    text = "The old house is green and the woman sleeps in the garden, but the dog runs " * 4
    page = opened("translate")
    page.page.fill("#source-0", text)
    wanted = open_model(zoo["translate"], device="cpu").translator.translate([text])[0]
    page.until_value(wanted.text)
    assert wanted.n_parts > 1
    page.until("n => document.querySelectorAll('#sentence option').length === n", wanted.n_parts)


def test_a_calibrated_model_marks_doubtful_words(browser, zoo, tmp_path):
    path = copytree(zoo["translate"], tmp_path / "model")
    calibrate(path, intercept=3.0)
    export_page(path, tmp_path / "page.html")
    page = Page(browser.new_context(offline=True), tmp_path / "page.html")
    page.type(TEXT)
    page.until("document.querySelectorAll('.written .word.suspect').length > 0", None)
    assert page.run(text=TEXT)["doubt"] >= 0.5
    assert page.problems == []


def test_the_policy_lets_nothing_else_run_or_load(opened):
    page = opened("classifier")
    page.page.evaluate("""
        const script = document.createElement('script');
        script.textContent = 'document.title = "ran"';
        document.body.append(script);
    """)
    answer = page.page.evaluate("fetch('https://example.org').then(() => true, () => false)")
    assert page.page.title() != "ran"
    assert not answer
    assert len(page.problems) >= 2
    page.problems.clear()
    del page.requests[1:]
