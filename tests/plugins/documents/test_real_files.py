"""Real documents from other authors, in the folder that TFORMER_DOCUMENTS names."""

import io
import os
import re
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tformer_cli.documents.known_formats import FORMATS
from tformer_cli.documents.segments import ReadSettings
from tformer_cli.errors import TformerError

FOLDER = os.environ.get("TFORMER_DOCUMENTS")
FILLED = {"po", "xliff", "tmx"}
"""Formats in which a copy of the source counts as a translation."""
TAG = re.compile(rb"<([a-zA-Z][\w:.-]*)")
RUN = re.compile(
    rb"<(\w+:rPr)\b(?:[^>]*/>|.*?</\1>)|<\w+:(?:r|t|proofErr|lastRenderedPageBreak)\b", re.DOTALL
)


def read(format_name, data, name):
    settings = ReadSettings(name=name, target_language="xx" if format_name == "tmx" else "")
    return FORMATS[format_name].read(data, settings)


def tags(data):
    """Counts the elements of each part, except runs and what is in them."""
    if not data.startswith(b"PK"):
        return Counter(TAG.findall(data))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {
            name: Counter(TAG.findall(RUN.sub(b"", archive.read(name))))
            for name in archive.namelist()
            if name.endswith(("xml", "html", "ncx", "opf"))
        }


def change_case(segment):
    """Changes a text without changing its length, so that spans keep their positions."""
    return replace(
        segment,
        text="".join(
            character.upper() if len(character.upper()) == 1 else character
            for character in segment.text
        ),
    )


@pytest.mark.long
@pytest.mark.skipif(not FOLDER, reason="needs TFORMER_DOCUMENTS, a folder of documents")
@pytest.mark.parametrize("format_name", FORMATS)
def test_real_files(format_name, capsys):
    counts, refused = Counter(), []
    extensions = FORMATS[format_name].extensions
    for path in sorted(Path(FOLDER).rglob("*")):
        if path.suffix.lower() not in extensions or not path.is_file():
            continue
        data = path.read_bytes()
        try:
            document = read(format_name, data, path.name)
        except TformerError as error:
            refused.append(str(error))
            continue
        segments = list(document.segments)
        counts["files"] += 1
        counts["segments"] += len(segments)
        counts["with markup"] += sum(bool(segment.spans) for segment in segments)
        assert document.write([None] * len(segments)) == data, path
        if format_name not in FILLED:
            assert document.write(segments) == data, path
        output = document.write([change_case(segment) for segment in segments])
        if format_name not in FILLED:
            again = read(format_name, output, path.name).segments
            assert len(again) == len(segments), path
            assert tags(output) == tags(data), path
        else:
            assert not read(format_name, output, path.name).segments or format_name == "xliff", path
    if not counts["files"] and not refused:
        pytest.skip(f"TFORMER_DOCUMENTS has no {format_name}")
    # damaged files are refused in one line; no other error may escape
    assert not [message for message in refused if "\n" in message]
    with capsys.disabled():
        print(f"\n{format_name}: {dict(counts)}, {len(refused)} refused", end=" ")  # noqa: T201 - what was tested
