"""Subtitles, .srt and .vtt: the text of cues changes, and times, numbers and notes stay.

A sentence often runs over several cues. Such cues are one segment, in which a void span stands
between two cues; where it stands in the translation, the text is cut again.
"""

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

from tformer_cli.documents.segments import (
    Behavior,
    Document,
    Encoding,
    ReadSettings,
    Segment,
    SegmentBuilder,
    Span,
    check_parts,
    decoded,
    partners,
    rendered,
    unescaped,
)
from tformer_cli.documents.xml_text import Piece, escape_like, peeled
from tformer_cli.errors import DataError
from tformer_cli.wording import is_blank

# Files that were joined have a byte order mark in their middle
_SPACE = r"[ \t\ufeff]"
_TIME = r"(?:(\d+):)?(\d+):(\d+)(?:[,.:](\d+))?"
_TIMING = re.compile(
    rf"(?:^|(?<=\r)){_SPACE}*{_TIME}[ \t]*-->[ \t]*{_TIME}[^\r\n]*(?:\r\n?|\n|\Z)", re.MULTILINE
)
_DAMAGED_TIMING = re.compile(
    rf"(?:^|(?<=\r)){_SPACE}*\d+:\d+[\d:,. \t]*(?:[-=\u2013\u2014]*>|\u2192)[ \t]*\d+:\d+",
    re.MULTILINE,
)
_LABEL = re.compile(r"(WEBVTT(?:[^\n]*\n(?!\s*\n))*?Language:[ \t]*)[^\s]+")
"""The header of a .vtt file up to its language."""
_BLANK_LINE = re.compile(rf"(?:\r\n?+|\n){_SPACE}*(?:\r\n?|\n)|\A{_SPACE}*(?:\r\n?|\n)")
_BLANKS = re.compile(r"[\s\ufeff]++(\d++[ \t]*+(?=[\r\n]|\Z))?")
"""Blanks, and a number behind them that has a line for itself."""
_TWO_LINE_ENDS = re.compile(rf"(?:\r\n?+|\n){_SPACE}*(?:\r\n?|\n)")
_NUMBER_LINE = re.compile(rf"(?:\A|[\r\n]){_SPACE}*\d+\s*\Z")
_TAG = re.compile(
    r"<rt\b[^<>]*>[^<>\r\n]*(?:</rt\s*>)?|<(/?)([a-zA-Z]++)[^<>]*>|<\d[\d:.]*>"
    r"|\{(?:\\|[a-zA-Z]:)[^{}\r\n]*\}|\ufeff"
)
"""Tags of HTML and of karaoke, codes of SubStation Alpha and MicroDVD. The reading of a ruby text
is none of the sentence's words."""
_LINE = re.compile(r"[^\r\n]+")
_LEAD = r"\s*+(?:(?:<[^>]*>|\{\\[^}]*\})\s*+)*+"
_DASH = re.compile(_LEAD + r"[-\u2010-\u2015]")
_NAME = re.compile(
    _LEAD + r"([^\W\d_][\w .'\u2019#&-]{0,30}?)(?: ?\([^()]{1,30}\))?[:\uff1a](?=\s|<|(?<=\uff1a))"
)
_TURN = re.compile(r"(?:[-\u2010-\u2015]|>>+|&gt;&gt;)\s*(?=\S|\Z)")
_TURN_AT_END = re.compile(r"(?:[-\u2010-\u2015]|>>+|&gt;&gt;)\s*\Z")
_DATA = re.compile(r"\S+#xywh=\S+")
"""A part of a picture, as players show it for a time."""
_VOICE = re.compile(r"\s*+(?:<v[\s.>]|>>)")
_REMARK = re.compile(_LEAD + r"(?:\[[^\[\]]{1,30}\]|\([^()]{1,30}\))\s*+(?=\S)")
_SIGN = re.compile(
    _LEAD
    + r"(?:\[[^\[\]]*\]|\([^()]*\)|[\u266a\u266b\u00b6].*[\u266a\u266b\u00b6]|#\s.*\s#)"
    + r"\s*+(?:<[^>]*>\s*+)*+"
)
"""Lines without speech: sounds in brackets, songs."""
_SONG = re.compile(_LEAD + r"[\u266a\u266b\u00b6]")
_SENTENCE_END = re.compile(
    r"""[.!?:;\u2026\u3002\uff01\uff1f\u266a)\]"'\u201d\u2019\u00bb\u2014-]\s*$"""
)
_WIDTH = 42
"""Characters of a line, as publishers of subtitles ask for."""
_LONGEST_PAUSE = 2.0
_MOST_CUES = 6
_MOST_CHARACTERS = 300
_PUNCTUATED = 0.25
"""Share of cues that end a sentence, below which nobody can tell where sentences end."""


@dataclass(slots=True)
class _Cue:
    """The text of a cue, or of one speaker in it, without the tags around all of it."""

    start: int
    end: int
    begins: float
    ends: float
    pieces: list[Piece]
    around: tuple[str, str]
    is_speech: bool
    """One line of several, each of another speaker."""
    is_turn: bool
    """It begins with a mark of another speaker."""

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def read_srt(data: bytes, settings: ReadSettings) -> Document:
    return _read(data, settings, is_vtt=False)


def read_vtt(data: bytes, settings: ReadSettings) -> Document:
    return _read(data, settings, is_vtt=True)


def _read(data: bytes, settings: ReadSettings, *, is_vtt: bool) -> Document:
    text, encoding = decoded(data, settings)
    if is_vtt and not text.startswith("WEBVTT"):
        raise DataError(f"{settings.name}: does not begin with WEBVTT; name .srt files .srt")
    if not (is_vtt or is_blank(text) or _TIMING.search(text)):
        raise DataError(
            f"{settings.name}: has no times (00:00:01,000 --> 00:00:02,000); it is no .srt file"
        )
    cues: list[_Cue] = []
    for cue in _cues(text, is_vtt=is_vtt):
        cues.append(cue)
        check_parts(len(cues), a_segment=_MOST_CUES)
    groups = list(_groups(cues))
    return SubtitleDocument(text, encoding, groups, settings.target_language, is_vtt=is_vtt)


def _is_data(content: str) -> bool:
    """Returns whether a cue is for a program: JSON, or the place of a picture."""
    content = content.strip()
    if content[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            json.loads(content)
            return True
    return _DATA.fullmatch(content) is not None


def _seconds(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> float:
    # No integers: a damaged time may have thousands of digits
    return float(hours or 0) * 3600 + float(minutes) * 60 + float(f"{seconds}.{fraction or 0}")


def _cues(text: str, *, is_vtt: bool) -> Iterator[_Cue]:
    for timing, following in pairwise(chain(_TIMING.finditer(text), (None,))):
        if timing is None:
            return
        limit = len(text) if following is None else following.start()
        start, content = timing.end(), text[timing.end() : limit]
        if is_vtt and (blank := _BLANK_LINE.search(content)):
            content = content[: blank.start()]
        elif not is_vtt and (number := _next_number(content)) is not None:
            # A blank line alone ends nothing: many files have them in cues
            content = content[:number]
        elif not is_vtt and limit < len(text):
            content = _NUMBER_LINE.sub("", content)
        lines = [(start + line.start(), start + line.end()) for line in _LINE.finditer(content)]
        lines = [(first, last) for first, last in lines if not is_blank(text[first:last])]
        if not lines or (is_vtt and _is_data(content)):
            continue
        places, speech = _places(text, lines)
        times = _seconds(*timing.groups()[:4]), _seconds(*timing.groups()[4:])
        for place in places:
            pieces = list(_pieces(text, *place, is_vtt=is_vtt))
            if all(is_blank(piece.text) for piece in pieces):
                continue
            first, last = peeled(pieces)
            core = pieces[first:last]
            turn = _TURN.match(text, core[0].start, core[0].end) if core[0].kind == "text" else None
            if turn and len(core) > (turn.end() == core[0].end):
                # What only says that another person speaks is none of the words
                core[0] = _text(text, turn.end(), core[0].end, is_vtt=is_vtt)
                first, last = peeled(core)
                core = core[first:last]
            start, end = core[0].start, core[-1].end
            around = text[place[0] : start], text[end : place[1]]
            yield _Cue(start, end, *times, core, around, is_speech=speech, is_turn=bool(turn))


def _places(text: str, lines: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], bool]:
    """Parts the lines of a cue where another person speaks, or where a sound or a song stands.

    Also returns whether there are several speakers.
    """
    marks = [_mark(text, *line) for line in lines]
    n_speakers = Counter(marks)
    places = [lines[0]]
    is_speech = False
    for number in range(1, len(lines)):
        mark, before = marks[number], marks[number - 1]
        line = lines[number]
        # A dash may also stand in a sentence, and a word before a colon
        is_new = mark == "name" or (
            mark in ("dash", "short name", "remark")
            and (n_speakers[mark] > 1 or _SENTENCE_END.search(text[slice(*lines[number - 1])]))
        )
        is_speech |= bool(is_new)
        if is_new or "sign" in (mark, before) or mark == "song":
            places.append(line)
        else:
            places[-1] = places[-1][0], line[1]
    return places, is_speech


def _mark(text: str, start: int, end: int) -> str:
    """Names what a line begins with."""
    if _SIGN.fullmatch(text, start, end):
        return "sign"
    if _VOICE.match(text, start, end):
        return "name"
    if match := _NAME.match(text, start, end):
        name = match[1]
        if name.isupper():
            return "name"
        # In small letters it may also be words before a colon
        if len(name.split()) <= 3 and all(word[0].lower() != word[0] for word in name.split()):
            return "short name"
        if name.upper() == name.lower():  # of a script without capitals
            return "short name"
    marks = (("dash", _DASH), ("remark", _REMARK), ("song", _SONG))
    return next((name for name, pattern in marks if pattern.match(text, start, end)), "")


def _next_number(content: str) -> int | None:
    """Finds the end of the text before a blank line and the number of another cue."""
    # All blanks are passed at once: a search from each of many would take long
    for match in _BLANKS.finditer(content):
        if match[1] and (blank := _TWO_LINE_ENDS.search(content, match.start(), match.start(1))):
            return blank.start()
    return None


def _pieces(text: str, start: int, end: int, *, is_vtt: bool) -> Iterator[Piece]:
    place = start
    tags = list(_TAG.finditer(text, start, end))
    kinds = partners(tags)
    for number, tag in enumerate(tags):
        if tag.start() > place:
            yield _text(text, place, tag.start(), is_vtt=is_vtt)
        kind = kinds.get(number, "void")
        behavior: Behavior = "once" if (tag[2] or "").lower() == "ruby" else "repeat"
        yield Piece(kind, tag[0], tag.start(), tag.end(), behavior=behavior)  # type: ignore[arg-type]
        place = tag.end()
    if end > place:
        yield _text(text, place, end, is_vtt=is_vtt)


def _text(text: str, start: int, end: int, *, is_vtt: bool) -> Piece:
    raw = text[start:end]
    return Piece("text", raw, start, end, unescaped(raw) if is_vtt else raw)


def _groups(cues: Sequence[_Cue]) -> Iterator[list[_Cue]]:
    """Joins cues over which a sentence runs."""
    ended = [bool(_SENTENCE_END.search(cue.text)) for cue in cues]
    is_punctuated = sum(ended) >= _PUNCTUATED * len(cues)
    group: list[_Cue] = []
    for cue, before in zip(cues, [True, *ended], strict=False):
        goes_on = (
            *(group and is_punctuated and not before, len(group) < _MOST_CUES),
            # other tags around it: another voice, or a sign in the picture
            group and not (cue.is_speech or cue.is_turn or group[-1].is_speech),
            group and _tags(cue) == _tags(group[-1]),
            group and -0.1 < cue.begins - group[-1].ends < _LONGEST_PAUSE,
            sum(len(earlier.text) for earlier in group) + len(cue.text) < _MOST_CHARACTERS,
            not re.match(r"[\u266a\[(\u2010-\u2015-]", cue.text),
        )
        if group and not all(goes_on):
            yield group
            group = []
        group.append(cue)
    if group:
        yield group


def _tags(cue: _Cue) -> tuple[str, str]:
    before, behind = cue.around
    return (before if not cue.is_turn else _TURN_AT_END.sub("", before)), behind


@dataclass(slots=True)
class _Group:
    """Cues that are one segment."""

    cues: list[_Cue]
    segment: Segment
    cuts: list[str] = field(default_factory=list)
    """Text between two cues: the opening of a void span."""


class SubtitleDocument:
    """Subtitles, with a segment for each sentence or cue."""

    def __init__(
        self,
        text: str,
        encoding: Encoding,
        groups: Sequence[Sequence[_Cue]],
        language: str = "",
        *,
        is_vtt: bool,
    ) -> None:
        self.skipped: Counter[str] = Counter()
        self._text = text
        self._encoding = encoding
        self._is_vtt = is_vtt
        self._label = _LABEL.match(text) if is_vtt and language else None
        self._language = language
        self._line_end = next((end for end in ("\r\n", "\n", "\r") if end in text), "\n")
        n_read, n_like = (sum(1 for _ in p.finditer(text)) for p in (_TIMING, _DAMAGED_TIMING))
        if n_like > n_read:
            self.skipped["cue with damaged times"] = n_like - n_read
        numbers = {id(cue): number for number, cue in enumerate((c for g in groups for c in g), 1)}
        self._groups = [
            self._group(list(group), f"cue {numbers[id(group[0])]}") for group in groups
        ]

    def _group(self, cues: list[_Cue], context: str) -> _Group:
        builder = SegmentBuilder(context, joins_blanks=True)
        cuts: list[str] = []
        for number, cue in enumerate(cues):
            if number:
                cuts.append(self._text[cues[number - 1].end : cue.start])
                builder.text(" ")
                builder.void(cuts[-1])
            for piece in cue.pieces:
                if piece.kind == "text":
                    builder.text(piece.text)
                elif piece.kind == "open":
                    builder.open(piece.raw, piece.behavior)
                elif piece.kind == "close":
                    builder.close(piece.raw)
                else:
                    builder.void(piece.raw)
        return _Group(cues, builder.build(), cuts)

    @property
    def segments(self) -> list[Segment]:
        return [group.segment for group in self._groups]

    def write(self, translated: Sequence[Segment | None]) -> bytes:
        written: list[str] = []
        place = 0
        if self._label and any(segment is not None for segment in translated):
            written += self._label[1], self._language
            place = self._label.end()
        for group, new in zip(self._groups, translated, strict=True):
            own = group.segment
            if new is None or (new.text, new.spans) == (own.text, own.spans):
                continue
            for cue, part in zip(group.cues, _cut(group, new), strict=True):
                written += self._text[place : cue.start], self._cue(cue, part)
                place = cue.end
        written.append(self._text[place:])
        return self._encoding.written("".join(written))

    def _cue(self, cue: _Cue, part: Segment) -> str:
        lines = self._text[cue.start : cue.end].splitlines()
        width = max(_WIDTH, *(len(_TAG.sub("", line)) for line in lines))
        text = _wrapped(part.text, width)
        escape: Callable[[str], str] = str
        if self._is_vtt:
            escape = escape_like(self._text[cue.start : cue.end])
        return rendered(replace(part, text=text), escape).replace("\n", self._line_end)


def _cut(group: _Group, translation: Segment) -> list[Segment]:
    """Cuts a translation in the texts of its cues."""
    text, number = translation.text, len(group.cuts)
    cuts = sorted(span.start for span in translation.spans if span.opening in group.cuts)[:number]
    places = [0, *(_at_word(text, place) for place in cuts), len(text)]
    if len(cuts) < number or any(is_blank(text[a:b]) for a, b in pairwise(places)):
        # The alignment is of no use: by the share of characters that each cue had
        sizes = [len(cue.text) for cue in group.cues]
        shares = [sum(sizes[:end]) / sum(sizes) for end in range(1, number + 1)]
        places = [0, *(_at_word(text, round(share * len(text))) for share in shares), len(text)]
    marks = [span for span in translation.spans if span.opening not in group.cuts]
    return [
        _clipped(text, marks, *place, is_last=place[1] == len(text)) for place in pairwise(places)
    ]


def _at_word(text: str, place: int) -> int:
    """Moves a place to the nearest beginning of a word; a text without blanks has no better one."""
    starts = [blank.end() for blank in re.finditer(r"\s+(?=\S)", text)]
    return min(starts, key=lambda start: abs(start - place), default=place)


def _clipped(text: str, spans: Sequence[Span], start: int, end: int, *, is_last: bool) -> Segment:
    """Cuts a part out of a text, with blanks and spans that it has."""
    stripped = text[start:end].strip()
    first = start + len(text[start:end]) - len(text[start:end].lstrip())
    kept = []
    for span in spans:
        a, b = max(span.start, start), min(span.end, end)
        is_void = span.start == span.end
        if (start <= span.start < end or (is_last and span.start == end)) if is_void else a < b:
            size = len(stripped)
            moved = min(max(a - first, 0), size), min(max(b - first, 0), size)
            kept.append(replace(span, start=moved[0], end=moved[1]))
    return Segment(stripped, tuple(kept))


def _wrapped(text: str, width: int) -> str:
    """Puts line ends in place of spaces so that lines fit and are about equally long."""
    count = -(-len(text) // width)
    characters = list(text)
    spaces = [place for place, character in enumerate(text) if character == " "]
    for line in range(1, count):
        ideal = line * len(text) / count
        # Of the two spaces around it only: a damaged cue may be as long as the file
        behind = bisect_left(spaces, ideal)
        near = range(max(behind - 1, 0), min(behind + 1, len(spaces)))
        if near:
            characters[spaces.pop(min(near, key=lambda n: abs(spaces[n] - ideal)))] = "\n"
    return "".join(characters)
