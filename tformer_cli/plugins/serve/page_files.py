"""The files of the live page: the static page without data, and the modules that make it live.

The scripts of the static page become one module, which exports the names that the live modules
import: they show answers with the same views as stored pages. There is no build step: the browser
gets the files as they are in the repository.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from tformer_cli.inspect.frame import (
    PARTS,
    START,
    exports_of,
    live_frame,
    live_modules,
    live_style,
    page_script,
    report_texts,
)

TITLE = "tformer"
STYLE, CLIENT = "style.css", "client.js"
_TYPES = {"css": "text/css", "js": "text/javascript"}


class PageFile(NamedTuple):
    """A file, as sent to browsers."""

    content: bytes
    media_type: str


@cache
def page_files() -> Mapping[str, PageFile]:
    """The files below ``/page/``, by name; the page itself has the name ""."""
    client = files("tformer_cli.plugins.serve").joinpath("page", CLIENT)
    texts = live_modules({CLIENT: client.read_text(encoding="utf-8")})
    texts[PARTS] = f"{page_script()}\n{exports_of(texts.values())}"
    texts[STYLE] = live_style()
    assets = {
        name: PageFile(text.encode(), f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8")
        for name, text in texts.items()
    }
    # Relative, so that a proxy can serve it below a path
    page = live_frame(TITLE, report_texts(), f"page/{STYLE}", f"page/{START}")
    return {"": PageFile(page.encode(), "text/html; charset=utf-8"), **assets}
