"""Damaged documents: a whole one, or an error of one line, and never anything else."""

import io
import random
import zipfile
from dataclasses import replace

import pytest

from tests.documents import (
    test_bilingual,
    test_epub,
    test_json_paths,
    test_office,
    test_po,
    test_subtitles,
)
from tests.documents.making import packed, read
from tformer_cli.errors import TformerError

WORD = test_office.WORD
WHOLE = {
    "docx": test_office.docx(WORD["text box, twice"][0] + WORD["field"][0]),
    "odt": test_office.odt(test_office.OPEN_DOCUMENT["note"][0]),
    "epub": packed(test_epub.MEMBERS),
    "xliff": test_bilingual.XLIFF.encode(),
    "tmx": test_bilingual.TMX,
    "srt": test_subtitles.SRT.encode(),
    "vtt": test_subtitles.VTT.encode(),
    "po": test_po.PO.encode(),
    "json": test_json_paths.TEXT.encode(),
}


def damaged(data, chance):
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        kind, place = chance.randrange(4), chance.randrange(len(data) or 1)
        if kind == 0:
            data[place : place + 1] = [chance.randrange(256)]
        elif kind == 1:
            del data[place : place + chance.randrange(1, 20)]
        elif kind == 2:
            data[place:place] = data[chance.randrange(len(data) or 1) :][:30]
        else:
            data[place : place + 1] = chance.choice(b"<>&\"'/{}[]\\\n 0").to_bytes(1, "big")
    return bytes(data)


def in_a_member(data, chance):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = chance.choice(list(members))
    return packed({**members, name: damaged(members[name], chance)})


@pytest.mark.parametrize("name", WHOLE)
def test_damages(name):
    chance = random.Random(7)
    counts = [0, 0]
    for number in range(120):
        is_inside = WHOLE[name].startswith(b"PK") and number % 2
        data = (in_a_member if is_inside else damaged)(WHOLE[name], chance)
        messages = []
        try:
            document = read(name, data, target_language="de")
            segments = list(document.segments)
            kept = document.write([None] * len(segments))
            document.write([replace(one, text=one.text + "!") for one in segments])
        except TformerError as error:
            messages.append(str(error))
        assert messages or kept == data
        assert not any("\n" in one or not one.startswith(f"a.{name}:") for one in messages)
        counts[bool(messages)] += 1
    assert min(counts) > 5
