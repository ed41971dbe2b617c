import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from tformer_cli.show.terminal import (
    cut,
    is_ascii_only,
    isolated,
    left_aligned,
    right_aligned,
    shown,
)

HEBREW, ARABIC, WIDE, COMBINED = "שלום", "مرحبا", "漢字", "e\u0301a\u0300"


@pytest.mark.parametrize("text", ["The", HEBREW, ARABIC, WIDE, COMBINED, "👩‍👩‍👧", ""])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 9])
def test_every_label_takes_exactly_its_cells(text, width):
    for field in (left_aligned(text, width), right_aligned(text, width)):
        assert cell_len(field) == width


def test_only_texts_that_run_from_right_to_left_are_isolated():
    assert isolated(HEBREW) == f"\u2068{HEBREW}\u2069"
    assert isolated(f"a {ARABIC}").startswith("\u2068a ")
    for text in ("The", WIDE, COMBINED, "12", "▁"):
        assert isolated(text) == text
    assert right_aligned(HEBREW, 6) == f"  \u2068{HEBREW}\u2069"
    assert left_aligned(HEBREW, 2) == f"\u2068{HEBREW[:2]}\u2069"  # cut inside, never an isolate


def test_nothing_in_a_text_is_obeyed_by_the_terminal():
    assert shown("\x1b[31mred\x07", is_ascii=False) == "<0x1B>[31mred<0x07>"
    assert shown("a\u2028b\x9b", is_ascii=True) == "a<0xE2><0x80><0xA8>b<0xC2><0x9B>"
    for text in ("a\tb", "👩‍👩‍👧", HEBREW, WIDE, COMBINED, "", "▁a b"):
        assert shown(text, is_ascii=False) == text


def test_a_wide_character_is_never_halved():
    assert cut(WIDE, 3) == "漢 "
    assert cut(WIDE, 4) == WIDE


def test_without_unicode_there_is_a_character_for_each():
    assert shown("▁The’s 漢字→x", is_ascii=True) == "_The's ??>x"
    assert shown("▁漢", is_ascii=False) == "▁漢"
    for encoding in ("utf-8", "ascii"):
        console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        assert is_ascii_only(console) == (encoding == "ascii")
