"""A row's and a sentence's bits do not depend on what is computed beside them."""

import pytest
import torch

from tformer_cli.model.attention import (
    FUSED_FROM_KEYS,
    FUSED_FROM_QUERIES,
    fused_attention,
    plain_attention,
)
from tformer_cli.model.feed_forward import FeedForward
from tformer_cli.model.operations import by_rows, by_sentence, repeatable_linear


@pytest.fixture(autouse=True, scope="module")
def no_gradients(one_thread):
    with torch.inference_mode():
        yield


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(1)


def close(actual, expected):
    return torch.allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("n_outputs", "width"), [(1, 5), (4, 17), (17, 66), (96, 32), (300, 64)])
def test_a_row_times_a_matrix(threads, n_outputs, width):
    torch.manual_seed(n_outputs)
    matrix, bias = torch.randn(n_outputs, width), torch.randn(n_outputs)
    rows = torch.randn(70, width)
    together = repeatable_linear(rows, matrix, bias)
    assert close(together, torch.nn.functional.linear(rows, matrix, bias))
    for n_rows in (1, 2, 3, 4, 5, 7, 10, 13, 27):
        for first in (0, 3):
            chosen = slice(first, first + n_rows)
            assert torch.equal(
                repeatable_linear(rows[chosen].clone(), matrix, bias), together[chosen]
            )


def test_rows_of_any_shape():
    values = torch.randn(2, 3, 8)
    assert by_rows(lambda rows: rows * 2, values).equal(values * 2)
    assert repeatable_linear(torch.randn(0, 8), torch.randn(6, 8)).shape == (0, 6)


@pytest.mark.parametrize(("n_heads", "width"), [(1, 16), (2, 33), (3, 22), (4, 8), (1, 5)])
@pytest.mark.parametrize(
    ("attention", "n_queries", "n_keys"),
    [
        (plain_attention, 1, 5),
        (plain_attention, 4, 17),
        (plain_attention, 5, 40),
        (fused_attention, FUSED_FROM_QUERIES, FUSED_FROM_KEYS),
        (fused_attention, 70, 208),
    ],
)
def test_a_sentence_attends(threads, n_heads, width, attention, n_queries, n_keys):
    torch.manual_seed(width)
    query = torch.randn(9, n_queries, n_heads * width)
    query = query.view(9, n_queries, n_heads, width).transpose(1, 2)
    room = torch.randn(2, 9, n_heads, n_keys + 3, width)  # for more keys, as in a cache
    mask = torch.rand(9, 1, 1, n_keys) > 0.3
    mask[..., 0] = True

    def attend(chosen):
        key, value = room[:, chosen].clone()[..., :n_keys, :]
        return by_sentence(attention, query[chosen].clone(), key, value, mask[chosen])

    together = attend(slice(None))
    assert close(together, plain_attention(query, *room[..., :n_keys, :], mask))
    for first in range(9):
        for n_sentences in (1, 2, 3):
            chosen = slice(first, first + n_sentences)
            assert torch.equal(attend(chosen), together[chosen])


@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
@pytest.mark.parametrize("d_ff", [1, 17, 64])
def test_a_row_is_fed_forward(activation, d_ff):
    torch.manual_seed(3)
    layer = FeedForward(24, d_ff, activation=activation).eval()
    rows = torch.randn(20, 1, 24)
    together = layer(rows)
    for row in range(20):
        assert torch.equal(layer(rows[row : row + 1]), together[row : row + 1])
