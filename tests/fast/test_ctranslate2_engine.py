import pytest

from tformer_cli.decoding.demands import Demands
from tformer_cli.errors import UsageError
from tformer_cli.workflows.export import export
from tformer_cli.workflows.opening.translator import open_translator
from tformer_cli.workflows.translate import translate_lines

LINES = ["A man sleeps.", "", "dogs", "the street and a dog in the snow " * 9, "A woman"]


@pytest.fixture(scope="module")
def exported(model):
    pytest.importorskip("ctranslate2")
    export(model)
    return model


@pytest.mark.parametrize("beam_size", [1, 3])
def test_finds_what_the_own_search_finds(exported, beam_size):
    options = {"beam_size": beam_size, "length_penalty": 0.0, "n_best": beam_size}
    own = list(translate_lines(exported, LINES, **options))
    engine = list(translate_lines(exported, LINES, engine="ctranslate2", **options))
    assert [t.n_parts for t in engine] == [t.n_parts for t in own] == [1, 0, 1, 7, 1]
    for one, other in zip(own, engine, strict=True):
        assert one.text == other.text
        ours, theirs = one.hypotheses[0], other.hypotheses[0]
        # the engine shares out the probability of the tokens that are never written
        assert theirs.log_probability == pytest.approx(ours.log_probability, abs=0.2)
        assert theirs.score == theirs.log_probability
        assert theirs.is_finished == ours.is_finished


def test_hypotheses_are_ranked_by_the_own_length_penalty(exported):
    opened = open_translator(exported, engine="ctranslate2", length_penalty=1.0, n_best=3)
    assert opened.translator.engine().name == opened.engine == "ctranslate2"
    found = opened.translator.translate(["dogs"])[0].hypotheses
    assert len(found) == 3
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    for hypothesis in found:
        penalty = (5 + len(hypothesis.token_ids) + 1) / 6
        assert hypothesis.score == pytest.approx(hypothesis.log_probability / penalty)


def test_the_engine_computes_in_int8(exported):
    opened = open_translator(exported, engine="ctranslate2", precision="int8")
    assert opened.precision == "int8"
    assert len(opened.translator.translate(LINES)) == len(LINES)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sampling": True}, "it knows beam search alone, not sampling = True"),
        ({"no_repeat_ngram": 2}, "it knows beam search alone, not no_repeat_ngram = 2"),
        ({"banned": ["dogs"]}, "tokens are banned"),
    ],
)
def test_what_it_does_not_know_is_refused_at_once(exported, options, reason):
    with pytest.raises(UsageError, match=f"--engine: ctranslate2 cannot search here: {reason}"):
        open_translator(exported, engine="ctranslate2", **options)


def test_phrases_and_prefixes_are_refused_where_they_are_asked_for(exported):
    translator = open_translator(exported, engine="ctranslate2").translator
    for demand, reason in (
        (Demands(target_prefix="a"), "a prefix is given"),
        (Demands(required=("dog",)), "phrases are required or banned"),
    ):
        with pytest.raises(UsageError, match=f"ctranslate2 cannot search here: {reason}"):
            translator.translate(["dogs"], demands=[demand])
