"""Live maps against forced ones: rows of a search on its cache, and one pass without any cache."""

from dataclasses import replace

import pytest
import torch

from tests.inspect.conftest import check_maps, made_model
from tformer_cli.heads.names import HeadId, head_layout
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.inspect.capture.live import (
    N_DROPPED,
    NotSearchedError,
    RecordingModel,
    n_candidates,
)
from tformer_cli.model.attention import MultiHeadAttention
from tformer_cli.search.beam_search import BeamSearch, beam_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import Sentence
from tformer_cli.search.sampling import greedy_search
from tformer_cli.search.source_batches import source_batch
from tformer_cli.search.torch_search import search
from tformer_cli.text.tokenizer import EOS_ID

SOURCES = [(5, 9, 7), (11, 6, 8, 12, 13, 4), (9,), (20, 21, 9, 5, 5, 6, 7, 8, 9, 10, 22, 23, 24)]


CONFIG = DecodingConfig(beam_size=4, n_best=1, max_length=12, length_penalty=0.6)


def searched_model(norm="post", **heads):
    return made_model(vocab_size=30, sharpness=2.0, noise=0.0, norm=norm, max_positions=40, **heads)


@pytest.fixture(params=["post", "pre"])
def model(request, one_thread):
    return searched_model(request.param)


def batch_of(model, sources=SOURCES):
    return source_batch(sources, model.config.max_positions, "cpu")


def check_search(model, recording, translations, sources=SOURCES):
    assert len(translations) == len(sources)
    for source, hypotheses in zip(sources, translations, strict=True):
        for hypothesis in hypotheses:
            forced = capture_maps(model, source, hypothesis.token_ids)
            check_maps(recording.maps_of(source, hypothesis.token_ids), forced, atol=1e-5)


def test_greedy_search(model):
    recording = RecordingModel(model)
    results = greedy_search(recording, *batch_of(model), CONFIG)
    assert results == greedy_search(model, *batch_of(model), CONFIG)  # to the last bit of a score
    check_search(model, recording, results)


@pytest.mark.parametrize("beam_size", [1, 4, 8])
def test_every_hypothesis_of_a_beam(model, beam_size):
    config = replace(CONFIG, beam_size=beam_size, n_best=beam_size)
    recording = RecordingModel(model)
    translations = beam_search(recording, *batch_of(model), config)
    assert translations == beam_search(model, *batch_of(model), config)
    assert [len(hypotheses) for hypotheses in translations] == [beam_size] * len(SOURCES)
    check_search(model, recording, translations)


class EndsAt:
    """Makes sentence n end at its n-th token at the earliest, and then at once."""

    def __init__(self, lengths):
        self.lengths = torch.tensor(lengths)

    def __call__(self, scores, rows):
        is_time = rows.tokens.shape[1] >= self.lengths[rows.sentences]
        scores[:, 3] = torch.where(is_time, 0.0, -torch.inf)
        return scores


def test_sentences_that_leave_the_batch_early_and_beams_that_shrink(one_thread):
    model = searched_model()
    recording = RecordingModel(model)
    config = replace(CONFIG, n_best=4)
    state = BeamSearch(recording, config, [EndsAt([9, 1, 5, 2])])
    state.start(*batch_of(model))
    active = []
    while state.is_running:
        state.step()
        active.append(len(state._active))
    assert sorted(set(active)) == [0, 1, 2, 3, 4]  # they left one after the other
    check_search(model, recording, state.finish())


def test_a_sentence_alone_has_the_maps_it_has_in_a_batch(model):
    in_batch, alone = RecordingModel(model), RecordingModel(model)
    translations = beam_search(in_batch, *batch_of(model), CONFIG)
    by_itself = beam_search(alone, *batch_of(model, SOURCES[1:2]), CONFIG)
    target = by_itself[0][0].token_ids
    assert target == translations[1][0].token_ids
    ours, theirs = (recording.maps_of(SOURCES[1], target) for recording in (in_batch, alone))
    check_maps(ours, theirs, atol=1e-5)


def test_layers_with_fewer_heads_or_none(one_thread):
    model = searched_model(encoder_heads=(4, 1, 0), decoder_heads=(3, 2), cross_heads=(0, 4))
    recording = RecordingModel(model)
    translations = beam_search(recording, *batch_of(model), CONFIG)
    maps = recording.maps_of(SOURCES[0], translations[0][0].token_ids)
    assert [len(layer) for layer in maps.cross] == [0, 4]
    assert set(maps.residuals) == set(head_layout(model))
    check_search(model, recording, translations)


@pytest.mark.parametrize(
    "settings",
    [
        {"sampling": True, "n_best": 3},
        {"diversity_groups": 2, "diversity_penalty": 0.5, "n_best": 2},
        {"coverage_penalty": 0.2},
        {"no_repeat_ngram": 2},
    ],
)
def test_other_ways_to_search(one_thread, settings):
    model = searched_model()
    config = replace(CONFIG, **settings)
    sentences = [Sentence(tokens=source, key=7) for source in SOURCES]
    recording = RecordingModel(model)
    translations = search(recording, sentences, *batch_of(model), config)
    assert translations == search(model, sentences, *batch_of(model), config)
    check_search(model, recording, translations)


def test_a_row_of_another_hypothesis_shows(one_thread):
    model = searched_model()
    recording = RecordingModel(model)
    config = replace(CONFIG, n_best=4)
    translations = beam_search(recording, *batch_of(model), config)
    best, other = (h.token_ids for h in translations[0][:2])
    assert best != other
    maps = recording.maps_of(SOURCES[0], best)
    forced = capture_maps(model, SOURCES[0], other)
    n = min(len(best), len(other)) + 1
    difference = abs(maps.cross[1][:, :n] - forced.cross[1][:, :n]).max()
    assert difference > 1e-3


def test_the_residual_measures_the_rows_of_the_search(one_thread, monkeypatch):
    model = searched_model()
    attend = MultiHeadAttention.attend

    def attend_elsewhere(self, query, key, value, mask, bias=None, **how):
        listeners = list(self._listeners)
        is_step = query.shape[-2] != key.shape[-2]
        sign = -1 if is_step else 1
        self._listeners[:] = [
            lambda tap, f=f: f(tap._replace(query=sign * tap.query)) for f in listeners
        ]
        try:
            return attend(self, query, key, value, mask, **how)
        finally:
            self._listeners[:] = listeners

    monkeypatch.setattr(MultiHeadAttention, "attend", attend_elsewhere)
    recording = RecordingModel(model)
    translations = beam_search(recording, *batch_of(model), CONFIG)
    maps = recording.maps_of(SOURCES[1], translations[1][0].token_ids)
    assert maps.residuals[HeadId("cross", 1, 0)] > 1e-3
    assert maps.residuals[HeadId("enc", 1, 0)] < 1e-5


def test_what_no_search_went_through_is_an_error_and_nothing_stays_attached(model):
    recording = RecordingModel(model)
    translations = beam_search(recording, *batch_of(model), CONFIG)
    target = translations[0][0].token_ids
    for source, hypothesis in [
        (SOURCES[0], (*target, 5, 5)),
        (SOURCES[0], (*target[:-1], 1)),
        ((4, 4), target),
        (SOURCES[0], (5,) * 30),
    ]:
        with pytest.raises(NotSearchedError, match="no search visited"):
            recording.maps_of(source, hypothesis)
    recording.forget()
    with pytest.raises(NotSearchedError):
        recording.maps_of(SOURCES[0], target)
    assert not any(m._listeners for m in model.modules() if isinstance(m, MultiHeadAttention))


CONFIG_SEARCH_TREE = DecodingConfig(beam_size=4, n_best=4, max_length=12, length_penalty=0.6)


@pytest.fixture(scope="module")
def model_search_tree(one_thread):
    return made_model(vocab_size=30, sharpness=1.0, noise=0.0, n_encoder_layers=1, max_positions=40)


def recorded_search(model_search_tree, config, sources=SOURCES):
    recording = RecordingModel(model_search_tree, n_candidates(config))
    batch = source_batch(sources, model_search_tree.config.max_positions, "cpu")
    return recording, beam_search(recording, *batch, config)


def tokens_of(tree, number):
    tokens = []
    while (parent := tree.nodes[number].parent) is not None:
        tokens.append(tree.nodes[number].token)
        number = parent
    return tuple(reversed(tokens))


@pytest.mark.parametrize("beam_size", [2, 4, 8])
def test_a_tree_finishes_what_the_search_found(model_search_tree, beam_size):
    config = replace(CONFIG_SEARCH_TREE, beam_size=beam_size, n_best=beam_size)
    recording, translations = recorded_search(model_search_tree, config)
    for source, hypotheses in zip(SOURCES, translations, strict=True):
        tree = recording.tree_of(source, hypotheses[0].token_ids, config)
        finished = {
            tokens_of(tree, number)[:-1]: node
            for number, node in enumerate(tree.nodes)
            if node.state == "finished"
        }
        assert set(finished) == {hypothesis.token_ids for hypothesis in hypotheses}
        for hypothesis in hypotheses:
            node = finished[hypothesis.token_ids]
            assert node.token == EOS_ID
            assert node.log_probability == pytest.approx(hypothesis.log_probability, abs=1e-5)
            assert node.score == pytest.approx(hypothesis.score, abs=1e-5)


def test_the_path_is_the_hypothesis_and_no_step_keeps_more_than_the_beam(model_search_tree):
    recording, translations = recorded_search(model_search_tree, CONFIG_SEARCH_TREE)
    for source, hypotheses in zip(SOURCES, translations, strict=True):
        for hypothesis in hypotheses:
            tree = recording.tree_of(source, hypothesis.token_ids, CONFIG_SEARCH_TREE)
            assert (tree.path[0], tree.beam_size, tree.length_penalty) == (0, 4, 0.6)
            assert [tree.nodes[n].token for n in tree.path[1:]] == [*hypothesis.token_ids, EOS_ID]
            n_slots = 4
            for step in range(1, max(node.step for node in tree.nodes) + 1):
                states = [node.state for node in tree.nodes if node.step == step]
                n_kept = states.count("kept") + states.count("finished")
                assert n_kept <= n_slots
                assert states.count("dropped") <= N_DROPPED
                n_slots -= states.count("finished")
                totals = [node.log_probability for node in tree.nodes if node.step == step]
                assert totals == sorted(totals, reverse=True)


def test_a_greedy_search_has_a_tree_of_one_branch(model_search_tree):
    config = replace(CONFIG_SEARCH_TREE, beam_size=1, n_best=1)
    recording = RecordingModel(model_search_tree, n_candidates(config))
    batch = source_batch(SOURCES, model_search_tree.config.max_positions, "cpu")
    translations = greedy_search(recording, *batch, config)
    for source, hypotheses in zip(SOURCES, translations, strict=True):
        tree = recording.tree_of(source, hypotheses[0].token_ids, config)
        lived = [n for n, node in enumerate(tree.nodes) if node.state != "dropped"]
        assert tuple(lived) == tree.path
        best = tree.nodes[tree.path[-1]]
        assert best.log_probability == pytest.approx(hypotheses[0].log_probability, abs=1e-5)


def test_where_other_rules_decide_there_is_no_tree(model_search_tree):
    config = replace(CONFIG_SEARCH_TREE, no_repeat_ngram=1)
    recording = RecordingModel(model_search_tree, n_candidates(config))
    batch = source_batch(SOURCES[:1], model_search_tree.config.max_positions, "cpu")
    sentence = Sentence(tokens=SOURCES[0])
    ((best, *_),) = search(recording, [sentence], *batch, config)
    assert recording.tree_of(SOURCES[0], best.token_ids, config) is None
    # the search went where plain beam search, which the settings now claim, would not have gone
    assert recording.tree_of(SOURCES[0], best.token_ids, CONFIG_SEARCH_TREE) is None


def test_what_no_search_went_through_has_no_tree(model_search_tree):
    recording, _ = recorded_search(model_search_tree, CONFIG_SEARCH_TREE)
    with pytest.raises(NotSearchedError):
        recording.tree_of(SOURCES[0], (29, 28, 27, 26), CONFIG_SEARCH_TREE)
