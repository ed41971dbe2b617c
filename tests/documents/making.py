"""Small documents, made here."""

import io
import zipfile
from dataclasses import replace

from tformer_cli.documents.known_formats import format_named
from tformer_cli.documents.segments import ReadSettings


def packed(members, stored=("mimetype",)):
    """A zip archive of names and contents, in their order."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name, (1999, 12, 31, 23, 58, 2))
            info.compress_type = zipfile.ZIP_STORED if name in stored else zipfile.ZIP_DEFLATED
            info.external_attr = 0o640 << 16
            archive.writestr(info, content)
    return made.getvalue()


def member(data, name):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return archive.read(name).decode()


def read(format_name, data, **settings):
    settings.setdefault("name", f"a.{format_name}")
    return format_named(format_name).read(data, ReadSettings(**settings))


def shown(segments):
    """Texts, with the places and kinds of spans."""
    return [
        (one.text, *[(span.start, span.end, span.behavior) for span in one.spans])
        if one.spans
        else one.text
        for one in segments
    ]


def translated(document, words):
    """Writes a document with other texts, whose spans stay where they were."""
    return document.write(
        [
            replace(one, text=words[one.text]) if one.text in words else None
            for one in document.segments
        ]
    )
