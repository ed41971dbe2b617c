"""On a CPU the kernels translate and score without torch, as they and torch do with it.

Nor do they need the other packages that `tformer-runtime` leaves out.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tformer_cli
from tests.commands import record_of, records_of, run
from tformer_cli.cli.app import LEFT_OUT
from tformer_cli.fast.native.library import KernelsUnavailable, load_library
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.kinds.opening import open_model
from tformer_cli.kinds.stored_model import is_cpu, may_have_gpu
from tformer_cli.plugins.corpora_tools.bulk.plan import GivenCorpus, plan_corpus
from tformer_cli.plugins.corpora_tools.bulk.shards import Fields, Task
from tformer_cli.plugins.corpora_tools.bulk.translate_shard import opening
from tformer_cli.runtime import default_threads
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.scoring import score_pairs
from tformer_cli.wording import installing

LINES = ["A man sleeps.", "Two dogs run in the snow.", "", "the street", "A woman and a dog."]
ASKED = 77
PROGRAM = f"""
import os, sys
from tformer_cli.__main__ import main

class LeftOut:
    def find_spec(self, name, path, target=None):
        if name in {LEFT_OUT}:
            os._exit({ASKED})

if __name__ == "__main__":
    sys.meta_path.insert(0, LeftOut())
    main()
"""
"""`tformer`, ended by the first import of torch, datasets or pyarrow."""


COUNTING = """
import sys
from tformer_cli.__main__ import main
try:
    main()
except SystemExit:
    tops = [name.partition(".")[0] for name in sys.modules]
    print(tops.count("tformer_cli"), sum(top not in sys.stdlib_module_names for top in tops))
"""
"""`tformer`, with the numbers of its own modules and of all but the standard library's, as they
were loaded, in the last line."""
MOST_OWN, MOST = 62, 109


WITHOUT = f"""
import sys
from tformer_cli.__main__ import main

class LeftOut:
    def find_spec(self, name, path, target=None):
        if name in {LEFT_OUT}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, LeftOut())
main()
"""
"""`tformer` as it is installed by `tformer-runtime`."""


@pytest.fixture(scope="module", autouse=True)
def kernels():
    try:
        return load_library()
    except KernelsUnavailable as error:
        pytest.skip(f"no compiled kernels: {error}")


def start(*arguments, text=""):
    """Runs a command in a process that ends when it asks for torch."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def without_torch(*arguments, text=""):
    """Runs a command in a process that has no torch; returns its output."""
    done = start(*arguments, text=text)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def with_torch(*arguments, text=""):
    """Runs a command in this process, which has torch; returns its output."""
    done = run(*arguments, stdin=text)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_a_line_loads_only_modules_that_it_needs(model):
    command = [sys.executable, "-c", COUNTING, "translate", model, LINES[0], "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    n_own, n_all = map(int, done.stdout.split()[-2:])
    assert 20 < n_own <= MOST_OWN
    assert n_own < n_all <= MOST, "numpy alone is 90"


WORKER = """
import json, sys
from tformer_cli.plugins.corpora_tools.bulk import translate_shard

answer, task = translate_shard._translate, json.loads(sys.argv[2])
print(answer(sys.argv[1], translate_shard.Task.from_json(task), lambda _: None)["counts"]["lines"])
print("torch" in sys.modules, "pyarrow" in sys.modules)
"""


def test_corpora_are_translated_without_torch_by_program_and_workers(model, tmp_path):
    source, output = tmp_path / "source", tmp_path / "out"
    source.write_text("\n".join(LINES) + "\n")
    options = ("--workers", 1, "--device", "cpu", "-q")
    assert without_torch("translate-corpus", model, source, "-o", output, *options) == f"{output}\n"
    found = (output / "part-00000.txt").read_text()
    assert found == with_torch("translate", model, "-i", source, "--heads", "*")
    fields = Fields()
    plan = plan_corpus(GivenCorpus(sources=[str(source)], fields=fields))
    task = Task(
        directory=str(tmp_path), shard=plan.shards[0], source=plan.sources[0], fields=fields
    )
    arguments = (opening(model, {"device": "cpu"}, []), json.dumps(task.as_json()))
    command = [sys.executable, "-c", WORKER, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "5\nFalse False\n"


@pytest.mark.parametrize("options", [[], ["--precision", "int8"]], ids=" ".join)
def test_the_loss_of_evaluate_is_that_of_scores(model, tmp_path, options):
    (tmp_path / "source").write_text("\n".join(LINES) + "\n")
    (tmp_path / "target").write_text("\n".join(reversed(LINES)) + "\n")
    words = (model, "-i", tmp_path / "source", "-q", *options)
    scores = records_of("score", *words, "--target-file", tmp_path / "target", "--format", "jsonl")
    evaluated = record_of(
        "evaluate", *words, "--reference", tmp_path / "target", "--format", "json"
    )
    n_tokens = sum(len(score["token_log_probabilities"]) for score in scores)
    total = sum(score["log_probability"] for score in scores)
    assert evaluated["loss"] == pytest.approx(-total / n_tokens)
    opened = open_model(model, precision="int8" if options else "float32")
    ids = opened.directory.tokenizer.encode_batch(LINES)
    expected = score_pairs(opened.directory.model, ids, ids[::-1], DecodingConfig(), device="cpu")
    for line, score, hypothesis in zip(LINES, scores, expected, strict=True):
        if not line:  # the pair in the middle is blank
            assert (score["log_probability"], score["token_log_probabilities"]) == (0.0, [])
            continue
        near = pytest.approx(hypothesis.log_probability, abs=0.1 if options else 1e-4)
        assert score["log_probability"] == near


@pytest.mark.parametrize("options", [[], ["--precision", "int8"], ["--split-sentences", "rule"]])
def test_alignments_come_out_of_the_search(model, options):
    text = "\n".join(LINES) + "\n"
    words = ("translate", model, "--format", "tsv", "--alignments", "pharaoh", *options)
    found = without_torch(*words, "--device", "cpu", text=text)
    assert found == with_torch(*words, text=text)
    assert [bool(line.rpartition("\t")[2]) for line in found.splitlines()] == [*map(bool, LINES)]


@pytest.mark.parametrize(
    "options",
    [
        ("--format", "text"),
        ("--format", "jsonl", "--weights", "alpha", "--heads", "@role=sink,cross"),
        ("--target", "deux chiens", "--format", "html"),
        ("--format", "svg", "--heads", "cross"),
        ("--format", "npz", "--rank", "2"),
        ("--format", "safetensors"),
    ],
    ids=lambda options: options[-1],
)
def test_heads_of_a_line_are_shown_without_torch(model, options, tmp_path):
    words = ("inspect-heads", model, LINES[1], "-q", *options, "-o")
    assert without_torch(*words, tmp_path / "found") == ""
    with_torch(*words, tmp_path / "expected")
    assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()


@pytest.mark.parametrize("options", [["--mode", "live"], ["--weights", "norm"], ["--corpus"]])
def test_what_is_more_of_heads_than_a_forced_pass_is_for_torch(model, options):
    assert start("inspect-heads", model, LINES[1], *options).returncode == ASKED


def test_a_benchmark_and_the_process_it_measures_do_without_torch(model, tmp_path):
    (tmp_path / "source").write_text("\n".join(LINES) + "\n")
    options = ("--rounds", 1, "--beam-size", 2, "--format", "json")
    record = json.loads(without_torch("benchmark", model, "-i", tmp_path / "source", *options))
    assert record["kernels"] == "native"
    assert record["peak_memory"] < 150e6


@pytest.mark.parametrize(
    "options",
    [
        ["--sampling", "--repetition-penalty", "2"],
        ["--precision", "bfloat16"],
        ["--engine", "torch"],
        ["--coverage-penalty", "0.2"],
        ["--heads", "*"],
    ],
    ids=" ".join,
)
def test_what_the_kernels_do_not_know_is_for_torch(model, options):
    text = "\n".join(LINES) + "\n"
    assert start("translate", model, *options, text=text).returncode == ASKED
    found = with_torch("translate", model, *options, text=text)
    assert found.count("\n") == len(LINES)


def test_a_model_that_was_asked_for_may_be_changed(model):
    opened = open_model(model)
    before = opened.translator.translate(LINES)
    assert not opened.directory.has_model
    transformer = opened.directory.model
    assert opened.translator.translate(LINES) == before
    attention = transformer.decoder.layers[0].cross_attention
    attention.gate = torch.zeros(2, 1, 1)
    assert opened.translator.engine().name == "torch"
    changed = opened.translator.translate(LINES)
    assert changed != before
    attention.gate = None
    with torch.no_grad():
        transformer.source_embedding.weight.neg_()
    assert opened.translator.engine().name == "compiled"
    assert opened.translator.translate(LINES) not in (before, changed)
    # the file itself has not changed
    assert open_model(model).translator.translate(LINES) == before


def test_translations_are_those_of_a_model_that_was_loaded(model):
    loaded = open_model(model).directory
    loaded.model  # noqa: B018 - is made
    assert list(translate_lines(loaded, LINES, n_best=3)) == list(
        translate_lines(model, LINES, n_best=3)
    )


def test_threads_are_those_that_torch_would_use(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,1")
    assert default_threads.__wrapped__() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1, 4}, raising=False)
    assert default_threads.__wrapped__(tmp_path) == 3, "nothing is said of cores"
    for number, siblings in ((0, "0-1"), (1, "0-1"), (4, "4-5")):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings)
    assert default_threads.__wrapped__(tmp_path) == 2


def test_only_where_there_may_be_a_gpu_is_torch_asked(tmp_path, monkeypatch):
    assert not may_have_gpu(tmp_path, "linux")
    (tmp_path / "nvidia0").touch()
    assert may_have_gpu(tmp_path, "linux")
    assert not may_have_gpu(tmp_path, "darwin")
    assert may_have_gpu(tmp_path / "nowhere", "win32")
    assert is_cpu("cpu")
    assert not is_cpu("cuda:1")
    assert not is_cpu("auto"), "torch is loaded and can be asked"
    monkeypatch.delitem(sys.modules, "torch")
    assert is_cpu("auto") is not may_have_gpu()


def test_an_opened_model_names_its_device(model):
    opened = open_model(model)
    assert (opened.place, opened.device) == ("cpu", torch.device("cpu"))
    assert dataclasses.asdict(opened.directory.info)["step"] == 0


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (("train", "quickstart", "-o", "run"), "torch"),
        (("quickstart",), "torch"),
    ],
)
@pytest.mark.parametrize("is_runtime", [True, False])
def test_a_command_says_what_to_install_and_leaves_nothing(
    arguments, missing, is_runtime, tmp_path
):
    metadata = tmp_path / "site" / "tformer_runtime-0.1.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: tformer-runtime\nVersion: 0.1\n")
    path = {"PYTHONPATH": str(tmp_path / "site")} if is_runtime else {}
    (tmp_path / "work").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments], cwd=tmp_path / "work",
        env={**os.environ, **path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    advice = "'tformer-runtime[train]'" if is_runtime else missing
    assert done.stderr == (
        f"error: {arguments[0]}: needs {missing}, which is not installed; pip install {advice}\n"
    )
    assert not any((tmp_path / "work").iterdir())


def test_extras_are_those_of_the_distribution_that_is_installed(monkeypatch, tmp_path):
    assert installing("serve") == "pip install 'tformer[serve]'"
    metadata = tmp_path / "tformer_runtime-0.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: tformer-runtime\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert installing("serve") == "pip install 'tformer-runtime[serve]'"
    # Nobody else writes such a command
    sources = Path(tformer_cli.__file__).parent.rglob("*.py")
    said = [file.name for file in sources if re.search(r"tformer(-runtime)?\[", file.read_text())]
    assert said == []
