"""Keys of sentences and pairs: numbers of 64 bits that are equal for what counts as the same.

Two of ten million keys are equal by chance in one of 370,000 corpora.
"""

import unicodedata
from functools import lru_cache
from hashlib import blake2b


class _Kept(dict[int, int | None]):
    """Characters that a normalized text keeps: letters, marks and digits."""

    def __missing__(self, code: int) -> int | None:
        kept = code if unicodedata.category(chr(code))[0] in "LMN" else None
        self[code] = kept
        return kept


_KEPT = _Kept()


@lru_cache(maxsize=1 << 14)  # keys of many pairs are made before their checks
def normalized(text: str) -> str:
    """A text without spaces and punctuation, in lower case and in compatibility form (NFKC).

    Text of punctuation alone stays as it is, apart from spaces at its ends.
    """
    folded = text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    return folded.translate(_KEPT) or text.strip()


def key_of(text: str) -> int:
    """The key of a text."""
    return int.from_bytes(
        blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little"
    )


def keys_of_pair(source: str, target: str) -> tuple[int, int, int]:
    """Keys of a pair, its source and its target, all of them normalized."""
    source, target = normalized(source), normalized(target)
    return key_of(f"{len(source)} {source}{target}"), key_of(source), key_of(target)
