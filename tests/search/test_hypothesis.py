import pytest

from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.hypothesis import length_penalty, longest_translation


def test_the_penalty_is_the_one_of_wu_et_al():
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(19, 0.5) == 2.0
    assert length_penalty(40, 0.0) == 1.0


@pytest.mark.parametrize(
    ("n_source", "settings", "expected"),
    [
        (10, {}, 50),
        (10, {"max_length": 30}, 30),
        (10, {"max_length": 300}, 50),
        (10, {"max_length_ratio": 0.5}, 25),
        (1000, {}, 127),
    ],
)
def test_the_smallest_limit_counts(n_source, settings, expected):
    assert longest_translation(n_source, DecodingConfig(**settings), 128) == expected
