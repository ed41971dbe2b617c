import pytest

from tformer_cli.wording import count_of


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0 lines"), (1, "1 line"), (2, "2 lines"), (1234, "1,234 lines")],
)
def test_one_is_no_plural(number, expected):
    assert count_of(number, "line") == expected


def test_a_plural_may_be_another_word():
    assert count_of(1, "batch", "batches") == "1 batch"
    assert count_of(3, "batch", "batches") == "3 batches"
