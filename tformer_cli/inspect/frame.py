"""The page without its data: the frame, the style, the script, and texts that are always the same.

`page/page.html` is the frame, `page/style.css` the style, which follows that of all pages, and each
``.js`` does one job; joined in the order of `SCRIPTS` they are one script. The data are JSON in a
script element where every ``<`` is written ``\u003c``, so that no token can end the element.
A view with an interactive tab has a ``tab_NAME.js`` that calls ``addTab``, a row here, and data in
the sentence; the tabs of others are made of their blocks. Nothing here needs torch.

The live page is this page with modules in `live_page`, which show answers with the same views.
Who answers is the module ``client.js``: that of a service asks it, that of an exported page
computes. A service sends the modules as they are; `live_page` joins them to one file.
"""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
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
_COMMENT = re.compile(r"^\s*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)\n", re.MULTILINE)
_INDENTATION = re.compile(r"^\s+", re.MULTILINE)
_BLANKS_OF_STYLE = re.compile(r"(?<=[{};]) | (?=[{}])")
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>\n')
_STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
_IMPORTED = re.compile(r'^import \{ (.*?) \} from "./parts.js";$', re.MULTILINE)
_IMPORT = re.compile(
    r'^import (?:\{([^}]*)\}|\* as (\w+)) from "\./(?:\w+/)*(\w+\.js)";\n', re.MULTILINE
)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
_LINKS = '<link rel="stylesheet" href="{style}">\n<link rel="icon" href="data:,">'
_SCRIPT = re.compile(r"<script>.*?</script>", re.DOTALL)
_HASHES = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    'script-src {script}; style-src {style}; img-src data:">\n'
)
_RUN_CODE = """(async () => {
  const packed = atob(document.getElementById("code").textContent);
  const bytes = Uint8Array.from(packed, letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.body.append(script);
})();
"""
PARTS, START = "parts.js", "live.js"  # The static page's script as a module; the first module
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


def live_modules(client: Mapping[str, str]) -> dict[str, str]:
    """Returns the modules of the live page by their names, with those of a client."""
    folder = files("tformer_cli.inspect").joinpath("live_page")
    paths = (path for path in folder.iterdir() if path.name.endswith(".js"))
    return {path.name: path.read_text(encoding="utf-8") for path in paths} | dict(client)


def live_style() -> str:
    part = files("tformer_cli.inspect").joinpath("live_page", "live.css")
    return page_style() + part.read_text(encoding="utf-8")


def exports_of(modules: Iterable[str], *more: str) -> str:
    """Writes the export statement of the static page's script: the names that modules import."""
    # Not all top-level names: in minified code, locals at the start of a line look the same
    imported = [group for text in modules for group in _IMPORTED.findall(text)]
    names = {*more, *", ".join(imported).split(", ")}
    return f"export {{ {', '.join(sorted(names))} }};\n"


OUR_PAGE = '<meta name="generator" content="tformer">'
EXPORTED_PAGE = '<meta name="generator" content="tformer export">'
"""The same line of a page with a model inside, which another export may replace."""


def live_page(
    title: str,
    data: Mapping[str, object],
    modules: Mapping[str, str],
    blocks: Mapping[str, str],
) -> str:
    """Makes the live page as one file, which needs no service.

    Its script, compressed to two fifths, is unpacked and run by a short one; the policy names both.

    Args:
        title: Its title.
        data: The texts of the page.
        modules: The modules by their names, with ``live.js``, which starts.
        blocks: Texts that elements of these names hold, in base64 or plain letters.
    """
    code = f'(() => {{\n"use strict";\n{page_script()}\n{join_modules(modules, START)}}})();\n'
    style = f"\n{_BLANKS_OF_STYLE.sub('', _plain(live_style())).rstrip()}\n"
    hashes = {"script": f"{_hash_of(_RUN_CODE)} {_hash_of(code)}", "style": _hash_of(style)}
    policy = _HASHES.format(**hashes)
    packed = base64.b64encode(gzip.compress(code.encode("utf-8"), 9, mtime=0)).decode("ascii")
    elements = [
        f'<script type="text/plain" id="{name}">{text}</script>\n'
        for name, text in {**blocks, "code": packed}.items()
    ]
    # A name is not ours: it must not open an element or a slot
    page = _part("page.html").replace("{{title}}", escape(title).replace("{", "&#123;"))
    page = _POLICY.sub(lambda _: policy, page.replace(OUR_PAGE, EXPORTED_PAGE))
    page = _STYLE.sub(lambda _: f"<style>{style}</style>", page)
    page = _SCRIPT.sub(lambda _: f"{''.join(elements)}<script>{_RUN_CODE}</script>", page)
    return page.replace(DATA_SLOT, _as_json({"model": None, "sentences": [], **data}))


def join_modules(modules: Mapping[str, str], start: str) -> str:
    """Joins modules to one script, each after those that it imports.

    Each becomes a function that returns what the module exports. Names of ``parts.js`` stay as they
    are: the script stands behind the static page's, whose names it sees.
    """
    joined: dict[str, str] = {}

    def add_module(name: str) -> None:
        imports = {module for *_, module in _IMPORT.findall(modules[name])} - {PARTS}
        for imported in sorted(imports - joined.keys()):
            add_module(imported)
        text = _plain(_IMPORT.sub(_import_line, modules[name]))
        exported = ", ".join(_EXPORT.findall(text))
        text = _EXPORT.sub("", text)
        joined[name] = (
            f"const {_variable(name)} = (() => {{\n{text}return {{ {exported} }};\n}})();\n"
        )

    add_module(start)
    return "".join(joined.values())


def _import_line(match: re.Match[str]) -> str:
    names, whole, module = match.groups()
    if module == PARTS:
        return ""
    names = whole or f"{{{names.replace(' as ', ': ')}}}"
    return f"const {names} = {_variable(module)};\n"


def _variable(module: str) -> str:
    return f"{module.removesuffix('.js')}Module"


def _hash_of(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest())
    return f"'sha256-{digest.decode('ascii')}'"


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
