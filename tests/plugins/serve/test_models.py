"""The models of a service: ordered and exact answers, caching, unloading."""

import asyncio
import random

import pytest

from tests.zoo import ENGLISH
from tformer_cli.api.model import load_model
from tformer_cli.errors import DataError, UsageError
from tformer_cli.plugins.serve.models import Service
from tformer_cli.search.constraints import LineConstraints
from tformer_cli.text.tokenizer import read_tokenizer

LINES = [*ENGLISH, "", "dog " * 60, "  ", "Two dogs run. A man sleeps."]


async def all_of(answers):
    return [result async for result in answers]


def serve(service, *calls):
    """Runs calls at once, each (name, verb, texts, keyword arguments); returns their results."""

    async def run():
        answers = await asyncio.gather(
            *(all_of(service.submit(*call[:3], **(call[3] if call[3:] else {}))) for call in calls)
        )
        await service.drain(5.0)
        return answers

    return asyncio.run(run())


@pytest.mark.parametrize("name", ["translate", "int8", "opus", "variant"])
def test_translations_are_those_of_a_call_of_its_own(zoo, name):
    service = Service({name: zoo[name]})
    (translations,) = serve(service, (name, "translate", LINES))
    assert translations == list(load_model(zoo[name]).translate(LINES))


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
@pytest.mark.parametrize("name", ["translate", "int8"])
def test_any_number_of_clients_get_what_each_would_get_alone(zoo, name, cache_bytes):
    dice = random.Random(5)
    model = load_model(zoo[name])
    settings = [{}, {"beam_size": 1}, {"n_best": 2, "length_penalty": 1.0}]
    calls = []
    for _ in range(64):
        lines = dice.choices(LINES, k=dice.choice([1, 1, 2, 7]))
        search = dice.choice(settings)
        calls.append((name, "translate", lines, {"settings": search}))
    service = Service({name: zoo[name]}, cache_bytes=cache_bytes)

    async def client(call):
        await asyncio.sleep(dice.random() / 10)
        return await all_of(service.submit(*call[:3], **call[3]))

    async def run():
        results = await asyncio.gather(*map(client, calls))
        await service.drain(5.0)
        return results

    results = asyncio.run(run())
    for (_, _, lines, options), answers in zip(calls, results, strict=True):
        assert answers == list(model.translate(lines, **options["settings"]))
    assert (service.stats.cache_hits_total > 0) == bool(cache_bytes)
    assert service.stats.batch_sentences.total < len(LINES) * 3 + 64 * 4


def test_constraints_are_those_of_the_command(zoo):
    wishes = [
        LineConstraints(target_prefix="La"),
        LineConstraints(required=("un chien",), banned=("chat",)),
        LineConstraints(),
        LineConstraints(banned=("e", "a")),
        LineConstraints(required=("chien", "un chat")),
    ]
    lines = [*ENGLISH[:4], "Two dogs run. A man sleeps."]
    translator = load_model(zoo["translate"]).opened.translator
    service = Service({"m": zoo["translate"]})
    free, constrained = serve(
        service, ("m", "translate", lines), ("m", "translate", lines, {"constraints": wishes})
    )
    assert constrained == translator.translate(lines, demands=wishes)
    assert free == translator.translate(lines)


@pytest.mark.parametrize(
    ("name", "verb", "settings"),
    [
        ("classifier", "classify", {}),
        ("tagger", "tag", {}),
        ("masked", "fill", {"top": 2}),
        ("gpt", "generate", {"stops": ["e"]}),
        ("language_model", "generate", {"max_length": 4, "n_best": 2}),
    ],
)
def test_every_verb_gives_what_its_method_gives(zoo, name, verb, settings):
    lines = ["The <mask> house.", "A man sleeps.", "dog " * 60]
    service = Service({"m": zoo[name]})
    batched = serve(service, *(("m", verb, [line], {"settings": settings}) for line in lines))
    alone = [list(getattr(load_model(zoo[name]), verb)([line], **settings)) for line in lines]
    assert batched == alone


def test_vectors_of_texts_and_pictures(zoo):
    from tformer_cli.text.images.named import name_of_image

    service = Service({"s": zoo["sentences"], "i": zoo["images"]})
    picture = zoo.inputs / "photos" / "ant" / "0.png"
    import numpy as np

    array = np.arange(64, dtype=np.uint8).reshape(8, 8)
    inline = name_of_image(array, "image")
    texts, pictures, labels = serve(
        service,
        ("s", "embed", ENGLISH, {"settings": {"unit_length": False}}),
        ("i", "embed", [inline]),
        ("i", "classify", [inline]),
    )
    alone = load_model(zoo["sentences"]).embed(ENGLISH, unit_length=False)
    for embedding, expected in zip(texts, alone, strict=True):
        assert embedding.index == expected.index
        assert embedding.vector.tobytes() == expected.vector.tobytes()
    (other,) = load_model(zoo["images"]).embed([array])
    assert pictures[0].vector.tobytes() == other.vector.tobytes()
    assert labels == list(load_model(zoo["images"]).classify([array]))
    side = read_tokenizer(zoo["sentences"]).source
    assert [item.n_tokens for item in texts] == [len(side.encode(line)) for line in ENGLISH]
    # For the command, a name is a local file; here it is not
    with pytest.raises(DataError, match="data:image"):
        serve(Service({"i": zoo["images"]}), ("i", "classify", [str(picture)]))


def test_a_pivot_that_no_model_knows_is_refused(zoo):
    with pytest.raises(UsageError, match="--pivot: no model translates from or into xx; name one"):
        Service({"m": zoo["translate"]}, pivot="xx")


def test_samples_depend_on_seed_and_place_alone(zoo):
    settings = {"sampling": True, "seed": 7, "max_length": 6}
    lines = [ENGLISH[0]] * 5
    service = Service({"m": zoo["language_model"]})
    together, alone, other = serve(
        service,
        ("m", "generate", lines, {"settings": settings}),
        ("m", "generate", lines[:1], {"settings": settings}),
        ("m", "generate", lines, {"settings": {**settings, "seed": 8}}),
    )
    model = load_model(zoo["language_model"], seed=7)
    assert together == list(model.generate(lines, sampling=True, max_length=6))
    assert together[0] == alone[0]
    assert len({generation.texts[0].text for generation in together}) > 1
    assert together != other


def test_translations_are_sampled_as_by_a_call(zoo):
    settings = {"sampling": True, "temperature": 0.7, "top_k": 9, "top_p": 0.9, "n_best": 2}
    lines = [ENGLISH[0]] * 3
    service = Service({"m": zoo["translate"]})
    together, alone, other = serve(
        service,
        ("m", "translate", lines, {"settings": {**settings, "seed": 7}}),
        ("m", "translate", lines[:1], {"settings": {**settings, "seed": 7}}),
        ("m", "translate", lines, {"settings": {**settings, "seed": 8}}),
    )
    assert together == list(load_model(zoo["translate"], seed=7).translate(lines, **settings))
    assert together[0] == alone[0]
    assert len({translation.text for translation in together}) > 1
    assert together != other


def test_what_only_torch_knows_is_refused(zoo):
    call = ("m", "translate", ENGLISH[:2], {"settings": {"repetition_penalty": 2.0}})
    with pytest.raises(UsageError, match="repetition_penalty"):
        serve(Service({"m": zoo["translate"]}), call)


@pytest.mark.parametrize("name", ["gpt", "language_model"])
def test_a_text_is_told_of_while_it_is_written(zoo, name):
    service = Service({"m": zoo[name]})
    settings = {"stops": ["zz"], "seed": 3}
    (*parts, streamed), (plain,) = serve(
        service,
        ("m", "generate", ["The old"], {"settings": settings, "is_streamed": True}),
        ("m", "generate", ["The old"], {"settings": settings}),
    )
    assert streamed == plain
    assert "".join(parts) == streamed.texts[0].text
    assert len(parts) > 1
    (whole,) = serve(
        Service({"m": zoo[name]}),
        ("m", "generate", ["a"], {"settings": {"beam_size": 2}, "is_streamed": True}),
    )
    (generation,) = whole  # the best text of a beam may change until its end
    assert generation.texts
