from dataclasses import replace

import pytest
import torch

from tformer_cli.artifacts.config_file import AlignmentInfo
from tformer_cli.heads.names import HeadId, HeadLayout
from tformer_cli.inspect.alignment.chosen import align_words, choose_heads
from tformer_cli.inspect.capture.forced import AttentionMaps


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


def default_of(maps):
    """The choice where nothing is stored."""
    return choose_heads(HeadLayout((), (), tuple(map(len, maps.cross))), None)


THE, C, AT, LE, CHAT = 4, 5, 6, 7, 8
NAIVE, SHIFTED = [1, 0, 3], [3, 1, 0]


def test_pieces_become_words_and_rows_are_read_by_their_convention():
    maps = maps_of([THE, C, AT], [CHAT, LE], [NAIVE, SHIFTED])
    for head, convention in ((0, "naive"), (1, "shift")):
        stored = AlignmentInfo(heads=f"cross.0.{head}", convention=convention)
        found = align_words(Tokenizer, maps, choose_heads(HeadLayout((), (), (2,)), stored))
        assert (found.source, found.target) == (("the", "cat"), ("chat", "le"))
        assert found.by_target == [("chat", "cat"), ("le", "the")]
        assert (found.choice.heads, found.convention) == (stored.heads, convention)
        assert found.choice.said == f"{stored.heads} (stored)"
        assert found.order[0] == HeadId("cross", 0, head)


def test_without_stored_heads_the_mean_of_the_last_layers_is_read_however_sure_another_head_is():
    wrong = [3, 3, 3]  # the most confident head of all is in the first layer
    maps = maps_of([THE, C, AT], [CHAT, LE], [wrong, wrong], [NAIVE, wrong], [NAIVE, NAIVE])
    maps = replace(maps, cross=(torch.round(maps.cross[0]), torch.zeros(0, 3, 4), *maps.cross[1:]))
    found = align_words(Tokenizer, maps, default_of(maps))
    assert (found.choice.heads, found.convention) == ("cross.2-3", "naive")
    assert found.choice.said == "mean of cross.2-3 (not measured)"
    assert found.by_target == [("chat", "cat"), ("le", "the")]
    # one of the mean that agrees with it comes first, what is of no part in it last
    assert found.order[0] in (HeadId("cross", 2, 0), HeadId("cross", 3, 0), HeadId("cross", 3, 1))
    assert [head.layer for head in found.order[-2:]] == [0, 0]


@pytest.mark.parametrize(("rows", "convention"), [([0, 1, 2, 3], "naive"), ([3, 0, 1, 2], "shift")])
def test_tokens_that_stay_say_which_row_is_theirs(rows, convention):
    same = maps_of([THE, CHAT, AT], [LE, CHAT, AT], [[3, 3, 3, 3]], [rows])
    found = align_words(Tokenizer, same, default_of(same))
    assert found.convention == convention
    assert found.links == {(0, 0), (1, 1)}
    # nothing stays, or twice over: read as most models have to be
    for target in ([LE, LE, LE], [CHAT, CHAT, LE]):
        other = maps_of([THE, CHAT, AT], target, [rows])
        assert align_words(Tokenizer, other, default_of(other)).convention == "naive"


def test_a_word_that_looks_at_the_end_of_sentence_most_has_the_link_of_its_heaviest_word():
    maps = maps_of([THE], [LE], [[1, 1]])
    assert align_words(Tokenizer, maps, default_of(maps)).links == {(0, 0)}


def test_a_model_without_cross_attention_aligns_no_words():
    assert align_words(Tokenizer, maps_of([THE], [LE], [[0, 0]]), None) is None


@pytest.mark.parametrize(("source", "target"), [([], [LE]), ([THE], []), ([10], [LE])])
def test_without_words_there_is_no_alignment(source, target):
    maps = maps_of(source, target, [[0] * (len(target) + 1)])
    assert align_words(Tokenizer, maps, default_of(maps)) is None


def test_bytes_that_are_no_text_are_shown_as_such():
    maps = maps_of([9], [LE], [[0, 0]])
    found = align_words(Tokenizer, maps, default_of(maps))
    assert found.source == ("\ufffd",)
