"""SentencePiece models (Kudo & Richardson 2018): their files, and text cut into their pieces.

Field numbers are those of `sentencepiece_model.proto`, in the wire format of protocol buffers.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Literal

import numpy as np

from tformer_cli.errors import DataError
from tformer_cli.text.lines import without_surrogates
from tformer_cli.text.tokenizer import MOST_PIECES

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "▁"  # stands for a space in pieces (U+2581)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PIECE, _TRAINER, _NORMALIZER, _DENORMALIZER = 1, 2, 3, 5  # fields of a model that are read
# Fields of a model besides its pieces, of such a part, and of a piece: a file of many that decide
# nothing would be read for minutes.
_MOST_PARTS, _MOST_SETTINGS, _MOST_PIECE_PARTS = 16, 1 << 18, 8
# bytes of the table of replaced characters; beyond any real one, they bound a hostile one
_LARGEST_TRIE, _LONGEST_REPLACEMENT = 1 << 24, 1024
_ALGORITHMS: dict[int, Literal["unigram", "bpe"]] = {1: "unigram", 2: "bpe"}

# number, wire type, and the value of a varint, or where the bytes begin; then where they end
_Field = tuple[int, int, int, int]


@dataclass(frozen=True)
class SpmModel:
    """The parts of a SentencePiece model that decide how text is cut."""

    pieces: list[str]
    scores: list[float]  # log-probability of each piece; of "bpe" minus its rank
    types: bytes
    # search for the most probable pieces, or merges
    algorithm: Literal["unigram", "bpe"] = "unigram"
    byte_fallback: bool = False  # unknown characters become one piece a byte
    charsmap: bytes = b""  # replacements of characters, compiled; see `_check_charsmap`
    add_dummy_prefix: bool = True  # text gets a space before it
    # spaces around text, and all but one of a run, are removed
    remove_extra_whitespaces: bool = True

    @property
    def unknown(self) -> int:
        return self.types.index(UNKNOWN)

    def of_type(self, *types: int) -> dict[str, int]:
        return {p: i for i, p in enumerate(self.pieces) if self.types[i] in types}


def read_spm(data: bytes, where: str) -> SpmModel:
    try:
        return _read(data)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise _damage_error(where, "is cut off or not in its format") from None
    except ValueError as error:
        raise _damage_error(where, str(error)) from None


def write_spm(model: SpmModel) -> bytes:
    entries = zip(model.pieces, model.scores, model.types, strict=True)
    pieces = b"".join(spm_piece(*entry) for entry in entries)
    numbers = {name: number for number, name in _ALGORITHMS.items()}
    trainer = bytes([3 << 3, numbers[model.algorithm]]) + _key(35, _VARINT)
    trainer += bytes([model.byte_fallback])
    normalizer = _write_field(2, model.charsmap) if model.charsmap else b""
    # the last setting: spaces are written as the piece of a space
    flags = (3, model.add_dummy_prefix), (4, model.remove_extra_whitespaces), (5, True)
    normalizer += b"".join(bytes([number << 3, flag]) for number, flag in flags)
    return pieces + _write_field(_TRAINER, trainer) + _write_field(_NORMALIZER, normalizer)


def spm_piece(piece: str, score: float, kind: int) -> bytes:
    """Writes a piece; appended to a model, it is the model's last piece."""
    entry = _write_field(1, piece.encode()) + _key(2, _FIXED32) + struct.pack("<f", score)
    return _write_field(_PIECE, entry + bytes([3 << 3, kind]))


def _write_field(number: int, data: bytes) -> bytes:
    return _key(number, _BYTES) + _write_varint(len(data)) + data


def _key(number: int, wire: int) -> bytes:
    return _write_varint(number << 3 | wire)


def _write_varint(value: int) -> bytes:
    data = b""
    while value > 127:
        data, value = data + bytes([value & 127 | 128]), value >> 7
    return data + bytes([value])


def _damage_error(where: str, what: str) -> DataError:
    return DataError(f"{where}: cannot be used as a SentencePiece model ({what}); restore the file")


def _read(data: bytes) -> SpmModel:
    pieces: list[str] = []
    scores: list[float] = []
    types = bytearray()
    # the library trusts its files, so they are checked before it sees their bytes
    at = _read_plain_pieces(data, pieces, scores, types)
    settings: dict[str, int | bytes] = {}
    parts: list[int] = []
    for number, wire, start, end in _fields(data, at, len(data)):
        if number in (_PIECE, _TRAINER, _NORMALIZER, _DENORMALIZER) and wire != _BYTES:
            raise ValueError(f"field {number} has the wrong type")
        if number == _PIECE:
            piece, score, kind = _piece(data, start, end)
            pieces.append(piece)
            scores.append(score)
            types.append(kind)
            if len(pieces) > MOST_PIECES:
                raise ValueError(f"has more than {MOST_PIECES} pieces")
        else:
            parts.append(number)
            if len(parts) > _MOST_PARTS:
                raise ValueError(f"has more than {_MOST_PARTS} parts besides its pieces")
            if number in _SETTINGS:
                settings |= _settings(data, start, end, _SETTINGS[number])
    _check_pieces(pieces, scores, types)
    model = _model(pieces, scores, bytes(types), settings)
    _check_whole(len(pieces), parts, settings.get("vocab_size", 0))
    return model


def _read_plain_pieces(
    data: bytes, pieces: list[str], scores: list[float], types: bytearray
) -> int:
    """Reads the pieces at the beginning if they are written as the library writes them."""
    # without the generality of `_piece`, and faster: each start reads a vocabulary
    starts: list[int] = []
    at = 0
    while len(starts) < MOST_PIECES and at + 2 < len(data) and data[at] == 0x0A:
        starts.append(at)
        at += 2 + data[at + 1]
    if at > len(data) or not starts:
        return 0
    content = np.frombuffer(data, np.uint8)[:at]
    first = np.array(starts)
    sizes = content[first + 1].astype(np.int64)
    middle = first + 4 + content[np.minimum(first + 3, at - 1)]
    has_type = first + 2 + sizes - middle == 7
    if (
        sizes.max() > 127
        or not (has_type | (first + 2 + sizes - middle == 5)).all()
        or (content[first + 2] != 0x0A).any()
        or (content[middle] != 0x15).any()
        or (content[middle[has_type] + 5] != 0x18).any()
    ):
        return 0
    kinds = np.full(len(first), NORMAL, np.uint8)
    kinds[has_type] = content[middle[has_type] + 6]
    types += kinds.tobytes()
    scores += content[middle[:, None] + np.arange(1, 5)].view("<f4").ravel().tolist()
    bounds = zip((first + 4).tolist(), middle.tolist(), strict=True)
    pieces += [data[start:end].decode() for start, end in bounds]
    return at


def _piece(data: bytes, start: int, end: int) -> tuple[str, float, int]:
    piece, score, kind = "", 0.0, NORMAL
    for place, (number, wire, value, stop) in enumerate(_fields(data, start, end)):
        if place == _MOST_PIECE_PARTS:
            raise ValueError(f"a piece has more than {place} parts")
        if number == 1 and wire == _BYTES:
            piece = data[value:stop].decode()
        elif number == 2 and wire == _FIXED32:
            (score,) = struct.unpack_from("<f", data, value)
        elif number == 3 and wire == _VARINT:
            kind = min(value, 255)
        elif number <= 3:
            raise ValueError("a piece has a part of the wrong type")
    return piece, score, kind


_SETTINGS: dict[int, dict[int, tuple[str, int]]] = {
    _TRAINER: {
        3: ("algorithm", _VARINT),
        4: ("vocab_size", _VARINT),
        24: ("space_as_suffix", _VARINT),
        35: ("byte_fallback", _VARINT),
    },
    _NORMALIZER: {
        2: ("charsmap", _BYTES),
        3: ("add_dummy_prefix", _VARINT),
        4: ("remove_extra_whitespaces", _VARINT),
        5: ("escape_whitespaces", _VARINT),
    },
    _DENORMALIZER: {2: ("denormalizer", _BYTES)},
}


def _settings(
    data: bytes, start: int, end: int, wanted: dict[int, tuple[str, int]]
) -> dict[str, int | bytes]:
    values: dict[str, int | bytes] = {}
    for place, (number, wire, value, stop) in enumerate(_fields(data, start, end)):
        if place == _MOST_SETTINGS:
            raise ValueError(f"has more than {place} settings")
        if number not in wanted:
            continue
        name, expected = wanted[number]
        if wire != expected:
            raise ValueError(f"{name} has the wrong type")
        values[name] = data[value:stop] if wire == _BYTES else value
    return values


def _check_whole(n_pieces: int, parts: list[int], vocab_size: int | bytes) -> None:
    """Refuses a file that was cut off between two fields; pieces may have been added to it."""
    for number, name in ((_TRAINER, "trainer"), (_NORMALIZER, "normalizer")):
        if number not in parts:
            raise ValueError(f"is cut off: its {name} settings are missing")
    if isinstance(vocab_size, int) and n_pieces < vocab_size:
        raise ValueError(f"has {n_pieces} pieces, but its trainer settings say {vocab_size}")


def _check_pieces(pieces: list[str], scores: list[float], types: bytearray) -> None:
    if not pieces:
        raise ValueError("has no pieces")
    if types.count(UNKNOWN) != 1:
        raise ValueError(f"has {types.count(UNKNOWN)} unknown pieces, but must have one")
    if not NORMAL <= min(types) <= max(types) <= BYTE:
        raise ValueError("a piece has an unknown type")
    if "" in pieces or len(set(pieces)) < len(pieces):
        raise ValueError("a piece is empty or occurs twice")
    if not all(map(isfinite, scores)):
        raise ValueError("a score is not a number")


def _model(
    pieces: list[str], scores: list[float], types: bytes, settings: dict[str, int | bytes]
) -> SpmModel:
    number = settings.get("algorithm", 1)
    algorithm = _ALGORITHMS.get(number) if isinstance(number, int) else None
    if algorithm is None:
        raise ValueError("its algorithm is not supported, only unigram and bpe are")
    for name, expected in (("space_as_suffix", 0), ("escape_whitespaces", 1)):
        if settings.get(name, expected) != expected:
            raise ValueError(f"its setting {name} is not supported")
    if settings.get("denormalizer"):
        raise ValueError("its replacements after decoding are not supported")
    charsmap = settings.get("charsmap", b"")
    model = SpmModel(
        pieces,
        scores,
        types,
        algorithm,
        bool(settings.get("byte_fallback", 0)),
        charsmap if isinstance(charsmap, bytes) else b"",
        bool(settings.get("add_dummy_prefix", 1)),
        bool(settings.get("remove_extra_whitespaces", 1)),
    )
    if model.charsmap and not _is_sound(model.charsmap):
        raise ValueError("its table of replaced characters is damaged")
    return model


def _is_sound(charsmap: bytes) -> bool:
    """Returns whether no text leads the library outside a table of replaced characters."""
    # a trie in a double array (Aoe 1989) as darts-clone writes it, then replacements in UTF-8, each
    # ended by a zero byte; the library follows it without bounds
    size = struct.unpack_from("<I", charsmap)[0] if len(charsmap) >= 4 else 0
    if size < 4 or size % 4 or size + 4 > len(charsmap) or size > _LARGEST_TRIE:
        return False
    units = np.frombuffer(charsmap, "<u4", size // 4, 4).astype(np.int64)
    texts = np.frombuffer(charsmap, np.uint8)[4 + size :]
    # A unit with the highest bit holds a value and is never entered; every other one, used or not,
    # leads to the 256 units that differ from its base in the last byte: all must be inside.
    nodes = np.flatnonzero(units >> 31 == 0)
    bases = nodes ^ ((units[nodes] >> 10) << ((units[nodes] & 0x200) >> 6))
    if not len(texts) or texts[-1] or (bases | 0xFF).max(initial=0) >= len(units):
        return False
    values = units[bases[units[nodes] & 0x100 != 0]] & 0x7FFFFFFF
    ends = np.flatnonzero(texts == 0)
    return bool(
        values.max(initial=0) < len(texts)
        and (texts[values] & 0xC0 != 0x80).all()
        and np.diff(ends, prepend=-1).max() <= _LONGEST_REPLACEMENT
        and _is_text(texts.tobytes())
    )


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _fields(data: bytes, at: int, end: int) -> Iterator[_Field]:
    """The fields of a message that lies from `at` to `end`."""
    while at < end:
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        start = at
        if wire == _VARINT:
            start, at = _varint(data, at)
        elif wire == _BYTES:
            size, start = _varint(data, at)
            at = start + size
        elif wire in (_FIXED32, _FIXED64):
            at += 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"field {number} has an unknown type")
        if at > end or number == 0:
            raise IndexError
        yield number, wire, start, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of at most ten bytes, and where it ends."""
    value = 0
    for place in range(10):
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise IndexError


# number of a piece, and where the characters that it is from begin and end
Found = tuple[int, int, int]


class SpmFile:
    """A SentencePiece model that is read when it is first used: decoding does without."""

    def __init__(self, data: bytes, where: str) -> None:
        """Takes a file's bytes; `where` names it in messages."""
        self.data = data
        self._where = where

    @cached_property
    def model(self) -> SpmModel:
        return read_spm(self.data, self._where)

    @cached_property
    def unknown(self) -> int:
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
        sound = [without_surrogates(text) for text in texts]
        ids: list[list[int]] = self._library.encode(sound, num_threads=1)
        return ids

    def encode_as_texts(self, text: str) -> list[str]:
        """The pieces of a text; an unknown part is the normalized text itself."""
        try:
            pieces: list[str] = self._library.encode(without_surrogates(text), out_type=str)
        except ValueError as error:
            raise self._unusable(error) from None
        return pieces

    def encode_with_places(self, text: str) -> list[Found]:
        """The pieces of a text, each with the place of the characters that it is from."""
        text = without_surrogates(text)
        try:
            mapping = self._library.encode_as_offset_mapping(text)
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
        character_of = [place for place, char in enumerate(normalized) for _ in char.encode()]
        rows, at = [], 0
        for number, piece in zip(mapping["ids"], mapping["pieces"], strict=True):
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
