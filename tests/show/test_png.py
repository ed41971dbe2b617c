"""Pictures as PNG: what is drawn as SVG, in pixels."""

import functools
import io
import struct
from xml.etree.ElementTree import SubElement

import numpy as np
import pytest

from tformer_cli.errors import UsageError
from tformer_cli.show import png
from tformer_cli.show.png import SHARPNESS, render_png
from tformer_cli.show.svg import draw_labels, draw_map, draw_text, new_svg, svg_text


def color_of(value):
    return "#ff0000" if value > 0.5 else "#0000ff"


def drawn(title="", label="$x$"):
    root = new_svg(title)
    draw_map(root, [[1.0, 0.0], [0.25, 1.0]], color_of, (20, 10), (10, 15))
    draw_labels(root, ((label, "b"), ("c", "d")), (20, 10), 10, 8)
    SubElement(root, "path", {"d": "M60 10H90V40", "stroke": "#008000", "fill": "none"})
    draw_text(root, "end", 90, 55, 10, anchor="end")
    return svg_text(root, 100, 60)


def pixels(picture):
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(io.BytesIO(picture)).convert("RGB"), int)


def test_the_same_figure_gives_the_same_bytes_and_keeps_its_description():
    pytest.importorskip("resvg_py")
    first, second, plain = map(render_png, (drawn("Zoë"), drawn("Zoë"), drawn()))
    assert first == second
    assert first.startswith(b"\x89PNG")
    assert (b"Description" in first, b"Description" in plain) == (True, False)


def test_every_cell_has_its_place_and_its_color():
    picture = render_png(drawn())
    size = struct.unpack(">II", picture[16:24])
    assert size == (100 * SHARPNESS, 60 * SHARPNESS)
    image = pixels(picture)

    def at(x, y):
        return tuple(image[y * SHARPNESS, x * SHARPNESS])

    assert at(25, 17) == at(35, 32) == (255, 0, 0)
    assert at(25, 32) == (0, 0, 255)
    assert at(35, 17) == at(5, 50) == (255, 255, 255)  # 0 is not drawn
    # a cell ends where the next begins, to the pixel
    row = image[17 * SHARPNESS, 20 * SHARPNESS + 2 : 40 * SHARPNESS - 2]
    edge = 10 * SHARPNESS - 2
    assert (row[: edge - 1] == (255, 0, 0)).all()
    assert (row[edge + 1 :] == 255).all()
    assert at(70, 10)[1] > max(at(70, 10)[0], at(70, 10)[2])  # a green line


def test_texts_are_written_where_they_end():
    image = pixels(render_png(drawn()))
    ink = np.argwhere(image[45 * SHARPNESS :].sum(axis=2) < 300)
    assert ink[:, 1].min() > 60 * SHARPNESS
    assert 85 * SHARPNESS < ink[:, 1].max() <= 91 * SHARPNESS


@pytest.mark.filterwarnings("error")
def test_a_character_without_a_glyph_is_no_warning():
    pytest.importorskip("resvg_py")
    assert render_png(drawn(label="漢\U0001f642שלום"))


def test_without_resvg_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setattr(png, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install 'tformer\[png\]'"):
        render_png(drawn())


def test_without_fonts_no_picture_lacks_its_text(monkeypatch):
    resvg = pytest.importorskip("resvg_py")
    assert png._has_fonts()
    bare = functools.partial(resvg.svg_to_bytes, skip_system_fonts=True)
    monkeypatch.setattr(resvg, "svg_to_bytes", lambda text, **_: bare(text))
    png._has_fonts.cache_clear()
    with pytest.raises(UsageError, match="this machine has no fonts"):
        render_png(drawn())
    png._has_fonts.cache_clear()
