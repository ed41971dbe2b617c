import pytest
import torch

from tformer_cli.decoding.top_tokens import LEAST_TOKENS, top_tokens


@pytest.mark.parametrize("n_tokens", [10, LEAST_TOKENS, LEAST_TOKENS + 1, 5003])
@pytest.mark.parametrize("k", [1, 5, 10])
def test_two_stages_find_what_topk_finds(n_tokens, k):
    generator = torch.Generator().manual_seed(n_tokens + k)
    scores = torch.stack([torch.randperm(n_tokens, generator=generator) for _ in range(30)]).float()
    scores[:, :3] = -torch.inf
    for found, expected in zip(top_tokens(scores, k), scores.topk(k), strict=True):
        assert torch.equal(found, expected)


def test_a_beam_wider_than_the_blocks_is_found_too():
    scores = torch.randperm(LEAST_TOKENS).float().unsqueeze(0)
    for found, expected in zip(top_tokens(scores, 50), scores.topk(50), strict=True):
        assert torch.equal(found, expected)
