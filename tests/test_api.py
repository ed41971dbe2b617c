import copy
import gc
import inspect
import json
import logging
import os
import pickle
import pydoc
import random
import re
import signal
import subprocess
import sys
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from itertools import count

import numpy as np
import pytest
import torch

import tformer_cli
from tformer_cli.api import inspecting
from tformer_cli.api import model as loaded_model
from tformer_cli.api.calls import ELSEWHERE, WORDS
from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.view import describe
from tformer_cli.kinds.lines.classify import classify_lines
from tformer_cli.kinds.lines.embed import embed_texts
from tformer_cli.kinds.lines.fill import GapFiller
from tformer_cli.kinds.lines.generate import generate_texts
from tformer_cli.kinds.lines.score import score_lines
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.kinds.opening import open_model
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.opening import OpeningSettings
from tformer_cli.settings import types_of

LINES = ["A man sleeps.", "", "Two dogs run in the snow.", "the street"]
TARGETS = ["Ein Mann", "", "Zwei Hunde im Schnee", "die Straße"]


@pytest.fixture(scope="module")
def loaded(model):
    return tformer_cli.load(model, device="cpu", precision="float32")


def as_data(records):
    return [
        (describe(record), [record.captured.weights(head).tolist() for head in record.heads])
        for record in records
    ]


def test_results_are_those_of_the_features(loaded, model):
    fixed = {"device": "cpu", "precision": "float32"}
    assert list(loaded.translate(LINES)) == list(translate_lines(model, LINES, **fixed))
    results = list(loaded.translate(LINES, beam_size=3, n_best=2, buffer_lines=1))
    assert results == list(translate_lines(model, LINES, beam_size=3, n_best=2, **fixed))
    opened = open_model(model, **fixed)
    assert list(loaded.score(LINES, TARGETS)) == list(score_lines(opened, LINES, TARGETS))
    for options in ({"heads": ["cross"]}, {"targets": TARGETS}, {"mode": "live", "rank": 2}):
        theirs = inspect_heads(model, LINES, device="cpu", **options)
        assert as_data(loaded.heads(LINES, **options)) == as_data(theirs)
    # the settings of one call are of that call
    assert list(loaded.translate(LINES)) == list(translate_lines(model, LINES, **fixed))


def test_a_model_is_opened_once(model, monkeypatch):
    opened = []

    def opening(path, *verb, **options):
        opened.append(options["precision"])
        return open_model(path, *verb, **options)

    for module in (loaded_model, inspecting):
        monkeypatch.setattr(module, "open_model", opening)
    loaded = tformer_cli.load(model, device="cpu", precision="int8")
    for _ in range(2):
        assert len(list(loaded.translate(LINES, beam_size=2))) == 4
        assert len(list(loaded.score(LINES, TARGETS))) == 4
    assert opened == ["int8"]
    assert "int8 on cpu" in repr(loaded)
    for _ in range(2):
        (record,) = loaded.heads(LINES[:1])
    assert opened == ["int8", "float32"]  # maps are of float32
    assert as_data([record]) == as_data(inspect_heads(model, LINES[:1], device="cpu"))


def test_a_line_end_within_a_text_ends_a_sentence(model):
    loaded = tformer_cli.load(model, device="cpu", split_sentences="rule")
    parts = ["A man sleeps", "Two dogs run."]
    (whole,) = loaded.translate(["\n".join(parts)])
    assert whole.n_sentences == 2
    assert whole.text == " ".join(part.text for part in loaded.translate(parts))


def test_several_threads_get_what_each_would_get_alone(loaded):
    jobs = {
        "greedy": lambda: list(loaded.translate(LINES, beam_size=1, buffer_lines=1)),
        "beam": lambda: list(loaded.translate(LINES, beam_size=4, n_best=3)),
        "torch": lambda: list(loaded.translate(LINES, no_repeat_ngram=2)),
        "score": lambda: list(loaded.score(LINES, TARGETS)),
        "heads": lambda: as_data(loaded.heads(LINES, heads=["dec"], mode="live")),
    }
    alone = {name: job() for name, job in jobs.items()}
    with ThreadPoolExecutor(10) as pool:
        running = [(name, pool.submit(job)) for _ in range(4) for name, job in jobs.items()]
        for name, future in running:
            assert future.result() == alone[name], name


def test_a_classifier_labels_as_the_workflow_does(classifier):
    loaded = tformer_cli.load(classifier, device="cpu")
    opened = open_model(classifier, "classify", device="cpu")
    expected = list(classify_lines(opened, LINES))
    assert [result.label for result in expected][1] == ""
    assert list(loaded.classify(LINES)) == expected
    assert list(loaded.classify(iter(LINES), buffer_lines=1)) == expected
    with pytest.raises(DataError, match=r"line 2: has \d+ tokens"):
        list(loaded.classify(["a", "A man " * 99], too_long="error"))


def test_a_language_model_generates_as_the_workflow_does(language_model):
    loaded = tformer_cli.load(language_model, device="cpu", seed=5)
    prompts = ["A man", "Two dogs", "the", "A woman"]
    fixed = {"device": "cpu", "seed": 5}
    assert list(loaded.generate()) == generate_texts(language_model, **fixed)
    for search in (
        {"max_length": 6},
        {"max_length": 6, "n_best": 2, "temperature": 0.5},
        {"max_length": 6, "beam_size": 3},
        {"max_length": 20, "stops": [" "]},
    ):
        expected = generate_texts(language_model, prompts, **fixed, **search)
        assert list(loaded.generate(prompts, **search)) == expected
        assert list(loaded.generate(prompts, buffer_prompts=1, **search)) == expected
    with pytest.raises(UsageError, match=r"^coverage_penalty: "):
        loaded.generate(prompts, coverage_penalty=1.0)
    with pytest.raises(UsageError, match=r"^stops: is empty"):
        loaded.generate(prompts, stops=[""])


def test_heads_of_a_language_model_are_switched_off_and_others_refused(language_model):
    def log_probabilities(**options):
        loaded = tformer_cli.load(language_model, device="cpu", **options)
        texts = loaded.generate(["A dog"], beam_size=2, max_length=4)
        return [result.texts[0].log_probability for result in texts]

    assert log_probabilities(heads=["*"]) == pytest.approx(log_probabilities(), rel=1e-5)
    assert log_probabilities(heads=["dec.0.0"]) != pytest.approx(log_probabilities(), rel=1e-3)
    with pytest.raises(UsageError, match='heads: "zzz" is not KIND'):
        log_probabilities(heads=["zzz"])
    with pytest.raises(ArtifactError, match="this takes translation models"):
        log_probabilities(ensemble=[language_model])


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A masked language model with random weights, imported."""
    pytest.importorskip("transformers")
    from tests.foreign import encoders

    path = tmp_path_factory.mktemp("masked")
    encoders.write_directory(path / "theirs", "bert", "ForMaskedLM")
    import_model(str(path / "theirs"), path / "ours")
    return path / "ours"


def test_an_encoder_embeds_and_fills_as_the_workflows_do(encoder, classifier):
    loaded = tformer_cli.load(encoder, device="cpu", threads=1)
    opened = open_model(encoder, "embed", device="cpu")
    lines = ["the dog [MASK] in the snow", "", "a <mask> <mask>", "the street"]
    for settings in ({}, {"pooling": "first", "unit_length": True}):
        expected = embed_texts(opened, lines, **settings)
        embeddings = list(loaded.embed(iter(lines), buffer_lines=1, **settings))
        assert [embedding.index for embedding in embeddings] == [0, 1, 2, 3]
        for ours, theirs in zip(embeddings, expected, strict=True):
            assert (
                np.array_equal(ours.vector, theirs.vector) or ours.vector is theirs.vector is None
            )
    expected = GapFiller(opened).fill(lines, top=2)
    assert [len(text.gaps) for text in expected] == [1, 0, 2, 0]
    assert list(loaded.fill(lines, top=2)) == expected
    assert list(loaded.fill(lines, top=2, buffer_lines=1)) == expected
    # a classifier of texts is an encoder, too
    vectors = [row.vector for row in tformer_cli.load(classifier, device="cpu").embed(LINES)]
    theirs = embed_texts(open_model(classifier, "embed", device="cpu"), LINES)
    assert np.array_equal(vectors[0], theirs[0].vector)


@pytest.mark.parametrize("name", ["classifier", "language_model"])
def test_heads_of_models_that_do_not_translate_are_those_of_the_workflow(name, request):
    path = request.getfixturevalue(name)
    lines = [line for line in LINES if line]
    loaded = tformer_cli.load(path, device="cpu")
    expected = as_data(inspect_heads(path, lines, device="cpu"))
    assert as_data(loaded.heads(lines)) == expected


def test_a_model_of_another_task_says_what_it_is(model, classifier, language_model):
    labels, writes = (tformer_cli.load(path, device="cpu") for path in (classifier, language_model))
    translates = tformer_cli.load(model, device="cpu")
    for call in (labels.translate, labels.generate, labels.fill):
        with pytest.raises(
            ArtifactError,
            match=r"is a classifier, .* call its classify\(\), embed\(\) or heads\(\)$",
        ):
            call(LINES)
    for call in (
        lambda lines: writes.score(lines, lines),
        *(writes.translate, writes.classify, writes.embed, writes.fill),
    ):
        with pytest.raises(
            ArtifactError, match=r"is a language model, .* call its generate\(\) or heads\(\)$"
        ):
            call(LINES)
    for call in (translates.classify, translates.generate, translates.embed):
        with pytest.raises(
            ArtifactError, match=r"is a translation model; call its translate\(\), "
        ):
            call(LINES)
    with pytest.raises(UsageError, match="beam_size: is not a setting of classifiers; omit it"):
        tformer_cli.load(classifier, beam_size=3)


def test_the_methods_that_are_named_are_those_there_are(
    model, classifier, language_model, encoder, tmp_path
):
    for path in (model, classifier, language_model, encoder):
        loaded = tformer_cli.load(path, device="cpu")
        for name in ("translate", "score", "classify", "embed", "fill", "generate", "heads"):
            given = [["[MASK]"]] * (2 if name == "score" else 1)
            try:
                list(getattr(loaded, name)(*given))
            except ArtifactError as refused:
                named = str(refused).rpartition("call its ")[2]
                assert f"{name}()" not in named
            else:
                assert f"{name}()" in loaded._methods_in_words()


def test_refusals_name_arguments_and_methods_not_options(classifier, tmp_path):
    with pytest.raises(UsageError, match=r"^(device|precision): "):  # with or without a GPU
        tformer_cli.load(classifier, precision="int8", device="cuda")
    labels = tformer_cli.load(classifier, device="cpu")
    with pytest.raises(DataError, match=r'shorten it, or too_long="truncate"$'):
        list(labels.classify(["A man " * 99], too_long="error"))
    with pytest.raises(
        ArtifactError, match=r"nowhere: no such directory; name a model directory, "
    ):
        tformer_cli.load(tmp_path / "nowhere")


FORKED = """
import os, signal, sys, threading, time
import tformer_cli

path, n_threads, computes = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "computes"
lines = ["A man sleeps.", "Two dogs run in the snow.", "the street"] * 40
model = tformer_cli.load(path, device="cpu", precision="float32", threads=n_threads)

def translated():
    return [result.text for result in model.translate(lines, buffer_lines=20)]

expected, is_over = translated(), False

def compute():
    while not is_over:
        assert translated() == expected

threads = [threading.Thread(target=compute) for _ in range(4 if computes else 0)]
for thread in threads:
    thread.start()
statuses = []
for _ in range(3):
    time.sleep(0.05)
    child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(0 if translated() == expected else 9)
    statuses.append(os.waitpid(child, 0)[1])
is_over = True
for thread in threads:
    thread.join()
print(statuses, translated() == expected)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.parametrize("parent", ["waits", "computes"])
def test_a_forked_child_gets_what_its_parent_gets(model, kernels, parent):
    done = subprocess.run(
        # From 3.12 on Python warns who forks of threads; the locks of ours are taken care of
        [
            *(sys.executable, "-W", "ignore::DeprecationWarning:__main__"),
            *("-c", FORKED, str(model), "2", parent),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 0, 0] True\n", "")


GROWTH = """
import gc, sys, tracemalloc
import tformer_cli

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

model = tformer_cli.load(sys.argv[1], device="cpu", precision="float32")
lines = ["A man sleeps.", "Two dogs run in the snow.", "", "the street"]

def call(n_calls):
    for number in range(n_calls):
        list(model.translate(lines, beam_size=1 + number % 4))
        list(model.score(lines, lines))
        if number % 10 == 0:
            list(model.heads(lines[:1]))
    gc.collect()

call(100)
tracemalloc.start()
call(100)
before, held = resident(), tracemalloc.get_traced_memory()[0]
call(1000)
print(resident() - before, tracemalloc.get_traced_memory()[0] - held)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for memory")
def test_memory_does_not_grow_with_calls(model):
    command = [sys.executable, "-c", GROWTH, str(model)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    resident, python_objects = map(int, done.stdout.split())
    assert resident < 4_000_000
    assert python_objects < 100_000


def test_results_come_while_lines_are_still_being_made(loaded):
    numbers = []

    def lines():
        for number in count():
            numbers.append(number)
            yield LINES[2]

    translations = loaded.translate(lines(), buffer_lines=2)
    assert numbers == []
    assert [next(translations).index for _ in range(3)] == [0, 1, 2]
    assert numbers == [0, 1, 2, 3]
    numbers.clear()
    assert next(loaded.heads(lines())).index == 0
    assert numbers == [0]


def test_one_result_may_be_the_input_of_the_next(loaded):
    translated = (translation.text for translation in loaded.translate(LINES))
    scored = list(loaded.score(LINES, translated))
    assert [row.target for row in scored] == [row.text for row in loaded.translate(LINES)]


def test_errors_of_a_call_name_its_arguments(loaded, model, language_model):
    for sides, said in (((["a", "b"], ["c"]), "targets"), ((["a"], ["b", "c"]), "sources")):
        with pytest.raises(DataError, match=rf"^{said}: has no line 2, but the other text has; "):
            list(loaded.score(*sides))
    writer = tformer_cli.load(language_model, device="cpu")
    for call in (loaded.translate, loaded.heads, writer.generate):
        name = call.__name__
        unknown = rf"^beam: is not an argument of {name}\(\); did you mean beam_size\?$"
        with pytest.raises(TypeError, match=unknown):
            call(LINES, beam=3)
        with pytest.raises(TypeError, match=rf"^device: .* {name}\(\); give it to tformer.load"):
            call(LINES, device="cpu")
        for given, value, kind in (
            *(("beam_size", "x", "int"), ("beam_size", 2.0, "int"), ("n_best", True, "int")),
            *(("length_penalty", [1], "float"), ("sampling", "no", "bool")),
        ):
            shown = re.escape(f"{given}: must be {kind}, but is {value!r} ({type(value).__name__})")
            with pytest.raises(UsageError, match=f"^{shown}$"):
                call(LINES, **{given: value})
        with pytest.raises(UsageError, match=r"^risk: must be one of none, chrf, bleu; found 'x'$"):
            call(LINES, risk="x")
    with pytest.raises(TypeError, match=r"^buffer_lines: must be int, but is 'x' \(str\)$"):
        loaded.translate(LINES, buffer_lines="x")
    for name in ("beam_size", "threads", "seed"):
        with pytest.raises(UsageError, match=rf"^{name}: must be int, but is 'x' \(str\)$"):
            tformer_cli.load(model, **{name: "x"})
    settings = {"beam_size": np.int64(2), "length_penalty": np.float32(1.0), "n_best": None}
    assert len(list(loaded.translate(LINES, **settings))) == 4


def test_wrong_arguments_are_refused_at_once(loaded, tmp_path):
    with pytest.raises(TypeError, match="lines: is one str; give a list of str"):
        loaded.translate("A man")
    with pytest.raises(UsageError, match=r"^beam_size: must be"):
        loaded.translate(LINES, beam_size=0)
    with pytest.raises(ValueError, match="buffer_lines: must be at least 1, but is 0"):
        loaded.translate(LINES, buffer_lines=0)
    with pytest.raises(TypeError, match="made_up"):
        loaded.translate(LINES, made_up=1)
    with pytest.raises(TypeError, match="targets: is one str"):
        loaded.score(LINES, "Ein Mann")
    with pytest.raises(UsageError, match=r"cross\.77"):
        loaded.heads(LINES, heads=["cross.77"])
    with pytest.raises(UsageError, match="a given target was not searched for"):
        loaded.heads(LINES, targets=TARGETS, mode="live")
    with pytest.raises(DataError, match="there are more lines than targets"):
        list(loaded.heads(LINES, targets=TARGETS[:3]))
    with pytest.raises(ArtifactError, match="no such"):
        tformer_cli.load(tmp_path / "nowhere")


def state_of_the_process():
    return {
        "environment": dict(os.environ),
        "directory": os.getcwd(),  # noqa: PTH109
        "threads": torch.get_num_threads(),
        "precision": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "determinism": torch.are_deterministic_algorithms_enabled(),
        "random of torch": torch.get_rng_state().tolist(),
        "random of numpy": str(np.random.get_state()),  # noqa: NPY002
        "random": random.getstate(),
        "warnings": list(warnings.filters),
        "logging": (logging.root.level, list(logging.root.handlers)),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "recursion": sys.getrecursionlimit(),
    }


def test_nothing_of_the_process_is_changed(model, classifier, language_model, capfd):
    before = state_of_the_process()
    list(tformer_cli.load(classifier, device="cpu").classify(LINES))
    writer = tformer_cli.load(language_model, device="cpu", seed=4)
    list(writer.generate(["A man"], max_length=5))
    list(writer.generate(["A man"], max_length=5, beam_size=2))
    loaded = tformer_cli.load(model, device="cpu", threads=2, seed=3)
    list(loaded.translate(LINES, sampling=True, temperature=0.5))
    list(loaded.translate(LINES, beam_size=2))
    list(loaded.score(LINES, TARGETS))
    list(loaded.heads(LINES))
    assert state_of_the_process() == before
    assert capfd.readouterr() == ("", "")


def test_neither_the_package_nor_translating_imports_torch(model, kernels):
    code = (
        "import sys, tformer_cli\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'tformer_cli.kinds.lines'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        f"model = tformer_cli.load({str(model)!r}, device='cpu')\n"
        f"print(len(list(model.translate({LINES!r}))), len(list(model.score({LINES!r},"
        f" {TARGETS!r}))), 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n4 4 False\n"


class Frame(HTMLParser):
    """Collects the frames of a piece of HTML."""

    def __init__(self, html):
        super().__init__()
        self.frames = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        assert tag == "iframe"
        self.frames.append(dict(attributes))


def test_a_notebook_shows_the_page_of_the_heads_in_a_frame(loaded):
    record, blank = loaded.heads(['A <b>man</b> & "dog"', ""], heads=["cross"])
    (frame,) = Frame(record._repr_html_()).frames
    page = frame["srcdoc"]
    assert page.startswith("<!DOCTYPE html>")
    assert "allow-same-origin" not in frame["sandbox"]
    data = page.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert json.loads(data)["sentences"][0]["source"] == record.source
    assert blank._repr_html_() == "<p>a blank line has no attention maps</p>"


def test_signatures_have_every_argument_by_its_name(loaded):
    for call in (
        tformer_cli.load,
        loaded.translate,
        loaded.generate,
        loaded.heads,
        loaded.evaluate,
    ):
        parameters = inspect.signature(call).parameters
        assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values())
        assert parameters["beam_size"].default is None
        assert "beam_size" in pydoc.render_doc(call)
    parameters = inspect.signature(tformer_cli.load).parameters
    assert parameters["threads"].default == 0
    assert parameters["adapter"].annotation == "Path | str | None"
    assert parameters["ensemble"].annotation == "Sequence[Path | str]"
    assert parameters["risk"].annotation == "Literal['none', 'chrf', 'bleu'] | None"
    assert inspect.signature(loaded.translate).return_annotation == "Results[Translation]"


def test_load_documents_every_argument_in_the_words_of_its_option():
    parameters = inspect.signature(tformer_cli.load).parameters
    text = pydoc.render_doc(tformer_cli.load)
    documented = re.findall(r"(?m)^ {8}(\w+): \w", text)
    assert documented == [*parameters, "UsageError", "ArtifactError"]
    settings = {*types_of(OpeningSettings), *types_of(DecodingConfig)}
    assert settings - parameters.keys() == {"tell", "before_torch"}
    sections = re.findall(r"(?m)^ {4}([A-Z][\w ]+):$", text)
    assert sections == ["Args", "Common", "Machine", "Search", "Sampling", "Large jobs", "Raises"]
    words = " ".join(text.split())
    assert DecodingConfig.__dataclass_fields__["beam_size"].metadata["option"].help in words
    assert "a target_prefix does not count. Default: the model's, and max_length_ratio." in words
    assert "--" not in text
    assert "MODEL" not in text


def test_notes_are_logged(model, monkeypatch):
    notes = []
    monkeypatch.setattr(logging.getLogger("tformer"), "info", lambda *note: notes.append(note))
    list(tformer_cli.load(model, device="cpu", beam_size=2).translate(["a"], n_best=3))
    assert ("%s", "beam size raised from 2 to 3, to find 3 translations") in notes


def test_names_of_other_libraries_lead_to_those_of_ours(loaded, model):
    for name, message in (
        ("num_beams", "is not an argument of translate(); use beam_size"),
        ("batch_size", "is not an argument of translate(); use buffer_lines"),
        ("compute_type", "is not an argument of translate(); give precision to tformer.load"),
        ("early_stopping", "is not an argument of translate(); see `tformer guide python`"),
    ):
        with pytest.raises(TypeError, match=f"^{re.escape(f'{name}: {message}')}$"):
            loaded.translate(LINES, **{name: 1})
    with pytest.raises(UsageError, match=r"^lenpen: is not a .* model; use length_penalty$"):
        tformer_cli.load(model, lenpen=1)
    methods = [getattr(type(loaded), name) for name in dir(loaded) if name != "opened"]
    ours = [
        name for call in (*methods, tformer_cli.load) for name in inspect.signature(call).parameters
    ]
    assert {*ELSEWHERE.values()} <= {*ours}
    assert not ELSEWHERE.keys() & {*ours}
    for name, message in (
        ("device", r"see its opened\.place"),
        ("predict", r"call its translate\(\), score\(\) or heads\(\)"),
        ("to", r"give device=\S+ or \S+ to tformer\.load"),
        ("translate_batch", r"did you mean translate\?"),
    ):
        with pytest.raises(AttributeError, match=f"^{name}: is not an attribute of .*; {message}$"):
            getattr(loaded, name)
    assert not hasattr(loaded, "_repr_mimebundle_")
    with pytest.raises(TypeError, match=r"^a loaded model is no function; call its translate\(\)"):
        loaded("A man")


def test_a_closed_model_holds_nothing_and_says_so(model):
    with tformer_cli.load(model, device="cpu") as loaded:
        held = [weakref.ref(loaded.opened), weakref.ref(loaded.opened.translator)]
        assert len(loaded.translate(LINES)) == len(loaded.heads(LINES)) == 4
        late = loaded.translate(LINES)
    assert repr(loaded) == "<a closed model>"
    for call in (
        late.__len__, lambda: loaded.score(LINES, LINES), lambda: pickle.dumps(loaded),
        lambda: loaded.opened,
    ):  # fmt: skip
        with pytest.raises(
            UsageError, match=r"^model: is closed; read its results before, or load"
        ):
            call()
    del late
    gc.collect()
    assert [reference() for reference in held] == [None, None]
    loaded.close()


SPAWNED = """
import multiprocessing
import sys

import tformer_cli

if __name__ == "__main__":
    model = tformer_cli.load(sys.argv[1], device="cpu", beam_size=2, banned=iter(["a"]))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for results in pool.map(model.translate, [["A man."], ["Two dogs.", ""]]):
            print([translation.text for translation in results])
"""


def test_a_process_that_is_spawned_loads_the_model_again(model, tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(SPAWNED, encoding="utf-8")
    command = [sys.executable, tmp_path / "program.py", os.path.relpath(model, tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, timeout=200, check=False
    )
    loaded = tformer_cli.load(model, device="cpu", beam_size=2, banned=["a"])
    jobs = (["A man."], ["Two dogs.", ""])
    expected = [[row.text for row in loaded.translate(lines)] for lines in jobs]
    assert (done.stderr, done.stdout) == ("", "".join(f"{texts}\n" for texts in expected))


def test_a_model_is_copied_by_its_place_and_its_settings(model, tmp_path, monkeypatch):
    monkeypatch.chdir(model.parent)
    loaded = tformer_cli.load(model.name, device="cpu", heads=["!cross.0.0"], n_best=2)
    expected = list(loaded.translate(LINES))
    monkeypatch.chdir(tmp_path)
    stored = pickle.dumps(loaded)
    assert len(stored) < 1000
    assert list(copy.deepcopy(loaded).translate(LINES)) == expected
    assert list(pickle.loads(stored).translate(LINES)) == expected  # noqa: S301
    moved = stored.replace(bytes(model), bytes(model.with_name("other")))
    with pytest.raises(ArtifactError, match="other: no such directory"):
        pickle.loads(moved)  # noqa: S301


def test_paths_are_texts_or_paths(model):
    expected = list(tformer_cli.load(model, device="cpu", ensemble=[model]).translate(LINES))
    loaded = tformer_cli.load(str(model), device="cpu", ensemble=[str(model)])
    assert list(loaded.translate(LINES)) == expected
    assert list(pickle.loads(pickle.dumps(loaded)).translate(LINES)) == expected  # noqa: S301
    with pytest.raises(UsageError, match=r"^ensemble: is one path; give a list"):
        tformer_cli.load(model, ensemble=model)
    with pytest.raises(UsageError, match=r"^heads: is one int; give a list, such as \[3\]$"):
        tformer_cli.load(model, heads=3)


def test_functions_stay_callable_beside_the_folders_of_their_names():
    """Importing `tformer_cli.train` puts the folder in the place of the function."""
    import tformer_cli.evaluate.evaluate
    import tformer_cli.train.train

    assert tformer_cli.evaluate is sys.modules["tformer_cli.evaluate"]
    assert list(inspect.signature(tformer_cli.train).parameters)[:2] == ["recipe", "run"]
    score = tformer_cli.evaluate(["a small house", "b"], ["a small house", "b"], lowercase=True)
    assert score == tformer_cli.evaluate.evaluate.score_hypotheses(
        ["a small house", "b"], [["a small house", "b"]], lowercase=True
    )
    with pytest.raises(
        TypeError, match=r"^lowercas: .* of evaluate\(\); did you mean lowercase\?$"
    ):
        tformer_cli.evaluate(["a"], ["a"], lowercas=True)


def test_only_the_names_of_the_api_are_listed(loaded):
    assert dir(tformer_cli) == sorted(tformer_cli.__all__)
    assert all(hasattr(tformer_cli, name) for name in tformer_cli.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        tformer_cli.lod  # noqa: B018
    assert dir(loaded) == [
        "align", "classify", "close", "embed", "evaluate", "fill", "flow", "generate", "heads",
        "inspect", "logits", "opened", "report", "score", "tag", "tokenize", "translate",
    ]  # fmt: skip


def test_a_setting_that_is_not_there_is_refused_by_name(model):
    with pytest.raises(UsageError, match=r"^beam: is not a setting .* did you mean beam_size\?$"):
        tformer_cli.load(model, beam=3)


def test_words_of_a_setting_are_compared_and_not_their_places(classifier):
    words = {"too_long": b"split".decode(), "heads": [], "banned": [], "ensemble": []}
    assert list(tformer_cli.load(classifier, device="cpu", **words).classify(["a"]))
    # what only equals the default is still looked at
    with pytest.raises(UsageError, match=r"^threads: must be int, but is False \(bool\)$"):
        tformer_cli.load(classifier, device="cpu", threads=False)


def test_no_argument_that_takes_words_takes_others(loaded):
    calls = {
        (call, name): parameter.annotation
        for call in (
            getattr(loaded, name) for name in dir(loaded) if name not in ("close", "opened")
        )
        for name, parameter in inspect.signature(call).parameters.items()
        if any(word in parameter.annotation for word in (*WORDS, "Literal["))
    }
    assert {name for _, name in calls} == {
        "convention", "eos", "length_normalization", "mode", "risk", "side", "weights",
    }  # fmt: skip
    for call, name in calls:
        given = (LINES, LINES) if call.__name__ == "score" else (LINES,)
        with pytest.raises(UsageError, match=rf"^{name}: must be one of .*; found 'zz'$"):
            call(*given, **{name: "zz"})


@pytest.mark.parametrize(
    ("call", "settings", "message"),
    [
        ("logits", {"top_k": 0}, "must be at least 1, but is 0"),
        ("logits", {"top_k": "3"}, "must be int, but is '3' (str)"),
        ("align", {"threshold": "zz"}, "must be float, but is 'zz' (str)"),
        ("align", {"threshold": 1.5}, "must be 0 to 1, but is 1.5"),
        *((call, {"rank": 0}, "must be at least 1, but is 0") for call in ("heads", "flow")),
        ("report", {"rank": 0}, "must be at least 1, but is 0"),
        ("heads", {"heads": "cross"}, "is one str; give a list, such as ['cross']"),
    ],
)
def test_numbers_and_lists_are_checked_at_once(loaded, call, settings, message):
    with pytest.raises(UsageError, match=f"^{re.escape(f'{next(iter(settings))}: {message}')}$"):
        getattr(loaded, call)(LINES, **settings)


def test_what_is_no_name_or_list_is_refused_by_its_argument(model, tmp_path, monkeypatch):
    monkeypatch.chdir(model)
    with pytest.raises(UsageError, match=r"^model: is empty; name a directory$"):
        tformer_cli.load("")
    with pytest.raises(UsageError, match=r"^model: is NoneType; name a directory$"):
        tformer_cli.load(None)
    with pytest.raises(UsageError, match=r"^adapter: is int; name a directory$"):
        tformer_cli.load(model, adapter=3)
    with pytest.raises(UsageError, match=r"^device: must be str, but is None \(NoneType\)$"):
        tformer_cli.load(model, device=None)
    for name in ("banned", "ensemble", "heads"):
        with pytest.raises(UsageError, match=rf"^{name}: is one str; give a list, such as "):
            tformer_cli.load(model, **{name: "abc"})
    with pytest.raises(ArtifactError, match=r"^nope"):
        tformer_cli.load(model, device="cpu", adapter="nope")
    with pytest.raises(UsageError, match=r"^recipe: is NoneType; give a TOML file, "):
        tformer_cli.train(None, tmp_path / "run")
    with pytest.raises(UsageError, match=r"^run: is empty; "):
        tformer_cli.train("quickstart", "")
    with pytest.raises(UsageError, match=r"^changes: model.from is \w*Path; a recipe takes"):
        tformer_cli.train("quickstart", tmp_path / "run", changes={"model.from": tmp_path})
    assert not (tmp_path / "run").exists()


def test_texts_to_evaluate_may_be_made_while_they_are_read(loaded, classifier):
    expected = loaded.evaluate(LINES, TARGETS)
    assert loaded.evaluate(iter(LINES), iter(TARGETS)) == expected
    assert loaded.evaluate(iter(LINES), iter([iter(TARGETS)])) == expected
    scored = tformer_cli.evaluate(LINES, TARGETS)
    assert tformer_cli.evaluate(iter(LINES), iter(TARGETS)) == scored
    labels = tformer_cli.load(classifier, device="cpu")
    texts = [line for line in LINES if line]
    known = [result.label for result in labels.classify(texts)]
    assert labels.evaluate(iter(texts), iter(known)) == labels.evaluate(texts, known)
    for references in (None, 3):
        with pytest.raises(
            TypeError, match=r"^references: is \w+; give a list of str, a line each$"
        ):
            tformer_cli.evaluate(["a"], references)


@pytest.mark.parametrize(
    "name", ["precision", "engine", "too_long", "split_sentences", "ensemble_space"]
)
def test_a_word_that_is_no_choice_is_refused(model, classifier, name):
    with pytest.raises(UsageError, match=rf"^{name}: must be one of .*; found 'int4'$"):
        tformer_cli.load(model, **{name: "int4"})
    if name == "too_long":
        labels = tformer_cli.load(classifier, device="cpu")
        with pytest.raises(UsageError, match=r"^too_long: must be truncate or error; found 'no'"):
            list(labels.classify(["a"], too_long="no"))
