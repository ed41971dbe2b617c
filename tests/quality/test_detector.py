import sys

import pytest

from tests.quality.test_checks import ENGLISH, FRENCH
from tformer_cli.corpora.grammar.generate import generate_corpus
from tformer_cli.errors import UsageError
from tformer_cli.quality.checks import checks_for, findings_of
from tformer_cli.quality.facts import LABELED, PAIRS, TEXTS, Detector, estimate_facts
from tformer_cli.text.corpora import SentencePair

SWAHILI = "Watoto wanacheza mpira karibu na nyumba ya zamani, na mama yao anapika chakula."
"""No language of the tables of common words."""


@pytest.fixture(scope="module")
def detector():
    pytest.importorskip("py3langid")
    return Detector()


@pytest.fixture(scope="module")
def facts(detector):
    pairs = [SentencePair(one.source, one.target) for _, one in generate_corpus(300, seed=2)]
    return estimate_facts(pairs, ("", ""), PAIRS, detector)


def found_in(source, target, facts):
    return dict(findings_of(SentencePair(source, target), facts, checks_for(PAIRS)))


def test_it_finds_the_languages_of_a_corpus(facts):
    assert facts.languages == ("en", "fr")


def test_languages_are_told_apart_without_a_table(facts):
    assert found_in(ENGLISH, SWAHILI, facts)["language"] == "target is in sw, not fr"
    assert "language" not in found_in(ENGLISH, FRENCH, facts)
    assert "language" not in found_in("OK.", "Hm.", facts)  # of many languages


def test_sides_are_swapped(facts):
    assert found_in(FRENCH, ENGLISH, facts)["swapped"] == "each side is in the other's language"
    assert "swapped" not in found_in(ENGLISH, ENGLISH + " indeed", facts)


def test_labels_have_no_language(detector):
    pairs = [SentencePair(ENGLISH, "bad")] * 40
    facts = estimate_facts(pairs, ("", ""), LABELED, detector)
    assert facts.languages == ("en", "")
    assert dict(findings_of(SentencePair(SWAHILI, FRENCH), facts, checks_for(LABELED))) == {
        "language": "text is in sw, not en"
    }
    texts = [SentencePair("", ENGLISH)] * 40
    assert estimate_facts(texts, ("", ""), TEXTS, detector).languages == ("", "en")


def test_an_unknown_language_is_refused(detector):
    detector.check_known("en-GB")
    with pytest.raises(UsageError, match=r'--detect-languages: "tlh" is none of the \d+ languages'):
        detector.check_known("tlh")


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(UsageError, match=r"pip install 'tformer\[langid\]'"):
        Detector()
