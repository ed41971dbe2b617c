"""Words of the source text of a training, by which a line of mostly other words is known."""

import re
from collections import Counter
from collections.abc import Container, Iterable
from unicodedata import normalize

MOST_WORDS = 1 << 16
"""Words that are kept, the most frequent ones: those that follow are rare in any text."""
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
"""Letters of scripts that write no spaces between words: each counts as a word."""
_WORDS = re.compile(rf"[{_UNSPACED}]|[^\W\d_{_UNSPACED}]+")


def frequent_words(lines: Iterable[str]) -> list[str]:
    """Returns the most frequent words of a text, in small letters, sorted."""
    counts = Counter(word.casefold() for line in lines for word in _words(line))
    # of the same frequency the first in the alphabet: the same corpora in another order are equal
    kept = sorted(counts, key=lambda word: (-counts[word], word))[:MOST_WORDS]
    return sorted(kept)


def mostly_unseen(line: str, seen: Container[str]) -> tuple[str, ...]:
    """Returns the words of a line that training never saw, if they are over half of all."""
    words = _words(line)
    unseen = [word for word in words if word.casefold() not in seen]
    return tuple(unseen) if 2 * len(unseen) > len(words) else ()


def _words(line: str) -> list[str]:
    return _WORDS.findall(normalize("NFC", line))
