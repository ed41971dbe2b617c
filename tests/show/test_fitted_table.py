import pytest
from rich.cells import cell_len
from rich.text import Text

from tformer_cli.show.terminal import Column, column_widths, table_lines

LABELS = ("Donaudampfschiff", "東京特許許可局", "שלום", "e\u0301te\u0301", "x", "")
NUMBERS = ("1.5", "-12.25", "3", "", "1,000", "0")


def columns(n_measures=2):
    measures = [Column(f"m{number}", NUMBERS) for number in range(n_measures)]
    return [Column("token", LABELS, is_label=True), *measures]


def drawn(room, **options):
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
    lines = drawn(room)
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
    lines = drawn(24)
    assert lines[1].startswith("Donauda…")
    assert lines[2].startswith("東京特…")
    assert lines[3].startswith("\u2068שלום\u2069")
    assert drawn(24, is_ascii=True)[1].startswith("Donauda~")


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
