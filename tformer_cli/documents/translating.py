"""Translates segments by whatever translates lines: a command's model, or a service.

Both send lines and get translations by the generator of `translating`. Equal lines are sent once.
Markup goes where aligned words say; where nothing is aligned, what stands between tags is
translated piece by piece.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from tformer_cli.documents.messages import (
    UNKNOWN_PAIR,
    Frame,
    LanguagePair,
    MessageError,
    Text,
    divide_message,
    join_frame,
    list_texts,
    syntax_differs,
)
from tformer_cli.documents.placeholders import is_code
from tformer_cli.documents.projection import Link, Range, project
from tformer_cli.documents.protect import LINE_END, protected, restored
from tformer_cli.search.formats import TSV_ENDS
from tformer_cli.wording import count_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from tformer_cli.documents.segments import Segment, Span
    from tformer_cli.search.formats import OutputFormat


CODE = "a name or a value, no words"
PLACEHOLDERS, SYNTAX = "placeholders", "syntax of the message"
"""Reasons for which a segment stays; of the last two it is doubtful."""


@dataclass(frozen=True, slots=True)
class Request:
    """A line to translate."""

    text: str
    needs_links: bool = False
    copied: tuple[Range, ...] = ()
    """Characters that are copied, in order."""
    is_piece: bool = False
    """True if it is a part of a line that was translated before."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The translation of a line."""

    text: str
    links: Sequence[Link] | None = None
    """Characters that go together; None: nothing can be aligned."""
    flags: tuple[str, ...] = ()
    """Signs that something is wrong."""
    doubt: float | None = None
    """How probably it is wrong; None where nobody asked for it."""
    doubtful_words: tuple[str, ...] = ()


_OPTION = re.compile(r" *--?\w")
_COLUMNS, _COLUMNS_OF_OPTION = (re.compile(rf"(?<=\S)( {{{n},}})(?=\S)") for n in (3, 2))
"""The blanks between columns; a line about an option of a command has two or more."""
NO_WORDS = "no words"
"""Reason, or the end of one, for which segments stay as they should."""
_MARKUP = re.compile(rb"<[^<>]*>")


def may_have_text(data: bytes) -> bool:
    """Returns whether a document has a letter or digit that is not in a tag."""
    return any(byte > 0x7F or chr(byte).isalnum() for byte in _MARKUP.sub(b"", data))


@dataclass
class Summary:
    """Counts of the segments of a document, and those that are doubtful."""

    n_segments: int = 0
    n_translated: int = 0
    n_spans: int = 0
    n_guessed: int = 0
    """Spans for whose text no word was aligned."""
    n_copied: int = 0
    n_restored: int = 0
    """Of what had to be copied, what the model had not."""
    kept: Counter[str] = field(default_factory=Counter)
    """Segments that stay, by the reason; those without words need not be told."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Constructs that the readers have skipped; see `Document.skipped`."""
    doubtful: list[dict[str, Any]] = field(default_factory=list)
    doubts: list[dict[str, Any]] = field(default_factory=list)
    """How probably each segment that was translated is wrong."""

    def doubt_lines(self, output_format: OutputFormat) -> Iterator[str]:
        """Writes the segments, the most doubtful first, as lines of TSV or JSONL."""
        for row in sorted(self.doubts, key=lambda row: -row["doubt"]):
            if output_format == "jsonl":
                yield json.dumps(row, ensure_ascii=False)
                continue
            doubt, *cells, words = row.values()
            texts = (str(cell).translate(TSV_ENDS) for cell in cells)
            yield "\t".join((f"{doubt:.4f}", *texts, " ".join(words)))

    def counts(self) -> dict[str, Any]:
        """Counts the segments, and by reason what was not translated."""
        n_kept = self.n_segments - self.n_translated
        left = self.kept + Counter({NO_WORDS: n_kept - self.kept.total()})
        return {
            "segments": self.n_segments,
            "translated": self.n_translated,
            "kept": n_kept,
            "left": dict(left),
            "skipped": dict(self.skipped),
        }

    def warning(self, *, has_text: bool = True) -> str:
        """Says in a line what should have been translated and was not; empty: nothing."""
        kept = Counter(
            {reason: n for reason, n in self.kept.items() if not reason.endswith(NO_WORDS)}
        )
        kept += self.skipped
        if not self.n_segments and has_text:
            what = "no text to translate was found, and it is written as it was"
        elif kept:
            what = f"{count_of(kept.total(), 'part')} of its text left as in the source"
        else:
            return ""
        reasons = ", ".join(f"{reason} ({n:,})" for reason, n in kept.most_common())
        return f"{what}: {reasons}" if reasons else what

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": "tformer.document/1",
            **self.counts(),
            "spans": {"placed": self.n_spans, "guessed": self.n_guessed},
            "protected": {"copied": self.n_copied, "restored": self.n_restored},
            "doubtful": self.doubtful,
        }


@dataclass(frozen=True)
class Translated:
    """The segments of a translated document; None: one has nothing to translate."""

    segments: list[Segment | None]
    summary: Summary


def translating(
    segments: Sequence[Segment],
    *,
    protects: bool,
    languages: LanguagePair = UNKNOWN_PAIR,
) -> Generator[list[Request], Sequence[Answer], Translated]:
    """Yields lines, is sent their translations, and returns the segments.

    With `protects`, placeholders are copied, messages of programs are divided into their texts, and
    names that are no words stay.
    """
    messages = [_plan_message(segment, languages, protects=protects) for segment in segments]
    parts = [text for message in messages for text in list_texts(message.frame)]
    written_parts = iter((yield from _translate_parts(parts, protects=protects)))
    summary = Summary(n_segments=len(segments))
    written: list[Segment | None] = []
    for number, (segment, message) in enumerate(zip(segments, messages, strict=True)):
        own = list(islice(written_parts, sum(1 for _ in list_texts(message.frame))))
        written.append(_write_segment(number, segment, message, own, summary))
    return Translated(written, summary)


@dataclass(frozen=True, slots=True)
class _Message:
    """A segment as parts to translate."""

    frame: Frame = ()
    kept: str = ""
    """The reason why it stays."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a segment and its translation."""

    segment: Segment
    translation: Segment
    counts: Counter[str]
    """Signs of doubt, and how often."""
    answers: Sequence[Answer]


def _plan_message(segment: Segment, languages: LanguagePair, *, protects: bool) -> _Message:
    if not protects:
        return _Message((Text(segment),))
    if is_code(segment.text):
        return _Message(kept=CODE)
    try:
        return _Message(divide_message(segment, languages))
    except MessageError:
        return _Message(kept=SYNTAX)


def _write_segment(
    number: int,
    segment: Segment,
    message: _Message,
    parts: Sequence[_Part | None],
    summary: Summary,
) -> Segment | None:
    """Makes a segment of its translated parts, and counts what became of it."""
    done = [part for part in parts if part is not None]
    about = {"segment": number, "context": segment.context, "source": segment.text}
    kept = message.kept or ("" if done else NO_WORDS)
    if any(part.counts["placeholders"] for part in done):
        kept = PLACEHOLDERS
    if kept:
        summary.kept[kept] += 1
        if kept in (PLACEHOLDERS, SYNTAX):
            summary.doubtful.append({**about, "translation": segment.text, "reasons": [kept]})
        return None
    translation = join_frame(
        message.frame, (None if part is None else part.translation for part in parts)
    )
    translation = replace(segment, text=translation.text, spans=translation.spans)
    counts = sum((part.counts for part in done), Counter[str]())
    summary.n_translated += 1
    for part in done:
        copied = sum(span.behavior == "protected" for span in part.segment.spans)
        summary.n_copied += copied
        summary.n_spans += len(part.segment.spans) - copied
    summary.n_guessed += counts["guessed"]
    summary.n_restored += counts["restored"]
    about["translation"] = translation.text
    if counts:
        summary.doubtful.append({**about, "reasons": list(counts)})
    doubt, words = _most_doubtful([answer for part in done for answer in part.answers])
    if doubt is not None:
        summary.doubts.append({"doubt": doubt, **about, "doubtful_words": words})
    return translation


def _translate_parts(
    texts: Sequence[Text], *, protects: bool
) -> Generator[list[Request], Sequence[Answer], list[_Part | None]]:
    """Yields lines, is sent their translations, and returns the parts; None: it has no words."""
    segments = [protected(text.segment) if protects else text.segment for text in texts]
    chosen = {
        n: segment
        for n, segment in enumerate(segments)
        if any(is_text for _, is_text in _pieces(segment))
    }
    lines: dict[str, Request] = {}
    for segment in chosen.values():
        needs_links = any(
            0 < p < len(segment.text) for s in segment.spans for p in (s.start, s.end)
        )
        for line, copied in _lines(segment):
            if _has_words(line) and not (segment.is_message and protects and is_code(line)):
                has_links = needs_links or (line in lines and lines[line].needs_links)
                lines[line] = Request(line, has_links, copied)
    answers = yield list(lines.values())
    by_line = dict(zip(lines, answers, strict=True))
    joined = {n: _joined(segment, by_line) for n, segment in chosen.items()}
    cut = {n: _pieces(chosen[n]) for n, answer in joined.items() if answer.links is None}
    pieces = dict.fromkeys(
        text.strip()
        for segment_pieces in cut.values()
        for text, is_text in segment_pieces
        if is_text
    )
    answers = (yield [Request(piece, is_piece=True) for piece in pieces]) if pieces else ()
    by_piece = dict(zip(pieces, answers, strict=True))
    written: list[_Part | None] = [None] * len(texts)
    for n, segment in chosen.items():
        if n in cut:
            translation, doubts = _in_pieces(segment, cut[n], by_piece), Counter[str]()
            # Its translation as a whole was thrown away
            parts = [by_piece[text.strip()] for text, is_text in cut[n] if is_text]
        else:
            translation, doubts = _placed(segment, joined[n])
            parts = [joined[n]]
        if protects and syntax_differs(texts[n], segment, translation):
            doubts["placeholders"] = 1
        counts = Counter(dict.fromkeys(joined[n].flags, 1)) + doubts
        written[n] = _Part(segment, translation, counts, parts)
    return written


def _most_doubtful(parts: Sequence[Answer]) -> tuple[float | None, tuple[str, ...]]:
    """Returns the doubt of what is wrong if any of its parts is, and the words of all."""
    words = tuple(word for part in parts for word in part.doubtful_words)
    return max((part.doubt for part in parts if part.doubt is not None), default=None), words


def _split_lines(segment: Segment) -> list[str]:
    """Cuts a text at its line ends, which are in the list, too; a message also at its columns.

    A message may have line ends that are written as codes and copied.
    """
    text = segment.text
    if not segment.is_message:
        return re.split(r"(\n)", text)
    codes = (
        (span.start, span.end)
        for span in segment.spans
        if span.behavior == "protected" and LINE_END.fullmatch(text[span.start : span.end])
    )
    parts, place = list[str](), 0
    for start, end in (*sorted(codes), (len(text), len(text))):
        for line in re.split(r"([\n\t])", text[place:start]):
            parts += (_COLUMNS_OF_OPTION if _OPTION.match(line) else _COLUMNS).split(line)
        parts.append(text[start:end])
        place = end
    return parts[:-1]


def _lines(segment: Segment) -> Iterator[tuple[str, tuple[Range, ...]]]:
    """Yields the lines of a segment, without blanks around, and what is copied in each."""
    copied = [(span.start, span.end) for span in segment.spans if span.behavior == "protected"]
    place = done = 0
    lines = _split_lines(segment)
    for line, behind in zip(lines[::2], [*lines[1::2], ""], strict=True):
        start = place + len(line) - len(line.lstrip())
        end = place + len(line.rstrip())
        ranges: list[Range] = []
        for a, b in copied[done:]:
            if a >= end:
                break
            ranges.append((max(a - start, 0), min(b, end) - start))
            # What goes on in the next line is in that, too
            done += b <= end
        yield line.strip(), tuple(part for part in ranges if part[0] < part[1])
        place += len(line) + len(behind)


def _has_words(line: str) -> bool:
    return any(map(str.isalpha, line))


def _joined(segment: Segment, by_line: Mapping[str, Answer]) -> Answer:
    """Joins the translations of a segment's lines as the lines were."""
    text, links = "", []
    flags: dict[str, None] = {}
    is_linked, place, answers = True, 0, list[Answer]()
    lines = _split_lines(segment)
    for before, line in zip(["", *lines[1::2]], lines[::2], strict=True):
        place += len(before)
        inner = line.strip()
        answer = by_line.get(inner, Answer(inner, [Link((0, len(inner)), (0, len(inner)))]))
        text += before + line[: len(line) - len(line.lstrip())]
        start = place + len(line) - len(line.lstrip())
        if answer.links is None:
            is_linked = False
        for target, source in answer.links or ():
            links.append(
                Link(
                    (target[0] + len(text), target[1] + len(text)),
                    (source[0] + start, source[1] + start),
                )
            )
        text += answer.text + (line[len(line.rstrip()) :] if inner else "")
        flags |= dict.fromkeys(answer.flags)
        answers.append(answer)
        place += len(line)
    known = links if is_linked or not segment.spans else None
    return Answer(text, known, tuple(flags), *_most_doubtful(answers))


def _placed(segment: Segment, answer: Answer) -> tuple[Segment, Counter[str]]:
    """Puts markup and what is copied into a translation."""
    with_copies = restored(segment, answer.text, answer.links or ())
    projection = project(segment, with_copies.text, with_copies.links, with_copies.fixed)
    counts = Counter(guessed=projection.n_guessed, restored=with_copies.n_restored)
    return replace(segment, text=with_copies.text, spans=projection.spans), counts


def _pieces(segment: Segment) -> list[tuple[str, bool]]:
    """Cuts a segment at its markup; also returns whether a piece is to be translated."""
    edges = sorted({0, len(segment.text), *(p for s in segment.spans for p in (s.start, s.end))})
    copied = {
        place
        for span in segment.spans
        if span.behavior == "protected"
        for place in range(span.start, span.end)
    }
    texts = ((segment.text[start:end], start) for start, end in pairwise(edges))
    return [(text, start not in copied and _has_words(text)) for text, start in texts]


def _in_pieces(
    segment: Segment, pieces: Sequence[tuple[str, bool]], by_piece: Mapping[str, Answer]
) -> Segment:
    """Joins the translations of pieces; markup stays between them."""
    text, places, place = "", {0: 0}, 0
    for piece, is_text in pieces:
        if is_text:
            start = len(piece) - len(piece.lstrip())
            text += piece[:start] + by_piece[piece.strip()].text + piece[len(piece.rstrip()) :]
        else:
            text += piece
        place += len(piece)
        places[place] = len(text)

    def moved() -> Iterator[Span]:
        for span in segment.spans:
            yield replace(span, start=places[span.start], end=places[span.end])

    return replace(segment, text=text, spans=tuple(moved()))
