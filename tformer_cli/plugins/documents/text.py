"""Plain text: each line, or each unwrapped paragraph, is a segment."""

from __future__ import annotations

from tformer_cli.documents.segments import (
    LINE,
    Document,
    ReadSettings,
    SegmentBuilder,
    Slot,
    TextDocument,
    decode_file,
)
from tformer_cli.wording import is_blank


def read(data: bytes, settings: ReadSettings) -> Document:
    text, encoding = decode_file(data, settings)
    lines = LINE.findall(text)
    parts: list[str | Slot] = []
    place = 0
    while place < len(lines):
        end = place + 1
        if settings.unwraps and not is_blank(lines[place]):
            while end < len(lines) and not is_blank(lines[end]):
                end += 1
        raw = "".join(lines[place:end])
        builder = SegmentBuilder(f"line {place + 1}", joins_blanks=settings.unwraps)
        builder.text(raw)
        parts.append(raw if builder.is_blank else Slot(builder.build(), raw))
        place = end
    return TextDocument(parts, encoding)
