"""Finding a token of a sentence by what a person types."""

import re
from collections.abc import Sequence

from tformer_cli.errors import UsageError
from tformer_cli.wording import SPACE_LABEL

_BYTE = re.compile(rb"<0x([0-9A-F]{2})>")
_OCCURRENCE = re.compile(r"(.+)#([1-9]\d{0,5})", re.DOTALL)
_POSITION = re.compile(r"-?\d{1,6}")


def find_token(wanted: str, pieces: Sequence[str], option: str = "--token") -> int:
    """Finds the position that ``it``, ``it#2`` (the second of them), ``6`` or ``-1`` names.

    A text names a piece, a word, or any run of pieces that spells it; whole words come before parts
    of words, the same case before another. Of several pieces the first is meant. A number is a
    position from 0, or from the end if it is negative, unless the sentence has it as a token.
    """
    for text, number in _readings(wanted):
        found = _starts(text, pieces)
        if number <= len(found):
            return found[number - 1]
    if _POSITION.fullmatch(wanted) and -len(pieces) <= int(wanted) < len(pieces):
        return int(wanted) % len(pieces)
    listed = ", ".join(f"{place} {piece}" for place, piece in enumerate(pieces))
    raise UsageError(f'{option}: "{wanted}" matches no token; the tokens are {listed}')


def _readings(wanted: str) -> list[tuple[str, int]]:
    """Typed text and the number of its occurrence; a ``#`` may belong to the text."""
    match = _OCCURRENCE.fullmatch(wanted)
    return [(wanted, 1), *([(match[1], int(match[2]))] if match else [])]


def _starts(text: str, pieces: Sequence[str]) -> list[int]:
    """Runs of pieces that spell a text: the best kind of match that there is."""
    if not text.strip():
        return []
    spelled = [_text_of(piece) for piece in pieces]
    for fold in (str, str.casefold):
        found = [
            (start, stop)
            for start in range(len(pieces))
            if (stop := _run_end(fold(text.strip()), [fold(s) for s in spelled], start))
        ]
        whole = [start for start, stop in found if _is_whole(spelled, start, stop)]
        if found:
            return whole or [start for start, _ in found]
    return []


def _run_end(text: str, spelled: Sequence[str], start: int) -> int | None:
    """End of the run of pieces from `start` on that spells a text, if there is one."""
    run = ""
    for stop in range(start, len(spelled)):
        run += spelled[stop]
        # Bytes of one character may come from several pieces: they are read together.
        whole = run.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
        if whole.strip() == text:
            return stop + 1
        if len(run.lstrip()) > 4 * len(text):
            return None
    return None


def _is_whole(spelled: Sequence[str], start: int, stop: int) -> bool:
    """Returns whether no letter or digit touches a run of pieces on either side."""
    before = spelled[start - 1][-1:] if start and not spelled[start].startswith(" ") else ""
    after = spelled[stop][:1] if stop < len(spelled) else ""
    return not before.isalnum() and not after.isalnum()


def _text_of(piece: str) -> str:
    """The text of a label; bytes that are not characters by themselves become surrogates."""
    raw = piece.replace(SPACE_LABEL, " ").encode("utf-8", "surrogateescape")
    spelled = _BYTE.sub(lambda match: bytes([int(match[1], 16)]), raw)
    return spelled.decode("utf-8", "surrogateescape")
