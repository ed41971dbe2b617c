"""What a console of a given width, encoding and kind shows."""

import io

from rich.console import Console


def draw_text(draw, *, width=80, encoding="utf-8", errors="strict", **options):
    """Returns the text that a function draws on a console."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)
    draw(Console(file=file, width=width, highlight=False, **options))
    file.flush()
    return file.buffer.getvalue().decode(encoding)
