import os
from pathlib import Path

import pytest

from tformer_cli.inspect.alignment import symmetrize
from tformer_cli.metrics.alignment_error import (
    AlignmentCounts,
    best_single_links,
    diagonal_links,
)
from tformer_cli.text.pharaoh import GoldLinks, parse_links


def gold(line):
    return parse_links(line, "gold:1")


def counted(*sentences):
    counts = AlignmentCounts()
    for links, line in sentences:
        counts.add(links, gold(line))
    return counts


@pytest.mark.parametrize(
    ("links", "line", "expected"),
    [
        ({(0, 0), (1, 1)}, "0-0 1-1", (0.0, 1.0, 1.0)),
        ({(0, 1), (1, 0)}, "0-0 1-1", (1.0, 0.0, 0.0)),
        (set(), "0-0", (1.0, 1.0, 0.0)),
        ({(0, 0), (0, 1)}, "0-0 0?1", (0.0, 1.0, 1.0)),  # possible links are no errors
        ({(0, 1)}, "0-0 0?1", (0.5, 1.0, 0.0)),  # nor do they make up for sure ones
        ({(0, 0), (2, 2)}, "0-0 1-1", (0.5, 0.5, 0.5)),
    ],
)
def test_measures_of_known_cases(links, line, expected):
    counts = counted((links, line))
    assert (counts.error_rate, counts.precision, counts.recall) == pytest.approx(expected)


def test_sums_are_of_the_corpus_and_lines_must_correspond():
    right = counted(({(0, 0)}, "0-0"), ({(1, 2), (2, 1)}, "1-2 2-1 3?3"))
    assert (right.found, right.sure, right.error_rate) == (3, 3, 0.0)
    assert counted(({(1, 2), (2, 1)}, "0-0"), ({(0, 0)}, "1-2 2-1 3?3")).error_rate == 1.0


def test_floor_and_ceiling():
    assert diagonal_links(3, 5) == {(0, 0), (1, 1), (1, 2), (2, 3), (2, 4)}
    assert diagonal_links(5, 1) == {(0, 0)}
    assert diagonal_links(0, 2) == diagonal_links(2, 0) == set()
    assert best_single_links(gold("0?0 1-0 2?1 3-3 4-3")) == {(1, 0), (2, 1), (3, 3)}
    assert best_single_links(GoldLinks(frozenset(), frozenset())) == set()


FOLDER = os.environ.get("TFORMER_ALIGNMENTS")
PUBLISHED = {
    "giza": {"forward": 8.0, "reverse": 9.8, "intersection": 7.6, "union": 9.9, "grow-diag": 5.9},
    "fastalign": {
        "forward": 16.4,
        "reverse": 15.9,
        "intersection": 11.2,
        "union": 19.5,
        "grow-diag": 10.5,
    },
}
"""AER of the outputs of GIZA++ and fast_align on the WPT 2003 test set, as published with them."""


@pytest.mark.skipif(FOLDER is None, reason="TFORMER_ALIGNMENTS names no folder of alignments")
@pytest.mark.parametrize("aligner", PUBLISHED)
def test_published_error_rates_of_classic_aligners(aligner):
    folder = Path(FOLDER) / "hansards-en-fr"

    def read(name):
        lines = (folder / f"{name}.pharaoh").read_text(encoding="utf-8").splitlines()
        return [parse_links(line, name) for line in lines]

    forward = [line.sure for line in read(f"sys.{aligner}.forward")]
    reverse = [{(s, t) for t, s in line.sure} for line in read(f"sys.{aligner}.reverse")]
    answers = read("gold")
    for method, published in PUBLISHED[aligner].items():
        counts = AlignmentCounts()
        for there, back, answer in zip(forward, reverse, answers, strict=True):
            alone = {"forward": there, "reverse": back}.get(method)
            counts.add(symmetrize(method, there, back) if alone is None else alone, answer)
        assert 100 * counts.error_rate == pytest.approx(published, abs=0.1), method
