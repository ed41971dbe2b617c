"""Formats of figures, each made from SVG; a view or command that draws has them all."""

from collections.abc import Callable
from typing import NamedTuple

from tformer_cli.show.pdf import check_pdf, render_pdf
from tformer_cli.show.png import check_png, render_png


class FigureFormat(NamedTuple):
    """A format of figures."""

    render: Callable[[str], str | bytes]
    check: Callable[[], object]
    """Raises UsageError where a package or font is missing."""


FIGURES = {
    "svg": FigureFormat(str, str),
    "png": FigureFormat(render_png, check_png),
    "pdf": FigureFormat(render_pdf, check_pdf),
}
