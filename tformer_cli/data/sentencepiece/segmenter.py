"""Text to the pieces of a SentencePiece model, by numbers in its file."""

import re
from collections.abc import Sequence
from typing import Protocol

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers.models import Unigram

from tformer_cli.data.lines import without_surrogates
from tformer_cli.data.segmentation import WordCache
from tformer_cli.data.sentencepiece.merges import merge
from tformer_cli.data.sentencepiece.normalizer import Normalizer
from tformer_cli.data.sentencepiece.spm_file import (
    BYTE,
    NORMAL,
    SPACE,
    UNUSED,
    USER_DEFINED,
    SpmModel,
    any_of,
)
from tformer_cli.errors import DataError

_NO_TEXT = "\U0010ffff"
"""A character that no text has: it is replaced by one that is unknown, too."""
_STAND_IN = "\U0010fffe"

Found = tuple[int, int, int]
"""Number of a piece, and the place of its characters."""


class Segmenter:
    """Cuts texts into the pieces of a model as SentencePiece does."""

    def __init__(self, model: SpmModel, where: str) -> None:
        """Prepares a model; `where` is what messages call its file.

        Raises:
            DataError: if it is damaged.
        """
        self._normalizer = Normalizer(model, where)
        self._cut: _Cutter = _Unigram(model) if model.algorithm == "unigram" else _Merges(model)
        self._bytes = _byte_pieces(model, where) if model.byte_fallback else None
        self.keeps_space = not model.add_dummy_prefix
        """True if the first word of a text gets no space before it."""
        self.pieces = model.pieces
        self.unknown = model.unknown
        self._words = WordCache(self._encode_texts) if self._takes_words_apart(model) else None

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each text's pieces."""
        texts = [without_surrogates(text) for text in texts]
        # what ends in `▁` loses it at the end of a text, but not inside one
        if self._words is None or any(SPACE in text for text in texts):
            return self._encode_texts(texts)
        return self._words.encode_batch(texts)

    def encode_with_texts(self, text: str) -> list[tuple[int, str]]:
        """The pieces of a text, each with the normalized text that it stands for."""
        normalized = self._normalizer.normalize(without_surrogates(text))
        return [(n, normalized[start:end]) for n, start, end in self._pieces(normalized)]

    def encode_with_places(self, text: str) -> list[Found]:
        """The pieces of a text, each with the place of the characters that it is from."""
        normalized, places = self._normalizer.normalize_with_places(without_surrogates(text))
        found = []
        for piece, start, end in self._pieces(normalized):
            covered = [place for place in places[start:end] if place[0] < place[1]]
            if covered:
                found.append((piece, covered[0][0], covered[-1][1]))
            else:  # nothing but the space before the text
                found.append((piece, 0, 0))
        return found

    def _encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        normalized = [self._normalizer.normalize(text) for text in texts]
        if self._bytes is None:
            return self._cut.numbers(normalized)
        return [[piece for piece, _, _ in self._pieces(text)] for text in normalized]

    def _pieces(self, normalized: str) -> list[Found]:
        """The pieces of a normalized text, unknown characters in bytes where the model has them."""
        found: list[Found] = []
        for piece, start, end in self._cut.places(normalized):
            if piece == self.unknown and self._bytes is not None:
                found += self._in_bytes(normalized, start, end)
            else:
                found.append((piece, start, end))
        return found

    def _in_bytes(self, normalized: str, start: int, end: int) -> list[Found]:
        numbers = self._bytes or []
        return [
            (numbers[byte], place, place + 1)
            for place in range(start, end)
            for byte in normalized[place].encode()
        ]

    def _takes_words_apart(self, model: SpmModel) -> bool:
        """Returns whether no piece crosses a space, so that words can be cut one by one."""
        return (
            self._normalizer.takes_words_apart
            and SPACE in model.pieces
            and model.types[model.pieces.index(SPACE)] == NORMAL
            and not any(SPACE in piece[1:] for piece in model.pieces)
        )


class _Cutter(Protocol):
    def numbers(self, normalized: Sequence[str]) -> list[list[int]]:
        """The pieces of normalized texts; neighbors that are unknown are one."""

    def places(self, normalized: str) -> list[Found]:
        """The pieces of a normalized text, with their places in it."""


class _Unigram:
    """The most probable pieces (Kudo 2018, "Subword regularization"), by the library's search."""

    def __init__(self, model: SpmModel) -> None:
        normal = [
            score for score, kind in zip(model.scores, model.types, strict=True) if kind == NORMAL
        ]
        best = max(normal, default=0.0)
        vocabulary = list(zip(model.pieces, model.scores, strict=True))
        for place, kind in enumerate(model.types):
            if kind == USER_DEFINED:  # preferred to anything shorter, as SentencePiece does
                piece = model.pieces[place]
                vocabulary[place] = piece, len(piece.encode()) * best - 0.1
            elif kind != NORMAL:
                vocabulary[place] = f"{_NO_TEXT}{place}", 0.0
        self._library = HuggingFaceTokenizer(Unigram(vocabulary, model.unknown, False))

    def numbers(self, normalized: Sequence[str]) -> list[list[int]]:
        """See `_Cutter`."""
        encodings = self._library.encode_batch_fast(
            [text.replace(_NO_TEXT, _STAND_IN) for text in normalized], add_special_tokens=False
        )
        return [encoding.ids for encoding in encodings]

    def places(self, normalized: str) -> list[Found]:
        """See `_Cutter`."""
        encoding = self._library.encode(
            normalized.replace(_NO_TEXT, _STAND_IN), add_special_tokens=False
        )
        pairs = zip(encoding.ids, encoding.offsets, strict=True)
        return [(number, start, end) for number, (start, end) in pairs]


class _Merges:
    def __init__(self, model: SpmModel) -> None:
        self._unknown = model.unknown
        self._numbers = model.of_type(NORMAL, USER_DEFINED, UNUSED)
        self._scores = {piece: model.scores[number] for piece, number in self._numbers.items()}
        self._unused = model.of_type(UNUSED).keys()
        fixed = model.of_type(USER_DEFINED)
        self._fixed = re.compile(f"({any_of(fixed).pattern})") if fixed else None

    def numbers(self, normalized: Sequence[str]) -> list[list[int]]:
        """See `_Cutter`."""
        return [[number for number, _, _ in self.places(text)] for text in normalized]

    def places(self, normalized: str) -> list[Found]:
        """See `_Cutter`."""
        texts = self._fixed.split(normalized) if self._fixed else [normalized]
        found: list[Found] = []
        start = 0
        for number, text in enumerate(texts):
            for piece in [text] if number % 2 else merge(text, self._scores, self._unused):
                end = start + len(piece)
                kind = self._numbers.get(piece, self._unknown)
                if kind == self._unknown and found and found[-1][0] == kind:
                    found[-1] = kind, found[-1][1], end
                else:
                    found.append((kind, start, end))
                start = end
        return found


def _byte_pieces(model: SpmModel, where: str) -> list[int]:
    numbers = model.of_type(BYTE)
    try:
        return [numbers[f"<0x{byte:02X}>"] for byte in range(256)]
    except KeyError as missing:
        raise DataError(f"{where}: has no piece {missing} for a byte; restore the file") from None
