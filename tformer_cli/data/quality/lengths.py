"""Checks of lengths: blank sides, very long ones, and sides that do not fit each other."""

import re

from tformer_cli.data.corpora import SentencePair
from tformer_cli.data.quality.facts import CorpusFacts, deviation

LONG_WORD = re.compile(r"\S{50,}")
VISIBLE = re.compile(
    "[^\\s\u00ad\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0]"
)
"""A character that is seen: no space, no mark, filler or joint without a form of its own."""
ADDRESS = re.compile(r"://|www\.|@")


def empty(pair: SentencePair, facts: CorpusFacts) -> str:
    """Finds blank sides."""
    blank = [name for name, side in facts.kind.named(pair).items() if not VISIBLE.search(side)]
    return f"{' and '.join(blank)} blank" if blank else ""


def too_long(pair: SentencePair, facts: CorpusFacts) -> str:
    """Finds sides with more characters than the limit."""
    most = facts.limits.max_characters
    for name, side in facts.kind.texts_of(pair):
        if len(side) > most:
            return f"{name} has {len(side):,} characters, more than {most:,}"
    return ""


def unlike_lengths(pair: SentencePair, facts: CorpusFacts) -> str:
    """Finds pairs whose lengths have another ratio than those of the corpus."""
    if not facts.spread:
        return ""
    lengths = len(pair.source), len(pair.target)
    found = deviation(*lengths, facts.ratio, facts.spread)
    if abs(found) <= facts.limits.max_deviation:
        return ""
    return f"{lengths[0]:,} and {lengths[1]:,} characters: {found:+.1f} standard deviations"


def long_word(text: str) -> str:
    """Finds words of 50 characters and more in alphabets that put spaces between words."""
    if len(text) < 50:
        return ""
    for found in LONG_WORD.finditer(text):
        n_cased = sum(character.lower() != character.upper() for character in found[0])
        if 2 * n_cased > len(found[0]) and not ADDRESS.search(found[0]):
            return f"has a word of {len(found[0]):,} characters"
    return ""
