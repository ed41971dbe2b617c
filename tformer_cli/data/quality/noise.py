"""Checks of text that no one wrote: repeated characters and words, symbols, spaced letters."""

import re
import unicodedata
from functools import cache

from tformer_cli.data.corpora import SentencePair
from tformer_cli.data.quality.facts import CorpusFacts

REPEATED_CHARACTER = re.compile(r"([^\W\d_])\1{6,}|(\S)\2{11,}")
LONGEST_PHRASE = 4
"""Words of a repeated phrase."""
FEWEST_SYMBOLS, LETTER_SHARE = 4, 0.5
"""Characters of a side, and the share of letters and digits below which it is noise."""
FEWEST_SPACED, SPACED_SHARE = 6, 0.7
"""Words of a side, and the share of single letters from which on its letters are spaced."""


def repetition(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001 - as of all checks
    """Finds characters or words repeated on one side only."""
    found = [_repeated(side) for side in pair]
    if all(found) or not any(found):
        return ""
    name = "source" if found[0] else "target"
    return f'{name} repeats "{found[0] or found[1]:.40}"'


def symbols(text: str) -> str:
    """Finds text that consists mostly of neither letters nor digits."""
    if sum(map(str.isalnum, text)) >= LETTER_SHARE * len(text):
        return ""
    shown = "".join(text.split())
    n_letters = sum(map(_is_letter, shown))
    if len(shown) < FEWEST_SYMBOLS or n_letters >= LETTER_SHARE * len(shown):
        return ""
    return f"only {n_letters:,} of {len(shown):,} characters are letters or digits"


def spaced_letters(text: str) -> str:
    """Finds words whose letters are separated by spaces, in alphabets with upper case."""
    words = text.split()
    if len(words) < FEWEST_SPACED or 4 * len(words) < len(text):
        return ""
    n_single = sum(len(word) == 1 and word.lower() != word.upper() for word in words)
    if n_single < SPACED_SHARE * len(words):
        return ""
    return f"{n_single} of {len(words)} words are single letters"


def _repeated(text: str) -> str:
    """A character or phrase that is repeated several times; empty if none."""
    found = REPEATED_CHARACTER.search(text)
    if found:
        return found[0]
    words = text.lower().split()
    # Four times the same word, or three times the same phrase: not in text with few repeats
    if len(words) < 4 or len(words) - len(set(words)) < 3:
        return ""
    for length in range(1, LONGEST_PHRASE + 1):
        wanted = 3 if length == 1 else 2 * length
        run = 0
        for place in range(length, len(words)):
            run = run + 1 if words[place] == words[place - length] else 0
            if run == wanted:
                return " ".join(words[place - wanted - length + 1 : place + 1])
    return ""


@cache
def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"
