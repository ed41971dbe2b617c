"""The exported page in a browser, without a network: what it computes, and how it is used."""

import base64
import math

import numpy as np
import pytest

from tests.chromium import CONTRAST, chromium, violations
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.kinds.lines.classify import label_texts
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.page.export import export_page
from tformer_cli.plugins.serve.inspection import Inspection

TEXT = "Two dogs run in the snow."
TOLERANCE = 1e-5
TRANSLATORS = ("translate", "variant", "twin", "opus")
EVENTS = ("alignment", "heads", "tree", "next", "off")
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
        found = self.run(text=text, want=list(EVENTS), **request)["events"]
        return {event["event"]: event for event in found}


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


def assert_close(found, wanted):
    found, wanted = np.array(found, np.float64), np.array(wanted, np.float64)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max(initial=0) < TOLERANCE


def assert_heads(found, model, text):
    record = next(iter(inspect_heads(model, [text])))
    assert [head["id"] for head in found["heads"]] == list(map(str, record.heads))
    for head, name in zip(found["heads"], record.heads, strict=True):
        assert_close(head["weights"], record.maps.weights(name))
    return record


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("text", [TEXT, "It is cold. My sister saw 25 children.", "Zoë! 😀"])
def test_translations_and_heads_are_those_of_the_commands(opened, zoo, name, text):
    found, model = opened(name).run(text=text), open_model(zoo[name], device="cpu")
    wanted = model.translator.translate([text])[0]
    assert found["translation"] == wanted.text
    assert math.isclose(found["score"], wanted.hypotheses[0].score, abs_tol=1e-4)
    record = assert_heads(found, zoo[name], text)
    assert found["source"] == {"text": record.source, "pieces": list(record.source_pieces)}
    assert found["target"] == {"text": record.target, "pieces": list(record.target_pieces)}


def test_labels_and_heads_of_a_classifier(opened, zoo):
    for name in ("classifier", "bert_classifier"):
        found, model = opened(name).run(text=OTHERS[name]), open_model(zoo[name], "classify", device="cpu")
        (wanted,) = label_texts(model, [OTHERS[name]])
        assert found["label"] == wanted.label
        assert_close([found["labels"][label] for label, _ in wanted.labels], dict(wanted.labels).values() and [p for _, p in wanted.labels])
        assert_heads(found, zoo[name], OTHERS[name])


@pytest.mark.parametrize("name", OTHERS)
def test_other_kinds_answer_as_their_commands_do(opened, zoo, name):
    page, text = opened(name), OTHERS[name]
    assert_heads({"heads": page.run(text=text)["heads"]}, zoo[name], text) if name not in (
        "language_model", "gpt", "llama", "memory") else None
    events = page.events(text)
    wanted = {event["event"]: event for event in Inspection().events(zoo[name], {"text": text, "want": [*EVENTS, "translation"]})}
    assert_alike(events, wanted)


def assert_alike(found, wanted):
    """Compares the events of the page with the service's."""
    assert {*wanted} - {"done"} <= {*found} | {"image", "flow", "lens"}
    for name in wanted.keys() & {"alignment", "tags", "classification", "filled"}:
        assert_same(found[name], wanted[name])
    heads, other = found["heads"], wanted["heads"]
    for name in ("source_pieces", "target_pieces", "input_pieces", "roles", "first", "text", "source", "sentence", "is_recurrent", "rare"):
        assert plain(heads[name]) == plain(other[name]), name
    assert_same(heads["metrics"], other["metrics"])
    for name in wanted.keys() & {"tree", "next", "off"}:
        assert_same(found[name], wanted[name])


def plain(value):
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def assert_same(found, wanted, where=""):
    """Compares JSON, whose numbers the service has rounded."""
    if isinstance(wanted, dict):
        for name, value in wanted.items():
            if name not in ("schema", "model", "ms", "index", "text"):
                assert name in found, f"{where}.{name}"
                assert_same(found[name], value, f"{where}.{name}")
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted), where
        for n, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_same(one, other, f"{where}[{n}]")
    elif isinstance(wanted, float):
        assert math.isclose(found, wanted, rel_tol=2e-3, abs_tol=2e-4), (where, found, wanted)
    else:
        assert found == wanted, where


@pytest.mark.parametrize("name", TRANSLATORS)
def test_events_are_those_of_the_service(opened, zoo, name):
    events = opened(name).events(TEXT)
    wanted = {event["event"]: event for event in Inspection().events(zoo[name], {"text": TEXT, "want": [*EVENTS, "translation"]})}
    assert_alike(events, wanted)
    head = events["off"]["heads"][-1]
    off = opened(name).events(TEXT, heads_off=[head])
    wanted = {event["event"]: event for event in Inspection().events(zoo[name], {"text": TEXT, "heads_off": [head], "want": [*EVENTS]})}
    assert off["translation"]["target"]["text"] == wanted["translation"]["target"]["text"]
    assert_alike(off, wanted)
