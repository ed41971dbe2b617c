"""Heads by their names, conditions and roles."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tformer_cli.errors import UsageError
from tformer_cli.heads.names import HeadId, HeadLayout
from tformer_cli.heads.roles import (
    FREQUENT,
    ROLES,
    UNKNOWN,
    RareTokens,
    TokenFrequencies,
    count_tokens,
    role_of,
)
from tformer_cli.heads.roles import METRICS as MEASURED
from tformer_cli.heads.selectors import HeadSelection, select_heads

LAYOUT = HeadLayout(enc=(2,) * 6, dec=(2,) * 3, cross=(2, 4, 2))


def select_names(*selections):
    return [str(head) for head in select_heads(selections, LAYOUT)]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("enc.0.1", ["enc.0.1"]),
        ("enc-self.0.1", ["enc.0.1"]),
        ("dec-self.2.*", ["dec.2.0", "dec.2.1"]),
        ("cross.1.0-2", ["cross.1.0", "cross.1.1", "cross.1.2"]),
        ("cross.1.2-", ["cross.1.2", "cross.1.3"]),
        ("cross.last", ["cross.2.0", "cross.2.1"]),
        ("cross.^2.last", ["cross.1.3"]),
        ("cross.{0,2}.0", ["cross.0.0", "cross.2.0"]),
        ("cross.{0,1-2}.^1", ["cross.0.1", "cross.1.3", "cross.2.1"]),
        ("self.2.0", ["enc.2.0", "dec.2.0"]),
        ("*.5.0", ["enc.5.0"]),
        ("*.last.0", ["enc.5.0", "dec.2.0", "cross.2.0"]),
        ("cross.*.3", ["cross.1.3"]),
        ("dec.0.1, enc.0.0 ,dec.0.1", ["enc.0.0", "dec.0.1"]),
        ("cross.1,!cross.1.0-2", ["cross.1.3"]),
        ("cross.0,!cross.0.0,cross.0.0", ["cross.0.0", "cross.0.1"]),
    ],
)
def test_a_selection_names_these_heads(selection, expected):
    assert select_names(selection) == expected


def test_without_a_selection_every_head_is_meant():
    assert select_names() == [str(head) for head in LAYOUT]
    assert len(select_names("*")) == 12 + 6 + 8


def test_a_selection_that_begins_with_a_negation_begins_with_every_head():
    assert select_names("!enc.0", "!self.1-2") == [
        h for h in select_names() if not h.startswith(("enc.0", "enc.1", "enc.2", "dec.1", "dec.2"))
    ]


def test_repeated_options_read_as_one_list():
    assert select_names("cross.0", "!cross.0.1") == ["cross.0.0"]


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        ("enc.6", "matches no head"), ("cross.0.2", "matches no head"),
        ("enc.2-9", "matches no head"), ("enc.^7", "matches no head"),
        ("enc.^0", "matches no head"), ("!dec.3", "matches no head"),
        ("enc.3-1", "counts backwards"), ("enc.x", 'part "x"'), ("enc.0.0.0", "is not KIND"),
        ("encoder", "is not KIND"), ("", "is not KIND"), ("enc.0,", "is not KIND"),
        ("enc.{0", 'part "{0"'), ("enc.0.0,!enc", "selects no head"),
    ],
)  # fmt: skip
def test_a_wrong_selection_is_refused_and_the_ranges_named(selection, reason):
    with pytest.raises(UsageError) as caught:
        select_names(selection)
    assert reason in str(caught.value)
    assert "enc.0-5.0-1, dec.0-2.0-1, cross.0-2.0-3" in str(caught.value)


METRICS = {head: {"entropy": 2.0, "confidence": 0.1} for head in LAYOUT} | {
    HeadId("enc", 0, 0): {"entropy": 0.5, "prev": 0.9, "confidence": 0.9},
    HeadId("enc", 3, 1): {"entropy": 1.0, "prev": 0.8, "confidence": 0.7},
    HeadId("dec", 1, 0): {"entropy": 0.9, "sink_bos": 0.7, "confidence": 0.8},
    HeadId("cross", 1, 3): {"entropy": 0.8, "diagonality": 0.6, "confidence": 0.6},
}


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("@prev>0.8", ["enc.0.0"]),
        ("@prev>=0.8", ["enc.0.0", "enc.3.1"]),
        ("@entropy<1", ["enc.0.0", "dec.1.0", "cross.1.3"]),
        ("self@entropy<=1", ["enc.0.0", "enc.3.1", "dec.1.0"]),
        ("@prev>0.5@entropy<1", ["enc.0.0"]),
        ("*@role=sink,enc.5.1", ["enc.5.1", "dec.1.0"]),
        ("@role=aligner", ["cross.1.3"]),
        ("!@role=other", ["enc.0.0", "enc.3.1", "dec.1.0", "cross.1.3"]),
        ("top:2@confidence", ["enc.0.0", "dec.1.0"]),
        ("top:1@confidence,top:1@prev", ["enc.0.0"]),
        ("cross:top:2@confidence", ["cross.0.0", "cross.1.3"]),
        ("enc.3-@prev>0:top:5@prev", ["enc.3.1"]),
        ("@prev>0.5,!top:1@prev", ["enc.3.1"]),
        ("top:3@diagonality", ["cross.1.3"]),
        ("@prev>0.95", []),
    ],
)
def test_metrics_decide_where_a_selection_says_so(selection, expected):
    heads = HeadSelection([selection], LAYOUT)
    assert heads.needs_metrics
    assert [str(head) for head in heads.select(METRICS)] == expected
    assert {head.kind for head in heads.select(METRICS)} <= set(heads.kinds)


@pytest.mark.parametrize(
    ("selection", "reason"),
    [
        ("@prv>0.8", "names no metric; the metrics are entropy,"),
        ("top:8@importance", "names no metric"),
        ("@prev", "has no condition such as"),
        ("@prev>much", "has no condition such as"),
        ("@prev=0.8", "has no condition such as"),
        ("@role=boss", "names no role; the roles are previous,"),
        ("enc.9@prev>0.8", "matches no head"),
        ("top:8", "is not KIND"),
    ],
)
def test_a_wrong_condition_is_refused(selection, reason):
    with pytest.raises(UsageError, match=reason):
        HeadSelection([selection], LAYOUT)


def test_where_nothing_is_measured_conditions_are_refused():
    with pytest.raises(UsageError, match="name the heads here"):
        select_heads(["enc.0,@prev>0.8"], LAYOUT)


@given(st.text(alphabet="encdros.*!^{}-,0123last @>:top=prv", max_size=20))
def test_any_text_is_a_selection_or_a_usage_error(text):
    try:
        heads = select_heads([text], LAYOUT)
    except UsageError:
        return
    assert heads
    assert set(heads) <= set(LAYOUT)


@pytest.mark.parametrize(
    ("metrics", "role"),
    [
        ({"prev": 0.51}, "previous"),
        ({"prev": 0.5, "self": 0.5}, "other"),
        ({"next": 0.3, "next_argmax": 0.9}, "next"),
        ({"next": 0.3, "next_argmax": 0.89}, "other"),
        ({"prev": 0.55, "sink_bos": 0.6}, "sink"),
        ({"prev": 0.55, "sink_bos": 0.59}, "previous"),
        ({"sink_eos": 0.6, "diagonality": 0.9, "confidence": 0.9}, "sink"),
        ({"diagonality": 0.5, "confidence": 0.51}, "aligner"),
        ({"diagonality": 0.0, "confidence": 1.0, "entropy_norm": 0.0}, "other"),
        ({"diagonality": 0.9, "confidence": 0.5, "entropy_norm": 0.9}, "broad"),
        ({"confidence": 0.9}, "other"),
        ({"entropy_norm": 0.78}, "broad"),
        ({"rare_argmax": 0.51, "entropy_norm": 0.77}, "rare"),
        ({"rare_argmax": 0.51, "entropy_norm": 0.78}, "broad"),
        ({"rare_argmax": 0.9, "self": 0.6}, "self"),
        ({"rare_argmax": 0.5}, "other"),
        ({}, "other"),
    ],
)
def test_a_role_follows_from_the_metrics(metrics, role):
    assert role_of(metrics) == role


def test_every_rule_names_its_source_and_metrics_that_exist():
    assert len({rule.role for rule in ROLES}) == len(ROLES) == 8
    for rule in ROLES:
        assert rule.source
        names = [word for word in rule.formula.replace(",", "").split() if "_" in word]
        assert set(names) <= set(MEASURED)


EOS = 3


def frequencies(**rare):
    """600 tokens, the first 500 of them frequent, of the others token n as often as `tn` says."""
    counts = [1000] * FREQUENT + [10] * 100
    for name, count in rare.items():
        counts[int(name[1:])] = count
    return TokenFrequencies(counts)


def test_the_two_rarest_tokens_are_found_wherever_they_stand():
    rare = frequencies(t550=2, t560=1).rare_tokens((7, 550, 8, 560, 9, 550, 570, EOS))
    assert rare == RareTokens(positions=(1, 3, 5))


def test_of_tokens_as_rare_the_first_are_meant():
    assert frequencies().rare_tokens((590, 7, 8, 550, 9, 560, EOS)).positions == (0, 3)


def test_a_frequent_token_may_be_the_second_rarest():
    assert frequencies().rare_tokens((7, 8, 9, 550, 11, 12, EOS)).positions == (0, 3)


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ((7, 8, 9, 10, 11, 12, EOS), "no token outside the 500 most frequent"),
        ((550, 551, 552, 553, 554, EOS), "fewer than 6 tokens"),
        ((EOS,), "fewer than 6 tokens"),
    ],
)
def test_a_sentence_that_tells_nothing_says_why(ids, reason):
    assert frequencies().rare_tokens(ids) == RareTokens(reason=reason)
    assert UNKNOWN.reason


def test_a_gap_is_no_rare_token():
    counts = [1000] * FREQUENT + [10] * 100
    counts[5] = 0  # training texts have no gaps
    tokens = TokenFrequencies(counts, mask_id=5)
    assert tokens.rare_tokens((5, 7, 8, 550, 9, 10, EOS)).positions == (1, 3)
    assert not tokens.rare_tokens((5, 7, 8, 9, 10, 11, EOS)).positions
    assert not tokens.rare_tokens((5, 5, 5, 5, 5, 5, EOS)).positions


def test_tokens_are_counted():
    assert count_tokens([[1, 2, 2], [], [4]], 6).tolist() == [0, 1, 2, 0, 1, 0]
    assert count_tokens([], 3).tolist() == [0, 0, 0]
