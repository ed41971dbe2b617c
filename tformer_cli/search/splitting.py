"""Cutting a line that is longer than the model can take into parts, at sensible places."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

BREAKS = (
    re.compile(r"(?<=[.!?…])[\"'’”»)\]]*\s+|(?<=[。！？])"),
    re.compile(r"(?<=[,;:])\s+|(?<=[，；：、])|\s+(?=[–—])"),
    re.compile(r"\s+"),
)
"""Places where a line may be cut, best first: ends of sentences, clause punctuation, spaces."""

TokenCounts = Callable[[Sequence[str]], Sequence[int]]
"""Counts the tokens of each of several texts."""


def split_line(line: str, longest: int, count_tokens: TokenCounts) -> list[str]:
    """Cuts a line into parts of at most `longest` tokens.

    It is cut at the ends of sentences, pieces still too long at clause punctuation, then at
    spaces, and only what has no spaces anywhere. Neighboring pieces are joined again as long as
    they fit. Nothing but white space at the cuts is lost. A single character is never cut,
    whatever its tokens.
    """
    pieces = [line]
    for pattern in BREAKS:
        pieces = _cut_long(pieces, longest, count_tokens, partial(_cut_at, pattern))
    parts = _packed(pieces, longest, count_tokens)
    # Joining may change how text is tokenized, and what has no spaces is still too long.
    while True:
        shorter = _cut_long(parts, longest, count_tokens, _halves)
        if shorter == parts:
            return [part.strip() for part in _packed(parts, longest, count_tokens) if part.strip()]
        parts = shorter


def _cut_long(
    pieces: Sequence[str], longest: int, count_tokens: TokenCounts, cut: Callable[[str], list[str]]
) -> list[str]:
    """Replaces the pieces that are too long by what `cut` makes of them."""
    result = []
    for piece, n_tokens in zip(pieces, count_tokens(pieces), strict=True):
        result += [piece] if n_tokens <= longest else cut(piece)
    return result


def _cut_at(pattern: re.Pattern[str], text: str) -> list[str]:
    """Cuts after every match, so that the pieces put together are the text again."""
    ends = [0, *(match.end() for match in pattern.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(ends) if end > start]


def _halves(text: str) -> list[str]:
    """Cuts in the middle, before no combining mark where that can be helped."""
    middle = len(text) // 2
    while middle > 0 and unicodedata.combining(text[middle]):
        middle -= 1
    middle = middle or len(text) // 2
    return [text[:middle], text[middle:]] if middle else [text]


def _packed(pieces: Sequence[str], longest: int, count_tokens: TokenCounts) -> list[str]:
    """Joins neighbors as long as they fit together, by their own counts and as one text."""
    parts: list[list[str]] = []
    room = 0
    for piece, n_tokens in zip(pieces, count_tokens(pieces), strict=True):
        if parts and n_tokens <= room:
            parts[-1].append(piece)
            room -= n_tokens
        else:
            parts.append([piece])
            room = longest - n_tokens
    joined = ["".join(part) for part in parts]
    counts = count_tokens(joined)
    result: list[str] = []
    for part, text, n_tokens in zip(parts, joined, counts, strict=True):
        result += [text] if n_tokens <= longest else part
    return result
