"""Texts that a translation has to copy: placeholders, addresses, code, numbers, emoji.

The model reads it with the sentence, which is better for the words around it than a gap would be.
What it does not copy is put where it wrote something else for it, or between the neighbors.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING

from tformer_cli.documents.placeholders import COPIED
from tformer_cli.documents.projection import Link, Range, project, with_all_copied
from tformer_cli.documents.segments import Segment, Span
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ANY_NUMBER = re.compile(r"\d[\d.,:/'’\u00a0\u202f -]*\d|\d")
LINE_END = re.compile(r"(?:\\[nrt])+")
"""Codes of line ends, at which a word may stand."""
_MOST = 50
"""Places of a mark that are compared."""
_OPENING = "{%$@~:<[(&#"
"""First characters of what a blank keeps apart from a text before it."""
_ELIDED = re.compile(r"['’]\w+")


def protected(segment: Segment) -> Segment:
    """Adds a span around each text that has to be copied."""
    copied = [Span(start, end, "protected") for start, end in _found(segment)]
    if not copied:
        return segment
    return replace(segment, spans=tuple(with_all_copied(segment.spans, copied)))


def _found(segment: Segment) -> Iterator[Range]:
    """Finds texts that are neither copied already nor cut by markup."""
    spans = segment.spans
    kept = sorted((span.start, span.end) for span in spans if span.behavior == "protected")
    reached = [0, *accumulate((end for _, end in kept), max)]
    edges = sorted({place for span in spans for place in (span.start, span.end)})
    for match in COPIED[segment.is_message].finditer(segment.text):
        start, end = match.span()
        is_copied = start < reached[bisect_left(kept, (end,))]
        is_cut = bisect_right(edges, start) < bisect_left(edges, end)
        if not (is_copied or is_cut):
            yield start, end


@dataclass(frozen=True)
class Restored:
    """A translation that has all that had to be copied."""

    text: str
    links: Sequence[Link]
    fixed: Mapping[int, Range]
    """Characters of each protected span, by its number."""
    n_restored: int
    """Spans that the model did not copy."""


def restored(source: Segment, text: str, links: Sequence[Link]) -> Restored:
    """Puts what a translation lacks of its protected spans into it."""
    wanted = {
        number: source.text[span.start : span.end]
        for number, span in enumerate(source.spans)
        if span.behavior == "protected" and not is_blank(source.text[span.start : span.end])
    }
    if not wanted:
        return Restored(text, links, {}, 0)
    ranges = _copied(source, wanted, text, links)
    missing = wanted.keys() - ranges.keys()
    if not missing:
        return Restored(text, links, ranges, 0)
    # The places of what was written instead are those of a link's words
    order = {number: place for place, number in enumerate(wanted)}
    flat = replace(
        source, spans=tuple(replace(source.spans[n], opening=str(n), depth=0) for n in order)
    )
    fixed = {order[n]: place for n, place in ranges.items()}
    places = project(flat, text, links, fixed, takes_free=False).spans
    edits = _Edits(text, links, ranges)
    for span in reversed(places):
        if (number := int(span.opening)) in missing:
            edits.put(source, number, span.start, span.end)
    edits.apply()
    return Restored(edits.text, edits.links, edits.ranges, len(missing))


class _Edits:
    """Texts that are put into a translation, from its end on, and applied together.

    A long line has thousands; each by itself would move all that stands behind it.
    """

    def __init__(self, text: str, links: Sequence[Link], ranges: Mapping[int, Range]) -> None:
        self.text, self.links, self.ranges = text, links, dict(ranges)
        self._edits: list[tuple[Range, str, int, Range]] = []

    def put(self, source: Segment, number: int, start: int, end: int) -> None:
        """Writes a protected span of the source instead of characters that no edit has behind."""
        if start == end and (elided := self._elided(max(0, start - 1))):
            start = end = elided
        if end > self._first:
            self.apply()
        span = source.spans[number]
        wanted = source.text[span.start : span.end]
        before, behind = self.text[max(0, start - 1) : start], self.text[end : end + 1]
        is_met = bool(self._edits) and end == self._first
        if is_met:
            behind = self._edits[-1][1][0]
        copied = _with_blanks(source, span, before, behind)
        # What follows saw only the text before it, not what is put there now
        if is_met and " " not in copied[-1] + behind and not _behind(source, span).strip():
            copied += " "
        place = copied.index(wanted)
        self._edits.append(((start, end), copied, number, (place, place + len(wanted))))

    @property
    def _first(self) -> int:
        """The place up to which the text has no edit."""
        return self._edits[-1][0][0] if self._edits else len(self.text)

    def _elided(self, start: int) -> int | None:
        """Finds the end of a word behind an apostrophe."""
        first = self._first
        match = _ELIDED.match(self.text, start, first)
        if self._edits and (first <= start + 1 or (match and match.end() == first)):
            # The word may go on in what was put behind it
            joined = _ELIDED.match(self.text[start:first] + self._edits[-1][1])
            if joined and joined.end() > first - start:
                self.apply()
                match = _ELIDED.match(self.text, start)
        return match and match.end()

    def apply(self) -> None:
        """Makes the edits, and moves what stands behind each."""
        edits = self._edits[::-1]
        starts = [start for (start, _), *_ in edits]
        ends = [end for (_, end), *_ in edits]
        longer = (len(copied) - (end - start) for (start, end), copied, *_ in edits)
        moved = list(accumulate(longer, initial=0))
        links = []
        for (a, b), source in self.links:
            number = bisect_right(ends, a)
            if number == len(edits) or b <= starts[number]:
                more = moved[number]
                links.append(Link((a + more, b + more), source))
        for n, (a, b) in self.ranges.items():
            more = moved[bisect_right(ends, a)]
            self.ranges[n] = (a + more, b + more)
        pieces: list[str] = []
        place = 0
        for ((start, end), copied, number, inner), more in zip(edits, moved[:-1], strict=True):
            pieces += [self.text[place:start], copied]
            place = end
            self.ranges[number] = (inner[0] + start + more, inner[1] + start + more)
        self.text = "".join([*pieces, self.text[place:]])
        self.links, self._edits = links, []


def _copied(
    source: Segment, wanted: Mapping[int, str], text: str, links: Sequence[Link]
) -> dict[int, Range]:
    """Finds the protected spans that a translation has, each once; numbers in any notation."""
    ranges: dict[int, Range] = {}
    taken: list[Range] = []
    numbers: dict[tuple[str, int], list[Range]] | None = None
    places: dict[str, Iterator[Range]] = {}
    firsts: dict[str, list[Range]] = {}
    due: _Due | None = None
    # A short one may be a part of a long one
    for number, copied in sorted(wanted.items(), key=lambda item: (-len(item[1]), item[0])):
        if copied not in places:
            found_first = next(whole := _whole(copied, text), None)
            if found_first is not None:
                places[copied] = chain([found_first], whole)
            elif _ANY_NUMBER.fullmatch(copied):
                if numbers is None:
                    numbers = _numbers(text)
                places[copied] = iter(numbers.get(_notation(copied), ()))
            else:
                places[copied] = iter(())
        # What is taken stays so: of the same text, the search goes on
        candidates = places[copied]
        span = source.spans[number]
        if span.opening and copied.isdecimal():
            # Letters may stand at it, as they do in the text
            alone = re.finditer(rf"(?<!\d){copied}(?!\d)", text)
            candidates = chain((match.span() for match in alone), candidates)
        elif span.opening:
            # What has markup or stands for syntax may also be written as a word or mark of its own
            if copied not in firsts:
                firsts[copied] = [*islice(_whole(copied, text), _MOST)]
            if len(firsts[copied]) > 1:
                due = due or _Due(links)
                candidates = chain(due.first(span, firsts[copied]), candidates)
        for start, end in candidates:
            index = bisect_left(taken, (end,))
            if index == 0 or taken[index - 1][1] <= start:
                ranges[number] = (start, end)
                insort(taken, (start, end))
                break
    return ranges


class _Due:
    """Tells which places of a translation are due to a span of the source."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = sorted(links, key=lambda link: link.source)
        self._starts = [link.source[0] for link in self._links]
        self._longest = max((link.source[1] - link.source[0] for link in links), default=0)

    def first(self, span: Span, places: Sequence[Range]) -> list[Range]:
        """Sorts places of a text: first those that are due to a span."""
        first = bisect_left(self._starts, span.start - self._longest)
        links = self._links[first : bisect_left(self._starts, span.end)]
        due = [link.target for link in links if span.start < link.source[1]]

        def is_other(place: Range) -> bool:
            return not any(start < place[1] and place[0] < end for start, end in due)

        return sorted(places, key=is_other)


def _numbers(text: str) -> dict[tuple[str, int], list[Range]]:
    """Finds the places of numbers, by their notation."""
    places: dict[tuple[str, int], list[Range]] = defaultdict(list)
    for match in _ANY_NUMBER.finditer(text):
        places[_notation(match[0])].append(match.span())
    return places


def _notation(number: str) -> tuple[str, int]:
    """Returns the digits of a number, and how many kinds of marks stand between them."""
    return re.sub(r"\D", "", number), len(set(re.sub(r"\d", "", number)))


def _whole(copied: str, text: str) -> Iterator[Range]:
    """Finds a text where it is no part of a word, number or address."""
    place = text.find(copied)
    while place >= 0:
        end = place + len(copied)
        is_part = copied[0].isalnum() and _is_letter(text[max(0, place - 1) : place])
        # An address that ends in a slash goes on in letters behind it
        may_go_on = (copied[-1].isalnum() and not LINE_END.fullmatch(copied)) or copied[-1] == "/"
        if not (is_part or (may_go_on and _is_letter(text[end : end + 1]))):
            yield place, end
            place = text.find(copied, end)
        else:
            place = text.find(copied, place + 1)


def _is_letter(letter: str) -> bool:
    r"""Returns whether it is of a word, as \w is."""
    return letter.isalnum() or letter == "_"


def _behind(source: Segment, span: Span) -> str:
    return source.text[span.end : span.end + 1]


def _with_blanks(source: Segment, span: Span, before: str, behind: str) -> str:
    """Adds spaces to a copied text where it had them and would now stand at a word."""
    start, end = span.start, span.end
    copied = source.text[start:end]
    own_before, own_behind = source.text[max(0, start - 1) : start], _behind(source, span)
    # Where a mark stood at it, that may have stayed elsewhere: a word is not to come nearer
    if (before.isalnum() and not own_before.isalnum()) or (
        before.strip() and not own_before.strip()
    ):
        copied = " " + copied
    is_opened = behind in _OPENING and bool(behind) and not own_behind.strip()
    if is_opened or (behind.isalnum() and not own_behind.isalnum()):
        copied += " "
    return copied
