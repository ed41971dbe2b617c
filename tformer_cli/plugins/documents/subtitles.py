"""Subtitles, .srt and .vtt: translates the text of cues; times, numbers and notes stay.

A sentence often runs over several cues. They become one segment with a void span between two cues;
the position of the span in the translation decides where to cut it again.
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
    decode_file,
    partners,
    render_segment,
    unescape,
)
from tformer_cli.errors import DataError
from tformer_cli.plugins.documents.xml_text import Piece, escape_like, peel_markup
from tformer_cli.wording import is_blank

# Concatenated files have byte order marks in the middle
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
"""The header of a .vtt file, up to its language."""
_BLANK_LINE = re.compile(rf"(?:\r\n?+|\n){_SPACE}*(?:\r\n?|\n)|\A{_SPACE}*(?:\r\n?|\n)")
_BLANKS = re.compile(r"[\s\ufeff]++(\d++[ \t]*+(?=[\r\n]|\Z))?")
"""Blanks, followed by a number on its own line."""
_TWO_LINE_ENDS = re.compile(rf"(?:\r\n?+|\n){_SPACE}*(?:\r\n?|\n)")
_NUMBER_LINE = re.compile(rf"(?:\A|[\r\n]){_SPACE}*\d+\s*\Z")
_TAG = re.compile(
    r"<rt\b[^<>]*>[^<>\r\n]*(?:</rt\s*>)?|<(/?)([a-zA-Z]++)[^<>]*>|<\d[\d:.]*>"
    r"|\{(?:\\|[a-zA-Z]:)[^{}\r\n]*\}|\ufeff"
)
"""HTML and karaoke tags, codes of SubStation Alpha and MicroDVD. Ruby annotations are copied,
because they are not words of the sentence."""
_LINE = re.compile(r"[^\r\n]+")
_LEAD = r"\s*+(?:(?:<[^>]*>|\{\\[^}]*\})\s*+)*+"
_DASH = re.compile(_LEAD + r"[-\u2010-\u2015]")
_NAME = re.compile(
    _LEAD + r"([^\W\d_][\w .'\u2019#&-]{0,30}?)(?: ?\([^()]{1,30}\))?[:\uff1a](?=\s|<|(?<=\uff1a))"
)
_TURN = re.compile(r"(?:[-\u2010-\u2015]|>>+|&gt;&gt;)\s*(?=\S|\Z)")
_TURN_AT_END = re.compile(r"(?:[-\u2010-\u2015]|>>+|&gt;&gt;)\s*\Z")
_DATA = re.compile(r"\S+#xywh=\S+")
"""A region of an image, which players show as a thumbnail."""
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
"""Maximum characters per line, as subtitle publishers require."""
_LONGEST_PAUSE = 2.0
_MOST_CUES = 6
_MOST_CHARACTERS = 300
_PUNCTUATED = 0.25
"""Minimum share of cues that end a sentence; below it, sentence ends are unknown."""


@dataclass(slots=True)
class _Cue:
    """The text of a cue, or of one speaker in it, without enclosing tags."""

    start: int
    end: int
    begins: float
    ends: float
    pieces: list[Piece]
    around: tuple[str, str]
    is_speech: bool
    """True if it is one of several lines with different speakers."""
    is_turn: bool
    """True if it starts with the mark of a new speaker."""

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def read_srt(data: bytes, settings: ReadSettings) -> Document:
    return _read(data, settings, is_vtt=False)


def read_vtt(data: bytes, settings: ReadSettings) -> Document:
    return _read(data, settings, is_vtt=True)


def _read(data: bytes, settings: ReadSettings, *, is_vtt: bool) -> Document:
    text, encoding = decode_file(data, settings)
    if is_vtt and not text.startswith("WEBVTT"):
        raise DataError(
            f"{settings.name}: does not start with WEBVTT; rename it to .srt if it has that format"
        )
    if not (is_vtt or is_blank(text) or _TIMING.search(text)):
        raise DataError(
            f"{settings.name}: has no times (00:00:01,000 --> 00:00:02,000); it is not an .srt file"
        )
    cues: list[_Cue] = []
    for cue in _cues(text, is_vtt=is_vtt):
        cues.append(cue)
        check_parts(len(cues), a_segment=_MOST_CUES)
    groups = list(_groups(cues))
    return SubtitleDocument(text, encoding, groups, settings.target_language, is_vtt=is_vtt)


def _is_data(content: str) -> bool:
    """True if a cue is data for a program: JSON or a thumbnail."""
    content = content.strip()
    if content[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            json.loads(content)
            return True
    return _DATA.fullmatch(content) is not None


def _seconds(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> float:
    # Not integers: a damaged time may have thousands of digits
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
            # A blank line alone does not end a cue: many files have them inside cues
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
            first, last = peel_markup(pieces)
            core = pieces[first:last]
            turn = _TURN.match(text, core[0].start, core[0].end) if core[0].kind == "text" else None
            if turn and len(core) > (turn.end() == core[0].end):
                # Marks of a new speaker are not part of the text
                core[0] = _text(text, turn.end(), core[0].end, is_vtt=is_vtt)
                first, last = peel_markup(core)
                core = core[first:last]
            start, end = core[0].start, core[-1].end
            around = text[place[0] : start], text[end : place[1]]
            yield _Cue(start, end, *times, core, around, is_speech=speech, is_turn=bool(turn))


def _places(text: str, lines: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], bool]:
    """Divides the lines of a cue where the speaker changes, or at a sound or a song.

    Also returns whether there are several speakers.
    """
    marks = [_mark(text, *line) for line in lines]
    n_speakers = Counter(marks)
    places = [lines[0]]
    is_speech = False
    for number in range(1, len(lines)):
        mark, before = marks[number], marks[number - 1]
        line = lines[number]
        # A sentence may also contain a dash, or a word before a colon
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
    """Returns the kind of mark at the start of a line."""
    if _SIGN.fullmatch(text, start, end):
        return "sign"
    if _VOICE.match(text, start, end):
        return "name"
    if match := _NAME.match(text, start, end):
        name = match[1]
        if name.isupper():
            return "name"
        # In lowercase it may be ordinary words before a colon
        if len(name.split()) <= 3 and all(word[0].lower() != word[0] for word in name.split()):
            return "short name"
        if name.upper() == name.lower():  # a script without capitals
            return "short name"
    marks = (("dash", _DASH), ("remark", _REMARK), ("song", _SONG))
    return next((name for name, pattern in marks if pattern.match(text, start, end)), "")


def _next_number(content: str) -> int | None:
    """Finds the end of a text that a blank line and the next cue's number follow."""
    # Skip all blanks at once: a search from each blank would be slow
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
    return Piece("text", raw, start, end, unescape(raw) if is_vtt else raw)


def _groups(cues: Sequence[_Cue]) -> Iterator[list[_Cue]]:
    """Groups the cues of a sentence."""
    ended = [bool(_SENTENCE_END.search(cue.text)) for cue in cues]
    is_punctuated = sum(ended) >= _PUNCTUATED * len(cues)
    group: list[_Cue] = []
    for cue, before in zip(cues, [True, *ended], strict=False):
        goes_on = (
            *(group and is_punctuated and not before, len(group) < _MOST_CUES),
            # different tags around it: another voice, or a sign in the picture
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
    before, after = cue.around
    return (before if not cue.is_turn else _TURN_AT_END.sub("", before)), after


@dataclass(slots=True)
class _Group:
    """Cues that form one segment."""

    cues: list[_Cue]
    segment: Segment
    cuts: list[str] = field(default_factory=list)
    """Openings of the void spans between two cues."""


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
            for cue, part in zip(group.cues, _cut_translation(group, new), strict=True):
                written += self._text[place : cue.start], self._cue(cue, part)
                place = cue.end
        written.append(self._text[place:])
        return self._encoding.encode("".join(written))

    def _cue(self, cue: _Cue, part: Segment) -> str:
        lines = self._text[cue.start : cue.end].splitlines()
        width = max(_WIDTH, *(len(_TAG.sub("", line)) for line in lines))
        text = _wrap_text(part.text, width)
        escape: Callable[[str], str] = str
        if self._is_vtt:
            escape = escape_like(self._text[cue.start : cue.end])
        return render_segment(replace(part, text=text), escape).replace("\n", self._line_end)


def _cut_translation(group: _Group, translation: Segment) -> list[Segment]:
    """Divides a translation among its cues."""
    text, number = translation.text, len(group.cuts)
    cuts = sorted(span.start for span in translation.spans if span.opening in group.cuts)[:number]
    places = [0, *(_at_word(text, place) for place in cuts), len(text)]
    if len(cuts) < number or any(is_blank(text[a:b]) for a, b in pairwise(places)):
        # The alignment does not help: divide by the share of characters in each cue
        sizes = [len(cue.text) for cue in group.cues]
        shares = [sum(sizes[:end]) / sum(sizes) for end in range(1, number + 1)]
        places = [0, *(_at_word(text, round(share * len(text))) for share in shares), len(text)]
    marks = [span for span in translation.spans if span.opening not in group.cuts]
    return [
        _clip_text(text, marks, *place, is_last=place[1] == len(text)) for place in pairwise(places)
    ]


def _at_word(text: str, place: int) -> int:
    """Moves a position to the nearest start of a word, if the text has blanks."""
    starts = [blank.end() for blank in re.finditer(r"\s+(?=\S)", text)]
    return min(starts, key=lambda start: abs(start - place), default=place)


def _clip_text(text: str, spans: Sequence[Span], start: int, end: int, *, is_last: bool) -> Segment:
    """Cuts out a range of a text with its blanks and spans."""
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


def _wrap_text(text: str, width: int) -> str:
    """Wraps a text into lines that fit and have about equal length."""
    count = -(-len(text) // width)
    characters = list(text)
    spaces = [place for place, character in enumerate(text) if character == " "]
    for line in range(1, count):
        ideal = line * len(text) / count
        # Compare only the two nearest spaces: a damaged cue may be as long as the file
        next_space = bisect_left(spaces, ideal)
        near = range(max(next_space - 1, 0), min(next_space + 1, len(spaces)))
        if near:
            characters[spaces.pop(min(near, key=lambda n: abs(spaces[n] - ideal)))] = "\n"
    return "".join(characters)
