"""The files of the live page: the static page without data, and the modules that make it live.

The scripts of the static page become one module, which exports the names that the live modules
import: they show answers with the same views as stored pages. There is no build step: the browser
gets the files as they are in the repository.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from tformer_cli.inspect.frame import live_frame, page_script, page_style, report_texts

TITLE = "tformer"
STYLE, PARTS, START = "style.css", "parts.js", "live.js"
_TYPES = {"css": "text/css", "js": "text/javascript"}
_IMPORTED = re.compile(r'^import \{ (.*?) \} from "./parts.js";$', re.MULTILINE)


class PageFile(NamedTuple):
    """A file, as sent to browsers."""

    content: bytes
    media_type: str


def exports_of(modules: Iterable[str], *more: str) -> str:
    """Writes the export statement of the static page's script: the names that modules import."""
    # Not all top-level names: in minified code, locals at the start of a line look the same
    imported = [group for text in modules for group in _IMPORTED.findall(text)]
    names = {*more, *", ".join(imported).split(", ")}
    return f"export {{ {', '.join(sorted(names))} }};\n"


@cache
def page_files() -> Mapping[str, PageFile]:
    """The files below ``/page/``, by name; the page itself has the name ""."""
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in files("tformer_cli.plugins.serve").joinpath("page").iterdir()
        if path.name.endswith((".js", ".css"))
    }
    texts[STYLE] = page_style() + texts.pop("live.css")
    texts[PARTS] = f"{page_script()}\n{exports_of(texts.values())}"
    assets = {
        name: PageFile(text.encode(), f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8")
        for name, text in texts.items()
    }
    # Relative, so that a proxy can serve it below a path
    page = live_frame(TITLE, report_texts(), f"page/{STYLE}", f"page/{START}")
    return {"": PageFile(page.encode(), "text/html; charset=utf-8"), **assets}
