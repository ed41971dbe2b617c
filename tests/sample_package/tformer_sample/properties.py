"""Documents of Java: `key = value` in lines; keys and comments stay.

Source: java.util.Properties.load, for values of one line.
"""

import re

from tformer_cli.documents.known_formats import Format
from tformer_cli.documents.segments import (
    LINE,
    Document,
    ReadSettings,
    SegmentBuilder,
    Slot,
    TextDocument,
    decode_file,
)

_PROPERTY = re.compile(r"(\s*[^#!\s=:][^\s=:]*\s*[=:]\s*)(.*?)(\s*)", re.DOTALL)


def read(data: bytes, settings: ReadSettings) -> Document:
    text, encoding = decode_file(data, settings)
    parts: list[str | Slot] = []
    for line in LINE.findall(text):
        key, value, end = match.groups() if (match := _PROPERTY.fullmatch(line)) else (line, "", "")
        builder = SegmentBuilder(key.strip(" =:"))
        builder.text(value)
        parts += [key, value if builder.is_blank else Slot(builder.build(), value), end]
    return TextDocument(parts, encoding)


FORMAT = Format("properties", (".properties",), "tformer_sample.properties:read")
