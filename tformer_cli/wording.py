"""Wording of messages: counts, suggestions, names; blank texts, texts that are safe to show."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

# Least similarity of a guess, by the share of letters that two words have in common.
LIKE_ENOUGH = 0.7
# Shortest prefix from which a longer name is guessed.
FEWEST_LETTERS = 2
RUNTIME = "tformer-runtime"
SPACE_LABEL = "▁"
# Unicode's categories of controls, and of separators of lines and paragraphs.
_CONTROLS = ("Cc", "Zl", "Zp")
# Marks that change the direction of the text after them, beyond their own text.
_TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

# A visible character. Invisible are those with the properties White_Space and
# Default_Ignorable_Code_Point, controls, format characters but the signs around numbers
# (Prepended_Concatenation_Mark), and three that are drawn empty: Braille's blank, Khitan's filler
# and music's null note head. Listed: Python knows no such properties, and each of its versions
# another Unicode.
_SEEN = re.compile(
    r"[^\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-"
    r"\U0001343f\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff]"
)

_names: dict[str, str] = {}
"""Names that users gave to directories of the cache; messages show these, not a hash."""


def is_blank(text: str) -> bool:
    """Returns whether a text has no visible character: no command has anything to do with it."""
    return _SEEN.search(text) is None


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """Writes a number with what it counts: "1 line", "1,234 lines", "0 lines"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def installing(extra: str) -> str:
    """Writes the command that installs an extra of the distribution that is installed."""
    from importlib.metadata import PackageNotFoundError, distribution

    name = RUNTIME  # the wheel that runs models without PyTorch; see `.ci/runtime_wheel.py`
    try:
        distribution(RUNTIME)
    except PackageNotFoundError:
        name = "tformer"
    return f"pip install '{name}[{extra}]'"


def visible(text: str, longest: int | None = None) -> str:
    """Escapes control characters, as in labels, so that none reaches a terminal."""
    # There they would color, overwrite, erase or turn the text around them. Separators of lines are
    # written out too; a tab stays. A text of more than `longest` characters is cut and gets an
    # ellipsis.
    shown = text
    if not text.isprintable():
        shown = "".join(character_label(c) if _is_control(c) else c for c in text)
    return shown if longest is None or len(shown) <= longest else shown[: longest - 1] + "…"


LONGEST_QUOTE = 200


def with_short_quotes(message: str) -> str:
    """Shortens an error from elsewhere: its long words, and its middle if it is long."""
    half = LONGEST_QUOTE // 2
    short = _LONG_WORD.sub(lambda word: f"{word[0][: LONGEST_QUOTE - 1]}…", message)
    if len(short) > 2 * LONGEST_QUOTE:  # its begin names the place, its end says what to do
        short = f"{short[:half]}…{short[1 - half :]}"
    return short


_LONG_WORD = re.compile(rf"\S{{{LONGEST_QUOTE + 1},}}")


def character_label(character: str) -> str:
    """A printable form of one character: itself, ``▁`` for a space, ``<0xE2>`` for each byte."""
    if character == " ":
        return SPACE_LABEL
    if character.isprintable() and character != SPACE_LABEL:
        return character
    escaped = character.encode("utf-8", errors="surrogateescape")
    return "".join(f"<0x{byte:02X}>" for byte in escaped)


def _is_control(character: str) -> bool:
    if character in _TURNS:
        return True
    return character != "\t" and unicodedata.category(character) in _CONTROLS


def suggestions(unknown: str, known: Iterable[str]) -> list[str]:
    """Finds at most three names that a misspelt one may have been meant for."""
    # Names that it begins come first; then those with two letters swapped (tpo: top); then those
    # that hold its words (n_layers: n_encoder_layers); else the one that is most like it. No guess
    # is better than a far one.
    plain = {name: name.lstrip("-").lower() for name in known}
    word = unknown.lstrip("-").lower()
    if len(word) >= FEWEST_LETTERS:
        begun = [name for name, text in plain.items() if text.startswith(word)]
        if begun:
            return begun[:3]
    swapped = [name for name, text in plain.items() if _are_swapped(word, text)]
    if swapped:
        return swapped[:3]
    parts = _parts(word)
    if len(parts) > 1:
        holding = [name for name, text in plain.items() if parts <= _parts(text)]
        if holding:
            return holding[:3]
    nearest = get_close_matches(word, plain.values(), n=1, cutoff=LIKE_ENOUGH)
    return [name for name, text in plain.items() if text in nearest][:1]


def did_you_mean(names: Sequence[str]) -> str:
    """Writes guesses as a question: "did you mean a, b or c?"; empty if there are none."""
    if not names:
        return ""
    *others, last = names
    before = f"{', '.join(others)} or " if others else ""
    return f"did you mean {before}{last}?"


def _are_swapped(word: str, other: str) -> bool:
    """Returns whether two words differ in two neighboring letters that changed places."""
    differing = [at for at, pair in enumerate(zip(word, other, strict=False)) if pair[0] != pair[1]]
    if len(word) != len(other) or len(differing) != 2:
        return False
    first, second = differing
    return second == first + 1 and word[first : second + 1] == other[first : second + 1][::-1]


def _parts(word: str) -> set[str]:
    return set(re.split(r"[-_.]", word))


def remember_name(directory: Path, name: str) -> None:
    """Remembers by which name this process was asked for a directory of the cache."""
    _names[str(directory)] = name


def given_name(directory: Path) -> str:
    """Returns by which name this process was asked for a directory; empty: by its own."""
    return _names.get(str(directory), "")


def as_named(text: str) -> str:
    """Returns a text with the names that users gave in the place of directories of the cache."""
    for directory, name in list(_names.items()):
        # Paths of files inside stay: a damaged one is found by its own
        before = re.compile(rf"{re.escape(directory)}(?![/\\])")
        text = name.join(before.split(text))
    return text
