from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tformer_cli.cli.commands.translate import DocumentOptions
from tformer_cli.documents.known_formats import FORMATS, format_named, format_of
from tformer_cli.documents.segments import (
    ReadSettings,
    SegmentBuilder,
    Slot,
    Span,
    TextDocument,
    render_segment,
)
from tformer_cli.errors import DataError, UsageError
from tformer_cli.guide import find_guide


def build_segments(steps, **settings):
    builder = SegmentBuilder(**settings)
    for name, *given_ in steps:
        getattr(builder, name)(*given_)
    while builder.depth:
        builder.close("</x>")
    return builder.build()


def test_a_builder_counts_characters_and_depths():
    segment = build_segments(
        [
            ("text", "\n the "),
            ("open", "<a>", "once"),
            ("open", "<b>"),
            ("text", "old\n  house"),
            ("close", "</b>"),
            ("void", "<br>"),
            ("close", "</a>"),
            ("text", " of "),
            ("protect", "x y", "<code>x&#32;y</code>"),
            ("text", "  "),
        ],
        joins_blanks=True,
    )
    assert (segment.before, segment.text, segment.after) == ("\n ", "the old house of x y", "  ")
    assert segment.spans == (
        Span(4, 13, "once", "<a>", "</a>"),
        Span(4, 13, "repeat", "<b>", "</b>", depth=1),
        Span(13, 13, "void", "<br>", depth=1),
        Span(17, 20, "protected", "<code>x&#32;y</code>"),
    )
    assert render_segment(segment) == ("the <a><b>old house</b><br></a> of <code>x&#32;y</code>")


TEXTS = st.text("ab \n<&", max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), TEXTS),
        st.tuples(st.just("open"), st.just("[o]")),
        st.tuples(st.just("void"), st.just("[v]")),
        st.tuples(st.just("protect"), TEXTS, st.just("[p]")),
        st.just(("close", "[c]")),
    ),
    max_size=12,
)


@given(STEPS)
def test_what_was_built_is_rendered_as_it_was(steps):
    depth, kept, expected = 0, [], ""
    for step in steps:
        if step[0] == "close" and depth == 0:
            continue
        depth += {"open": 1, "close": -1}.get(step[0], 0)
        kept.append(step)
        expected += step[-1]
    segment = build_segments([*kept, *[("close", "[c]")] * depth])
    expected += "[c]" * depth
    # Only blanks at the ends move out of markup
    assert "".join(render_segment(segment).split()) == "".join(expected.split())
    assert segment.text == segment.text.strip()
    assert all(0 <= s.start <= s.end <= len(segment.text) for s in segment.spans)


def test_only_changed_segments_are_written_anew():
    segment = build_segments([("text", " a & b ")])
    document = TextDocument(["<p>", Slot(segment, " a &amp; b ", lambda t: t.replace("&", "%"))])
    # Equal to the original: keeps the original bytes
    assert document.write([None]) == document.write([segment]) == b"<p> a &amp; b "
    assert document.write([replace(segment, text="c & d")]) == b"<p> c % d "


def test_plain_text():
    text = format_named("text")
    data = "\ufeff  one\r\n\r\ntwo\nthree  four\n".encode()
    document = text.read(data, ReadSettings())
    assert [segment.text for segment in document.segments] == ["one", "two", "three  four"]
    assert document.write([None] * 3) == data
    changed = [replace(segment, text=segment.text.upper()) for segment in document.segments]
    assert document.write(changed) == data.upper()
    unwrapped = text.read(data, ReadSettings(unwraps=True))
    assert [segment.text for segment in unwrapped.segments] == ["one", "two three four"]
    assert unwrapped.write(unwrapped.segments) == data
    changed = [replace(segment, text=segment.text.upper()) for segment in unwrapped.segments]
    assert unwrapped.write(changed) == "\ufeff  ONE\r\n\r\nTWO THREE FOUR\n".encode()
    wide = "one\n".encode("utf-16")
    assert text.read(wide, ReadSettings()).write([None]) == wide
    with pytest.raises(DataError, match=r"^a\.txt:2: is not text in UTF-8; convert it: iconv"):
        text.read(b"a\nb\xff", ReadSettings(name="a.txt"))


def test_formats_are_found_by_extension_and_by_name():
    assert format_of("a/b.TXT") is format_named("text") is format_named(".txt")
    assert format_of("a.en") is None
    with pytest.raises(UsageError, match=r"^a\.pdf: a PDF cannot be.*pdftotext"):
        format_of("a.pdf")
    with pytest.raises(UsageError, match=r"^--document: unknown format txet; did you mean"):
        format_named("txet")
    names = [name for row in FORMATS.values() for name in (row.name, *row.extensions)]
    assert len(set(names)) == len(names)
    assert all(callable(row.read) for row in FORMATS.values())


def test_the_guide_and_the_option_list_every_format():
    guide = find_guide("documents").text
    document = next(field for field in fields(DocumentOptions) if field.name == "document")
    assert document.metadata["option"].help.endswith(f"Formats: {', '.join(FORMATS)}.")
    for row in FORMATS.values():
        assert f"| `{row.name}` | {' '.join(row.extensions)} |" in guide
