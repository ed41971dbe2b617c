import random
from itertools import combinations

import pytest

from tformer_cli.text.config import CorpusConfig
from tformer_cli.text.corpora import read_corpus
from tformer_cli.text.languages import FUNCTION_WORDS, SCRIPTS, looks_swapped

TEXTS = {
    "en": "The old man is in the house, and he was not happy with this. What do you want from it?",
    "de": "Der alte Mann ist nicht in dem Haus, und es wird auch für das Kind nicht mit ein Spiel.",
    "fr": "Le vieil homme est dans la maison, et il ne veut pas que les enfants jouent avec lui.",
    "nl": "De oude man is niet in het huis, en hij wil dat de kinderen met een bal spelen.",
    "es": "El hombre viejo no está en la casa, y los niños juegan con una pelota para el perro.",
    "it": "Il vecchio non è nella casa, e gli altri sono con una palla per il cane della signora.",
    "sv": "Den gamle mannen är inte i huset, och det är en boll som jag har med för att spela.",
    "ru": "Старый человек не в доме, и дети играют с мячом.",
    "el": "Ο γέρος δεν είναι στο σπίτι και τα παιδιά παίζουν.",
    "zh": "老人不在家里，孩子们在玩球。他们很高兴，因为今天天气很好。",
    "ja": "おじいさんは家にいません。こどもたちはボールで遊んでいます。",
    "ar": "الرجل العجوز ليس في البيت والأطفال يلعبون بالكرة.",
    "ko": "할아버지는 집에 없고 아이들은 공을 가지고 놀고 있습니다.",
}
TOLD_APART = [
    (a, b) for a in TEXTS for b in TEXTS if a < b and {a, b} != {"ja", "zh"}
]  # every sign of Chinese is one of Japanese


@pytest.mark.parametrize(("first", "second"), TOLD_APART)
def test_swapped_sides_are_noticed_and_right_ones_are_not(first, second):
    pairs = [(TEXTS[first], TEXTS[second])] * 4
    assert looks_swapped(pairs, second, first)
    assert looks_swapped(pairs, second.upper(), f"{first}_XX")
    assert not looks_swapped(pairs, first, second)


@pytest.mark.parametrize(
    ("source", "target"), [("en", "xx"), ("", ""), ("tlh", "en"), ("en", "en")]
)
def test_unknown_languages_are_not_judged(source, target):
    for pair in ((TEXTS["en"], TEXTS["fr"]), (TEXTS["fr"], TEXTS["en"])):
        assert not looks_swapped([pair] * 4, source, target)


def test_one_wrong_side_short_texts_numbers_and_mixtures_are_not_swapped():
    assert not looks_swapped([(TEXTS["fr"], TEXTS["fr"])] * 4, "en", "fr")
    assert not looks_swapped([("le chat", "the cat")], "en", "fr")
    assert not looks_swapped([("12 34", "56 78")] * 100, "en", "fr")
    assert not looks_swapped([], "en", "fr")
    both = [(TEXTS["en"], TEXTS["fr"]), (TEXTS["fr"], TEXTS["en"])] * 4
    assert not looks_swapped(both, "en", "fr")


def test_the_built_in_corpus_matches_its_description_in_any_sample():
    pairs = list(read_corpus(CorpusConfig(built_in="train", pairs=400)))
    draw = random.Random(1)
    for size in (20, 50, 400):
        sample = draw.sample(pairs, size)
        assert not looks_swapped(sample, "en", "fr")
        assert looks_swapped([(target, source) for source, target in sample], "en", "fr")


def test_every_language_has_words_that_each_other_one_lacks():
    assert not FUNCTION_WORDS.keys() & SCRIPTS.keys()
    words = {language: set(text.split()) for language, text in FUNCTION_WORDS.items()}
    alike = {("da", "nb")}
    for first, second in combinations(words, 2):
        if (first, second) not in alike:
            assert len(words[first] - words[second]) >= 4, (first, second)
            assert len(words[second] - words[first]) >= 4, (first, second)
