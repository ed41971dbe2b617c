"""Pages without a script: one HTML file that opens from the disk with the network cut.

Everything a sentence brings passes through `escaped`; the page's policy lets nothing run and
nothing be fetched. The same data give the same bytes.
"""

import html
from importlib.resources import files


def render_page(title: str, body: str) -> str:
    """Puts a body, which is markup, into the page."""
    page = (
        files("tformer_cli.inspection.views")
        .joinpath("static_page.html")
        .read_text(encoding="utf-8")
    )
    before, between, after = page.replace("{{body}}", "{{title}}").split("{{title}}")
    whole = before + escaped(title) + between + body + after
    # Lone surrogates, from a shell's argument that is not UTF-8, have no place in a file.
    return whole.encode("utf-8", "replace").decode("utf-8")


def escaped(text: str) -> str:
    """Escapes a text for HTML and attributes; control characters become U+FFFD."""
    shown = "".join("\ufffd" if ord(c) < 32 and c not in "\t\n" else c for c in text)
    return html.escape(shown)


def chips(pieces: tuple[str, ...], marked: int | None = None) -> str:
    """Draws tokens in a row, one of them marked."""
    return "".join(
        f'<bdi class="chip{" on" if place == marked else ""}">{escaped(piece)}</bdi>'
        for place, piece in enumerate(pieces)
    )


def bar(share: float) -> str:
    """Draws a share of 1 as a cell with a bar."""
    return f'<td class="bar"><i style="width:{160 * share:.4g}px"></i></td>'
