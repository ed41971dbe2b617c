"""Messages of programs: the texts in their syntax, each of which is translated by itself.

ICU's plurals and choices have branches, other formats bars between forms. The frame around these
texts is copied. A branch is translated with a number for its "#", by which the words around it get
the form of the branch; the categories of a plural become those of the target language.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from tformer_cli.documents.placeholders import COPIED, placeholders_differ
from tformer_cli.documents.plurals import plural_samples, sample_number
from tformer_cli.documents.projection import with_all_copied
from tformer_cli.documents.segments import Segment, SegmentBuilder, Span, walked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class MessageError(ValueError):
    """A message whose syntax is not understood."""


class LanguagePair(NamedTuple):
    """The languages of a translation; empty: not known."""

    source: str = ""
    target: str = ""


UNKNOWN_PAIR = LanguagePair()


@dataclass(frozen=True, slots=True)
class Text:
    """A part of a message that is translated by itself."""

    segment: Segment
    """With spans for what the model reads instead of syntax."""
    inserts: tuple[Frame, ...] = ()
    """Written instead of these spans, by their numbers."""
    quotes: str = ""
    """Characters before which an apostrophe would begin a quotation."""
    apostrophe: str = ""
    """Written for each apostrophe; empty: itself, where it quotes nothing."""
    accelerator: str = ""
    """The mark of a key, and its letter: "&O"."""


Frame = tuple[Segment | Text, ...]
"""The copied parts of a message, and its texts."""

_COMPLEX = re.compile(r"\{\s*[^\s{},]+\s*,\s*(?:plural|selectordinal|select|choice)\s*,")
_DEEPEST, _MOST_TEXTS = 20, 1000
"""Branches in each other, and texts of a message: six categories in each other are many."""
_CATEGORIES = ("zero", "one", "two", "few", "many", "other")
_SYNTAX = re.compile(r"[{}'#|]")
_ARGUMENT = re.compile(r"\{\s*([^\s{},]+)\s*(?:,\s*(\w+)\s*)?([,}])")
_QUOTATION = re.compile(r"'((?:[^']|'')*+)'")
_SIMPLE = re.compile(r"\{\s*\w+\s*\}")
_OFFSET = re.compile(r"\s*offset:\s*\d+")
_SELECTOR = re.compile(r"\s*(=\d+|[^\s{}=]+)\s*\{")
_LIMIT = re.compile(r"\s*([+-]?(?:\d+(?:\.\d+)?|\u221e)\s*[#<\u2264])")
_PLURALS, _CHOICES = ("plural", "selectordinal"), ("select", "choice")
_CLOSE = re.compile(r"\s*\}")
_VALUE_LENGTH = 3
"""Digits of the numbers that stand for placeholders."""
_MOST_RANGES, _MOST_VALUES, _MOST_BARS = 200, 100, 20
_LONGEST, _LONGEST_LABEL = 50_000, 100
"""Characters of a message with branches, and of one with the mark of a key."""
# What is no value in a sentence
_STATEMENT = re.compile(
    r"\{[%#/:@]|\{\{[#/^!>&~]|<%(?![=-]|[\d$]*\w>)|<\?(?!=)|<!|\[[/\d]|\[\w+[=\s]|%%|%<(?!\w+>)|\\(?!\()|&|~[%&]"
)
_JOINT = re.compile(r"[/:.,×x-]?")
_CHOICE = re.compile(r"\s*(?:\{\d+\}|\[\d+,(?:\d+|\*)\])\s*")
"""The number before a form of Laravel's."""
_NUMBERED = re.compile(r"\{\d+[,}]")
_ENTITY = re.compile(r"&#?\w+;")
_ACCELERATORS = {
    # In parentheses, behind words of another script; before a word; in one with a capital: "E&xit",
    # but "R&D", "Terms&Conditions"
    mark: re.compile(
        rf" ?\({mark}(\w)\)|(?:(?<!\w)|(?<![^\W_])[A-Z][a-z]*(?={mark}[^\WA-Z]))({mark})({letter})"
    )
    for mark, letter in (("&", r"[^\W_](?!\w*[;=])"), ("_", r"[^\W_]"), ("~", r"[A-Z](?=\w)"))
}
"""Marks of keys in menus, with their letters."""
BLOCK_TAG = re.compile(
    r"</?(?:address|article|aside|blockquote|caption|center|dd|details|div|dl|dt|fieldset|figcaption"
    r"|figure|footer|form|h[1-6]|header|hr|li|main|nav|ol|p|pre|section|summary|table|tbody|td|tfoot"
    r"|th|thead|tr|ul)\b",
    re.IGNORECASE,
)
"""Tags of which both sides have texts of their own."""
_LINE_BREAK = re.compile(r"<br\b", re.IGNORECASE)
_STAND_IN, _RANGE = "\0", "\1"
"""First characters of the markup of what stands for syntax, or is replaced; no tag has them."""


def has_branches(text: str) -> bool:
    """Tests whether a text has an argument of ICU's with branches: plural, select, or choice."""
    return _COMPLEX.search(text) is not None


def divide_message(segment: Segment, languages: LanguagePair) -> Frame:
    """Divides a message; a text without syntax is one part."""
    text = segment.text
    if segment.is_message and len(blocks := _cut_blocks(segment)) > 1:
        # Not where the branches of an argument have them
        with suppress(MessageError):
            frames = [
                divide_message(block, languages) if block.text else (block,) for block in blocks
            ]
            return tuple(part for frame in frames for part in frame)
    if has_branches(text):
        if len(text) > _LONGEST:
            raise MessageError
        content, end = _Parser(text).content(0, "", 0)
        if end != len(text):
            raise MessageError
        return (_Icu(segment, languages).text(content, 0, end),)
    if not segment.is_message:
        return (Text(segment),)
    bars = _find_bars(text)
    try:
        parts = [*_divide_forms(segment, bars)]
    except MessageError:
        parts = []
    # Markup may stand around both sides of a bar, or within it
    if sum(len(part.spans) for part in parts) != len(segment.spans):
        parts = [segment]
    frame: list[Segment | Text] = []
    for number, part in enumerate(parts):
        is_bar = number % 2 == 1
        frame += (part,) if is_bar else _peel_text(_make_plain_text(part))
    return tuple(frame)


def _cut_blocks(segment: Segment) -> list[Segment]:
    """Cuts a message at tags such as those of paragraphs, which become segments without text."""
    blocks = [span for span in segment.spans if BLOCK_TAG.match(span.opening)]
    if not blocks:
        return [segment]
    around: set[int] = set()
    """Numbers of the spans that have others of these in them."""
    opened: list[int] = []
    for number, span in enumerate(segment.spans):
        del opened[span.depth :]
        opened.append(number)
        if BLOCK_TAG.match(span.opening):
            around.update(opened)
    kept = {id(segment.spans[number]) for number in around}
    cut: list[Segment] = []
    builder = SegmentBuilder(segment.context)

    def end_text() -> SegmentBuilder:
        builder.is_message = True
        built = builder.build()
        if built.text or built.spans:
            cut.extend(
                part
                for part in (Segment(built.before), built, Segment(built.after))
                if part != Segment("")
            )
        elif built.before or built.after:
            cut.append(Segment(built.before + built.after))
        return SegmentBuilder(segment.context)

    for part in walked(segment):
        if isinstance(part, str):
            builder.text(part)
            continue
        span, is_end = part
        if id(span) in kept:
            builder = end_text()
            tag = span.closing if is_end else span.opening
            cut.append(Segment("", (Span(0, 0, "void", tag),)))
        elif span.behavior == "void":
            builder.void(span.opening)
        elif span.behavior == "protected":
            builder.protected(segment.text[span.start : span.end], span.opening)
        elif is_end:
            builder.close(span.closing)
        else:
            builder.open(span.opening, span.behavior)
    end_text()
    return cut


def _divide_forms(segment: Segment, bars: Sequence[tuple[int, int]]) -> Iterator[Segment]:
    """Yields the forms of a message, and the bars between them."""
    place = 0
    for start, behind in bars:
        yield _cut_part(segment, place, start)
        yield Segment(segment.text[start:behind])
        place = behind
    yield _cut_part(segment, place, len(segment.text))


def list_texts(frame: Frame) -> Iterator[Text]:
    """Yields the texts of a message, the inner ones behind those around them."""
    for part in frame:
        if isinstance(part, Text):
            yield part
            for inner in part.inserts:
                yield from list_texts(inner)


def join_frame(frame: Frame, translated: Iterator[Segment | None]) -> Segment:
    """Joins the translations of `list_texts`; None: a text stays."""
    texts, spans, size = list[str](), list[Span](), 0
    for part in frame:
        segment = part if isinstance(part, Segment) else _fill_text(part, translated)
        texts.append(segment.text)
        spans += (replace(s, start=s.start + size, end=s.end + size) for s in segment.spans)
        size += len(segment.text)
    return Segment("".join(texts), tuple(spans))


# --- ICU MessageFormat ---


class _Token(NamedTuple):
    """Characters for which the model reads others."""

    start: int
    end: int
    literal: str = ""
    """The text of a quotation; empty: an argument."""
    is_counted: bool = False
    """True for the number that a plural counts."""


class _Branch(NamedTuple):
    """A text of an argument: SELECTOR {…}, or of a choice: LIMIT#…|."""

    start: int
    selector: tuple[int, int]
    inner: int
    end: int
    """The place of its closing brace, or bar."""
    content: _Content


class _Argument(NamedTuple):
    """An argument with branches: {NAME, KIND, …}."""

    start: int
    end: int
    name: str
    kind: str
    branches: Sequence[_Branch]


_Content = list[_Token | _Argument]


class _Parser:
    """Reads the syntax as ICU4C does: an apostrophe quotes only before syntax."""

    def __init__(self, text: str) -> None:
        self._text = text

    def content(
        self, place: int, counted: str, depth: int, ends: str = "}"
    ) -> tuple[_Content, int]:
        """Reads up to a closing brace; `counted` is the argument of the plural around it."""
        if depth > _DEEPEST:
            raise MessageError
        content: _Content = []
        while match := _SYNTAX.search(self._text, place):
            place = match.start()
            item: _Token | _Argument | None
            if match[0] in ends:
                return content, place
            if match[0] == "{":
                item, place = self._argument(place, counted, depth)
            elif match[0] == "'":
                item, place = self._quotation(place, counted)
            else:
                is_counted = bool(counted) and match[0] == "#"
                item = _Token(place, place + 1, is_counted=True) if is_counted else None
                place += 1
            if item is not None:
                content.append(item)
        return content, len(self._text)

    def _quotation(self, place: int, counted: str) -> tuple[_Token | None, int]:
        follower = self._text[place + 1 : place + 2]
        if follower == "'":
            return _Token(place, place + 2, "'"), place + 2
        if not follower or follower not in ("{}#" if counted else "{}"):
            return None, place + 1
        match = _QUOTATION.match(self._text, place)
        if match is None:
            raise MessageError
        return _Token(place, match.end(), match[1].replace("''", "'")), match.end()

    def _argument(self, start: int, counted: str, depth: int) -> tuple[_Token | _Argument, int]:
        head = _ARGUMENT.match(self._text, start)
        if head is None:
            raise MessageError
        name, kind, sign = head.groups()
        if kind in (*_PLURALS, *_CHOICES) and sign == ",":
            if kind == "choice":
                branches, end = self._forms(head.end(), depth)
            else:
                counted = name if kind in _PLURALS else counted
                branches, end = self._branches(head.end(), counted, depth)
            return _Argument(start, end, name, kind, branches), end
        place = start
        n_open = 0
        for brace in re.compile(r"[{}]").finditer(self._text, start):
            n_open += 1 if brace[0] == "{" else -1
            if n_open == 0:
                place = brace.end()
                break
        else:
            raise MessageError
        is_counted = bool(counted) and name == counted and kind in (None, "number")
        return _Token(start, place, is_counted=is_counted), place

    def _forms(self, place: int, depth: int) -> tuple[list[_Branch], int]:
        """Reads the forms of a choice, as Java has them."""
        forms: list[_Branch] = []
        while match := _LIMIT.match(self._text, place):
            content, end = self.content(match.end(), "", depth + 1, "|}")
            forms.append(_Branch(match.start(), match.span(1), match.end(), end, content))
            place = end + 1
            if self._text[end : end + 1] == "}":
                return forms, place
        raise MessageError

    def _branches(self, place: int, counted: str, depth: int) -> tuple[list[_Branch], int]:
        branches: list[_Branch] = []
        if offset := _OFFSET.match(self._text, place):
            place = offset.end()
        while match := _SELECTOR.match(self._text, place):
            content, end = self.content(match.end(), counted, depth + 1)
            if self._text[end : end + 1] != "}":
                raise MessageError
            branches.append(_Branch(match.start(), match.span(1), match.end(), end, content))
            place = end + 1
        close = _CLOSE.match(self._text, place)
        if close is None or not branches:
            raise MessageError
        return branches, close.end()


class _Icu:
    """Makes parts of a message with arguments that have branches."""

    def __init__(self, segment: Segment, languages: LanguagePair) -> None:
        self._segment, self._languages = segment, languages
        self._n_texts = 0
        self._apostrophe = "''" if "''" in segment.text else ""

    def text(
        self,
        content: _Content,
        start: int,
        end: int,
        number: str = "",
        quotes: str = "{}",
        *,
        is_form: bool = False,
    ) -> Text:
        """Makes a text of the characters up to an end; `number` is read for the counted one."""
        self._n_texts += 1
        if self._n_texts > _MOST_TEXTS:
            raise MessageError
        part = _cut_part(self._segment, start, end)
        if re.search(rf"(?<!\d){re.escape(number)}(?!\d)", part.text):
            number = ""
        draft = _Draft(part)
        arguments = [item for item in content if isinstance(item, _Argument) or not item.literal]
        # "{shown} houses": of one argument, it is the number, already formatted
        is_alone = is_form and len(arguments) == 1
        for item in content:
            raw, place = self._segment.text[item.start : item.end], item.start - start
            is_shown = True
            if isinstance(item, _Argument):
                self._check_markup(item)
                insert = self._frame(item, number, quotes)
                end_of_item = item.end - start
                is_shown = draft.show_number(place, end_of_item, insert, has_markup=True)
                is_shown = is_shown or draft.show(
                    place, end_of_item, f"{{{item.name}}}", insert, has_markup=True
                )
            elif item.literal == "'":  # written as any other apostrophe
                draft.show(place, item.end - start, "'", None)
            elif (
                item.literal or item.is_counted or (is_alone and number and _SIMPLE.fullmatch(raw))
            ):
                shown = item.literal or number or raw
                is_shown = draft.show(place, item.end - start, shown, (Segment(raw),))
            else:
                insert = (Segment(raw),)
                is_shown = draft.show_number(place, item.end - start, insert) or draft.show(
                    place, item.end - start, raw, insert
                )
            if not is_shown:
                raise MessageError
        draft.part_words()
        draft.show_values()
        return replace(draft.text(), quotes=quotes, apostrophe=self._apostrophe)

    def _check_markup(self, argument: _Argument) -> None:
        """Refuses markup that stands between branches, or begins or ends in one only."""
        start, end = argument.start, argument.end
        for span in self._segment.spans:
            is_cut = span.start < start < span.end < end or start < span.start < end < span.end
            is_between = _goes_with(span, start, end) and not any(
                branch.inner <= span.start and span.end <= branch.end
                for branch in argument.branches
            )
            if is_cut or is_between:
                raise MessageError

    def _frame(self, argument: _Argument, number: str, quotes: str) -> Frame:
        text = self._segment.text
        is_plural = argument.kind in _PLURALS
        quotes += "#" if is_plural else "#<|" if argument.kind == "choice" else ""
        frame: list[Segment | Text] = [Segment(text[argument.start : argument.branches[0].start])]
        for branch, selector in self._target_forms(argument):
            if is_plural:
                number = self._number(argument, branch, selector)
            before, behind = branch.selector
            inner = self.text(
                branch.content, branch.inner, branch.end, number, quotes, is_form=is_plural
            )
            head = text[branch.start : before] + selector + text[behind : branch.inner]
            frame += Segment(head), *_peel_text(inner), Segment(text[branch.end])
        frame.append(Segment(text[argument.branches[-1].end + 1 : argument.end]))
        return tuple(frame)

    def _selector(self, branch: _Branch) -> str:
        return self._segment.text[slice(*branch.selector)]

    def _target_forms(self, argument: _Argument) -> Iterator[tuple[_Branch, str]]:
        """Yields branches and their selectors in the target language.

        A category that it lacks is never chosen there, so it goes; one that the source lacks is
        translated from "other". Numbers ("=0") and the keywords of a choice stay.
        """
        is_ordinal = argument.kind == "selectordinal"
        selectors = [self._selector(branch) for branch in argument.branches]
        categories = (
            ()
            if argument.kind in _CHOICES or "other" not in selectors
            else tuple(plural_samples(self._languages.target, is_ordinal=is_ordinal))
        )
        for branch, selector in zip(argument.branches, selectors, strict=True):
            if selector == "other":
                yield from ((branch, name) for name in categories if name not in selectors)
            if not categories or selector in categories or selector not in _CATEGORIES:
                yield branch, selector

    def _number(self, argument: _Argument, branch: _Branch, selector: str) -> str:
        if selector.startswith("="):
            return selector[1:]
        source, target = self._languages
        own = self._selector(branch)
        is_ordinal = argument.kind == "selectordinal"
        return sample_number(source, own, target, selector, is_ordinal=is_ordinal)


def _first_characters(segment: Segment, part: Text) -> dict[int, str]:
    """Returns, by their places, with what tags and the syntax of stand-ins begin."""
    firsts = {place: "<" for s in segment.spans if s.opening for place in (s.start, s.end)}
    for span in list_stand_ins(segment):
        first = part.inserts[int(span.opening[1:])][0]
        firsts[span.start] = first.text[:1] if isinstance(first, Segment) else ""
    return firsts


def _write_apostrophes(segment: Segment, part: Text) -> Segment:
    """Writes apostrophes so that they do not quote what follows them."""
    copied = [(s.start, s.end) for s in segment.spans if s.behavior == "protected"]
    firsts = _first_characters(segment, part)
    marks = part.quotes
    is_icu = "}" in marks
    # FormatJS quotes tags, too; not where the source has an apostrophe before one
    own = _first_characters(part.segment, part)
    if is_icu and not any(
        part.segment.text[place - 1 : place] == "'" for place in own if own[place] == "<"
    ):
        marks += "<"
    ends = ("", "'") if is_icu else ()
    ranges: list[Range] = []
    for match in re.finditer("'", segment.text):
        place = match.start()
        follower = firsts.get(place + 1, segment.text[place + 1 : place + 2])
        if any(start <= place < end for start, end in copied):
            continue
        if part.apostrophe:
            ranges.append(Range(place, place + 1, Segment(part.apostrophe)))
        elif follower in ends or (follower and follower in marks):
            ranges.append(Range(place, place + 1, Segment("\u2019")))
    return replace_ranges(segment, ranges)


# --- Other messages ---


def _find_bars(text: str) -> list[tuple[int, int]]:
    """Finds the bars between forms, "a house | {n} houses", with the blanks around them."""
    if "|" not in text or "||" in text:
        return []
    # What is copied may have bars of its own
    free = COPIED[True].sub(lambda match: "x" * len(match[0]), text)
    bars = [match.span() for match in re.finditer(r"(?<!\s)\s*\|\s*", free)]
    if not bars or len(bars) > _MOST_BARS:
        return []
    places = [0, *(place for bar in bars for place in bar), len(free)]
    parts = [free[a:b] for a, b in zip(places[::2], places[1::2], strict=True)]
    bars_before = [(0, 0), *bars]
    heads = [_CHOICE.match(text, end) for _, end in bars_before]
    if all(heads):
        return [(bar[0], head.end()) for bar, head in zip(bars_before, heads, strict=True) if head]
    # "[a|b]", "(yes|no)" are no forms
    are_whole = all(part.count(a) == part.count(b) for part in parts for a, b in ("()", "[]", "<>"))
    return bars if are_whole else []


def _make_plain_text(segment: Segment) -> Text:
    """Makes a text of a message: the model reads "%" for "%%", and no mark of a key."""
    draft, text = _Draft(segment), segment.text
    draft.part_words()
    for match in COPIED[True].finditer(text):
        raw, (start, end) = match[0], match.span()
        shown = (
            raw[0] if raw in ("%%", "&&") else html.unescape(raw) if _ENTITY.fullmatch(raw) else raw
        )
        if shown != raw and shown.strip():
            # As in "don&rsquo;t"
            is_in_word = text[max(0, start - 1) : start].isalpha() and text[end : end + 1].isalpha()
            is_letter = is_in_word and shown not in "<>&"
            draft.show(start, end, shown, None if is_letter else (Segment(raw),))
    if _NUMBERED.search(text):
        for match in re.finditer("''", text):
            draft.show(*match.span(), "'", None)
    draft.show_values()
    accelerator = ""
    for mark, pattern in _ACCELERATORS.items():
        is_label = len(text) <= _LONGEST_LABEL and text.count(mark) == 1
        key = pattern.search(text) if is_label else None
        if key is not None and draft.show(*key.span(2 if key[2] else 0), "", None):
            accelerator = mark + (key[3] or key[1])
            break
    # An apostrophe quotes in Java and in ICU
    quotes = "" if "'{" in text else "{"
    apostrophe = ""
    if _NUMBERED.search(text):
        apostrophe = "''" if "''" in text else "" if "'" in text else "\u2019"
    return replace(draft.text(), accelerator=accelerator, quotes=quotes, apostrophe=apostrophe)


class _Draft:
    """Collects what the model reads instead of characters."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._ranges: list[Range] = []
        self._inserts: list[Frame] = []
        self._numbers = (str(100 + (635 + 109 * n) % 900) for n in range(_MOST_VALUES))

    def show(
        self, start: int, end: int, shown: str, insert: Frame | None, *, has_markup: bool = False
    ) -> bool:
        """Shows other characters; `insert` is written in their place, or the translation of them.

        False: markup, or what stands for others already, is in the way.
        """
        is_taken = len(self._ranges) == _MOST_RANGES or any(
            taken.start < end and start < taken.end for taken in self._ranges
        )
        if is_taken or not (has_markup or _is_free(self._segment, start, end)):
            return False
        content = Segment(shown) if insert is None else _stand_in(shown, len(self._inserts))
        self._ranges.append(Range(start, end, content))
        self._inserts += [] if insert is None else [insert]
        return True

    def part_words(self) -> None:
        """Shows blanks at the ends of lines and paragraphs, whose words would be joined."""
        text = self._segment.text
        for place in {
            place
            for span in self._segment.spans
            if _LINE_BREAK.match(span.opening) or BLOCK_TAG.match(span.opening)
            for place in (span.start, span.end)
        }:
            around = text[max(0, place - 1) : place + 1]
            if 0 < place < len(text) and not any(map(str.isspace, around)):
                self.show(place, place, " ", None)

    def show_number(self, start: int, end: int, insert: Frame, *, has_markup: bool = False) -> bool:
        """Shows a number that the text has not, which models copy better than any syntax."""
        text = self._segment.text
        is_in_number = text[max(0, start - 1) : start].isdigit() or text[end : end + 1].isdigit()
        number = next((digits for digits in self._numbers if digits not in text), None)
        return (
            number is not None
            and not is_in_number
            and self.show(start, end, number, insert, has_markup=has_markup)
        )

    def show_values(self) -> None:
        """Shows numbers for placeholders; those that nothing but marks divides have one."""
        text, values = self._segment.text, list[list[int]]()
        for match in COPIED[True].finditer(text):
            # As in [b]bold[/b]
            is_tag = match[0][0] == "[" and f"[/{match[0][1:]}" in text
            is_value = match[0][0] == "`" or (
                match.lastgroup and not is_tag and not _STATEMENT.match(match[0])
            )
            if not is_value:
                continue
            if values and _JOINT.fullmatch(text, values[-1][1], match.start()):
                values[-1][1] = match.end()
            else:
                values.append([*match.span()])
        for start, end in values:
            self.show_number(start, end, (Segment(text[start:end]),))

    def text(self) -> Text:
        ranges = sorted(self._ranges, key=lambda place: place.start)
        return Text(replace_ranges(self._segment, ranges), tuple(self._inserts))


def _place_accelerator(segment: Segment, accelerator: str) -> Segment:
    """Puts the mark of a key before its letter, at the first word that begins with it.

    Else it goes into a word, else before the first letter. A script without capitals gets it behind
    the words, in parentheses.
    """
    mark, letter = accelerator[0], accelerator[1]
    copied = [(s.start, s.end) for s in segment.spans if s.behavior == "protected"]
    places = [
        place
        for place, sign in enumerate(segment.text)
        if sign.isalnum() and not any(start <= place < end for start, end in copied)
    ]
    cased = [
        place for place in places if segment.text[place].lower() != segment.text[place].upper()
    ]
    if places and not cased:
        end = len(segment.text.rstrip(" .…:"))
        return replace_ranges(segment, [Range(end, end, Segment(f"({mark}{letter.upper()})"))])
    same = [place for place in places if segment.text[place].lower() == letter.lower()]
    first = [place for place in same if not segment.text[:place][-1:].isalnum()]
    for place in (first or same or cased)[:1]:
        return replace_ranges(segment, [Range(place, place, Segment(mark))])
    return segment


def _fill_text(part: Text, translated: Iterator[Segment | None]) -> Segment:
    """Writes the syntax of a text into its translation."""
    segment = next(translated) or part.segment
    if part.accelerator:
        segment = _place_accelerator(segment, part.accelerator)
    if part.quotes or part.apostrophe:
        segment = _write_apostrophes(segment, part)
    inserts = [join_frame(inner, translated) for inner in part.inserts]
    marks = sorted(list_stand_ins(segment), key=lambda span: span.start)
    spans = tuple(span for span in segment.spans if span not in marks)
    ranges = [Range(mark.start, mark.end, inserts[int(mark.opening[1:])]) for mark in marks]
    return replace_ranges(replace(segment, spans=spans), ranges)


def list_stand_ins(segment: Segment) -> list[Span]:
    """Returns the spans of what the model reads instead of syntax."""
    return [span for span in segment.spans if span.opening.startswith(_STAND_IN)]


def syntax_differs(part: Text, source: Segment, translation: Segment) -> bool:
    """Tests whether a translation lacks a placeholder, broke it, or has it too often."""
    ours, theirs = (_write_placeholders(part, segment) for segment in (source, translation))
    shown = {source.text[span.start : span.end] for span in list_stand_ins(source)}
    new = Counter(re.findall(r"\d+", theirs)) - Counter(re.findall(r"\d+", ours))
    return (
        any(number in shown for number in new)
        or any(text in number for number in new for text in shown if len(text) >= _VALUE_LENGTH)
        # Of a part of ICU's, all syntax has been replaced
        or any(theirs.count(mark) > ours.count(mark) for mark in part.quotes)
        or placeholders_differ(ours, theirs, is_message=source.is_message)
    )


def _write_placeholders(part: Text, segment: Segment) -> str:
    """Writes the placeholders of a text into it, and a sign for other syntax."""
    ranges = []
    for span in sorted(list_stand_ins(segment), key=lambda span: span.start):
        first, *later_parts = part.inserts[int(span.opening[1:])]
        if later_parts or isinstance(first, Text):
            first = Segment("\ufffc")
        ranges.append(Range(span.start, span.end, first))
    return replace_ranges(replace(segment, spans=()), ranges).text


def _peel_text(text: Text) -> Frame:
    """Leaves blanks and empty tags at its ends outside of a text."""
    segment = text.segment
    end = len(segment.text.rstrip())
    start = min(end, len(segment.text) - len(segment.text.lstrip()))
    spans = segment.spans
    first = next(
        (n for n, s in enumerate(spans) if s.behavior != "void" or s.start > start), len(spans)
    )
    last = len(spans)
    while last > first and (spans[last - 1].behavior, spans[last - 1].depth) == ("void", 0):
        if spans[last - 1].start < end:
            break
        last -= 1
    blanks = [segment.text[:start], segment.text[end:]]
    inner = [
        replace(s, start=max(s.start, start) - start, end=min(s.end, end) - start)
        for s in spans[first:last]
    ]
    # A blank between the text and an empty tag within others stays there
    for number in (*range(first, last), *range(last - 1, first - 1, -1)):
        span, own = spans[number], inner[number - first]
        if span.start < span.end:
            continue
        if blanks[0] and span.start < start:
            side = "opening" if span.behavior == "void" else "closing"
            inner[number - first] = replace(own, **{side: getattr(own, side) + blanks[0]})
            blanks[0] = ""
        elif blanks[1] and span.start > end:
            inner[number - first] = replace(own, opening=blanks[1] + own.opening)
            blanks[1] = ""
    behind = (replace(s, start=s.start - end, end=s.end - end) for s in spans[last:])
    return (
        Segment(blanks[0], spans[:first]),
        replace(text, segment=replace(segment, text=segment.text[start:end], spans=tuple(inner))),
        Segment(blanks[1], tuple(behind)),
    )


# --- Parts of segments ---


class Range(NamedTuple):
    """Characters of a segment, and what is written instead of them."""

    start: int
    end: int
    content: Segment


def replace_ranges(segment: Segment, ranges: Sequence[Range]) -> Segment:
    """Writes other content into ranges, which are in order and apart; spans in these go."""
    if not ranges:
        return segment
    pieces, place = list[str](), 0
    for start, end, content in ranges:
        pieces += segment.text[place:start], content.text
        place = end
    ends = [place.end for place in ranges]
    longer = (len(content.text) - (end - start) for start, end, content in ranges)
    moves = list(accumulate(longer, initial=0))
    starts = [place.start for place in ranges]

    def moved(place: int) -> int:
        return place + moves[bisect_right(ends, place)]

    def is_outside(span: Span) -> bool:
        number = bisect_right(starts, span.start) - 1
        return number < 0 or not _goes_with(span, ranges[number].start, ranges[number].end)

    kept = [span for span in segment.spans if is_outside(span)]
    places = [
        Span(start, end, "protected", f"{_RANGE}{n}") for n, (start, end, _) in enumerate(ranges)
    ]
    spans: list[Span] = []
    for span in with_all_copied(kept, places):
        if span.opening.startswith(_RANGE):
            number = int(span.opening[1:])
            first = ranges[number].start + moves[number]
            spans += (
                replace(s, start=s.start + first, end=s.end + first, depth=s.depth + span.depth)
                for s in ranges[number].content.spans
            )
        else:
            spans.append(replace(span, start=moved(span.start), end=moved(span.end)))
    return replace(segment, text="".join([*pieces, segment.text[place:]]), spans=tuple(spans))


def _goes_with(span: Span, start: int, end: int) -> bool:
    """Tests whether a span goes with characters; markup around them, or at an end, does not."""
    if span.start == span.end:
        return start < span.start < end
    return start <= span.start and span.end <= end and (start, end) != (span.start, span.end)


def _cut_part(segment: Segment, start: int, end: int) -> Segment:
    """Takes characters of a segment with the markup in them."""
    spans, depth = list[Span](), 0
    for span in segment.spans:
        if start <= span.start and span.end <= end:
            moved = replace(span, start=span.start - start, end=span.end - start)
            spans.append(replace(moved, depth=span.depth - depth))
        elif span.start < start and end < span.end:
            depth += 1
        elif start <= span.end and span.start <= end:
            raise MessageError
    return replace(segment, text=segment.text[start:end], spans=tuple(spans), before="", after="")


def _stand_in(shown: str, number: int) -> Segment:
    return Segment(shown, (Span(0, len(shown), "protected", f"{_STAND_IN}{number}"),))


def _is_free(segment: Segment, start: int, end: int) -> bool:
    """Tests whether no markup cuts characters, and nothing copies them."""
    return not any(
        start < span.start < end
        or start < span.end < end
        or (span.behavior == "protected" and span.start < end and start < span.end)
        for span in segment.spans
    )
