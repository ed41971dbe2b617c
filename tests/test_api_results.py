"""What a loaded model returns: streams that are sequences, that print and that notebooks show."""

import base64
import json
import pickle
import re
from html.parser import HTMLParser
from itertools import count
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import tformer_cli
from tests.commands import run
from tests.recipes import SHAPE
from tformer_cli.api.results import Results
from tformer_cli.errors import ArtifactError, DataError, RecipeError, UsageError
from tformer_cli.evaluate.evaluate import (
    evaluate_classifier,
    evaluate_masked,
    evaluate_model,
    evaluate_texts,
)
from tformer_cli.inspect.jobs.align import Aligner, align_pairs, align_translations, read_pairs
from tformer_cli.inspect.jobs.reader import open_for_inspection
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.inspect.pages import report_data
from tformer_cli.inspect.view import ModelView, ReportOptions, SentenceView
from tformer_cli.inspect.views import VIEWS
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.corpora_tools.tokenize import encode_lines
from tformer_cli.plugins.instruments.jobs.report import inspect_report
from tformer_cli.recipe import load_recipe
from tformer_cli.text.pharaoh import format_links

LINES = ["A man sleeps.", "", "Two <b>dogs</b> & a cat"]
TARGETS = ["Ein Mann", "", "Zwei Hunde im Schnee"]


@pytest.fixture(scope="module")
def loaded(model):
    return tformer_cli.load(model, device="cpu", precision="float32")


def squares(taken, n=5):
    for number in range(n):
        taken.append(number)
        yield number * number


def test_a_loop_computes_one_after_the_other_and_keeps_none():
    taken = []
    results = Results(squares(taken))
    assert (taken, "0 taken" in repr(results)) == ([], True)
    assert (next(results), taken) == (0, [0])
    assert [next(results), next(results)] == [1, 4]
    with pytest.raises(TypeError, match=r"^a loop has consumed 3 of the results"):
        len(results)
    with pytest.raises(TypeError, match="a loop has consumed"):
        results[0]
    assert list(results) == [9, 16]  # list() asks for the length, and does without
    assert list(results) == []
    looped = Results(squares([]))
    assert [square for square in looped if square < 5] == [0, 1, 4]
    with pytest.raises(TypeError, match=r"^a loop has consumed 5 of the results"):
        str(looped)
    endless = Results(iter(count()))
    assert next(iter(endless)) == 0


def test_who_indexes_has_a_sequence_from_then_on():
    taken = []
    results = Results(squares(taken))
    assert (results[-1], results[1:3], len(results), taken) == (16, [1, 4], 5, [0, 1, 2, 3, 4])
    assert [*results] == [*results] == [0, 1, 4, 9, 16]
    assert (9 in results, results.index(9), next(reversed(results))) == (True, 3, 16)
    assert (next(results), next(results)) == (0, 1)
    assert str(results) == "0\n1\n4\n9\n16"
    assert repr(results) == "[0, 1, 4, 9, 16]"


def test_lines_that_can_be_read_again_give_the_results_again(loaded, monkeypatch):
    texts = [translation.text for translation in loaded.translate(LINES)]
    calls = []
    translator = type(loaded.opened.translator)
    monkeypatch.setattr(
        translator, "translate", lambda *a, real=translator.translate: calls.append(a) or real(*a)
    )
    results = loaded.translate(tuple(LINES), buffer_lines=1)
    for _ in range(2):
        assert [translation.text for translation in results] == texts
    assert (next(iter(results)).text, results[2].text, len(results)) == (texts[0], texts[2], 3)
    n_calls = len(calls)
    assert list(results) == list(results)
    assert len(calls) == n_calls == 3 + 3 + 1 + 3  # two loops, the begin of one, and all
    assert [line.text for line in list(loaded.translate(LINES, buffer_lines=1))] == texts
    assert len(calls) == n_calls + 3  # list() computes once
    stepped = loaded.translate(LINES)
    assert (next(stepped).text, [line.text for line in stepped]) == (texts[0], texts[1:])
    assert stepped[0].text == texts[0]
    once = loaded.translate(iter(LINES))
    assert [translation.text for translation in once] == texts
    with pytest.raises(TypeError, match=r"cannot be read again; keep them in a list\(\)"):
        once[0]


class Texts(HTMLParser):
    """Collects the texts of HTML, and the tags that they stand in."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.found = set(), []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)

    def handle_data(self, data):
        self.found.append(data)


TABLE = {"table", "caption", "thead", "tbody", "tr", "th", "td"}


def check_shown(results, texts):
    """What is printed are these texts; a notebook shows them as texts, whatever they hold."""
    assert str(results) == "\n".join(texts)
    assert [str(result) for result in results] == texts
    for result in results:
        shown = Texts(result._repr_html_())
        assert shown.tags <= TABLE
    texts_shown = Texts(results._repr_html_()).found
    assert all(line in texts_shown for line in LINES if line)


def test_translations_print_as_their_text_and_hold_their_hypotheses(loaded):
    results = loaded.translate(LINES, n_best=2)
    check_shown(results, [translation.text for translation in loaded.translate(LINES)])
    assert [len(translation) for translation in results] == [2, 1, 2]
    assert results[0][1] is results[0].hypotheses[1]
    assert [str(text) for text in results[0]] == [text.text for text in results[0].hypotheses]
    assert all(results)
    assert results.text.split("\n") == [translation.text for translation in results]
    scored = loaded.score(LINES, TARGETS)
    assert [pair.text for pair in scored] == [pair.text for pair in loaded.align(LINES, TARGETS)]
    assert [pair.text for pair in scored] == TARGETS
    check_shown(scored, [pair.line("text") for pair in loaded.score(LINES, TARGETS)])
    assert (len(scored), scored[2].target) == (3, TARGETS[2])


@pytest.mark.parametrize(
    ("name", "verb", "parts"),
    [
        ("classifier", "classify", "labels"),
        ("masked", "fill", "gaps"),
        ("tagger", "tag", "words"),
        ("masked", "embed", None),
        ("language_model", "generate", "texts"),
    ],
)
def test_results_of_other_kinds_print_as_their_commands_write(zoo, name, verb, parts):
    loaded = tformer_cli.load(zoo[name], device="cpu", threads=1)
    lines = [line.replace("dogs", "[MASK]") for line in LINES] if verb == "fill" else LINES
    results = getattr(loaded, verb)(lines)
    if verb == "generate":
        texts = [result.prompt + result.texts[0].text for result in results]
    else:
        texts = [result.line("tsv" if verb == "embed" else "text") for result in results]
    assert str(results) == "\n".join(texts)
    assert Texts(results._repr_html_()).tags <= TABLE
    if parts is not None:
        assert [list(result) for result in results] == [list(getattr(r, parts)) for r in results]
        assert all(results)  # a blank line, which has no label, is a result, too
    else:
        assert np.asarray(results[0]).shape == results[0].vector.shape
        assert np.array_equal(np.stack([results[0], results[2]])[1], results[2].vector)


IMAGE = "data:8x8x1;base64," + base64.b64encode(bytes(range(64))).decode()
READ_BY_NAME = [n for n, view in VIEWS.items() if isinstance(view, SentenceView | ModelView)]


def pages_of(html):
    frames = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: frames.append(dict(attributes)["srcdoc"])
    parser.feed(html)
    data = '<script type="application/json" id="data">'
    return [json.loads(page.split(data)[1].split("</script>")[0]) for page in frames]


@pytest.mark.parametrize("name", ["flow", "logits"])
def test_views_are_those_of_the_commands(loaded, model, name):
    results = getattr(loaded, name)(LINES)
    view = VIEWS[name]
    expected = list(inspect_view(name, model, LINES, device="cpu"))
    assert [view.line(record) for record in results] == [view.line(record) for record in expected]
    (page,) = pages_of(results._repr_html_())
    assert [sentence["source"] for sentence in page["sentences"]] == [LINES[0], LINES[2]]
    assert "views" in pages_of(results[2]._repr_html_())[0]["sentences"][0]
    assert str(results[0]) == results[0].sentence.target
    records = getattr(loaded, name)(LINES, targets=TARGETS)
    assert [record.sentence.target for record in records] == TARGETS


@pytest.mark.parametrize("name", READ_BY_NAME)
def test_every_view_is_read_by_its_name(loaded, model, zoo, name):
    view, settings = VIEWS[name], {"token": "0"} if name == "step" else {}
    lines = [IMAGE] if name == "image" else LINES[:1]
    if name == "image":
        model = zoo["images"]
        loaded = tformer_cli.load(model, device="cpu", threads=1)
    given = [lines] if isinstance(view, SentenceView) else []
    results = loaded.inspect(name, *given, **settings)
    expected = inspect_view(name, model, *given, settings=settings, device="cpu")
    options = view.Options(**settings)
    (lines_of_results,) = ([*view.lines(record, options)] for record in results)
    assert lines_of_results == [*view.lines(next(expected), options)]
    assert "<iframe" in results._repr_html_()
    assert len(repr(results)) < 100  # not all the numbers of a record


def test_views_refuse_what_they_do_not_know(loaded):
    for name, hint in (("circuit", "use .*flow, .*step"), ("stpe", r"did you mean step\?$")):
        with pytest.raises(UsageError, match=f'^view: "{name}" is no view .*; {hint}'):
            loaded.inspect(name, LINES)
    for name, lines, settings, message in (
        ("flow", LINES, {"ranks": 2}, "ranks: no such setting; use rank, method"),
        ("flow", LINES, {"method": "y"}, "method: must be one of alti, rollout; found 'y'"),
        ("image", [], {"heads": "enc"}, "heads: is one str; give a list, such as ['enc']"),
        ("image", [], {"heads": [2]}, "heads: must be str, but is 2 (int)"),
        ("layers", LINES, {"untuned": 1}, "untuned: must be bool, but is 1 (int)"),
        ("positions", None, {"positions": 1}, "positions: must be at least 2, but is 1"),
        ("positions", LINES, {}, "lines: the view reads none"),
        ("flow", None, {}, "lines: are missing"),
    ):
        with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
            loaded.inspect(name, lines, **settings)


def test_settings_of_views_are_those_of_the_call(loaded, model):
    (record,) = loaded.logits(LINES[:1], top_k=3, lens=True, beam_size=1)
    expected = inspect_view(
        "logits", model, LINES[:1], settings={"top_k": 3, "lens": True}, device="cpu", beam_size=1
    )
    assert record.positions == next(expected).positions
    assert len(record) == len(record.positions)
    assert [position.position for position in record] == [*range(len(record))]
    (second,) = loaded.flow(LINES[:1], rank=2)
    assert second.sentence.rank == 2


def test_views_print_what_their_commands_show(loaded, model, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = [LINES[0], LINES[2]]
    for name in ("layers", "logits"):
        results = loaded.inspect(name, lines)
        run("inspect-" + name, model, *lines, "--format", "text", "-o", tmp_path / name)
        shown = (tmp_path / name).read_text(encoding="utf-8").splitlines()
        assert str(results).splitlines() == [line.rstrip() for line in shown]
        assert results.text == str(results)
        assert len(repr(results[0])) < 150
        assert str(results[0]) == results[0].text == results[0].sentence.target
    assert str(loaded.inspect("ablation", lines)).splitlines() == [
        translation.text for translation in loaded.translate(lines)
    ]
    assert "\n" in str(loaded.inspect("positions"))


def test_results_are_returned_by_other_processes(loaded):
    for results in (loaded.translate(LINES), loaded.heads(LINES), loaded.align(LINES)):
        sent = pickle.loads(pickle.dumps(results))  # noqa: S301
        assert [str(result) for result in sent] == [str(result) for result in results]
        assert str(sent) == str(results)
        assert sent._repr_html_() == results._repr_html_()
    begun = loaded.translate(iter(LINES))
    next(begun)
    with pytest.raises(TypeError, match=r"^a loop has consumed 1 of the results"):
        pickle.dumps(begun)


def test_heads_and_flow_are_drawn(loaded, zoo):
    record, blank = loaded.heads(LINES[:2], heads=["cross.last"])
    assert (blank._repr_svg_(), str(record)) == (None, record.target)
    flow, blank = loaded.flow(LINES[:2])
    assert blank._repr_svg_() is None
    (text,) = tformer_cli.load(zoo["classifier"], device="cpu").flow(LINES[:1])
    for svg in (record._repr_svg_(), flow._repr_svg_(), text._repr_svg_()):
        drawn = [element.text for element in ET.fromstring(svg).iter()]  # noqa: S314
        assert LINES[0] in drawn
    # the mark of a word's beginning is an element of its own
    assert {*flow.sentence.source_pieces, *flow.written} <= {
        "".join(element.itertext())
        for element in ET.fromstring(flow._repr_svg_()).iter()  # noqa: S314
    }


def test_a_map_is_found_by_the_name_of_its_head(loaded):
    record, blank = loaded.heads(LINES[:2], heads=["cross.last"])
    for head in record.heads:
        assert np.array_equal(record.weights(str(head)), record.captured.weights(head))
        assert record.weights(head).shape == (len(record.target_pieces), len(record.source_pieces))
    with pytest.raises(UsageError, match=r'^head: "enc\.0\.0" is not .* has one of cross\.\d\.0, '):
        record.weights("enc.0.0")
    with pytest.raises(UsageError, match=r"none: the line is blank$"):
        blank.weights("cross.1.0")


def test_a_report_is_that_of_the_command(loaded, model):
    lines, options = [LINES[0], LINES[2]], {"heads": ("cross",), "ablation": False}
    report = loaded.report(lines, steps=["cross.0.1:</s>"], **options)
    settings = ReportOptions(step=("cross.0.1:</s>",), **options)
    expected = inspect_report(model, lines, options=settings, device="cpu")
    assert report_data(report) == report_data(expected)
    assert report.html.startswith("<!DOCTYPE html>")
    assert len(pages_of(report._repr_html_())) == 1
    assert str(report).splitlines() == [translation.text for translation in loaded.translate(lines)]
    assert len(repr(report)) < 300
    with pytest.raises(DataError, match="has no sentence to show"):
        loaded.report([""])


def test_words_are_aligned_as_by_the_command(loaded, model):
    opened = open_for_inspection(model, device="cpu")
    aligner = Aligner(opened.directory)
    aligned = loaded.align(LINES, TARGETS, buffer_lines=2)
    expected = [format_links(links) for links in align_pairs(aligner, read_pairs(LINES, TARGETS))]
    assert [str(alignment) for alignment in aligned] == expected
    assert [alignment.target for alignment in loaded.align(LINES, TARGETS)] == TARGETS
    results = loaded.align(LINES)
    expected = align_translations(aligner, opened.translator, LINES)
    assert [set(alignment.links) for alignment in results] == list(expected)
    assert [row.target for row in results] == [row.text for row in loaded.translate(LINES)]
    alignment = aligned[2] if len(aligned) else None
    assert [(LINES[2].split()[s], TARGETS[2].split()[t]) for s, t in alignment] == alignment.words
    assert Texts(alignment._repr_html_()).found[0] == LINES[2]
    with pytest.raises(UsageError, match=r"^heads: .* select cross heads$"):
        loaded.align(LINES, heads=["enc.0.0"])


def test_only_a_model_that_translates_aligns(zoo):
    labels = tformer_cli.load(zoo["classifier"], device="cpu")
    with pytest.raises(ArtifactError, match=r"is a classifier, .* call its classify\(\)"):
        labels.align(LINES)


def test_tokens_are_those_of_the_command(loaded, zoo):
    tokenizer = loaded.opened.directory.tokenizer
    results = loaded.tokenize(LINES, buffer_lines=2)
    assert str(results).split("\n") == encode_lines(tokenizer, LINES)
    assert [" ".join(map(str, line.ids)) for line in results] == encode_lines(
        tokenizer, LINES, ids=True
    )
    assert [line.index for line in results] == [0, 1, 2]
    assert list(results[0]) == list(results[0].pieces)
    assert LINES[2] in Texts(results._repr_html_()).found
    with pytest.raises(UsageError, match="the model reads images"):
        tformer_cli.load(zoo["images"], device="cpu").tokenize(LINES)


def test_a_model_is_evaluated_as_by_the_command(loaded, model, zoo):
    fixed = {"device": "cpu", "precision": "float32"}
    expected = evaluate_model(model, LINES, [TARGETS], beam_size=2, **fixed)
    assert loaded.evaluate(LINES, TARGETS, beam_size=2) == expected
    assert loaded.evaluate(LINES, [TARGETS], beam_size=2) == expected
    assert str(expected).splitlines()[0].split() == [
        "BLEU", f"{expected.scores[0].value:.2f}", expected.scores[0].signature,
    ]  # fmt: skip
    with pytest.raises(UsageError, match="references: are missing"):
        loaded.evaluate(LINES)
    labels = tformer_cli.load(zoo["classifier"], device="cpu")
    opened = open_model(zoo["classifier"], "classify", device="cpu")
    right = ["good", "bad"]
    scores = labels.evaluate(LINES[::2], right)
    assert scores == evaluate_classifier(opened, LINES[::2], right)
    assert str(scores) == "\n".join(scores.lines())
    with pytest.raises(UsageError, match="beam_size: only for translations"):
        labels.evaluate(LINES[::2], right, beam_size=2)


@pytest.mark.parametrize(
    ("name", "verb", "evaluate"),
    [("language_model", "generate", evaluate_texts), ("masked", "fill", evaluate_masked)],
)
def test_a_model_of_texts_is_evaluated_without_references(zoo, name, verb, evaluate):
    loaded = tformer_cli.load(zoo[name], device="cpu")
    expected = evaluate(open_model(zoo[name], verb, device="cpu", by_kernels=False), LINES)
    evaluation = loaded.evaluate(LINES)
    assert evaluation.record().keys() == expected.record().keys()
    assert evaluation.scores.loss == pytest.approx(expected.scores.loss, rel=1e-5)
    assert str(evaluation).startswith("loss")
    with pytest.raises(UsageError, match="the model predicts the texts themselves"):
        loaded.evaluate(LINES, LINES)


TINY = f"""
[data]
train = [{{ built_in = "train", pairs = 60 }}]
valid = [{{ built_in = "valid", pairs = 60 }}]
[tokenizer]
vocab_size = 280
[model]
d_model = {SHAPE["d_model"]}
n_heads = 2
d_ff = 32
n_encoder_layers = 1
n_decoder_layers = 1
[training]
precision = "float32"
tokens_per_batch = 400
"""


def test_a_recipe_is_trained_by_its_file_its_tables_or_itself(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY)
    changes = {"training.max_steps": 2, "decoding.max_length": 8, "data.directory": str(tmp_path)}
    done = tformer_cli.train(
        tmp_path / "tiny.toml", tmp_path / "run", changes=changes, device="cpu"
    )
    assert (done.state.step, done.was_finished) == (2, False)
    assert str(done) == f"{tmp_path}/run: max_steps = 2 is reached (step 2)"
    recipe = load_recipe(str(tmp_path / "run/recipe.toml"))
    assert (recipe.training.max_steps, recipe.decoding.max_length) == (2, 8)
    tuned = tformer_cli.train(
        str(tmp_path / "tiny.toml"),
        str(tmp_path / "tuned"),
        changes={**changes, "training.max_steps": 1},
        start=tmp_path / "run",
        device="cpu",
    )
    assert tuned.state.step == 1
    started = load_recipe(str(tmp_path / "tuned/recipe.toml")).start
    assert started.model == str(tmp_path / "run")
    assert len(tformer_cli.load(tuned.run, device="cpu").translate(LINES)) == 3
    again = tformer_cli.train(recipe, tmp_path / "run", device="cpu")
    assert again.was_finished
    with pytest.raises(RecipeError, match=r"^recipe: training\.max_stps: unknown key"):
        tformer_cli.train({"training": {"max_stps": 1}}, tmp_path / "none")
    # Settings have no dashes in Python
    file = tmp_path / "tiny.toml"
    with pytest.raises(RecipeError, match=r"adapter\.rank: only .* from a model; set model\.from$"):
        tformer_cli.train(file, tmp_path / "none", changes={**changes, "adapter.rank": 2})
    with pytest.raises(UsageError, match=r"^changes: only for a recipe file"):
        tformer_cli.train(recipe, tmp_path / "none", changes=changes)
