"""Answers of a model to the requests of a document: translations, and what goes together in them.

Only lines with markup, or with something to copy, are aligned: by the heads that the model's
directory names, token by token.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import accumulate, count, islice, pairwise
from typing import TYPE_CHECKING

import numpy as np

from tformer_cli.documents.projection import Link
from tformer_cli.documents.protect import protected, restored
from tformer_cli.documents.segments import Segment
from tformer_cli.documents.translating import Answer
from tformer_cli.errors import UsageError
from tformer_cli.kinds.lines.job import ResultCounts
from tformer_cli.search.constraints import NO_CONSTRAINTS, with_terms
from tformer_cli.search.formats import flags_of
from tformer_cli.search.translator import BUFFER_LINES
from tformer_cli.text.lines import without_surrogates
from tformer_cli.text.tokenizer import UNK_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tformer_cli.documents.projection import Range
    from tformer_cli.documents.translating import Request
    from tformer_cli.inspect.jobs.align import Aligner
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.constraints import Term
    from tformer_cli.search.hypothesis import SourceAttention
    from tformer_cli.search.translator import Translation, Translator
    from tformer_cli.text.tokenizer import Tokenizer, TokenizerSide


class ModelAnswers:
    """Answers requests by an opened model."""

    def __init__(
        self, opened: Opened, glossary: Sequence[Term] = (), *, protects: bool = True
    ) -> None:
        self._opened, self._glossary, self._protects = opened, glossary, protects
        self.counts = ResultCounts()

    @cached_property
    def aligner(self) -> Aligner | None:
        from tformer_cli.inspect.jobs.align import Aligner

        try:
            return Aligner(self._opened.directory)
        except UsageError:  # its heads are pruned: markup cuts what is translated
            return None

    def _translator(self, requests: Sequence[Request]) -> Translator:
        """Returns the translator; where links are needed, its search listens to heads."""
        plain = self._opened.translator
        if self.aligner is None or not any(one.needs_links for one in requests):
            return plain
        return self.aligner.listening(plain)

    def answers(self, requests: Sequence[Request], on_done: Callable[[int], None]) -> list[Answer]:
        """Translates lines; `on_done` is told how many are done."""
        lines = iter(without_surrogates(one.text) for one in requests)
        left = iter(requests)
        terms = ((line, with_terms(NO_CONSTRAINTS, line, self._glossary)) for line in lines)
        found: list[Answer] = []
        for buffer in self._translator(requests).buffers(terms, BUFFER_LINES):
            asked = [one.needs_links for one in islice(left, len(buffer))]
            links = self._links([one for one, needs in zip(buffer, asked, strict=True) if needs])
            for one, needs in zip(buffer, asked, strict=True):
                self._count(one)
                flags = tuple(flags_of(one.hypotheses[0], one))
                found.append(Answer(one.text, links.get(one.index) if needs else (), flags))
            on_done(len(found))
        return found

    def _count(self, one: Translation) -> None:
        """Counts a translation; what is copied is no unknown word, whatever the model read."""
        self.counts.add(one)
        if not (one.n_unknown and self._protects):
            return
        text, place = "", 0
        for span in protected(Segment(one.source)).spans:
            text += one.source[place : span.start]
            place = span.end
        left = self._opened.directory.tokenizer.source.encode(text + one.source[place:])
        self.counts.unknown -= max(0, one.n_unknown - left.count(UNK_ID))

    def restored(self, buffer: Sequence[Translation]) -> list[Translation]:
        """Puts what lines have to copy into their best translations."""
        segments = {one.index: protected(Segment(one.source)) for one in buffer}
        links = self._links([one for one in buffer if segments[one.index].spans])
        made = []
        for one in buffer:
            segment, (best, *others) = segments[one.index], one.hypotheses
            if segment.spans:
                text = restored(segment, best.text, links.get(one.index) or ()).text
                one = replace(one, hypotheses=(replace(best, text=text), *others))
            made.append(one)
        return made

    def _links(self, translations: Sequence[Translation]) -> dict[int, list[Link] | None]:
        """Links the tokens of translations, by the numbers of their lines."""
        if not translations or self.aligner is None:
            return {}
        found = links_of(self.aligner, translations)
        return {one.index: links for one, links in zip(translations, found, strict=True)}


def links_of(
    aligner: Aligner,
    translations: Sequence[Translation],
    *,
    tokenizer: Tokenizer | None = None,
    passes: bool = True,
) -> list[list[Link] | None]:
    """Links each token of the best translations with the token of the source it is due to.

    Where the search has not listened, a second pass finds them, with torch; None: there is none.
    The tokenizer is that of the languages, if a model has several.
    """
    from tformer_cli.inspect.alignment import WordTokens

    tokenizer = tokenizer or aligner.tokenizer
    ours, theirs, pairs = [], [], []
    heard: list[SourceAttention | None] = []
    for one in translations:
        best = one.hypotheses[0]
        parts = (one.parts or (one.source,)) if one.n_parts else ()
        ends = accumulate(best.part_lengths, initial=0)
        cut = [best.token_ids[a:b] for a, b in pairwise(ends)][: len(parts)]
        sources = source_tokens(tokenizer.source, one.source, parts)
        ours.append([places for _, places in sources])
        theirs.append(target_tokens(tokenizer.target, cut, best.text))
        heard += best.attention or [None] * len(parts)
        for (ids, _), target in zip(sources, cut, strict=True):
            kept = ids[: aligner.longest]
            # Each token is a word of its own
            read = WordTokens(tuple(kept), np.eye(len(kept)))
            pairs.append((read, WordTokens(tuple(target), np.eye(len(target)))))
    found = (
        dict(enumerate(aligner.heard_weights(pairs, heard)))
        if passes
        else aligner.search_weights(pairs, heard)
    )
    numbers = count()
    made: list[list[Link] | None] = []
    for read_parts, targets in zip(ours, theirs, strict=True):
        own = [found.get(next(numbers)) for _ in targets]
        made.append(
            None
            if any(weights is None for weights in own)
            else [
                Link(target, places[int(row.argmax())])
                for places, part, weights in zip(read_parts, targets, own, strict=True)
                if weights is not None
                for target, row in zip(part, weights[:, :-1], strict=True)
                if row.any() and target[0] < target[1]
            ]
        )
    return made


def source_tokens(
    side: TokenizerSide, line: str, parts: Sequence[str]
) -> list[tuple[list[int], list[Range]]]:
    """Cuts the parts of a line into tokens, each with its characters in the line."""
    found, place = [], 0
    encoded = side.for_parts_of(line).encode_with_spans(list(parts))
    for part, (ids, spans) in zip(parts, encoded, strict=True):
        # Parts have no blanks at their ends; what is cut anew may have others within
        place = max(line.find(part, place), place)
        found.append((ids, [(place + start, place + end) for start, end in spans]))
        place += len(part)
    return found


def target_tokens(
    side: TokenizerSide, parts: Sequence[Sequence[int]], text: str
) -> list[list[Range]]:
    """Finds the characters of a translation that each token wrote.

    Letters are counted, in bytes: tokens and the text differ in blanks.
    """
    places = [n for n, letter in enumerate(text) if not letter.isspace() for _ in letter.encode()]
    places.append(len(text))
    found, done = [], 0
    for ids in parts:
        ranges = []
        for piece in (side.piece_bytes[token] for token in ids):
            size = len(b"".join(piece.split()))
            first, last = (min(place, len(places) - 1) for place in (done, done + size - 1))
            ranges.append((places[first], places[last] + 1) if size else (len(text), len(text)))
            done += size
        found.append([(start, min(end, len(text))) for start, end in ranges])
    return found
