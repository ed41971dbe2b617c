"""The page without its data: the frame, the style, the script, and texts that are always the same.

`page/page.html` is the frame, `page/style.css` the style, which follows that of all pages, and each
``.js`` does one job; joined in the order of `SCRIPTS` they are one script. The data are JSON in a
script element where every ``<`` is written ``\u003c``, so that no token can end the element.
A view with an interactive tab has a ``tab_NAME.js`` that calls ``addTab``, a row here, and data in
the sentence; the tabs of others are made of their blocks. Nothing here needs torch: the service has
the same page with other data.
"""

import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from tformer_cli.heads.roles import METRICS, ROLES
from tformer_cli.inspect.data import get_attributes
from tformer_cli.inspect.views import VIEWS
from tformer_cli.inspect.weighting import ALPHA, Weighting
from tformer_cli.show.html import base_style
from tformer_cli.show.palette import DARK_RAMPS, HUES, LIGHT_RAMPS

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
    "tab_decision.js",
    "tab_search.js",
    "tab_image.js",
    "tab_step.js",
    "tab_logits.js",
    "tab_flow.js",
    "tab_positions.js",
    "tab_ablation.js",
    "templates.js",
    "keyboard.js",
    "main.js",
)
"""The parts of the script, in their order; a tab stands where its place in the row of tabs is."""
_COMMENT = re.compile(r"^(\s*(//|/\*)| \*).*\n", re.MULTILINE)
_INDENTATION = re.compile(r"^\s+", re.MULTILINE)
_BLANKS_OF_STYLE = re.compile(r"(?<=[{};]) | (?=[{}])")
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>\n')
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
_LINKS = '<link rel="stylesheet" href="{style}">\n<link rel="icon" href="data:,">'
_SCRIPT = re.compile(r"<script>.*?</script>", re.DOTALL)
DATA_SLOT = "{{data}}"  # Place of the data in the frame


def fill_page(
    title: str, data: Mapping[str, object], scripts: Sequence[str] = (), templates: str = ""
) -> str:
    """Puts data, and the templates of `templates.js`, into the page.

    The same data give the same bytes: the page holds no time and no name of the machine.
    """
    before, after = empty_page(title, scripts).split(DATA_SLOT)
    before = before.replace("<noscript>", f"{templates}<noscript>")
    # Lone surrogates, from a shell's argument that is not UTF-8, have no place in a file.
    return (before + _as_json(data) + after).encode("utf-8", "replace").decode("utf-8")


def _as_json(data: Mapping[str, object]) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def empty_page(title: str, scripts: Sequence[str] = ()) -> str:
    page = _part("page.html").replace("{{title}}", title).replace("{{style}}", page_style())
    return page.replace("{{script}}", page_script(scripts))


def live_frame(title: str, data: Mapping[str, object], style: str, script: str) -> str:
    """Makes the page of a service: style and script are files, and the policy is a header's."""
    page = _part("page.html").replace("{{title}}", title)
    page = _POLICY.sub("", page)
    page = _STYLE.sub(_LINKS.format(style=style), page)
    page = _SCRIPT.sub(f'<script type="module" src="{script}"></script>', page)
    texts = {"model": None, "sentences": [], **data}
    return page.replace(DATA_SLOT, _as_json(texts))


def page_style() -> str:
    style = _plain(base_style()) + _part("style.css")
    return _BLANKS_OF_STYLE.sub("", style).rstrip()


def page_script(scripts: Sequence[str] = ()) -> str:
    """Joins the parts, with scripts of views before those that begin."""
    *parts, last, main = map(_part, SCRIPTS)
    return "\n".join([*parts, *scripts, last, main]).rstrip()


def _part(name: str) -> str:
    return _plain(files("tformer_cli.inspect").joinpath("page", name).read_text(encoding="utf-8"))


def _plain(text: str) -> str:
    """Leaves comments and indentation out of a part: they would be a fifth of the code.

    No text of the parts goes over the end of a line, and comments have lines of their own.
    """
    return _INDENTATION.sub("", _COMMENT.sub("", text))


def page_texts(weighting: Weighting) -> dict[str, Any]:
    return {
        "weighting": get_attributes(
            weighting, "name meaning source sums residual isOfLayers=is_of_layers isShare=is_share"
        ),
        "conventions": weighting.conventions,
        "kinds": weighting.kind_names,
        "metrics": {name: measure._asdict() for name, measure in METRICS.items()},
        "roles": {rule.role: rule.meaning for rule in ROLES},
        "ramps": {"light": LIGHT_RAMPS, "dark": DARK_RAMPS},
        "hues": HUES,
    }


def report_texts() -> dict[str, Any]:
    terms = {
        name: {"label": label, "meaning": meaning}
        for view in VIEWS.values()
        for name, (label, meaning) in view.terms.items()
    }
    return page_texts(ALPHA) | {"terms": terms}
