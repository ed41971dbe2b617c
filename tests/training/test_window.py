import math

import pytest
import torch

from tformer_cli.data.batching import collate
from tformer_cli.errors import TformerError
from tformer_cli.training.loss import Loss
from tformer_cli.training.window import Window


def window(loss=6.0, norm=1.0):
    sums = Window(0.0)
    batch = collate([[4, 5, 6], [4]], [[7], [8]])  # 4 + 2 source, 2 + 2 target tokens, with </s>
    sums.add_batch(batch, Loss(torch.tensor(loss), torch.tensor(8.0)))
    sums.add_norm(torch.tensor(norm))
    return sums


def test_means_are_per_target_token_and_padding_is_a_share_of_all_cells():
    sums = window()
    assert sums.mean_loss == 1.5
    assert math.isclose(sums.perplexity, math.exp(2.0))
    assert math.isclose(sums.padding, 1 - 10 / 12)
    assert sums.mean_lengths == (3.0, 2.0)


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.inf)])
def test_what_is_not_finite_is_an_error_of_one_line(loss, norm):
    window().check_finite(3)
    sums = window(loss, norm)
    sums.add_norm(torch.tensor(1.0))  # a good step afterwards hides nothing
    with pytest.raises(TformerError, match=r"not finite \(step 3\): lower training\.learning_rate"):
        sums.check_finite(3)
