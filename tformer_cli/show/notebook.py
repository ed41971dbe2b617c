"""Results as tables in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Makes a table; notebooks bring the style. A number has four decimal places."""
    from html import escape  # its table of names takes long to load

    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    # dir: each text runs in the direction of its own script
    return (
        f'<table dir="auto"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
