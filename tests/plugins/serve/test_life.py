"""The life of a service: loading, unloading, cancelling, draining, forks."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from tests.plugins.serve.test_models import all_of, serve
from tests.zoo import ENGLISH
from tformer_cli.api.model import load_model
from tformer_cli.documents.answers import links_of
from tformer_cli.errors import ArtifactError, TformerError
from tformer_cli.kinds.serving import Generating, Translating
from tformer_cli.plugins.serve import engine, models, watching
from tformer_cli.plugins.serve.cache import MISSING, ResultCache, private_bytes
from tformer_cli.plugins.serve.models import (
    RELAYED_LINES,
    Busy,
    Draining,
    Late,
    Service,
    UnknownModel,
)
from tformer_cli.plugins.serve.scheduler import OPEN_LINES
from tformer_cli.plugins.serve.watching import UnusableModel


class Gate:
    """Releases batches of translations one at a time."""

    def __init__(self, monkeypatch):
        self.passes = threading.Semaphore(0)
        self.batches = []
        compute = Translating.compute

        def compute_behind_gate(serving, units):
            self.batches.append(len(units))
            assert self.passes.acquire(timeout=60)
            return compute(serving, units)

        monkeypatch.setattr(Translating, "compute", compute_behind_gate)
        monkeypatch.setattr(Translating, "warm_up", lambda self: None)

    def open(self, n=10_000):
        self.passes.release(n)


@pytest.fixture
def gate(monkeypatch):
    return Gate(monkeypatch)


async def until(condition):
    """Waits for a condition that another thread fulfills."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("never happened")


def pass_time(service, seconds):
    """Advances the clock of the schedulers, as a stalled test could miss short real deadlines."""
    for model in service._models.values():
        model.engine.scheduler._clock = lambda: time.monotonic() + seconds


def waiting(service):
    return sum(service.stats.queue_requests.values())


def service_of(zoo, *names, **options):
    return Service({name: zoo[name] for name in names}, **options)


def make_lines(n):
    """Distinct lines."""
    return [f"dog {number}" for number in range(n)]


def test_unknown_names_and_verbs_are_refused_before_anything_waits(zoo):
    service = service_of(zoo, "translate", "classifier")
    for name, verb, message in (
        ("translates", "translate", "there is no translates; did you mean translate"),
        ("classifier", "translate", "classifier is a classifier"),
        ("translate", "score", "translate is a translation model"),
    ):
        with pytest.raises(UnknownModel, match=message):
            serve(service, (name, verb, ["a"]))
    assert {info.state for info in service.info()} == {"unloaded"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam_sise": 2}, "beam_sise: is not a setting of translate; did you mean"),
        ({"beam_size": 0}, "beam-size: must be 1 to"),
        ({"beam_size": "5"}, "beam-size: must be int"),
        ({"seed": "x"}, "seed: must be int"),
        ({"target_language": "xx"}, "has no language tokens"),
    ],
)
def test_impossible_settings_harm_nobody_else(zoo, settings, message):
    service = service_of(zoo, "translate")

    async def run():
        wrong = service.submit("translate", "translate", ENGLISH, settings=settings)
        good = asyncio.create_task(all_of(service.submit("translate", "translate", ENGLISH)))
        with pytest.raises(TformerError, match=message):
            await all_of(wrong)
        return await good

    assert asyncio.run(run()) == list(load_model(zoo["translate"]).translate(ENGLISH))
    assert not waiting(service)


def test_an_error_in_a_batch_is_told_only_to_whoever_has_it(zoo, monkeypatch):
    compute = Translating.compute

    def fails_at_dogs(serving, units):
        if any(len(unit.content.tokens) > 20 for unit in units):
            raise MemoryError
        return compute(serving, units)

    monkeypatch.setattr(Translating, "compute", fails_at_dogs)
    service = service_of(zoo, "translate")

    async def run():
        calls = [["dog " * 12], *([line] for line in ENGLISH if len(line) < 20)]
        tasks = [all_of(service.submit("translate", "translate", call)) for call in calls]
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, *results = asyncio.run(run())
    assert isinstance(first, MemoryError)
    assert all(isinstance(result, list) for result in results)


def test_a_mistake_of_ours_leaves_nobody_waiting(zoo, monkeypatch):
    service = service_of(zoo, "translate")
    engine = service._models["translate"].engine
    put, n_failed = engine._put, 0

    def fails_once(*arguments):
        nonlocal n_failed
        n_failed += 1
        if n_failed == 1:
            raise RuntimeError("a mistake")
        put(*arguments)

    monkeypatch.setattr(engine, "_put", fails_once)

    async def run():
        with pytest.raises(RuntimeError, match="a mistake"):
            await asyncio.wait_for(all_of(service.submit("translate", "translate", ["a"])), 60)
        assert len(await all_of(service.submit("translate", "translate", ["b"]))) == 1
        await service.drain(1.0)

    asyncio.run(run())


def test_the_work_of_a_client_that_leaves_stops_within_a_batch(zoo, gate):
    service = service_of(zoo, "translate")

    async def run():
        async with aclosing(service.submit("translate", "translate", make_lines(300))) as answers:
            gate.open(1)
            await anext(answers)
            await until(lambda: len(gate.batches) == 2)
        cancelled = asyncio.create_task(
            all_of(service.submit("translate", "translate", make_lines(300)))
        )
        await until(lambda: waiting(service))
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):  # now it has left, before the next batch
            await cancelled
        gate.open()
        await until(lambda: not waiting(service))
        await service.drain(5.0)

    asyncio.run(run())
    assert len(gate.batches) == 2
    assert service.stats.cancelled_gone_total == 2


def test_a_text_that_nobody_waits_for_is_not_written_to_its_end(zoo, monkeypatch):
    def endless(self, unit, on_text):
        while True:
            on_text("x")
            time.sleep(0.001)

    monkeypatch.setattr(Generating, "stream_unit", endless)
    service = service_of(zoo, "language_model")

    async def run():
        answers = service.submit("language_model", "generate", ["a"], is_streamed=True)
        assert [await anext(answers) for _ in range(3)] == ["x"] * 3
        await answers.aclose()
        (generation,) = await asyncio.wait_for(
            all_of(service.submit("language_model", "generate", ["b"])), 60
        )
        assert generation.prompt == "b"
        await service.drain(1.0)

    asyncio.run(run())


def test_a_sentence_is_answered_while_a_document_is_computed(zoo, gate):
    service = service_of(zoo, "translate")

    async def run():
        document = service.submit("translate", "translate", make_lines(400))
        first = asyncio.create_task(anext(document))
        await until(lambda: len(gate.batches) == 1)
        sentence = asyncio.create_task(all_of(service.submit("translate", "translate", ["house"])))
        await until(lambda: waiting(service) == 2)
        gate.open(2)
        await asyncio.wait_for(sentence, 60)
        assert gate.batches[1] == 1
        gate.open()
        return [await first, *[translation async for translation in document]]

    translations = asyncio.run(run())
    assert translations == list(load_model(zoo["translate"]).translate(make_lines(400)))


def test_a_request_that_cannot_begin_in_time_is_late(zoo, gate):
    service = service_of(zoo, "translate")

    async def run():
        first = asyncio.create_task(all_of(service.submit("translate", "translate", ["a"])))
        await until(lambda: gate.batches)
        deadline = time.monotonic() + 60
        late = asyncio.create_task(
            all_of(service.submit("translate", "translate", ["b"], deadline=deadline))
        )
        await until(lambda: waiting(service))
        pass_time(service, 70)
        gate.open()
        assert len(await first) == 1
        with pytest.raises(Late):
            await late

    asyncio.run(run())
    assert service.stats.cancelled_late_total == 1


def test_a_full_queue_is_busy_and_keeps_what_it_let_in(zoo, gate):
    service = service_of(zoo, "translate", max_queue=20)

    async def run():
        calls = [["dog"] * 10 for _ in range(9)]
        tasks = [
            asyncio.create_task(all_of(service.submit("translate", "translate", call)))
            for call in calls
        ]
        await until(lambda: gate.batches)
        # Sentences are still admitted
        assert service.ready()
        sentence = asyncio.create_task(all_of(service.submit("translate", "translate", ["a"])))
        gate.open()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert len(await sentence) == 1
        return results

    results = asyncio.run(run())
    busy = [result for result in results if isinstance(result, Busy)]
    assert len(busy) == 7
    assert all(error.retry_after >= 1 for error in busy)
    assert sum(isinstance(result, list) and len(result) == 10 for result in results) == 2
    assert service.stats.rejected_total == 7


def test_draining_answers_what_was_let_in_and_nothing_else(zoo, gate):
    service = Service({"a": zoo["translate"], "b": zoo["twin"]})
    lines = make_lines(40)

    async def run():
        kept = asyncio.create_task(all_of(service.submit("a", "translate", lines)))
        relayed = asyncio.create_task(all_of(service.submit(("a", "b"), "translate", lines)))
        await until(lambda: gate.batches)
        ending = asyncio.create_task(service.drain(60.0))
        await until(lambda: service._is_draining)
        with pytest.raises(Draining):
            await all_of(service.submit("a", "translate", ["late"]))
        gate.open()
        await ending
        assert not service.ready()
        assert not service._models["a"].engine._thread.is_alive()
        return await kept, await relayed

    kept, relayed = asyncio.run(run())
    assert [translation.source for translation in kept] == lines
    assert [translation.source for translation in relayed] == lines


def test_draining_goes_on_while_what_was_let_in_brings_more(zoo):
    service = service_of(zoo, "translate")
    left = make_lines(3)

    async def run():
        ending = asyncio.create_task(service.drain(60.0, lambda: bool(left)))
        await until(lambda: service._is_draining)
        for _ in range(3):  # windows of a document, with nothing queued in between
            await asyncio.sleep(0.02)
            window = service.submit("translate", "translate", [left[-1]], is_admitted=True)
            assert len(await all_of(window)) == 1
            left.pop()
        await ending

    asyncio.run(run())


def test_long_texts_are_prepared_a_few_at_a_time(zoo, gate, monkeypatch):
    service = service_of(zoo, "translate")
    sizes = []
    prepare = Translating.prepare

    def noting(self, texts, *arguments):
        sizes.append(sum(map(len, texts)))
        return prepare(self, texts, *arguments)

    monkeypatch.setattr(Translating, "prepare", noting)
    monkeypatch.setattr(engine, "SIZE_AT_ONCE", 100)
    texts = ["dog " * 60] * 20 + ["dog"] * 200

    async def run():
        gate.open()
        return await all_of(service.submit("translate", "translate", texts))

    assert len(asyncio.run(run())) == len(texts)
    # The last text may exceed the room
    assert max(sizes) <= 2 * len(texts[0]) + 4
    assert len(sizes) >= 10


def test_draining_ends_in_time_and_tells_those_it_leaves(zoo, gate):
    service = service_of(zoo, "translate")

    async def run():
        left = asyncio.create_task(all_of(service.submit("translate", "translate", make_lines(90))))
        await until(lambda: gate.batches)
        ending = asyncio.create_task(service.drain(0.1))
        await until(lambda: service._models["translate"].engine._is_closed)
        gate.open()
        await ending
        with pytest.raises(Draining):
            await left

    asyncio.run(run())
    assert len(gate.batches) <= 2


def test_a_pivot_translates_twice(zoo):
    service = Service({"a": zoo["translate"], "b": zoo["twin"]})
    lines = [*ENGLISH * 9, ""]
    (translations,) = serve(service, (("a", "b"), "translate", lines, {"settings": {"n_best": 2}}))
    first = [text.text for text in load_model(zoo["translate"]).translate(lines)]
    second = list(load_model(zoo["twin"]).translate(first, n_best=2))
    assert [text.hypotheses for text in translations] == [text.hypotheses for text in second]
    assert [translation.source for translation in translations] == lines
    assert [translation.index for translation in translations] == list(range(len(lines)))


def test_a_pivot_links_the_words_of_its_ends(zoo):
    service = Service({"a": zoo["translate"], "b": zoo["twin"]})
    lines = ENGLISH[:4]
    call = ("a", "b"), "translate", lines, {"settings": {"aligned": True}}
    (translations,) = serve(service, call)
    aligners = [service.aligner(name) for name in ("a", "b")]
    line_links = links_of(aligners, translations, passes=False)
    for translation, line, links in zip(translations, lines, line_links, strict=True):
        assert translation.through.source == line
        assert links
        n = len(translation.text)
        assert all(a < b <= n and c < d <= len(line) for (a, b), (c, d) in links)


def test_routes_are_direct_or_through_the_pivot(zoo, tmp_path):
    paths = {}
    for name, source, target in (("ende", "en", "de"), ("fren", "fr", "en"), ("enfr", "en", "fr")):
        paths[name] = shutil.copytree(zoo["translate"], tmp_path / name)
        config = json.loads((paths[name] / "config.json").read_text())
        config |= {"source_language": source, "target_language": target}
        (paths[name] / "config.json").write_text(json.dumps(config))
    service = Service({**paths, "classifier": zoo["classifier"]}, pivot="en")
    assert service.route("en", "de") == ("ende",)
    assert service.route("en-US", "de") == ("ende",)
    assert service.route("fr", "de") == ("fren", "ende")
    with pytest.raises(UnknownModel, match="from de to fr"):
        service.route("de", "fr")
    with pytest.raises(UnknownModel):
        Service(paths).route("fr", "de")


def test_a_model_is_opened_once_for_all_who_wait_and_again_after_it_was_closed(zoo):
    service = service_of(zoo, "translate")

    async def run():
        loads = [service.load("translate") for _ in range(3)]
        calls = [all_of(service.submit("translate", "translate", ["a"])) for _ in range(5)]
        await asyncio.gather(*loads, *calls)
        assert service.stats.loads_total == 1
        (info,) = service.info()
        assert info.state == "loaded"
        assert len(info.hash) == 32
        await service.unload("translate")
        await service.unload("translate")  # it is already closed
        assert service.info()[0].state == "unloaded"
        (translation,) = await all_of(service.submit("translate", "translate", ["b"]))
        assert translation.text == next(load_model(zoo["translate"]).translate(["b"])).text
        assert service.stats.loads_total == 2
        await service.drain(1.0)
        with pytest.raises(UnknownModel):
            await service.load("other")

    asyncio.run(run())


def test_a_model_that_vanished_fails_and_works_once_it_is_back(zoo, tmp_path):
    path = shutil.copytree(zoo["translate"], tmp_path / "model")
    service = Service({"m": path})
    path.rename(tmp_path / "away")

    async def run():
        for _ in range(2):
            with pytest.raises(ArtifactError):
                await all_of(service.submit("m", "translate", ["a"]))
        with pytest.raises(ArtifactError):
            await service.load("m")
        assert service.info()[0].state == "failed"
        assert not service.ready()
        (tmp_path / "away").rename(path)
        await service.load("m")
        assert len(await all_of(service.submit("m", "translate", ["a"]))) == 1
        assert service.ready()
        await service.drain(1.0)

    asyncio.run(run())


@pytest.fixture
def copied_model(zoo, tmp_path, monkeypatch):
    """A model directory to change, and a function that renames files of another into place."""
    monkeypatch.setattr(watching, "REST_SECONDS", 0.01)
    path = shutil.copytree(zoo["translate"], tmp_path / "m")

    def replace(name, *files):
        for file in files or ("config.json", "tokenizer.json", "model.safetensors"):
            Path(shutil.copy(zoo[name] / file, tmp_path / "new")).replace(path / file)

    return path, replace


def test_a_request_that_was_begun_is_not_ended_by_another_model(zoo, copied_model, gate):
    path, replace = copied_model
    service = Service({"m": path})

    async def run():
        begun = asyncio.create_task(all_of(service.submit("m", "translate", make_lines(100))))
        await until(lambda: gate.batches)
        replace("twin")
        fresh = asyncio.create_task(all_of(service.submit("m", "translate", ["house"])))
        await until(lambda: service._models["m"].engine.scheduler.n_requests == 2)
        gate.open()
        with pytest.raises(ArtifactError, match="is changed while it is served"):
            await begun
        translations = await fresh
        await service.drain(1.0)
        return translations

    assert asyncio.run(run()) == list(load_model(zoo["twin"]).translate(["house"]))


@pytest.mark.parametrize("names", ["m", ("m", "other"), ("other", "m")])
@pytest.mark.parametrize("is_other", [True, False])
def test_an_answer_in_parts_is_of_one_model(zoo, copied_model, names, is_other):
    path, replace = copied_model
    service = Service({"m": path, "other": zoo["translate"]})

    async def run():
        versions = {}
        ask = partial(service.submit, names, "translate", versions=versions)
        first = await all_of(ask(["house"]))
        replace("twin" if is_other else "translate")
        service.aligner("m", versions)
        if is_other:
            with pytest.raises(UnusableModel, match="is changed while it is served"):
                await all_of(ask(["house"], is_admitted=True))
            with pytest.raises(UnusableModel):
                service.aligner("m", versions)
            assert len(await all_of(service.submit(names, "translate", ["house"]))) == 1
        else:
            assert await all_of(ask(["house"], is_admitted=True)) == first
        await service.drain(1.0)

    asyncio.run(run())


def test_the_same_files_renamed_again_end_no_request(zoo, copied_model, gate):
    path, replace = copied_model
    service = Service({"m": path})

    async def run():
        begun = asyncio.create_task(all_of(service.submit("m", "translate", make_lines(100))))
        await until(lambda: gate.batches)
        replace("translate")
        gate.open()
        translations = await begun
        assert service.stats.loads_total == 2
        await service.drain(1.0)
        return translations

    assert asyncio.run(run()) == list(load_model(zoo["translate"]).translate(make_lines(100)))


def test_damaged_files_are_read_once_and_again_when_they_change(copied_model, monkeypatch):
    path, replace = copied_model
    service, n_read = Service({"m": path}), []
    opened = service._open_model
    monkeypatch.setattr(service, "_open_model", lambda model: n_read.append(1) or opened(model))
    monkeypatch.setattr(models, "HOPELESS_SECONDS", 0.0)
    monkeypatch.setattr(engine, "LOOK_SECONDS", 0.01)

    async def refusals():
        errors = []
        for _ in range(3):
            with pytest.raises(UnusableModel) as error:
                await all_of(service.submit("m", "translate", ["a"]))
            errors.append(error.value)
        return errors

    async def run():
        await all_of(service.submit("m", "translate", ["a"]))
        assert service.hopeless() is None
        (path / "model.safetensors").write_bytes(b"")
        first, *later = await refusals()
        assert first.public == "m: its files are being changed; try again in a moment"
        for error in later:
            assert error.public.startswith("m/model.safetensors: is damaged")
            assert str(error).startswith(str(path))
        assert [first.is_known, *(error.is_known for error in later)] == [False, False, True]
        assert len(n_read) == 2
        assert service.hopeless() is not None
        # Also without a request: while /ready fails, none may come
        replace("twin", "model.safetensors")
        await until(service.ready)
        assert service.hopeless() is None
        assert len(await all_of(service.submit("m", "translate", ["a"]))) == 1
        await service.drain(1.0)

    asyncio.run(run())


@pytest.mark.parametrize("other", ["classifier", "many"])
def test_a_model_of_another_kind_is_not_put_in_its_place(zoo, copied_model, other):
    path, replace = copied_model
    service = Service({"m": path})

    async def run():
        await all_of(service.submit("m", "translate", ["a"]))
        if other == "classifier":
            replace("classifier")
        else:
            config = json.loads((path / "config.json").read_text())
            text = json.dumps({**config, "target_language": "de"})
            (path / "new").write_text(text)
            (path / "new").replace(path / "config.json")
        with pytest.raises(UnusableModel, match="another kind or language"):
            await all_of(service.submit("m", "translate", ["b"]))
        await service.drain(1.0)

    asyncio.run(run())


def test_memory_is_bounded_by_closing_what_was_used_longest_ago(zoo, monkeypatch):
    from tformer_cli.plugins.serve import models, served_model

    sizes = iter([100, 110, 200, 210, 300, 310, 400, 410])  # each takes 10
    monkeypatch.setattr(models, "private_bytes", lambda: next(sizes))
    monkeypatch.setattr(served_model, "MEMORY_OF_FILE", 0)
    service = service_of(zoo, "translate", "twin", "int8", memory=20)

    async def run():
        for name in ("translate", "twin", "translate", "int8"):
            await all_of(service.submit(name, "translate", ["a"]))
        states = {info.name: info.state for info in service.info()}
        assert states == {"translate": "loaded", "twin": "unloaded", "int8": "loaded"}
        await all_of(service.submit("twin", "translate", ["a"]))
        states = {info.name: info.state for info in service.info()}
        assert states == {"translate": "unloaded", "twin": "loaded", "int8": "loaded"}
        await service.drain(1.0)

    asyncio.run(run())
    small = service_of(zoo, "translate", memory=5)
    monkeypatch.setattr(models, "private_bytes", iter([100, 1 << 30]).__next__)
    with pytest.raises(ArtifactError, match="--memory"):
        serve(small, ("translate", "translate", ["a"]))


def test_preloading_stops_where_the_memory_ends(zoo, monkeypatch):
    from tformer_cli.plugins.serve import models, served_model

    sizes = iter([100, 110, 200, 210])
    monkeypatch.setattr(models, "private_bytes", lambda: next(sizes))
    monkeypatch.setattr(served_model, "MEMORY_OF_FILE", 0)
    service = service_of(zoo, "translate", "twin", "int8", memory=20)
    for model in service._models.values():
        model.engine.bytes = 10  # as known from before
    service.preload()
    assert [info.state for info in service.info()] == ["loaded", "loaded", "unloaded"]


def test_results_of_a_client_that_reads_slowly_do_not_pile_up(zoo):
    service = service_of(zoo, "translate")
    lines = make_lines(OPEN_LINES * 4)

    async def run():
        answers = service.submit("translate", "translate", lines)
        translations = [await anext(answers)]
        await asyncio.sleep(0.3)
        assert len(answers._results) <= OPEN_LINES + 32
        translations += [translation async for translation in answers]
        await service.drain(1.0)
        return translations

    assert [translation.source for translation in asyncio.run(run())] == lines


def test_what_was_computed_is_not_computed_again(zoo, gate):
    service = service_of(zoo, "translate")
    gate.open()

    async def run():
        first = await all_of(service.submit("translate", "translate", ENGLISH[:2]))
        n_batches = len(gate.batches)
        again = service.submit("translate", "translate", [*ENGLISH[:2], ""])
        results = [(result, again.is_cached) async for result in again]
        assert len(gate.batches) == n_batches
        await all_of(
            service.submit("translate", "translate", ENGLISH[:2], settings={"beam_size": 1})
        )
        assert len(gate.batches) > n_batches
        await service.drain(1.0)
        return first, results

    first, results = asyncio.run(run())
    assert [result for result, _ in results[:2]] == first
    # Nothing is computed for a blank line
    assert [cached for _, cached in results] == [True, True, False]
    assert service.stats.cache_hits_total == 2


def test_a_cache_forgets_what_was_used_longest_ago():
    cache = ResultCache(5000)
    for key in range(9):
        cache.put(key, "x" * 100)
        cache.get(0)
    assert cache.get(0) == "x" * 100
    assert cache.get(1) is MISSING
    assert cache.n_bytes <= 5000
    cache.put("large", "x" * 4000)  # it would push out all others
    assert cache.get("large") is MISSING
    cache.put(0, "y")
    assert cache.get(0) == "y"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_service_imports_no_torch_and_children_share_what_was_opened(zoo):
    program = """
import asyncio, os, sys
from pathlib import Path
from tformer_cli.plugins.serve.cache import private_bytes
from tformer_cli.plugins.serve.models import Service
service = Service({"m": Path(sys.argv[1]), "n": Path(sys.argv[2])})
service.preload()
assert [one.state for one in service.info()] == ["loaded", "loaded"]

async def translate():
    found = [one async for one in service.submit("m", "translate", ["A man sleeps."])]
    await service.drain(5)
    return found[0].text

children = []
for _ in range(2):
    read, write = os.pipe()
    if not os.fork():
        os.write(write, asyncio.run(translate()).encode())
        os._exit("torch" in sys.modules)
    children.append(read)
for read in children:
    sys.stdout.write(os.read(read, 10000).decode() + "\\n")
    assert os.wait()[1] == 0
sys.stdout.write(asyncio.run(translate()) + "\\n")
assert "torch" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program, zoo["translate"], zoo["int8"]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    text = next(load_model(zoo["translate"]).translate(["A man sleeps."])).text
    assert done.stdout == f"{text}\n" * 3


@pytest.mark.skipif(private_bytes() is None, reason="the system does not say")
def test_private_memory_is_what_only_this_process_has():
    program = """
from tformer_cli.plugins.serve.cache import private_bytes
before = private_bytes()
kept = b"x" * (64 << 20)
print(private_bytes() - before >> 20, len(kept))
"""
    # In a separate process, as it could reuse memory freed by other tests
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert 60 <= int(done.stdout.split()[0]) <= 70


def test_who_asks_for_a_model_to_stay_ends_the_wait_of_who_asked_it_to_leave(zoo, gate):
    service = service_of(zoo, "translate")

    async def run():
        waiting = asyncio.create_task(
            all_of(service.submit("translate", "translate", make_lines(40)))
        )
        await until(lambda: gate.batches)
        leaving = asyncio.create_task(service.unload("translate"))
        await until(lambda: service._models["translate"].engine._leaves_at is not None)
        await service.load("translate")
        await asyncio.wait_for(leaving, 60)
        gate.open()
        await waiting
        assert {info.state for info in service.info()} == {"loaded"}

    asyncio.run(run())


def test_a_document_that_goes_through_a_pivot_takes_as_long_as_it_takes(zoo, gate):
    service = Service({"a": zoo["translate"], "b": zoo["twin"]})
    lines = make_lines(RELAYED_LINES + 8)

    async def run():
        deadline = time.monotonic() + 60
        job = service.submit(("a", "b"), "translate", lines, deadline=deadline)
        task = asyncio.create_task(all_of(job))
        await until(lambda: gate.batches)
        pass_time(service, 70)
        gate.open()
        return await task

    assert [translation.source for translation in asyncio.run(run())] == lines
