"""The pieces of a foreign model by their ids."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import pairwise

from tformer_cli.errors import DataError
from tformer_cli.text.lines import without_surrogates
from tformer_cli.text.tokenizer import MOST_PIECES, SPECIAL_PIECES
from tformer_cli.wording import SPACE_LABEL, character_label


class Vocabulary:
    """Pieces in the order of their ids; the first are `<pad> <unk> <s> </s>`."""

    def __init__(
        self,
        pieces: Sequence[str],
        named: AbstractSet[str],
        where: str,
        new_tokens: Sequence[str] = (),
        mark: str = "",
    ) -> None:
        self.pieces = list(pieces)
        self.new_tokens = {
            word: number for number, word in enumerate(new_tokens, len(pieces) - len(new_tokens))
        }
        """Ids of words that were added: a word between spaces has its own piece."""
        self._mark = mark
        if self.pieces[len(pieces) - len(new_tokens) :] != [mark + word for word in new_tokens]:
            raise DataError(f"{where}: its new tokens are not its last pieces; restore the file")
        self._named = named
        self._where = where
        if tuple(self.pieces[: len(SPECIAL_PIECES)]) != SPECIAL_PIECES:
            raise DataError(
                f"{where}: has other special tokens; ids 0 to 3 must be {' '.join(SPECIAL_PIECES)}"
            )
        if len(self.pieces) > MOST_PIECES or not _is_text(self.pieces):
            raise DataError(f"{where}: its vocabulary is damaged or too large; restore the file")

    def extend(self, words: Sequence[str]) -> "Vocabulary":
        """The vocabulary with additional words of one piece each, after the others."""
        added = list(self.new_tokens)
        for word in words:
            is_there = self._mark + word in self.ids or word in self._named or word in added
            check_new_token(word, is_there=is_there)
            added.append(word)
        pieces = [*self.pieces, *(self._mark + word for word in words)]
        return Vocabulary(pieces, self._named, self._where, added, self._mark)

    @cached_property
    def ids(self) -> Mapping[str, int]:
        ids = {piece: number for number, piece in enumerate(self.pieces)}
        if len(ids) < len(self.pieces):
            twice = next(p for number, p in enumerate(self.pieces) if ids[p] != number)
            raise DataError(f'{self._where}: its vocabulary has "{twice}" twice; restore the file')
        return ids

    @cached_property
    def ids_in_text(self) -> Mapping[str, int]:
        """The id of each piece of text: not of special tokens and those that name a language."""
        ids = dict(self.ids)
        for piece in (*SPECIAL_PIECES, *self._named):
            ids.pop(piece, None)
        return ids

    def id_of_token(self, piece: str) -> int:
        if piece not in self.ids:
            raise DataError(
                f"{self._where}: its vocabulary lacks the language token {piece}; restore the file"
            )
        return self.ids[piece]

    @cached_property
    def bytes(self) -> list[bytes]:
        """The text of each piece; none of special tokens and language tokens."""
        plain = [piece.replace(SPACE_LABEL, " ").encode() for piece in self.pieces]
        plain[: len(SPECIAL_PIECES)] = [b""] * len(SPECIAL_PIECES)
        named = {f"<0x{byte:02X}>": byte for byte in range(1 << 8)}
        in_bytes = {self.ids[piece]: byte for piece, byte in named.items() if piece in self.ids}
        # with fewer, "<0x0A>" is text
        if len(in_bytes) == 1 << 8:
            for number, byte in in_bytes.items():
                plain[number] = bytes((byte,))
        for piece in self._named & self.ids.keys():
            plain[self.ids[piece]] = b""
        for word, number in self.new_tokens.items():
            plain[number] = (self._mark.replace(SPACE_LABEL, " ") + word).encode()
        return plain

    @cached_property
    def labels(self) -> list[str]:
        """A readable name of each piece: no two are the same."""
        labels: dict[str, None] = dict.fromkeys(SPECIAL_PIECES)
        for number in range(len(SPECIAL_PIECES), len(self.pieces)):
            label = label_of(self.pieces[number].replace(SPACE_LABEL, " ").encode())
            # two pieces may differ in what no label shows; labels must tell them apart
            labels[label if label not in labels else f"{label}#{number}"] = None
        return list(labels)


def _is_text(pieces: Sequence[str]) -> bool:
    """Returns whether all pieces are strings that can be written as UTF-8."""
    try:
        "".join(pieces).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def _byte_characters() -> str:
    """The character of each byte in GPT-2's alphabet (Radford et al. 2019), in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    stand_ins = {byte: 0x100 + place for place, byte in enumerate(others)}
    return "".join(chr(stand_ins.get(byte, byte)) for byte in range(256))


BYTE_CHARACTERS = _byte_characters()
_BYTE_OF = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}


def bytes_of(piece: str) -> bytes:
    return bytes(_BYTE_OF[character] for character in piece)


def label_of(text: bytes) -> str:
    """The label of a piece, given the bytes of its text (maybe cut inside a character)."""
    # a piece may end inside a character
    characters = text.decode("utf-8", errors="surrogateescape")
    return "".join(character_label(character) for character in characters)


def check_new_token(word: str, *, is_there: bool) -> None:
    if word.split() != [word] or without_surrogates(word) != word:
        raise DataError(f"{json.dumps(word)}: is not a word; give one without white space")
    if is_there:
        raise DataError(f"{json.dumps(word)}: is a piece of the vocabulary; omit it")


class NewTokens:
    """Finds words that were added in texts."""

    def __init__(self, words: Iterable[str], *, keeps_space_behind: bool) -> None:
        # else "<x>" would hide "<x>y"
        longest_first = sorted(words, key=len, reverse=True)
        self._pattern = re.compile(rf"(?<!\S)(?:{'|'.join(map(re.escape, longest_first))})(?!\S)")
        self._keeps_space_behind = keeps_space_behind

    def are_in(self, text: str) -> bool:
        return self._pattern.search(text) is not None

    def split(self, text: str) -> list[tuple[int, str, bool]]:
        """Splits a text: where each part begins, the part, and whether it is one of the words."""
        spans = [match.span() for match in self._pattern.finditer(text)]
        parts = []
        for (_, start), (end, after) in pairwise([(0, 0), *spans, (len(text), len(text))]):
            if start and not self._keeps_space_behind and text[start:end].startswith(" "):
                start += 1
            stop = end - 1 if end < after and text[start:end].endswith(" ") else end
            if start < stop:
                parts.append((start, text[start:stop], False))
            if end < after:
                parts.append((end, text[end:after], True))
        return parts
