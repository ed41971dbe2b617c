"""Each check finds what its name says, and only that; doubts about a whole corpus."""

import pytest

from tests.plugins.corpora_tools.quality.damage import CYRILLIC
from tformer_cli.errors import UsageError
from tformer_cli.plugins.corpora_tools.quality.checks import (
    CHECKS,
    DROPPING,
    findings_of,
    known_checks,
)
from tformer_cli.plugins.corpora_tools.quality.doubts import doubts, share_of_equal
from tformer_cli.plugins.corpora_tools.quality.facts import CorpusFacts
from tformer_cli.plugins.corpora_tools.quality.settings import CheckSettings
from tformer_cli.text.config import CorpusConfig, DataConfig
from tformer_cli.text.corpora import SentencePair

ENGLISH = "The old man is in the house, and he was not happy with this."
FRENCH = "Le vieil homme est dans la maison, et il n'en était pas content."
FACTS = CorpusFacts(
    languages=("en", "fr"),
    scripts=(frozenset(["LATIN"]), frozenset(["LATIN"])),
    ratio=1.1,
    spread=1.5,
    settings=CheckSettings(max_characters=400),
)
DOUBTFUL = [
    ("empty", "", FRENCH, "source blank"),
    ("empty", "  ", "\u3000", "source and target blank"),
    ("encoding", ENGLISH, "Le vieil homme \ufffdtait", "target has U+FFFD, the mark of bytes"),
    ("encoding", ENGLISH, "Le vieil homme n'?tait pas ?g?.", "inside a word"),
    ("mojibake", ENGLISH, "Le vieil homme Ã©tait content.", '"Ã©", which is "é" read as cp1252'),
    ("mojibake", "It’s the manâ€™s house", FRENCH, '"â€™", which is "’" read as cp1252'),
    ("mojibake", ENGLISH, "Ñ‡ÐµÐ»Ð¾Ð²ÐµÐº", 'is "человек" read as cp1252'),
    ("mojibake", ENGLISH, "РџСЂРёРІРµС‚, мир", 'is "Привет" read as cp1251'),
    ("mojibake", ENGLISH, "ä¸­æ–‡", 'is "中文" read as cp1252'),
    ("invisible", "The old\x07 man", FRENCH, "source has the character U+0007"),
    ("invisible", ENGLISH, f"\u202e{FRENCH}", "target has the character U+202E"),
    ("markup", f"<b>{ENGLISH}</b>", FRENCH, "source has <b>"),
    ("markup", ENGLISH, "Le vieil homme &amp; la mer", "target has &amp;"),
    ("markup", r"{\an8}The old man", FRENCH, r"source has {\an8}"),
    ("identical", "Ignore Tom!", "ignore Tom.", "source and target are the same"),
    ("copied", ENGLISH, f"{ENGLISH[:-5]} cela.", "13 of 14 words of the target are the source's"),
    ("too-long", "a b " * 101, FRENCH, "source has 404 characters, more than 400"),
    ("long-word", ENGLISH, FRENCH.replace(" ", ""), "target has a word of 52 characters"),
    ("length-ratio", ENGLISH, "Le vieil", "60 and 8 characters: -7.8 standard deviations"),
    ("swapped", FRENCH, ENGLISH, "each side is in the other's language"),
    ("script", ENGLISH, CYRILLIC, "target is in the script CYRILLIC, not LATIN"),
    ("language", ENGLISH, "Der Mann ist nicht in dem Haus.", "common words of de, 0 of fr"),
    (
        "numbers",
        "In 1957 there were 300.",
        "En 1975 il y en avait 300.",
        "source has the number 1957",
    ),
    ("numbers", "It was cold.", "Il faisait froid (1,234).", "only the target has the number 1234"),
    ("addresses", "See www.example.org/a.", "Voyez ici.", "the source has www.example.org/a"),
    ("addresses", "Write to a@b.org", "Écrivez à a@c.org", "only the source has a@b.org"),
    ("repetition", ENGLISH, "Le vieil hommeeeeeeeeee", 'target repeats "eeeeeeeeee"'),
    ("repetition", "Buy it buy it buy it now", "Achetez", 'source repeats "buy it buy it buy it"'),
    ("symbols", ENGLISH, "|| -- ##~~ >> *", "target only 0 of 11 characters are letters or digits"),
    ("spaced-letters", "T h e o l d m a n", FRENCH, "source 9 of 9 words are single letters"),
]
GOOD = [
    (ENGLISH, FRENCH),
    ("He said: “Yes”.", "Il a dit\u00a0: «\u00a0Voilà\u00a0», «\u00a0CAFÉ\u00a0», à\u00a0»."),
    ("1,000,000 people at 3 pm", "1\u202f000\u202f000 personnes à 15 h"),
    ("There are two.", "Il y en a 2."),
    ("It costs 3.50 €.", "Il coûte 3,50 €."),
    ("See https://example.org/a/.", "Voyez https://example.org/a"),
    ("Is a < b and c > d?", "Est-ce que a < b et c > d\u00a0?"),
    ("No, no, no, no!", "Non, non, non, non\u00a0!"),
    ("12:30", "12:30"),
    ("A B C", "A B C D"),
    ("Quoi?", "Quoi?Non"),
    ("On a été là.", "On a été là, Ã même."),
    ("!", "?"),
]


def found_in(source, target, facts=FACTS, wanted=DROPPING):
    return dict(findings_of(SentencePair(source, target), facts, wanted))


@pytest.mark.parametrize(("name", "source", "target", "why"), DOUBTFUL)
def test_a_check_finds_its_damage_and_says_why(name, source, target, why):
    reasons = found_in(source, target)
    assert why in reasons[name]
    assert reasons == found_in(source, target, wanted=frozenset(reasons))
    assert name not in found_in(source, target, wanted=DROPPING - {name})


@pytest.mark.parametrize(("source", "target"), GOOD)
def test_good_pairs_raise_no_doubt(source, target):
    reasons = found_in(source, target)
    assert reasons == {}


def test_every_check_of_a_pair_is_tried_here():
    of_pairs = {name for name, check in CHECKS.items() if check.of_pair or check.of_side}
    assert of_pairs == {name for name, *_ in DOUBTFUL}
    assert all(not (check.of_pair and check.of_side) for check in CHECKS.values())


def test_of_a_blank_pair_only_that_is_said():
    assert list(found_in("", "\x07 <b> 1234")) == ["empty"]
    assert list(found_in("", "\x07 <b> 1234", wanted=DROPPING - {"empty"})) == []


@pytest.mark.parametrize(
    ("source", "target", "scripts", "expected"),
    [
        ("The man", "Мужчина дома", ("LATIN", "CYRILLIC"), set()),
        ("The man", "The man dies", ("LATIN", "CYRILLIC"), {"script"}),
        ("Мужчина дома", "The man dies", ("LATIN", "CYRILLIC"), {"swapped", "script"}),
        ("OK", "IBM", ("LATIN", "CYRILLIC"), set()),
        ("猫がいる", "The cat", ("HIRAGANA", "LATIN"), set()),
    ],
)
def test_scripts_tell_sides_apart(source, target, scripts, expected):
    facts = CorpusFacts(scripts=tuple(frozenset([script]) for script in scripts))
    assert found_in(source, target, facts).keys() == expected


def test_nothing_is_guessed_of_an_unknown_corpus():
    assert found_in(FRENCH, ENGLISH, CorpusFacts()) == {}
    assert found_in("a" * 40, "b", CorpusFacts()).keys() <= {"repetition"}


HOSTILE = [
    "\x00", "\ufffd" * 50, "<" * 5000, "&" * 5000, "a" * 5000, "1" * 5000, "1,234," * 2000,
    "{{" * 3000, "@" * 5000, "a@" * 3000, "www." * 2000, "Ã" * 5000, "Ã©" * 2000, "РџСЂ" * 2000,
    "\u202e" * 100, "\U0010ffff" * 10, "a ba b" * 1000, "[" * 4000, "<a " * 2000, "x <a" * 2000,
    "٣٤٥ ١٢٣", "²³", "\ud7ff", "é" + "\u0301" * 3000, "\u2028\u2029", "ß" * 60, "İ" * 60,
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_text_takes_neither_long_nor_fails(number):
    import time

    begun = time.thread_time()
    for other in ("", "a", HOSTILE[number], ENGLISH):
        found_in(HOSTILE[number], other)
        found_in(other, HOSTILE[number])
    assert time.thread_time() - begun < 5  # a quadratic search would take minutes


def test_names_of_checks_are_known_and_the_nearest_is_named():
    assert known_checks(["markup, empty", "numbers"], "--only") == {"markup", "empty", "numbers"}
    with pytest.raises(UsageError) as error:
        known_checks(["number"], "--only")
    assert str(error.value) == '--only: no check is called "number"; did you mean numbers?'
    with pytest.raises(
        UsageError, match='no check is called "xyz"; checks are malformed, empty, encoding, '
    ):
        known_checks(["xyz"], "--without")


AN_ENGLISH = "The old man is in the house, and he was not happy with this."
A_FRENCH = "Le vieil homme est dans la maison, et il ne veut pas que les enfants jouent."


def of(directory, text, **changes):
    """The doubts about a TSV file with some text."""
    (directory / "a.tsv").write_text(text, encoding="utf-8")
    valid = (CorpusConfig(tsv="a.tsv"),)
    data = DataConfig(
        **{
            "train": (CorpusConfig(tsv="a.tsv"),),
            "valid": valid,
            "directory": str(directory),
            "source_language": "en",
            "target_language": "fr",
            **changes,
        }
    )
    return list(doubts(data))


CLEAN = f"{AN_ENGLISH}\t{A_FRENCH}\n"


def test_a_good_corpus_raises_no_doubt(tmp_path):
    assert of(tmp_path, CLEAN * 50) == []
    assert of(tmp_path, "the cat\tle chat\n") == []
    assert of(tmp_path, "") == []
    named = '"Come," he said.\t« Viens », dit-il.\n'
    assert of(tmp_path, (CLEAN + named) * 20) == []


def test_a_missing_validation_corpus_is_reported(tmp_path):
    (doubt,) = of(tmp_path, CLEAN * 10, valid=())
    assert doubt.startswith("data.valid: names no corpus, so no step is validated and the best ")


@pytest.mark.parametrize(
    "first",
    [
        "source\ttarget",
        "en\tfr",
        "English\tFrench",
        '"src"\t"tgt"',
        "en-US\tfr_FR",
        "text\tTranslation",
    ],
)
def test_a_header_is_noticed(tmp_path, first):
    (doubt,) = of(tmp_path, f"{first}\n" + CLEAN * 10)
    source, target = first.split("\t")
    assert doubt == (
        f'a.tsv: its first line ("{source}", "{target}") looks like a header and would be '
        "trained on; remove it (tail -n +2)"
    )


@pytest.mark.parametrize("first", ["hello\tbonjour", "no\tno", "source\tla source", "\t", "it\tle"])
def test_a_first_pair_of_words_is_not_taken_for_a_header(tmp_path, first):
    assert of(tmp_path, f"{first}\n" + CLEAN * 10) == []


def test_quotes_of_csv_are_noticed(tmp_path):
    (doubt,) = of(tmp_path, f'"{AN_ENGLISH}"\t"{A_FRENCH}"\n' * 10)
    assert doubt.startswith('a.tsv: most lines have a text in quotes ("…"), as in CSV files, and')
    (doubt,) = of(tmp_path, f'{AN_ENGLISH}\t"{A_FRENCH}"\n' * 10)
    assert "in quotes" in doubt


def test_equal_sides_are_noticed_once(tmp_path):
    (doubt,) = of(tmp_path, f"{AN_ENGLISH}\t{AN_ENGLISH}\n" * 9 + CLEAN)
    assert doubt == (
        "a.tsv: source and target are the same in 90% of the first 10 pairs; "
        "check that both sides are named right"
    )
    assert of(tmp_path, f"{AN_ENGLISH}\t{AN_ENGLISH}\n" * 9 + CLEAN * 10) == []


def test_swapped_sides_are_noticed(tmp_path):
    expected = [
        (
            'a.tsv: the source looks like "fr" and the target like "en"; swap them, or '
            "data.source_language and data.target_language"
        )
    ]
    assert of(tmp_path, f"{A_FRENCH}\t{AN_ENGLISH}\n" * 10) == expected
    assert of(tmp_path, CLEAN * 10, source_language="fr", target_language="en") == [
        expected[0].replace('"fr" and the target like "en"', '"en" and the target like "fr"')
    ]
    assert (
        of(tmp_path, f"{A_FRENCH}\t{AN_ENGLISH}\n" * 10, source_language="", target_language="")
        == []
    )


def test_a_side_in_another_language_is_noticed(tmp_path):
    (doubt,) = of(tmp_path, CLEAN * 50, target_language="de")
    assert doubt == (
        "a.tsv: another language in 100% of the first 50 pairs (language); "
        "`tformer data check` shows them"
    )


def test_aligned_files_and_jsonl_are_looked_into_too(tmp_path):
    (tmp_path / "a.en").write_text(f"{A_FRENCH}\n" * 10, encoding="utf-8")
    (tmp_path / "a.fr").write_text(f"{AN_ENGLISH}\n" * 10, encoding="utf-8")
    corpora = (CorpusConfig(source="a.en", target="a.fr"), CorpusConfig(built_in="train"))
    (doubt,) = of(tmp_path, CLEAN, train=corpora)
    assert doubt.startswith('a.en, a.fr: the source looks like "fr"')


def test_the_share_of_equal_pairs_ignores_blank_ones_and_needs_some():
    assert share_of_equal([("a", "a")] * 7) == 0.0
    assert share_of_equal([("a", "a ")] * 8) == 1.0
    assert share_of_equal([("", "")] * 50 + [("a", "b")] * 10) == 0.0


def test_what_a_check_finds_in_many_pairs_is_a_doubt(tmp_path):
    damaged = CLEAN.replace("old", "<b>old</b>")
    (doubt,) = of(tmp_path, damaged * 10 + CLEAN * 30)
    assert doubt == (
        "a.tsv: tags, entities, other markup in 25% of the first 40 pairs (markup); "
        "`tformer data check` shows them"
    )
    assert of(tmp_path, damaged * 4 + CLEAN * 36) == []
    assert of(tmp_path, damaged * 7) == []
