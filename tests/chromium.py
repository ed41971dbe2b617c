"""Chromium, where there is one, and what axe-core finds in a page of it."""

from contextlib import contextmanager
from shutil import which

import pytest

CONTRAST = "color-contrast"


@contextmanager
def chromium():
    """Starts a browser; it has a loop of its own, so no test may begin another meanwhile."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = which("chromium")
    if path is None:
        pytest.skip("there is no Chromium to open pages with")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def violations(page, *rules, without=None):
    """Returns what axe-core finds against its rules, or some of them, and where."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    only = {"runOnly": list(rules)} if rules else {}
    only |= {"rules": {without: {"enabled": False}}} if without else {}
    results = axe.run(page, options={"resultTypes": ["violations"], **only}).response["violations"]
    return [
        (violation["id"], node["html"][:200], node["failureSummary"])
        for violation in results
        for node in violation["nodes"]
    ]
