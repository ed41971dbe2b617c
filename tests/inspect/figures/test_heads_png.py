import struct

import pytest

from tformer_cli.errors import UsageError
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.figures.heads_svg import render_svg
from tformer_cli.show import png
from tformer_cli.show.png import render_png


def test_without_resvg_the_extra_is_named(record, monkeypatch):
    monkeypatch.setattr(png, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install 'tformer\[png\]'"):
        render_png(render_svg(record))


def test_a_png_is_the_same_every_time_whatever_the_tokens(make_record):
    pytest.importorskip("resvg_py")
    heads = (HeadId("enc", 0, 0), HeadId("cross", 1, 1))
    record = make_record(source=("$x$", "漢", "\\frac{"), target=("שלום",), heads=heads)
    picture = render_png(render_svg(record))
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    assert width > 200
    assert height > 200
    assert render_png(render_svg(record)) == picture
