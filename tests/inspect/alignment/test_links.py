import numpy as np
import pytest

from tests.inspect.conftest import dictionary_model
from tformer_cli.errors import UsageError
from tformer_cli.heads.names import HeadId, HeadLayout
from tformer_cli.inspect.alignment.links import (
    LinkRule,
    cross_heads,
    default_selection,
    head_mean,
    linked,
    links_of,
    word_weights,
)
from tformer_cli.inspect.alignment.words import WordTokens
from tformer_cli.inspect.capture.forced import capture_maps

SOURCE, TARGET = (4, 5, 6, 7), (10, 13, 11, 12)
ORDER = {(2, 0), (0, 1), (3, 2), (1, 3)}
"""Which source word each target word stands for; nothing on the diagonal."""


def links(looks_for, convention):
    maps = capture_maps(dictionary_model(looks_for), SOURCE, TARGET)
    source, target = (WordTokens(ids, np.eye(len(ids))) for ids in (SOURCE, TARGET))
    weights = word_weights(head_mean(maps, [HeadId("cross", 0, 0)]), source, target, convention)
    return links_of(linked(weights, LinkRule()))


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
    assert links_of(linked(weights, LinkRule())) == {(0, 0), (0, 1)}
    assert links_of(linked(weights, LinkRule(keeps_eos=True))) == {(0, 0)}
    assert links_of(linked(weights, LinkRule(threshold=0.3))) == {(0, 0), (1, 0)}
    assert links_of(linked(weights, LinkRule(threshold=0.0))) == {(0, 0), (1, 0), (0, 1), (1, 1)}
    assert linked(np.zeros((3, 1)), LinkRule()).shape == (3, 0)


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
