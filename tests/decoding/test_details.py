import pytest

from tformer_cli.decoding.details import flags_of, repeats
from tformer_cli.decoding.translator import TranslatedText


def hypothesis(tokens, mean=-0.5, is_finished=True):
    steps = (mean,) * (len(tokens) + 1)
    return TranslatedText(
        "", sum(steps), 0.0, tuple(tokens), is_finished, token_log_probabilities=steps
    )


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([7] * 8, True),
        ([7] * 7, False),
        ([1, 2] * 4, True),
        ([1, 2] * 3 + [1], False),
        ([9, *[1, 2, 3] * 4], True),
        ([1, 2, 3] * 3, False),
        (range(50), False),
        ([*range(9)] * 6, False),
        ([], False),
    ],
)
def test_a_run_repeated_four_times_is_noticed(tokens, expected):
    assert repeats(list(tokens)) is expected


@pytest.mark.parametrize(
    ("found", "source", "flags"),
    [
        (hypothesis([5, 6, 7]), [1, 2, 3], []),
        (hypothesis([5, 6], is_finished=False), [1, 2, 3], ["unfinished"]),
        (hypothesis([5] * 9), [1, 2, 3], ["repetition"]),
        (hypothesis([5] * 9), [4] * 9, []),
        (hypothesis(range(18)), [1, 2, 3], ["length"]),
        (hypothesis([5]), range(6), ["length"]),
        (hypothesis([5, 6, 7], mean=-2.6), [1, 2, 3], ["improbable"]),
    ],
)
def test_every_sign_has_its_flag(found, source, flags):
    assert flags_of(found, list(source)) == flags
