"""Places the markup of a text in its translation, using the word alignment.

Each target word is aligned with at most one source word. A span goes around the target words
aligned with its source words: a link around one run of them, bold text around all runs. No word is
cut, spans never cross, and none is lost: without an alignment, the neighbors decide the position.
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
"""Start and exclusive end, in characters or words."""


class Link(NamedTuple):
    """Characters of a translation, such as a token, and the source characters they translate."""

    target: Range
    source: Range


# Scripts without spaces between words: each letter counts as a word
_LETTERS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_LETTERS}]|(?:(?![{_LETTERS}])\w)+['’]?|[^\w\s]")
_GAP = 2
"""Maximum gap of words aligned elsewhere inside a span that must be one run."""
_NAME_LETTERS = 3
"""Minimum length of a word on both sides that counts as its own translation."""


@dataclass(frozen=True)
class Projection:
    """The spans of a translation."""

    spans: tuple[Span, ...]
    n_guessed: int
    """Number of spans with text but without an aligned word."""


def words_of(text: str, cuts: Sequence[int] = (), whole: Sequence[Range] = ()) -> list[Range]:
    """Finds words and marks; `cuts` also end words, and each range in `whole` is one word."""
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
    """Returns the sorted places strictly inside a range."""
    return places[bisect_right(places, start) : bisect_left(places, end)]


def with_all_copied(spans: Sequence[Span], copied: Sequence[Span]) -> list[Span]:
    """Adds sorted, disjoint protected spans like `with_copied`, but fast for long lines."""
    around = sorted((s.start, s.end) for s in spans if s.behavior in ("once", "repeat"))
    # Running maximum of starts, to find the first span after a place
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

    `fixed` has the ranges of protected spans by number. A span without an aligned word takes a
    free word if `takes_free`, otherwise it stays empty.
    """
    protected = [span for span in source.spans if span.behavior == "protected"]
    cuts = {place for span in source.spans for place in (span.start, span.end)}
    ours = words_of(source.text, sorted(cuts), [(s.start, s.end) for s in protected])
    theirs = words_of(text, _cuts_of_names(source.text, text, cuts), list(fixed.values()))
    whole = {fixed[n]: (source.spans[n].start, source.spans[n].end) for n in fixed}
    aligned = _align_words(source.text, ours, text, theirs, links, whole)
    # If words will be replaced, no span may enclose a copied text: it would be lost
    copied_words = {t for t, word in enumerate(theirs) if word in whole and not takes_free}
    work = _Work(source, text, ours, theirs, aligned, takes_free, copied_words)
    parents: list[int] = []
    for number, span in enumerate(source.spans):
        del parents[span.depth :]
        if number not in fixed:
            work.children[parents[-1] if parents else None].append(number)
        parents.append(number)
    work.place(None, (0, len(theirs)))
    # Copied words are never cut: a span encloses all of one or nothing
    copied = [
        replace(source.spans[number], start=start, end=end)
        for number, (start, end) in sorted(fixed.items(), key=lambda item: item[1])
    ]
    return Projection(tuple(with_all_copied(work.spans, copied)), work.n_guessed)


def _cuts_of_names(ours: str, theirs: str, cuts: set[int]) -> list[int]:
    """Finds span edges inside words that are unchanged in the translation."""
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


def _align_words(
    ours_text: str,
    ours: Sequence[Range],
    theirs_text: str,
    theirs: Sequence[Range],
    links: Sequence[Link],
    whole: Mapping[Range, Range],
) -> list[int | None]:
    """Finds the source word of each target word."""
    by_place = sorted(links)
    starts = [link.target[0] for link in by_place]
    longest = max((link.target[1] - link.target[0] for link in links), default=0)
    sources: list[int | None] = []
    for start, end in theirs:
        votes: Counter[int] = Counter()
        # Links that start earlier end before the word
        first = max(0, bisect_right(starts, start - longest) - 1)
        for number in range(first, len(by_place)):
            link = by_place[number]
            if link.target[0] >= end:
                break
            common = min(end, link.target[1]) - max(start, link.target[0])
            if common > 0 and (own := _most_common(link.source, ours)) is not None:
                votes[own] += common
        sources.append(votes.most_common(1)[0][0] if votes else None)
    same = _pair_unchanged(ours_text, ours, theirs_text, theirs)
    numbers = {word: number for number, word in enumerate(ours)}
    same += [
        (numbers[whole[word]], place)
        for place, word in enumerate(theirs)
        if whole.get(word) in numbers
    ]
    # An unchanged name or copied text has no article or preposition, so ignore words that the
    # attention links with it
    names = {
        n for n, place in same if ours_text[slice(*ours[n])].isalnum() or theirs[place] in whole
    }
    sources = [None if number in names else number for number in sources]
    for number, place in same:
        sources[place] = number
    return sources


def _most_common(span: Range, words: Sequence[Range]) -> int | None:
    """Finds the word that shares the most characters with a range."""
    best, most = None, 0
    for number in range(max(0, bisect_right(words, (span[0], span[0])) - 1), len(words)):
        start, end = words[number]
        if start >= span[1]:
            break
        common = min(end, span[1]) - max(start, span[0])
        if common > most:
            best, most = number, common
    return best


def _pair_unchanged(
    ours_text: str, ours: Sequence[Range], theirs_text: str, theirs: Sequence[Range]
) -> list[tuple[int, int]]:
    """Pairs names, numbers and marks that occur equally often on both sides."""
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
    """The target words in which spans are placed."""

    def __init__(self, words: Range, aligned: Sequence[int | None]) -> None:
        self.words = words
        self.where: dict[int, list[int]] = defaultdict(list)
        """Target words aligned with each source word, by its number."""
        for t in range(*words):
            if (s := aligned[t]) is not None:
                self.where[s].append(t)
        self._sources = sorted(self.where)

    def members(self, words: Range) -> list[int]:
        """Returns the target words aligned with a range of source words."""
        places = range(bisect_left(self._sources, words[0]), bisect_left(self._sources, words[1]))
        return sorted(t for n in places for t in self.where[self._sources[n]])

    def between(self, words: Range, n_words: int) -> int:
        """Returns the place between the neighbors of source words; the source has `n_words`."""
        next_index = bisect_left(self._sources, words[1])
        last_index = bisect_left(self._sources, words[0]) - 1
        after = (
            self.where[self._sources[next_index]][0] if next_index < len(self._sources) else None
        )
        before = self.where[self._sources[last_index]][-1] + 1 if last_index >= 0 else None
        if before is not None and after is not None:
            return min(before, after)
        # A place before or after all words stays there
        if words[1] >= n_words:
            return self.words[1]
        place = after if before is None else before
        return self.words[0] if place is None or words[0] == 0 else place


class _Free:
    """Free words of a scope; fast, because a long line queries them for each of its spans."""

    def __init__(self, words: Range, taken: set[int], free: list[int]) -> None:
        self._end, self._taken, self._free = words[1], taken, free

    @cached_property
    def _edges(self) -> list[int]:
        """Ends of the runs of taken words; computed after the last word is taken."""
        ends = {t + 1 for t in self._taken} - self._taken
        return sorted({self._end, *ends})

    def nearest(self, place: int) -> int | None:
        """Takes the free word nearest to a place; None if there is none."""
        index = bisect_left(self._free, place)
        near = range(max(0, index - 1), min(index + 1, len(self._free)))
        best = min(near, key=lambda n: abs(self._free[n] - place), default=None)
        return None if best is None else self._free.pop(best)

    def edge(self, place: int) -> int:
        """Returns the first place from here that is between two spans."""
        if place in self._taken and place - 1 in self._taken and place < self._end:
            return self._edges[bisect_left(self._edges, place)]
        return place


class _Solid:
    """Runs of words that void spans may not interrupt."""

    def __init__(self, runs: Sequence[Range]) -> None:
        self._runs = runs
        self._around: dict[int, list[int]] = defaultdict(list)
        for number, (start, end) in enumerate(runs):
            for word in range(start + 1, end):
                self._around[word].append(number)

    def outside(self, word: int, *, is_after: bool) -> int:
        """Returns the place before or after the run around a word."""
        last = -1
        while around := [n for n in self._around.get(word, ()) if n > last]:
            last = around[0]
            word = self._runs[last][is_after]
        return word


@dataclass
class _Work:
    """State while placing spans."""

    source: Segment
    text: str
    ours: Sequence[Range]
    theirs: Sequence[Range]
    aligned: Sequence[int | None]
    takes_free: bool
    apart: set[int]
    """Target words that only a run aligned with them may contain."""
    children: dict[int | None, list[int]] = field(default_factory=lambda: defaultdict(list))
    spans: list[Span] = field(default_factory=list)
    n_guessed: int = 0

    def place(self, parent: int | None, words: Range, depth: int = 0) -> None:
        """Places the direct children of a span, or the outermost spans, in its words."""
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
                    # Between two words, outside other runs
                    place = free.edge(place)
                    runs[n] = [(place, place)]
        placed = [(*self._characters(run, words), n, run) for n in runs for run in runs[n]]
        solid = _Solid([run for ranges in runs.values() for run in ranges])
        for n in numbers:
            if n not in filled:
                place = self._void(n, scope, solid, parent)
                placed.append((place, place, n, (0, 0)))
        # In one place, spans without text come first
        for start, end, n, run in sorted(placed, key=lambda row: (row[0], row[0] < row[1], row[2])):
            self.spans.append(replace(self.source.spans[n], start=start, end=end, depth=depth))
            if run[0] < run[1]:
                self.place(n, run, depth + 1)
            else:
                self._empty(n, start, depth + 1)

    def _empty(self, parent: int, place: int, depth: int) -> None:
        """Keeps the spans inside a span without text."""
        for n in self.children.get(parent, ()):
            self.spans.append(replace(self.source.spans[n], start=place, end=place, depth=depth))
            self._empty(n, place, depth + 1)

    @cached_property
    def _words(self) -> list[Range | None]:
        """The source words of each span; None if it has none."""
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
        """Joins words into runs; into one run, unless the span may be split."""
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
        trimmed = [self._trim_marks(n, (run[0], run[-1] + 1)) for run in runs]
        if splits or not runs:
            return trimmed
        sizes = [len(run) for run in runs]
        return [trimmed[sizes.index(max(sizes))]]

    def _trim_marks(self, n: int, run: Range) -> Range:
        """Drops marks at the ends of a run if the span has none there."""
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
        """Finds the position of a span without text."""
        place, text = self.source.spans[n].start, self.source.text
        first, last = self._around(parent)
        number = bisect_right(self._ends, place)
        start, end = scope.words
        # A note attaches to the word before it, an image to the word after it
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
        word = solid.outside(word, is_after=is_attached)
        if start < word and (is_attached or word == end):
            return self.theirs[word - 1][1]
        return self._characters((word, word), scope.words)[0]

    def _around(self, parent: int | None) -> Range:
        """Returns the source words of a span, or all source words."""
        whole = (0, len(self.ours))
        return whole if parent is None else self._words[parent] or whole

    def _characters(self, run: Range, scope: Range) -> Range:
        """Returns the character range of a run of words."""
        start, end = run
        if start < end:
            return self.theirs[start][0], self.theirs[end - 1][1]
        if start < len(self.theirs) and start < scope[1]:
            place = self.theirs[start][0]
        else:
            place = self.theirs[start - 1][1] if 0 < start <= len(self.theirs) else len(self.text)
        return place, place
