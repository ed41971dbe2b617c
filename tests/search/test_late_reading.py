"""A host that reads a device's choices some steps late keeps the same hypotheses."""

import pytest
import torch

from tests.search.conftest import batch_of
from tformer_cli.search import beam_search, sampling
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import PromptedModel, Sentence
from tformer_cli.search.fetch import steps_late
from tformer_cli.search.models import ShortlistedModel
from tformer_cli.search.torch_search import search

SOURCES = ((4, 5, 6), (9,), (30, 31, 7, 8, 20, 11), (12, 13), (40, 5), (22, 9, 9, 9))


@pytest.mark.parametrize("lag", [1, 2])
@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 1, "min_length": 3, "max_length": 4},
        {"beam_size": 4, "n_best": 2},
        {"beam_size": 4, "max_length": 3},
        {"beam_size": 3, "max_length_ratio": 1.5, "no_repeat_ngram": 2},
        {"beam_size": 4, "coverage_penalty": 0.2, "length_penalty": 1.0},
        {"beam_size": 4, "diversity_groups": 2, "diversity_penalty": 0.5, "n_best": 2},
        {"sampling": True, "beam_size": 1, "n_best": 3, "top_k": 8},
        {"sampling": True, "beam_size": 1, "min_length": 4, "max_length": 9},
    ],
)
def test_hypotheses_are_those_of_a_host_that_waits(random_model, monkeypatch, settings, lag):
    config = DecodingConfig(**settings)
    sentences = [Sentence(tokens=source, key=key) for key, source in enumerate(SOURCES)]

    def hypotheses(steps_late):
        for module in (beam_search, sampling):
            monkeypatch.setattr(module, "steps_late", lambda *_: steps_late)
        return search(random_model, sentences, *batch_of(*map(list, SOURCES)), config)

    waited = hypotheses(0)
    assert {len(h.token_ids) for listed in waited for h in listed} != {0}
    assert hypotheses(lag) == waited


@pytest.mark.parametrize(("listener", "late"), [(None, 1), (print, 0)])
def test_nobody_who_watches_sees_a_step_too_many(random_model, listener, late):
    watched = PromptedModel(random_model, listener)
    for model in (watched, ShortlistedModel(watched, [()])):
        assert steps_late(model, torch.device("cuda")) == late
    assert steps_late(random_model, torch.device("cpu")) == 0
