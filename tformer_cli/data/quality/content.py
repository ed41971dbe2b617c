"""Checks of what both sides say: copies, numbers, addresses, markup."""

import re
from collections import Counter
from itertools import filterfalse

from tformer_cli.data.corpora import SentencePair
from tformer_cli.data.languages import words_of
from tformer_cli.data.quality.facts import CorpusFacts
from tformer_cli.data.quality.keys import normalized

FEWEST_COPIED, COPIED_SHARE = 4, 0.8
"""Words of a target, and the share of them that its source has, from which on it is a copy."""
MARKUP = re.compile(
    r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>"  # tags
    r"|&(?:[A-Za-z]{2,8}[0-9]?|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});"  # entities
    r"|\{\\[A-Za-z]+[^{}]*\}|\[/?(?:b|i|u|url|quote|img)\b[^\[\]]*\]|\{\{|\}\}"  # subtitles, forums
)
ADDRESS = re.compile(r"(?:https?://|www\.)\S+|[\w.+-]+@[\w-]+\.[\w.-]+", re.IGNORECASE)
NUMBER = re.compile(r"\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+(?!\d)|\d+")
LARGEST_SPELLED = 24
"""Largest number that one side may write in words, or by another clock."""
LONGEST_NUMBER = 40
"""Digits from which on a number is compared as text."""


def identical(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001 - as of all checks
    """Finds pairs whose sides are the same apart from case, punctuation and spaces."""
    return "source and target are the same" if is_same_text(*pair) else ""


def is_same_text(source: str, target: str) -> bool:
    """True if two texts with letters are the same, apart from case, punctuation and spaces."""
    source, target = normalized(source), normalized(target)
    return source == target and any(map(str.isalpha, source))


def copied(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001
    """Finds targets most of whose words are the source's."""
    ours, theirs = (words_of(_without_addresses(side)) for side in pair)
    if len(theirs) < FEWEST_COPIED or 3 * len(set(theirs).intersection(ours)) < len(set(theirs)):
        return ""
    n_common = (Counter(theirs) & Counter(ours)).total()
    if n_common < COPIED_SHARE * len(theirs) or is_same_text(*pair):
        return ""
    return f"{n_common} of {len(theirs)} words of the target are the source's"


def numbers(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001
    """Finds numbers that only one side has, small or round ones aside: these are spelled out."""
    found = [NUMBER.findall(side) for side in pair]
    if found[0] == found[1]:
        return ""
    ours, theirs = (Counter(map(_value, some)) for some in found)
    missing = [(ours - theirs, theirs), (theirs - ours, ours)]
    for name, (only_here, there) in zip(("source", "target"), missing, strict=True):
        for number in only_here:
            if not _is_spelled(number, other_has_digits=bool(there)):
                return f"only the {name} has the number {number:.40}"
    return ""


def addresses(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001
    """Finds addresses of the web or of mail that only one side has."""
    if not any("@" in side or "//" in side or "www." in side.lower() for side in pair):
        return ""
    ours, theirs = ({_address(one) for one in ADDRESS.findall(side)} for side in pair)
    if ours == theirs:
        return ""
    other = next(iter(sorted(ours - theirs) or sorted(theirs - ours)))
    return f"only the {'source' if other in ours else 'target'} has {other:.60}"


def markup(text: str) -> str:
    """Finds tags, entities and other markup."""
    if not any(mark in text for mark in "<&{["):
        return ""
    found = MARKUP.search(text)
    return f"has {found[0]:.40}" if found else ""


def _without_addresses(text: str) -> str:
    return ADDRESS.sub("", text) if "@" in text or "//" in text or "www." in text else text


def _value(digits: str) -> str:
    digits = "".join(filterfalse(" .,'’\u00a0\u202f".__contains__, digits))
    return str(int(digits)) if len(digits) <= LONGEST_NUMBER else digits


def _is_spelled(number: str, *, other_has_digits: bool) -> bool:
    """True if a number may be written in words on the other side."""
    value = int(number) if len(number) <= LONGEST_NUMBER else 1
    if other_has_digits:
        return value <= LARGEST_SPELLED and len(number) <= LONGEST_NUMBER
    return value < 100 or value % 100 == 0


def _address(text: str) -> str:
    return text.lower().rstrip(".,;:!?)]}>\"'»”’…").removesuffix("/")
