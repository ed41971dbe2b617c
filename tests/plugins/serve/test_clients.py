"""Popular clients, in their own processes and languages, against the whole service."""

import hashlib
import json
import os
import shutil
import subprocess
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.chromium import chromium
from tests.plugins.serve.test_serving import SECONDS, serving, translate_directly

TEXT = "The old house."
PAGE = """<!doctype html><meta charset="utf-8"><script type="module">
import OpenAI from "./openai/index.mjs";
const client = new OpenAI({
  baseURL: new URLSearchParams(location.search).get("url"), apiKey: "any", maxRetries: 0,
  dangerouslyAllowBrowser: true, defaultHeaders: { "X-Requested-With": "page" },
  fetch: (url, options) => fetch(url, { ...options, credentials: "include" }),
});
const messages = [{ role: "user", content: "translate: The old house." }];
async function found() {
  const chat = await client.chat.completions.create({ model: "en-fr", messages });
  const parts = [];
  const stream = await client.chat.completions.create({ model: "en-fr", messages, stream: true });
  for await (const chunk of stream) parts.push(chunk.choices[0].delta.content ?? "");
  const answer = await client.responses.create({ model: "en-fr", input: "The old house." });
  const events = [];
  const told = await client.responses.create({
    model: "en-fr", input: "The old house.", stream: true,
  });
  for await (const event of told) events.push(event.type);
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  let error;
  try { await client.chat.completions.create({ model: "nosuch", messages }); }
  catch (thrown) { error = [thrown.status, thrown.code, thrown.requestID?.length]; }
  return {
    chat: chat.choices[0].message.content, id: chat._request_id.length, parts: parts.join(""),
    response: answer.output_text, last: events.at(-1), models, error,
  };
}
found().then(
  value => { document.title = JSON.stringify(value); },
  error => { document.title = JSON.stringify({ failed: String(error) }); },
);
</script>"""


@contextmanager
def pages(folder):
    """Serves files of a folder; yields the origin."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_: None
    SimpleHTTPRequestHandler.log_message = lambda *_: None
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


def openai_for_javascript():
    folder = os.environ.get("TFORMER_OPENAI_JS")
    if folder is None:
        pytest.skip("TFORMER_OPENAI_JS names no folder of npm's package openai")
    return Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize("is_allowed", [True, False])
def test_openai_for_javascript_in_a_page(is_allowed, zoo, tmp_path):
    package = openai_for_javascript()
    (tmp_path / "openai").symlink_to(package)
    (tmp_path / "page.html").write_text(PAGE)
    with pages(tmp_path) as origin, chromium() as browser:
        allowed = origin if is_allowed else "https://example.org"
        with serving(f"en-fr={zoo['translate']}", "--allow-origin", allowed) as server:
            page = browser.new_page()
            page.goto(f"{origin}/page.html?url={server.url}v1")
            page.wait_for_function("document.title", timeout=SECONDS * 1000)
            results = page.evaluate("JSON.parse(document.title)")
    if not is_allowed:
        assert results == {"failed": "Error: Connection error."}
        return
    expected = translate_directly(zoo, TEXT).text
    assert results["chat"] == results["parts"] == results["response"] == expected
    # This model writes random words without end
    assert (results["id"], results["last"]) == (16, "response.incomplete")
    assert results["models"] == ["en-fr"]
    assert results["error"] == [404, "model_not_found", 16]


EXTENSION = """
const headers = { "Content-Type": "application/json", "X-Requested-With": "extension" };
const body = JSON.stringify({ q: "The old house.", source: "en", target: "fr" });
fetch(new URLSearchParams(location.search).get("url") + "translate", {
  method: "POST", headers, body,
}).then(answer => answer.json()).then(
  found => { document.title = found.translatedText; },
  () => { document.title = "refused"; },
);
"""


def extension_id(folder):
    """Returns the id that Chromium derives from the path of an extension without a key."""
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:32]
    return "".join(chr(ord("a") + int(digit, 16)) for digit in digest)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["its id", "any id", "another id"])
def test_an_extension_of_a_browser(kind, zoo, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no Chromium to load an extension")
    folder = (tmp_path / "extension").resolve()
    folder.mkdir()
    manifest = {"manifest_version": 3, "name": "Test", "version": "1"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "page.js").write_text(EXTENSION)
    (folder / "page.html").write_text('<!doctype html><script src="page.js"></script>')
    name = extension_id(folder)
    allowed = {"its id": name, "any id": "*", "another id": "a" * 32}[kind]
    with (
        serving(
            f"en-fr={zoo['translate']}", "--allow-origin", f"chrome-extension://{allowed}"
        ) as server,
        playwright.sync_playwright() as started,
    ):
        loads = (f"--load-extension={folder}", f"--disable-extensions-except={folder}")
        browser = started.chromium.launch_persistent_context(
            str(tmp_path / "profile"), executable_path=path, headless=False,
            args=["--headless=new", "--no-sandbox", *loads],
        )  # fmt: skip
        page = browser.new_page()
        page.goto(f"chrome-extension://{name}/page.html?url={server.url}")
        # Not by `wait_for_function`, which evaluates strings, as the extension's policy forbids
        for _ in range(SECONDS * 10):
            if page.title():
                break
            page.wait_for_timeout(100)
        expected = "refused" if kind == "another id" else translate_directly(zoo, TEXT).text
        assert page.title() == expected
        browser.close()


@pytest.mark.slow
def test_the_page_below_a_prefix(zoo):
    with (
        chromium() as browser,
        serving(f"en-fr={zoo['translate']}", "--url-prefix", "/a/b") as server,
    ):
        page = browser.new_page()
        problems = []
        page.on("response", lambda item: problems.append(item.url) if item.status >= 400 else None)
        page.goto(f"{server.url}a/b")
        assert page.url == f"{server.url}a/b/"
        page.fill("#source-0", TEXT)
        until = "document.querySelector('#target-0').value"
        expected = translate_directly(zoo, TEXT).text
        for _ in range(SECONDS * 10):
            if page.evaluate(until) == expected:
                break
            page.wait_for_timeout(100)
        assert page.input_value("#target-0") == expected
        assert problems == []


@pytest.mark.slow
def test_openai_for_python(zoo):
    openai = pytest.importorskip("openai")
    expected = translate_directly(zoo, TEXT)
    with (
        serving(f"en-fr={zoo['translate']}", f"lm={zoo['language_model']}") as server,
        openai.OpenAI(base_url=f"{server.url}v1", api_key="any", max_retries=0) as client,
    ):
        messages = [
            {"role": "system", "content": "You translate from English to French."},
            {"role": "user", "content": f"Translate to French:\n\n{TEXT}"},
        ]
        options = {"model": "en-fr", "messages": messages, "temperature": 0.2}
        whole = client.chat.completions.create(**options, n=2)
        assert whole.choices[0].message.content == translate_directly(zoo, TEXT, n_best=2).text
        assert len(whole.choices) == 2
        assert whole._request_id
        single = client.chat.completions.create(**options)
        assert single.choices[0].message.content == expected.text
        assert single.usage.completion_tokens == len(expected.hypotheses[0].token_ids)
        assert single.usage.prompt_tokens == len(expected.source_ids)
        has_usage = {"stream_options": {"include_usage": True}}
        *chunks, last = client.chat.completions.create(**options, stream=True, **has_usage)
        deltas = [chunk.choices[0].delta.content or "" for chunk in chunks]
        assert "".join(deltas) == expected.text
        assert last.usage == single.usage
        answer = client.responses.create(model="en-fr", input=TEXT)
        assert answer.output_text == expected.text
        *_, end = client.responses.create(model="en-fr", input=TEXT, stream=True)
        assert end.response.output_text == expected.text
        for wrong, model in (
            (openai.BadRequestError, "lm"),
            (openai.NotFoundError, "nosuch"),
        ):
            with pytest.raises(wrong) as raised:
                client.chat.completions.create(model=model, messages=messages)
            assert raised.value.body.keys() == {"message", "type", "param", "code"}
        with pytest.raises(openai.NotFoundError, match="there is no such path"):
            client.images.generate(prompt="a house")
        with pytest.raises(openai.NotFoundError, match="there is no such path"):
            client.audio.speech.create(model="tts", voice="a", input="a")


@pytest.mark.slow
def test_schemathesis(zoo, tmp_path):
    program = shutil.which("schemathesis")
    if program is None:
        pytest.skip("schemathesis is not installed")
    with serving(f"en-fr={zoo['translate']}", "--suggestions", tmp_path / "s.jsonl") as server:
        # Unknown fields are accepted, as by LibreTranslate, and not every file is a document
        done = subprocess.run(
            [program, "run", f"{server.url}spec", "--url", server.url, "--seed", "1",
             "--max-examples", "20", "--exclude-checks",
             "negative_data_rejection,positive_data_acceptance"],
            check=False, capture_output=True, text=True, timeout=10 * SECONDS, cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
