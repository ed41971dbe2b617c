"""The first screen, drawn from hand-made records whose alphabets differ."""

import pytest
from rich.cells import cell_len

from tests import screens
from tests.inspect.conftest import LAYOUT, blank_record, made_record
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.alignment import AlignedWords, HeadChoice
from tformer_cli.inspect.views.heads import record_blocks
from tformer_cli.show.terminal import room_of, show_blocks, show_text

CROSS = HeadId("cross", 1, 0)


def draw_screen(record, maps=(CROSS,), *, width=80, height=24, encoding="utf-8", fits_screen=False):
    def draw(console):
        blocks = record_blocks(record, maps, room_of(console), fits_screen=fits_screen)
        show_blocks(console, blocks)

    return screens.draw_text(draw, width=width, height=height, encoding=encoding)


def align_words(source, target, links, *, is_stored=False):
    choice = HeadChoice(
        heads="cross.1.0",
        members=(HeadId("cross", 1, 0),),
        convention="shift",
        reason="stored" if is_stored else "default",
    )
    return AlignedWords(
        choice=choice,
        convention="shift",
        order=(
            HeadId("cross", 1, 0),
            HeadId("cross", 1, 1),
            HeadId("cross", 0, 0),
            HeadId("cross", 0, 1),
        ),
        source=source,
        target=target,
        links=frozenset(links),
    )


def test_every_head_of_the_three_kinds_has_a_sign():
    grid = draw_screen(made_record()).split("encoder self-attention")[1].split("roles:")[0]
    header, *layers = grid.splitlines()[1:4]
    assert header.split() == ["0", "1"] * 3
    assert [line.split()[0] for line in layers] == ["L0", "L1"]
    signs = [word for word in grid.split() if len(word) == 1 and not word.isdigit()]
    assert len(signs) == len(list(LAYOUT))


def test_the_alignment_stands_in_the_order_of_the_target():
    record = made_record(
        aligned=align_words(("a", "b", "c"), ("x", "y"), [(2, 0), (0, 1)], is_stored=True)
    )
    assert "words aligned by  cross.1.0 (stored)  x→c  y→a" in draw_screen(record)
    ascii_text = draw_screen(record, encoding="ascii")
    assert "x->c  y->a" in ascii_text
    many = align_words(tuple("a" * 30), tuple("x" * 30), [(i, i) for i in range(30)])
    assert "and 6 more" in " ".join(draw_screen(made_record(aligned=many)).split())
    assert "aligned by" not in draw_screen(made_record())


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_wide_and_right_to_left_labels_leave_the_columns_in_place(encoding):
    source, target = ("The", "漢字漢字", "שלום", "e\u0301te\u0301", "x"), ("yy", "مرحب")
    # the same map with Latin labels of as many cells
    latin = [
        tuple("a" * cell_len(show_text(label, is_ascii=encoding == "ascii")) for label in side)
        for side in (source, target)
    ]
    ours, theirs = (
        draw_screen(made_record(*labels), encoding=encoding).split("column: source token")[1]
        for labels in ((source, target), latin)
    )
    blocks = "░▒▓█" if encoding == "utf-8" else ":*#"
    rows = [text.splitlines()[1:5] for text in (ours, theirs)]
    for special, plain in zip(*rows, strict=True):
        assert cell_len(special.rstrip()) == cell_len(plain.rstrip())
        places = [
            [cell_len(row[:i]) for i, sign in enumerate(row) if sign in blocks]
            for row in (special, plain)
        ]
        assert places[0] == places[1]
    assert any(sign in blocks for sign in "".join(rows[0][1:]))
    if encoding == "utf-8":
        assert "\u2068שלום\u2069" in ours
    else:
        assert ours.isascii()


def test_a_single_map_fits_the_screen_and_counts_the_omitted_rows():
    record = made_record(target=tuple(f"t{i}" for i in range(40)))
    whole = draw_screen(record)
    assert all(f"t{i} " in whole for i in range(40))
    for height in (24, 40, 50):
        text = draw_screen(record, height=height, fits_screen=True)
        below = text.split("column: source token")[1].splitlines()[2:]
        n_rows = next(i for i, line in enumerate(below) if line.startswith("…"))
        assert [line.split()[0] for line in below[:n_rows]] == [f"t{i}" for i in range(n_rows)]
        assert below[n_rows] == f"… {41 - n_rows} more rows: --heads cross.1.0"
        # the last line of the screen is the prompt's; a map has at least eight rows
        assert n_rows == 8 if height == 24 else len(text.splitlines()) == height - 1
    both = draw_screen(record, (CROSS, HeadId("dec", 0, 0)), fits_screen=True)
    assert "more rows" not in both


@pytest.mark.parametrize("width", [30, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    words = tuple(f"wort{i}" for i in range(30))
    record = made_record(
        words, words, aligned=align_words(words, words, [(i, i) for i in range(30)])
    )
    for line in draw_screen(record, width=width).splitlines():
        assert cell_len(line) <= width


def test_a_blank_line_and_a_selection_without_heads_are_reported_in_words():
    assert "residual" not in draw_screen(blank_record(), ())
    assert "no head meets the conditions" in draw_screen(made_record(heads=()), ())


def test_columns_of_three_cells_spend_none_on_the_sign_of_a_space():
    words = tuple(f"▁wort{i}" for i in range(20))
    narrow = draw_screen(made_record(source=words), width=60).split("column: source token")[1]
    header = narrow.splitlines()[2]
    assert header.split() == ["wor"] * len(header.split())
    wide = draw_screen(made_record(source=words), width=200).split("column: source token")[1]
    assert "▁wort0" in wide
