import pytest

from tformer_cli.inspect.alignment.links import METHODS, symmetrize
from tformer_cli.text.pharaoh import format_links, parse_links

FORWARD = {(0, 0), (1, 1), (1, 2), (3, 3), (5, 5)}
REVERSE = {(0, 0), (1, 1), (2, 2), (2, 3), (3, 4)}


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("intersection", "0-0 1-1"),
        ("union", "0-0 1-1 1-2 2-2 2-3 3-3 3-4 5-5"),
        # 1-2 has a word that is taken; 2-2 takes both, then 3-3 beside it, and 2-3, 3-4 come late
        ("grow-diag", "0-0 1-1 2-2 3-3"),
        ("grow-diag-final-and", "0-0 1-1 2-2 3-3 5-5"),
    ],
)
def test_hand_made_directions(method, expected):
    assert format_links(symmetrize(method, FORWARD, REVERSE)) == expected


@pytest.mark.parametrize("method", METHODS)
def test_every_method_lies_between_intersection_and_union(method):
    found = symmetrize(method, FORWARD, REVERSE)
    assert FORWARD & REVERSE <= found <= FORWARD | REVERSE
    assert symmetrize(method, FORWARD, FORWARD) == FORWARD


def test_final_and_takes_links_of_free_words_of_one_direction():
    found = symmetrize("grow-diag-final-and", {(0, 0), (0, 1), (4, 4)}, set())
    assert parse_links(format_links(found), "x").sure == {(0, 0), (4, 4)}
