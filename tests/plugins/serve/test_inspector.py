"""The inspecting process: its events, compared with direct computation, and its life cycle."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.commands import record_of
from tests.models import LINES, save_random
from tests.sample_package.tformer_sample import entropy
from tformer_cli.errors import DataError, TformerError
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.jobs.heads import HeadInspector, inspect_heads
from tformer_cli.inspect.jobs.reader import open_for_inspection
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.inspect.pages import report_data
from tformer_cli.inspect.view import ReportOptions
from tformer_cli.inspect.views import VIEWS
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.instruments.decisions.probing import Probe
from tformer_cli.plugins.instruments.jobs.ablate import translate_without
from tformer_cli.plugins.instruments.jobs.decision import inspect_decision
from tformer_cli.plugins.instruments.jobs.report import inspect_report
from tformer_cli.plugins.instruments.views.decision import VIEW
from tformer_cli.plugins.serve import inspection
from tformer_cli.plugins.serve.completing import complete_prefix
from tformer_cli.plugins.serve.inspection import PAGE_VIEWS, READERS, Inspection
from tformer_cli.plugins.serve.inspector import COMMAND, DIED, Inspector
from tformer_cli.plugins.serve.live import INSPECTED, known_events

TEXT = "Two dogs run in the snow."
IMAGE = "data:8x8x1;base64," + base64.b64encode(bytes(range(64))).decode()
SHAPE = {"d_model": 16, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2}


@pytest.fixture(scope="module")
def translator(tmp_path_factory, one_thread):
    path = tmp_path_factory.mktemp("live") / "translator"
    return save_random(path, scale=4.0, decoding={"beam_size": 3, "max_length": 12}, **SHAPE)


def events_of(model, **request):
    events = list(Inspection().events(model, {"text": TEXT, **request}))
    assert [*events[-1]] == ["event", "ms"]
    return {event.pop("event"): event for event in events}


def unpack_maps(event):
    numbers = np.frombuffer(base64.b64decode(event["data"]), np.uint8).reshape(event["shape"])
    return numbers * event["scale"]


def test_heads_are_those_of_inspect_heads_in_bytes(translator):
    events = events_of(translator, want=["heads", "alignment"])
    (record,) = inspect_heads(translator, [TEXT], mode="live", for_page=True, device="cpu")
    heads = events["heads"]
    assert list(heads["kinds"]) == ["enc", "dec", "cross"]
    for kind, packed in heads["kinds"].items():
        maps = unpack_maps(packed)
        assert maps.shape[:2] == (2, 2)
        for layer in range(2):
            for head in range(2):
                weights = record.captured.weights(HeadId(kind, layer, head))
                np.testing.assert_allclose(maps[layer, head], weights, atol=0.5 / 255 + 1e-6)
    assert heads["first"] == str(record.first_head())
    assert heads["text"] == record.target
    assert tuple(heads["target_pieces"]) == record.target_pieces
    words = events["alignment"]["words"]
    spelled = [TEXT[start:end] for start, end in words["source"]]
    assert spelled == TEXT.split()
    assert events["alignment"]["links"] == sorted(record.aligned.links)


def test_a_tree_begins_behind_a_prefix_and_ends_with_the_translation(translator):
    free = events_of(translator, want=["tree", "translation"])
    whole = free["translation"]["target"]["text"]
    assert whole == open_model(translator, device="cpu").translator.translate([TEXT])[0].text
    nodes = [node for step in free["tree"]["steps"] for node in step]
    assert [node["id"] for node in nodes] == list(range(len(nodes)))
    assert nodes[free["tree"]["path"][-1]]["text"] == whole
    dropped = next(n for n in nodes if n["state"] == "dropped" and n["text"].strip())
    other = events_of(translator, prefix=dropped["text"], want=["tree", "translation"])
    text = other["translation"]["target"]["text"]
    assert text.startswith(dropped["text"])
    first, *later = [node for step in other["tree"]["steps"] for node in step]
    assert first["text"] == dropped["text"]
    assert all(node["text"].startswith(dropped["text"]) for node in later)
    assert later[other["tree"]["path"][-1] - 1]["text"] == text
    ended = other["translation"]["hypotheses"][0]
    assert later[other["tree"]["path"][-1] - 1]["log_probability"] == pytest.approx(
        ended["log_probability"], abs=1e-3
    )


def test_heads_that_are_off_change_the_translation_as_in_inspect_ablate(translator):
    opened = open_for_inspection(translator, device="cpu")
    without = translate_without(opened, TEXT)
    changed = {name: text for name, text in without.without.items() if name.count(".") == 2}
    for name, text in [*changed.items()][::5]:
        events = events_of(translator, heads_off=[name], want=["heads"])
        assert events["translation"]["target"]["text"] == text == events["heads"]["text"]
    assert events_of(translator, want=["translation"])["translation"]["target"]["text"] == (
        without.whole
    )


def test_each_head_off_and_the_next_words_agree_with_the_log_probability(translator):
    events = events_of(translator, want=["off", "next", "translation", "lens"])
    best = events["translation"]["hypotheses"][0]
    off = events["off"]
    assert len(off["heads"]) == len(off["delta"]) == 12
    assert -off["loss"] * off["n_tokens"] == pytest.approx(best["log_probability"], abs=1e-4)
    # the last one ended at the length limit
    log_probabilities = best["token_log_probabilities"][:-1]
    for position, expected in zip(events["next"]["positions"][:-1], log_probabilities, strict=True):
        logits = np.array([logit for _, logit in position["top"]])
        total = np.logaddexp.reduce([*logits, position["rest"]])
        assert np.isclose(logits - total, expected, atol=1e-3).any()
    assert events["lens"]["data"]["schema"] == "tformer.logits/1"


@pytest.mark.parametrize(
    ("name", "text", "answer", "kinds"),
    [
        ("classifier", "A man sleeps.", "classification", {"enc"}),
        ("tagger", "A man sleeps.", "tags", {"enc"}),
        ("masked", "A man [MASK].", "filled", {"enc"}),
        ("language_model", "A man", "generation", {"dec"}),
        ("images", IMAGE, "classification", {"enc"}),
    ],
)  # fmt: skip
def test_every_kind_has_its_answer_and_its_heads(zoo, name, text, answer, kinds):
    model = zoo[name]
    want = ["translation", "off", *READERS, *PAGE_VIEWS]
    events = events_of(model, text=text, want=want)
    assert events[answer]["schema"] == "tformer.live/1"
    assert events["heads"]["kinds"].keys() == kinds
    assert {"next", "lens", "flow", "off"} <= events.keys()


@pytest.mark.parametrize("name", sorted({*known_events()} - {*INSPECTED, *PAGE_VIEWS}))
def test_every_view_of_sentences_is_an_event(translator, name):
    data = events_of(translator, want=[name])[name]["data"]
    if name == "layers":  # no report has it
        (record,) = inspect_view(name, translator, [TEXT], device="cpu")
        assert data == VIEWS[name].json(record)
    else:
        options = ReportOptions(mode="live")
        report = report_data(inspect_report(translator, [TEXT], options=options, device="cpu"))
        assert data == report["sentences"][0]["views"][name]


def test_the_steps_of_a_head_for_a_token_are_those_of_the_command(translator):
    options = ("--head", "cross.0.1", "--format", "json")
    for token in (None, 0, 1, 1.0, "1"):
        named = () if token is None else ("--token", str(int(token)))
        wanted = record_of("inspect-step", translator, TEXT, *options, *named)
        events = events_of(translator, want=["step"], head="cross.0.1", token=token)
        (walk,) = events["step"]["data"]
        assert [walk[name] for name in ("row", "key")] == [wanted[name] for name in ("row", "key")]
        for step, expected in zip(walk["steps"], wanted["steps"], strict=True):
            assert step["says"] == expected["says"]
            assert len(step["tables"]) == len(expected["tables"])  # of details, too


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"head": "enc.9.9"}, "enc.9.9"),
        ({"head": "enc.0"}, "name one"),
        ({"head": "enc.0.0", "token": 99}, "token: must be a position from 0 to"),
        ({"head": "enc.0.0", "token": "zebra"}, 'token: "zebra" matches no token'),
        ({"head": "enc.0.0", "heads_off": ["enc.0.1"]}, "heads_off: the steps are those of"),
    ],
)
def test_steps_that_there_are_not_are_refused_in_a_line(translator, fields, line):
    with pytest.raises(TformerError) as error:
        events_of(translator, want=["step"], **fields)
    assert line in error.value.in_arguments


@pytest.mark.parametrize("name", ["classifier", "language_model", "images"])
def test_positions_are_those_of_the_command(translator, zoo, name):
    text = IMAGE if name == "images" else TEXT
    data = events_of(zoo[name], text=text, want=["positions"])["positions"]["data"]
    (record,) = inspect_view("positions", zoo[name], device="cpu")
    assert data == VIEWS["positions"].tab(record, None, is_alone=False)


def test_a_view_of_another_package_is_an_event(translator, zoo, monkeypatch):
    monkeypatch.setitem(VIEWS._loaded, "entropy", entropy.VIEW)
    (record,) = inspect_heads(translator, [TEXT], device="cpu")
    expected = entropy.VIEW.read(None, record, None).heads
    event = events_of(translator, want=["entropy"])["entropy"]["data"]
    assert event["entropy"] == pytest.approx(expected, abs=1e-5)
    with pytest.raises(DataError, match=r"^want: layers shows only translation models$"):
        events_of(zoo["classifier"], want=["layers"])


def test_an_image_is_no_path(zoo):
    model = zoo["images"]
    with pytest.raises(Exception, match="text: is not an image"):
        list(Inspection().events(model, {"text": "/etc/passwd", "want": ["heads"]}))


def test_a_prefix_that_ends_within_a_word_is_gone_on_with_by_tokens_that_the_model_knows(
    translator,
):
    opened = open_for_inspection(translator, device="cpu")
    side = opened.directory.tokenizer.target
    for prefix in ("A wom", "the str", "Two dogs", "sl"):
        events = events_of(translator, prefix=prefix, want=["translation", "tree"])
        text = events["translation"]["target"]["text"]
        assert text.startswith(prefix)
        ids = events["translation"]["target"]["ids"]
        prefix_text = events["tree"]["steps"][0][0]["text"]
        assert prefix_text.startswith(prefix)
        # each token of the last word is the most probable one that spells it
        begun = len(prefix_text) - len(prefix_text.rpartition(" ")[2])
        n_before = len(side.encode_phrases([prefix_text[:begun].rstrip()])[0]) if begun else 0
        assert side.decode(ids[: n_before + 1]).startswith(prefix_text[: begun + 1].rstrip())
    directory = opened.directory
    assert complete_prefix(directory.model, directory.tokenizer, TEXT, "漢字漢") == "漢字漢"


def test_a_prefix_of_unknown_words_is_left_out_and_named(tmp_path, one_thread):
    words = save_random(tmp_path / "words", algorithm="word", scale=4.0, **SHAPE)
    events, free = (
        events_of(words, want=["translation", "tree", "next"], **prefix)
        for prefix in ({"prefix": "漢字"}, {})
    )
    assert events["translation"].pop("unsatisfied") == ["漢字"]
    assert free["translation"].pop("unsatisfied") == []
    assert {**events, "done": 0} == {**free, "done": 0}


def test_what_is_wanted_later_is_read_of_the_same_capture(translator, monkeypatch):
    inspection, n_captured = Inspection(), 0
    before = HeadInspector.inspect_line

    def count_calls(*arguments):
        nonlocal n_captured
        n_captured += 1
        return before(*arguments)

    monkeypatch.setattr(HeadInspector, "inspect_line", count_calls)
    for off, want in ([], ["heads"]), ([], ["lens"]), (["enc.0.0"], ["lens"]), ([], ["lens"]):
        list(inspection.events(translator, {"text": TEXT, "want": want, "heads_off": off}))
    assert n_captured == 3


def test_a_report_is_the_static_page_of_what_is_shown(translator):
    page = events_of(translator, want=["report"], target="Un homme dort.")["report"]["html"]
    assert page.startswith("<!DOCTYPE html>")
    assert "Un homme dort." in page


def test_a_decision_is_that_of_the_command_line(zoo):
    model, pair = zoo["translate"], ("The old house.", "A dog.")
    request = {"text": pair[0], "want": ["decision"]}
    events = events_of(model, other=pair[1], **request)
    assert [*events] == ["decision", "done"]
    data, record = events["decision"]["data"], inspect_decision(model, pair, device="cpu")
    assert data["decision"] == VIEW.json(record)["decision"]
    assert [head["id"] for head in data["heads"]] == [part.id for part in record.heads]
    # Without the slowest methods
    names = set(record.heads[0].effects)
    assert set(data["heads"][0]["effects"]) == names - {"mean", "resample"}
    assert len(data["tokens"]) == len(record.tokens)
    alone = events_of(model, **request)["decision"]["data"]
    assert {"zero", "estimate"} < set(alone["heads"][0]["effects"])
    for fields, message in (
        ({"other": pair[0]}, "decides alike for both"),
        ({"text": "A dog. " * 40}, "text: has [0-9]+ tokens, more than 64"),
        ({"other": "A dog. " * 40}, "other: has [0-9]+ tokens, more than 64"),
        ({"target": "nowhere"}, "is not in"),
    ):
        with pytest.raises(Exception, match=message):
            events_of(model, **{**request, **fields})


def test_a_decision_that_nobody_waits_for_ends_before_its_next_batch(zoo, monkeypatch):
    orders = [
        {"id": number, "model": str(zoo["translate"]), "request": {"text": "A dog.", "want": want}}
        for number, want in ((1, ["decision"]), (2, ["alignment"]))
    ]
    read, write = os.pipe()
    batches, computed = [], Probe.batches

    def note_batches(probe, n_rows):
        for rows in computed(probe, n_rows):
            batches.append(rows)
            yield rows
            if len(batches) == 3:  # the client leaves during the third batch
                os.write(write, b'{"cancel": 1}\n')
                while not lines[0].is_cancelled(1):
                    time.sleep(0.001)

    lines, make = [], inspection.Lines
    monkeypatch.setattr(Probe, "batches", note_batches)
    monkeypatch.setattr(inspection, "Lines", lambda source: lines.append(make(source)) or lines[0])
    os.write(write, "".join(json.dumps(order) + "\n" for order in orders).encode())
    answers = Answers(lambda: os.close(write))
    with os.fdopen(read) as source:
        inspection.serve(source, answers)
    # The next request is answered, and the first one no more
    kinds = [(event["id"], event["event"]) for event in answers.events]
    assert kinds == [(2, "alignment"), (2, "done")]
    assert len(batches) == 3


class Answers:
    """Collects the answers of the process, and calls a function after the last one."""

    def __init__(self, end):
        self.events, self._end = [], end

    def write(self, line):
        self.events.append(json.loads(line))
        if self.events[-1]["event"] == "done":
            self._end()

    def flush(self):
        pass


def run(scenario, **options):
    async def whole():
        inspector = Inspector(**options)
        try:
            await scenario(inspector)
        finally:
            await inspector.close()

    asyncio.run(asyncio.wait_for(whole(), 60))


async def gather_events(inspector, model, **request):
    return [event async for event in inspector.events(model, {"text": TEXT, **request})]


def test_the_process_answers_dies_and_is_begun_again(translator):
    async def scenario(inspector):
        await inspector.start()
        first = inspector.pid
        events = await gather_events(inspector, translator, want=["heads"])
        assert [event["event"] for event in events] == ["heads", "done"]
        assert inspector.pid == first
        wrong = await gather_events(inspector, translator / "nothing")
        assert [event["event"] for event in wrong] == ["error"]
        # Only the operator may see local file names
        assert wrong[0]["message"] == "the model cannot be inspected; see the service's log"
        os.kill(first, signal.SIGSTOP)  # it must not answer before it dies
        waiting = asyncio.create_task(gather_events(inspector, translator, want=["off", "report"]))
        while not inspector._waiting:
            await asyncio.sleep(0.01)
        os.kill(first, signal.SIGKILL)
        assert {"event": "error", "message": DIED} in await waiting
        assert await gather_events(inspector, translator, want=["heads"]) != []
        assert inspector.pid not in (None, first)

    run(scenario)


SLOW = """
import json, sys, threading, time
cancelled = set()
def answer(order):
    for n in range(100):
        if order["id"] in cancelled: return
        print(json.dumps({"id": order["id"], "event": "heads", "n": n}), flush=True)
        time.sleep(.01)
    print(json.dumps({"id": order["id"], "event": "done"}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if "cancel" in order:
        cancelled.add(order["cancel"])
        told = {"id": order["cancel"] + 1, "event": "done", "cancelled": True}
        print(json.dumps(told), flush=True)
    else:
        threading.Thread(target=answer, args=(order,), daemon=True).start()
"""


def test_who_leaves_is_computed_for_no_longer_and_rest_ends_the_process(tmp_path):
    async def scenario(inspector):
        events = inspector.events(tmp_path, {"text": TEXT})
        assert (await anext(events))["n"] == 0
        await events.aclose()
        # the process tells the next request what it was told about the one before
        async for event in inspector.events(tmp_path, {"text": TEXT}):
            if event.get("cancelled"):
                break
        assert event["event"] == "done"
        pid = inspector.pid
        assert pid is not None
        while inspector.pid is not None:  # `run` bounds the time
            await asyncio.sleep(0.01)

    run(scenario, idle_seconds=0.2, command=(sys.executable, "-c", SLOW))


def test_the_process_ends_with_its_service():
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert b"ready" in process.stdout.readline()
        process.stdin.close()  # as when the service dies
        assert process.wait(30) == 0


def test_the_service_imports_no_torch_to_inspect():
    code = "import sys, tformer_cli.plugins.serve.inspector; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_text_that_is_too_long_or_blank_is_refused_in_a_line(translator):
    for text, message in ((" ", "text: is missing"), (LINES[1] * 200, "text: has ")):
        with pytest.raises(Exception, match=message):
            list(Inspection().events(translator, {"text": text}))
