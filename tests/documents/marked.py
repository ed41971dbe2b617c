"""Segments with markup, written with tags or drawn by hypothesis."""

import re

from hypothesis import strategies as st

from tformer_cli.documents.segments import SegmentBuilder

_BEHAVIOR = {"a": "once", "b": "repeat", "i": "repeat"}


def segment_of(text):
    """Reads <a> (once), <b> and <i> (repeat), <p>copied</p> and <v/> (without text)."""
    builder = SegmentBuilder()
    for piece in re.findall(r"<p>.*?</p>|<[^>]*>|[^<]+", text):
        if piece.startswith("<p>"):
            builder.protect(piece[3:-4], piece)
        elif piece.startswith("</"):
            builder.close(piece)
        elif piece.endswith("/>"):
            builder.void(piece)
        elif piece.startswith("<"):
            builder.open(piece, _BEHAVIOR[piece[1]])
        else:
            builder.text(piece)
    return builder.build()


@st.composite
def segments(draw, *, copies=False):
    """Draws a segment; each span has unique markup."""
    builder = SegmentBuilder()
    names = []
    kinds = ["text", "text", "open", "close", "void", *(["protected"] if copies else [])]
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(kinds))
        if kind == "text":
            builder.text(draw(st.text("ab ,c1", min_size=1, max_size=6)))
        elif kind == "open":
            names.append(number)
            builder.open(f"<{number}>", draw(st.sampled_from(["once", "repeat"])))
        elif kind == "close" and names:
            builder.close(f"</{names.pop()}>")
        elif kind == "void":
            builder.void(f"<{number}/>")
        elif kind == "protected":
            builder.text(" ")
            builder.protect(f"{{x{number}}}", f"<{number}>x</{number}>")
            builder.text(" ")
    while names:
        builder.close(f"</{names.pop()}>")
    return builder.build()
