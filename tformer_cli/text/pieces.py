"""Tokenizers whose text is words or pieces with spaces between them.

With merges (Sennrich et al. 2016, "Neural machine translation of rare words with subword units")
text is words; without, the pieces of a vocabulary, as the foreign tool's own tokenizer writes them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from tformer_cli.errors import DataError
from tformer_cli.text.lines import without_surrogates
from tformer_cli.text.tokenizer import (
    FILE_NAME,
    MOST_PIECES,
    SPECIAL_PIECES,
    UNK_ID,
    VERSION,
    VERSION_WITH_NEW_TOKENS,
    Span,
    Tokenizer,
    TokenizerSide,
    stored_new_tokens,
)
from tformer_cli.text.vocabulary import Vocabulary

_WORD = re.compile(r"\S+")
END = "</w>"
CONTINUES = "@@"
"""Ends each piece of a word but its last."""
_VERSION = "#version: "
_MOST_CACHED = 1 << 16


class SubwordCodes:
    """A list of merges."""

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        lines = text.rstrip("\n").split("\n", MOST_PIECES + 1)
        self.ends_apart = not lines[0].startswith(_VERSION) and len(lines[0].split(" ")) < 3
        if lines[0].startswith(_VERSION):
            if lines[0].removeprefix(_VERSION).strip() != "0.2":
                raise DataError(f"{where}: is an unknown version of BPE codes; use version 0.2")
            del lines[0]
        self.ranks = _ranks(lines, where)
        self._cut: dict[str, tuple[str, ...]] = {}

    def cut(self, word: str) -> tuple[str, ...]:
        """Cuts a word, without spaces, into pieces; all but the last end with `@@`."""
        pieces = self._cut.get(word)
        if pieces is None:
            *inner, last = self._merge_symbols(word)
            pieces = (*(piece + CONTINUES for piece in inner), last)
            if len(self._cut) >= _MOST_CACHED:
                # rare words seldom recur, so memory starts afresh
                self._cut.clear()
            self._cut[word] = pieces
        return pieces

    def _merge_symbols(self, word: str) -> list[str]:
        if len(word) == 1:
            return [word]
        # before version 0.2 the end of a word was a separate symbol
        symbols = [*word, END] if self.ends_apart else [*word[:-1], word[-1] + END]
        none = MOST_PIECES
        while len(symbols) > 1:
            rank_of = self.ranks.get
            ranks = [rank_of(pair, none) for pair in pairwise(symbols)]
            best = min(ranks)
            if best == none:
                break
            symbols = _join_pairs(symbols, ranks, best)
        last = symbols.pop().removesuffix(END)
        return [*symbols, last] if last else symbols


def _ranks(lines: list[str], where: str) -> Mapping[tuple[str, str], int]:
    if len(lines) > MOST_PIECES:
        raise DataError(f"{where}: has more than {MOST_PIECES:,} merges; use a file of codes")
    ranks: dict[tuple[str, str], int] = {}
    for number, line in enumerate(lines):
        parts = line.strip("\r ").split(" ")
        if len(parts) == 3 and parts[2].isdecimal():
            del parts[2]  # how often fastBPE counted it
        if len(parts) != 2 or not all(parts):
            raise DataError(
                f"{where}: its merge {number + 1} is not two symbols; use a file of subword-nmt "
                "or fastBPE codes"
            )
        # subword-nmt lets the first of equal merges win
        ranks.setdefault((parts[0], parts[1]), number)
    return ranks


def _join_pairs(symbols: list[str], ranks: list[int], best: int) -> list[str]:
    """Joins each pair of a rank, from the left; pairs that overlap a joined one stay."""
    joined, place = [], 0
    while place < len(symbols):
        is_joined = place < len(ranks) and ranks[place] == best
        joined.append("".join(symbols[place : place + 1 + is_joined]))
        place += 1 + is_joined
    return joined


class PieceSide(TokenizerSide):
    """The tokenizer of a foreign model's source or target."""

    def __init__(self, vocabulary: Vocabulary, codes: SubwordCodes | None) -> None:
        self.vocabulary = vocabulary
        self.codes = codes

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary.pieces)

    def encode_phrases(self, texts: Sequence[str]) -> list[list[int]]:
        find, cut = self.vocabulary.ids_in_text.get, self._cut
        lines = [without_surrogates(text).split() for text in texts]
        return [[find(piece, UNK_ID) for word in words for piece in cut(word)] for words in lines]

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        encoded = []
        for text in texts:
            spans = list(self._spans(without_surrogates(text)))
            ids = [self.vocabulary.ids_in_text.get(piece, UNK_ID) for piece, _ in spans]
            encoded.append((ids, [span for _, span in spans]))
        return encoded

    def _spans(self, text: str) -> Iterator[tuple[str, Span]]:
        for word in _WORD.finditer(text):
            *inner, last = self._cut(word[0])
            start = word.start()
            for piece in inner:
                end = start + len(piece) - len(CONTINUES)
                yield piece, (start, end)
                start = end
            yield last, (start, word.end())

    def _cut(self, word: str) -> tuple[str, ...]:
        if self.codes is None or word in self.vocabulary.new_tokens:
            return (word,)
        return self.codes.cut(word)

    def decode(self, ids: Sequence[int]) -> str:
        texts = self.piece_bytes
        return b"".join([texts[i] for i in ids]).decode().removesuffix(" ")

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        """See `TokenizerSide`; the space between two words is part of the first."""
        texts = [b""] * len(SPECIAL_PIECES)
        new = self.vocabulary.new_tokens
        for piece in self.vocabulary.pieces[len(SPECIAL_PIECES) :]:
            continues = self.codes is not None and piece.endswith(CONTINUES) and piece not in new
            texts.append((piece.removesuffix(CONTINUES) if continues else f"{piece} ").encode())
        return texts

    @property
    def _labels(self) -> list[str]:
        return self.vocabulary.labels


class PieceTokenizer(Tokenizer):
    """The tokenizer of a foreign model that reads texts already divided into words or pieces."""

    algorithm = "pieces"
    _source: PieceSide
    _target: PieceSide

    def __init__(self, source: PieceSide, target: PieceSide) -> None:
        self._source, self._target = source, target
        self.new_tokens = tuple(source.vocabulary.new_tokens)

    @classmethod
    def build(
        cls,
        pieces: Sequence[str],
        target_pieces: Sequence[str] | None = None,
        codes: tuple[str | None, str | None] = (None, None),
        where: str = FILE_NAME,
        new_tokens: Sequence[str] = (),
    ) -> "PieceTokenizer":
        settings = frozenset[str](), where, new_tokens
        vocabulary = Vocabulary(pieces, *settings)
        other = vocabulary if target_pieces is None else Vocabulary(target_pieces, *settings)
        read = [None if text is None else SubwordCodes(text, where) for text in codes]
        source = PieceSide(vocabulary, read[0])
        is_same = other is vocabulary and codes[0] == codes[1]
        return cls(source, source if is_same else PieceSide(other, read[1]))

    @classmethod
    def parse(cls, text: str, where: str = FILE_NAME) -> "PieceTokenizer":
        try:
            data = json.loads(text)
            new_tokens = stored_new_tokens(data, where)
            sides = [data[side] for side in ("source", "target")]
            codes = sides[0]["codes"], sides[1]["codes"]
            pieces = sides[0]["pieces"], sides[1]["pieces"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DataError(f"{where}: is damaged; restore the file") from None
        is_sound = all(isinstance(text, str | None) for text in codes)
        if (
            not is_sound
            or not isinstance(pieces[0], list)
            or not isinstance(pieces[1], list | None)
        ):
            raise DataError(f"{where}: is damaged; restore the file")
        return cls.build(pieces[0], pieces[1], codes, where, new_tokens)

    def with_new_tokens(self, words: Sequence[str]) -> "PieceTokenizer":
        """See `Tokenizer`. A new token is a word that the merges do not cut."""
        source, target = self._source, self._target
        longer = PieceSide(source.vocabulary.extend(words), source.codes)
        if target is source:
            return type(self)(longer, longer)
        is_shared = target.vocabulary is source.vocabulary
        others = longer.vocabulary if is_shared else target.vocabulary.extend(words)
        return type(self)(longer, PieceSide(others, target.codes))

    def to_json(self) -> str:
        version = VERSION_WITH_NEW_TOKENS if self.new_tokens else VERSION
        data: dict[str, Any] = {"tformer_tokenizer": version, "kind": "pieces"}
        for name, side in (("source", self._source), ("target", self._target)):
            codes = None if side.codes is None else side.codes.text
            data[name] = {"codes": codes, "pieces": side.vocabulary.pieces}
        if self._source.vocabulary is self._target.vocabulary:
            data["target"]["pieces"] = None
        if self.new_tokens:
            data["new_tokens"] = self.new_tokens
        return json.dumps(data, ensure_ascii=False) + "\n"
