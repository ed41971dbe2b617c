import itertools

import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.beam_search import beam_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import Sentence
from tformer_cli.search.scoring import coverage_penalty, score_pairs
from tformer_cli.search.source_batches import source_batch
from tformer_cli.search.torch_search import search
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID


def test_forced_decoding_reproduces_what_the_search_found(random_model):
    sentences = [[7, 8, 9], [11] * 20, [12, 13], [5]]
    config = DecodingConfig(beam_size=3, n_best=3, max_length=20)
    found = [
        beam_search(random_model, *source_batch([sentence], 80, "cpu"), config)[0]
        for sentence in sentences
    ]
    pairs = [(s, h) for s, hypotheses in zip(sentences, found, strict=True) for h in hypotheses]
    targets = [h.token_ids for _, h in pairs]
    forced = score_pairs(random_model, [s for s, _ in pairs], targets, config, device="cpu")
    for (_, own), given in zip(pairs, forced, strict=True):
        assert given.token_ids == own.token_ids
        assert given.score == pytest.approx(own.score, abs=1e-4)
        assert given.token_log_probabilities == pytest.approx(own.token_log_probabilities, abs=1e-4)


def test_a_pair_does_not_depend_on_the_pairs_beside_it(random_model):
    sources = [[7, 8], [9] * 5, [10] * 30, [11]]
    targets = [[4] * n for n in (3, 9, 20, 0)]
    config = DecodingConfig(batch_tokens=100)
    together = score_pairs(random_model, sources, targets, config, device="cpu")
    for source, target, expected in zip(sources, targets, together, strict=True):
        assert score_pairs(random_model, [source], [target], config, device="cpu") == [expected]


def test_the_coverage_penalty_by_hand():
    # one head, 2 target positions, 2 source words and the end of sentence
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.75, 0.125, 0.125], [9.0, 9.0, 9.0]]]])
    mask = torch.tensor([[True, True, True]])
    found = coverage_penalty(weights, mask, torch.tensor([[True, True, False]]))
    assert found.item() == pytest.approx(torch.tensor(0.375).log().item())
    padded = torch.nn.functional.pad(weights, (0, 2))
    mask = torch.tensor([[True, True, True, False, False]])
    again = coverage_penalty(padded, mask, torch.tensor([[True, True, False]]))
    assert again.item() == pytest.approx(found.item())


def test_without_an_end_of_sentence_the_last_source_token_is_covered_too():
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.75, 0.125, 0.125]]]])
    mask, target_mask = torch.ones(1, 3).bool(), torch.ones(1, 2).bool()
    found = coverage_penalty(weights, mask, target_mask, eos=False)
    assert found.item() == pytest.approx(2 * torch.tensor(0.375).log().item())


def test_search_with_coverage_equals_exhaustive_search(batch):
    torch.manual_seed(4)
    config = ModelConfig(
        d_model=16, n_heads=2, d_ff=32, n_encoder_layers=1, n_decoder_layers=2, max_positions=20
    )
    model = Transformer(config, EOS_ID + 3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    settings = DecodingConfig(beam_size=15, n_best=3, max_length=3, coverage_penalty=2.0)
    tokens = (4, 5, 5, 4)
    (found,) = search(model, [Sentence(tokens=tokens)], *batch(list(tokens)), settings)
    everything = [s for n in range(4) for s in itertools.product((4, 5), repeat=n)]
    weights = []
    handle = model.decoder.layers[-1].cross_attention.tap(
        lambda tap: weights.append((tap.query, tap.key))
    )
    expected = []
    source, mask = batch(list(tokens))
    for target in everything:
        with torch.inference_mode():
            logits = model(source, mask, torch.tensor([[BOS_ID, *target]]))
        query, key = weights.pop()
        attention = (query @ key.transpose(-2, -1) / 8**0.5).softmax(-1)[0].mean(0)
        covered = attention.sum(0)[: len(tokens)].clamp(max=1.0).log().sum().item()
        steps = logits[0].log_softmax(-1).gather(1, torch.tensor([[*target, EOS_ID]]).T)
        value = steps.sum().item() / ((5 + len(target) + 1) / 6) ** 0.6 + 2.0 * covered
        expected.append((value, target))
    handle.remove()
    expected.sort(reverse=True)
    assert [h.token_ids for h in found] == [target for _, target in expected[:3]]
    assert [h.score for h in found] == pytest.approx([v for v, _ in expected[:3]], rel=1e-5)
