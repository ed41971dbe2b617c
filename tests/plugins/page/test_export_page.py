"""The exported page as a file: its size and policy, and what it refuses by name."""

import base64
import gzip
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.commands import refused, run
from tests.models import save_random
from tformer_cli.artifacts.weights_file import SCALE, read_floats
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.inspect.frame import OUR_PAGE, join_modules, live_modules
from tformer_cli.plugins.page import export
from tformer_cli.search.sentences import ABBREVIATIONS, BEFORE_NUMBERS, split_sentences

RUN = os.environ.get("TFORMER_QUICKSTART_RUN", "")
MOST_BYTES = 2_200_000
BLOCK = re.compile(r'<script type="text/plain" id="(\w+)">(.*?)</script>', re.DOTALL)


def blocks_of(page):
    """The contents of its blocks; its script is in base64, the rest in base85."""
    read = {"code": base64.b64decode}
    return {
        name: gzip.decompress(read.get(name, base64.b85decode)(text.replace(",", "<")))
        for name, text in BLOCK.findall(page)
    }


def test_one_file_holds_all_of_it_and_its_policy_names_what_may_run(zoo, tmp_path):
    path = tmp_path / "model.html"
    done = run("export", zoo["translate"], "--format", "page", "-o", path)
    assert done.exit_code == 0
    assert re.search(
        r"a page of \d\.\d MB with the model inside; open it in a browser", done.stderr
    )
    page = path.read_text("utf-8")
    policy = re.search('http-equiv="Content-Security-Policy" content="(.*?)"', page)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    code = blocks_of(page)["code"].decode()
    for text in (script, code, style):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    for text in (page, code):
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(", text)
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert len(page) - sum(len(text) for _, text in BLOCK.findall(page)) < 50_000
    again = tmp_path / "again.html"
    export.export_page(zoo["translate"], again)
    assert again.read_text("utf-8") == page  # no time, no name of the machine


def test_an_earlier_page_is_replaced_and_other_files_are_not(zoo, tmp_path):
    path = tmp_path / "model.html"
    for kind in ("translate", "classifier"):
        assert run("export", zoo[kind], "--format", "page", "-o", path).exit_code == 0
    model = json.loads(blocks_of(path.read_text("utf-8"))["model"])
    assert model["verbs"] == ["classify"]
    for text in ("<!DOCTYPE html><p>my own notes on tformer", OUR_PAGE):
        path.write_text(text)
        says = f"{path} is already there"
        refused("export", zoo["translate"], "--format", "page", "-o", path, says=says)
        assert path.read_text() == text


@pytest.mark.slow
@pytest.mark.skipif(not RUN, reason="TFORMER_QUICKSTART_RUN names no run")
def test_the_page_of_the_quickstart_is_small(tmp_path):
    assert export.export_page(RUN, tmp_path / "model.html") <= MOST_BYTES


@pytest.mark.parametrize(("precision", "size"), [("int10", 1), ("float16", 2), ("float32", 4)])
def test_weights_are_stored_in_the_type_that_is_asked_for(zoo, tmp_path, precision, size):
    path = tmp_path / "model.html"
    run("export", zoo["translate"], "--format", "page", "-o", path, "--precision", precision)
    stored = tmp_path / "stored.safetensors"
    stored.write_bytes(blocks_of(path.read_text("utf-8"))["weights"])
    header = stored.read_bytes()[8 : 8 + int.from_bytes(stored.read_bytes()[:8], "little")]
    entries = json.loads(header)
    name = "source_embedding.weight"
    first, last = entries[name]["data_offsets"]
    rows, columns = entries[name]["shape"]
    assert last - first == size * rows * columns
    assert (f"{name}{SCALE}" in entries) == (precision == "int10")
    if precision == "float32":
        wanted = read_floats(zoo["translate"] / "model.safetensors")
        done = read_floats(stored)
        assert all(np.array_equal(done[name], weight) for name, weight in wanted.items())


def test_an_int8_model_keeps_its_integers(zoo, tmp_path):
    path = tmp_path / "model.html"
    export.export_page(zoo["int8"], path, precision="float32")
    assert b'"I8"' in blocks_of(path.read_text("utf-8"))["weights"][:10_000]


def test_a_large_page_needs_force_which_names_its_size(zoo, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "LARGEST", 1000)
    path = tmp_path / "model.html"
    error = refused("export", zoo["translate"], "--format", "page", "-o", path)
    assert re.search(r"would have 0 MB, which browsers load slowly; add --force", error)
    assert not path.exists()
    assert run("export", zoo["translate"], "--format", "page", "-o", path, "--force").exit_code == 0
    assert path.exists()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"coverage_penalty": 0.2}, "decoding.coverage_penalty = 0.2"),
        ({"sampling": True}, "decoding.sampling = True"),
        ({"diversity_groups": 3}, "decoding.diversity_groups = 3"),
    ],
)
def test_a_search_that_the_engine_does_not_know_is_refused_by_name(zoo, changes, named):
    directory, _ = export.read_model_directory(zoo["translate"], tasks=export.TASKS)
    with pytest.raises(UsageError) as error:
        export.check_model(replace(directory, decoding=replace(directory.decoding, **changes)))
    assert f"the page cannot compute {named}; use `tformer serve`" in str(error.value)


def test_a_part_of_a_model_that_the_engine_does_not_know_is_refused_by_name(zoo, monkeypatch):
    # None has it: a method that is added after the page
    monkeypatch.setattr(export, "KNOWN_MODELS", {**export.KNOWN_MODELS, "activation": ("gelu",)})
    with pytest.raises(UsageError, match='cannot compute activation = "relu"; use `tformer serve`'):
        export.export_page(zoo["translate"], zoo["translate"] / "page.html")
    assert not (zoo["translate"] / "page.html").exists()


def test_no_page_is_left_of_a_model_that_is_refused(zoo, tmp_path):
    path = tmp_path / "model.html"
    with pytest.raises(ArtifactError):
        export.export_page(zoo["images"], path)
    assert not path.exists()


def test_a_page_without_the_doubt_of_its_model_says_why(zoo, tmp_path, monkeypatch):
    path, page, lines = tmp_path / "m", tmp_path / "page.html", []
    shutil.copytree(zoo["translate"], path)
    monkeypatch.setattr(
        logging.getLogger("tformer"), "warning", lambda form, line: lines.append(form % line)
    )
    export.export_page(path, page)
    assert not lines  # a model without a calibration misses nothing
    (path / "doubt.json").write_text('{"schema": "tformer.doubt/1"}')
    export.export_page(path, page)
    (line,) = lines
    assert line == (
        f"no doubt scores in the page: {path / 'doubt.json'}: was written by an earlier version; "
        "run `tformer calibrate` again"
    )
    sampled = SimpleNamespace(search={"sampling": True})
    monkeypatch.setattr(export, "calibration_of", lambda *_: sampled)
    export.export_page(path, page)
    assert lines[1] == (
        "no doubt scores in the page: they are calibrated for sampling, and the page searches by "
        "beams"
    )


def test_hostile_names_of_models_stay_text(tmp_path):
    path = save_random(tmp_path / "<b>&amp;")
    page = tmp_path / "page.html"
    export.export_page(path, page)
    assert "<b>" not in page.read_text("utf-8").split("<script")[0]


def test_modules_import_only_what_others_export():
    modules = live_modules(export.read_scripts())
    names = {name: set(export_names(text)) for name, text in modules.items()}
    for text in modules.values():
        for imported, module in re.findall(
            r'import \{ (.*?) \} from "\./(?:engine/)?(.*?)";', text
        ):
            if module != "parts.js":
                assert set(imported.split(", ")) <= names[module], (imported, module)
    assert "import " not in re.sub(r"//.*", "", join_modules(modules, "live.js")).split("(() =>")[0]


READ = """
import {{ readBase85 }} from "{module}";
import {{ readFileSync }} from "fs";
const texts = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map(text => [...readBase85(text)])));
"""


def test_bytes_of_every_length_are_read(tmp_path):
    if shutil.which("node") is None:
        pytest.skip("there is no node to run JavaScript with")
    module = tmp_path / "base85.mjs"
    module.write_text(export.read_scripts()["base85.js"], "utf-8")
    random = np.random.default_rng(1)
    contents = [random.bytes(size) for size in range(12)] + [bytes(8), b"\xff" * 9]
    texts = [base64.b85encode(content).decode().replace("<", ",") for content in contents]
    done = subprocess.run(
        ["node", "--input-type=module", "-e", READ.format(module=module)],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    assert list(map(bytes, json.loads(done.stdout))) == contents


SPLIT = """
import {{ splitSentences }} from "{module}";
import {{ readFileSync }} from "fs";
const {{ texts, words }} = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map(text => splitSentences(text, words))));
"""
TEXTS = [
    "",
    "One.",
    "It is cold. We stay.",
    "Dr. Smith came. He left.",
    "e.g. this one. And that.",
    "See no. 5 of it. No. It is not.",
    'He said "Go!" Then he went. (She stayed.) They did.',
    "Wait... what? Yes!  No.",
    "am 3. Mai kam er. Am 1234. Tag",
    "\u4f60\u597d\u3002\u518d\u89c1\uff01",
    "a\nb\n\nc",
    "\u00abBonjour.\u00bb Il part. \u00ab Oui ! \u00bb Non.",
    "U.S. Army. A. Smith.",
    "the end. small letter",
    "... and so. !!! Go.",
    "\u0e20\u0e32\u0e29\u0e32. \u0e44\u0e17\u0e22",
    "\u092f\u0939\u0964 \u0935\u0939\u0964",
    "Zahl 12. Das. Etc. And.",
]


def test_sentences_are_split_as_the_command_splits_them(tmp_path):
    if shutil.which("node") is None:
        pytest.skip("there is no node to run JavaScript with")
    module = tmp_path / "splitting.mjs"
    module.write_text(export.read_scripts()["splitting.js"], "utf-8")
    words = {"always": sorted(ABBREVIATIONS), "beforeNumbers": sorted(BEFORE_NUMBERS)}
    done = subprocess.run(
        ["node", "--input-type=module", "-e", SPLIT.format(module=module)],
        input=json.dumps({"texts": TEXTS, "words": words}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [split_sentences(text) for text in TEXTS]


def export_names(text):
    return re.findall(r"^export (?:async )?(?:function\*?|class|const) (\w+)", text, re.MULTILINE)
