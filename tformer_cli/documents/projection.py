"""Puts the markup of a text into its translation, by which words go together.

Each word of the translation has at most one word of the text. A span goes around the words whose
own lie in it: a link around one run of them, bold text around as many as there are. No word is
cut, no span crosses another, and none is lost: where nothing is aligned, neighbors tell the place.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

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
    kept = sorted(word for word in whole if word[0] < word[1])
    edges = sorted(set(cuts))
    words: list[Range] = []
    place = 0
    for start, end in [*kept, (len(text), len(text))]:
        for match in _WORD.finditer(text, place, start):
            words += pairwise([match.start(), *_between(edges, *match.span()), match.end()])
        if start < end:
            words.append((start, end))
        place = end
    return words


def _between(places: Sequence[int], start: int, end: int) -> Sequence[int]:
    """Returns those of sorted places that lie within a range, its ends left out."""
    return places[bisect_right(places, start) : bisect_left(places, end)]


def with_all_copied(spans: Sequence[Span], copied: Sequence[Span]) -> list[Span]:
    """Adds protected spans, in order and apart, as `with_copied` adds one; a long line has many."""
    around = sorted((s.start, s.end) for s in spans if s.behavior in ("once", "repeat"))
    # Where the first span stands that begins behind a place
    starts = list(accumulate((span.start for span in spans), max))
    placed: list[Span] = []
    ends: list[int] = []
    n_open = done = 0
    for span in copied:
        while n_open < len(around) and around[n_open][0] <= span.start:
            heappush(ends, around[n_open][1])
            n_open += 1
        while ends and ends[0] < span.end:
            heappop(ends)
        index = bisect_left(starts, span.end)
        placed += [*spans[done:index], replace(span, depth=len(ends))]
        done = index
    return [*placed, *spans[done:]]


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
    # Where others are to be replaced, none may go around what is copied: it would be lost
    copied_words = {t for t, word in enumerate(theirs) if word in whole and not takes_free}
    work = _Work(source, text, ours, theirs, aligned, takes_free, copied_words)
    parents: list[int] = []
    for number, span in enumerate(source.spans):
        del parents[span.depth :]
        if number not in fixed:
            work.children[parents[-1] if parents else None].append(number)
        parents.append(number)
    work.place(None, (0, len(theirs)))
    # Words that are copied are never cut: a span has all of one or nothing
    copied = [
        replace(source.spans[number], start=start, end=end)
        for number, (start, end) in sorted(fixed.items(), key=lambda item: item[1])
    ]
    return Projection(tuple(with_all_copied(work.spans, copied)), work.n_guessed)


def _cuts_of_names(ours: str, theirs: str, cuts: set[int]) -> list[int]:
    """Finds where a span ends within a word that is the same in the translation."""
    edges = sorted(cuts)
    cut = [
        (match, [place - match.start() for place in inner])
        for match in _WORD.finditer(ours)
        if (inner := _between(edges, *match.span()))
    ]
    if not cut:
        return []
    before, after = _places_of_words(ours), _places_of_words(theirs)
    inner_places = []
    for match, inner in cut:
        places, other_places = before[match[0]], after.get(match[0], ())
        if len(places) == len(other_places):
            inner_places += [
                other_places[bisect_left(places, match.start())] + place for place in inner
            ]
    return inner_places


def _places_of_words(text: str) -> dict[str, list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for match in _WORD.finditer(text):
        places[match[0]].append(match.start())
    return places


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
    starts = [link.target[0] for link in by_place]
    longest = max((link.target[1] - link.target[0] for link in links), default=0)
    sources: list[int | None] = []
    for start, end in theirs:
        votes: Counter[int] = Counter()
        # A link that begins earlier than this ends before the word
        first = max(0, bisect_right(starts, start - longest) - 1)
        for number in range(first, len(by_place)):
            link = by_place[number]
            if link.target[0] >= end:
                break
            common = min(end, link.target[1]) - max(start, link.target[0])
            if common > 0 and (own := _most_common(link.source, ours)) is not None:
                votes[own] += common
        sources.append(votes.most_common(1)[0][0] if votes else None)
    same = _unchanged(ours_text, ours, theirs_text, theirs)
    numbers = {word: number for number, word in enumerate(ours)}
    same += [
        (numbers[whole[word]], place)
        for place, word in enumerate(theirs)
        if whole.get(word) in numbers
    ]
    # A name that translates itself, and what is copied, has no article or preposition, whatever
    # was attended to there
    names = {
        n for n, place in same if ours_text[slice(*ours[n])].isalnum() or theirs[place] in whole
    }
    sources = [None if number in names else number for number in sources]
    for number, place in same:
        sources[place] = number
    return sources


def _most_common(span: Range, words: Sequence[Range]) -> int | None:
    """Finds the word that has most characters of a range."""
    best, most = None, 0
    for number in range(max(0, bisect_right(words, (span[0], span[0])) - 1), len(words)):
        start, end = words[number]
        if start >= span[1]:
            break
        common = min(end, span[1]) - max(start, span[0])
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
    pairs: list[tuple[int, int]] = []
    for word, numbers in places[0].items():
        other = places[1].get(word, ())
        is_name = len(word) >= _NAME_LETTERS or any(map(str.isdigit, word))
        is_mark = len(numbers) == 1 and not any(map(str.isalnum, word))
        if len(other) == len(numbers) and (is_name or is_mark):
            pairs += zip(numbers, other, strict=True)
    return pairs


class _Scope:
    """Words of a translation within which spans are placed."""

    def __init__(self, words: Range, aligned: Sequence[int | None]) -> None:
        self.words = words
        self.where: dict[int, list[int]] = defaultdict(list)
        """The words of the translation whose own a source word is, by its number."""
        for t in range(*words):
            if (s := aligned[t]) is not None:
                self.where[s].append(t)
        self._sources = sorted(self.where)

    def members(self, words: Range) -> list[int]:
        """Returns the words of the translation whose own lie in a span."""
        places = range(bisect_left(self._sources, words[0]), bisect_left(self._sources, words[1]))
        return sorted(t for n in places for t in self.where[self._sources[n]])

    def between(self, words: Range, n_words: int) -> int:
        """Returns the place between the neighbors of source words, of which there are so many."""
        behind = bisect_left(self._sources, words[1])
        ahead = bisect_left(self._sources, words[0]) - 1
        after = self.where[self._sources[behind]][0] if behind < len(self._sources) else None
        before = self.where[self._sources[ahead]][-1] + 1 if ahead >= 0 else None
        if before is not None and after is not None:
            return min(before, after)
        # Behind all words, or before them, it stays there
        if words[1] >= n_words:
            return self.words[1]
        place = after if before is None else before
        return self.words[0] if place is None or words[0] == 0 else place


class _Free:
    """Words of a scope that no span has; a long line asks for them once for each of its spans."""

    def __init__(self, words: Range, taken: set[int], free: list[int]) -> None:
        self._end, self._taken, self._free = words[1], taken, free

    @cached_property
    def _edges(self) -> list[int]:
        """The ends of the runs of words that are taken; asked for when no more are."""
        ends = {t + 1 for t in self._taken} - self._taken
        return sorted({self._end, *ends})

    def nearest(self, place: int) -> int | None:
        """Takes the word next to a place, of two the first; None: there is none."""
        index = bisect_left(self._free, place)
        near = range(max(0, index - 1), min(index + 1, len(self._free)))
        best = min(near, key=lambda n: abs(self._free[n] - place), default=None)
        return None if best is None else self._free.pop(best)

    def edge(self, place: int) -> int:
        """Returns the first place from here on that lies between two spans."""
        if place in self._taken and place - 1 in self._taken and place < self._end:
            return self._edges[bisect_left(self._edges, place)]
        return place


class _Solid:
    """Runs of words that what has no text may not stand in."""

    def __init__(self, runs: Sequence[Range]) -> None:
        self._runs = runs
        self._around: dict[int, list[int]] = defaultdict(list)
        for number, (start, end) in enumerate(runs):
            for word in range(start + 1, end):
                self._around[word].append(number)

    def outside(self, word: int, *, is_behind: bool) -> int:
        """Returns the place before, or behind, the run around a word."""
        last = -1
        while around := [n for n in self._around.get(word, ()) if n > last]:
            last = around[0]
            word = self._runs[last][is_behind]
        return word


@dataclass
class _Work:
    """Spans that are being placed."""

    source: Segment
    text: str
    ours: Sequence[Range]
    theirs: Sequence[Range]
    aligned: Sequence[int | None]
    takes_free: bool
    apart: set[int]
    """Words of the translation that no run may contain besides its own."""
    children: dict[int | None, list[int]] = field(default_factory=lambda: defaultdict(list))
    spans: list[Span] = field(default_factory=list)
    n_guessed: int = 0

    def place(self, parent: int | None, words: Range, depth: int = 0) -> None:
        """Places the spans that stand directly in another, or in none, within its words."""
        numbers = self.children.get(parent, ())
        if not numbers:
            return
        scope = _Scope(words, self.aligned)
        filled = {n: own for n in numbers if (own := self._words[n]) is not None}
        members = {n: scope.members(own) for n, own in filled.items()}
        owners = {t: n for n, words in members.items() for t in words}
        runs: dict[int, list[Range]] = {}
        for n in filled:
            runs[n] = self._runs(n, members[n], owners, words, parent)
        taken = {t for ranges in runs.values() for start, end in ranges for t in range(start, end)}
        left = [t for t in range(*words) if t not in taken and not self._is_mark(t)]
        free = _Free(words, taken, left if self.takes_free else [])
        for n, own in filled.items():
            if not runs[n]:
                self.n_guessed += 1
                place = scope.between(own, len(self.ours))
                if (best := free.nearest(place)) is not None:
                    runs[n] = [(best, best + 1)]
                    taken.add(best)
                else:
                    # Between two words, and not within a run of others
                    place = free.edge(place)
                    runs[n] = [(place, place)]
        placed = [(*self._characters(run, words), n, run) for n in runs for run in runs[n]]
        solid = _Solid([run for ranges in runs.values() for run in ranges])
        for n in numbers:
            if n not in filled:
                place = self._void(n, scope, solid, parent)
                placed.append((place, place, n, (0, 0)))
        # Of those in one place, the ones without text are written first
        for start, end, n, run in sorted(placed, key=lambda row: (row[0], row[0] < row[1], row[2])):
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

    @cached_property
    def _words(self) -> list[Range | None]:
        """The source words of each span; None: it has none."""
        starts, ends = [word[0] for word in self.ours], self._ends
        ranges = (
            (bisect_right(ends, span.start), bisect_left(starts, span.end))
            for span in self.source.spans
        )
        return [(first, last) if first < last else None for first, last in ranges]

    @cached_property
    def _ends(self) -> list[int]:
        return [word[1] for word in self.ours]

    def _runs(
        self,
        n: int,
        members: list[int],
        owners: Mapping[int, int],
        scope: Range,
        parent: int | None,
    ) -> list[Range]:
        """Joins words to runs: one, unless the span may be split."""
        if self._words[n] == self._around(parent) and scope[0] < scope[1]:
            return [scope]
        splits = self.source.spans[n].behavior == "repeat" and not self.children.get(n)
        runs: list[list[int]] = []
        for t in members:
            gap = range(runs[-1][-1] + 1, t) if runs else range(0)
            is_small = all(self.aligned[g] is None for g in gap) if splits else len(gap) <= _GAP
            if (
                runs
                and is_small
                and all(g not in self.apart and owners.get(g, n) == n for g in gap)
            ):
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

    def _void(self, n: int, scope: _Scope, solid: _Solid, parent: int | None) -> int:
        """Finds the character before which a span without text goes."""
        place, text = self.source.spans[n].start, self.source.text
        first, last = self._around(parent)
        number = bisect_right(self._ends, place)
        start, end = scope.words
        # A note stands at the word before it, an image at the one behind it
        is_attached = not text[max(0, place - 1) : place].isspace() and (
            not text[place : place + 1].isalnum()
        )
        if number <= first or number >= last or start == end:
            word = start if number <= first else end
        else:
            own = number - 1 if is_attached else number
            word = scope.between((number, number), len(self.ours))
            if attached := scope.where.get(own):
                word = attached[-1] + 1 if is_attached else attached[0]
        word = solid.outside(word, is_behind=is_attached)
        if start < word and (is_attached or word == end):
            return self.theirs[word - 1][1]
        return self._characters((word, word), scope.words)[0]

    def _around(self, parent: int | None) -> Range:
        """Returns the source words of a span, or of all the text."""
        whole = (0, len(self.ours))
        return whole if parent is None else self._words[parent] or whole

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
