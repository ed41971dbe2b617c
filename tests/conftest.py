import gc
import json
import os
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from threading import Lock

import pytest
from hypothesis import settings
from tokenizers import Tokenizer
from typer.main import get_command

from tests.measuring import mark_slow
from tformer_cli.fast.native.build import find_compiler
from tformer_cli.fast.native.library import SWITCH, KernelsUnavailable, load_library
from tformer_cli.plugins.built_in.grammar.generate import generate_corpus
from tformer_cli.runtime import prepare_cpu
from tformer_cli.text.joint_tokenizer import BpeDropout


class SkippingFinder:
    """Skips what imports a package that is not installed; the rest of a folder runs without it."""

    def find_spec(self, name, path=None, target=None):
        """Knows the packages that `tformer-runtime` does without."""
        if name in ("datasets", "pyarrow", "torch"):
            pytest.skip(f"{name} is not installed", allow_module_level=True)


torch = import_module("torch") if find_spec("torch") else None
if torch is None:
    sys.meta_path.append(SkippingFinder())
TERMINAL_VARIABLES = (
    *("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "CLICOLOR", "CLICOLOR_FORCE", "LINES"),
    *("GITHUB_ACTIONS", "CI", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
)
"""Variables by which hosted machines change what programs print."""
settings.register_profile("tests", deadline=None, derandomize=True, database=None)
settings.load_profile("tests")


def pytest_configure():
    """Makes of the environment what the tests expect.

    Bytecode is kept, or both workers compile all tests, and each program that they start the whole
    package. Colors and widths are those of a pipe.
    """
    for name in TERMINAL_VARIABLES:
        os.environ.pop(name, None)
    os.environ["COLUMNS"] = "80"
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    gc.disable()  # until all tests are found


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    """Marks what was measured to be slow."""
    mark_slow(items)


def pytest_collection_finish():
    """Spares each collection of garbage the millions of objects that stay to the end."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def no_waits_for_the_disk():
    """Nothing here cuts the power, and what a killed process wrote is there without a flush.

    A training of twenty steps flushes a hundred times, longer than it computes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # fails as the call does for what is not open
        yield


@pytest.fixture(scope="session", autouse=True)
def a_glance_at_the_hardware():
    """A training measures its machine for 0.2 s, as long as ten steps of a tiny model take."""
    with pytest.MonkeyPatch.context() as patch:
        if torch is not None:
            speed = import_module("tformer_cli.trainer.speed")
            patch.setattr(speed, "_ALL_SECONDS", 0.0)  # each product once
            patch.setattr(speed, "_PRODUCT_SECONDS", 0.0002)
        yield


@pytest.fixture(scope="session", autouse=True)
def threads_that_end_at_once():
    """A thread that prepares batches ahead looks this often whether its training has ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tformer_cli.text.lines.WAIT_SECONDS", 0.01)
        yield


@pytest.fixture(scope="session", autouse=True)
def words_drawn_once():
    """Each run draws what BPE-dropout makes of the same words: a fifth of what it computes.

    That a seed alone decides them is tested by `data/test_segmentation.py`.
    """

    @cache
    def draw_dropout(text, dropout, seed):
        return BpeDropout(Tokenizer.from_str(text), dropout, seed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tformer_cli.text.joint_tokenizer.BpeDropout",
            lambda tokenizer, dropout, seed: draw_dropout(tokenizer.to_str(), dropout, seed),
        )
        yield


@pytest.fixture(scope="session", autouse=True)
def sentences_made_once():
    """Each run makes the same sentences of the grammar, and again to measure its heads on others.

    `plugins/built_in/grammar` tests that a seed alone decides them.
    """

    @cache
    def begin_corpus(n_pairs, seed):
        return [], generate_corpus(n_pairs, seed)

    def made_again(kept, rest):
        for number in count():
            with lock:  # one thread at a time may run a generator
                if number == len(kept):
                    kept.append(next(rest, None))
            if kept[number] is None:
                return
            yield kept[number]

    def make_pairs(n_pairs, seed=1):
        is_small = n_pairs <= 5000  # others would fill the memory
        return (
            made_again(*begin_corpus(n_pairs, seed)) if is_small else generate_corpus(n_pairs, seed)
        )

    lock = Lock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tformer_cli.plugins.built_in.grammar.generate.generate_corpus", make_pairs)
        yield


@pytest.fixture(scope="session", autouse=True)
def commands_made_once():
    """Typer's runner makes all commands of an application anew for each of a thousand calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def a_core_for_each_worker():
    """Tests run side by side: each computes on one thread, and so do the programs it starts."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")


EXTRAS = {"png": "resvg_py", "pdf": "typst", "site": "sphinx"}
"""Packages of extras and groups that the group `test` lacks."""


def pytest_runtest_setup(item):
    """Skips what needs an extra, by its name, and takes back what others said of threads.

    Two threads on a core that others use wait for each other, and a test takes ten times as long.
    """
    for mark in item.iter_markers("needs"):
        if find_spec(EXTRAS[mark.args[0]]) is None:
            pytest.skip(f"needs {mark.args[0]}, an extra or a group: see pyproject.toml")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


def pytest_report_header():
    """Names the kernels that the tests run with: many test nothing else."""
    try:
        return f"compiled kernels: {Path(load_library()._name).stem}"
    except KernelsUnavailable as error:
        return f"NO compiled kernels: {error}"


@pytest.fixture(scope="session")
def kernels():
    """The kernels that the build of the package compiled.

    Where there is a compiler, tests without them would pass by testing nothing: they fail.
    """
    try:
        return load_library()
    except KernelsUnavailable as error:
        if find_compiler() is None or os.environ.get(SWITCH) == "0":
            pytest.skip(f"no compiled kernels: {error}")
        pytest.fail(
            f"no compiled kernels: {error} (in place: python -m tformer_cli.fast.native.build)"
        )


@pytest.fixture(scope="session", autouse=True)
def a_cache_of_its_own(tmp_path_factory):
    """Keeps tokenized corpora in a cache of this test run, one for all workers."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    os.environ["XDG_CACHE_HOME"] = str(root / "cache")


@pytest.fixture(scope="session")
def zoo(tmp_path_factory):
    """Tiny models of every kind, each made when it is first asked for."""
    from tests.zoo import Zoo

    return Zoo(tmp_path_factory.mktemp("zoo"))


@pytest.fixture(scope="module")
def one_thread():
    """Lets torch compute on one thread, prepared as the program prepares it."""
    before = torch.backends.mkldnn.matmul.fp32_precision, torch.get_num_threads()
    torch.set_num_threads(1)
    prepare_cpu.__wrapped__()
    yield
    torch.backends.mkldnn.matmul.fp32_precision = before[0]
    torch.set_num_threads(before[1])
    prepare_cpu.cache_clear()  # what it did is undone


@pytest.fixture(scope="module")
def model(tmp_path_factory, one_thread):
    """A model directory with random weights, which writes at most six tokens."""
    from tests.models import save_random

    return save_random(
        tmp_path_factory.mktemp("random") / "model", seed=2,
        decoding={"beam_size": 3, "max_length": 6}, d_model=64, d_ff=96, n_encoder_layers=2,
        max_positions=40,
    )  # fmt: skip


@pytest.fixture
def several_sentences():
    """Writes the share of training lines with several sentences into a model, for one test."""
    before = {}

    def write(path, share):
        file = path / "config.json"
        before.setdefault(file, file.read_text())
        file.write_text(json.dumps({**json.loads(before[file]), "several_sentences": share}))

    yield write
    for file, text in before.items():
        file.write_text(text)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory, one_thread):
    """A model directory of a decoder alone with random weights, which samples texts."""
    from tests.models import save_random

    return save_random(
        tmp_path_factory.mktemp("language") / "model", seed=3, scale=2.0,
        decoding={"sampling": True, "max_length": 8}, d_model=32, d_ff=64, n_encoder_layers=0,
        n_decoder_layers=2, max_positions=40,
    )  # fmt: skip


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, one_thread):
    """The directory of a classifier with random weights and three labels."""
    from tests.models import save_random

    return save_random(
        tmp_path_factory.mktemp("labels") / "model", seed=3, scale=2.0,
        info={"labels": ("fair", "good", "no\tgood")}, d_model=32, d_ff=64, n_encoder_layers=2,
        n_decoder_layers=0, n_labels=3, max_positions=40,
    )  # fmt: skip


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A model directory with two vocabularies, which must be told its languages, eng and fra."""
    from tests.text.sentencepiece.conftest import write_foreign_model

    path = tmp_path_factory.mktemp("foreign") / "model"
    write_foreign_model(path)
    return path


@pytest.fixture(params=["pipe", "device", "sparse"])
def spoil(request):
    """Puts in a file's place what must not be read: without a writer, without an end, or 40 GB."""

    def spoil_file(path):
        path.unlink(missing_ok=True)
        match request.param:
            case "pipe":
                os.mkfifo(path)
            case "device":
                path.symlink_to("/dev/zero")
            case "sparse":
                with path.open("wb") as file:
                    file.truncate(40_000_000_000)
        return r"longer than [\d,]+ bytes" if request.param == "sparse" else "not an ordinary file"

    return spoil_file
