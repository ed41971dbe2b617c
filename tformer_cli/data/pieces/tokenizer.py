"""Tokenizers whose text is words or pieces with spaces between them.

With merges text is words, which are cut into pieces and joined again. Without, text is the pieces
of a vocabulary themselves, as the foreign tool's own tokenizer writes them.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from tformer_cli.data.lines import without_surrogates
from tformer_cli.data.pieces.subword_nmt import CONTINUES, SubwordCodes
from tformer_cli.data.pipelines import SPECIAL_PIECES
from tformer_cli.data.sentencepiece.vocabulary import Vocabulary
from tformer_cli.data.tokenizer import (
    FILE_NAME,
    UNK_ID,
    VERSION,
    VERSION_WITH_NEW_TOKENS,
    Span,
    Tokenizer,
    TokenizerSide,
    stored_new_tokens,
)
from tformer_cli.errors import DataError

_WORD = re.compile(r"\S+")


class PieceSide(TokenizerSide):
    """The tokenizer of a foreign model's source or target."""

    def __init__(self, vocabulary: Vocabulary, codes: SubwordCodes | None) -> None:
        """Joins a vocabulary and what cuts words into its pieces; None: nothing does."""
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
        found = []
        for text in texts:
            spans = list(self._spans(without_surrogates(text)))
            ids = [self.vocabulary.ids_in_text.get(piece, UNK_ID) for piece, _ in spans]
            found.append((ids, [span for _, span in spans]))
        return found

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
        found = [b""] * len(SPECIAL_PIECES)
        new = self.vocabulary.new_tokens
        for piece in self.vocabulary.pieces[len(SPECIAL_PIECES) :]:
            continues = self.codes is not None and piece.endswith(CONTINUES) and piece not in new
            found.append((piece.removesuffix(CONTINUES) if continues else f"{piece} ").encode())
        return found

    @property
    def _labels(self) -> list[str]:
        return self.vocabulary.labels


class PieceTokenizer(Tokenizer):
    """The tokenizer of a foreign model whose texts come in words or pieces."""

    def __init__(self, source: PieceSide, target: PieceSide) -> None:
        """Joins two sides, the same twice if they share a vocabulary."""
        self._source, self._target = source, target

    @classmethod
    def build(
        cls,
        pieces: Sequence[str],
        target_pieces: Sequence[str] | None = None,
        codes: tuple[str | None, str | None] = (None, None),
        where: str = FILE_NAME,
        new_tokens: Sequence[str] = (),
    ) -> "PieceTokenizer":
        """Makes a tokenizer."""
        given = frozenset[str](), where, new_tokens
        vocabulary = Vocabulary(pieces, *given)
        other = vocabulary if target_pieces is None else Vocabulary(target_pieces, *given)
        read = [None if text is None else SubwordCodes(text, where) for text in codes]
        source = PieceSide(vocabulary, read[0])
        is_same = other is vocabulary and codes[0] == codes[1]
        return cls(source, source if is_same else PieceSide(other, read[1]))

    @classmethod
    def parse(cls, text: str, where: str = FILE_NAME) -> "PieceTokenizer":
        """Reads the text of a `tokenizer.json`; `where` names it in messages."""
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
        longer = PieceSide(source.vocabulary.extended(words), source.codes)
        if target is source:
            return type(self)(longer, longer)
        is_shared = target.vocabulary is source.vocabulary
        others = longer.vocabulary if is_shared else target.vocabulary.extended(words)
        return type(self)(longer, PieceSide(others, target.codes))

    @property
    def new_tokens(self) -> tuple[str, ...]:
        return tuple(self._source.vocabulary.new_tokens)

    def to_json(self) -> str:
        """The text of a `tokenizer.json`; its beginning says what it is."""
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

    @property
    def algorithm(self) -> str:
        """Always "pieces"."""
        return "pieces"

    @property
    def source(self) -> PieceSide:
        return self._source

    @property
    def target(self) -> PieceSide:
        return self._target
