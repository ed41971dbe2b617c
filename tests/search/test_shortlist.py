"""Shortlists, and models that are joined or pooled."""

import itertools

import numpy as np
import pytest
import torch

from tests.fast.native.test_search import make_model, make_sources
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier, EncoderOnly, MaskedLanguageModel
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.beam_search import beam_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import DecodingModel, Sentence, Shortlist
from tformer_cli.search.models import Ensemble
from tformer_cli.search.pooled import LabelHead, TokenHead, pool_states
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID


def make_shortlist(n_sources=40, n_targets=40, first=6):
    dice = np.random.default_rng(1)
    lists = [np.sort(dice.permutation(n_targets)[: dice.integers(0, 5)]) for _ in range(n_sources)]
    offsets = np.cumsum([0, *map(len, lists)])
    return Shortlist(first, offsets, np.concatenate(lists).astype(np.int32))


def with_candidates(sources, shortlist):
    return [
        Sentence(tokens=tuple(source), candidates=shortlist.candidates([*source, EOS_ID]))
        for source in sources
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
        for hypothesis in hypotheses:
            assert set(hypothesis.token_ids) <= set(sentence.candidates)
            target = torch.tensor([[BOS_ID, *hypothesis.token_ids]])
            logits = model(source, torch.ones_like(source, dtype=torch.bool), target)[0]
            steps = logits[:, list(sentence.candidates)].log_softmax(dim=1)
            places = [sentence.candidates.index(token) for token in (*hypothesis.token_ids, EOS_ID)]
            expected = [step[place].item() for step, place in zip(steps, places, strict=True)]
            assert hypothesis.token_log_probabilities == pytest.approx(expected, abs=1e-4)


def test_all_tokens_as_candidates_change_nothing():
    search = TorchEngine(torch.device("cpu")).prepare(make_model())
    sources = make_sources(4)
    everything = [Sentence(tokens=tuple(source), candidates=tuple(range(40))) for source in sources]
    for beam_size in (1, 3):
        config = DecodingConfig(beam_size=beam_size, max_length_ratio=0.3)
        plain = [Sentence(tokens=tuple(source)) for source in sources]
        assert search.search(everything, config, print) == search.search(plain, config, print)


SHAPE = {
    "d_model": 16, "n_heads": 2, "d_ff": 16, "n_encoder_layers": 1, "n_decoder_layers": 0,
    "max_positions": 20,
}  # fmt: skip
HIDDEN = torch.randn(7, 16, generator=torch.Generator().manual_seed(1))
MASK = torch.ones(1, 7, dtype=torch.bool)


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("unit_length", [False, True])
def test_vectors_are_those_of_the_model(pooling, unit_length):
    config = ModelConfig(head="none", pooling=pooling, unit_length=unit_length, **SHAPE)
    model = EncoderOnly(config, 30).eval()
    expected = model.pool(HIDDEN.unsqueeze(0), MASK)
    if unit_length:
        expected = torch.nn.functional.normalize(expected, dim=1)
    found = pool_states(HIDDEN.numpy(), pooling, unit_length=unit_length)
    np.testing.assert_allclose(found, expected[0].numpy(), atol=1e-6)
    assert not pool_states(np.zeros((3, 4), np.float32), pooling, unit_length=unit_length).any()


def test_a_pooling_of_images_is_refused():
    with pytest.raises(ValueError, match="first-and-mean is not for texts"):
        pool_states(HIDDEN.numpy(), "first-and-mean")


@pytest.mark.parametrize("pooler", ["none", "tanh", "relu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_probabilities_are_those_of_the_model(pooler, bias, pooling):
    config = ModelConfig(n_labels=5, pooler=pooler, bias=bias, pooling=pooling, **SHAPE)
    torch.manual_seed(2)
    model = Classifier(config, 30).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.randn_like(weight)
        expected = model.project(model.summarize(model.pool(HIDDEN.unsqueeze(0), MASK)))
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    found = LabelHead(config, weights).probabilities(HIDDEN.numpy())
    np.testing.assert_allclose(found, expected[0].softmax(0).numpy(), atol=1e-5)
    assert sum(found) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("activation", ["relu", "gelu", "swish", "gelu-tanh"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"bias": False}, {"tied_embeddings": "none"}, {"norm_kind": "rms", "norm": "pre"}],
)
def test_tokens_are_as_probable_as_to_the_model(activation, changes):
    config = ModelConfig(head="tokens", activation=activation, **SHAPE, **changes)
    torch.manual_seed(2)
    model = MaskedLanguageModel(config, 30).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.randn_like(weight)
        # large, so that an exponential that overflows would be seen
        rows = HIDDEN * torch.tensor([0.1, 1.0, 1.0, 10.0, 50.0, 100.0, 1.0]).unsqueeze(1)
        expected = model.project(model.transform_hidden(rows)).double().log_softmax(1)
    head = TokenHead(config, {name: weight.numpy() for name, weight in model.state_dict().items()})
    for row, wanted in zip(rows.numpy(), expected, strict=True):
        np.testing.assert_allclose(head.log_probabilities(row), wanted.numpy(), atol=1e-4)
        never = [0, int(wanted.argmax())]
        found = head.candidates(row, 3, never=never)
        order = [n for n in wanted.argsort(descending=True).tolist() if n not in never][:3]
        assert [token for token, _ in found] == order
        shares = [probability for _, probability in found]
        np.testing.assert_allclose(shares, wanted[order].exp().numpy(), rtol=1e-3, atol=1e-9)
    assert head.candidates(rows[0].numpy(), 0) == []
    assert len(head.candidates(rows[0].numpy(), 99, never=[0, 1])) == 28


def small(seed, d_model):
    torch.manual_seed(seed)
    config = ModelConfig(
        d_model=d_model, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=1, max_positions=9
    )
    model = Transformer(config, EOS_ID + 3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model


@pytest.mark.parametrize("space", ["probability", "log"])
def test_an_ensemble_searches_its_joint_distribution_exhaustively(batch, space):
    models, weights = [small(1, 16), small(2, 32)], [3.0, 1.0]
    config = DecodingConfig(beam_size=15, n_best=15, max_length=3)
    sources = batch([4, 5, 5], [5])
    found = beam_search(Ensemble(models, weights, space), *sources, config)
    for row, hypotheses in enumerate(found):
        expected = []
        for target in (s for n in range(4) for s in itertools.product((4, 5), repeat=n)):
            with torch.inference_mode():
                own = [
                    model(
                        sources[0][row : row + 1],
                        sources[1][row : row + 1],
                        torch.tensor([[BOS_ID, *target]]),
                    )[0].log_softmax(-1)
                    for model in models
                ]
            if space == "probability":
                joint = (0.75 * own[0].exp() + 0.25 * own[1].exp()).log()
            else:
                joint = (0.75 * own[0] + 0.25 * own[1]).log_softmax(-1)
            total = joint.gather(1, torch.tensor([[*target, EOS_ID]]).T).sum().item()
            expected.append((total / ((6 + len(target)) / 6) ** 0.6, target))
        expected.sort(reverse=True)
        assert [h.score for h in hypotheses] == pytest.approx(
            [score for score, _ in expected], abs=1e-4
        )


def test_a_model_with_itself_is_the_model(random_model, batch):
    config = DecodingConfig(beam_size=3, n_best=3, max_length=9)
    sources = batch([7, 8, 9], [11] * 5)
    alone = beam_search(random_model, *sources, config)
    for space in ("probability", "log"):
        together = beam_search(Ensemble([random_model] * 2, None, space), *sources, config)
        for ours, theirs in zip(alone, together, strict=True):
            assert [h.token_ids for h in ours] == [h.token_ids for h in theirs]
            assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-4)


@pytest.mark.parametrize(
    ("weights", "message"),
    [([1.0], "must be 2"), ([1.0, 0.0], "above 0"), ([1.0, -2.0], "above 0")],
)
def test_weights_that_make_no_sense_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        Ensemble([small(1, 16)] * 2, weights)


def test_whatever_decodes_step_by_step_is_a_decoding_model(tabulated, random_model):
    models = (random_model, Ensemble([random_model]), tabulated(vocab_size=9))
    assert all(isinstance(model, DecodingModel) for model in models)
    assert not isinstance(torch.nn.Linear(2, 2), DecodingModel)
