"""Phrases a translation must hold and phrases it must not hold; `constrained_search` obeys them.

What counts is the text. A phrase is there where it stands as whole words: required "cat" is not met
by "category", and banned "cat" does not forbid it. `unsatisfied` names what a text lacks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tformer_cli.errors import DataError
from tformer_cli.wording import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class LineConstraints:
    """Constraints on a line's translation."""

    target_prefix: str = ""
    """Text the translation begins with; of a line translated in parts, the first part's."""
    required: tuple[str, ...] = ()
    """Phrases it holds as whole words; see `required_of_parts`."""
    banned: tuple[str, ...] = ()
    """Phrases it does not hold."""
    called_by: tuple[tuple[str, str], ...] = ()
    """Required phrases of a glossary, each with a phrase of the source that calls for it."""


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


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """Required and banned phrases of one sentence's translation."""

    required: tuple[tuple[int, ...], ...]
    """Phrases in token ids; all must be said."""
    banned: tuple[str, ...]
    """Phrases that must not be said."""
    token_bytes: Sequence[bytes]
    """(V) the bytes of each token's text, a leading space included; none for special tokens."""
    whole_prefix: str = ""
    """Text that the translation begins with and whose last word must not go on."""

    @cached_property
    def finished_ban(self) -> re.Pattern[str] | None:
        """Finds a banned phrase that is known to be whole words, because something follows it."""
        return self._any_of(r"(?=\W)")

    @cached_property
    def ban(self) -> re.Pattern[str] | None:
        """Finds a banned phrase in a text that has ended."""
        return self._any_of(r"(?!\w)")

    def _any_of(self, after: str) -> re.Pattern[str] | None:
        parts = [_pattern(phrase, after) for phrase in self.banned]
        if self.whole_prefix:
            parts.append(rf"\A\s*{re.escape(self.whole_prefix)}(?=\S)")
        return re.compile("|".join(parts)) if parts else None


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
        if len(cells) not in (2, 3) or not cells[1] or cells[2:] not in ([], [""], ["ban"]):
            raise DataError(
                f"{name}, line {number}: is not a glossary entry; write source TAB target, "
                "and TAB ban to forbid it"
            )
        terms.append(Term(cells[0], cells[1], cells[2:] == ["ban"]))
    return terms


def with_terms(demands: LineConstraints, line: str, terms: Sequence[Term]) -> LineConstraints:
    """Adds what a glossary says about a line; what is demanded twice is demanded once."""
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


def required_of_parts(demands: LineConstraints, parts: Sequence[str]) -> list[tuple[str, ...]]:
    """Gives the required phrases of a line to the parts that it is translated in.

    A glossary's phrase belongs to the parts that hold its source, any other to the first part that
    holds the phrase itself, as names and numbers may; what no part calls for, to the first part.
    """
    if len(parts) < 2 or not demands.required:
        return [demands.required] * len(parts)
    found: list[list[str]] = [[] for _ in parts]
    for phrase in demands.required:
        sources = [source for target, source in demands.called_by if target == phrase]
        called = [
            wanted
            for part, wanted in zip(parts, found, strict=True)
            if any(holds(part, source) for source in sources or [phrase])
        ]
        # A glossary's phrase is due wherever its source stands, any other once
        for wanted in (called if sources else called[:1]) or found[:1]:
            wanted.append(phrase)
    return list(map(tuple, found))


def holds(text: str, phrase: str) -> bool:
    """Returns whether a phrase stands in a text as whole words."""
    return re.search(_pattern(phrase, r"(?!\w)"), text) is not None


def unsatisfied(text: str, required: Sequence[str], banned: Sequence[str]) -> list[str]:
    """Names the required phrases a text lacks and the banned ones it holds."""
    return [phrase for phrase in required if not holds(text, phrase)] + [
        phrase for phrase in banned if holds(text, phrase)
    ]


def _phrases(record: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    phrases = [] if record.get(key) is None else record[key]
    is_list = isinstance(phrases, list)
    if not is_list or not all(isinstance(text, str) and not is_blank(text) for text in phrases):
        raise DataError(f'{where}: "{key}" is not a list of texts; write a list of strings')
    return tuple(text.strip() for text in phrases)


def _pattern(phrase: str, after: str) -> str:
    # A phrase that begins or ends in a mark has no word boundary there
    before = r"(?<!\w)" if re.match(r"\w", phrase) else ""
    return before + re.escape(phrase) + (after if re.search(r"\w\Z", phrase) else "")
