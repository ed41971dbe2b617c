"""A guess at which of two languages a text is in, by its letters or its commonest words."""

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from functools import cache, lru_cache
from unicodedata import normalize

FUNCTION_WORDS = {
    "cs": "a je se na v že to s není jako by do ale jsem který i za po",
    "da": "og at det er en som på for af den ikke med et har jeg til de var",
    "de": "der die das und ist nicht ein eine mit auf für den von zu sich auch es wird dem ich in "
    "an im am was so wir sie er war einen einer einem bei aus",
    "en": "the of and to is that it was for with are this on he not you his they have at a in i be "
    "but we she my me her what do if so can an as who",
    "es": "el los las y es una por con para que en un del se lo su no está de la me a mi más",
    "et": "ja on ei see et ta oli mis kui aga ma siis ka oma nad",
    "fi": "ja on ei se että hän oli mutta kun ovat minä mitä niin myös",
    "fr": "le les des et est une dans pour que qui pas sur avec il ce au elle du un de la on a me "
    "je tu nous vous y ne se son sa",
    "hu": "a az és nem hogy egy is van volt meg de ez csak már",
    "id": "yang dan di itu dengan untuk tidak ini dari dalam akan pada juga saya",
    "it": "il di che è una per non con sono del della gli le si un nel la e i lo in a mi si da",
    "lt": "ir yra kad ne į su tai jis buvo bet kaip iš už",
    "nb": "og å det er en som på for av den ikke med et har jeg til de var",
    "nl": "het een en van is dat niet op te voor zijn met de aan die ik in er we me was hij ze",
    "pl": "i w nie na jest się to z do że jak o ale za po był dla",
    "pt": "o os as e é uma que não com para em um do da se no na de por",
    "ro": "și de la în este nu o cu pe să un că din mai care",
    "sv": "och att det är en som på för av inte den med ett har jag till de var",
    "tr": "ve bir bu da için ile çok değil ne de mi gibi daha var",
    "vi": "và của là có không được một những cho trong với các người này đã",
}
"""The commonest words of languages that are written in Latin letters."""
# Scripts of other languages, as Unicode's names of letters begin.
SCRIPTS = {
    "ar": "ARABIC",
    "be": "CYRILLIC",
    "bg": "CYRILLIC",
    "bn": "BENGALI",
    "el": "GREEK",
    "fa": "ARABIC",
    "grc": "GREEK",
    "he": "HEBREW",
    "hi": "DEVANAGARI",
    "hy": "ARMENIAN",
    "ja": "HIRAGANA KATAKANA CJK",
    "ka": "GEORGIAN",
    "ko": "HANGUL",
    "mk": "CYRILLIC",
    "mr": "DEVANAGARI",
    "ru": "CYRILLIC",
    "ta": "TAMIL",
    "te": "TELUGU",
    "th": "THAI",
    "uk": "CYRILLIC",
    "ur": "ARABIC",
    "zh": "CJK",
}
SAME = {"no": "nb", "nn": "nb", "iw": "he"}
WORD = re.compile(r"[^\W\d_]+")
MOST_LINES = 500
# Words, or letters, that a side must have to be judged.
FEWEST_UNITS = 30
# Share of a side's words or letters that must be of the wrong language.
LEAST_SHARE = 0.05


def looks_swapped(pairs: Sequence[tuple[str, str]], source: str, target: str) -> bool:
    """True if each side of a corpus looks much more like the other side's language."""
    pairs = pairs[:MOST_LINES]
    languages = main_code(source), main_code(target)
    return all(
        _is_more_like(other, own, [pair[side] for pair in pairs])
        for side, (own, other) in enumerate((languages, languages[::-1]))
    )


def _is_more_like(other: str, own: str, lines: Iterable[str]) -> bool:
    latin = frozenset(["LATIN"])
    # an unknown language is taken for one in Latin letters, as most are
    scripts = scripts_of(other) or latin, scripts_of(own) or latin
    if scripts[0].isdisjoint(scripts[1]):
        units = [script_of(letter) for line in lines for letter in line if letter.isalpha()]
        kinds: tuple[frozenset[str], frozenset[str]] = scripts
    else:
        kinds = telling_words(other, own), telling_words(own, other)
        units = [word for line in lines for word in words_of(line)]
    # no guess rather than a wrong one
    if len(units) < FEWEST_UNITS or not all(kinds):
        return False
    shares = [sum(unit in kind for unit in units) / len(units) for kind in kinds]
    return shares[0] > max(2.0 * shares[1], LEAST_SHARE)


def main_code(language: str) -> str:
    """The code of a language without script and region: "en" of "en-US" or "eng_Latn"'s "eng"."""
    code = language.lower().replace("_", "-").partition("-")[0]
    return SAME.get(code, code)


def scripts_of(language: str) -> frozenset[str]:
    """Scripts of a language, as Unicode's names of letters begin; none of an unknown one."""
    code = main_code(language)
    if code in FUNCTION_WORDS:
        return frozenset(["LATIN"])
    return frozenset(SCRIPTS.get(code, "").split())


@cache
def telling_words(language: str, other: str) -> frozenset[str]:
    """The most frequent words of a language that are not among those of another."""
    return _words(language) - _words(other)


def words_of_another(
    words: Sequence[str], own: str, excused: frozenset[str] = frozenset()
) -> tuple[str, int, int]:
    """Counts the commonest words of another language than a text's own."""
    languages = _languages_of_words()
    codes = {word: languages[word] for word in set(words) if word in languages}
    theirs = {word: word_codes for word, word_codes in codes.items() if own not in word_codes}
    others = Counter(code for word in theirs.keys() - excused for code in theirs[word])
    other, n_words = max(others.items(), key=lambda item: item[1], default=("", 0))
    ours = telling_words(own, other)
    n_own = sum(
        word in ours or (word in excused and other not in codes.get(word, ())) for word in words
    )
    return other, n_words, n_own


@lru_cache(maxsize=16)  # several checks ask for them
def words_of(line: str) -> tuple[str, ...]:
    return tuple(WORD.findall(line.lower()))


@cache
def script_of(letter: str) -> str:
    """The script of a letter, as its name in Unicode begins."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _words(language: str) -> frozenset[str]:
    return frozenset(FUNCTION_WORDS.get(language, "").split())


@cache  # a line to be translated, which counts its words, does without
def _languages_of_words() -> dict[str, Sequence[str]]:
    """Languages that have each word among their commonest."""
    table: dict[str, list[str]] = {}
    for code, words in FUNCTION_WORDS.items():
        for word in dict.fromkeys(words.split()):
            table.setdefault(word, []).append(code)
    return {word: tuple(codes) for word, codes in table.items()}


# Words that are kept, the most frequent ones: those that follow are rare in any text.
MOST_WORDS = 1 << 16
# Letters of scripts that write no spaces between words: each counts as a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORDS = rf"[{_UNSPACED}]|[^\W\d_{_UNSPACED}]+"


def frequent_words(lines: Iterable[str]) -> list[str]:
    """Returns the most frequent words of a text, in small letters, sorted."""
    counts = Counter(word.casefold() for line in lines for word in words_in(line))
    # of the same frequency the first in the alphabet: the same corpora in another order are equal
    kept = sorted(counts, key=lambda word: (-counts[word], word))[:MOST_WORDS]
    return sorted(kept)


def mostly_unseen(line: str, seen: Container[str]) -> tuple[str, ...]:
    """Returns the words of a line that training never saw, if they are over half of all."""
    words = words_in(line)
    unseen = [word for word in words if word.casefold() not in seen]
    return tuple(unseen) if 2 * len(unseen) > len(words) else ()


def words_in(line: str) -> list[str]:
    # For ASCII both find the same words, but compiling the longer takes as long as reading a line
    pattern = WORD if line.isascii() else re.compile(_WORDS)
    return pattern.findall(normalize("NFC", line))
