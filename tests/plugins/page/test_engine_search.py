"""The page's engine searches as tformer does: the same hypotheses, scores and trees."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.commands import lines_of, output_of
from tests.foreign.own import LANGUAGE_MODEL, TRANSLATION
from tformer_cli.artifacts.model_directory import read_model_directory
from tformer_cli.inspect.capture.live import RecordingModel, n_candidates
from tformer_cli.model.config import ModelConfig
from tformer_cli.plugins.page.export import stored_weights
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import PromptedModel, Sentence
from tformer_cli.search.generator import ANY_RATIO, DEFAULT_LENGTH
from tformer_cli.search.torch_engine import TorchEngine

SHAPE = {**TRANSLATION, "n_encoder_layers": 1, "n_decoder_layers": 2, "max_positions": 30}
SOURCES = [[5, 6, 7, 8, 11, 4], [9, 9], [4, 10, 11, 5, 7, 6, 8, 8, 9, 4, 5]]
SETTINGS = [
    {"beam_size": 1},
    {"beam_size": 4},
    {"beam_size": 5, "n_best": 5, "length_penalty": 2.0},
    {"beam_size": 12, "n_best": 3, "length_penalty": 0.0, "max_length": 3},
    {"beam_size": 3, "length_normalization": "average", "max_length_ratio": 0.1},
    {"beam_size": 4, "min_length": 4, "min_length_ratio": 1.1, "n_best": 2},
    {"beam_size": 4, "no_repeat_ngram": 2, "n_best": 2},
    {"beam_size": 1, "no_repeat_ngram": 1},
    {"beam_size": 4, "repetition_penalty": 1.7, "n_best": 4},
]
PREFIX = (7, 7, 9)
RUN = os.environ.get("TFORMER_QUICKSTART_RUN", "")


def name_of(settings):
    return ",".join(f"{name}={value}" for name, value in settings.items())


def search_by_torch(model, sources, config, **demands):
    """What tformer finds for each source."""
    engine = TorchEngine(torch.device("cpu"), "float32")
    prepared = engine.prepare(model)
    sentences = [Sentence(tokens=tuple(source), **demands) for source in sources]
    return prepared.search(sentences, config, lambda: None)


def assert_same_hypotheses(results, wanted):
    assert [row["ids"] for row in results] == [[*row.token_ids] for row in wanted]
    for ours, theirs in zip(results, wanted, strict=True):
        assert ours["isFinished"] == theirs.is_finished
        assert abs(ours["score"] - theirs.score) < 1e-4
        assert abs(ours["logProbability"] - theirs.log_probability) < 1e-4
        steps = np.subtract(ours["tokenLogProbabilities"], theirs.token_log_probabilities)
        assert np.abs(steps).max() < 1e-4


def assert_same_tree(results, wanted):
    assert (results["beamSize"], results["lengthPenalty"]) == (
        wanted.beam_size,
        wanted.length_penalty,
    )
    assert results["path"] == [*wanted.path]
    assert len(results["nodes"]) == len(wanted.nodes)
    for ours, theirs in zip(results["nodes"], map(asdict, wanted.nodes), strict=True):
        for name in ("parent", "step", "token", "state"):
            assert ours[name] == theirs[name]
        assert abs(ours["logp"] - theirs["log_probability"]) < 1e-4
        assert (ours["score"] is None) == (theirs["score"] is None)
        assert abs((ours["score"] or 0) - (theirs["score"] or 0)) < 1e-4


@pytest.mark.parametrize("settings", SETTINGS, ids=name_of)
def test_translations_are_those_of_the_search(engine, settings):
    model = engine.model(ModelConfig(**SHAPE))
    config = DecodingConfig(**{"n_best": 1, **settings})
    recorder = RecordingModel(model, n_candidates(config))
    wanted = search_by_torch(recorder, SOURCES, config)
    (found,) = engine.run(engine.job(model, "search", sources=SOURCES, settings=asdict(config)))
    for source, ours, theirs in zip(SOURCES, found, wanted, strict=True):
        assert_same_hypotheses(ours["hypotheses"], theirs)
        tree = recorder.tree_of(source, theirs[0].token_ids, config)
        assert (ours["tree"] is None) == (tree is None)
        if tree is not None:
            assert_same_tree(ours["tree"], tree)
        maps = recorder.maps_of(source, theirs[-1].token_ids)
        for kind, layers in ours["hypotheses"][-1]["maps"].items():
            for layer, weights in enumerate(layers):
                difference = np.array(weights) - getattr(maps, kind)[layer].ravel()
                assert np.abs(difference).max() < 1e-5


@pytest.mark.parametrize("n_start", [0, 1])
def test_a_prefix_is_read_and_the_search_goes_on_behind_it(engine, n_start):
    model = engine.model(ModelConfig(**SHAPE))
    config = DecodingConfig(beam_size=4, n_best=4, max_length=4)
    wanted = search_by_torch(model, SOURCES, config, prefix=PREFIX, n_start=n_start)
    options = {"prefix": PREFIX, "nStart": n_start}
    asked = {"sources": SOURCES, "settings": asdict(config), "options": options}
    (found,) = engine.run(engine.job(model, "search", **asked))
    for ours, theirs in zip(found, wanted, strict=True):
        assert_same_hypotheses(ours["hypotheses"], theirs)
        first = ours["tree"]["nodes"][0]
        assert (first["step"], first["token"]) == (len(PREFIX), PREFIX[-1])
        steps = theirs[0].token_log_probabilities[: len(PREFIX)]
        assert abs(first["logp"] - sum(steps)) < 1e-4


@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1, "max_length": 9},
        {"beam_size": 4, "n_best": 2, "max_length": 40, "length_penalty": 1.0},
        {"beam_size": 3, "max_length": 8, "min_length": 6, "no_repeat_ngram": 2},
    ],
    ids=name_of,
)
def test_prompts_are_continued_as_by_the_search(engine, settings):
    shape = {**LANGUAGE_MODEL, "max_positions": 30}
    model = engine.model(ModelConfig(**shape))
    config = DecodingConfig(**settings)
    prompts = [[2, *source] for source in SOURCES]
    wanted = search_by_torch(
        PromptedModel(model), prompts, replace(config, max_length_ratio=ANY_RATIO)
    )
    (found,) = engine.run(engine.job(model, "search", sources=prompts, settings=asdict(config)))
    for prompt, ours, theirs in zip(prompts, found, wanted, strict=True):
        assert_same_hypotheses(ours["hypotheses"], theirs)
        best = ours["hypotheses"][0]
        n_positions = len(prompt) + len(best["ids"])
        assert [len(layer) for layer in best["maps"]["dec"]] == [4 * n_positions**2] * 2


def test_a_prompt_is_followed_by_the_number_of_tokens_that_generate_writes(engine):
    """`generator.DEFAULT_LENGTH`, or the least number of tokens where that is more."""
    model = engine.model(ModelConfig(**{**LANGUAGE_MODEL, "max_positions": 300}))
    config = {"beam_size": 1, "min_length": 205}
    (found,) = engine.run(engine.job(model, "search", sources=[[2, 5]], settings=config))
    assert len(found[0]["hypotheses"][0]["ids"]) == max(DEFAULT_LENGTH, 205)
    (found,) = engine.run(engine.job(model, "search", sources=[[2] * 300], settings=config))
    assert found == {"error": "a prompt may have at most 299 tokens, but has 300"}


def test_given_targets_and_next_words_have_the_models_numbers(engine):
    model = engine.model(ModelConfig(**SHAPE))
    source, target = [*SOURCES[0], 3], [2, *PREFIX]
    forced, following = engine.run(
        engine.job(model, "force", source=source, ids=target, top=5),
        engine.job(model, "next", ids=SOURCES[0], prefix=PREFIX, k=3),
    )
    tokens = torch.tensor([source])
    with torch.inference_mode():
        logits = model(tokens, tokens > 0, torch.tensor([target]))[0].double()
    steps = logits.log_softmax(dim=1)
    wanted = steps.gather(1, torch.tensor([[*PREFIX, 3]]).T).squeeze(1)
    assert np.abs(wanted.numpy() - forced["logProbabilities"]).max() < 1e-5
    values, ids = logits.topk(5)
    for position, numbers, places, row in zip(
        forced["positions"], values.tolist(), ids.tolist(), logits, strict=True
    ):
        assert [token for token, _ in position["top"]] == places
        assert [logit for _, logit in position["top"]] == pytest.approx(numbers, abs=1e-5)
        others = [row[token] for token in range(len(row)) if token not in places]
        assert position["rest"] == pytest.approx(torch.stack(others).logsumexp(0).item(), abs=1e-5)
    last, best = steps[-1, 3:], steps[-1, 3:].topk(3)
    assert [word["id"] for word in following] == [token + 3 for token in best.indices.tolist()]
    found = [word["logProbability"] for word in following]
    assert found == pytest.approx(last[best.indices].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"sampling": True}, "sampling: the page does not search with the value true"),
        ({"risk": "bleu"}, 'risk: the page does not search with the value "bleu"'),
        ({"made_up": 0}, "made_up: the page does not search with the value 0"),
    ],
)
def test_settings_that_it_does_not_know_are_refused_by_name(engine, settings, reason):
    model = engine.model(ModelConfig(**SHAPE))
    (found,) = engine.run(engine.job(model, "search", sources=SOURCES, settings=settings))
    assert found == {"error": reason}


def test_texts_beyond_the_models_positions_are_refused(engine):
    model = engine.model(ModelConfig(**SHAPE))
    (found,) = engine.run(engine.job(model, "search", sources=[[5] * 30], settings={}))
    assert found == {"error": "a text may have at most 30 tokens, but has 31"}


def test_every_setting_of_the_search_is_searched_with_or_refused(engine):
    """A setting that tformer gets is refused by its name, which fails here until it is known."""
    model = engine.model(ModelConfig(**SHAPE))
    config = asdict(DecodingConfig())
    (found,) = engine.run(engine.job(model, "search", sources=SOURCES, settings=config))
    assert "error" not in found


@pytest.mark.slow
@pytest.mark.skipif(not RUN, reason="TFORMER_QUICKSTART_RUN names no run")
@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("precision", ["int10", "float32"])
def test_a_thousand_lines_are_those_of_translate(engine, tmp_path, beam_size, precision):
    """The quickstart's model on sentences that it has not learned, of another seed."""
    output_of("make-corpus", tmp_path, "--pairs", 20_000, "--seed", 7, "-q")
    texts = tmp_path / "test.en"
    directory, weights = read_model_directory(Path(RUN))
    tokenizer = directory.tokenizer
    sources = tokenizer.source.encode_phrases(texts.read_text("utf-8").splitlines())
    config = json.loads(Path(RUN, "config.json").read_text("utf-8"))
    (found,) = engine.run(
        {
            "job": "translate",
            "config": config["model"],
            "weights": engine.write(stored_weights(weights, precision)),
            "sources": sources,
            "settings": {**config["decoding"], "beam_size": beam_size},
        }
    )
    wanted = lines_of("translate", RUN, "-i", texts, "--beam-size", beam_size, "-q")
    translations = tokenizer.target.decode_batch(found)
    n_same = sum(ours == theirs for ours, theirs in zip(translations, wanted, strict=True))
    assert len(wanted) == 1000
    assert n_same >= 999
