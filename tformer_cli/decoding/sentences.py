"""Splitting a line into its sentences, so that none is lost by a model trained on sentences."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

SentenceRule = Literal["rule", "sentencex"]
"""Ways of finding the ends of sentences."""

_ENDS = re.compile(
    # each run of marks or of white space is looked at once, from its beginning: lines may be long
    r"(?<![.!?…])(?P<mark>[.!?…]+)[\"'’”»)\]]*\s+"
    r"|[。！？｡][」』”’）]*\s*|(?<![।॥؟۔])[।॥؟۔]+\s+|(?<!\s)\s*\n\s*"
)
_OPENING = re.compile(r"[\"'‘“„«(\[¿¡]*")
_ABBREVIATIONS = {
    *("abs", "abt", "al", "approx", "art", "av", "bzw", "ca", "cf", "col", "dept", "dr", "dra"),
    *("est", "etc", "evtl", "fig", "fr", "gen", "ggf", "hon", "hr", "jr", "lt", "mio", "mlle"),
    *("mme", "mr", "mrd", "mrs", "ms", "no", "nr", "núm", "prof", "pág", "rev", "sgt", "sr"),
    *("sra", "srta", "st", "str", "tel", "usw", "vol", "vs"),
}
_LAST_WORD = re.compile(r"[^\W\d_]+\Z")
_WITH_INNER_PERIODS = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]\Z")
_NUMBER = re.compile(r"\d\Z")


def split_sentences(text: str) -> list[str]:
    """Splits a text into sentences by a plain rule, without a dictionary of its language.

    A sentence ends at a line end and at `. ! ? …` before white space, unless a small letter
    follows. A period after an initial, an abbreviation ("Dr.", "e.g.") or, before white space and
    a letter, an ordinal of one or two digits ("am 3. Mai") ends none; full-width marks always do.

    Returns:
        The sentences with the white space behind them: put together they are the text.
    """
    ends = [0, *(m.end() for m in _ENDS.finditer(text) if _ends_sentence(text, m)), len(text)]
    return [text[start:end] for start, end in pairwise(ends) if end > start]


def _ends_sentence(text: str, end: re.Match[str]) -> bool:
    mark = end["mark"]
    if mark is None:
        return True
    opening = _OPENING.match(text, end.end())
    begin = end.end() if opening is None else opening.end()
    if text[begin : begin + 1].islower():
        return False
    # closing quotes behind the mark: it is a sentence's, not an abbreviation's
    if mark != "." or not text[end.start() + 1].isspace():
        return True
    before = text[max(0, end.start() - 24) : end.start()]
    if _WITH_INNER_PERIODS.search(before):
        return False
    if _NUMBER.search(before):
        digits = len(before) - len(before.rstrip("0123456789"))
        return digits > 2 or not text[end.end() : end.end() + 1].isalpha()
    word = _LAST_WORD.search(before)
    return word is None or not (len(word[0]) == 1 or word[0].lower() in _ABBREVIATIONS)


def sentence_splitter(rule: SentenceRule, language: str) -> Callable[[str], list[str]]:
    """Makes what splits a line into sentences, white space included, as `split_sentences` does.

    Args:
        rule: "rule": `split_sentences`; "sentencex": Wikimedia's library with its lists of
            abbreviations of about 300 languages.
        language: ISO code of the text's language; "sentencex" takes English where it is unknown.

    Raises:
        UsageError: if the library is not installed.
    """
    if rule == "rule":
        return split_sentences
    try:
        from sentencex import get_sentence_boundaries
    except ImportError:
        raise UsageError(
            "--split-sentences sentencex: the package is not installed; "
            "pip install 'tformer[sentences]', or use --split-sentences rule"
        ) from None
    code = re.split(r"[-_]", language)[0].lower() or "en"

    def split(text: str) -> list[str]:
        found = get_sentence_boundaries(code, text)
        # white space between paragraphs is a sentence to the library
        starts = [one["start_index"] for one in found if one["text"].strip()]
        ends = [0, *(start for start in starts if start > 0), len(text)]
        return [text[start:end] for start, end in pairwise(ends) if end > start]

    return split
