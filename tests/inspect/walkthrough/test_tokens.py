import pytest

from tformer_cli.errors import UsageError
from tformer_cli.inspect.walkthrough.tokens import find_token

PIECES = (
    "▁It",
    "▁ite",
    "m",
    "▁hit",
    "▁it",
    "'",
    "s",
    "▁it",
    ".",
    "▁2",
    "▁caf",
    "<0xC3>",
    "<0xA9>",
    "</s>",
)


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("it", 4),
        ("it#2", 7),
        ("It", 0),
        ("▁it", 4),
        ("item", 1),
        ("hit", 3),
        ("IT", 0),
        ("it's", 4),
        ("m", 2),
        (".", 8),
        ("2", 9),
        ("3", 3),
        ("-1", 13),
        ("café", 10),
        ("</s>", 13),
    ],
)
def test_a_token_is_found_by_word_piece_occurrence_or_position(wanted, place):
    assert find_token(wanted.replace("▁", " ") if wanted == "▁it" else wanted, PIECES) == place


@pytest.mark.parametrize("wanted", ["cat", "it#3", "14", "-15", "", " ", "#2"])
def test_another_is_refused_with_the_tokens_there_are(wanted):
    with pytest.raises(UsageError, match=r"matches no token; the tokens are 0 ▁It, 1 ▁ite, 2 m"):
        find_token(wanted, PIECES)
