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
from tformer_cli.data.tokenizer import FILE_NAME, UNK_ID, Span, Tokenizer, TokenizerSide
from tformer_cli.errors import DataError

VERSION = 1
"""Of the file's format."""
_WORD = re.compile(r"\S+")


class PieceSide(TokenizerSide):
    """The tokenizer of a foreign model's source or target."""

    def __init__(self, vocabulary: Vocabulary, codes: SubwordCodes | None) -> None:
        """Joins a vocabulary and what cuts words into its pieces; None: nothing does."""
        self.vocabulary = vocabulary
        self.codes = codes

    @property
    def vocab_size(self) -> int:
        """See `TokenizerSide`."""
        return len(self.vocabulary.pieces)

    def encode_phrases(self, texts: Sequence[str]) -> list[list[int]]:
        """See `TokenizerSide`."""
        find, cut = self.vocabulary.ids_in_text.get, self._cut
        lines = [without_surrogates(text).split() for text in texts]
        return [[find(piece, UNK_ID) for word in words for piece in cut(word)] for words in lines]

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """See `TokenizerSide`."""
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
        return (word,) if self.codes is None else self.codes.cut(word)

    def decode(self, ids: Sequence[int]) -> str:
        """See `TokenizerSide`."""
        texts = self.piece_bytes
        return b"".join([texts[i] for i in ids]).decode().removesuffix(" ")

    @cached_property
    def piece_bytes(self) -> list[bytes]:
        """See `TokenizerSide`; the space between two words is part of the first."""
        found = [b""] * len(SPECIAL_PIECES)
        for piece in self.vocabulary.pieces[len(SPECIAL_PIECES) :]:
            continues = self.codes is not None and piece.endswith(CONTINUES)
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
    ) -> "PieceTokenizer":
        """Makes a tokenizer.

        Args:
            pieces: the vocabulary in the order of ids; the first are `<pad> <unk> <s> </s>`.
            target_pieces: the target's vocabulary if it is another.
            codes: files of merges of source and target; None: texts come in pieces.
            where: what messages call the file.

        Raises:
            DataError: if a vocabulary or a file of merges is damaged.
        """
        vocabulary = Vocabulary(pieces, frozenset(), where)
        other = (
            vocabulary if target_pieces is None else Vocabulary(target_pieces, frozenset(), where)
        )
        read = [None if text is None else SubwordCodes(text, where) for text in codes]
        source = PieceSide(vocabulary, read[0])
        is_same = other is vocabulary and codes[0] == codes[1]
        return cls(source, source if is_same else PieceSide(other, read[1]))

    @classmethod
    def parse(cls, text: str, where: str = FILE_NAME) -> "PieceTokenizer":
        """Reads the text of a `tokenizer.json`; `where` names it in messages.

        Raises:
            DataError: if it is damaged.
        """
        try:
            data = json.loads(text)
            if data["tformer_tokenizer"] != VERSION:
                raise DataError(f"{where}: is of another version of tformer; update tformer")
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
        return cls.build(pieces[0], pieces[1], codes, where)

    def to_json(self) -> str:
        """The text of a `tokenizer.json`; its beginning says what it is."""
        data: dict[str, Any] = {"tformer_tokenizer": VERSION, "kind": "pieces"}
        for name, side in (("source", self._source), ("target", self._target)):
            codes = None if side.codes is None else side.codes.text
            data[name] = {"codes": codes, "pieces": side.vocabulary.pieces}
        if self._source.vocabulary is self._target.vocabulary:
            data["target"]["pieces"] = None
        return json.dumps(data, ensure_ascii=False) + "\n"

    @property
    def algorithm(self) -> str:
        """Always "pieces"."""
        return "pieces"

    @property
    def source(self) -> PieceSide:
        """See `Tokenizer`."""
        return self._source

    @property
    def target(self) -> PieceSide:
        """See `Tokenizer`."""
        return self._target
