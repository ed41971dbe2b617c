import asyncio
import json
import shutil
import sys
import time

import pytest

from tests.commands import run
from tests.plugins.serve.fake import MODELS, Client, FakeService, model
from tests.zoo import ENGLISH, FRENCH
from tformer_cli.errors import TformerError
from tformer_cli.plugins.serve.inspection import Inspection
from tformer_cli.plugins.serve.models import Service
from tformer_cli.search.constraints import LineConstraints

ASKED = {"model": "en-fr", "text": "hello"}


def live(client=None, verb="translate", **fields):
    return (client or Client()).post(f"/api/{verb}", json_={**ASKED, **fields})


def test_a_translation_is_the_first_event_and_names_the_schema():
    answer = live()
    assert answer.named["content-type"].startswith("application/x-ndjson")
    first, done = answer.lines
    assert list(first)[:3] == ["event", "schema", "model"]
    assert (first["event"], first["schema"]) == ("translation", "tformer.live/1")
    assert first["source"] == {"text": "hello", "ids": [7, 8]}
    assert first["target"] == {"text": "HELLO", "ids": [5, 6]}
    assert first["hypotheses"] == [
        {
            "text": "HELLO", "score": -0.5, "log_probability": -1.0,
            "token_log_probabilities": [-0.5, -0.25, -0.25], "token_ids": [5, 6],
        }
    ]  # fmt: skip
    assert first["flags"] == []
    assert done["event"] == "done"
    assert set(done["ms"]) == {"queue", "compute", "inspect"}


def test_lines_are_events():
    events = live(text="a\n\nb").lines
    assert [event.get("index") for event in events] == [0, 1, 2, None]
    assert [event["target"]["text"] for event in events[:3]] == ["A", "", "B"]


def test_settings_reach_the_search():
    client, before = Client(), time.monotonic()
    answer = live(
        client, beam_size=3, n_best=2, length_penalty=0.5, temperature=0.7, top_k=5, top_p=0.9,
        seed=7, prefix="Le ", ban=["x", "y"], require="z", priority="bulk", timeout_ms=2000,
    )  # fmt: skip
    assert len(answer.lines[0]["hypotheses"]) == 2
    (call,) = client.service.calls
    assert before <= call.deadline - 2.0 <= time.monotonic()
    assert call.settings == {
        "beam_size": 3, "n_best": 2, "length_penalty": 0.5, "temperature": 0.7, "top_k": 5,
        "top_p": 0.9, "seed": 7, "sampling": True,
    }  # fmt: skip
    assert call.constraints == [LineConstraints("Le ", ("z",), ("x", "y"))]
    assert call.priority == "bulk"
    live(client)
    assert client.service.calls[1].settings == {}
    assert client.service.calls[1].constraints is None
    assert client.service.calls[1].priority is None


def test_several_models_answer_one_after_the_other():
    events = live(models=["en-fr", "fr-de"], model=None).lines
    assert [event.get("model") for event in events] == ["en-fr", "fr-de", None]


def test_other_verbs_have_their_events():
    label = live(verb="classify", model="stars").lines[0]
    assert label["event"] == "classification"
    assert label["probabilities"] == {"good": 0.75, "bad": 0.25}
    vector = live(verb="embed", model="bert", normalize=True, pooling="mean").lines[0]
    assert vector["vector"] == [5, 0.5, -1]
    client = Client()
    request = {"verb": "generate", "model": "lm", "text": "a\nb", "stop": ["\n"]}
    text = live(client, n_best=2, **request).lines[0]
    assert [part["text"] for part in text["texts"]] == [" and 0", " and 1"]
    # A prompt may have several lines
    assert client.service.calls[0].texts == ["a\nb"]
    assert client.service.calls[0].settings == {"n_best": 2, "stops": ("\n",)}


def test_a_text_comes_in_parts_and_then_whole():
    request = {"verb": "generate", "model": "lm"}
    part, whole, done = live(**request).lines
    assert part == {"event": "text", "schema": "tformer.live/1", "model": "lm", "text": " a"}
    assert (whole["event"], whole["texts"][0]["text"], done["event"]) == (
        *("generation", " and 0", "done"),
    )
    # Several texts cannot be streamed, and streaming can be turned off
    for more in ({"stream": False}, {"n_best": 2}):
        assert [event["event"] for event in live(**request, **more).lines] == ["generation", "done"]


def test_who_waits_until_a_model_is_opened_learns_so():
    client = Client()
    client.post("/api/models/en-fr/unload", json_={})
    loading, first, _ = live(client).lines
    assert loading == {"event": "loading", "schema": "tformer.live/1", "model": "en-fr"}
    assert first["event"] == "translation"


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"text": None}, 400, "text: is missing"),
        ({"text": 3}, 400, "text: is missing, or is not text"),
        ({"text": "x" * 5001}, 400, "5001 characters"),
        ({"model": "nosuch"}, 404, "there is no model"),
        ({"model": "lm"}, 404, "there is no model"),
        ({"model": "../../etc"}, 404, "there is no model"),
        ({"model": None}, 400, "model: is missing; there are en-fr, fr-de"),
        ({"models": ["en-fr"] * 5}, 400, "at most 4"),
        ({"beam_size": 1000}, 400, "beam_size: must be from 1 to 16"),
        ({"beam_size": 1.5}, 400, "beam_size: must be a whole number"),
        ({"n_best": 10**6}, 400, "n_best: must be from 1 to 20"),
        ({"max_length": 10**6}, 400, "max_length: must be from 1 to 4096"),
        ({"temperature": 0}, 400, "temperature: must be from"),
        ({"top_k": -1}, 400, "top_k: must be from"),
        ({"seed": 2**70}, 400, "seed: must be from"),
        ({"timeout_ms": 0}, 400, "timeout_ms: must be from"),
        ({"ban": [""]}, 400, "ban: must be at most 50 phrases, none empty"),
        ({"require": ["a"] * 51}, 400, "require: must be at most 50"),
        ({"ban": 3}, 400, "ban: must be text or a list"),
        ({"priority": "first"}, 400, "priority: must be interactive or bulk"),
        ({"want": ["everything"]}, 400, "want: everything is not an event; use alignment, heads"),
        ({"want": ["circuit"]}, 400, "want: circuit is not an event"),  # it reads a corpus
        ({"want": ["flow", "layers"]}, 200, "needs PyTorch"),
        ({"want": ["heads"]}, 200, "needs PyTorch"),
        ({"heads_off": ["enc.0.1"]}, 501, "needs PyTorch"),
        ({"baem_size": 3}, 400, "baem_size: no such field of /api/translate"),
        ({"stop": ["a"]}, 400, "stop: no such field of /api/translate"),
    ],
)
def test_what_is_not_possible(fields, status, words):
    answer = live(**fields)
    assert answer.status == status
    assert words in answer.text


def test_a_problem_after_the_first_event_is_the_last_one(capsys):
    service = FakeService()
    plain = service.result

    def result(verb, index, text, settings):
        if index == 1:
            raise TformerError("/secret/model: is gone")
        return plain(verb, index, text, settings)

    service.result = result
    first, error = live(Client(service), text="a\nb\nc").lines
    assert first["event"] == "translation"
    assert error == {"event": "error", "message": "the service failed; its operator can see why"}
    assert capsys.readouterr().err == "error: serve: /secret/model: is gone\n"


class Inspector:
    """Records its requests."""

    def __init__(self):
        self.calls = []
        self.says = {"event": "heads", "kinds": {}}

    async def events(self, model, request):
        self.calls.append((model, request))
        yield self.says
        yield {"event": "done", "ms": {}}


def test_what_needs_torch_comes_from_the_inspector(tmp_path):
    inspector = Inspector()
    client = Client(inspector=inspector, paths={"en-fr": tmp_path})
    events = [event["event"] for event in live(client, want=["heads"], beam_size=2).lines]
    assert events == ["translation", "heads", "done"]
    assert inspector.calls == [
        (tmp_path, {**ASKED, "want": ["heads"], "beam_size": 2, "model": "en-fr"})
    ]
    # Only the inspector has head gates, and completes a partial last word
    for more in ({"heads_off": ["enc.0.1"]}, {"prefix": "La vieil"}):
        events = [event["event"] for event in live(client, **more).lines]
        assert events == ["heads", "done"]
        assert inspector.calls[-1][1]["want"] == ["translation"]
    assert len(client.service.calls) == 1
    inspector.says = {"event": "error", "message": "text: has 300 tokens"}
    *_, last = live(client, want=["heads"]).lines
    assert last == inspector.says
    assert live(client, heads_off=["enc.0.1"]).status == 400


def decide(inspector, folder, **fields):
    client = Client(inspector=inspector, paths={"en-fr": folder, "lm": folder})
    return client.post("/api/decision", json_={**ASKED, **fields})


def test_a_decision_is_one_answer_of_the_inspector(tmp_path):
    inspector = Inspector()
    inspector.says = {"event": "decision", "data": {"schema": "tformer.decision/1"}}
    fields = {"other": "b", "target": "il", "foil": "elle", "beam_size": 2, "timeout_ms": 5000}
    answer = decide(inspector, tmp_path, **fields)
    assert (answer.status, answer.json) == (200, {"schema": "tformer.decision/1"})
    assert inspector.calls == [(tmp_path, {**ASKED, **fields, "want": ["decision"]})]
    assert decide(inspector, tmp_path, model="lm").status == 200


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"text": None}, 400, "text: is missing, or is blank"),
        ({"text": " "}, 400, "text: is missing, or is blank"),
        ({"text": 3}, 400, "text: must be text"),
        ({"text": "x" * 5001}, 400, "text: has 5001 characters"),
        ({"other": "x" * 5001}, 400, "other: has 5001 characters"),
        ({"other": ["a"]}, 400, "other: must be text"),
        ({"foil": 3}, 400, "foil: must be text"),
        ({"model": "nosuch"}, 404, 'there is no model \\"nosuch\\"'),
        ({"model": None}, 400, "model: is missing; there are "),
        ({"timeout_ms": 0}, 400, "timeout_ms: must be from"),
        ({"beam_size": 1000}, 400, "beam_size: must be from 1 to 16"),
        ({"targte": "il"}, 400, "targte: no such field of /api/decision"),
    ],
)
def test_what_cannot_be_decided(tmp_path, fields, status, words):
    inspector = Inspector()
    answer = decide(inspector, tmp_path, **fields)
    assert answer.status == status
    assert words in answer.text
    assert inspector.calls == []


def test_an_error_of_a_decision_has_a_status_and_the_names_of_fields(tmp_path):
    inspector = Inspector()
    inspector.says = {"event": "error", "message": 'target: "x" is not in "y"'}
    answer = decide(inspector, tmp_path)
    assert (answer.status, answer.json) == (400, {"error": 'target: "x" is not in "y"'})
    answer = Client().post("/api/decision", json_=ASKED)
    assert answer.status == 501

    class Slow:
        async def events(self, model, request):
            await asyncio.sleep(60)
            yield {}

    answer = decide(Slow(), tmp_path, timeout_ms=20)
    assert answer.status == 504
    assert "could not be answered in time" in answer.text


LONG = "data:" + "x" * 5000


@pytest.mark.parametrize("text", [LONG, f"data:image/png;base64,{LONG}", f"a\n{LONG}"])
@pytest.mark.parametrize("field", ["text", "prefix", "target", "require", "ban"])
def test_every_text_is_within_the_limit(field, text):
    value = [text] if field in ("require", "ban") else text
    answer = live(**{field: value})
    assert answer.status == 400
    assert f"{field}: has {len(text)} characters, more than 5000" in answer.json["error"]


@pytest.mark.parametrize("field", ["text", "other", "target", "foil"])
def test_every_text_of_a_decision_is_within_the_limit(field, tmp_path):
    answer = decide(None, tmp_path, **{field: LONG})
    assert (answer.status, answer.json["error"][: len(field)]) == (400, field)


def test_only_models_of_images_read_addresses_of_images_that_are_longer():
    client = Client(FakeService([model("pictures", "image", ("classify",)), *MODELS]))
    image = f"data:image/png;base64,{'A' * 9000}"
    for text, status in (
        (image, 200),
        (f"{image}\n{image}", 200),
        ("x" * 5001, 400),
        (f"data:{'A' * 1_000_000}", 400),
        ("data:\n" * 200, 400),
    ):
        assert live(client, "classify", model="pictures", text=text).status == status
        stars_status = live(client, "classify", model="stars", text=text).status
        assert stars_status == (400 if len(text) > 5000 else 200)
    both = {"models": ["pictures", "stars"], "text": image}
    assert live(client, "classify", **both).status == 400


def test_an_answer_of_few_lines_comes_in_time_whatever_computes_it():
    service = FakeService()
    service.seconds = 60.0
    answer = live(Client(service), timeout_ms=20)
    assert answer.status == 504
    assert "could not be answered in time" in answer.json["error"]
    assert service.n_ended == 1


def test_models_are_listed_loaded_and_unloaded():
    client = Client()
    models = client.get("/api/models").json["models"]
    assert models[0] == {
        "name": "en-fr", "kind": "translate", "verbs": ["translate"], "source_language": "en",
        "target_language": "fr", "languages": [], "doubt": False, "state": "loaded", "bytes": 1000,
        "hash": "0" * 64,
    }  # fmt: skip
    assert client.post("/api/models/en-fr/unload", json_={}).json["state"] == "unloaded"
    assert client.get("/api/models").json["models"][0]["state"] == "unloaded"
    assert client.post("/api/models/en-fr/load", json_={}).json["state"] == "loaded"
    assert client.post("/api/models/nosuch/load", json_={}).status == 404


def test_the_files_of_the_page_are_served_and_no_others():
    client = Client()
    assert client.get("/").named["content-type"].startswith("text/html")
    script = client.get("/page/live.js")
    assert script.status == 200
    assert "javascript" in script.named["content-type"]
    for name in ("nosuch.js", "../app.py", "..%2fapp.py", "app.py", "", "a/b.js", "__init__.py"):
        assert client.get(f"/page/{name}").status == 404


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Two dogs run in the snow.", None),
        ("The old  dog’s house is 🙂 green", 0),
        ("Two dogs run. A man sleeps in the snow.", 1),
        ("Two dogs run. A man sleeps in the snow.", 7),
    ],
)
def test_alignments_come_out_of_the_search_as_the_inspector_has_them(
    zoo, tmp_path, several_sentences, monkeypatch, text, sentence
):
    path = shutil.copytree(zoo["translate"], tmp_path / "m")
    several_sentences(path, 0.0)  # so that lines are split
    service = Service({"m": path})
    request = {"model": "m", "text": text, "want": ["alignment"], "sentence": sentence}
    client = Client(service=service)
    monkeypatch.setitem(sys.modules, "tformer_cli.inspect.capture.forced", None)
    *_, first, alignment, done = client.post("/api/translate", json_=request).lines
    assert (first["event"], done["event"]) == ("translation", "done")
    *_, again, _ = client.post("/api/translate", json_=request).lines
    assert again == alignment
    monkeypatch.undo()
    events = Inspection().events(path, {"text": text, "want": ["alignment"], "sentence": sentence})
    expected = next(event for event in events if event["event"] == "alignment")
    assert alignment.pop("model") == "m"
    spans = {side: [list(span) for span in spans] for side, spans in expected["words"].items()}
    tokens = {side: list(words) for side, words in expected["tokens"].items()}
    assert alignment == {
        "event": "alignment",
        "words": spans,
        "tokens": tokens,
        "links": [list(link) for link in expected["links"]],
    }


def test_what_was_not_searched_is_aligned_by_the_inspector(zoo, tmp_path):
    inspector = Inspector()
    inspector.says = {"event": "alignment", "links": []}
    client = Client(
        service=Service({"m": zoo["translate"]}), inspector=inspector, paths={"m": tmp_path}
    )
    for more in ({"target": "Un chien."}, {"text": "One line.\nTwo lines."}, {"prefix": "Un chi"}):
        request = {"model": "m", "text": "A dog.", "want": ["alignment", "tree"], **more}
        client.post("/api/translate", json_=request)
        assert inspector.calls[-1][1]["want"][-2:] == ["alignment", "tree"]
    client.post(
        "/api/translate", json_={"model": "m", "text": "A dog.", "want": ["alignment", "tree"]}
    )
    assert inspector.calls[-1][1]["want"] == ["tree"]


@pytest.fixture(scope="module")
def doubting(zoo, tmp_path_factory):
    """A translator calibrated on its training data, repeated."""
    path = shutil.copytree(zoo["translate"], tmp_path_factory.mktemp("calibrated") / "m")
    for name, lines in (("en", ENGLISH), ("fr", FRENCH)):
        odd = [f"{line} {n}\n" for n in range(8) for line in lines]
        (path.parent / f"held.{name}").write_text("".join(odd), newline="")
    held = ["-i", path.parent / "held.en", "--reference", path.parent / "held.fr", "--below", 0]
    assert run("calibrate", path, *held, "-q").exit_code == 0
    return path


@pytest.mark.parametrize("want", [(), ("alignment",)])
def test_doubt_is_that_of_the_command(doubting, want):
    service = Service({"m": doubting})
    assert [info.doubt for info in service.info()] == [True]
    lines = [*ENGLISH, "", "Two dogs run. A man sleeps."]
    stdin = "".join(f"{line}\n" for line in lines)
    done = run("translate", doubting, "--format", "jsonl", "--doubt", "--flags", stdin=stdin)
    client = Client(service=service)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    request = {"model": "m", "text": "\n".join(lines), "n_best": 2}
    for _ in ("computed", "cached"):
        events = client.post("/api/translate", json_={**request, "doubt": True}).lines
        translations = [event for event in events if event["event"] == "translation"]
        for event, record in zip(translations, records, strict=True):
            best, other = (event["hypotheses"] * 2)[:2]
            assert best["text"] == record["translation"]
            for name in ("doubt", "word_probabilities"):
                assert best[name] == record[name]
            assert max(best["sentence_doubts"], default=0) == best["doubt"]
            assert len(best["sentence_doubts"]) == record.get("parts", int(bool(best["text"])))
            assert event["flags"] == record["flags"]
            assert 0 <= other["doubt"] <= 1
    # Without asking, doubt is absent, even if cached or with an alignment
    (first, *_) = client.post("/api/translate", json_=request).lines
    assert "doubt" not in first["hypotheses"][0]
    both = {"model": "m", "text": "A dog.", "doubt": True, "want": list(want)}
    *_, last = client.post("/api/translate", json_=both).lines[: 1 + len(want)]
    assert last["event"] == ("alignment" if want else "translation")


def test_doubt_without_a_calibration_is_one_error_that_says_what_to_do(zoo, doubting, tmp_path):
    path = shutil.copytree(zoo["translate"], tmp_path / "m")
    client = Client(service=Service({"m": path}))
    assert [info.doubt for info in client.service.info()] == [False]
    client.post("/api/translate", json_={"model": "m", "text": "A dog."})
    request = {"model": "m", "text": "A dog.", "doubt": True}
    answer = client.post("/api/translate", json_=request)
    assert (answer.status, answer.json) == (
        400,
        {
            "error": "doubt: this model is not calibrated; run `tformer calibrate` on its "
            "directory and reload it, or omit it"
        },
    )
    # As it says
    shutil.copy(doubting / "doubt.json", path / "doubt.json")
    client.post("/api/models/m/unload", json_={})
    *_, event, _ = client.post("/api/translate", json_=request).lines
    assert 0 <= event["hypotheses"][0]["doubt"] <= 1
    assert [info.doubt for info in client.service.info()] == [True]
    assert client.post("/api/translate", json_={**request, "doubt": 2}).status == 400


def test_what_cannot_be_aligned_is_calibrated_all_the_same(doubting, monkeypatch):
    monkeypatch.setattr("tformer_cli.plugins.serve.served_model.find_aligner", lambda opened: None)
    client = Client(service=Service({"m": doubting}))
    client.post("/api/translate", json_={"model": "m", "text": "A dog."})
    assert [info.doubt for info in client.service.info()] == [True]  # doubt reads no attention
