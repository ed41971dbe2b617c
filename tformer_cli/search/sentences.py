"""Splitting a line into its sentences, so that none is lost by a model trained on sentences."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from tformer_cli.errors import UsageError
from tformer_cli.wording import installing, is_blank

if TYPE_CHECKING:
    from tformer_cli.search.config import SentenceRule

# Texts, which `re` compiles once they are used: for all of them it takes longer than for a line
_ENDS = (
    # each run of marks or of white space is looked at once, from its beginning: lines may be long
    r"(?<![.!?…])(?P<mark>[.!?…]+)[\"'’”»)\]]*(?:\s+»(?=\s))?\s+"
    r"|[。！？｡][」』”’）]*\s*|(?<![।॥؟۔])[।॥؟۔]+\s+|(?<!\s)\s*\n\s*"
)
_MARK = r"[.!?…。！？｡।॥؟۔\n]"
_OPENING = r"[\"'‘“„«(\[¿¡]*"
ABBREVIATIONS = {
    *("abs", "abt", "al", "approx", "av", "bzw", "ca", "cf", "corp", "dept", "dhr", "dott", "dr"),
    *("dra", "ds", "dvs", "ee", "etc", "evtl", "fr", "gen", "ggf", "hon", "hr", "inc", "jr", "lt"),
    *("ltd", "mio", "mlle", "mme", "mr", "mrd", "mrs", "ms", "mw", "np", "prof", "pág", "resp"),
    *("rev", "sgt", "sig", "sr", "sra", "srta", "st", "sv", "tel", "tzn", "tzw", "ul", "usw", "vs"),
    *("долл", "им", "млн", "млрд", "тыс", "ул", "डॉ", "డా", "திரு", "ดร"),
}
"""Words that a period may follow within a sentence."""
BEFORE_NUMBERS = {
    *("art", "cap", "est", "fig", "godz", "kl", "klo", "no", "nos", "nr", "núm", "ok", "pp"),
    *("str", "vol", "рис", "стр", "מס", "నం"),
}
"""Abbreviations only before a number: some are also words that end a sentence."""
_LAST_WORD = r"[^\s\d_.,:;()\[\]\"'’“”«»/-]+\Z"
_HAS_WORD = r"[^\W_]"
_THAI = r"[\u0e00-\u0e7f]\Z"
_WITH_INNER_PERIODS = r"(?:[^\W\d_]\.)+[^\W\d_]\Z"
_NUMBER = r"\d\Z"


def split_sentences(text: str) -> list[str]:
    """Splits a text into sentences by a plain rule, without a dictionary of its language.

    A sentence ends at a line end and at `. ! ? …` before white space, unless a small letter
    follows. A period after an initial, an abbreviation ("Dr.", "e.g.", "no." before a number), a
    Thai letter or, before white space and a letter, an ordinal of one or two digits ("am 3. Mai")
    ends none; full-width marks always do. Marks alone, such as a closing quotation mark behind a
    space, are part of the sentence before them.

    Returns:
        The sentences with the white space behind them: put together they are the text.
    """
    first = re.search(_MARK, text)
    if first is None or first.end() >= len(text.rstrip()):  # most lines of one sentence
        return [text] if text else []
    ends = [m.end() for m in re.finditer(_ENDS, text) if _ends_sentence(text, m)]
    starts: list[int] = []
    open_mark = True  # nothing but marks since the last start: what follows belongs to them
    for start, end in pairwise([0, *ends, len(text)]):
        has_word = re.search(_HAS_WORD, text[start:end]) is not None
        if (has_word and not open_mark) or (end > start and not starts):
            starts.append(start)
            open_mark = True
        open_mark = open_mark and not has_word
    return [text[start:end] for start, end in pairwise([*starts, len(text)])]


def _ends_sentence(text: str, end: re.Match[str]) -> bool:
    mark = end["mark"]
    if mark is None:
        return True
    opening = re.compile(_OPENING).match(text, end.end())
    begin = end.end() if opening is None else opening.end()
    if text[begin : begin + 1].islower():
        return False
    # closing quotes after the mark: it ends a sentence, not an abbreviation
    if mark != "." or not text[end.start() + 1].isspace():
        return True
    # No word of the lists is longer, and lines may be long
    before = text[max(0, end.start() - 24) : end.start()]
    if re.search(_WITH_INNER_PERIODS, before):
        return False
    if re.search(_NUMBER, before):
        digits = len(before) - len(before.rstrip("0123456789"))
        return digits > 2 or not text[end.end() : end.end() + 1].isalpha()
    match = re.search(_LAST_WORD, before)
    if match is None:
        return True
    word = match[0].lower()
    if len(word) == 1 or word in ABBREVIATIONS or re.search(_THAI, word):
        return False
    return word not in BEFORE_NUMBERS or not text[begin : begin + 1].isdecimal()


def sentence_splitter(rule: SentenceRule, language: str) -> Callable[[str], list[str]] | None:
    """Returns a sentence splitter that keeps white space, as `split_sentences` does."""
    if rule != "sentencex":
        return split_sentences if rule == "rule" else None
    try:
        from sentencex import get_sentence_boundaries
    except ImportError:
        raise UsageError.of(
            "{split_sentences sentencex}: the package is not installed; "
            "{}, or use {split_sentences rule}",
            installing("sentences"),
        ) from None
    code = re.split(r"[-_]", language)[0].lower() or "en"

    def split(text: str) -> list[str]:
        sentences = get_sentence_boundaries(code, text)
        # white space between paragraphs is a sentence to the library
        starts = [
            sentence["start_index"] for sentence in sentences if not is_blank(sentence["text"])
        ]
        ends = [0, *(start for start in starts if start > 0), len(text)]
        return [text[start:end] for start, end in pairwise(ends) if end > start]

    return split


BREAKS = (
    r"(?<=[.!?…])[\"'’”»)\]]*\s+|(?<=[。！？])",
    r"(?<=[,;:])\s+|(?<=[，；：、])|\s+(?=[–—])",
    r"\s+",
)
"""Places where a line may be cut, best first: ends of sentences, clause punctuation, spaces."""

TokenCounts = Callable[[Sequence[str]], Sequence[int]]
"""Counts the tokens of each of several texts."""


def split_line(line: str, longest: int, count_tokens: TokenCounts) -> list[str]:
    """Cuts a line into parts of at most `longest` tokens.

    It is cut at the ends of sentences, pieces still too long at clause punctuation, then at
    spaces, and only what has no spaces anywhere. Neighboring pieces are joined again as long as
    they fit. Nothing but white space at the cuts is lost. A single character is never cut,
    whatever its tokens.
    """
    pieces = [line]
    for pattern in BREAKS:
        pieces = _cut_long(pieces, longest, count_tokens, partial(_cut_at, pattern))
    parts = _pack_pieces(pieces, longest, count_tokens)
    # Joining may change how text is tokenized, and what has no spaces is still too long.
    while True:
        shorter = _cut_long(parts, longest, count_tokens, _halves)
        if shorter == parts:
            packed = _pack_pieces(parts, longest, count_tokens)
            return [part.strip() for part in packed if not is_blank(part)]
        parts = shorter


def _cut_long(
    pieces: Sequence[str], longest: int, count_tokens: TokenCounts, cut: Callable[[str], list[str]]
) -> list[str]:
    """Replaces pieces that are too long by the result of `cut`."""
    result = []
    for piece, n_tokens in zip(pieces, count_tokens(pieces), strict=True):
        result += [piece] if n_tokens <= longest else cut(piece)
    return result


def _cut_at(pattern: str, text: str) -> list[str]:
    """Cuts after every match, so that the pieces put together are the text again."""
    ends = [0, *(match.end() for match in re.finditer(pattern, text)), len(text)]
    return [text[start:end] for start, end in pairwise(ends) if end > start]


def _halves(text: str) -> list[str]:
    """Cuts in the middle, before no combining mark where that can be helped."""
    middle = len(text) // 2
    while middle > 0 and unicodedata.combining(text[middle]):
        middle -= 1
    # A run of combining marks must also get shorter, or splitting would never end
    middle = middle or len(text) // 2
    return [text[:middle], text[middle:]] if middle else [text]


def _pack_pieces(pieces: Sequence[str], longest: int, count_tokens: TokenCounts) -> list[str]:
    """Joins neighbors as long as they fit together, by their own counts and as one text."""
    parts: list[list[str]] = []
    room = 0
    for piece, n_tokens in zip(pieces, count_tokens(pieces), strict=True):
        if parts and n_tokens <= room:
            parts[-1].append(piece)
            room -= n_tokens
        else:
            parts.append([piece])
            room = longest - n_tokens
    joined = ["".join(part) for part in parts]
    # Joined pieces may have more tokens than each by itself, and then stay apart
    counts = count_tokens(joined)
    result: list[str] = []
    for part, text, n_tokens in zip(parts, joined, counts, strict=True):
        result += [text] if n_tokens <= longest else part
    return result
