"""Puts the markup of a text into its translation, by which words go together.

Each word of the translation has at most one word of the text. A span goes around the words whose
own lie in it: a link around one run of them, bold text around as many as there are. No word is
cut, no span crosses another, and none is lost: where nothing is aligned, neighbors tell the place.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tformer_cli.documents.segments import with_copied

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tformer_cli.documents.segments import Segment, Span

Range = tuple[int, int]
"""Characters, or words: from one up to, and without, another."""


class Link(NamedTuple):
    """Characters of a translation, such as a token's, and of its text that go together."""

    target: Range
    source: Range


# Scripts without spaces between words: each letter, with its marks, is one
_LETTERS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_LETTERS}]|(?:(?![{_LETTERS}])\w)+['’]?|[^\w\s]")
_GAP = 2
"""Words of other sources that a run may contain where it has to be one run."""
_NAME_LETTERS = 3
"""Letters from which a word that is the same on both sides is taken for its own translation."""


@dataclass(frozen=True)
class Projection:
    """The spans of a translation."""

    spans: tuple[Span, ...]
    n_guessed: int
    """Spans with text of which no word was aligned."""


def words_of(text: str, cuts: Sequence[int] = (), whole: Sequence[Range] = ()) -> list[Range]:
    """Finds words and marks; words end at `cuts` too, and what is `whole` is one word."""
    kept = sorted(one for one in whole if one[0] < one[1])
    found: list[Range] = []
    place = 0
    for start, end in [*kept, (len(text), len(text))]:
        for match in _WORD.finditer(text, place, start):
            inner = [cut for cut in cuts if match.start() < cut < match.end()]
            found += pairwise([match.start(), *sorted(set(inner)), match.end()])
        if start < end:
            found.append((start, end))
        place = end
    return found


def project(
    source: Segment,
    text: str,
    links: Sequence[Link],
    fixed: Mapping[int, Range],
    *,
    takes_free: bool = True,
) -> Projection:
    """Finds the places of a segment's spans in its translation.

    `fixed` are the places of protected spans, by their numbers. A span without an aligned word
    takes one that is free, if it may, or has none.
    """
    protected = [span for span in source.spans if span.behavior == "protected"]
    cuts = {place for span in source.spans for place in (span.start, span.end)}
    ours = words_of(source.text, sorted(cuts), [(s.start, s.end) for s in protected])
    theirs = words_of(text, _cuts_of_names(source.text, text, cuts), list(fixed.values()))
    whole = {fixed[n]: (source.spans[n].start, source.spans[n].end) for n in fixed}
    aligned = _aligned(source.text, ours, text, theirs, links, whole)
    work = _Work(source, text, ours, theirs, aligned, takes_free)
    parents: list[int] = []
    for number, span in enumerate(source.spans):
        del parents[span.depth :]
        if number not in fixed:
            work.children[parents[-1] if parents else None].append(number)
        parents.append(number)
    work.place(None, (0, len(theirs)))
    spans = work.spans
    # Words that are copied are never cut: a span has all of one or nothing
    for number, (start, end) in sorted(fixed.items(), key=lambda one: one[1]):
        spans = with_copied(spans, replace(source.spans[number], start=start, end=end))
    return Projection(tuple(spans), work.n_guessed)


def _cuts_of_names(ours: str, theirs: str, cuts: set[int]) -> list[int]:
    """Finds where a span ends within a word that is the same in the translation."""
    cut = [
        (match, inner)
        for match in _WORD.finditer(ours)
        if (inner := [c - match.start() for c in cuts if match.start() < c < match.end()])
    ]
    found = []
    for match, inner in cut:
        before, after = (
            [one.start() for one in _WORD.finditer(text) if one[0] == match[0]]
            for text in (ours, theirs)
        )
        if len(before) == len(after):
            found += [after[before.index(match.start())] + one for one in inner]
    return found


def _aligned(
    ours_text: str,
    ours: Sequence[Range],
    theirs_text: str,
    theirs: Sequence[Range],
    links: Sequence[Link],
    whole: Mapping[Range, Range],
) -> list[int | None]:
    """Finds the source word of each word of a translation."""
    by_place = sorted(links)
    starts = [one.target[0] for one in by_place]
    longest = max((one.target[1] - one.target[0] for one in links), default=0)
    found: list[int | None] = []
    for start, end in theirs:
        votes: Counter[int] = Counter()
        # A link that begins earlier than this ends before the word
        for link in by_place[max(0, bisect_right(starts, start - longest) - 1) :]:
            if link.target[0] >= end:
                break
            common = min(end, link.target[1]) - max(start, link.target[0])
            number = _most_common(link.source, ours)
            if common > 0 and number is not None:
                votes[number] += common
        found.append(votes.most_common(1)[0][0] if votes else None)
    same = _unchanged(ours_text, ours, theirs_text, theirs)
    numbers = {one: number for number, one in enumerate(ours)}
    same += [
        (numbers[whole[one]], place)
        for place, one in enumerate(theirs)
        if whole.get(one) in numbers
    ]
    # A name that translates itself, and what is copied, has no article or preposition, whatever
    # was attended to there
    names = {
        n for n, place in same if ours_text[slice(*ours[n])].isalnum() or theirs[place] in whole
    }
    found = [None if number in names else number for number in found]
    for number, place in same:
        found[place] = number
    return found


def _most_common(one: Range, words: Sequence[Range]) -> int | None:
    """Finds the word that has most characters of a range."""
    best, most = None, 0
    for number in range(max(0, bisect_right(words, (one[0], one[0])) - 1), len(words)):
        start, end = words[number]
        if start >= one[1]:
            break
        common = min(end, one[1]) - max(start, one[0])
        if common > most:
            best, most = number, common
    return best


def _unchanged(
    ours_text: str, ours: Sequence[Range], theirs_text: str, theirs: Sequence[Range]
) -> list[tuple[int, int]]:
    """Pairs names, numbers and marks that both sides have as often: they translate themselves."""
    places: tuple[dict[str, list[int]], ...] = (defaultdict(list), defaultdict(list))
    for text, words, by_word in ((ours_text, ours, places[0]), (theirs_text, theirs, places[1])):
        for number, (start, end) in enumerate(words):
            by_word[text[start:end].casefold()].append(number)
    found: list[tuple[int, int]] = []
    for word, numbers in places[0].items():
        other = places[1].get(word, ())
        is_name = len(word) >= _NAME_LETTERS or any(map(str.isdigit, word))
        is_mark = len(numbers) == 1 and not any(map(str.isalnum, word))
        if len(other) == len(numbers) and (is_name or is_mark):
            found += zip(numbers, other, strict=True)
    return found


@dataclass
class _Work:
    """Spans that are being placed."""

    source: Segment
    text: str
    ours: Sequence[Range]
    theirs: Sequence[Range]
    aligned: Sequence[int | None]
    takes_free: bool
    children: dict[int | None, list[int]] = field(default_factory=lambda: defaultdict(list))
    spans: list[Span] = field(default_factory=list)
    n_guessed: int = 0

    def place(self, parent: int | None, scope: Range, depth: int = 0) -> None:
        """Places the spans that stand directly in another, or in none, within its words."""
        numbers = self.children.get(parent, ())
        filled = {n: words for n in numbers if (words := self._words(n)) is not None}
        members = {n: self._members(words, scope) for n, words in filled.items()}
        owners = {t: n for n, some in members.items() for t in some}
        runs: dict[int, list[Range]] = {}
        for n in filled:
            runs[n] = self._runs(n, members[n], owners, scope, parent)
        taken = {t for some in runs.values() for start, end in some for t in range(start, end)}
        for n, words in filled.items():
            if not runs[n]:
                self.n_guessed += 1
                runs[n] = self._guessed(words, scope, taken)
                taken.update(t for start, end in runs[n] for t in range(start, end))
        placed = [(*self._characters(run, scope), n, run) for n in runs for run in runs[n]]
        solid = [one for some in runs.values() for one in some]
        for n in numbers:
            if n not in filled:
                place = self._void(n, scope, solid, parent)
                placed.append((place, place, n, (0, 0)))
        # Of those in one place, the ones without text are written first
        for start, end, n, run in sorted(placed, key=lambda one: (one[0], one[0] < one[1], one[2])):
            self.spans.append(replace(self.source.spans[n], start=start, end=end, depth=depth))
            if run[0] < run[1]:
                self.place(n, run, depth + 1)
            else:
                self._empty(n, start, depth + 1)

    def _empty(self, parent: int, place: int, depth: int) -> None:
        """Keeps what stands in a span without text."""
        for n in self.children.get(parent, ()):
            self.spans.append(replace(self.source.spans[n], start=place, end=place, depth=depth))
            self._empty(n, place, depth + 1)

    def _words(self, number: int) -> Range | None:
        """Returns the source words of a span; None: it has none."""
        span = self.source.spans[number]
        inside = [n for n, one in enumerate(self.ours) if one[0] < span.end and span.start < one[1]]
        return (inside[0], inside[-1] + 1) if inside else None

    def _members(self, words: Range, scope: Range) -> list[int]:
        """Returns the words of the translation whose own lie in a span."""
        own = ((t, self.aligned[t]) for t in range(*scope))
        return [t for t, s in own if s is not None and words[0] <= s < words[1]]

    def _runs(
        self,
        n: int,
        members: list[int],
        owners: Mapping[int, int],
        scope: Range,
        parent: int | None,
    ) -> list[Range]:
        """Joins words to runs: one, unless the span may be split."""
        if self._words(n) == self._around(parent) and scope[0] < scope[1]:
            return [scope]
        splits = self.source.spans[n].behavior == "repeat" and not self.children.get(n)
        runs: list[list[int]] = []
        for t in members:
            gap = range(runs[-1][-1] + 1, t) if runs else range(0)
            is_free = all(owners.get(g, n) == n for g in gap)
            is_small = all(self.aligned[g] is None for g in gap) if splits else len(gap) <= _GAP
            if runs and is_free and is_small:
                runs[-1].append(t)
            else:
                runs.append([t])
        trimmed = [self._trimmed(n, (run[0], run[-1] + 1)) for run in runs]
        if splits or not runs:
            return trimmed
        sizes = [len(run) for run in runs]
        return [trimmed[sizes.index(max(sizes))]]

    def _trimmed(self, n: int, run: Range) -> Range:
        """Leaves marks at the ends of a run outside if the span has none there."""
        span = self.source.spans[n]
        inner = self.source.text[span.start : span.end].strip()
        start, end = run
        while end - start > 1 and inner[:1].isalnum() and self._is_mark(start):
            start += 1
        while end - start > 1 and inner[-1:].isalnum() and self._is_mark(end - 1):
            end -= 1
        return start, end

    def _is_mark(self, t: int) -> bool:
        return not any(map(str.isalnum, self.text[slice(*self.theirs[t])]))

    def _guessed(self, words: Range, scope: Range, taken: set[int]) -> list[Range]:
        """Finds a word that is free near the place where a span's words would be."""
        place = self._between(words, scope)
        free = [t for t in range(*scope) if t not in taken and not self._is_mark(t)]
        if not (free and self.takes_free):
            # Between two words, and not within a run of others
            while place in taken and place - 1 in taken and place < scope[1]:
                place += 1
            return [(place, place)]
        best = min(free, key=lambda t: (abs(t - place), t))
        return [(best, best + 1)]

    def _between(self, words: Range, scope: Range) -> int:
        """Returns the place between the neighbors of source words."""
        where: dict[int, list[int]] = defaultdict(list)
        for t in range(*scope):
            if (s := self.aligned[t]) is not None:
                where[s].append(t)
        after = next((where[s][0] for s in range(words[1], len(self.ours)) if s in where), None)
        before = next((where[s][-1] + 1 for s in range(words[0] - 1, -1, -1) if s in where), None)
        if before is not None and after is not None:
            return min(before, after)
        # Behind all words, or before them, it stays there
        if words[1] >= len(self.ours):
            return scope[1]
        found = after if before is None else before
        return scope[0] if found is None or words[0] == 0 else found

    def _void(self, n: int, scope: Range, solid: Sequence[Range], parent: int | None) -> int:
        """Finds the character before which a span without text goes."""
        place, text = self.source.spans[n].start, self.source.text
        first, last = self._around(parent)
        number = sum(one[1] <= place for one in self.ours)
        # A note stands at the word before it, an image at the one behind it
        is_attached = not text[max(0, place - 1) : place].isspace() and (
            not text[place : place + 1].isalnum()
        )
        if number <= first or number >= last or scope[0] == scope[1]:
            word = scope[0] if number <= first else scope[1]
        else:
            own = number - 1 if is_attached else number
            found = [t for t in range(*scope) if self.aligned[t] == own]
            word = self._between((number, number), scope)
            if found:
                word = found[-1] + 1 if is_attached else found[0]
        for start, end in solid:
            if start < word < end:
                word = end if is_attached else start
        if scope[0] < word and (is_attached or word == scope[1]):
            return self.theirs[word - 1][1]
        return self._characters((word, word), scope)[0]

    def _around(self, parent: int | None) -> Range:
        """Returns the source words of a span, or of all the text."""
        whole = (0, len(self.ours))
        return whole if parent is None else self._words(parent) or whole

    def _characters(self, run: Range, scope: Range) -> Range:
        """Returns the characters of a run of words."""
        start, end = run
        if start < end:
            return self.theirs[start][0], self.theirs[end - 1][1]
        if start < len(self.theirs) and start < scope[1]:
            place = self.theirs[start][0]
        else:
            place = self.theirs[start - 1][1] if 0 < start <= len(self.theirs) else len(self.text)
        return place, place
