"""The beginning of tformer's pages: colors of light and dark grounds, basic type, and a policy."""

from html import escape
from importlib.resources import files


def base_style() -> str:
    """Reads the style sheet of every page, to go before its own."""
    return files("tformer_cli.figures").joinpath("page_style.css").read_text(encoding="utf-8")


def head_of_page(title: str, style: str) -> str:
    """Writes the beginning of a page without scripts, up to its body; it loads nothing.

    Args:
        title: of the page.
        style: its style sheet, whole.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="generator" content="tformer">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>"
    )
