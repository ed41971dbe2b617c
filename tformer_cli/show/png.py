"""Pixels as PNG by the standard library; figures of `show.svg` by matplotlib (extra `png`).

Of SVG 1.1 it reads what our figures use and no more: groups that move and scale, rect,
circle, path of straight lines, text that may be turned, and rules of a style sheet by element or
class, those for light ground.
"""

import io
import re
import struct
import warnings
import zlib
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.path import Path
    from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOR_TYPES = {1: 0, 3: 2}
PIXELS_PER_INCH = 96
"""Pixels of SVG."""
SHARPNESS = 2
"""Pixels of the picture for each of SVG: an even number keeps the cells of maps sharp."""
POINTS_PER_PIXEL = 72 / PIXELS_PER_INCH
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_TRANSFORM = re.compile(r"(\w+)\(([^)]*)\)")
_COMMAND = re.compile(r"([MLHVhvlz])([^MLHVhvlz]*)")
_ALIGNED = {"": "left", "middle": "center", "end": "right"}
Style = Mapping[str, str]


def png_of(pixels: "NDArray[np.uint8]", *, is_signed: bool = False) -> bytes:
    """Writes pixels (H, W, 1) as a gray, (H, W, 3) as a colored PNG of 8 bits a channel.

    Signed, it says that tformer wrote it.

    Source: W3C, "Portable Network Graphics (PNG) Specification", sections 5 and 11.
    """
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each row unfiltered
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    if is_signed:
        parts.insert(1, (b"tEXt", b"Software\0tformer"))
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )


def check_png() -> None:
    """Checks that figures can be drawn."""
    if find_spec("matplotlib") is None:
        raise UsageError(
            "--format png: needs matplotlib; install it with pip install 'tformer[png]', "
            "or choose svg"
        )


def render_png(svg: str) -> bytes:
    """Renders a figure; the same one gives the same bytes."""
    check_png()
    from matplotlib.figure import Figure
    from matplotlib.transforms import Affine2D

    root = ET.fromstring(svg)  # noqa: S314 - drawn by us
    width, height = float(root.get("width", "1")), float(root.get("height", "1"))
    figure = Figure(figsize=(width / PIXELS_PER_INCH, height / PIXELS_PER_INCH))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(0.0, width)
    axes.set_ylim(height, 0.0)  # SVG counts downwards
    _draw(axes, root, Affine2D(), _rules(root))
    words = [one.text or "" for one in root if _name(one) in ("title", "desc")]
    # A text chunk of a PNG has a keyword of Latin letters; what it says may be any text.
    metadata = {"Software": "tformer", "Description": "\n".join(words) or None}
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        warnings.filterwarnings(
            "ignore", message="Matplotlib currently does not support .* natively"
        )
        figure.savefig(file, format="png", dpi=SHARPNESS * PIXELS_PER_INCH, metadata=metadata)
    return file.getvalue()


def _draw(axes: "Axes", parent: Element, place: Any, rules: Mapping[str, Style]) -> None:  # noqa: ANN401 - a transform
    """Draws the children of an element, moved and scaled by `place`."""
    from matplotlib.patches import PathPatch

    is_crisp = parent.get("shape-rendering") == "crispEdges"
    for element in parent:
        style = _style_of(element, rules)
        kind = _name(element)
        if kind == "g":
            _draw(axes, element, _moved(element.get("transform", "")) + place, rules)
        elif kind == "text":
            _write(axes, element, place, style)
        elif (outline := _outline(element)) is not None:
            fill, stroke = style.get("fill", "black"), style.get("stroke", "none")
            width = float(style.get("stroke-width", "1"))
            dashes = [float(part) / width for part in style.get("stroke-dasharray", "").split()]
            patch = PathPatch(
                outline.transformed(place),
                facecolor=fill,
                edgecolor=stroke,
                linewidth=width * POINTS_PER_PIXEL if stroke != "none" else 0.0,
                linestyle=(0, dashes) if dashes else "-",
                antialiased=not is_crisp,
                clip_on=False,
            )
            axes.add_artist(patch)


def _outline(element: Element) -> "Path | None":
    """The outline of a shape; None of what is not drawn, such as a title."""
    from matplotlib.path import Path

    def number(name: str) -> float:
        return float(element.get(name, "0"))

    kind = _name(element)
    if kind == "rect":
        if element.get("width") == "100%":
            return Path([(0, 0), (1e5, 0), (1e5, 1e5), (0, 1e5), (0, 0)], closed=True)
        left, top = number("x"), number("y")
        right, bottom = left + number("width"), top + number("height")
        corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
        return Path(corners, closed=True)
    if kind == "circle":
        return Path.circle((number("cx"), number("cy")), number("r"))
    return _lines(element.get("d", "")) if kind == "path" else None


def _lines(data: str) -> "Path":
    """Reads the straight lines of a path's ``d``."""
    from matplotlib.path import Path

    points: list[tuple[float, float]] = []
    codes: list[Any] = []
    x = y = 0.0
    for command, text in _COMMAND.findall(data):
        numbers = [float(part) for part in text.replace(",", " ").split()]
        if command == "z":
            points.append((x, y))
            codes.append(Path.CLOSEPOLY)
            continue
        if command in "Hh":
            x = numbers[0] + (x if command == "h" else 0.0)
        elif command in "Vv":
            y = numbers[0] + (y if command == "v" else 0.0)
        else:
            is_relative = command == "l"
            x, y = (n + (p if is_relative else 0.0) for n, p in zip(numbers, (x, y), strict=True))
        points.append((x, y))
        codes.append(Path.MOVETO if command == "M" else Path.LINETO)
    return Path(points or [(0.0, 0.0)], codes or None)


def _write(axes: "Axes", element: Element, place: Any, style: Style) -> None:  # noqa: ANN401 - a transform
    """Writes a text at its anchor; a turn about it is all that a text's own transform may be."""
    x, y = place.transform((float(element.get("x", "0")), float(element.get("y", "0"))))
    turn = re.match(r"rotate\((-?[\d.]+)", element.get("transform", ""))
    axes.text(
        x,
        y,
        element.text or "",
        fontsize=float(style.get("font-size", "12")) * POINTS_PER_PIXEL,
        color=style.get("fill", "black"),
        fontweight="bold" if style.get("font-weight") == "600" else "normal",
        ha=_ALIGNED[style.get("text-anchor", "")],
        va="baseline",
        rotation=-float(turn[1]) if turn else 0.0,
        rotation_mode="anchor",
        parse_math=False,  # a "$" is a letter like another
    )


def _moved(text: str) -> Any:  # noqa: ANN401 - a transform
    """Reads translate(x y) and scale(s) or scale(x y); the last one is applied first."""
    from matplotlib.transforms import Affine2D

    place = Affine2D()
    for name, values in reversed(_TRANSFORM.findall(text)):
        numbers = [float(part) for part in values.split()]
        place = place.scale(*numbers) if name == "scale" else place.translate(*numbers)
    return place


def _rules(root: Element) -> dict[str, dict[str, str]]:
    """Rules of the style sheet, by selector: an element's name, or a class with its point."""
    sheet = next((one.text or "" for one in root if _name(one) == "style"), "")
    found: dict[str, dict[str, str]] = {}
    for selectors, body in _RULE.findall(sheet.split("@media")[0]):
        style = dict(part.split(":", 1) for part in body.split(";") if ":" in part)
        if size := re.match(r"([\d.]+)px", style.pop("font", "") or style.get("font-size", "")):
            style["font-size"] = size[1]
        for selector in selectors.split(","):
            found.setdefault(selector.strip(), {}).update(style)
    return found


def _style_of(element: Element, rules: Mapping[str, Style]) -> dict[str, str]:
    """Style of an element: its attributes, then what the style sheet says, which counts more."""
    names = [_name(element), *(f".{name}" for name in element.get("class", "").split())]
    style = dict(element.attrib)
    for name in names:
        style.update(rules.get(name, {}))
    return style


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]
