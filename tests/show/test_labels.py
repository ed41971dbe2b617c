"""Labels, tables that fit, and colors."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tformer_cli.heads.names import KINDS
from tformer_cli.show.palette import color, hex_color
from tformer_cli.show.terminal import (
    Column,
    column_widths,
    cut,
    is_ascii_only,
    isolate_text,
    left_aligned,
    right_aligned,
    show_text,
    table_lines,
)

HEBREW, ARABIC, WIDE, COMBINED = "שלום", "مرحبا", "漢字", "e\u0301a\u0300"


@pytest.mark.parametrize("text", ["The", HEBREW, ARABIC, WIDE, COMBINED, "👩‍👩‍👧", ""])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 9])
def test_every_label_takes_exactly_its_cells(text, width):
    for field in (left_aligned(text, width), right_aligned(text, width)):
        assert cell_len(field) == width


def test_only_texts_that_run_from_right_to_left_are_isolated():
    assert isolate_text(HEBREW) == f"\u2068{HEBREW}\u2069"
    assert isolate_text(f"a {ARABIC}").startswith("\u2068a ")
    for text in ("The", WIDE, COMBINED, "12", "▁"):
        assert isolate_text(text) == text
    assert right_aligned(HEBREW, 6) == f"  \u2068{HEBREW}\u2069"
    assert left_aligned(HEBREW, 2) == f"\u2068{HEBREW[:2]}\u2069"  # cut inside, never an isolate


def test_nothing_in_a_text_is_obeyed_by_the_terminal():
    assert show_text("\x1b[31mred\x07", is_ascii=False) == "<0x1B>[31mred<0x07>"
    assert show_text("a\u2028b\x9b", is_ascii=True) == "a<0xE2><0x80><0xA8>b<0xC2><0x9B>"
    for text in ("a\tb", "👩‍👩‍👧", HEBREW, WIDE, COMBINED, "", "▁a b"):
        assert show_text(text, is_ascii=False) == text


def test_a_wide_character_is_never_halved():
    assert cut(WIDE, 3) == "漢 "
    assert cut(WIDE, 4) == WIDE


def test_without_unicode_there_is_a_character_for_each():
    assert show_text("▁The’s 漢字→x", is_ascii=True) == "_The's ??>x"
    assert show_text("▁漢", is_ascii=False) == "▁漢"
    for encoding in ("utf-8", "ascii"):
        console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        assert is_ascii_only(console) == (encoding == "ascii")


LABELS = ("Donaudampfschiff", "東京特許許可局", "שלום", "e\u0301te\u0301", "x", "")
NUMBERS = ("1.5", "-12.25", "3", "", "1,000", "0")


def columns(n_measures=2):
    measures = [Column(f"m{number}", NUMBERS) for number in range(n_measures)]
    return [Column("token", LABELS, is_label=True), *measures]


def draw_lines(room, **options):
    return [line.plain for line in table_lines(columns(), room, **options)]


def test_labels_give_way_the_widest_first_and_measures_never():
    two = [Column("a", ["x" * 20], is_label=True), Column("b", ["1" * 6])]
    assert column_widths(two, 80) == [20, 6]
    assert column_widths(two, 20) == [12, 6]
    assert column_widths(two, 9) == [4, 6]
    labels = [Column("a", ["x" * n], is_label=True) for n in (20, 8, 3)]
    assert column_widths(labels, 25) == [10, 8, 3]
    assert column_widths(labels, 18) == [5, 6, 3]
    assert column_widths(labels, 1) == [4, 4, 3]


@pytest.mark.parametrize("room", [24, 27, 40, 100])
def test_every_column_ends_at_the_same_cell_whatever_the_alphabet(room):
    lines = draw_lines(room)
    assert len(lines) == 1 + len(LABELS)
    ends = set()
    for line, number in zip(lines[1:], NUMBERS, strict=True):
        assert cell_len(line) <= room
        if number:
            assert line.endswith(number)
            ends.add(cell_len(line))
            first = line[: line.rindex(number)].rstrip()
            assert first.endswith(number)
    assert len(ends) == 1


def test_a_cut_label_ends_with_an_ellipsis_and_is_never_halved():
    lines = draw_lines(24)
    assert lines[1].startswith("Donauda…")
    assert lines[2].startswith("東京特…")
    assert lines[3].startswith("\u2068שלום\u2069")
    assert draw_lines(24, is_ascii=True)[1].startswith("Donauda~")


def test_columns_that_do_not_fit_continue_below_the_leading_ones():
    lines = [line.plain for line in table_lines(columns(5), 24)]
    heads = [line.split() for line in lines if line.startswith("token")]
    assert heads == [["token", "m0", "m1"], ["token", "m2", "m3"], ["token", "m4"]]
    assert [place for place, line in enumerate(lines) if not line.strip()] == [7, 15]
    assert all(cell_len(line) <= 24 for line in lines)
    assert sum(line.count("-12.25") for line in lines) == 5


def test_styled_cells_and_rows_keep_their_style():
    cells = [Text("b", style="bold"), Text("c")]
    made = [Column("", ["r", "s"], at_left=True), Column("h", cells)]
    lines = table_lines(made, 20, styles=["green", "dim"])
    assert [line.style for line in lines] == ["dim", "green", "dim"]
    assert [line.plain for line in lines] == ["   h", "r  b", "s  c"]
    assert "bold" in [span.style for span in lines[1].spans]


def lightness(channels):
    red, green, blue = channels
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on_dark", [False, True])
def test_larger_weights_differ_ever_more_from_the_ground(kind, on_dark):
    steps = [lightness(color(kind, n / 50, on_dark=on_dark)) for n in range(51)]
    assert steps == sorted(steps, reverse=not on_dark)
    assert abs(steps[-1] - steps[0]) > 180


def test_weights_beyond_the_ends_take_the_colors_of_the_ends():
    assert hex_color("enc", -0.1) == "#ffffff"
    assert hex_color("enc", 1.2) == hex_color("enc", 1.0)
