"""Readable, reversible names of pieces.

Byte-level pieces are stored in GPT-2's byte alphabet, where each of the 256 bytes is one printable
character. A label is the readable form: the text itself, with ``▁`` for a space and ``<0xE2>`` for
each byte that is not part of a printable character. Labels hold no white space, and different
pieces have different labels, because no pipeline joins ``<`` and a letter in a piece.
"""

import unicodedata

SPACE_LABEL = "▁"


def _byte_characters() -> str:
    """The character of each byte in GPT-2's alphabet (Radford et al. 2019), in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    stand_ins = {byte: 0x100 + place for place, byte in enumerate(others)}
    return "".join(chr(stand_ins.get(byte, byte)) for byte in range(256))


_CONTROLS = ("Cc", "Zl", "Zp")
"""Unicode's categories of controls, and of separators of lines and paragraphs."""
_TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that turn the direction of the text behind them, also of what is not part of theirs."""
BYTE_CHARACTERS = _byte_characters()
_BYTE_OF = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}


def bytes_of(piece: str) -> bytes:
    """The bytes of a piece in the byte alphabet."""
    return bytes(_BYTE_OF[character] for character in piece)


def label_of(text: bytes) -> str:
    """The label of a piece, given the bytes of its text (maybe cut inside a character)."""
    characters = text.decode("utf-8", errors="surrogateescape")
    return "".join(_character_label(character) for character in characters)


def visible(text: str, longest: int | None = None) -> str:
    """A text whose control characters are written out as in labels: none reaches a terminal.

    There they would color, overwrite, erase or turn the text around them. Separators of lines are
    written out too; a tab stays. A text of more than `longest` characters is cut and gets an
    ellipsis.
    """
    shown = text
    if not text.isprintable():
        shown = "".join(_character_label(c) if _is_control(c) else c for c in text)
    return shown if longest is None or len(shown) <= longest else shown[: longest - 1] + "…"


def _is_control(character: str) -> bool:
    if character in _TURNS:
        return True
    return character != "\t" and unicodedata.category(character) in _CONTROLS


def _character_label(character: str) -> str:
    if character == " ":
        return SPACE_LABEL
    if character.isprintable() and character != SPACE_LABEL:
        return character
    escaped = character.encode("utf-8", errors="surrogateescape")
    return "".join(f"<0x{byte:02X}>" for byte in escaped)
