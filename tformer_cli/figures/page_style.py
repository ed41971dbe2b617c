"""What all of tformer's pages have in common: colors of light and dark grounds, and basic type."""

from importlib.resources import files


def base_style() -> str:
    """Reads the style sheet of every page, to go before its own."""
    return files("tformer_cli.figures").joinpath("page_style.css").read_text(encoding="utf-8")
