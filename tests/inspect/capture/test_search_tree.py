"""The tree of a search against what the search itself found."""

from dataclasses import replace

import pytest

from tests.inspect.conftest import made_model
from tformer_cli.inspect.capture.live import NotSearchedError, RecordingModel
from tformer_cli.inspect.capture.search_tree import N_DROPPED, n_candidates
from tformer_cli.search.beam_search import beam_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import Sentence
from tformer_cli.search.sampling import greedy_search
from tformer_cli.search.source_batches import source_batch
from tformer_cli.search.torch_search import search
from tformer_cli.text.tokenizer import EOS_ID

SOURCES = [(5, 9, 7), (11, 6, 8, 12, 13, 4), (9,), (20, 21, 9, 5, 5, 6, 7, 8, 9, 10, 22, 23, 24)]
CONFIG = DecodingConfig(beam_size=4, n_best=4, max_length=12, length_penalty=0.6)


@pytest.fixture(scope="module")
def model(one_thread):
    return made_model(vocab_size=30, sharpness=1.0, noise=0.0, n_encoder_layers=1, max_positions=40)


def recorded_search(model, config, sources=SOURCES):
    recording = RecordingModel(model, n_candidates(config))
    batch = source_batch(sources, model.config.max_positions, "cpu")
    return recording, beam_search(recording, *batch, config)


def tokens_of(tree, number):
    tokens = []
    while (parent := tree.nodes[number].parent) is not None:
        tokens.append(tree.nodes[number].token)
        number = parent
    return tuple(reversed(tokens))


@pytest.mark.parametrize("beam_size", [2, 4, 8])
def test_a_tree_finishes_what_the_search_found(model, beam_size):
    config = replace(CONFIG, beam_size=beam_size, n_best=beam_size)
    recording, found = recorded_search(model, config)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        tree = recording.tree_of(source, hypotheses[0].token_ids, config)
        finished = {
            tokens_of(tree, number)[:-1]: node
            for number, node in enumerate(tree.nodes)
            if node.state == "finished"
        }
        assert set(finished) == {one.token_ids for one in hypotheses}
        for one in hypotheses:
            node = finished[one.token_ids]
            assert node.token == EOS_ID
            assert node.log_probability == pytest.approx(one.log_probability, abs=1e-5)
            assert node.score == pytest.approx(one.score, abs=1e-5)


def test_the_path_is_the_hypothesis_and_no_step_keeps_more_than_the_beam(model):
    recording, found = recorded_search(model, CONFIG)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        for one in hypotheses:
            tree = recording.tree_of(source, one.token_ids, CONFIG)
            assert (tree.path[0], tree.beam_size, tree.length_penalty) == (0, 4, 0.6)
            assert [tree.nodes[n].token for n in tree.path[1:]] == [*one.token_ids, EOS_ID]
            n_slots = 4
            for step in range(1, max(node.step for node in tree.nodes) + 1):
                states = [node.state for node in tree.nodes if node.step == step]
                n_kept = states.count("kept") + states.count("finished")
                assert n_kept <= n_slots
                assert states.count("dropped") <= N_DROPPED
                n_slots -= states.count("finished")
                totals = [node.log_probability for node in tree.nodes if node.step == step]
                assert totals == sorted(totals, reverse=True)


def test_a_greedy_search_has_a_tree_of_one_branch(model):
    config = replace(CONFIG, beam_size=1, n_best=1)
    recording = RecordingModel(model, n_candidates(config))
    batch = source_batch(SOURCES, model.config.max_positions, "cpu")
    found = greedy_search(recording, *batch, config)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        tree = recording.tree_of(source, hypotheses[0].token_ids, config)
        lived = [n for n, node in enumerate(tree.nodes) if node.state != "dropped"]
        assert tuple(lived) == tree.path
        best = tree.nodes[tree.path[-1]]
        assert best.log_probability == pytest.approx(hypotheses[0].log_probability, abs=1e-5)


def test_where_other_rules_decide_there_is_no_tree(model):
    config = replace(CONFIG, no_repeat_ngram=1)
    recording = RecordingModel(model, n_candidates(config))
    batch = source_batch(SOURCES[:1], model.config.max_positions, "cpu")
    sentence = Sentence(tokens=SOURCES[0])
    ((best, *_),) = search(recording, [sentence], *batch, config)
    assert recording.tree_of(SOURCES[0], best.token_ids, config) is None
    # the search went where plain beam search, which the settings now claim, would not have gone
    assert recording.tree_of(SOURCES[0], best.token_ids, CONFIG) is None


def test_what_no_search_went_through_has_no_tree(model):
    recording, _ = recorded_search(model, CONFIG)
    with pytest.raises(NotSearchedError):
        recording.tree_of(SOURCES[0], (29, 28, 27, 26), CONFIG)
