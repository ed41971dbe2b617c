"""The colors of runs, distinguishable with any color vision.

Light grounds: the palette of Okabe & Ito 2008, "Color Universal Design", without its yellow, which
white swallows. Dark grounds: the same hues, lighter.
"""

LIGHT = ("#0072b2", "#d55e00", "#009e73", "#b25e8e", "#e69f00", "#56b4e9", "#24292f")
DARK = ("#4ea8e0", "#ff8a4c", "#35c79e", "#e39cc8", "#f2b844", "#9ad7fa", "#e6edf3")
DASHES = ("", "6 3", "2 3")
"""After the last color they repeat with another dash, written as in SVG."""
TERMINAL = ("blue", "red", "green", "magenta", "yellow", "cyan", "default")
"""The nearest of a terminal's own colors."""


def style_of(run: int) -> tuple[int, str]:
    """Returns the index of a run's color, and its dash."""
    return run % len(LIGHT), DASHES[run // len(LIGHT) % len(DASHES)]
