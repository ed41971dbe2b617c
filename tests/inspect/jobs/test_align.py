"""Alignments of what a search listened to, against the forced pass that other pairs take."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from tests.slowly import slowly
from tformer_cli.artifacts.config_file import AlignmentInfo
from tformer_cli.artifacts.model_directory import store_alignment
from tformer_cli.inspect.capture import forced
from tformer_cli.inspect.jobs.align import Aligner
from tformer_cli.kinds.opening import open_model
from tformer_cli.search.constraints import LineConstraints

LINES = [
    "A man sleeps.",
    "Two dogs run in the snow.",
    "",
    "A woman and a dog.",
    "long words and dogs " * 30,
    "“Déjà vu” — 你好　world 🙂 in the snow",
    "A man sleeps.  Two dogs run.",
    " \N{NO-BREAK SPACE}the\tstreet ",
]
HEADS = [(), ("cross.0.0",), ("cross.0.1",), ("cross",)]


def alignments(aligner, translations):
    return [
        (line.links, line.soft)
        for lines in aligner.align_translations(translations)
        for line in lines
    ]


def deaf(translations):
    """The same translations without what was heard, so that a forced pass aligns them."""
    return [
        replace(t, hypotheses=tuple(replace(h, attention=()) for h in t.hypotheses))
        for t in translations
    ]


@pytest.fixture
def passes(monkeypatch):
    """Counts the pairs that forced passes take."""
    pairs_forced = []
    plain = forced.capture_pairs

    def count_calls(model, pairs, *rest):
        pairs_forced.extend(pairs)
        return plain(model, pairs, *rest)

    monkeypatch.setattr(forced, "capture_pairs", count_calls)
    return pairs_forced


def check_same(ours, theirs, tolerance):
    assert len(ours) == len(theirs)
    for (links, soft), (other_links, other_soft) in zip(ours, theirs, strict=True):
        assert np.shape(soft) == np.shape(other_soft)
        np.testing.assert_allclose(soft, other_soft, rtol=0, atol=tolerance)
        assert links == other_links


@pytest.mark.parametrize("heads", HEADS, ids=" ".join)
@pytest.mark.parametrize(
    ("convention", "beam_size"), [(None, 4), ("naive", 1), ("shift", 4), *slowly(("naive", 4))]
)
def test_what_was_heard_aligns_as_a_forced_pass_does(model, passes, heads, convention, beam_size):
    opened = open_model(
        model, device="cpu", n_best=beam_size, beam_size=beam_size, split_sentences="rule"
    )
    aligner = Aligner(opened.directory, heads, convention)
    translations = aligner.listening(opened.translator).translate(LINES)
    assert translations == opened.translator.translate(LINES)
    assert [len(t.hypotheses[0].attention) for t in translations] == [
        t.n_parts for t in translations
    ]
    aligned = alignments(aligner, translations)
    assert passes == []
    # Four decimals are written, and rounding may send them to either side
    check_same(aligned, alignments(aligner, deaf(translations)), 1.1e-4)
    assert len(passes) > len(LINES)


def test_torch_gives_the_same_alignments(model, passes):
    aligned = []
    # Between combinations of equal parts, which tie, the last bits decide
    lines = [line for line in LINES if line.count("long") < 2]
    for engine in ("compiled", "torch"):
        opened = open_model(model, device="cpu", engine=engine, n_best=2, beam_size=3)
        aligner = Aligner(opened.directory)
        aligned.append(alignments(aligner, aligner.listening(opened.translator).translate(lines)))
    check_same(*aligned, 1.1e-4)
    assert passes == []


def test_demands_on_lines_are_listened_to(model, passes):
    opened = open_model(model, device="cpu", banned=["chien"])
    aligner = Aligner(opened.directory)
    demands = [LineConstraints("Un", ("homme",), ("la",)), LineConstraints("", ("neige",), ())]
    translations = aligner.listening(opened.translator).translate(LINES[:2], 0, demands)
    assert translations == opened.translator.translate(LINES[:2], 0, demands)
    aligned = alignments(aligner, translations)
    assert passes == []
    check_same(aligned, alignments(aligner, deaf(translations)), 1.1e-4)


def test_other_heads_and_several_models_are_aligned_by_a_forced_pass(model, passes):
    opened = open_model(model, device="cpu")
    first, second = (Aligner(opened.directory, [f"cross.0.{head}"]) for head in (0, 1))
    translations = first.listening(opened.translator).translate(LINES[:2])
    assert alignments(second, translations) == alignments(second, deaf(translations))
    assert len(passes) == 4
    joined = open_model(model, device="cpu", ensemble=[model])
    translations = first.listening(joined.translator).translate(LINES[:2])
    assert [t.hypotheses[0].attention for t in translations] == [(), ()]
    assert len(alignments(first, translations)) == 2
    assert len(passes) == 6


def test_what_was_heard_of_other_tokens_is_not_read(model, passes):
    opened = open_model(model, device="cpu")
    aligner = Aligner(opened.directory)
    (translation,) = aligner.listening(opened.translator).translate(LINES[:1])
    best = translation.hypotheses[0]
    cut = replace(best, token_ids=best.token_ids[:-1], part_lengths=(len(best.token_ids) - 1,))
    assert len(alignments(aligner, [replace(translation, hypotheses=(cut,))])) == 1
    assert len(passes) == 1


@pytest.mark.parametrize("convention", ["naive", "shift"])
def test_stored_heads_are_what_the_search_listens_to(model, tmp_path, convention):
    own = shutil.copytree(model, tmp_path / "model")
    store_alignment(own, AlignmentInfo(heads="cross.0.1", convention=convention))
    opened = open_model(own, device="cpu")
    aligner = Aligner(opened.directory)
    assert (aligner.heads, aligner.choice.reason) == (((0, 1),), "stored")
    (translation,) = aligner.listening(opened.translator).translate(LINES[:1])
    (attention,) = translation.hypotheses[0].attention
    assert attention.heads == ((0, 1),)
    assert not opened.directory.has_model, "no second pass has made the model in torch"
    check_same(
        alignments(aligner, [translation]),
        alignments(Aligner(opened.directory, ["cross.0.1"], convention), deaf([translation])),
        1.1e-4,
    )
