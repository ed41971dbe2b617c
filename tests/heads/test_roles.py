""""""

import pytest

from tformer_cli.heads.roles import (
    FREQUENT,
    METRICS,
    ROLES,
    UNKNOWN,
    RareTokens,
    TokenFrequencies,
    count_tokens,
    role_of,
)


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
        assert set(names) <= set(METRICS)


EOS = 3


def frequencies(**rare):
    """600 tokens, the first 500 of them frequent, of the others token n as often as `tn` says."""
    counts = [1000] * FREQUENT + [10] * 100
    for name, count in rare.items():
        counts[int(name[1:])] = count
    return TokenFrequencies(counts)


def test_the_two_rarest_tokens_are_found_wherever_they_stand():
    found = frequencies(t550=2, t560=1).rare_tokens((7, 550, 8, 560, 9, 550, 570, EOS))
    assert found == RareTokens(positions=(1, 3, 5))


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
    found = TokenFrequencies(counts, mask_id=5)
    assert found.rare_tokens((5, 7, 8, 550, 9, 10, EOS)).positions == (1, 3)
    assert not found.rare_tokens((5, 7, 8, 9, 10, 11, EOS)).positions
    assert not found.rare_tokens((5, 5, 5, 5, 5, 5, EOS)).positions


def test_tokens_are_counted():
    assert count_tokens([[1, 2, 2], [], [4]], 6).tolist() == [0, 1, 2, 0, 1, 0]
    assert count_tokens([], 3).tolist() == [0, 0, 0]
