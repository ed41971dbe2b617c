import pytest

from tformer_cli.trainer.events import RolledBack
from tformer_cli.trainer.report_interval import Diverged
from tformer_cli.trainer.resuming.saving import roll_back, rollbacks_in_a_row
from tformer_cli.trainer.resuming.state import CONDITIONS, TrainingState


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


class Saver:
    """Of a run whose only checkpoint is that of step 0."""

    def go_back(self, step, fingerprints):
        return TrainingState(fingerprints=fingerprints)

    def save_rollback(self, state):
        self.saved = state


def test_who_computes_is_known_after_a_return():
    conditions = dict(zip(CONDITIONS, (3, True, "bfloat16", "cpu", 2), strict=True))
    state = TrainingState(step=7, fingerprints=["a"], **conditions)
    saver = Saver()
    back = roll_back(saver, state, Diverged("the loss is no number", 0), 3)
    assert back is saver.saved
    assert back.step == 0
    assert {name: getattr(back, name) for name in CONDITIONS} == conditions
