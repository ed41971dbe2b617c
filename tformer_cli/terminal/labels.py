"""Tokens and words in the cells of a terminal: cut, filled and aligned by display width.

Wide characters take two cells and combining ones none. A text with letters that run from right to
left stands in directional isolates (Unicode Standard Annex 9), so that a terminal that turns it
round leaves its neighbors, and the columns, where they are. Where the terminal has no Unicode,
every character that ASCII lacks is shown as one that it has, before anything is measured.
"""

import unicodedata
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tformer_cli.data.labels import SPACE_LABEL, visible

ISOLATE, END_OF_ISOLATE = "\u2068", "\u2069"
RIGHT_TO_LEFT = ("R", "AL", "AN", "RLE", "RLO", "RLI")
"""Bidirectional classes of text that runs from right to left, and of marks that make it do so."""
ROOM_FOR_ELLIPSIS = 4
"""Cells from which on a text that is cut ends with an ellipsis."""
ASCII_SIGNS = str.maketrans(
    {
        "√": "sqrt ",
        "·": "*",
        "Σ": "sum",
        "−": "-",
        "∞": "inf",
        "÷": "/",
        "…": "..",
        "ᵀ": "^T",
        "μ": "mu",
        "σ": "sigma",
        "²": "^2",
        "ε": "eps",
        "γ": "gamma",
        "β": "beta",
        "✓": "ok",
        "█": "#",
        "→": ">",
        "▁": "_",
    }
)
"""ASCII forms of signs in formulas, for terminals that are not UTF-8."""
ASCII_FOR = str.maketrans({SPACE_LABEL: "_", "→": ">", "…": "~", "’": "'", "±": "+-", "–": "-"})


def is_ascii_only(console: Console) -> bool:
    """True if a console cannot show Unicode."""
    return not console.encoding.lower().startswith("utf")


def shown(text: str, *, is_ascii: bool) -> str:
    """A text as the terminal can show it, with control characters written out."""
    text = visible(text)
    if is_ascii:
        return text.translate(ASCII_FOR).encode("ascii", "replace").decode("ascii")
    return text


def isolated(text: str) -> str:
    """A text with isolates around it if it runs from right to left; they take no cells."""
    if any(unicodedata.bidirectional(character) in RIGHT_TO_LEFT for character in text):
        return f"{ISOLATE}{text}{END_OF_ISOLATE}"
    return text


def cut(text: str, width: int, *, is_ascii: bool = False) -> str:
    """Cuts a text to a number of cells, with an ellipsis where there is room for one.

    A character that would be halved is skipped.
    """
    text = text.replace("\t", " ")
    if cell_len(text) <= width:
        return text
    if width < ROOM_FOR_ELLIPSIS:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1).rstrip() + ("~" if is_ascii else "…")


def left_aligned(text: str, width: int) -> str:
    """A text in a field of this many cells, at its left."""
    kept = cut(text, width)
    return isolated(kept) + " " * (width - cell_len(kept))


def right_aligned(text: str, width: int) -> str:
    """A text in a field of this many cells, at its right."""
    kept = cut(text, width)
    return " " * (width - cell_len(kept)) + isolated(kept)


def sentence_lines(console: Console, sentences: Sequence[tuple[str, str]]) -> Table:
    """Sentences with their names before them, wrapped to the terminal, long words too."""
    is_ascii = is_ascii_only(console)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, sentence in sentences:
        grid.add_row(Text(name), Text(isolated(shown(sentence, is_ascii=is_ascii))))
    return grid
