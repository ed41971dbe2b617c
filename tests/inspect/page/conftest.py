"""Pages in a browser: a headless Chromium that reads a file and hands back what became of it."""

import html
import json
import re
from dataclasses import dataclass
from urllib.parse import unquote

import pytest

from tests.chromium import chromium


@dataclass(frozen=True)
class Visit:
    """What became of a page."""

    dom: str
    """The document after its script has run."""
    console: list[str]
    """What the page said on the console."""
    overflow: int
    """Pixels that the page is wider than the window."""

    @property
    def selftest(self):
        """What the test's own script has left."""
        text = re.search(r'<pre id="selftest">(.*?)</pre>', self.dom)[1]
        return json.loads(unquote(text))

    def text_of(self, id_):
        """The text of an element that holds no other of its kind."""
        inner = re.search(rf'<(\w+)[^>]* id="{id_}"[^>]*>(.*?)</\1>', self.dom, re.DOTALL)[2]
        return html.unescape(re.sub(r"<[^>]*>", "", inner))


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def visit(browser, tmp_path):
    """Opens a page from the disk, with no network, and waits until its script has run."""

    def visit_page(text, address="", script="", size=(1280, 900)):
        if script:
            before, end, after = text.rpartition("})();\n</script>")
            assert end
            text = before + script + end + after
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        # A context for each visit, as pages keep their theme and the like
        viewport = dict(zip(("width", "height"), size, strict=True))
        with browser.new_context(offline=True, viewport=viewport) as context:
            page, console = context.new_page(), []
            page.on("pageerror", lambda error: console.append(str(error)))
            page.on("console", lambda message: console.append(message.text))
            page.goto(f"{path.as_uri()}{address}")
            if script:
                page.wait_for_selector("#selftest", state="attached")
            # What the page's own script left for the next frame
            page.evaluate(
                "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
            )
            overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            return Visit(page.content(), console, overflow)

    return visit_page
