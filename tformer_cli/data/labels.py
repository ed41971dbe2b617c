"""Readable, reversible names of pieces.

Byte-level pieces are stored in GPT-2's byte alphabet, where each of the 256 bytes is one printable
character. A label is the readable form: the text itself, with ``▁`` for a space and ``<0xE2>`` for
each byte that is not part of a printable character. Labels hold no white space, and different
pieces have different labels, because no pipeline joins ``<`` and a letter in a piece.
"""

from tformer_cli.wording import character_label


def _byte_characters() -> str:
    """The character of each byte in GPT-2's alphabet (Radford et al. 2019), in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    stand_ins = {byte: 0x100 + place for place, byte in enumerate(others)}
    return "".join(chr(stand_ins.get(byte, byte)) for byte in range(256))


BYTE_CHARACTERS = _byte_characters()
_BYTE_OF = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}


def bytes_of(piece: str) -> bytes:
    """The bytes of a piece in the byte alphabet."""
    return bytes(_BYTE_OF[character] for character in piece)


def label_of(text: bytes) -> str:
    """The label of a piece, given the bytes of its text (maybe cut inside a character)."""
    characters = text.decode("utf-8", errors="surrogateescape")
    return "".join(character_label(character) for character in characters)
