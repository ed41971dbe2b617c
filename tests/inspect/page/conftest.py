"""Pages in a browser: a headless Chromium that reads a file and hands back what became of it."""

import html
import json
import os
import re
import subprocess
from dataclasses import dataclass
from shutil import which
from urllib.parse import unquote

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NOISE = re.compile(r"\bINFO:CONSOLE\b|\bERROR:CONSOLE\b|Uncaught|Content Security Policy")


@dataclass(frozen=True)
class Visit:
    """What became of a page."""

    dom: str
    """The document after its script has run."""
    console: list[str]
    """What the page said on the console."""

    @property
    def selftest(self):
        """What the test's own script has left."""
        text = re.search(r'<pre id="selftest">(.*?)</pre>', self.dom)[1]
        return json.loads(unquote(text))

    def text_of(self, id_):
        """The text of an element that holds no other of its kind."""
        inner = re.search(rf'<(\w+)[^>]* id="{id_}"[^>]*>(.*?)</\1>', self.dom, re.DOTALL)[2]
        return html.unescape(re.sub(r"<[^>]*>", "", inner))


@pytest.fixture(scope="session")
def browser():
    found = next(filter(None, map(which, (os.environ.get("BROWSER", ""), *BROWSERS))), None)
    if found is None:
        pytest.skip("there is no Chromium to open pages with")
    return found


@pytest.fixture
def visit(browser, tmp_path):
    """Opens a page from the disk, with no network, and waits until its script has run."""

    def visit_page(text, address="", script="", size="1280,900"):
        if script:
            before, end, after = text.rpartition("})();\n</script>")
            assert end
            text = before + script + end + after
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        run = subprocess.run(
            [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={tmp_path / 'profile'}",
                f"--window-size={size}",
                "--enable-logging=stderr",
                "--virtual-time-budget=120000",
                "--dump-dom",
                f"{path.as_uri()}{address}",
            ],
            capture_output=True,
            check=True,
            timeout=120,
        )
        said = run.stderr.decode("utf-8", "replace").splitlines()
        return Visit(run.stdout.decode("utf-8"), [line for line in said if NOISE.search(line)])

    return visit_page
