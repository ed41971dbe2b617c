import pytest

from tformer_cli.training.events import RolledBack
from tformer_cli.training.recovery import rollbacks_in_a_row


def rollbacks(*pairs):
    return [
        RolledBack(step=step, failed_step=failed, problem="", learning_rate_factor=0.5)
        for step, failed in pairs
    ]


@pytest.mark.parametrize(
    ("earlier", "step", "expected"),
    [
        ([], 10, 0),
        ([(10, 15)], 10, 1),
        ([(10, 15)], 15, 1),
        ([(10, 15)], 20, 0),
        ([(10, 15), (10, 12), (10, 19)], 10, 3),
        ([(10, 15), (20, 25), (20, 21)], 20, 2),
        ([(10, 15), (5, 30)], 5, 2),
    ],
)
def test_returns_count_until_a_checkpoint_lies_beyond_the_step_that_failed(earlier, step, expected):
    assert rollbacks_in_a_row(rollbacks(*earlier), step) == expected
