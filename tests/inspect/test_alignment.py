""""""

from dataclasses import replace

import numpy as np
import pytest

from tests.inspect.conftest import dictionary_model
from tformer_cli.artifacts.config_file import AlignmentInfo
from tformer_cli.errors import DataError, UsageError
from tformer_cli.heads.names import HeadId, HeadLayout
from tformer_cli.inspect.alignment import (
    METHODS,
    LinkRule,
    WordTokens,
    align_words,
    choose_heads,
    cross_heads,
    default_selection,
    head_mean,
    link_words,
    links_of,
    spelled_words,
    symmetrize,
    word_weights,
    words_of_ids,
    words_of_text,
)
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.inspect.capture.maps import AttentionMaps
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.pharaoh import format_links, parse_links
from tformer_cli.text.train_tokenizer import train_tokenizer

SOURCE, TARGET = (4, 5, 6, 7), (10, 13, 11, 12)


ORDER = {(2, 0), (0, 1), (3, 2), (1, 3)}
"""Which source word each target word stands for; nothing on the diagonal."""


def links(looks_for, convention):
    maps = capture_maps(dictionary_model(looks_for), SOURCE, TARGET)
    source, target = (WordTokens(ids, np.eye(len(ids))) for ids in (SOURCE, TARGET))
    weights = word_weights(head_mean(maps, [HeadId("cross", 0, 0)]), source, target, convention)
    return links_of(link_words(weights, LinkRule()))


def test_a_dictionary_head_pins_which_row_is_a_target_tokens():
    of_target = {TARGET[t]: SOURCE[s] for s, t in ORDER}
    # the head that looks for the word it has just read
    assert links(of_target, "shift") == ORDER
    assert links(of_target, "naive") != ORDER
    # the head that looks for the word it is to write next: begin of sentence → first word, …
    of_next = {read: of_target[token] for read, token in zip((2, *TARGET), TARGET, strict=False)}
    assert links(of_next, "naive") == ORDER
    assert links(of_next, "shift") != ORDER


def test_source_tokens_add_up_and_target_tokens_are_averaged():
    # three target tokens in two words; four source tokens in two words, one of only a space
    target = WordTokens((0, 0, 0), np.array([[1.0, 0], [0, 1], [0, 1]]))
    source = WordTokens((0, 0, 0, 0), np.array([[1.0, 0], [1, 0], [0, 0], [0, 1]]))
    weights = np.array(
        [
            [0.1, 0.2, 0.3, 0.1, 0.3],
            [0.0, 0.0, 0.0, 1.0, 0.0],
            [0.5, 0.1, 0.0, 0.0, 0.4],
            [0.0, 0.0, 0.0, 0.0, 1.0],
        ]
    )
    naive = word_weights(weights, source, target, "naive")
    np.testing.assert_allclose(naive, [[0.3, 0.1, 0.3], [0.3, 0.5, 0.2]])
    shift = word_weights(weights, source, target, "shift")
    np.testing.assert_allclose(shift, [[0.0, 1.0, 0.0], [0.3, 0.0, 0.7]])
    np.testing.assert_allclose(word_weights(weights[None], source, target, "shift")[0], shift)


def test_rules_of_linking():
    weights = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert links_of(link_words(weights, LinkRule())) == {(0, 0), (0, 1)}
    assert links_of(link_words(weights, LinkRule(keeps_eos=True))) == {(0, 0)}
    assert links_of(link_words(weights, LinkRule(threshold=0.3))) == {(0, 0), (1, 0)}
    assert links_of(link_words(weights, LinkRule(threshold=0.0))) == {
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
    }
    assert link_words(np.zeros((3, 1)), LinkRule()).shape == (3, 0)


def test_only_cross_attention_aligns():
    layout = HeadLayout((2, 2), (2, 2), (2, 2))
    assert cross_heads(["cross.1"], layout) == [HeadId("cross", 1, 0), HeadId("cross", 1, 1)]
    with pytest.raises(UsageError, match=r"selects enc.0.0, but only cross-attention sees both"):
        cross_heads(["enc.0", "cross"], layout)
    assert default_selection(layout) == "cross.1"
    assert default_selection(HeadLayout((), (1,), (1,))) == "cross.0"
    assert default_selection(HeadLayout((), (1,), (1,) * 6)) == "cross.3-5"


def test_by_default_layers_without_heads_are_passed_over():
    assert default_selection(HeadLayout((), (1,), (2, 0, 2, 0, 1))) == "cross.2-4"
    assert default_selection(HeadLayout((), (1,), (0, 2, 0))) == "cross.1"
    with pytest.raises(UsageError, match="no cross-attention head left"):
        default_selection(HeadLayout((2,), (1,), (0, 0)))


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
    joined = symmetrize(method, FORWARD, REVERSE)
    assert FORWARD & REVERSE <= joined <= FORWARD | REVERSE
    assert symmetrize(method, FORWARD, FORWARD) == FORWARD


def test_final_and_takes_links_of_free_words_of_one_direction():
    joined = symmetrize("grow-diag-final-and", {(0, 0), (0, 1), (4, 4)}, set())
    assert parse_links(format_links(joined), "x").sure == {(0, 0), (4, 4)}


TEXTS = ["A man  didn't sleep, été 日本 ?", " lead  x😀y ", "a\u00a0b\u2028c d"]


@pytest.fixture(scope="module", params=["bpe", "unigram", "word", "char", "byte"])
def tokenizer(request):
    return train_tokenizer(TEXTS * 4, TokenizerConfig(algorithm=request.param, vocab_size=330))


@pytest.mark.parametrize("text", [*TEXTS, "", "unseen Ω words"])
def test_every_token_of_letters_is_in_the_word_that_it_spells(tokenizer, text):
    spelled = words_of_text(tokenizer, text)[0]
    words = text.encode().split()
    assert list(spelled.ids) == tokenizer.encode(text)
    assert spelled.n_words == len(words)
    spans = tokenizer.encode_with_spans([text])[0][1]
    pieces = tokenizer.pieces(spelled.ids)
    for piece, share, (start, end) in zip(pieces, spelled.shares, spans, strict=True):
        letters = [] if piece == "▁" else text[start:end].split()
        expected = [float(len(letters) > 0 and letters[0] in w.decode()) for w in words]
        if letters and sum(expected) == 1.0:
            assert share.tolist() == expected
        assert share.sum() == pytest.approx(float(bool(letters)))


def test_tokens_say_the_same_of_their_words_as_the_text(tokenizer):
    if tokenizer.algorithm in ("word", "char"):
        pytest.skip("what is unknown leaves no letters")
    for text in TEXTS:
        by_text, by_ids = (
            words_of_text(tokenizer, text)[0],
            words_of_ids(tokenizer, tokenizer.encode(text)),
        )
        assert by_ids.n_words == by_text.n_words
        np.testing.assert_array_equal(by_ids.shares > 0, by_text.shares > 0)


def test_broken_utf8_of_a_hypothesis_stays_in_its_word(tokenizer):
    if tokenizer.algorithm != "byte":
        pytest.skip("only bytes can be put together wrongly")
    ids = tokenizer.encode("é a 日")
    spelled = words_of_ids(tokenizer, [*ids[:1], *ids[2:-1]])  # é and 日 without their last bytes
    assert spelled.n_words == len(tokenizer.decode(spelled.ids).split()) == 3
    assert spelled.shares.argmax(axis=1).tolist() == [0, 0, 1, 0, 2, 2]


def test_given_words_share_a_token_by_its_letters():
    tokenizer = train_tokenizer(["didn't x"] * 9, TokenizerConfig(vocab_size=280))
    spelled = words_of_text(tokenizer, "didn't x", words=["did", "n't", "x"])[0]
    assert tokenizer.pieces(spelled.ids) == ["▁didn", "'t", "▁x"]
    np.testing.assert_allclose(spelled.shares, [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 1]])
    with pytest.raises(
        DataError, match=r'the line: the words spell "N\'tx", but the text has "n\'tx"; give'
    ):
        words_of_text(tokenizer, "didn't x", words=["did", "N't", "x"])
    with pytest.raises(DataError, match=r'the words spell "", but the text has "x"; give'):
        words_of_text(tokenizer, "didn't x", words=["did", "n't"])


def test_parts_of_a_line_have_the_words_of_the_line():
    tokenizer = train_tokenizer(["ab cd"] * 9, TokenizerConfig(algorithm="byte"))
    first, second = words_of_text(tokenizer, "ab  cd e", parts=["ab c", "d e"])
    assert first.shares.argmax(axis=1).tolist() == [0, 0, 0, 1]
    assert second.shares.argmax(axis=1).tolist() == [1, 0, 2]
    assert first.n_words == second.n_words == 3
    assert len(words_of_text(tokenizer, "ab cd", longest=2)[0].ids) == 2


def test_words_are_spelled_and_every_token_knows_its_own(tokenizer):
    if tokenizer.algorithm in ("word", "char"):
        pytest.skip("what is unknown leaves no letters")
    for text in TEXTS[:2]:  # without spaces that are no ASCII
        ids = tokenizer.encode(text)
        spelled = spelled_words(tokenizer, ids)
        assert [word.encode() for word in spelled.texts] == text.encode().split()
        assert len(spelled.of_token) == len(ids)
        by_word = dict.fromkeys(range(len(spelled.texts)), b"")
        for token, word in zip(ids, spelled.of_token, strict=True):
            if word is not None:
                by_word[word] += tokenizer.piece_bytes[token].strip()
        joined = b"".join(by_word.values())
        assert b"".join(joined.split()) == b"".join(text.encode().split())


class Side:
    """Token n is the n-th of these pieces."""

    mask_id = None
    piece_bytes = (b"", b"", b"", b"", b" the", b" c", b"at", b" le", b" chat", b" \xff", b" ")


class Tokenizer:
    source = target = Side


def maps_of(source_ids, target_ids, *cross):
    """Cross maps, a list of layers of heads of rows, over one-hot rows given by their column."""
    n = len(source_ids) + 1
    rows = np.array(cross)  # (L, H, T)
    return AttentionMaps(
        source_ids=(*source_ids, 3),
        target_input_ids=(2, *target_ids),
        enc=(),
        dec=(),
        cross=tuple((0.8 * np.eye(n)[rows] + 0.2 / n).astype(np.float32)),
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
        aligned = align_words(Tokenizer, maps, choose_heads(HeadLayout((), (), (2,)), stored))
        assert (aligned.source, aligned.target) == (("the", "cat"), ("chat", "le"))
        assert aligned.by_target == [("chat", "cat"), ("le", "the")]
        assert (aligned.choice.heads, aligned.convention) == (stored.heads, convention)
        assert aligned.choice.description == f"{stored.heads} (stored)"
        assert aligned.order[0] == HeadId("cross", 0, head)


def test_without_stored_heads_the_mean_of_the_last_layers_is_read_however_sure_another_head_is():
    wrong = [3, 3, 3]  # the most confident head of all is in the first layer
    maps = maps_of([THE, C, AT], [CHAT, LE], [wrong, wrong], [NAIVE, wrong], [NAIVE, NAIVE])
    maps = replace(
        maps, cross=(np.round(maps.cross[0]), np.zeros((0, 3, 4), np.float32), *maps.cross[1:])
    )
    aligned = align_words(Tokenizer, maps, default_of(maps))
    assert (aligned.choice.heads, aligned.convention) == ("cross.2-3", "naive")
    assert aligned.choice.description == "mean of cross.2-3 (not measured)"
    assert aligned.by_target == [("chat", "cat"), ("le", "the")]
    # one of the mean that agrees with it comes first, what is of no part in it last
    assert aligned.order[0] in (HeadId("cross", 2, 0), HeadId("cross", 3, 0), HeadId("cross", 3, 1))
    assert [head.layer for head in aligned.order[-2:]] == [0, 0]


@pytest.mark.parametrize(("rows", "convention"), [([0, 1, 2, 3], "naive"), ([3, 0, 1, 2], "shift")])
def test_tokens_that_stay_say_which_row_is_theirs(rows, convention):
    same = maps_of([THE, CHAT, AT], [LE, CHAT, AT], [[3, 3, 3, 3]], [rows])
    aligned = align_words(Tokenizer, same, default_of(same))
    assert aligned.convention == convention
    assert aligned.links == {(0, 0), (1, 1)}
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
    aligned = align_words(Tokenizer, maps, default_of(maps))
    assert aligned.source == ("\ufffd",)
