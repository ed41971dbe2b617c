"""Source text as its writers mean it: composed letters, plain spaces, nothing that is not seen.

- What a model reads is changed, not what it writes: French keeps its no-break spaces in targets.
- Each special space becomes one space. Soft hyphens, marks of direction, byte order marks and
  controls are omitted. What changes letters stays: joiners between letters of Persian or Hindi and
  between emoji, variation selectors, and the spaces without width that part words in Thai, Lao,
  Burmese and Khmer.
- At last letters and their marks are composed (NFC, Unicode Standard Annex 15).
"""

import re
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING
from unicodedata import category, combining, is_normalized, normalize

if TYPE_CHECKING:
    from tformer_cli.text.tokenizer import TokenizerSide

SPACES = "[\t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
UNSEEN = (
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064"
    "\u2066-\u206f\ufeff\ufff9-\ufffb]"
    "|\u200b(?![\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff])"
    "|(?<![^\x00-\u024f])[\u200c\u200d](?![^\x00-\u024f])"  # joiners, but not of Latin letters
)
_SPACES, _UNSEEN, _EITHER = map(re.compile, (SPACES, UNSEEN, f"{SPACES}|{UNSEEN}"))
_NAMES = {
    "\xa0": "no-break spaces",
    "\xad": "soft hyphens",
    "\t": "tabs",
    "\u202f": "no-break spaces",
    "\u3000": "wide spaces",
    "\ufeff": "byte order marks",
}


def is_plain(text: str) -> bool:
    # Most text is ASCII, and must not pay for the rest
    if text.isascii():
        return text.isprintable() or _EITHER.search(text) is None
    return is_normalized("NFC", text) and _EITHER.search(text) is None


def plain(text: str) -> str:
    return text if is_plain(text) else normalize("NFC", _UNSEEN.sub("", _SPACES.sub(" ", text)))


def plain_with_spans(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The same, with the characters of the text that each of its characters comes from."""
    spaced = _SPACES.sub(" ", text)
    omitted = set(chain.from_iterable(range(*found.span()) for found in _UNSEEN.finditer(spaced)))
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    cluster = ""
    start = end = 0
    for place, character in enumerate(f"{spaced}\n"):
        if place in omitted:
            continue
        # No letter is composed with one before it but for marks and parts of Hangul syllables
        if cluster and not _may_join(character):
            parts.append(normalize("NFC", cluster))
            spans += [(start, end)] * len(parts[-1])
            cluster = ""
        if not cluster:
            start = place
        cluster, end = cluster + character, place + 1
    return "".join(parts), spans


def _may_join(character: str) -> bool:
    is_mark = combining(character) or category(character)[0] == "M"
    return bool(is_mark) or "\u1160" <= character <= "\u11ff"


def untrained_characters(text: str, side: "TokenizerSide") -> Mapping[str, int]:
    """Counts by their names the characters that `plain` changes, and that no piece has.

    They cut other tokens, where the side of a model without a normalization reads them.
    """
    if is_plain(text):
        return {}
    as_it_is, as_meant = side.encode_phrases([text, plain(text)])
    if as_it_is == as_meant:
        return {}
    known = side.characters
    found = Counter(_kind_of(one[0]) for one in _EITHER.finditer(text) if one[0] not in known)
    if not is_normalized("NFC", text):
        marks = sum(bool(combining(one)) and one not in known for one in text)
        found.update({"decomposed letters": marks} if marks else {})
    return found


def _kind_of(character: str) -> str:
    if character in _NAMES:
        return _NAMES[character]
    if _SPACES.fullmatch(character):
        return "special spaces"
    return "control characters" if category(character) == "Cc" else "unseen characters"
