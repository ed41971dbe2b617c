"""Checks of languages, by scripts and by the commonest words; a detector may judge instead."""

from collections import Counter
from functools import lru_cache

from tformer_cli.data.corpora import SentencePair
from tformer_cli.data.languages import (
    FUNCTION_WORDS,
    script_of,
    telling_words,
    words_of,
    words_of_another,
)
from tformer_cli.data.quality.facts import CorpusFacts

FEWEST_LETTERS, SCRIPT_SHARE = 4, 0.25
"""Letters of a side, and the share of them in its scripts below which the script is wrong."""
FEWEST_WORDS = 3
"""Common words of another language by which it is recognized."""
SWAPPED = "each side is in the other's language"
LAST_LATIN = "\u024f"
"""Letters up to this one are Latin, nearly all."""


def swapped(pair: SentencePair, facts: CorpusFacts) -> str:
    """Finds pairs each side of which is in the other's language, by its script or its words."""
    if facts.detector is not None and all(facts.languages):
        found = tuple(map(facts.detector.language, pair))
        is_swapped = found == facts.languages[::-1] != facts.languages
        return SWAPPED if is_swapped else ""
    scripts = facts.scripts
    if all(scripts) and scripts[0].isdisjoint(scripts[1]):
        is_swapped = all(
            _share(side, expected) < SCRIPT_SHARE <= _share(side, other)
            for side, expected, other in zip(pair, scripts, scripts[::-1], strict=True)
        )
    else:
        telling = _telling(facts)
        words = [words_of(side) for side in pair]
        wrong = [sum(map(telling[1 - n].__contains__, some)) for n, some in enumerate(words)]
        right = [sum(map(telling[n].__contains__, some)) for n, some in enumerate(words)]
        is_swapped = all(wrong) and sum(wrong) >= FEWEST_WORDS and sum(wrong) > 3 * sum(right)
    return SWAPPED if is_swapped else ""


def wrong_script(pair: SentencePair, facts: CorpusFacts) -> str:
    """Finds sides that are mostly in a script which the side should not have."""
    for place in facts.kind.texts:
        side, expected = pair[place], facts.scripts[place]
        if not expected or ("LATIN" in expected and (side.isascii() or max(side) <= LAST_LATIN)):
            continue
        letters = [letter for letter in side if letter.isalpha()]
        if len(letters) < FEWEST_LETTERS or _share(side, expected) >= SCRIPT_SHARE:
            continue
        found = Counter(map(script_of, letters)).most_common(1)[0][0]
        name, scripts = facts.kind.sides[place], " or ".join(sorted(expected))
        return f"{name} is in the script {found}, not {scripts}"
    return ""


def wrong_language(pair: SentencePair, facts: CorpusFacts) -> str:
    """Finds sides with the commonest words of another language than theirs."""
    for place in facts.kind.texts:
        own, known = facts.languages[place], facts.common_words[place]
        if facts.detector is not None:
            found = facts.detector.language(pair[place]) if own else ""
            if found not in ("", own):
                return f"{facts.kind.sides[place]} is in {found}, not {own}"
            continue
        if own not in FUNCTION_WORDS:
            continue
        other, n_words, n_own = words_of_another(words_of(pair[place]), own, known)
        if n_words >= FEWEST_WORDS and n_words > 2 * n_own:
            name = facts.kind.sides[place]
            return f"{name} has {n_words} common words of {other}, {n_own} of {own}"
    return ""


@lru_cache(maxsize=4)
def _telling(facts: CorpusFacts) -> tuple[frozenset[str], frozenset[str]]:
    """Words that tell one side of a corpus from the other: commonest of the languages, and own."""
    (one, other), (ours, theirs) = facts.languages, facts.common_words
    if one == other:
        return ours - theirs, theirs - ours
    return telling_words(one, other) | (ours - theirs), telling_words(other, one) | (theirs - ours)


def _share(text: str, scripts: frozenset[str]) -> float:
    """The share of a text's letters that are in some scripts; 1 without letters."""
    letters = [letter for letter in text if letter.isalpha()]
    return (
        sum(script_of(letter) in scripts for letter in letters) / len(letters) if letters else 1.0
    )
