"""Each check finds what its name says, and only that."""

import pytest

from tests.quality.damage import CYRILLIC
from tformer_cli.errors import UsageError
from tformer_cli.quality.checks import CHECKS, DROPPING, findings_of, known_checks
from tformer_cli.quality.facts import CorpusFacts
from tformer_cli.quality.settings import CheckSettings
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
    found = found_in(source, target)
    assert why in found[name]
    assert found == found_in(source, target, wanted=frozenset(found))
    assert name not in found_in(source, target, wanted=DROPPING - {name})


@pytest.mark.parametrize(("source", "target"), GOOD)
def test_good_pairs_raise_no_doubt(source, target):
    found = found_in(source, target)
    assert found == {}


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
    facts = CorpusFacts(scripts=tuple(frozenset([one]) for one in scripts))
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
