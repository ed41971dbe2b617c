"""Prompts that are continued: searches find what whole passes over the text say."""

import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import PromptedModel, Searcher, Sentence
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

PROMPTS = [(BOS_ID, 7, 8, 9), (BOS_ID, 5, 5, 4), (6, 10, 7, 8)]
FOREVER = 1e9
"""Largest ratio of lengths: prompts do not limit what follows."""


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    config = ModelConfig(
        d_model=32, n_heads=2, d_ff=48, n_encoder_layers=0, n_decoder_layers=2, max_positions=40
    )
    model = Transformer(config, 30).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model


def log_probabilities(model, tokens):
    """log p of every next token after each position of one text, without a cache."""
    nothing = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool)
    with torch.inference_mode():
        return model(*nothing, torch.tensor([tokens]))[0].log_softmax(-1)


def by_hand(model, prompt, continuation):
    steps = log_probabilities(model, [*prompt, *continuation])[len(prompt) - 1 :]
    wanted = torch.tensor([*continuation, EOS_ID])
    return steps.gather(1, wanted.unsqueeze(1)).sum().item()


def continue_prompts(model, prompts, **settings):
    config = DecodingConfig(max_length_ratio=FOREVER, **settings)
    searcher = Searcher(PromptedModel(model), [TorchEngine("cpu")])
    sentences = [Sentence(tokens=prompt, key=number) for number, prompt in enumerate(prompts)]
    return searcher.search(sentences, config)


@pytest.mark.parametrize(
    "settings",
    [
        {"beam_size": 1},
        {"beam_size": 4, "n_best": 3},
        {"beam_size": 4, "diversity_groups": 2},
        {"sampling": True, "n_best": 2},
        {"beam_size": 2, "repetition_penalty": 1.5, "min_length": 3},
    ],
    ids=str,
)
def test_log_probabilities_are_those_of_the_continuation(model, settings):
    found = continue_prompts(model, PROMPTS, max_length=8, **settings)
    for prompt, hypotheses in zip(PROMPTS, found, strict=True):
        assert len(hypotheses) == settings.get("n_best", 1)
        for hypothesis in hypotheses:
            expected = by_hand(model, prompt, hypothesis.token_ids)
            assert hypothesis.log_probability == pytest.approx(expected, abs=1e-4)
            assert len(hypothesis.token_log_probabilities) == len(hypothesis.token_ids) + 1


def test_greedy_search_takes_the_most_probable_token(model):
    for prompt, (found,) in zip(
        PROMPTS, continue_prompts(model, PROMPTS, beam_size=1, max_length=9)
    ):
        text = list(prompt)
        for _ in range(9):
            best = int(log_probabilities(model, text)[-1, EOS_ID:].argmax()) + EOS_ID
            if best == EOS_ID:
                break
            text.append(best)
        assert found.token_ids == tuple(text[len(prompt) :])


@pytest.mark.parametrize("settings", [{"beam_size": 3}, {"sampling": True}])
def test_a_prompt_alone_is_continued_as_beside_others(model, settings):
    together = continue_prompts(model, PROMPTS, max_length=8, **settings)
    config = DecodingConfig(max_length_ratio=FOREVER, max_length=8, **settings)
    searcher = Searcher(PromptedModel(model), [TorchEngine("cpu")])
    for number, prompt in enumerate(PROMPTS):
        alone = searcher.search([Sentence(tokens=prompt, key=number)], config)
        assert alone[0] == together[number]


def test_tokens_are_told_as_they_are_chosen(model):
    told = []
    searcher = Searcher(
        PromptedModel(model, lambda tokens: told.append(tokens)), [TorchEngine("cpu")]
    )
    config = DecodingConfig(max_length_ratio=FOREVER, max_length=6, beam_size=1, min_length=6)
    (found,) = searcher.search([Sentence(tokens=PROMPTS[0])], config)[0]
    assert told == [[token] for token in found.token_ids]


def test_prompts_of_many_lengths_are_continued_within_the_positions_left(model):
    prompts = [(2, 5), tuple(range(4, 26)), (2, 5, 6), (2,) * 39]
    found = continue_prompts(model, prompts, beam_size=2, max_length=30, min_length=30)
    for prompt, (hypothesis,) in zip(prompts, found, strict=True):
        assert len(hypothesis.token_ids) == min(30, 40 - len(prompt))
        assert [[hypothesis]] == continue_prompts(
            model, [prompt], beam_size=2, max_length=30, min_length=30
        )


def test_a_prompt_that_leaves_no_room_is_refused(model):
    with pytest.raises(ValueError, match="at most 39 tokens, but has 40"):
        continue_prompts(model, [(2,) * 40])


def test_a_batch_of_prompts_of_two_lengths_is_refused(model):
    mask = torch.tensor([[True, True], [True, False]])
    with pytest.raises(ValueError, match="must have the same length"):
        PromptedModel(model).encode(torch.zeros(2, 2, dtype=torch.int64), mask)
