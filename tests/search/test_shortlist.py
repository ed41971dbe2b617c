"""What a shortlist allows, and torch's searches with one against the plain formula."""

import numpy as np
import pytest
import torch

from tests.fast.native.test_search import make_model, make_sources
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import Sentence, Shortlist
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID


def make_shortlist(n_sources=40, n_targets=40, first=6):
    dice = np.random.default_rng(1)
    lists = [np.sort(dice.permutation(n_targets)[: dice.integers(0, 5)]) for _ in range(n_sources)]
    offsets = np.cumsum([0, *map(len, lists)])
    return Shortlist(first, offsets, np.concatenate(lists).astype(np.int32))


def with_candidates(sources, shortlist):
    return [
        Sentence(tokens=tuple(one), candidates=shortlist.candidates([*one, EOS_ID]))
        for one in sources
    ]


def test_candidates_are_the_first_ids_and_the_lists_of_all_source_tokens_and_their_end():
    shortlist = Shortlist(5, np.array([0, 0, 0, 0, 1, 3, 3, 5]), np.array([30, 9, 7, 7, 20]))
    assert shortlist.candidates([4, 6, 4]) == (0, 1, 2, 3, 4, 7, 9, 20, 30)
    assert shortlist.candidates([5, 99], [31]) == (0, 1, 2, 3, 4, 30, 31)
    assert shortlist.candidates([3]) == (0, 1, 2, 3, 4, 30)
    assert Shortlist(0, np.array([0]), np.array([], np.int32)).candidates([7]) == (0, 1, 2, 3)


@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 4, "n_best": 3},
        {"beam_size": 4, "n_best": 2, "diversity_groups": 2},
        {"sampling": True, "n_best": 3},
        {"beam_size": 3, "no_repeat_ngram": 2},
        {"beam_size": 3, "coverage_penalty": 0.2},
    ],
    ids=repr,
)
def test_translations_are_of_the_candidates_and_probabilities_among_them(settings):
    model = make_model()
    sentences = with_candidates(make_sources(6), make_shortlist())
    config = DecodingConfig(max_length_ratio=0.3, **settings)
    search = TorchEngine(torch.device("cpu")).prepare(model)
    found = search.search(sentences, config, lambda: None)
    assert search.search(sentences[::-1], config, lambda: None) == found[::-1]
    for sentence, hypotheses in zip(sentences, found, strict=True):
        source = torch.tensor([[*sentence.tokens, EOS_ID]])
        assert hypotheses
        for one in hypotheses:
            assert set(one.token_ids) <= set(sentence.candidates)
            target = torch.tensor([[BOS_ID, *one.token_ids]])
            logits = model(source, torch.ones_like(source, dtype=torch.bool), target)[0]
            steps = logits[:, list(sentence.candidates)].log_softmax(dim=1)
            places = [sentence.candidates.index(token) for token in (*one.token_ids, EOS_ID)]
            expected = [step[place].item() for step, place in zip(steps, places, strict=True)]
            assert one.token_log_probabilities == pytest.approx(expected, abs=1e-4)


def test_all_tokens_as_candidates_change_nothing():
    search = TorchEngine(torch.device("cpu")).prepare(make_model())
    sources = make_sources(4)
    everything = [Sentence(tokens=tuple(one), candidates=tuple(range(40))) for one in sources]
    for beam_size in (1, 3):
        config = DecodingConfig(beam_size=beam_size, max_length_ratio=0.3)
        plain = [Sentence(tokens=tuple(one)) for one in sources]
        assert search.search(everything, config, print) == search.search(plain, config, print)
