import re
import time
from dataclasses import replace

import pytest

from tests.documents.making import list_texts, read, translate
from tformer_cli.errors import DataError

SRT = """1
00:00:01,000 --> 00:00:02,500
Every morning the old man

2
00:00:02,600 --> 00:00:04,000
<i>walked</i> to the harbor.

3
00:00:04,100 --> 00:00:06,000
- Who is there?
- {\\an8}It is me & you.

4
00:00:09,000 --> 00:00:11,000 X1:40 X2:600
{\\an8}<i>No answer.</i>
"""
TEXTS = [
    ("Every morning the old man walked to the harbor.", (26, 26, "void"), (26, 32, "repeat")),
    "Who is there?",
    "It is me & you.",
    "No answer.",
]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_srt(line_end, encoding):
    data = SRT.replace("\n", line_end).encode(encoding)
    document = read("srt", data)
    assert list_texts(document.segments) == TEXTS
    assert document.write(document.segments) == data
    assert document.write([None] * 4) == data
    output = translate(document, {"No answer.": "Keine Antwort."})
    assert output == data.decode(encoding).replace("No answer", "Keine Antwort").encode(encoding)


def test_a_sentence_is_cut_where_its_void_span_stands():
    document = read("srt", SRT.encode())
    first = document.segments[0]
    text = "Der alte Mann ging jeden Morgen zum Hafen."

    def write_cut(cut, italic):
        spans = (
            replace(first.spans[0], start=cut, end=cut),
            replace(first.spans[1], start=italic[0], end=italic[1]),
        )
        written = document.write([replace(first, text=text, spans=spans), None, None, None])
        blocks = written.decode().split("\n\n")
        assert blocks[2:] == SRT.split("\n\n")[2:]
        return [block.split("\n", 2)[2] for block in blocks[:2]]

    assert write_cut(14, (14, 18)) == ["Der alte Mann", "<i>ging</i> jeden Morgen zum Hafen."]
    # a position inside a word moves to a word start; spans across the cut are cut, too
    assert write_cut(20, (9, 24)) == ["Der alte <i>Mann ging</i>", "<i>jeden</i> Morgen zum Hafen."]
    # an empty cue is worse than a cut by length
    for cut in (0, len(text)):
        parts = write_cut(cut, (14, 18))
        assert all(parts)
        assert " ".join(parts).replace("<i>", "").replace("</i>", "") == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("old man\n", "old man.\n"), "Every morning the old man."),
        (("00:00:02,600", "00:00:04,600"), "Every morning the old man"),
        (
            ("Every morning the old man", "<i>Every morning the old man</i>"),
            "Every morning the old man",
        ),
        (("<i>walked</i> to", "[steps] to"), "Every morning the old man"),
    ],
)
def test_what_parts_cues(change, text):
    assert list_texts(read("srt", SRT.replace(*change).encode()).segments)[0] == text


def test_cues_without_punctuation_are_not_joined():
    blocks = [f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\nso it goes on\n" for n in range(1, 8)]
    assert len(read("srt", "\n".join(blocks).encode()).segments) == 7


def test_long_lines_are_wrapped():
    first = "1\n00:00:01,000 --> 00:00:04,000\nShort.\n\n"
    text = first + "2\n00:00:09,000 --> 00:00:12,000\nLast\n\nlines.\n"
    document = read("srt", text.encode())
    # a blank line in a cue does not end it
    assert list_texts(document.segments) == ["Short.", "Last lines."]
    long = "This sentence is much too long for a line, and so it stands on two of them."
    output = translate(document, {"Short.": long}).decode().split("\n")
    assert output[2:5] == [
        "This sentence is much too long for a",
        "line, and so it stands on two of them.",
        "",
    ]
    assert translate(document, {"Short.": "x" * 99}).decode().split("\n")[2] == "x" * 99


VTT = """\ufeffWEBVTT - Title: Test
Kind: captions

NOTE
Not a cue --> at all

STYLE
::cue { color: red }

intro
00:01.000 --> 00:04.000 align:start position:10%
<v Ann>Fish &amp; <c.loud>chips</c>&nbsp;now

00:04.000 --> 00:05.000
A <00:04.500>word &lt; a <ruby>line<rt>x</rt></ruby>.

NOTE the end
""".replace("\n", "\r\n")


def test_vtt():
    document = read("vtt", VTT.encode())
    assert list_texts(document.segments) == [
        ("Fish & chips\xa0now", (7, 12, "repeat")),
        ("A word < a line.", (2, 2, "void"), (11, 15, "once"), (15, 15, "void")),
    ]
    assert document.write(document.segments) == VTT.encode()
    first = document.segments[0]
    output = document.write(
        [replace(first, text="Pis & <chips>"), *[None] * (len(document.segments) - 1)]
    )
    assert "<v Ann>Pis &amp; &lt;<c.loud>chips</c>>\r\n" in output.decode()


def test_voices_of_vtt_are_apart():
    data = "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Mary>I am here.\n<v John>So am I.</v>\n"
    document = read("vtt", data.encode())
    assert [segment.text for segment in document.segments] == ["I am here.", "So am I."]
    output = translate(document, {"So am I.": "Moi aussi."}).decode()
    assert output == data.replace("So am I.", "Moi aussi.")


ERRORS = [
    (
        "vtt",
        b"1\n00:01.000 --> 00:02.000\nA\n",
        ": does not start with WEBVTT; rename it to .srt if it has that format",
    ),
    ("srt", b"Hello\n", ": has no times (00:00:01,000 --> 00:00:02,000); it is not an .srt file"),
    (
        "srt",
        b"1\n\xe9",
        (
            ":2: is not text in UTF-8; convert it: iconv -f WINDOWS-1252 -t UTF-8, or name its "
            "encoding: --encoding windows-1252"
        ),
    ),
]


@pytest.mark.parametrize(("name", "data", "message"), ERRORS)
def test_errors(name, data, message):
    with pytest.raises(DataError) as caught:
        read(name, data)
    assert str(caught.value) == f"a.{name}{message}"


def test_many_blank_lines_take_no_time():
    for line_end in ("\n", "\r\n"):
        text = SRT.replace("old man\n", "old man\n" * 2 + "\n" * 40_000 + "x\n", 1)
        data = text.replace("\n", line_end).encode()
        begin = time.process_time()
        document = read("srt", data)
        assert document.write([None] * len(document.segments)) == data
        # took a minute while each line started another search
        assert time.process_time() - begin < 10


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("a", "b " * 100_000),
        ("\t" * 200_000 + "a", "b"),
        ("a\n<" + "b" * 200_000, "b"),
        ("<i>" * 20_000 + "a" + "</i>" * 20_000, "b"),
    ],
)
def test_a_damaged_cue_may_be_as_long_as_the_file(text, answer):
    data = f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n".encode()
    begin = time.process_time()
    document = read("srt", data)
    (segment,) = document.segments
    assert answer.split()[0] in document.write([replace(segment, text=answer)]).decode()
    # took minutes while each position started another search
    assert time.process_time() - begin < 20


def test_one_line_end_of_two_characters_is_no_blank_line():
    cue = "00:00:01.000 --> 00:00:02.000\r\nIt was in\r\n1999\r\n\r\n"
    for name, head in (("srt", "1\r\n"), ("vtt", "WEBVTT\r\n\r\n")):
        following = "2\r\n00:00:05.000 --> 00:00:06.000\r\nYes.\r\n"
        document = read(name, (head + cue + following).encode())
        assert list_texts(document.segments) == ["It was in 1999", "Yes."]


def test_a_cue_with_damaged_times_is_left_alone():
    for times in ("", "00:00:07,000 -> 00:00:11\n"):
        data = SRT.replace("00:00:04,100 --> 00:00:06,000\n", times).encode()
        document = read("srt", data)
        assert list_texts(document.segments) == [TEXTS[0], TEXTS[3]]
        assert document.write(document.segments) == data
    # The next cue's number is not text, even without a blank line before it
    assert len(read("srt", SRT.replace(".\n\n3\n", ".\n3\n").encode()).segments) == 4


def test_files_without_cues():
    for name, data in (("srt", b""), ("vtt", b"WEBVTT\n"), ("srt", b"1\n0:0:1,0 --> 0:0:2,0\n\n")):
        document = read(name, data)
        assert not document.segments
        assert document.write([]) == data


def cue(*lines, number="1", times="00:00:01,000 --> 00:00:02,000", line_end="\n"):
    return line_end.join([*([number] if number else []), times, *lines, "", ""])


LINES = {
    "speakers": "MARY: I am here.|JOHN: And I am there.",
    "a second speaker": "I am here.|JOHN: So am I.",
    "speakers in small letters": "Mary: I am|John: So am I",
    "a doctor": "Dr. Who: I am here.|Mrs. Smith: No.",
    "one speaker, two lines": "MARY: I am here/and there.",
    "a colon in a sentence": "He said it/twice: no and no.",
    "a name and a colon in a sentence": "She goes on with/Anna: they sing.",
    "speakers elsewhere": "MARY (on phone): I am here.|MAN #1: And I am there.",
    "speakers in another script": "\u041c\u0410\u0420\u0418\u042f: A|\u0418\u0412\u0410\u041d: B",
    "speakers in tags": "<i>MARY: I am here.</i>|<i>JOHN: So am I.</i>",
    "remarks": "[Mary] I am here.|[John] And I am there.",
    "a time": "It is/10: 30 now.",
    "teletext": ">> Who is there?|>> It is me.",
    "dashes": "- Who is there?|- It is me.",
    "dashes and more lines": "- Who is there/at this hour?|- It is me.",
    "a dash for the second": "Who is there?|- It is me.",
    "a dash in tags": "<i>- Who is there?</i>|- It is me.",
    "another dash": "\u2013 Who is there?|\u2013 It is me.",
    "a dash in a sentence": "It was old/- very old.",
    "a song": "\u266a A song \u266a|Hello.",
    "two lines of a song": "\u266a A song/is sung \u266a",
    "two songs": "\u266a A song \u266a|\u266a is sung \u266a",
    "a song and a sign": "\u266a A song \u266a|[door slams]",
    "a sign": "[door slams]|Hello there.",
    "a sign behind": "Hello there.|(sighs)",
    "a sign in a tag": "<i>[door slams]</i>|Hello there.",
    "a sign in a line": "(sighs) Hello/there.",
    "a sign over two lines": "[the door/slams]",
}
"""Cues between "|" are segments; cues joined by "/" are one segment."""


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", LINES)
def test_lines_of_a_cue(name, line_end):
    texts = re.sub("<.*?>", "", LINES[name]).replace("/", " ").split("|")
    expected = [re.sub("^([-\u2013]|>>) ", "", text) for text in texts]
    data = cue(*re.split(r"[|/](?!i>)", LINES[name]), line_end=line_end).encode()
    document = read("srt", data)
    assert [segment.text for segment in document.segments] == expected
    assert document.write([None] * len(expected)) == data
    upper = {segment.text: segment.text.upper() for segment in document.segments}
    output = translate(document, upper).decode()
    texts = " ".join(output.upper().split())
    assert texts == " ".join(data.decode().upper().split())
    # a sentence of two lines may become one line
    assert output.count(line_end) >= data.decode().count(line_end) - 1
    assert not set("\r\n") - set(line_end) & set(output)


CUES = {
    "a mark in the middle": cue("A dog.") + "\ufeff" + cue("A cat.", number="2"),
    "a mark without a blank line": cue("A dog.").strip() + "\n\ufeff" + cue("A cat.", number="2"),
    "a mark before a time": cue("A dog.") + "\ufeff" + cue("A cat.", number=""),
    "a mark before a text": cue("A dog.") + cue("\ufeffA cat.", number="2"),
    "no numbers": cue("A dog.", number="") + cue("A cat.", number=""),
    "equal numbers": cue("A dog.") + cue("A cat."),
    "three digits of hours": cue("A dog.", times="100:00:01,000 --> 100:00:02,000") + cue("A cat."),
    "one digit of hours": cue("A dog.", times="0:00:01,000 --> 0:00:02,000") + cue("A cat."),
    "no hours": cue("A dog.", times="00:01,000 --> 00:02,000") + cue("A cat."),
    "dots": cue("A dog.", times="00:00:01.000 --> 00:00:02.000") + cue("A cat."),
    "colons": cue("A dog.", times="00:00:01:000 --> 00:00:02:000") + cue("A cat."),
    "no fractions": cue("A dog.", times="00:00:01 --> 00:00:02") + cue("A cat."),
    "no blanks": cue("A dog.", times="00:00:01,000-->00:00:02,000") + cue("A cat."),
    "coordinates": cue("A dog.", times="00:00:01,000 --> 00:00:02,000  X1:1 X2:2") + cue("A cat."),
    "a position": cue("{\\an8}A dog.") + cue("{y:i}A cat."),
    "a font": cue('<font color="#ff0">A dog.</font>') + cue("A cat."),
}


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", CUES)
def test_cues(name, line_end):
    data = CUES[name].replace("\n", line_end).encode()
    document = read("srt", data)
    assert [segment.text for segment in document.segments] == ["A dog.", "A cat."]
    assert not document.skipped
    assert document.write([None, None]) == data
    output = translate(document, {"A dog.": "Un chien.", "A cat.": "Un chat."})
    expected = CUES[name].replace("A dog", "Un chien").replace("A cat", "Un chat")
    assert output == expected.replace("\n", line_end).encode()


def test_marks_of_speakers_stay_as_they_are():
    lines = (
        "- A dog.",
        "-A cat.",
        "\u2013 <i>A cow.</i>",
        "<b>- A pig.</b>",
        ">> A hen.",
        "- <i>An ox",
    )
    for line in lines:
        document = read("srt", cue(line).encode())
        (segment,) = document.segments
        output = document.write([replace(segment, text=segment.text.upper())]).decode()
        assert re.sub("<.*?>", "", output) == re.sub("<.*?>", "", cue(line).upper()), line
        assert segment.text[0] == "A"


def test_cues_for_programs_stay():
    texts = ('{"a": "A dog"}', "[\n1, 2\n]", "s-1.jpg#xywh=0,0,160,90", "[a dog]", "{\\an8}A dog")
    data = "WEBVTT\n\n" + "".join(cue(text) for text in texts)
    assert [segment.text for segment in read("vtt", data.encode()).segments] == ["[a dog]", "A dog"]


def test_cues_with_damaged_times_are_counted():
    times = ("00:00:01,000 -> 00:00:02,000", "00:00:01,000 => 00:00:02,000")
    data = cue("A dog.") + "".join(cue("A cat.", times=time) for time in times)
    assert read("srt", data.encode()).skipped == {"cue with damaged times": 2}
