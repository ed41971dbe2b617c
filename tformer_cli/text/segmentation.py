"""Encoding of text word by word: with each word tokenized once, or with BPE-dropout."""

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, pairwise
from random import Random
from types import MappingProxyType

from tokenizers import Tokenizer as HuggingFaceTokenizer

MAX_CHARACTERS = 1 << 20
"""Characters of remembered words: about 100,000 words in 40 MB. Beyond, memory starts afresh."""
N_VARIANTS = 16
"""Segmentations of a word: enough that a frequent word is seen in all its likely ones (at a dropout
of 0.1 most words have fewer), a power of two so that a byte of a hash chooses evenly."""
MAX_WORDS = 1 << 20
"""The table is emptied beyond this many words; they are then drawn again, alike."""

Ids = tuple[int, ...]


class WordCache:
    """Encodes texts for tokenizers that put a space before a text and never join across spaces.

    Nearly all the time of tokenizing goes into finding words and writing them in bytes, and natural
    text has the same words again and again: this is some ten times as fast as by sentences.

    For these tokenizers, the ids of `a b` are the ids of `a` followed by the ids of `b`, if the one
    space between them is all the white space there is. Other texts are taken as one word.
    """

    def __init__(
        self,
        encode: Callable[[list[str]], list[list[int]]],
        new_tokens: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._encode = encode
        self._new = {word: [number] for word, number in new_tokens.items()}
        self._known = dict(self._new)
        self._n_characters = 0

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        if self._n_characters > MAX_CHARACTERS:
            # Another thread may still read the old one.
            self._known, self._n_characters = dict(self._new), 0
        known = self._known
        words = [words_of(text) for text in texts]
        new = [word for word in dict.fromkeys(chain.from_iterable(words)) if word not in known]
        if new:
            known.update(zip(new, self._encode(new), strict=True))
            self._n_characters += sum(map(len, new))
        return [list(chain.from_iterable(map(known.__getitem__, row))) for row in words]


def words_of(text: str) -> list[str]:
    """The words of a text, or all of it where white space is more than a space between words."""
    words = text.split(" ")
    return words if words == text.split() else [text]


class BpeDropout:
    """Draws segmentations of text from the merges of a "bpe" tokenizer, reproducibly.

    This is algorithm 1 of Provilkov et al. 2020. The library's own dropout draws from a generator
    that cannot be seeded. Here a word has a fixed table of `N_VARIANTS` segmentations, each drawn
    with the word, its number and the seed as the seed, and each occurrence of the word takes one of
    them, decided by the sentence's key. A sentence then costs one hash and a look-up a word.
    """

    def __init__(self, tokenizer: HuggingFaceTokenizer, dropout: float, seed: int) -> None:
        """Reads the merges; `dropout` is the chance of skipping each, `seed` fixes all draws."""
        model = json.loads(tokenizer.to_str())["model"]
        self._vocabulary: dict[str, int] = model["vocab"]
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self._tokenizer = tokenizer
        self._dropout = dropout
        self._seed = str(seed).encode()
        self._variants: dict[str, list[Ids | None]] = {}

    def encode(self, text: str, key: int) -> list[int]:
        """The ids of a text; the same text, key and seed give the same ids."""
        if not text:
            return []
        normalized = self._tokenizer.normalizer.normalize_str(text)
        words = self._tokenizer.pre_tokenizer.pre_tokenize_str(normalized)
        choices = self._choices(key, len(words))
        ids: list[int] = []
        for (word, _), choice in zip(words, choices, strict=False):
            ids.extend(self._variant(word, choice % N_VARIANTS))
        return ids

    def _choices(self, key: int, n_words: int) -> bytes:
        """At least `n_words` bytes that are random but fixed by the key."""
        start = b"%s %d" % (self._seed, key)
        blocks = range(n_words // 64 + 1)
        return b"".join(blake2b(b"%s %d" % (start, block)).digest() for block in blocks)

    def _variant(self, word: str, number: int) -> Ids:
        variants = self._variants.get(word)
        if variants is None:
            if len(self._variants) >= MAX_WORDS:
                self._variants.clear()
            variants = self._variants[word] = [None] * N_VARIANTS
        ids = variants[number]
        if ids is None:
            ids = variants[number] = self._segment(word, number)
        return ids

    def _segment(self, word: str, number: int) -> Ids:
        seed = blake2b(b"%s %d %s" % (self._seed, number, word.encode()), digest_size=16).digest()
        random = Random(int.from_bytes(seed, "big")).random
        pieces = list(word)
        # A word of thousands of characters would cost the square of them: its parts are drawn.
        if len(pieces) > 100:
            parts = (word[start : start + 100] for start in range(0, len(word), 100))
            return tuple(i for part in parts for i in self._variant(part, number))
        while len(pieces) > 1:
            candidates = [
                (rank, place)
                for place, pair in enumerate(pairwise(pieces))
                if (rank := self._ranks.get(pair)) is not None and random() >= self._dropout
            ]
            if not candidates:
                break
            _, place = min(candidates)
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
        return tuple(self._vocabulary[piece] for piece in pieces)
