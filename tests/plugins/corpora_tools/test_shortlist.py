"""The links that shortlists are made of, against attention maps captured one pair at a time."""

from collections import Counter

import numpy as np
import pytest

from tformer_cli.errors import DataError
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.inspect.jobs.align import Aligner, AlignmentReport, PairTexts, read_pairs
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.corpora_tools import shortlist as lexicon_module
from tformer_cli.plugins.corpora_tools import shortlist as workflow
from tformer_cli.plugins.corpora_tools.shortlist import Lexicon
from tformer_cli.text.pharaoh import GoldLinks
from tformer_cli.text.tokenizer import EOS_ID

SOURCES = ["A man sleeps.", "", "Two dogs run in the snow.", "dog " * 50, "the street"]


TARGETS = ["A woman.", "the", "the street and a dog", "dog", "snow"]


@pytest.fixture(scope="module")
def opened(model):
    return open_model(model, device="cpu", precision="float32")


def test_each_target_token_is_linked_with_the_source_token_it_attends_to_most(opened):
    report = AlignmentReport()
    aligner = Aligner(opened.directory, ["cross.0.1"])
    links_of_pairs = list(workflow.linked_by_model(aligner, read_pairs(SOURCES, TARGETS), report))
    assert (report.lines, report.truncated) == (5, 1)
    side = opened.directory.tokenizer.source
    expected = []
    for number in (0, 2, 4):
        source, target = side.encode(SOURCES[number]), side.encode(TARGETS[number])
        maps = capture_maps(opened.directory.model, source, target)
        on_source = maps.weights(aligner.choice.members[0])[: len(target), : len(source)]
        links = {(s, t) for t, s in enumerate(on_source.argmax(axis=1).tolist())}
        expected.append((tuple(source), tuple(target), links))
    assert links_of_pairs == expected


def test_translations_take_the_place_of_missing_targets(opened):
    pairs = list(workflow.translated_pairs(opened.translator, SOURCES))
    assert [pair.source for pair in pairs] == SOURCES
    texts = [translation.text for translation in opened.translator.translate(SOURCES)]
    assert [pair.target for pair in pairs] == texts


def link_pieces(opened, pair, links, units="words"):
    report = AlignmentReport()
    gold = [GoldLinks(frozenset(), frozenset(links))]
    ((source, target, token_links),) = workflow.linked_as_given(
        opened.directory, [pair], gold, units, report
    )
    side = opened.directory.tokenizer.source
    return {(side.decode([source[s]]), side.decode([target[t]])) for s, t in token_links}


def test_words_that_are_linked_link_their_tokens(opened):
    pair = PairTexts(0, "the xyz", "snow . A", None, ("snow", ".A"))
    assert link_pieces(opened, pair, [(1, 1)]) == {(s, t) for s in "xyz" for t in (".", "A")}


def test_pieces_that_are_linked_are_tokens(opened):
    pair = PairTexts(0, "the dogs", "the dogs")
    tokens = opened.directory.tokenizer.source.encode("the dogs")
    side = opened.directory.tokenizer.source
    words = [side.decode([token]) for token in tokens]
    links = [(0, len(tokens) - 1), (1, 0)]
    assert link_pieces(opened, pair, links, "pieces") == {
        (words[0], words[-1]),
        (words[1], words[0]),
    }


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ("words", "line 1: --alignments links 0-2, but there are 2 and 2 words; give the words"),
        ("pieces", r"line 1: --alignments links 0-9, .* pieces; count those that `tformer tok"),
    ],
)
def test_links_of_words_that_are_not_there_are_an_error(opened, units, message):
    with pytest.raises(DataError, match=message):
        link_pieces(
            opened, PairTexts(0, "the dog", "the dog"), [(0, 2 if units == "words" else 9)], units
        )


def test_long_and_blank_pairs_are_skipped(opened):
    report = AlignmentReport()
    links = [GoldLinks(frozenset(), frozenset({(0, 0)}))] * 5
    pairs = read_pairs(SOURCES, TARGETS)
    for units in ("words", "pieces"):
        pairs_linked = list(workflow.linked_as_given(opened.directory, pairs, links, units, report))
        pairs = read_pairs(SOURCES, TARGETS)
        assert len(pairs_linked) == 3
    assert (report.lines, report.truncated) == (10, 2)


N_SOURCES, N_TARGETS = 30, 40


def random_pairs(n=60):
    dice = np.random.default_rng(3)
    for _ in range(n):
        source = dice.integers(4, N_SOURCES, dice.integers(1, 9)).tolist()
        target = (4 + dice.zipf(1.5, dice.integers(1, 9)) % (N_TARGETS - 4)).tolist()
        links = {(dice.integers(len(source)), dice.integers(len(target))) for _ in range(5)}
        yield source, target, links


@pytest.fixture(params=[1, 7, 1 << 20], ids="counted every {}".format)
def counted(request, monkeypatch):
    monkeypatch.setattr(lexicon_module, "MOST_PENDING", request.param)
    lexicon, counts, frequencies = Lexicon(N_SOURCES, N_TARGETS), Counter(), Counter()
    for source, target, links in random_pairs():
        lexicon.add(source, target, links)
        counts.update((source[s], target[t]) for s, t in links)
        frequencies.update(target)
    return lexicon, counts, frequencies


def best_of(counts, source, n):
    ranked = [(-count, t) for (s, t), count in counts.items() if s == source]
    return [t for _, t in sorted(ranked)[:n]]


@pytest.mark.parametrize("n_best", [None, 1, 3])
def test_entries_are_the_most_probable_targets_of_each_source(counted, n_best):
    lexicon, counts, _ = counted
    totals = Counter()
    for (source, _), count in counts.items():
        totals[source] += count
    expected = [
        (source, target, counts[source, target] / totals[source])
        for source in sorted(totals)
        for target in best_of(counts, source, n_best)
    ]
    columns = (column.tolist() for column in lexicon.entries(n_best))
    assert list(zip(*columns, strict=True)) == expected
    assert lexicon.n_linked == len(totals)


@pytest.mark.parametrize("is_joint", [False, True])
def test_a_sentence_may_have_its_best_targets_frequent_tokens_and_copies(counted, is_joint):
    lexicon, counts, frequencies = counted
    shortlist = lexicon.shortlist(5, 2, is_joint=is_joint)
    assert (len(shortlist.offsets), shortlist.offsets[-1]) == (
        N_SOURCES + 1,
        len(shortlist.targets),
    )
    frequent = sorted(frequencies, key=lambda token: (-frequencies[token], token))[:5]
    for source in range(4, N_SOURCES):
        best = best_of(counts, source, 2)
        expected = {*range(EOS_ID + 1), *frequent, *best, *([source] if is_joint else [])}
        assert shortlist.candidates([source, EOS_ID]) == tuple(sorted(expected))


def test_tokens_that_never_occur_are_not_frequent():
    lexicon = Lexicon(6, 9)
    lexicon.add([4], [7, 8], [(0, 0)])
    assert lexicon.shortlist(100, 100, is_joint=False).candidates([EOS_ID]) == (0, 1, 2, 3, 7, 8)
