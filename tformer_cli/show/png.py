"""Pixels as PNG by the standard library; figures of `show.svg` by resvg (extra `png`)."""

import struct
import zlib
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tformer_cli.errors import UsageError
from tformer_cli.show.svg import description_lines
from tformer_cli.wording import installing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOR_TYPES = {1: 0, 3: 2}
_SOFTWARE = (b"tEXt", b"Software\0tformer")
SHARPNESS = 2
"""Pixels of the picture for each of SVG: an even number keeps the cells of maps sharp."""
FIGURE_FONT = "DejaVu Sans"
"""It has the symbols of our formulas: a line with one that a font lacks goes to another font."""
_LETTER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">'
    f'<text y="15" font-family="{FIGURE_FONT}">M</text></svg>'
)


def png_of(pixels: "NDArray[np.uint8]", *, is_signed: bool = False) -> bytes:
    """Writes pixels (H, W, 1) as a gray, (H, W, 3) as a colored PNG of 8 bits a channel.

    Source: W3C, "Portable Network Graphics (PNG) Specification", sections 5 and 11.
    """
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each row unfiltered
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    if is_signed:
        parts.insert(1, _SOFTWARE)
    return _SIGNATURE + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    checked = kind + content
    return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))


def check_png() -> None:
    """Checks that figures can be drawn."""
    if find_spec("resvg_py") is None:
        raise UsageError(
            f"--format png: needs resvg; install it with {installing('png')}, or choose svg"
        )
    if not _has_fonts():
        raise UsageError(
            "--format png: this machine has no fonts to write text with; install some, such as "
            "DejaVu Sans, or choose svg"
        )


@cache
def _has_fonts() -> bool:
    """Returns whether a letter leaves a mark: without fonts resvg draws no text, silently."""
    from resvg_py import svg_to_bytes

    return svg_to_bytes(_LETTER) != svg_to_bytes(_LETTER, skip_system_fonts=True)


def render_png(svg: str) -> bytes:
    """Renders a figure; the same one gives the same bytes."""
    check_png()
    from resvg_py import svg_to_bytes

    picture = svg_to_bytes(svg, zoom=SHARPNESS, sans_serif_family=FIGURE_FONT)
    chunks = _chunk(*_SOFTWARE)
    if lines := description_lines(svg):
        text = "\n".join(lines).encode()
        chunks += _chunk(b"iTXt", b"Description\0\0\0\0\0" + text)  # UTF-8, not compressed
    # the header, 25 bytes, must be the first chunk (W3C, section 5.6)
    behind_header = len(_SIGNATURE) + 25
    return picture[:behind_header] + chunks + picture[behind_header:]
