"""Merges of a SentencePiece model of the kind "bpe".

Sennrich et al. 2016, "Neural machine translation of rare words with subword units", by scores: of
all neighbors that are a piece together, those with the highest score are joined first, of equal
ones the leftmost. Pieces that a model calls unused are made on the way and taken apart at the end.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush


def merge(
    parts: Sequence[str], scores: Mapping[str, float], unused: AbstractSet[str] = frozenset()
) -> list[str]:
    """Joins parts of a text, its characters to begin with, as long as there is a piece to make.

    Args:
        parts: the text in parts; those that must stay as they are have no score with others.
        scores: score of each piece that may be made.
        unused: those of them that may not stay.

    Returns:
        The pieces, and characters that no piece has.
    """
    pieces = list(parts)
    before = list(range(-1, len(pieces) - 1))
    after = list(range(1, len(pieces) + 1))
    halves: dict[str, tuple[str, str]] = {}
    agenda: list[tuple[float, int, str]] = []

    def consider(left: int, right: int) -> None:
        if left >= 0 and right < len(pieces):
            joined = pieces[left] + pieces[right]
            score = scores.get(joined)
            if score is not None:
                heappush(agenda, (-score, left, joined))
                if joined in unused:
                    halves[joined] = pieces[left], pieces[right]

    for place in range(len(pieces) - 1):
        consider(place, place + 1)
    while agenda:
        _, left, joined = heappop(agenda)
        right = after[left]
        if right >= len(pieces) or not pieces[left] or pieces[left] + pieces[right] != joined:
            continue  # one of the two has been joined otherwise
        pieces[left], pieces[right] = joined, ""
        after[left] = after[right]
        if after[right] < len(pieces):
            before[after[right]] = left
        consider(before[left], left)
        consider(left, after[left])
    return [part for piece in pieces if piece for part in _taken_apart(piece, halves)]


def _taken_apart(piece: str, halves: Mapping[str, tuple[str, str]]) -> list[str]:
    found, rest = [], [piece]
    while rest:
        piece = rest.pop()
        if piece in halves:
            rest += reversed(halves[piece])
        else:
            found.append(piece)
    return found
