"""Words and the tokens that make them up.

Words are what ASCII white space separates, as tools that read Pharaoh files count them, or a given
list that spells the same text, such as a tokenized form with ``did n't`` for ``didn't``. Both
tokens and words are measured in letters: the bytes of a text that are not white space. So it does
not matter how spaces are tokenized, or that a text and its tokenized form differ in them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from tformer_cli.errors import DataError
from tformer_cli.text.lines import without_surrogates
from tformer_cli.text.tokenizer import TokenizerSide

Numbers = NDArray[np.float64]
Spans = NDArray[np.int64]
"""(N, 2): from a letter up to, and without, another."""


@dataclass(frozen=True)
class WordTokens:
    """A sentence, or a part of a line, in tokens, and the words they belong to."""

    ids: tuple[int, ...]
    """Its tokens, without special tokens."""
    shares: Numbers
    """(tokens, words) how much of each token lies in each word; a token of letters sums to 1, one
    of nothing but white space to 0."""
    is_cut: bool = False
    """True if it has more tokens than were kept."""

    @property
    def n_words(self) -> int:
        return int(self.shares.shape[1])


def words_of_text(
    tokenizer: TokenizerSide,
    line: str,
    *,
    words: Sequence[str] | None = None,
    parts: Sequence[str] = (),
    longest: int | None = None,
    where: str = "the line",
) -> list[WordTokens]:
    """Encodes a line, whole or in parts, and finds its words."""
    parts = [without_surrogates(part) for part in parts or (line,)]
    if words is None:
        in_bytes = without_surrogates(line).encode().split()
    else:
        in_bytes = [without_surrogates(word).encode() for word in words]
        _check_spelling(line, words, where)
    word_spans = _spans_of(in_bytes)
    found, start = [], 0
    encoded = tokenizer.for_parts_of(line).encode_with_spans(parts)
    for part, (ids, offsets) in zip(parts, encoded, strict=True):
        before = _letters_before(part.encode())
        spans = start + before[_byte_spans(part, offsets)]
        # a tokenizer's own space before the text is said to lie on its first letter
        is_space = [tokenizer.piece_bytes[token].isspace() for token in ids]
        spans[is_space] = 0
        shares = _shares(spans[:longest], word_spans)
        is_cut = longest is not None and len(ids) > longest
        found.append(WordTokens(tuple(ids[:longest]), shares, is_cut))
        start += int(before[-1])
    return found


@dataclass(frozen=True)
class SpelledWords:
    """The words that tokens spell, in letters."""

    texts: tuple[str, ...]
    of_token: tuple[int | None, ...]
    """For each token the number of its word; None if it has no letter."""


def spelled_words(tokenizer: TokenizerSide, ids: Sequence[int]) -> SpelledWords:
    """Spells the words of tokens; a token of two words is part of the one it has most of.

    A gap is a word of its own, whatever stands beside it.
    """
    texts: list[str] = []
    of_token: list[int | None] = []
    for is_gap, run in groupby(ids, key=lambda token: token == tokenizer.mask_id):
        tokens = list(run)
        if is_gap:
            found = SpelledWords((tokenizer.mask,) * len(tokens), tuple(range(len(tokens))))
        else:
            found = _spelled(tokenizer, tokens)
        of_token += [None if word is None else len(texts) + word for word in found.of_token]
        texts += found.texts
    return SpelledWords(tuple(texts), tuple(of_token))


def _spelled(tokenizer: TokenizerSide, ids: Sequence[int]) -> SpelledWords:
    text = b"".join(tokenizer.piece_bytes[token] for token in ids)
    shares = words_of_ids(tokenizer, ids).shares
    return SpelledWords(
        tuple(word.decode("utf-8", "replace") for word in text.split()),
        tuple(int(row.argmax()) if row.any() else None for row in shares),
    )


def words_of_ids(tokenizer: TokenizerSide, ids: Sequence[int]) -> WordTokens:
    """Finds the words that tokens spell, however else that text might be tokenized."""
    pieces = [tokenizer.piece_bytes[token] for token in ids]
    before = _letters_before(b"".join(pieces))
    ends = np.cumsum([0, *map(len, pieces)])
    spans = np.stack([before[ends[:-1]], before[ends[1:]]], axis=1)
    return WordTokens(tuple(ids), _shares(spans, _spans_of(b"".join(pieces).split())))


def _letters_before(text: bytes) -> NDArray[np.int64]:
    """(bytes + 1) how many letters come before each byte, and before the end."""
    characters = text.decode("utf-8", errors="surrogateescape")
    sizes = [len(c.encode("utf-8", errors="surrogateescape")) for c in characters]
    letters = np.repeat([not c.isspace() for c in characters], np.array(sizes, dtype=np.int64))
    return np.concatenate([[0], np.cumsum(letters, dtype=np.int64)])


def _spans_of(words: Iterable[bytes]) -> Spans:
    """The letters of words that follow one another."""
    ends = np.cumsum([0, *(int(_letters_before(word)[-1]) for word in words)])
    return np.stack([ends[:-1], ends[1:]], axis=1)


def _byte_spans(text: str, offsets: Sequence[tuple[int, int]]) -> Spans:
    sizes = [len(c.encode()) for c in text]
    before = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return before[np.array(offsets, dtype=np.int64).reshape(-1, 2)]


def _shares(tokens: Spans, words: Spans) -> Numbers:
    """(tokens, words) the part of each token's letters that lies in each word."""
    starts = np.maximum(tokens[:, None, 0], words[None, :, 0])
    ends = np.minimum(tokens[:, None, 1], words[None, :, 1])
    common = np.maximum(ends - starts, 0).astype(np.float64)
    shares: Numbers = common / np.maximum(common.sum(axis=1, keepdims=True), 1.0)
    return shares


def _check_spelling(line: str, words: Sequence[str], where: str) -> None:
    spelled, written = "".join("".join(words).split()), "".join(line.split())
    if spelled != written:
        both = enumerate(zip(spelled, written, strict=False))
        differing = (i for i, (ours, theirs) in both if ours != theirs)
        place = next(differing, min(len(spelled), len(written)))
        raise DataError(
            f'{where}: the words spell "{spelled[place : place + 12]}", but the text has '
            f'"{written[place : place + 12]}"; give the same text with other spaces'
        )
