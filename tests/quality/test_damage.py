"""Damage of every kind at known lines: found there, and hardly anywhere else."""

import pytest

from tests.quality.damage import KINDS, measure, write_damaged
from tformer_cli.corpora.grammar.generate import generate_corpus
from tformer_cli.quality.checks import CHECKS, MALFORMED, SCORE, checks_for
from tformer_cli.quality.facts import PAIRS

LOWEST_RECALL = {"joined with others": 0.8, "cut off": 0.8, "sides swapped": 0.6}
"""Of kinds that short sentences hide; of all others 0.95 are found."""


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    made = [(pair.source, pair.target) for _, pair in generate_corpus(3000, seed=3)]
    directory = tmp_path_factory.mktemp("damage")
    return measure(write_damaged(made[:3000], made[3000:], directory, ("en", "fr"), 20))


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_found(figures, kind):
    assert figures.recall[kind] >= LOWEST_RECALL.get(kind, 0.95)


def test_what_is_found_was_damaged(figures):
    of_pairs = [name for name, check in CHECKS.items() if check.of_pair or check.of_side]
    assert {
        name: figures.precision[name] for name in of_pairs if figures.precision[name] < 0.8
    } == {}
    assert figures.false_alarms < 0.05


def test_every_check_has_its_damage():
    assert {check for _, check in KINDS.values()} == {
        name
        for name in checks_for(PAIRS)
        if not name.startswith("repeated-") and name not in (SCORE, MALFORMED)
    }
