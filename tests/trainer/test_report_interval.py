import json
import math

import pytest
import torch

from tformer_cli.text.batching import collate
from tformer_cli.trainer.loss import Loss
from tformer_cli.trainer.report_interval import Diverged, ReportInterval


def window(loss=6.0, norm=1.0):
    sums = ReportInterval(0.0)
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
def test_what_is_not_finite_sends_the_run_back(loss, norm):
    window().check_finite(3)
    sums = window(loss, norm)
    sums.add_norm(torch.tensor(1.0))  # a good step afterwards hides nothing
    with pytest.raises(Diverged, match="NaN or infinity") as seen:
        sums.check_finite(3)
    assert seen.value.last_good_step == 3


def test_sums_go_through_json_unchanged():
    sums = window(loss=6.1)
    restored = ReportInterval.from_json(json.loads(json.dumps(sums.to_json())))
    assert restored.to_json() == sums.to_json()
    assert isinstance(restored.n_target_tokens, int)
    more = Loss(torch.tensor(0.7), torch.tensor(8.0))
    batch = collate([[4]], [[7]])
    for one in (sums, restored):
        one.add_batch(batch, more)
    assert restored.mean_loss == sums.mean_loss
