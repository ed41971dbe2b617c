"""Texts that a translation must copy: placeholders, addresses, code, numbers, emoji.

The model reads them in the sentence, which helps the words around them more than a gap would. A
text that it does not copy replaces what the model wrote for it, or goes between its neighbors.
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
"""Codes of line ends; a word may follow them directly."""
_MOST = 50
"""Maximum number of positions compared for a text."""
_OPENING = "{%$@~:<[(&#"
"""First characters of texts that a blank separates from the text before them."""
_ELIDED = re.compile(r"['’]\w+")


def protect_segment(segment: Segment) -> Segment:
    """Adds a span around each text that must be copied."""
    copied = [Span(start, end, "protected") for start, end in _find_texts(segment)]
    if not copied:
        return segment
    return replace(segment, spans=tuple(with_all_copied(segment.spans, copied)))


def _find_texts(segment: Segment) -> Iterator[Range]:
    """Finds texts to copy that no span copies yet and no markup cuts."""
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
    """A translation with all its protected spans."""

    text: str
    links: Sequence[Link]
    fixed: Mapping[int, Range]
    """Characters of each protected span, by its number."""
    n_restored: int
    """Number of spans that the model did not copy."""


def restore_spans(source: Segment, text: str, links: Sequence[Link]) -> Restored:
    """Inserts the protected spans that a translation lacks."""
    wanted = {
        number: source.text[span.start : span.end]
        for number, span in enumerate(source.spans)
        if span.behavior == "protected" and not is_blank(source.text[span.start : span.end])
    }
    if not wanted:
        return Restored(text, links, {}, 0)
    ranges = _find_copied(source, wanted, text, links)
    missing = wanted.keys() - ranges.keys()
    if not missing:
        return Restored(text, links, ranges, 0)
    # Find what the model wrote instead as if each missing text were a link
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
    """Insertions into a translation, collected from its end and applied together.

    A long line has thousands; applying each by itself would move the rest of the line every time.
    """

    def __init__(self, text: str, links: Sequence[Link], ranges: Mapping[int, Range]) -> None:
        self.text, self.links, self.ranges = text, links, dict(ranges)
        self._edits: list[tuple[Range, str, int, Range]] = []

    def put(self, source: Segment, number: int, start: int, end: int) -> None:
        """Replaces characters by a protected span of the source; later calls must come earlier."""
        if start == end and (elided := self._elision_end(max(0, start - 1))):
            start = end = elided
        if end > self._first:
            self.apply()
        span = source.spans[number]
        wanted = source.text[span.start : span.end]
        before, after = self.text[max(0, start - 1) : start], self.text[end : end + 1]
        is_met = bool(self._edits) and end == self._first
        if is_met:
            after = self._edits[-1][1][0]
        copied = _with_blanks(source, span, before, after)
        # The edit after this one saw only the original text before it
        if is_met and " " not in copied[-1] + after and not _character_after(source, span).strip():
            copied += " "
        place = copied.index(wanted)
        self._edits.append(((start, end), copied, number, (place, place + len(wanted))))

    @property
    def _first(self) -> int:
        """The start of the first edit."""
        return self._edits[-1][0][0] if self._edits else len(self.text)

    def _elision_end(self, start: int) -> int | None:
        """Finds the end of a word after an apostrophe."""
        first = self._first
        match = _ELIDED.match(self.text, start, first)
        if self._edits and (first <= start + 1 or (match and match.end() == first)):
            # The word may continue in the insertion after it
            joined = _ELIDED.match(self.text[start:first] + self._edits[-1][1])
            if joined and joined.end() > first - start:
                self.apply()
                match = _ELIDED.match(self.text, start)
        return match and match.end()

    def apply(self) -> None:
        """Applies the edits and moves the links and ranges after them."""
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


def _find_copied(
    source: Segment, wanted: Mapping[int, str], text: str, links: Sequence[Link]
) -> dict[int, Range]:
    """Finds each protected span in a translation; numbers match in any notation."""
    ranges: dict[int, Range] = {}
    taken: list[Range] = []
    numbers: dict[tuple[str, int], list[Range]] | None = None
    places: dict[str, Iterator[Range]] = {}
    firsts: dict[str, list[Range]] = {}
    due: _Due | None = None
    # Longest first: a short text may be part of a longer one
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
        # Taken ranges stay taken, so equal texts continue the same search
        candidates = places[copied]
        span = source.spans[number]
        if span.opening and copied.isdecimal():
            # Letters may be attached to it, as in the source
            alone = re.finditer(rf"(?<!\d){copied}(?!\d)", text)
            candidates = chain((match.span() for match in alone), candidates)
        elif span.opening:
            # A text with markup, or a stand-in for syntax, may also be an ordinary word or mark
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
    """Finds which ranges of a translation are linked to a source span."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = sorted(links, key=lambda link: link.source)
        self._starts = [link.source[0] for link in self._links]
        self._longest = max((link.source[1] - link.source[0] for link in links), default=0)

    def first(self, span: Span, places: Sequence[Range]) -> list[Range]:
        """Sorts ranges: those linked to the span come first."""
        first = bisect_left(self._starts, span.start - self._longest)
        links = self._links[first : bisect_left(self._starts, span.end)]
        due = [link.target for link in links if span.start < link.source[1]]

        def is_other(place: Range) -> bool:
            return not any(start < place[1] and place[0] < end for start, end in due)

        return sorted(places, key=is_other)


def _numbers(text: str) -> dict[tuple[str, int], list[Range]]:
    """Finds the ranges of numbers, grouped by notation."""
    places: dict[tuple[str, int], list[Range]] = defaultdict(list)
    for match in _ANY_NUMBER.finditer(text):
        places[_notation(match[0])].append(match.span())
    return places


def _notation(number: str) -> tuple[str, int]:
    """Returns the digits of a number, and how many kinds of marks separate them."""
    return re.sub(r"\D", "", number), len(set(re.sub(r"\d", "", number)))


def _whole(copied: str, text: str) -> Iterator[Range]:
    """Finds a text where it is not part of a word, number or address."""
    place = text.find(copied)
    while place >= 0:
        end = place + len(copied)
        is_part = copied[0].isalnum() and _is_letter(text[max(0, place - 1) : place])
        # An address that ends in a slash may continue with letters
        may_go_on = (copied[-1].isalnum() and not LINE_END.fullmatch(copied)) or copied[-1] == "/"
        if not (is_part or (may_go_on and _is_letter(text[end : end + 1]))):
            yield place, end
            place = text.find(copied, end)
        else:
            place = text.find(copied, place + 1)


def _is_letter(letter: str) -> bool:
    r"""True for characters of words, as in \w."""
    return letter.isalnum() or letter == "_"


def _character_after(source: Segment, span: Span) -> str:
    return source.text[span.end : span.end + 1]


def _with_blanks(source: Segment, span: Span, before: str, after: str) -> str:
    """Adds the spaces that a copied text had where it would now touch a word."""
    start, end = span.start, span.end
    copied = source.text[start:end]
    own_before, own_after = source.text[max(0, start - 1) : start], _character_after(source, span)
    # A mark next to it may now be elsewhere: keep a word from taking its place
    if (before.isalnum() and not own_before.isalnum()) or (
        before.strip() and not own_before.strip()
    ):
        copied = " " + copied
    is_opened = after in _OPENING and bool(after) and not own_after.strip()
    if is_opened or (after.isalnum() and not own_after.isalnum()):
        copied += " "
    return copied
