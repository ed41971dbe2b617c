"""What the tokenizers of foreign language models and encoders have in common.

They have one vocabulary for both sides, with the pieces as their files name them, and the library
`tokenizers` cuts their text.
"""

import json
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Self

from tokenizers import Tokenizer as HuggingFaceTokenizer

from tformer_cli.data.config import MOST_PIECES
from tformer_cli.data.lines import without_surrogates
from tformer_cli.data.pipelines import SPECIAL_PIECES
from tformer_cli.data.tokenizer import FILE_NAME, VERSION, OneSidedTokenizer, Span, Tokenizer
from tformer_cli.errors import DataError

N_SPECIAL = len(SPECIAL_PIECES)


class ForeignPieceTokenizer(OneSidedTokenizer):
    """A tokenizer of pieces, each kind with rules of its own."""

    model_kind: ClassVar[str]
    """The models that have it, in messages."""
    all_pieces: tuple[str, ...]
    """Pieces by their ids."""
    _tokenizer: HuggingFaceTokenizer

    @classmethod
    def parse(cls, text: str, where: str = FILE_NAME) -> Self:
        """Reads the text of a `tokenizer.json`; `where` names it in messages."""
        try:
            data = json.loads(text)
            is_sound = data["tformer_tokenizer"] == VERSION
            is_sound = is_sound and all(type(piece) is str for piece in data["pieces"])
            made = cls._parsed(data, where) if is_sound else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            made = None
        if made is None:
            raise DataError(f"{where}: is damaged; restore the file")
        return made

    @classmethod
    @abstractmethod
    def _parsed(cls, data: dict[str, Any], where: str) -> Self | None:
        """Makes a tokenizer of what a file holds; None: it is damaged."""

    def to_json(self) -> str:
        """The text of a `tokenizer.json`; its beginning says what it is."""
        data = {"tformer_tokenizer": VERSION, "kind": self.kind, **self._stored()}
        return json.dumps(data, ensure_ascii=False) + "\n"

    @abstractmethod
    def _stored(self) -> dict[str, Any]:
        """What the file holds besides its version and kind."""

    @property
    def vocab_size(self) -> int:
        return len(self.all_pieces)

    def with_new_tokens(self, words: Sequence[str]) -> Tokenizer:
        """See `Tokenizer`."""
        raise DataError(
            f"the vocabulary of an imported {self.model_kind} takes no new tokens such as "
            f"{words[0]}; omit them"
        )

    def encode_phrases(self, texts: Sequence[str]) -> list[list[int]]:
        clean = [without_surrogates(text) for text in texts]
        found = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [one.ids for one in found]

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        clean = [without_surrogates(text) for text in texts]
        found = self._tokenizer.encode_batch(clean, add_special_tokens=False)
        return [
            ([*self.start, *one.ids], [*[(0, 0)] * len(self.start), *one.offsets])
            if one.ids
            else ([], [])
            for one in found
        ]


def is_vocabulary(pieces: Sequence[str], mask: str, needed: Collection[str] = ()) -> bool:
    """Returns whether pieces are different, with the special ones first and all others needed."""
    known = set(pieces)
    return (
        len(known) == len(pieces) <= MOST_PIECES
        and tuple(pieces[:N_SPECIAL]) == SPECIAL_PIECES
        and (not mask or mask in known)
        and known.issuperset(needed)
    )
