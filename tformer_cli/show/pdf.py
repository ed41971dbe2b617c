"""Figures of `show.svg` as PDF by Typst (extra `pdf`): vectors, text to copy, embedded fonts."""

from importlib.util import find_spec

from tformer_cli.errors import UsageError
from tformer_cli.show.png import FIGURE_FONT
from tformer_cli.show.svg import description_lines
from tformer_cli.wording import installing

# Without a date, a figure always gives the same bytes. Typst brings fonts, where there are none.
_DOCUMENT = f"""\
#set document(title: sys.inputs.title, keywords: "tformer", date: none)
#set page(width: auto, height: auto, margin: 0pt)
#set text(font: "{FIGURE_FONT}")
#image(bytes(sys.inputs.svg), format: "svg", alt: sys.inputs.description)
"""


def check_pdf() -> None:
    """Checks that figures can be written."""
    if find_spec("typst") is None:
        raise UsageError(
            f"--format pdf: needs typst; install it with {installing('pdf')}, or choose svg"
        )


def render_pdf(svg: str) -> bytes:
    """Renders a figure as a page of its size; the same one gives the same bytes."""
    check_pdf()
    from typst import compile as compile_typst

    lines = description_lines(svg)
    inputs = {"svg": svg, "title": "".join(lines[:1]), "description": "\n".join(lines)}
    return compile_typst(_DOCUMENT.encode(), format="pdf", sys_inputs=inputs)
