"""A model's answers to the requests of a document: translations with their alignment.

Only lines with markup or with texts to copy are aligned, token by token, using the heads that the
model directory names.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import accumulate, count, islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tformer_cli.documents.messages import has_branches
from tformer_cli.documents.placeholders import is_code
from tformer_cli.documents.projection import Link
from tformer_cli.documents.protect import protect_segment, restore_spans
from tformer_cli.documents.segments import Segment
from tformer_cli.documents.translating import Answer
from tformer_cli.errors import UsageError
from tformer_cli.kinds.lines.job import ResultCounts
from tformer_cli.search.formats import flags_of
from tformer_cli.search.translator import GPU_BUFFER_LINES
from tformer_cli.text.lines import without_surrogates
from tformer_cli.text.tokenizer import UNK_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tformer_cli.documents.projection import Range
    from tformer_cli.documents.translating import Request
    from tformer_cli.inspect.doubt import Doubter
    from tformer_cli.inspect.jobs.align import Aligner
    from tformer_cli.kinds.stored_model import Opened
    from tformer_cli.search.hypothesis import SourceAttention
    from tformer_cli.search.translator import Translation, Translator
    from tformer_cli.text.tokenizer import Tokenizer, TokenizerSide


@lru_cache(maxsize=2 * GPU_BUFFER_LINES)
def _protected_line(line: str) -> Segment:
    """Marks the texts that a line must copy; called before and after its search."""
    return protect_segment(Segment(line))


class ModelAnswers:
    """Answers requests with an opened model."""

    def __init__(
        self,
        opened: Opened,
        counts: ResultCounts | None = None,
        doubter: Doubter | None = None,
    ) -> None:
        self._opened, self._doubter = opened, doubter
        self.counts = counts or ResultCounts()

    @cached_property
    def aligner(self) -> Aligner | None:
        from tformer_cli.inspect.jobs.align import Aligner

        try:
            return Aligner(self._opened.directory)
        except UsageError:  # its heads are pruned: lines are cut at markup instead
            return None

    def _make_translator(self, is_needed: Callable[[str], bool]) -> Translator:
        """Returns the translator; its search captures attention for the lines that need it."""
        plain = self._opened.translator
        return plain if self.aligner is None else self.aligner.listening(plain, is_needed)

    @cached_property
    def copying(self) -> Translator:
        """The translator of plain lines; `restore_lines` completes its results."""
        return self._make_translator(lambda line: bool(_protected_line(line).spans))

    def answers(self, requests: Sequence[Request], on_done: Callable[[int], None]) -> list[Answer]:
        """Translates lines; calls `on_done` with the number of lines done."""
        lines = [without_surrogates(request.text) for request in requests]
        needed = {
            line for line, request in zip(lines, requests, strict=True) if request.needs_links
        }
        translator = (
            self._make_translator(needed.__contains__) if needed else self._opened.translator
        )
        left = iter(requests)
        answers: list[Answer] = []
        for buffer in translator.buffers(lines):
            own_requests = list(islice(left, len(buffer)))
            if self._doubter is not None:
                buffer = self._doubter.add_doubts(buffer)
            pairs = list(zip(buffer, own_requests, strict=True))
            links = self._links([result for result, request in pairs if request.needs_links])
            for translation, request in pairs:
                # A piece belongs to a line that was already counted
                if not request.is_piece:
                    self.counts.add(translation)
                    self._uncount(translation, request.copied)
                flags = tuple(flags_of(translation.hypotheses[0], translation))
                own = links.get(translation.index) if request.needs_links else ()
                doubt = translation.doubt
                known = (doubt.probability, tuple(doubt.doubtful_words)) if doubt else ()
                answers.append(Answer(translation.text, own, flags, *known))
            on_done(len(answers))
        return answers

    def _uncount(self, translation: Translation, copied: Sequence[Range]) -> None:
        """Subtracts copied words from the count of unknown words."""
        if not (translation.n_unknown and copied):
            return
        text, place = "", 0
        for start, end in copied:
            text += translation.source[place:start]
            place = end
        left = self._opened.directory.tokenizer.source.encode(text + translation.source[place:])
        self.counts.unknown -= max(0, translation.n_unknown - left.count(UNK_ID))

    def restore_lines(self, buffer: Sequence[Translation]) -> list[Translation]:
        """Restores protected texts in the best translation of each line."""
        segments = {result.index: _protected_line(result.source) for result in buffer}
        links = self._links([result for result in buffer if segments[result.index].spans])
        restored_lines = []
        for translation in buffer:
            segment, (best, *other_hypotheses) = segments[translation.index], translation.hypotheses
            if is_code(translation.source) or has_branches(translation.source):
                kept = replace(best, text=translation.source)
                translation = replace(translation, hypotheses=(kept, *other_hypotheses))
            elif segment.spans:
                self._uncount(translation, [(span.start, span.end) for span in segment.spans])
                text = restore_spans(segment, best.text, links.get(translation.index) or ()).text
                best = replace(best, text=text)
                translation = replace(translation, hypotheses=(best, *other_hypotheses))
            restored_lines.append(translation)
        return restored_lines

    def _links(self, translations: Sequence[Translation]) -> dict[int, list[Link] | None]:
        """Links the tokens of translations; keys are line numbers."""
        if not translations or self.aligner is None:
            return {}
        token_links = links_of([self.aligner], translations)
        return {
            translation.index: links
            for translation, links in zip(translations, token_links, strict=True)
        }


class _Part(NamedTuple):
    """A part of a translation and the attention of its tokens."""

    targets: list[Range]
    """Characters of each token of the translation."""
    sources: list[Range]
    """Characters of each token of the text."""
    weights: NDArray[np.float64]
    """(tokens of the translation, tokens of the text)."""


def links_of(
    aligners: Sequence[Aligner],
    translations: Sequence[Translation],
    *,
    tokenizer: Tokenizer | None = None,
    passes: bool = True,
) -> list[list[Link] | None]:
    """Links each token of the best translations with the source token it attended to most.

    Takes one aligner for each model that the text passed through. If a search captured no
    attention, a second pass with torch computes it; without that pass the result is None.
    `tokenizer` is that of the language pair, if the model has several.
    """
    return [
        None if parts is None else [link for part in parts for link in _list_links(part)]
        for parts in _find_attention(aligners, translations, tokenizer, passes=passes)
    ]


def _list_links(part: _Part) -> Iterator[Link]:
    for target, row in zip(part.targets, part.weights, strict=True):
        if row.any() and target[0] < target[1]:
            yield Link(target, part.sources[int(row.argmax())])


def _find_attention(
    aligners: Sequence[Aligner],
    translations: Sequence[Translation],
    tokenizer: Tokenizer | None,
    *,
    passes: bool,
) -> list[list[_Part] | None]:
    """Computes the attention from translations to sources, through all models."""
    *before, last = aligners
    if not before:
        return _find_model_attention(last, translations, tokenizer, passes=passes)
    passed = [result.through for result in translations if result.through is not None]
    pairs = zip(translations, passed, strict=True)
    own = [replace(translation, source=first.text) for translation, first in pairs]
    firsts = _find_attention(before, passed, None, passes=passes)
    seconds = _find_model_attention(last, own, tokenizer, passes=passes)
    return [
        None if first is None or second is None else _compose_attention(first, second)
        for first, second in zip(firsts, seconds, strict=True)
    ]


def _compose_attention(first: Sequence[_Part], second: Sequence[_Part]) -> list[_Part]:
    """Composes the attention of two models into shares of the source tokens.

    The models tokenize the text between them differently, so tokens are matched by the characters
    that they share.
    """
    between = [token for part in first for token in part.targets]
    sources = [token for part in first for token in part.sources]
    shares = np.zeros((len(between), len(sources)))
    row = column = 0
    for part in first:
        n_rows, n_columns = part.weights.shape
        shares[row : row + n_rows, column : column + n_columns] = _normal(part.weights)
        row, column = row + n_rows, column + n_columns
    starts, ends = (np.array([token[end] for token in between]) for end in (0, 1))
    composed = []
    for part in second:
        own_starts, own_ends = (
            np.array([[source[end]] for source in part.sources]) for end in (0, 1)
        )
        common = np.minimum(own_ends, ends) - np.maximum(own_starts, starts)
        weights = _normal(part.weights) @ _normal(np.maximum(common, 0)) @ shares
        composed.append(_Part(part.targets, sources, weights))
    return composed


def _normal(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divides rows by their sums; rows of zeros stay zero."""
    shares: NDArray[np.float64] = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
    return shares


def _find_model_attention(
    aligner: Aligner,
    translations: Sequence[Translation],
    tokenizer: Tokenizer | None,
    *,
    passes: bool,
) -> list[list[_Part] | None]:
    """Computes the attention of one model's translations."""
    from tformer_cli.inspect.alignment import WordTokens

    tokenizer = tokenizer or aligner.tokenizer
    ours, theirs, pairs = [], [], []
    attentions: list[SourceAttention | None] = []
    for translation in translations:
        best = translation.hypotheses[0]
        parts = (translation.parts or (translation.source,)) if translation.n_parts else ()
        ends = accumulate(best.part_lengths, initial=0)
        cut = [best.token_ids[a:b] for a, b in pairwise(ends)][: len(parts)]
        sources = source_tokens(tokenizer.source, translation.source, parts)
        ours.append([places for _, places in sources])
        theirs.append(target_tokens(tokenizer.target, cut, best.text))
        attentions += best.attention or [None] * len(parts)
        for (ids, _), target in zip(sources, cut, strict=True):
            kept = ids[: aligner.longest]
            # Each token counts as a word
            read = WordTokens(tuple(kept), np.eye(len(kept)))
            pairs.append((read, WordTokens(tuple(target), np.eye(len(target)))))
    weights_by_pair = (
        dict(enumerate(aligner.heard_weights(pairs, attentions)))
        if passes
        else aligner.search_weights(pairs, attentions)
    )
    numbers = count()
    attended: list[list[_Part] | None] = []
    for read_parts, targets in zip(ours, theirs, strict=True):
        own = [weights_by_pair.get(next(numbers)) for _ in targets]
        # The last column is the end of the text; truncated tokens have no column
        attended.append(
            None
            if any(weights is None for weights in own)
            else [
                _Part(part, places[: weights.shape[1] - 1], weights[:, :-1])
                for places, part, weights in zip(read_parts, targets, own, strict=True)
                if weights is not None
            ]
        )
    return attended


def source_tokens(
    side: TokenizerSide, line: str, parts: Sequence[str]
) -> list[tuple[list[int], list[Range]]]:
    """Tokenizes the parts of a line; returns the range of each token in the line."""
    tokens, place = [], 0
    encoded = side.for_parts_of(line).encode_with_spans(list(parts))
    for part, (ids, spans) in zip(parts, encoded, strict=True):
        # Parts have no blanks at their ends; the blanks between them may differ
        place = max(line.find(part, place), place)
        tokens.append((ids, [(place + start, place + end) for start, end in spans]))
        place += len(part)
    return tokens


def target_tokens(
    side: TokenizerSide, parts: Sequence[Sequence[int]], text: str
) -> list[list[Range]]:
    """Finds the characters of a translation that each token wrote.

    Counts the bytes of non-blank characters, because tokens and text differ in blanks.
    """
    places = [n for n, letter in enumerate(text) if not letter.isspace() for _ in letter.encode()]
    places.append(len(text))
    tokens, done = [], 0
    for ids in parts:
        ranges = []
        for piece in (side.piece_bytes[token] for token in ids):
            size = len(b"".join(piece.split()))
            first, last = (min(place, len(places) - 1) for place in (done, done + size - 1))
            ranges.append((places[first], places[last] + 1) if size else (len(text), len(text)))
            done += size
        tokens.append([(start, min(end, len(text))) for start, end in ranges])
    return tokens
