"""The checks of an example, each a function that returns why it is doubtful, or an empty text."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import filterfalse
from typing import TypeVar

from tformer_cli.errors import UsageError
from tformer_cli.plugins.corpora_tools.quality.facts import (
    LABELED,
    PAIRS,
    CorpusFacts,
    CorpusKind,
    deviation,
)
from tformer_cli.plugins.corpora_tools.quality.repeats import normalize_text
from tformer_cli.plugins.corpora_tools.quality.settings import CheckSettings
from tformer_cli.text.corpora import SentencePair
from tformer_cli.text.languages import (
    FUNCTION_WORDS,
    script_of,
    telling_words,
    words_of,
    words_of_another,
)
from tformer_cli.wording import did_you_mean, is_blank, suggestions

MALFORMED, EMPTY, HELD_OUT, DUPLICATE = "malformed", "empty", "held-out", "duplicate"
NEAR_DUPLICATE, OTHER_LABEL, SCORE = "near-duplicate", "other-label", "score"
REPEATED_SOURCE, REPEATED_TARGET = "repeated-source", "repeated-target"


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check: it has one function, or none if it compares pairs with each other."""

    meaning: str
    """The finding in a few words; ``{side}`` is the name of a side."""
    of_side: Callable[[str], str] | None = None
    of_pair: Callable[[SentencePair, CorpusFacts], str] | None = None
    drops: bool = True
    """True if pairs that have it are dropped unless others are asked for."""
    is_default: bool = True
    """False if it is made only where it is asked for."""
    only_of: CorpusKind | None = None
    """Kind of corpora that it is for; None: all."""

    def means(self, kind: CorpusKind) -> str:
        return self.meaning.format(side=kind.side)

    def find(self, pair: SentencePair, facts: CorpusFacts) -> str:
        if self.of_pair is not None:
            return self.of_pair(pair, facts)
        if self.of_side is not None:
            for name, side in facts.kind.texts_of(pair):
                if reason := self.of_side(side):
                    return f"{name} {reason}"
        return ""


# All checks by name, in the order in which they are shown: that of this file.
CHECKS: dict[str, Check] = {MALFORMED: Check(meaning="a line of a table is not an example")}
OfSide = TypeVar("OfSide", bound=Callable[[str], str])
OfPair = TypeVar("OfPair", bound=Callable[[SentencePair, CorpusFacts], str])


def _of_side(name: str, meaning: str) -> Callable[[OfSide], OfSide]:

    def register(function: OfSide) -> OfSide:
        CHECKS[name] = Check(meaning=meaning, of_side=function)
        return function

    return register


def _of_pair(
    name: str, meaning: str, only_of: CorpusKind | None = None
) -> Callable[[OfPair], OfPair]:

    def register(function: OfPair) -> OfPair:
        CHECKS[name] = Check(meaning=meaning, of_pair=function, only_of=only_of)
        return function

    return register


@_of_pair(EMPTY, "{side} is blank")
def empty(pair: SentencePair, facts: CorpusFacts) -> str:
    blank = [name for name, side in facts.kind.sides_by_name(pair).items() if is_blank(side)]
    return f"{' and '.join(blank)} blank" if blank else ""


REPLACEMENT = "\ufffd"
# A question mark where a letter was that an encoding did not have.
QUESTION_MARK_INSIDE = re.compile(r"(?:[^\W\d_]|['’])\?[^\W\d_A-ZÀ-Þ]")
# Controls, invisible marks, private and undefined characters; U+200B to U+200D part or join
# letters in Thai, Persian and Indian scripts.
INVISIBLE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
    "\ue000-\uf8ff\ufdd0-\ufdef\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)
WESTERN, CYRILLIC = "cp1252", "cp1251"
# Characters whose bytes are damage even where only one stands in a row.
NAMED_ALONE = re.compile("[\u00a0-\u017f\u2010-\u203a\u20ac\u2122]")
FEWEST_IN_A_ROW = {WESTERN: 2, CYRILLIC: 3}
"""Characters in a row from which on any letters are damage."""


@_of_side("encoding", "characters were lost")
def undecodable(text: str) -> str:
    if REPLACEMENT in text:
        return "has U+FFFD, the mark of bytes that could not be decoded"
    if "?" in text and "://" not in text and "www." not in text:
        match = QUESTION_MARK_INSIDE.search(text)
        if match:
            return f'has a question mark inside a word ("{match[0]}")'
    return ""


@_of_side("mojibake", "UTF-8 was read as another encoding")
def mojibake(text: str) -> str:
    # "Ã©" for "é", "РџСЂ" for "Пр"
    if text.isascii():
        return ""
    for encoding in (WESTERN, CYRILLIC):
        for run in _runs(encoding).finditer(text):
            meant = _decode(run[0], encoding)
            n_letters = sum(character.isalpha() for character in meant)
            is_alone = len(meant) < FEWEST_IN_A_ROW[encoding]
            if encoding == WESTERN and NAMED_ALONE.search(meant):
                return f'has "{run[0]}", which is "{meant}" read as {encoding}'
            if not is_alone and n_letters == len(meant):
                return f'has "{run[0]}", which is "{meant}" read as {encoding}'
    return ""


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
    characters = [bytes([byte]).decode(encoding, "ignore") for byte in range(256)]
    return [character or chr(byte) for byte, character in enumerate(characters)]


@cache
def _bytes(encoding: str) -> dict[str, int]:
    return {character: byte for byte, character in enumerate(_characters(encoding))}


def _decode(text: str, encoding: str) -> str:
    """Reads a run as UTF-8; undefined characters, as of overlong forms, become nothing."""
    table = _bytes(encoding)
    meant = bytes(table[character] for character in text).decode("utf-8", "ignore")
    return "".join(c for c in meant if unicodedata.category(c) != "Cn")


@_of_side("invisible", "control or invisible characters")
def invisible(text: str) -> str:
    if text.isascii() and text.isprintable():
        return ""
    match = INVISIBLE.search(text)
    return f"has the character U+{ord(match[0]):04X}" if match else ""


def written_out(text: str) -> str:
    """A text whose invisible characters are written as their numbers: none turns a line around."""
    return INVISIBLE.sub(lambda match: f"<U+{ord(match[0]):04X}>", text)


MARKUP = re.compile(
    r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>"  # tags
    r"|&(?:[A-Za-z]{2,8}[0-9]?|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});"  # entities
    r"|\{\\[A-Za-z]+[^{}]*\}|\[/?(?:b|i|u|url|quote|img)\b[^\[\]]*\]|\{\{|\}\}"  # subtitles, forums
)


@_of_side("markup", "tags, entities, other markup")
def markup(text: str) -> str:
    if not any(mark in text for mark in "<&{["):
        return ""
    match = MARKUP.search(text)
    return f"has {match[0]:.40}" if match else ""


@_of_pair("identical", "both sides are the same", PAIRS)
def identical(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001
    return "source and target are the same" if is_same_text(*pair) else ""


def is_same_text(source: str, target: str) -> bool:
    """True if two texts with letters are the same, apart from case, punctuation and spaces."""
    source, target = normalize_text(source), normalize_text(target)
    return source == target and any(map(str.isalpha, source))


FEWEST_COPIED, COPIED_SHARE = 4, 0.8
"""Words of a target, and the share of them that its source has, from which on it is a copy."""
ADDRESS = re.compile(r"(?:https?://|www\.)\S+|[\w.+-]+@[\w-]+\.[\w.-]+", re.IGNORECASE)


@_of_pair("copied", "most of the target is copied", PAIRS)
def copied_target(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001
    ours, theirs = (words_of(_without_addresses(side)) for side in pair)
    if len(theirs) < FEWEST_COPIED or 3 * len(set(theirs).intersection(ours)) < len(set(theirs)):
        return ""
    n_common = (Counter(theirs) & Counter(ours)).total()
    if n_common < COPIED_SHARE * len(theirs) or is_same_text(*pair):
        return ""
    return f"{n_common} of {len(theirs)} words of the target are the source's"


def _without_addresses(text: str) -> str:
    return ADDRESS.sub("", text) if "@" in text or "//" in text or "www." in text else text


@_of_pair("too-long", "{side} is very long")
def too_long(pair: SentencePair, facts: CorpusFacts) -> str:
    most = facts.settings.max_characters
    for name, side in facts.kind.texts_of(pair):
        if len(side) > most:
            return f"{name} has {len(side):,} characters, more than {most:,}"
    return ""


LONG_WORD = re.compile(r"\S{50,}")
LINK = re.compile(r"://|www\.|@")


@_of_side("long-word", "a very long word")
def long_word(text: str) -> str:
    if len(text) < 50:
        return ""
    for match in LONG_WORD.finditer(text):
        # alphabets without upper case may put no spaces between words
        n_cased = sum(character.lower() != character.upper() for character in match[0])
        if 2 * n_cased > len(match[0]) and not LINK.search(match[0]):
            return f"has a word of {len(match[0]):,} characters"
    return ""


@_of_pair("length-ratio", "lengths do not fit", PAIRS)
def unlike_lengths(pair: SentencePair, facts: CorpusFacts) -> str:
    if not facts.spread:
        return ""
    lengths = len(pair.source), len(pair.target)
    distance = deviation(*lengths, facts.ratio, facts.spread)
    if abs(distance) <= facts.settings.max_deviation:
        return ""
    return f"{lengths[0]:,} and {lengths[1]:,} characters: {distance:+.1f} standard deviations"


FEWEST_LETTERS, SCRIPT_SHARE = 4, 0.25
"""Letters of a side, and the share of them in its scripts below which the script is wrong."""
FEWEST_WORDS = 3
"""Common words of another language by which it is recognized."""
SWAPPED = "each side is in the other's language"
LAST_LATIN = "\u024f"
"""Letters up to this one are Latin, nearly all."""


@_of_pair("swapped", "sides are swapped", PAIRS)
def swapped_sides(pair: SentencePair, facts: CorpusFacts) -> str:
    if facts.detector is not None and all(facts.languages):
        languages = tuple(map(facts.detector.language, pair))
        is_swapped = languages == facts.languages[::-1] != facts.languages
        return SWAPPED if is_swapped else ""
    scripts = facts.scripts
    if all(scripts) and scripts[0].isdisjoint(scripts[1]):
        is_swapped = all(
            _share(side, expected) < SCRIPT_SHARE <= _share(side, other)
            for side, expected, other in zip(pair, scripts, scripts[::-1], strict=True)
        )
    else:
        telling = _marker_words(facts)
        words = [words_of(side) for side in pair]
        wrong = [sum(map(telling[1 - n].__contains__, side)) for n, side in enumerate(words)]
        right = [sum(map(telling[n].__contains__, side)) for n, side in enumerate(words)]
        is_swapped = all(wrong) and sum(wrong) >= FEWEST_WORDS and sum(wrong) > 3 * sum(right)
    return SWAPPED if is_swapped else ""


@lru_cache(maxsize=4)
def _marker_words(facts: CorpusFacts) -> tuple[frozenset[str], frozenset[str]]:
    """Words that tell one side of a corpus from the other: commonest of the languages, and own."""
    (src, tgt), (ours, theirs) = facts.languages, facts.common_words
    if src == tgt:
        return ours - theirs, theirs - ours
    return telling_words(src, tgt) | (ours - theirs), telling_words(tgt, src) | (theirs - ours)


def _share(text: str, scripts: frozenset[str]) -> float:
    """The share of a text's letters that are in some scripts; 1 without letters."""
    letters = [letter for letter in text if letter.isalpha()]
    return (
        sum(script_of(letter) in scripts for letter in letters) / len(letters) if letters else 1.0
    )


@_of_pair("script", "another script")
def wrong_script(pair: SentencePair, facts: CorpusFacts) -> str:
    for place in facts.kind.texts:
        side, expected = pair[place], facts.scripts[place]
        if not expected or ("LATIN" in expected and (side.isascii() or max(side) <= LAST_LATIN)):
            continue
        letters = [letter for letter in side if letter.isalpha()]
        if len(letters) < FEWEST_LETTERS or _share(side, expected) >= SCRIPT_SHARE:
            continue
        script = Counter(map(script_of, letters)).most_common(1)[0][0]
        name, scripts = facts.kind.sides[place], " or ".join(sorted(expected))
        return f"{name} is in the script {script}, not {scripts}"
    return ""


@_of_pair("language", "another language")
def wrong_language(pair: SentencePair, facts: CorpusFacts) -> str:
    for place in facts.kind.texts:
        own, known = facts.languages[place], facts.common_words[place]
        if facts.detector is not None:
            language = facts.detector.language(pair[place]) if own else ""
            if language not in ("", own):
                return f"{facts.kind.sides[place]} is in {language}, not {own}"
            continue
        if own not in FUNCTION_WORDS:
            continue
        other, n_words, n_own = words_of_another(words_of(pair[place]), own, known)
        if n_words >= FEWEST_WORDS and n_words > 2 * n_own:
            name = facts.kind.sides[place]
            return f"{name} has {n_words} common words of {other}, {n_own} of {own}"
    return ""


NUMBER = re.compile(r"\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+(?!\d)|\d+")
LARGEST_SPELLED = 24
"""Largest number that one side may write in words, or by another clock."""
# Digits from which on a number is compared as text.
LONGEST_NUMBER = 40


@_of_pair("numbers", "numbers differ", PAIRS)
def numbers(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001
    sides = [NUMBER.findall(side) for side in pair]
    if sides[0] == sides[1]:
        return ""
    ours, theirs = (Counter(map(_value, side)) for side in sides)
    missing = [(ours - theirs, theirs), (theirs - ours, ours)]
    for name, (only_here, there) in zip(("source", "target"), missing, strict=True):
        for number in only_here:
            if not _is_spelled(number, other_has_digits=bool(there)):
                return f"only the {name} has the number {number:.40}"
    return ""


def _value(digits: str) -> str:
    digits = "".join(filterfalse(" .,'’\u00a0\u202f".__contains__, digits))
    return str(int(digits)) if len(digits) <= LONGEST_NUMBER else digits


def _is_spelled(number: str, *, other_has_digits: bool) -> bool:
    """True if a number may be written in words on the other side."""
    value = int(number) if len(number) <= LONGEST_NUMBER else 1
    if other_has_digits:
        return value <= LARGEST_SPELLED and len(number) <= LONGEST_NUMBER
    return value < 100 or value % 100 == 0


@_of_pair("addresses", "web or mail addresses differ", PAIRS)
def addresses(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001
    if not any("@" in side or "//" in side or "www." in side.lower() for side in pair):
        return ""
    ours, theirs = ({_address(address) for address in ADDRESS.findall(side)} for side in pair)
    if ours == theirs:
        return ""
    other = next(iter(sorted(ours - theirs) or sorted(theirs - ours)))
    return f"only the {'source' if other in ours else 'target'} has {other:.60}"


def _address(text: str) -> str:
    return text.lower().rstrip(".,;:!?)]}>\"'»”’…").removesuffix("/")


REPEATED_CHARACTER = re.compile(r"([^\W\d_])\1{6,}|(\S)\2{11,}")
LONGEST_PHRASE = 4
"""Words of a repeated phrase."""


@_of_pair("repetition", "one side repeats itself", PAIRS)
def repetition(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001
    repeats = [_find_repeat(side) for side in pair]
    if all(repeats) or not any(repeats):
        return ""
    name = "source" if repeats[0] else "target"
    return f'{name} repeats "{repeats[0] or repeats[1]:.40}"'


def _find_repeat(text: str) -> str:
    """A character or phrase that is repeated several times; empty if none."""
    match = REPEATED_CHARACTER.search(text)
    if match:
        return match[0]
    words = text.lower().split()
    # Four times the same word, or three times the same phrase: not in text with few repeats
    if len(words) < 4 or len(words) - len(set(words)) < 3:
        return ""
    for length in range(1, LONGEST_PHRASE + 1):
        wanted = 3 if length == 1 else 2 * length
        run = 0
        for place in range(length, len(words)):
            run = run + 1 if words[place] == words[place - length] else 0
            if run == wanted:
                return " ".join(words[place - wanted - length + 1 : place + 1])
    return ""


FEWEST_SYMBOLS, LETTER_SHARE = 4, 0.5
"""Characters of a side, and the share of letters and digits below which it is noise."""


@_of_side("symbols", "mostly no letters")
def symbols(text: str) -> str:
    if sum(map(str.isalnum, text)) >= LETTER_SHARE * len(text):
        return ""
    shown = "".join(text.split())
    n_letters = sum(map(_is_letter, shown))
    if len(shown) < FEWEST_SYMBOLS or n_letters >= LETTER_SHARE * len(shown):
        return ""
    return f"only {n_letters:,} of {len(shown):,} characters are letters or digits"


@cache
def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"


FEWEST_SPACED, SPACED_SHARE = 6, 0.7
"""Words of a side, and the share of single letters from which on its letters are spaced."""


@_of_side("spaced-letters", "spaces between letters")
def spaced_letters(text: str) -> str:
    words = text.split()
    if len(words) < FEWEST_SPACED or 4 * len(words) < len(text):
        return ""
    # only of alphabets with upper case: others may put spaces between syllables
    n_single = sum(len(word) == 1 and word.lower() != word.upper() for word in words)
    if n_single < SPACED_SHARE * len(words):
        return ""
    return f"{n_single} of {len(words)} words are single letters"


CHECKS |= {
    SCORE: Check(meaning="models find it unlikely", is_default=False, only_of=PAIRS),
    HELD_OUT: Check(meaning="a held-out file has it"),
    DUPLICATE: Check(meaning="an earlier one is the same"),
    NEAR_DUPLICATE: Check(meaning="an earlier one is nearly the same", is_default=False),
    REPEATED_SOURCE: Check(meaning="an earlier pair has the source", drops=False, only_of=PAIRS),
    REPEATED_TARGET: Check(meaning="an earlier pair has the target", drops=False, only_of=PAIRS),
    OTHER_LABEL: Check(meaning="the text has another label earlier", drops=False, only_of=LABELED),
}
# Checks for which pairs are dropped unless others are asked for.
DROPPING = frozenset(name for name, check in CHECKS.items() if check.drops)
DEFAULT = frozenset(name for name, check in CHECKS.items() if check.is_default)
"""Checks that are made unless others are asked for."""
_SINGLE_PAIR = {name: c for name, c in CHECKS.items() if c.of_side or c.of_pair}


def known_checks(names: Iterable[str], where: str) -> frozenset[str]:
    checks = [check.strip() for name in names for check in name.split(",")]
    for name in checks:
        if name not in CHECKS:
            hint = did_you_mean(suggestions(name, CHECKS)) or f"checks are {', '.join(CHECKS)}"
            raise UsageError(f'{where}: no check is called "{name}"; {hint}')
    return frozenset(checks)


def asked_checks(settings: CheckSettings) -> frozenset[str]:
    return known_checks(settings.only, "--only")


def chosen_checks(settings: CheckSettings, default: frozenset[str]) -> frozenset[str]:
    chosen = asked_checks(settings) if settings.only else default
    chosen -= known_checks(settings.without, "--without")
    chosen |= {HELD_OUT} if settings.held_out else set()
    chosen |= {NEAR_DUPLICATE} if settings.near else set()
    chosen |= {SCORE} if settings.scores else set()
    if SCORE in chosen and not settings.scores:
        raise UsageError("--only: score needs the scores of a model; add --scores FILE")
    if not chosen:
        raise UsageError("--without: leaves no check; name fewer")
    return chosen


def checks_for(kind: CorpusKind) -> frozenset[str]:
    return frozenset(name for name, check in CHECKS.items() if check.only_of in (None, kind))


def findings_of(
    pair: SentencePair, facts: CorpusFacts, wanted: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Yields the checks that find a pair doubtful, each with why; of a blank one only that."""
    blank = empty(pair, facts)
    if blank:
        if EMPTY in wanted:
            yield EMPTY, blank
        return
    for name, check in _SINGLE_PAIR.items():
        if name in wanted and (why := check.find(pair, facts)):
            yield name, why
