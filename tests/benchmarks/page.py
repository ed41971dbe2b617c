"""The pages in a browser: from opening to the first paint, from a key to what follows it.

    python tests/benchmarks/page.py MODEL --text FILE [--rounds 20]

The service and Chromium are processes of their own. Each round opens the page in a fresh profile
and types a line of FILE in place of another. "Over the request" is the time beyond what the same
page waits for the bare request of another line: what debouncing, drawing and the browser add. The
exported page is opened from its file, and computes the first ten words of lines itself. It
needs `playwright` and a Chromium; on a busy machine look at ratios and medians.
"""

import argparse
import socket
import statistics
import subprocess
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from harness import TFORMER, print_table
from playwright.sync_api import sync_playwright

from tformer_cli.text.lines import read_lines

MOST_PAINT = 300
"""Milliseconds to the first paint, as the page promises."""
MOST_SECONDS = 120
"""Seconds to wait for the service: to start, to answer, and to end."""
BARE = """
async text => {
    const begun = performance.now();
    const answer = await fetch('api/translate', { method: 'POST',
        signal: AbortSignal.timeout(120_000),
        headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ text }) });
    await answer.text();
    return performance.now() - begun;
}
"""
TYPED = """
async text => {
    const source = document.querySelector('#source-0'), begun = performance.now(), found = {};
    const late = new Promise((_, fail) => setTimeout(fail, 120_000, new Error('nothing is drawn')));
    const drawn = (name, selector, isThere) => new Promise(done => {
        const observer = new MutationObserver(() => {
            if (!isThere()) return;
            observer.disconnect();
            // What a script has drawn is seen at the next frame
            requestAnimationFrame(() => done(found[name] = performance.now() - begun));
        });
        observer.observe(document.querySelector(selector), { childList: true, subtree: true });
    });
    const all = [drawn('translation', '.written .mirror', () => true),
        drawn('heads', '#overview', () => document.querySelector('#source-text').textContent === text)];
    source.value = text;
    source.dispatchEvent(new Event('input', { bubbles: true }));
    await Promise.race([Promise.all(all), late]);
    return found;
}
"""  # noqa: E501

COMPUTED = """
async text => {
    const begun = performance.now();
    await tformer.run({ text });
    return performance.now() - begun;
}
"""
N_WORDS = 10


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    lines = [line for line in read_lines(options.text) if line.strip()]
    found = {"first paint": [], "key to translation": [], "key to heads": [], "bare request": []}
    with serve_model(options.model) as address, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        for n in range(options.rounds + 1):
            context = browser.new_context(viewport={"width": 1280, "height": 720})
            page = context.new_page()
            page.goto(address)
            page.wait_for_selector(".thumb", timeout=120_000)
            paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            # The sentence that it begins with is not drawn again
            others = [line for line in lines if line != page.input_value("#source-0")]
            typed, other = (others[(2 * n + k) % len(others)] for k in range(2))
            visit = {"paint": page.evaluate(paint), **page.evaluate(TYPED, typed)}
            visit["bare"] = page.evaluate(BARE, other)
            context.close()
            if n:  # the first loads the inspector
                for name, value in zip(found, (visit[key] for key in KEYS), strict=True):
                    found[name].append(value)
        exported = measure_exported(browser, options.model, lines, options.rounds)
        browser.close()
    bare = statistics.median(found["bare request"])
    rows = [
        (
            name,
            f"{statistics.median(values):.0f}",
            f"{statistics.quantiles(values, n=10)[-1]:.0f}",
            f"{statistics.median(values) - bare:+.0f}" if name.startswith("key") else "",
        )
        for name, values in (*found.items(), *exported.items())
    ]
    columns = ("from", "median ms", "90th percentile ms", "over the request ms")
    print_table(f"{options.model.name}, {options.rounds} rounds", columns, rows)
    if statistics.median(found["first paint"]) > MOST_PAINT:
        raise SystemExit(f"the first paint took more than {MOST_PAINT} ms")


def measure_exported(browser, model, lines, rounds):
    """Milliseconds to the first paint of the exported page, and of ten words with all heads."""
    paints, computed = [], []
    with TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        subprocess.run([*TFORMER, "export", model, "--format", "page", "-o", path], check=True)
        for n in range(rounds + 1):
            context = browser.new_context(offline=True)
            page = context.new_page()
            page.goto(path.as_uri())
            page.evaluate(COMPUTED, lines[0])
            words = " ".join(" ".join(lines[n % len(lines) :]).split()[:N_WORDS])
            paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            paints.append(page.evaluate(paint))
            computed.append(page.evaluate(COMPUTED, words))
            context.close()
    return {"exported: first paint": paints[1:], f"exported: {N_WORDS} words, heads": computed[1:]}


KEYS = ("paint", "translation", "heads", "bare")


@contextmanager
def serve_model(model):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*TFORMER, "serve", f"m={model}", "--port", str(port)])
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(process, address)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(MOST_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def wait_until_ready(process, address):
    end = time.monotonic() + MOST_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with suppress(OSError), urllib.request.urlopen(f"{address}/ready", timeout=MOST_SECONDS):
            return
        time.sleep(0.1)
    raise SystemExit(f"{address}: the service was not ready within {MOST_SECONDS} s")


if __name__ == "__main__":
    main()
