import pytest
import torch

from tformer_cli.inspection.alignment.best import (
    StoredHeads,
    align_words,
    most_confident_cross,
)
from tformer_cli.inspection.capture.forced import AttentionMaps
from tformer_cli.inspection.capture.heads import HeadId


class Side:
    """Token n is the n-th of these pieces."""

    mask_id = None
    piece_bytes = (b"", b"", b"", b"", b" the", b" c", b"at", b" le", b" chat", b" \xff", b" ")


class Tokenizer:
    source = target = Side


def maps_of(source_ids, target_ids, *cross):
    """Cross maps, a list of layers of heads of rows, over one-hot rows given by their column."""
    n = len(source_ids) + 1
    rows = torch.tensor(cross)  # (L, H, T)
    return AttentionMaps(
        source_ids=(*source_ids, 3),
        target_input_ids=(2, *target_ids),
        enc=(),
        dec=(),
        cross=tuple(0.8 * torch.nn.functional.one_hot(rows, n) + 0.2 / n),
        residuals={},
    )


THE, C, AT, LE, CHAT = 4, 5, 6, 7, 8
NAIVE, SHIFTED = [1, 0, 3], [3, 1, 0]


def test_pieces_become_words_and_rows_are_read_by_their_convention():
    maps = maps_of([THE, C, AT], [CHAT, LE], [NAIVE, SHIFTED])
    for head, convention in ((0, "naive"), (1, "shift")):
        stored = StoredHeads(
            name=f"cross.0.{head}", heads=(HeadId("cross", 0, head),), convention=convention
        )
        found = align_words(Tokenizer, maps, stored)
        assert (found.source, found.target) == (("the", "cat"), ("chat", "le"))
        assert found.by_target == [("chat", "cat"), ("le", "the")]
        assert (found.heads, found.convention, found.is_stored) == (stored.name, convention, True)


def test_without_stored_heads_the_most_confident_head_is_read():
    even = torch.full((1, 3, 4), 0.25)
    sure = maps_of([THE, C, AT], [CHAT, LE], [NAIVE]).cross[0]
    to_the_end = maps_of([THE, C, AT], [CHAT, LE], [[3, 3, 3]]).cross[0]
    maps = AttentionMaps(
        source_ids=(THE, C, AT, 3),
        target_input_ids=(2, CHAT, LE),
        enc=(),
        dec=(),
        cross=(torch.cat([even, to_the_end]), torch.zeros(0, 3, 4), torch.cat([even, sure])),
        residuals={},
    )
    assert most_confident_cross(maps) == HeadId("cross", 2, 1)
    found = align_words(Tokenizer, maps, None)
    assert (found.heads, found.convention, found.is_stored) == ("cross.2.1", "naive", False)
    assert found.by_target == [("chat", "cat"), ("le", "the")]


def test_a_word_that_looks_at_the_end_of_sentence_most_has_the_link_of_its_heaviest_word():
    maps = maps_of([THE], [LE], [[1, 1]])
    assert align_words(Tokenizer, maps, None).links == {(0, 0)}


@pytest.mark.parametrize(("source", "target"), [([], [LE]), ([THE], []), ([10], [LE])])
def test_without_words_there_is_no_alignment(source, target):
    maps = maps_of(source, target, [[0] * (len(target) + 1)])
    assert align_words(Tokenizer, maps, None) is None


def test_bytes_that_are_no_text_are_shown_as_such():
    found = align_words(Tokenizer, maps_of([9], [LE], [[0, 0]]), None)
    assert found.source == ("\ufffd",)
