"""Phrases a translation must hold and phrases it must not hold; `constrained_search` obeys them.

What counts is the text. A phrase is there where it stands as whole words: required "cat" is not met
by "category", and banned "cat" does not forbid it. `unsatisfied_phrases` names what a text lacks.
"""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tformer_cli.errors import DataError
from tformer_cli.settings import dataclass
from tformer_cli.text.tokenizer import plain
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

LONGEST_PIECE = 64
"""Bytes of the longest piece that is tried, in addition to the tokenizer's own spelling."""
UNREACHABLE = 1 << 30
"""Tokens to the end of a phrase from a place where none leads on."""


@dataclass(frozen=True, slots=True)
class LineConstraints:
    """Constraints on a line's translation."""

    target_prefix: str = ""
    """Text the translation begins with; of a line translated in parts, the first part's."""
    required: tuple[str, ...] = ()
    """Phrases it holds as whole words; see `callers`."""
    banned: tuple[str, ...] = ()
    """Phrases it does not hold."""
    called_by: tuple[tuple[str, str], ...] = ()
    """Required phrases of a glossary, each with a phrase of the source that calls for it."""

    def __post_init__(self) -> None:
        for name in ("required", "banned"):
            object.__setattr__(self, name, tuple(phrase.strip() for phrase in getattr(self, name)))

    def compose(self) -> LineConstraints:
        """The same with its letters and marks composed (NFC), as many tokenizers write them."""
        compose = partial(unicodedata.normalize, "NFC")
        return LineConstraints(
            compose(self.target_prefix),
            tuple(map(compose, self.required)),
            tuple(map(compose, self.banned)),
            tuple((compose(target), source) for target, source in self.called_by),
        )


NO_CONSTRAINTS = LineConstraints()


def constraints_of(record: Mapping[str, Any], where: str) -> LineConstraints:
    """Reads the demands of a JSONL object: "target_prefix", a text; "required", "banned", lists."""
    prefix = record.get("target_prefix")
    prefix = "" if prefix is None else prefix  # as tables write what is absent
    if not isinstance(prefix, str):
        raise DataError(f'{where}: "target_prefix" is not text; write a string')
    return LineConstraints(
        prefix, _phrases(record, "required", where), _phrases(record, "banned", where)
    )


class Phrase:
    """A required phrase as the tokens that may write it, whatever comes before them.

    Place k comes after k bytes of the phrase with a space in front: at place 0 nothing of it is
    written, at place 1 it may begin without a space.
    """

    def __init__(
        self, tokens: Sequence[int], token_bytes: Sequence[bytes], ids: Mapping[bytes, int]
    ) -> None:
        """Takes the tokenizer's own spelling, the bytes of all tokens, and the id of each text."""
        written = b"".join([token_bytes[token] for token in tokens])
        self.text = text_of(tokens, token_bytes)
        self._bytes = f" {self.text}".encode()
        end = len(self._bytes)
        self._n_left = [0] * (end + 1)
        self._next: list[set[int]] = [set() for _ in range(end + 1)]
        for place in reversed(range(end)):
            stops = range(place + 1, min(end, place + LONGEST_PIECE) + 1)
            parts = [(stop, self._bytes[place:stop]) for stop in stops]
            # In some tokenizers, words hold the space after them
            parts.append((end, self._bytes[place:] + b" "))
            steps = [(self._n_left[stop], ids[part]) for stop, part in parts if part in ids]
            least = min((n_left for n_left, _ in steps), default=UNREACHABLE)
            self._n_left[place] = 1 + least
            self._next[place] = {token for n_left, token in steps if n_left == least}
        # The model has learned the tokenizer's own spelling, even where another is shorter
        place = end - len(written.rstrip())
        for n_written, token in enumerate(tokens):
            if 0 <= place < end:
                self._n_left[place] = len(tokens) - n_written
                self._next[place].add(token)
            place += len(token_bytes[token])
        self._most = len(tokens)
        self._begins_with_space = token_bytes[tokens[0]] == b" "
        self._places: dict[int, list[int]] = {}
        for place in range(end, 1, -1):
            self._places.setdefault(self._bytes[place - 1], []).append(place)

    @property
    def tokens(self) -> set[int]:
        """The tokens that may write it."""
        return set().union(*self._next)

    def progress(self, text: bytes) -> tuple[int, set[int]]:
        """Returns how many tokens a text lacks, and the next ones."""
        last = last_character(text)
        place = next(filter(partial(self._is_at, text), self._places.get(text[-1], ())), 0)
        # A space is a beginning only where it is a token of its own
        if not place and last == " " and self._begins_with_space:
            place = 1
        next_ones = self._next[place] | self._next[0]
        if not joins(last, self.text[0]):
            next_ones |= self._next[1]
        return min(self._n_left[place] if place else self._most, self._most), next_ones

    def _is_at(self, text: bytes, place: int) -> bool:
        return text.endswith(self._bytes[1:place]) and not joins(
            last_character(text[: 1 - place]), self.text[0]
        )


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """Required and banned phrases of one sentence's translation."""

    required: tuple[tuple[int, ...], ...]
    """Required phrases, as token ids."""
    banned: tuple[str, ...]
    """Banned phrases."""
    token_bytes: Sequence[bytes]
    """(V) the bytes of each token's text, a leading space included; none for special tokens."""
    whole_prefix: str = ""
    """Text that the translation begins with and whose last word must not go on."""
    unwritten: tuple[str, ...] = ()
    """Required phrases that no tokens write; no search looks for them, but it may have them."""

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The required phrases in tokens, as they are written."""
        return tuple(text_of(phrase, self.token_bytes) for phrase in self.required)

    @cached_property
    def phrases(self) -> list[Phrase]:
        """The required phrases; a phrase inside another one is written with it."""
        by_text = dict(zip(self.texts, self.required, strict=True))
        # The last of several tokens of the same bytes: those of single bytes come first
        ids = {text: token for token, text in enumerate(self.token_bytes) if text}
        return [
            Phrase(tokens, self.token_bytes, ids)
            for text, tokens in by_text.items()
            if not any(holds(other, text) for other in by_text if other != text)
        ]

    @property
    def tokens(self) -> set[int]:
        """The tokens that may write required phrases."""
        return set().union(*(phrase.tokens for phrase in self.phrases))

    def n_broken(self, text: str) -> int:
        """Returns how many demands a whole text breaks."""
        phrases = unsatisfied_phrases(text, (*self.texts, *self.unwritten), self.banned)
        return len(phrases) + self.cuts_prefix(text)

    def cuts_prefix(self, text: str) -> bool:
        """Returns whether the last word of `whole_prefix` goes on in a text."""
        whole = text.lstrip()
        behind = whole.removeprefix(self.whole_prefix)
        return bool(behind.lstrip()) and len(behind) < len(whole) and not behind[0].isspace()


class Term(NamedTuple):
    """An entry of a glossary."""

    source: str
    """The phrase that calls for it, as whole words of a line; empty: every line but blank ones."""
    target: str
    """Phrase that the translation must hold, or must not."""
    is_banned: bool


def read_glossary(lines: Iterable[str], name: str) -> list[Term]:
    """Reads a glossary: ``source TAB target`` a line, and ``TAB ban`` after it to forbid."""
    terms = []
    for number, line in enumerate(lines, 1):
        if is_blank(line):
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) not in (2, 3) or is_blank(cells[1]) or cells[2:] not in ([], [""], ["ban"]):
            raise DataError(
                f"{name}, line {number}: is not a glossary entry; write source TAB target, or "
                "source TAB target TAB ban to forbid it"
            )
        terms.append(Term(plain(cells[0]), cells[1], cells[2:] == ["ban"]))
    return terms


def with_terms(demands: LineConstraints, line: str, terms: Sequence[Term]) -> LineConstraints:
    """Adds a glossary's demands on a line, without duplicates."""
    line = plain(line)
    called = [
        term
        for term in terms
        # A substring test first: it spares most terms the regular expression
        if (term.source in line and holds(line, term.source) if term.source else not is_blank(line))
    ]
    if not called:
        return demands
    required = [*demands.required, *(term.target for term in called if not term.is_banned)]
    banned = [*demands.banned, *(term.target for term in called if term.is_banned)]
    return replace(
        demands,
        required=tuple(dict.fromkeys(required)),
        banned=tuple(dict.fromkeys(banned)),
        called_by=tuple((term.target, term.source) for term in called if term.source),
    )


def callers(demands: LineConstraints, phrase: str, parts: Sequence[str]) -> list[int]:
    """Finds the parts of a line that a required phrase belongs to, if any call for it.

    For a glossary's phrase these are the parts that hold its source, for any other the first part
    that holds the phrase itself, as names and numbers may.
    """
    sources = [source for target, source in demands.called_by if target == phrase]
    called = [
        number
        for number, part in enumerate(map(plain, parts))
        if any(holds(part, source) for source in sources or [phrase])
    ]
    return called if sources else called[:1]


def holds(text: str, phrase: str) -> bool:
    """Returns whether a phrase occurs in a text as whole words."""
    return any(True for _ in ends_of(text, phrase))


def ends_of(text: str, phrase: str) -> Iterator[int]:
    """Yields the ends of a phrase in a text where it stands as whole words."""
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        is_cut = joins(text[:start][-1:], phrase[:1]) or joins(phrase[-1:], text[end : end + 1])
        if not is_cut:
            yield end
        start = text.find(phrase, start + 1)


# Scripts without spaces between words, by the names of their characters: ideographs, Hiragana, and
# what has the line-breaking class SA (Unicode Standard Annexes 29, section 4, and 14)
_UNSPACED = (
    *("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "IDEOGRAPHIC", "HIRAGANA", "HENTAIGANA"),
    *(
        "THAI",
        "LAO",
        "KHMER",
        "MYANMAR",
        "TAI ",
        "NEW TAI LUE",
        "AHOM",
        "TANGUT",
        "NUSHU",
        "KHITAN",
    ),
)


def joins(left: str, right: str) -> bool:
    """Returns whether two characters that stand side by side belong to one word."""
    if not (in_word(left) and in_word(right)):
        return False
    # A mark belongs to the character before it, in any script
    return _is_mark(right) or not (_is_unspaced(left) or _is_unspaced(right))


def in_word(character: str) -> bool:
    """Returns whether it is a letter, a digit, an underscore or a mark (of a vowel, say)."""
    return character.isalnum() or character == "_" or _is_mark(character)


def _is_mark(character: str) -> bool:
    return bool(character) and unicodedata.category(character).startswith("M")


@lru_cache(maxsize=4096)
def _is_unspaced(character: str) -> bool:
    is_digit = unicodedata.category(character) in ("Nd", "No")
    return not is_digit and unicodedata.name(character, "").startswith(_UNSPACED)


def text_of(tokens: Iterable[int], token_bytes: Sequence[bytes]) -> str:
    """Joins tokens to a text, without spaces around it."""
    return b"".join([token_bytes[token] for token in tokens]).decode("utf-8", "replace").strip()


def last_character(text: bytes) -> str:
    return text[-4:].decode("utf-8", "replace")[-1:]


def unsatisfied_phrases(text: str, required: Sequence[str], banned: Sequence[str]) -> list[str]:
    """Names the required phrases a text lacks and the banned ones it holds."""
    return [phrase for phrase in required if not holds(text, phrase)] + [
        phrase for phrase in banned if holds(text, phrase)
    ]


def _phrases(record: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    phrases = [] if record.get(key) is None else record[key]
    is_list = isinstance(phrases, list)
    if not is_list or not all(isinstance(text, str) and not is_blank(text) for text in phrases):
        raise DataError(
            f'{where}: "{key}" is not a list of phrases; write strings with visible text'
        )
    return tuple(phrases)
