r"""The page with a script: one HTML file put together from the parts in `page/`, and its data.

`page/page.html` is the frame, `page/style.css` the style, which follows that of all pages, and each
``.js`` does one job; joined in the order of `SCRIPTS` they are one script. The data are JSON in a
script element where every ``<`` is written ``\u003c``, so that no token can end the element.
Whoever adds a view writes a ``tab_NAME.js`` that calls ``addTab``, lists it here, and puts its data
into the sentence.
"""

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

from tformer_cli.show.html import base_style

SCRIPTS = (
    "dom.js",
    "data.js",
    "state.js",
    "colors.js",
    "filter.js",
    "terms.js",
    "overview.js",
    "sentences.js",
    "figure_parts.js",
    "heat_map.js",
    "lines.js",
    "figures.js",
    "hover.js",
    "measures.js",
    "reading.js",
    "products.js",
    "save.js",
    "tabs.js",
    "tab_search.js",
    "tab_image.js",
    "tab_steps.js",
    "tab_logits.js",
    "tab_flow.js",
    "tab_positions.js",
    "tab_ablation.js",
    "tab_diff.js",
    "tab_timeline.js",
    "keyboard.js",
    "main.js",
)
"""The parts of the script, in their order; a tab stands where its place in the row of tabs is."""
_COMMENT = re.compile(r"^(\s*(//|/\*)| \*).*\n", re.MULTILINE)
_INDENTATION = re.compile(r"^\s+", re.MULTILINE)
_BLANKS_OF_STYLE = re.compile(r"(?<=[{};]) | (?=[{}])")
DATA_SLOT = "{{data}}"
"""Place of the data in the frame."""


def fill_page(title: str, data: Mapping[str, object], scripts: Sequence[str] = ()) -> str:
    """Puts data into the page.

    The same data give the same bytes: the page holds no time and no name of the machine.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    before, after = empty_page(title, scripts).split(DATA_SLOT)
    # Lone surrogates, from a shell's argument that is not UTF-8, have no place in a file.
    return (before + text + after).encode("utf-8", "replace").decode("utf-8")


def empty_page(title: str, scripts: Sequence[str] = ()) -> str:
    """Puts the parts of the page together, other parts of the script behind those of the tabs."""
    page = _part("page.html").replace("{{title}}", title)
    style = _plain(base_style()) + _part("style.css")
    page = page.replace("{{style}}", _BLANKS_OF_STYLE.sub("", style).rstrip())
    *parts, last, main = map(_part, SCRIPTS)
    return page.replace("{{script}}", "\n".join([*parts, *scripts, last, main]).rstrip())


def _part(name: str) -> str:
    return _plain(files("tformer_cli.inspect").joinpath("page", name).read_text(encoding="utf-8"))


def _plain(text: str) -> str:
    """Leaves comments and indentation out of a part: they would be a fifth of the code.

    No text of the parts goes over the end of a line, and comments have lines of their own.
    """
    return _INDENTATION.sub("", _COMMENT.sub("", text))
