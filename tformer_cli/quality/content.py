"""Checks of an example: lengths, characters, content, noise and languages; see `checks`."""

import re
import unicodedata
from collections import Counter
from functools import cache, lru_cache
from itertools import filterfalse

from tformer_cli.quality.facts import CorpusFacts, deviation
from tformer_cli.quality.repeats import normalized
from tformer_cli.text.corpora import SentencePair
from tformer_cli.text.languages import (
    FUNCTION_WORDS,
    script_of,
    telling_words,
    words_of,
    words_of_another,
)

FEWEST_COPIED, COPIED_SHARE = 4, 0.8
"""Words of a target, and the share of them that its source has, from which on it is a copy."""
MARKUP = re.compile(
    r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>"  # tags
    r"|&(?:[A-Za-z]{2,8}[0-9]?|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});"  # entities
    r"|\{\\[A-Za-z]+[^{}]*\}|\[/?(?:b|i|u|url|quote|img)\b[^\[\]]*\]|\{\{|\}\}"  # subtitles, forums
)
ADDRESS = re.compile(r"(?:https?://|www\.)\S+|[\w.+-]+@[\w-]+\.[\w.-]+", re.IGNORECASE)
NUMBER = re.compile(r"\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+(?!\d)|\d+")
LARGEST_SPELLED = 24
"""Largest number that one side may write in words, or by another clock."""
LONGEST_NUMBER = 40
"""Digits from which on a number is compared as text."""


def identical(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001 - as of all checks
    """Finds pairs whose sides are the same apart from case, punctuation and spaces."""
    return "source and target are the same" if is_same_text(*pair) else ""


def is_same_text(source: str, target: str) -> bool:
    """True if two texts with letters are the same, apart from case, punctuation and spaces."""
    source, target = normalized(source), normalized(target)
    return source == target and any(map(str.isalpha, source))


def copied(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001
    """Finds targets most of whose words are the source's."""
    ours, theirs = (words_of(_without_addresses(side)) for side in pair)
    if len(theirs) < FEWEST_COPIED or 3 * len(set(theirs).intersection(ours)) < len(set(theirs)):
        return ""
    n_common = (Counter(theirs) & Counter(ours)).total()
    if n_common < COPIED_SHARE * len(theirs) or is_same_text(*pair):
        return ""
    return f"{n_common} of {len(theirs)} words of the target are the source's"


def numbers(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001
    """Finds numbers that only one side has, small or round ones aside: these are spelled out."""
    found = [NUMBER.findall(side) for side in pair]
    if found[0] == found[1]:
        return ""
    ours, theirs = (Counter(map(_value, some)) for some in found)
    missing = [(ours - theirs, theirs), (theirs - ours, ours)]
    for name, (only_here, there) in zip(("source", "target"), missing, strict=True):
        for number in only_here:
            if not _is_spelled(number, other_has_digits=bool(there)):
                return f"only the {name} has the number {number:.40}"
    return ""


def addresses(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001
    """Finds addresses of the web or of mail that only one side has."""
    if not any("@" in side or "//" in side or "www." in side.lower() for side in pair):
        return ""
    ours, theirs = ({_address(one) for one in ADDRESS.findall(side)} for side in pair)
    if ours == theirs:
        return ""
    other = next(iter(sorted(ours - theirs) or sorted(theirs - ours)))
    return f"only the {'source' if other in ours else 'target'} has {other:.60}"


def markup(text: str) -> str:
    """Finds tags, entities and other markup."""
    if not any(mark in text for mark in "<&{["):
        return ""
    found = MARKUP.search(text)
    return f"has {found[0]:.40}" if found else ""


def _without_addresses(text: str) -> str:
    return ADDRESS.sub("", text) if "@" in text or "//" in text or "www." in text else text


def _value(digits: str) -> str:
    digits = "".join(filterfalse(" .,'’\u00a0\u202f".__contains__, digits))
    return str(int(digits)) if len(digits) <= LONGEST_NUMBER else digits


def _is_spelled(number: str, *, other_has_digits: bool) -> bool:
    """True if a number may be written in words on the other side."""
    value = int(number) if len(number) <= LONGEST_NUMBER else 1
    if other_has_digits:
        return value <= LARGEST_SPELLED and len(number) <= LONGEST_NUMBER
    return value < 100 or value % 100 == 0


def _address(text: str) -> str:
    return text.lower().rstrip(".,;:!?)]}>\"'»”’…").removesuffix("/")


REPEATED_CHARACTER = re.compile(r"([^\W\d_])\1{6,}|(\S)\2{11,}")
LONGEST_PHRASE = 4
"""Words of a repeated phrase."""
FEWEST_SYMBOLS, LETTER_SHARE = 4, 0.5
"""Characters of a side, and the share of letters and digits below which it is noise."""
FEWEST_SPACED, SPACED_SHARE = 6, 0.7
"""Words of a side, and the share of single letters from which on its letters are spaced."""


def repetition(pair: SentencePair, facts: CorpusFacts) -> str:  # noqa: ARG001 - as of all checks
    """Finds characters or words repeated on one side only."""
    found = [_repeated(side) for side in pair]
    if all(found) or not any(found):
        return ""
    name = "source" if found[0] else "target"
    return f'{name} repeats "{found[0] or found[1]:.40}"'


def symbols(text: str) -> str:
    """Finds text that consists mostly of neither letters nor digits."""
    if sum(map(str.isalnum, text)) >= LETTER_SHARE * len(text):
        return ""
    shown = "".join(text.split())
    n_letters = sum(map(_is_letter, shown))
    if len(shown) < FEWEST_SYMBOLS or n_letters >= LETTER_SHARE * len(shown):
        return ""
    return f"only {n_letters:,} of {len(shown):,} characters are letters or digits"


def spaced_letters(text: str) -> str:
    """Finds words whose letters are separated by spaces, in alphabets with upper case."""
    words = text.split()
    if len(words) < FEWEST_SPACED or 4 * len(words) < len(text):
        return ""
    n_single = sum(len(word) == 1 and word.lower() != word.upper() for word in words)
    if n_single < SPACED_SHARE * len(words):
        return ""
    return f"{n_single} of {len(words)} words are single letters"


def _repeated(text: str) -> str:
    """A character or phrase that is repeated several times; empty if none."""
    found = REPEATED_CHARACTER.search(text)
    if found:
        return found[0]
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


@cache
def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"


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


FEWEST_LETTERS, SCRIPT_SHARE = 4, 0.25
"""Letters of a side, and the share of them in its scripts below which the script is wrong."""
FEWEST_WORDS = 3
"""Common words of another language by which it is recognized."""
SWAPPED = "each side is in the other's language"
LAST_LATIN = "\u024f"
"""Letters up to this one are Latin, nearly all."""


def swapped(pair: SentencePair, facts: CorpusFacts) -> str:
    """Finds pairs each side of which is in the other's language, by its script or its words."""
    if facts.detector is not None and all(facts.languages):
        found = tuple(map(facts.detector.language, pair))
        is_swapped = found == facts.languages[::-1] != facts.languages
        return SWAPPED if is_swapped else ""
    scripts = facts.scripts
    if all(scripts) and scripts[0].isdisjoint(scripts[1]):
        is_swapped = all(
            _share(side, expected) < SCRIPT_SHARE <= _share(side, other)
            for side, expected, other in zip(pair, scripts, scripts[::-1], strict=True)
        )
    else:
        telling = _telling(facts)
        words = [words_of(side) for side in pair]
        wrong = [sum(map(telling[1 - n].__contains__, some)) for n, some in enumerate(words)]
        right = [sum(map(telling[n].__contains__, some)) for n, some in enumerate(words)]
        is_swapped = all(wrong) and sum(wrong) >= FEWEST_WORDS and sum(wrong) > 3 * sum(right)
    return SWAPPED if is_swapped else ""


def wrong_script(pair: SentencePair, facts: CorpusFacts) -> str:
    """Finds sides that are mostly in a script which the side should not have."""
    for place in facts.kind.texts:
        side, expected = pair[place], facts.scripts[place]
        if not expected or ("LATIN" in expected and (side.isascii() or max(side) <= LAST_LATIN)):
            continue
        letters = [letter for letter in side if letter.isalpha()]
        if len(letters) < FEWEST_LETTERS or _share(side, expected) >= SCRIPT_SHARE:
            continue
        found = Counter(map(script_of, letters)).most_common(1)[0][0]
        name, scripts = facts.kind.sides[place], " or ".join(sorted(expected))
        return f"{name} is in the script {found}, not {scripts}"
    return ""


def wrong_language(pair: SentencePair, facts: CorpusFacts) -> str:
    """Finds sides with the commonest words of another language than theirs."""
    for place in facts.kind.texts:
        own, known = facts.languages[place], facts.common_words[place]
        if facts.detector is not None:
            found = facts.detector.language(pair[place]) if own else ""
            if found not in ("", own):
                return f"{facts.kind.sides[place]} is in {found}, not {own}"
            continue
        if own not in FUNCTION_WORDS:
            continue
        other, n_words, n_own = words_of_another(words_of(pair[place]), own, known)
        if n_words >= FEWEST_WORDS and n_words > 2 * n_own:
            name = facts.kind.sides[place]
            return f"{name} has {n_words} common words of {other}, {n_own} of {own}"
    return ""


@lru_cache(maxsize=4)
def _telling(facts: CorpusFacts) -> tuple[frozenset[str], frozenset[str]]:
    """Words that tell one side of a corpus from the other: commonest of the languages, and own."""
    (one, other), (ours, theirs) = facts.languages, facts.common_words
    if one == other:
        return ours - theirs, theirs - ours
    return telling_words(one, other) | (ours - theirs), telling_words(other, one) | (theirs - ours)


def _share(text: str, scripts: frozenset[str]) -> float:
    """The share of a text's letters that are in some scripts; 1 without letters."""
    letters = [letter for letter in text if letter.isalpha()]
    return (
        sum(script_of(letter) in scripts for letter in letters) / len(letters) if letters else 1.0
    )


LONG_WORD = re.compile(r"\S{50,}")
VISIBLE = re.compile(
    "[^\\s\u00ad\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0]"
)
"""A character that is seen: no space, no mark, filler or joint without a form of its own."""
LINK = re.compile(r"://|www\.|@")


def empty(pair: SentencePair, facts: CorpusFacts) -> str:
    """Finds blank sides."""
    blank = [name for name, side in facts.kind.named(pair).items() if not VISIBLE.search(side)]
    return f"{' and '.join(blank)} blank" if blank else ""


def too_long(pair: SentencePair, facts: CorpusFacts) -> str:
    """Finds sides with more characters than the limit."""
    most = facts.limits.max_characters
    for name, side in facts.kind.texts_of(pair):
        if len(side) > most:
            return f"{name} has {len(side):,} characters, more than {most:,}"
    return ""


def unlike_lengths(pair: SentencePair, facts: CorpusFacts) -> str:
    """Finds pairs whose lengths have another ratio than those of the corpus."""
    if not facts.spread:
        return ""
    lengths = len(pair.source), len(pair.target)
    found = deviation(*lengths, facts.ratio, facts.spread)
    if abs(found) <= facts.limits.max_deviation:
        return ""
    return f"{lengths[0]:,} and {lengths[1]:,} characters: {found:+.1f} standard deviations"


def long_word(text: str) -> str:
    """Finds words of 50 characters and more in alphabets that put spaces between words."""
    if len(text) < 50:
        return ""
    for found in LONG_WORD.finditer(text):
        n_cased = sum(character.lower() != character.upper() for character in found[0])
        if 2 * n_cased > len(found[0]) and not LINK.search(found[0]):
            return f"has a word of {len(found[0]):,} characters"
    return ""
