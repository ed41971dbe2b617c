"""The colors of lines and maps."""

# Colors that people with any kind of color vision tell apart (Okabe & Ito 2008, "Color Universal
# Design").
OKABE_ITO = {
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "sky": "#56b4e9",
    "orange": "#e69f00",
    "yellow": "#f0e442",
}
_BLUE, _VERMILION, _GREEN, _PURPLE, _SKY, _ORANGE, _ = OKABE_ITO.values()
# Colors of lines on a light ground: without their yellow, which white swallows.
LIGHT_LINES = (_BLUE, _VERMILION, _GREEN, "#b25e8e", _ORANGE, _SKY, "#24292f")
DARK_LINES = ("#4ea8e0", "#ff8a4c", "#35c79e", "#e39cc8", "#f2b844", "#9ad7fa", "#e6edf3")
"""The same hues on a dark ground, lighter."""
TERMINAL_LINES = ("blue", "red", "green", "magenta", "yellow", "cyan", "default")
"""The nearest of a terminal's own colors."""
# Colors of several heads on a page; yellow and black are changed where the ground would swallow
# them.
HUES = {
    "light": (_BLUE, _VERMILION, _GREEN, _PURPLE, _SKY, "#b38600", _ORANGE, "#555555"),
    "dark": (_SKY, "#ff8a3d", "#2fcf9f", "#e79ac4", "#7d9bff", "#f0e442", "#e6a532", "#b9bec8"),
}
# After the last color they repeat with another dash, written as in SVG.
DASHES = ("", "6 3", "2 3")
# Lightness changes steadily, so that a map can be read without seeing its hue.
LIGHT_RAMPS: dict[str, tuple[str, ...]] = {
    "enc": ("#ffffff", "#dbe7fb", "#8fb6f3", "#3f78d8", "#183f8c", "#0a1c47"),
    "dec": ("#ffffff", "#fde7d2", "#f6b777", "#d97a22", "#94460c", "#4a1f04"),
    "cross": ("#ffffff", "#d5f1eb", "#7ecfbf", "#259a8b", "#0c6059", "#04302e"),
}
"""For each kind the colors at weights 0, 0.2, … 1 on a light ground."""
DARK_RAMPS: dict[str, tuple[str, ...]] = {
    "enc": ("#161b26", "#1d3460", "#3062b3", "#6d9ef1", "#b9d3ff", "#f4f8ff"),
    "dec": ("#161b26", "#4c2c10", "#97551c", "#e18c3d", "#ffc996", "#fff5e9"),
    "cross": ("#161b26", "#103f3c", "#19786d", "#3fc1ad", "#9debdc", "#f1fffc"),
}
"""The same on a dark ground."""
# Largest share of a ramp for differences: the ends of blue and orange are too dark, or too light,
# to distinguish.
SIGNED_STRENGTH = 0.8


def color(kind: str, weight: float, *, on_dark: bool = False) -> tuple[int, int, int]:
    """Returns the red, green and blue (0 to 255) of a weight on a light or a dark ground."""
    # linear between two stops: six stops keep lightness steady
    ramp = DARK_RAMPS[kind] if on_dark else LIGHT_RAMPS[kind]
    place = min(max(weight, 0.0), 1.0) * (len(ramp) - 1)
    low = min(int(place), len(ramp) - 2)
    share = place - low
    start, end = _channels(ramp[low]), _channels(ramp[low + 1])
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(start, end, strict=True))
    return red, green, blue


def signed_color(value: float, *, on_dark: bool = False) -> tuple[int, int, int]:
    """Returns the color of a difference from -1 (blue) through 0 (the ground) to 1 (orange)."""
    # color-blind readers who confuse red and green distinguish orange and blue
    strength = SIGNED_STRENGTH * min(abs(value), 1.0)
    return color("dec" if value > 0 else "enc", strength, on_dark=on_dark)


def hex_color(kind: str, weight: float) -> str:
    """Returns the color of a weight on a light ground as ``#rrggbb``."""
    return "#{:02x}{:02x}{:02x}".format(*color(kind, weight))


def signed_hex_color(value: float) -> str:
    """Returns the color of a difference on a light ground as ``#rrggbb``."""
    return "#{:02x}{:02x}{:02x}".format(*signed_color(value))


def ink_on(red: int, green: int, blue: int) -> str:
    """Returns black or white, whichever is legible on a ground (0 to 255)."""
    # luma (ITU-R BT.601), for the eye sees green as brighter than blue
    return "#0c0f16" if 0.3 * red + 0.59 * green + 0.11 * blue > 140 else "#ffffff"


def style_of_line(number: int) -> tuple[int, str]:
    return number % len(LIGHT_LINES), DASHES[number // len(LIGHT_LINES) % len(DASHES)]


def _channels(hex_code: str) -> tuple[int, int, int]:
    return int(hex_code[1:3], 16), int(hex_code[3:5], 16), int(hex_code[5:7], 16)
