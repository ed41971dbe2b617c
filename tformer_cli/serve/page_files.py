"""The files of the live page: the static page without data, and what makes it live.

The static page's script is joined to one file here, too. As a module it hands out what the live
parts, which are modules, import of it: they show answers by the views of stored ones.
There is no build: what a checkout holds is what a browser reads.
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
    """A file as it is sent."""

    content: bytes
    media_type: str


def exports_of(modules: Iterable[str], *more: str) -> str:
    """Writes which names the static page's script exports: those that modules import of it."""
    # Not all that stands there: shortened, locals at the beginning of a line look alike
    imported = [group for text in modules for group in _IMPORTED.findall(text)]
    names = {*more, *", ".join(imported).split(", ")}
    return f"export {{ {', '.join(sorted(names))} }};\n"


@cache
def page_files() -> Mapping[str, PageFile]:
    """The files below ``/page/``, and the page itself by the name ""."""
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in files("tformer_cli.serve").joinpath("page").iterdir()
        if path.name.endswith((".js", ".css"))
    }
    texts[STYLE] = page_style() + texts.pop("live.css")
    texts[PARTS] = f"{page_script()}\n{exports_of(texts.values())}"
    assets = {
        name: PageFile(text.encode(), f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8")
        for name, text in texts.items()
    }
    # Relative, so that a proxy may put the service below a path
    page = live_frame(TITLE, report_texts(), f"page/{STYLE}", f"page/{START}")
    return {"": PageFile(page.encode(), "text/html; charset=utf-8"), **assets}
