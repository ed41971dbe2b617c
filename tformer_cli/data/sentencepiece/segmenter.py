"""Text to the pieces of a SentencePiece model, by the library of that name."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tformer_cli.data.lines import without_surrogates
from tformer_cli.data.sentencepiece.spm_file import BYTE, SpmModel, read_spm
from tformer_cli.errors import DataError

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

Found = tuple[int, int, int]
"""Number of a piece, and where the characters that it is from begin and end."""


class SpmFile:
    """A SentencePiece model that is read when it is first used: decoding does without."""

    def __init__(self, data: bytes, where: str) -> None:
        """Keeps a file's bytes; `where` is what messages call it."""
        self.data = data
        self._where = where

    @cached_property
    def model(self) -> SpmModel:
        """The pieces and settings."""
        return read_spm(self.data, self._where)

    @cached_property
    def unknown(self) -> int:
        """Number of the unknown piece."""
        return self.model.unknown

    @cached_property
    def _library(self) -> "SentencePieceProcessor":
        _ = self.model  # checks what the library would trust
        from sentencepiece import SentencePieceProcessor

        try:
            return SentencePieceProcessor(model_proto=self.data)
        except (RuntimeError, ValueError, OSError) as error:
            raise self._unusable(error) from None

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each text's pieces."""
        sound = [without_surrogates(text) for text in texts]
        found: list[list[int]] = self._library.encode(sound, num_threads=1)
        return found

    def encode_as_texts(self, text: str) -> list[str]:
        """The pieces of a text; what is unknown is the normalized text itself."""
        try:
            found: list[str] = self._library.encode(without_surrogates(text), out_type=str)
        except ValueError as error:
            raise self._unusable(error) from None
        return found

    def encode_with_places(self, text: str) -> list[Found]:
        """The pieces of a text, each with the place of the characters that it is from."""
        text = without_surrogates(text)
        try:
            found = self._library.encode_as_offset_mapping(text)
            normalized, starts = self._library.normalize(text, with_offsets=True)
        except ValueError as error:
            raise self._unusable(error) from None
        # The library's own offsets give a character that became several ("½") to the last of its
        # pieces only. Here each piece gets it: it lasts until the next one that is from elsewhere.
        ends = list(starts[1:])
        for place in range(len(ends) - 2, -1, -1):
            if ends[place] <= starts[place]:
                ends[place] = ends[place + 1]
        if ends and self.model.add_dummy_prefix:
            ends[0] = starts[0]  # the space before a text is from nothing
        character_of = [place for place, one in enumerate(normalized) for _ in one.encode()]
        rows, at = [], 0
        for number, piece in zip(found["ids"], found["pieces"], strict=True):
            size = 1 if self.model.types[number] == BYTE else len(piece.encode())
            places = character_of[at : at + size]
            own = [place for place in places if starts[place] < ends[place]]
            rows.append((number, starts[own[0]], ends[own[-1]]) if own else (number, 0, 0))
            at += size
        return rows

    def _unusable(self, error: Exception) -> DataError:
        reason = " ".join(str(error).split())
        return DataError(
            f"{self._where}: cannot be used as a SentencePiece model ({reason}); restore the file"
        )
