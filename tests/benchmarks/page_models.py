"""Exported pages of models of all kinds in a browser, compared with the commands.

    python tests/benchmarks/page_models.py NAME=MODEL:TEXTS ... [--lines 100] [--seconds 60]

Each model is exported twice, in float32 and as int10, and both pages are opened in Chromium from
their files, without a network. What a page answers to the lines of TEXTS (translations, labels,
tags, filled gaps, continuations of a greedy search; of vectors: none of whose numbers differs by
1e-4) is compared with the Python API in float32, and the weights of all heads in five lines, in
float32, with those that PyTorch computes. A page gets no line after its --seconds. It needs
`playwright`, `axe-playwright-python` and a Chromium.
"""

import argparse
import statistics
import time
from itertools import islice
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

import numpy as np
from axe_playwright_python.sync_playwright import Axe
from harness import print_table
from playwright.sync_api import sync_playwright

import tformer_cli
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.kinds import kind_of
from tformer_cli.plugins.page.export import export_page
from tformer_cli.text.lines import read_lines

N_HEADS_LINES, TOLERANCE, OPENING = 5, 1e-4, 120_000
RUN = """
async text => {
    const begun = performance.now(), { heads, ...answer } = await tformer.run({ text });
    return { ...answer, milliseconds: performance.now() - begun };
}
"""
HEADS = "async text => (await tformer.run({ text })).heads"
ANSWERS = {
    "translate": ("translation", lambda answer: answer.text),
    "classify": ("label", lambda answer: answer.label),
    "tag": ("labels", lambda answer: [word.label for word in answer.words]),
    "fill": ("filled", lambda answer: answer.filled),
    "embed": ("embedding", lambda answer: answer.vector),
    "generate": ("continuation", lambda answer: answer.texts[0].text),
}
"""By a verb: the name of the page's answer, and how that of the Python API is read."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL:TEXTS")
    parser.add_argument("--lines", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    rows = []
    with sync_playwright() as started, TemporaryDirectory() as folder:
        browser = started.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        for argument in options.models:
            name, _, places = argument.partition("=")
            model, _, texts = places.rpartition(":")
            lines = [line for line in read_lines(Path(texts)) if line.strip()][: options.lines]
            row = compare(browser, Path(model), lines, Path(folder), options.seconds)
            rows.append((name, *row))
            print_table("", ("model", *COLUMNS), rows[-1:], width=200)
        browser.close()
    print_table("All models", ("model", *COLUMNS), rows, width=200)


COLUMNS = (
    *("float32 MB", "int10 MB", "weights differ by", "float32: equal", "int10: equal"),
    *("ms a line", "opened in ms", "errors", "axe"),
)


def compare(browser, path, lines, folder, seconds):
    """Returns the columns of a model: its two pages compared with the Python API."""
    model = tformer_cli.load(path, device="cpu", precision="float32")
    verb = kind_of(model.opened.directory.config).verbs[0]
    key, read = ANSWERS[verb]
    settings = {"sampling": False} if verb == "generate" else {}
    wanted = list(map(read, getattr(model, verb)(lines, **settings)))
    results = []
    for precision in ("float32", "int10"):
        file = folder / "page.html"
        size = export_page(path, file, precision=precision, takes_any_size=True)
        results.append((size, *open_page(browser, file, lines, key, wanted, seconds)))
    (large, same, times, opened, problems, pages_heads), (small, same_of_int10, *_) = results
    return (
        f"{large / 1e6:.1f}",
        f"{small / 1e6:.1f}",
        f"{difference_of(path, lines, pages_heads):.1e}",
        same,
        same_of_int10,
        f"{statistics.median(times):.0f}",
        f"{opened:.0f}",
        *problems,
    )


def open_page(browser, file, lines, key, wanted, seconds):
    """Opens a page without a network; returns its answers' share, times, problems and heads."""
    context, problems = browser.new_context(offline=True), []
    page = context.new_page()
    page.set_default_timeout(OPENING)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text))
    page.goto(file.as_uri())
    page.wait_for_selector("#source-0")
    page.evaluate(RUN, lines[0])
    opened = page.evaluate("performance.now()")
    end, same, times = time.monotonic() + seconds, 0, []
    for line, answer in zip(lines, wanted, strict=True):
        if time.monotonic() > end:
            break
        result = page.evaluate(RUN, line)
        times.append(result["milliseconds"])
        same += is_same(result[key], answer)
    heads = [page.evaluate(HEADS, line) for line in lines[:N_HEADS_LINES]]
    page.fill("#source-0", lines[0])
    page.wait_for_selector(".thumb")
    violations = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    context.close()
    counts = (len(problems), ", ".join(violation["id"] for violation in violations) or 0)
    return f"{same} of {len(times)}", times, opened, counts, heads


def is_same(answer, wanted):
    if isinstance(wanted, np.ndarray):
        return np.abs(np.array(answer) - np.array(wanted)).max() < TOLERANCE
    return answer == wanted


def difference_of(path, lines, pages_heads):
    """The largest difference of an attention weight from PyTorch's."""
    largest = 0.0
    records = inspect_heads(path, lines[:N_HEADS_LINES])
    for record, heads in zip(islice(records, N_HEADS_LINES), pages_heads, strict=True):
        weights = {head["id"]: np.array(head["weights"]) for head in heads}
        if record.maps.weights(record.heads[0]).shape != weights[str(record.heads[0])].shape:
            continue  # of another text
        for head in record.heads:
            difference = np.abs(weights[str(head)] - record.maps.weights(head))
            largest = max(largest, float(difference.max()))
    return largest


if __name__ == "__main__":
    main()
