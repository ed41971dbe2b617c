"""Small documents, made here."""

import io
import zipfile
from dataclasses import replace

from tformer_cli.documents.known_formats import format_named
from tformer_cli.documents.projection import Link, project, words_of
from tformer_cli.documents.protect import protected, restored
from tformer_cli.documents.segments import ReadSettings


def packed(members, stored=("mimetype",)):
    """A zip archive of names and contents, in their order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name, (1999, 12, 31, 23, 58, 2))
            info.compress_type = zipfile.ZIP_STORED if name in stored else zipfile.ZIP_DEFLATED
            info.external_attr = 0o640 << 16
            archive.writestr(info, content)
    return buffer.getvalue()


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
        (segment.text, *[(span.start, span.end, span.behavior) for span in segment.spans])
        if segment.spans
        else segment.text
        for segment in segments
    ]


def translated(document, words):
    """Writes a document with other texts, whose spans stay where they were."""
    return document.write(
        [
            replace(segment, text=words[segment.text]) if segment.text in words else None
            for segment in document.segments
        ]
    )


def reordered(segment, order, links_of=list):
    """Translates a segment to its words in another order, with markup where words go together.

    `order` makes an order of the numbers of words, and `links_of` takes some of the links.
    """
    segment = protected(segment)
    copied = [(span.start, span.end) for span in segment.spans if span.behavior == "protected"]
    words = words_of(segment.text, [], copied)
    text, links = "", []
    for start, end in (words[number] for number in order(range(len(words)))):
        links.append(Link((len(text), len(text) + end - start), (start, end)))
        text += segment.text[start:end] + " "
    result = restored(segment, text.rstrip(), links_of(links))
    spans = project(segment, result.text, result.links, result.fixed).spans
    return replace(segment, text=result.text, spans=spans)


def backward(document):
    """Writes a document whose texts have their words from the last to the first."""
    return document.write([reordered(segment, reversed) for segment in document.segments]).decode()
