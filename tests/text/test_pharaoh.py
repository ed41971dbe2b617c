import pytest

from tformer_cli.errors import DataError
from tformer_cli.text.pharaoh import format_links, parse_links


def test_sure_and_possible_links_in_both_spellings():
    sure, possible = parse_links(" 2-1 0?0\t10p3 2?1\n", "gold:1")
    assert sure == {(2, 1)}
    assert possible == {(2, 1), (0, 0), (10, 3)}
    assert parse_links("", "gold:1") == (frozenset(), frozenset())
    assert parse_links("1-2", "gold:1", is_one_based=True).sure == {(0, 1)}


def test_links_are_written_in_order():
    assert format_links({(10, 0), (2, 3), (2, 1)}) == "2-1 2-3 10-0"


@pytest.mark.parametrize(
    ("line", "one_based", "message"),
    [
        ("0-0 1_2", False, 'gold:4: "1_2" is not a link; write i-j'),
        ("-1-2", False, "is not a link"),
        ("1-0", True, 'gold:4: "1-0" counts from 0; omit --one-based'),
    ],
)
def test_a_text_that_is_not_a_link_is_named(line, one_based, message):
    with pytest.raises(DataError) as error:
        parse_links(line, "gold:4", is_one_based=one_based)
    assert message in str(error.value)
