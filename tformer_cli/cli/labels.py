"""Tokens and words in the cells of a terminal: cut, filled and aligned by display width.

Wide characters take two cells and combining ones none. A text with letters that run from right to
left stands in directional isolates (Unicode Standard Annex 9), so that a terminal that turns it
round leaves its neighbours, and the columns, where they are. Where the terminal has no Unicode,
every character that ASCII lacks is shown as one that it has, before anything is measured.
"""

import unicodedata

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from tformer_cli.data.labels import SPACE_LABEL, visible

ISOLATE, END_OF_ISOLATE = "\u2068", "\u2069"
RIGHT_TO_LEFT = ("R", "AL", "AN")
"""Bidirectional classes of letters and numbers that run from right to left, or go with them."""
ASCII_FOR = str.maketrans({SPACE_LABEL: "_", "→": ">", "…": "~", "’": "'"})


def is_ascii_only(console: Console) -> bool:
    """Whether a console cannot show Unicode."""
    return not console.encoding.lower().startswith("utf")


def shown(text: str, *, is_ascii: bool) -> str:
    """A text as the terminal can show it, which obeys nothing that stands in it."""
    text = visible(text)
    if is_ascii:
        return text.translate(ASCII_FOR).encode("ascii", "replace").decode("ascii")
    return text


def isolated(text: str) -> str:
    """A text with isolates around it if it runs from right to left; they take no cells."""
    if any(unicodedata.bidirectional(character) in RIGHT_TO_LEFT for character in text):
        return f"{ISOLATE}{text}{END_OF_ISOLATE}"
    return text


def cut(text: str, width: int) -> str:
    """Cuts a text to at most so many cells; a character that would be halved is left out."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width)


def left_aligned(text: str, width: int) -> str:
    """A text in a field of so many cells, at its left."""
    kept = cut(text, width)
    return isolated(kept) + " " * (width - cell_len(kept))


def right_aligned(text: str, width: int) -> str:
    """A text in a field of so many cells, at its right."""
    kept = cut(text, width)
    return " " * (width - cell_len(kept)) + isolated(kept)
