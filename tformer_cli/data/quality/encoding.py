"""Checks of characters: text decoded wrongly, and characters that no one sees."""

import re
import unicodedata
from functools import cache

REPLACEMENT = "\ufffd"
QUESTION_MARK_INSIDE = re.compile(r"(?:[^\W\d_]|['’])\?[^\W\d_A-ZÀ-Þ]")
"""A question mark where a letter was that an encoding did not have."""
INVISIBLE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
    "\ue000-\uf8ff\ufdd0-\ufdef\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
"""Controls, invisible marks, private and undefined characters; U+200B to U+200D part or join
letters in Thai, Persian and Indian scripts."""
WESTERN, CYRILLIC = "cp1252", "cp1251"
NAMED_ALONE = re.compile("[\u00a0-\u017f\u2010-\u203a\u20ac\u2122]")
"""Characters whose bytes are found as damage even where one stands alone."""
FEWEST_IN_A_ROW = {WESTERN: 2, CYRILLIC: 3}
"""Characters in a row from which on any letters are damage."""


def undecodable(text: str) -> str:
    """Finds characters that could not be decoded, or not be encoded."""
    if REPLACEMENT in text:
        return "has U+FFFD, the mark of bytes that could not be decoded"
    if "?" in text and "://" not in text and "www." not in text:
        found = QUESTION_MARK_INSIDE.search(text)
        if found:
            return f'has a question mark inside a word ("{found[0]}")'
    return ""


def mojibake(text: str) -> str:
    """Finds UTF-8 that was read as another encoding: "Ã©" for "é", "РџСЂ" for "Пр"."""
    if text.isascii():
        return ""
    for encoding in (WESTERN, CYRILLIC):
        for run in _runs(encoding).finditer(text):
            meant = _decoded(run[0], encoding)
            n_letters = sum(character.isalpha() for character in meant)
            is_alone = len(meant) < FEWEST_IN_A_ROW[encoding]
            if encoding == WESTERN and NAMED_ALONE.search(meant):
                return f'has "{run[0]}", which is "{meant}" read as {encoding}'
            if not is_alone and n_letters == len(meant):
                return f'has "{run[0]}", which is "{meant}" read as {encoding}'
    return ""


def invisible(text: str) -> str:
    """Finds control characters and other characters that are not seen."""
    if text.isascii() and text.isprintable():
        return ""
    found = INVISIBLE.search(text)
    return f"has the character U+{ord(found[0]):04X}" if found else ""


def written_out(text: str) -> str:
    """A text whose invisible characters are written as their numbers: none turns a line around."""
    return INVISIBLE.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


@cache
def _runs(encoding: str) -> re.Pattern[str]:
    """Finds runs of characters that are, as bytes, characters of UTF-8 beyond ASCII."""
    table = _characters(encoding)
    rest = f"[{re.escape(''.join(table[0x80:0xC0]))}]"
    leads = (
        (re.escape("".join(table[0xC2:0xE0])), 1),
        (re.escape("".join(table[0xE0:0xF0])), 2),
        (re.escape("".join(table[0xF0:0xF5])), 3),
    )
    return re.compile("(?:" + "|".join(f"[{lead}]{rest}{{{n}}}" for lead, n in leads) + ")+")


@cache
def _characters(encoding: str) -> list[str]:
    """The character of each byte; a byte that an encoding does not have is Latin-1's."""
    found = [bytes([byte]).decode(encoding, "ignore") for byte in range(256)]
    return [character or chr(byte) for byte, character in enumerate(found)]


@cache
def _bytes(encoding: str) -> dict[str, int]:
    return {character: byte for byte, character in enumerate(_characters(encoding))}


def _decoded(text: str, encoding: str) -> str:
    """Reads a run as UTF-8; undefined characters, as of overlong forms, become nothing."""
    table = _bytes(encoding)
    meant = bytes(table[character] for character in text).decode("utf-8", "ignore")
    return "".join(c for c in meant if unicodedata.category(c) != "Cn")
