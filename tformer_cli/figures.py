"""Pictures as PNG by matplotlib (the optional extra `png`): an empty figure, and its bytes."""

import io
import warnings
from typing import TYPE_CHECKING

from tformer_cli.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150
"""Resolution of the pictures."""


def new_figure(width: float, height: float) -> "Figure":
    """Makes an empty figure, of a size in inches.

    Raises:
        UsageError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError(
            "--format png: needs matplotlib; install it with pip install 'tformer[png]', "
            "or choose svg"
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def png_bytes(figure: "Figure", description: str = "") -> bytes:
    """Renders a figure; the same one gives the same bytes.

    Args:
        figure: the figure.
        description: what the picture shows, kept in its metadata; empty: nothing is kept.
    """
    file = io.BytesIO()
    with warnings.catch_warnings():
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        warnings.filterwarnings(
            "ignore", message="Matplotlib currently does not support .* natively"
        )
        # A text chunk of a PNG has a keyword of Latin letters; what it says may be any text.
        metadata = {"Software": "tformer"}
        if description:
            metadata["Description"] = description
        figure.savefig(file, format="png", dpi=DOTS_PER_INCH, metadata=metadata)
    return file.getvalue()
