import gzip
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from tformer_cli.artifacts.model_directory import load_model_directory, save_model_directory
from tformer_cli.errors import ArtifactError, DataError, UsageError
from tformer_cli.evaluate.evaluate import evaluate_model, score_hypotheses
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.kinds.lines.score import score_lines
from tformer_cli.kinds.lines.translate import translate_file, translate_lines
from tformer_cli.kinds.opening import open_model
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.corpora_tools.tokenize import encode_lines
from tformer_cli.text.tokenizer import read_tokenizer

LINES = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A woman and a dog."]


def test_lines_are_translated_in_order_with_the_settings_given(model):
    found = list(translate_lines(model, [*LINES, ""], beam_size=2, n_best=2, device="cpu"))
    assert [t.source for t in found] == [*LINES, ""]
    assert [len(t.hypotheses) for t in found] == [2, 2, 2, 2, 1]


def test_settings_not_given_are_the_models(model):
    opened = open_model(model, beam_size=None, length_penalty=1.0)
    assert opened.translator.config.beam_size == 3
    assert opened.translator.config.length_penalty == 1.0
    assert opened.precision == "float32"


@pytest.mark.parametrize(
    "changes", [{}, {"positions": "alibi"}, {"positions": "segments"}, {"similarity": "cosine"}]
)
def test_a_model_that_the_kernels_do_not_know_is_searched_by_torch_which_is_said(
    model, tmp_path, changes
):
    given, told = load_model_directory(model, "cpu"), []
    config = replace(given.config, **changes)
    torch.manual_seed(2)
    weights = Transformer(config, given.tokenizer.vocab_size).state_dict()
    path = tmp_path / "model"
    save_model_directory(
        path,
        weights,
        config=config,
        tokenizer=given.tokenizer,
        decoding=given.decoding,
        info=given.info,
    )
    opened = open_model(path, device="cpu", tell=told.append)
    assert len(list(opened.translator.translate(LINES))) == len(LINES)
    said = [line for line in told if "torch" in line]
    expected = [f'{name} = "{value}"' for name, value in changes.items()]
    assert said == [
        f"searching by torch, which is slower than the compiled kernels: they do not know {setting}"
        for setting in expected
    ]


@pytest.mark.parametrize(
    ("options", "raised", "message"),
    [
        ({"n_best": 3}, {"beam_size": 3}, ""),
        ({"n_best": 5}, {"beam_size": 5}, "beam size raised from 3 to 5, to find 5 translations"),
        (
            {"n_best": 3, "beam_size": 1},
            {"beam_size": 3},
            "beam size raised from 1 to 3, to find 3 translations",
        ),
        (
            {"n_best": 5, "beam_size": 4, "diversity_groups": 2},
            {"beam_size": 6},
            "beam size raised from 4 to 6, to find 5 translations",
        ),
        ({"n_best": 40, "sampling": True}, {"beam_size": 3, "candidates": 32}, ""),
        (
            {"n_best": 40, "sampling": True, "risk": "chrf"},
            {"candidates": 40},
            "candidates raised from 32 to 40, to find 40 translations",
        ),
    ],
)
def test_more_translations_than_the_beam_raise_it_and_say_so(model, options, raised, message):
    told = []
    opened = open_model(model, tell=told.append, **options)
    config = opened.translator.config
    assert config.n_best == options["n_best"]
    assert {name: getattr(config, name) for name in raised} == raised
    assert told == ([message] if message else [])


def test_as_many_translations_come_as_are_asked_for(model):
    found = list(translate_lines(model, LINES[:1], n_best=5, device="cpu"))
    assert len(found[0].hypotheses) == 5


def test_an_open_directory_is_used_as_it_is(model):
    opened = open_model(model)
    again = list(translate_lines(opened.directory, LINES))
    assert again == opened.translator.translate(LINES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 0}, "--n-best: must be 1 to 10000, but is 0"),
        ({"beam_size": 0}, "--beam-size: must be 1 to 10000, but is 0"),
        ({"device": "tpu"}, "--device: must be auto, cpu, cuda or cuda:N"),
    ],
)
def test_impossible_settings_name_the_option(model, options, message):
    with pytest.raises(UsageError, match=message):
        open_model(model, **options)


def test_no_model_directory_is_an_artifact_error(tmp_path):
    with pytest.raises(ArtifactError, match="no such directory"):
        open_model(tmp_path / "nothing")


STATE = """
import sys, torch
from tformer_cli.kinds.lines.translate import translate_lines

def state():
    matmul = torch.backends.mkldnn.matmul.fp32_precision
    return matmul, torch.get_num_threads(), torch.initial_seed(), torch.get_rng_state().tolist()

torch.set_num_threads(3)
torch.manual_seed(8)
before = state()
for options in ({}, {"engine": "torch"}, {"sampling": True}, {"heads": ["*"], "engine": "torch"}):
    found = list(translate_lines(sys.argv[1], ["A man sleeps."], threads=1, seed=5, **options))
    assert len(found) == 1
    assert state() == before, options
"""


def test_the_state_of_torch_is_as_a_python_caller_left_it(model):
    run = [sys.executable, "-c", STATE, str(model)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_program_prepares_torch_before_it_computes(model):
    calls = []
    options = {"engine": "torch", "before_torch": lambda: calls.append(1)}
    translator = open_model(model, device="cpu", **options).translator
    assert not calls
    translator.translate(LINES)
    assert calls == [1]


def test_a_file_becomes_a_file_with_as_many_lines(model, tmp_path):
    source, target = tmp_path / "in.txt.gz", tmp_path / "out.txt"
    source.write_bytes(gzip.compress("\n".join([*LINES, "", "x"]).encode()))
    counts = translate_file(model, source, target)
    expected = [t.text for t in translate_lines(model, [*LINES, "", "x"])]
    assert target.read_text(encoding="utf-8") == "".join(f"{text}\n" for text in expected)
    assert counts.lines == 6


def test_an_error_leaves_no_file(model, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("short\n" + "long line " * 100 + "\n")
    with pytest.raises(DataError, match="line 2"):
        translate_file(model, source, target, too_long="error")
    assert [file.name for file in tmp_path.iterdir()] == ["in.txt"]


@pytest.mark.parametrize("wrong", ["A man", b"A man", None, 3, [b"A man"], [None], [1], ["a", 1]])
def test_lines_from_python_are_several_strings(model, wrong):
    message = r"^(lines|sources|targets|hypotheses|references)(\[\d\])*: is "
    both = [wrong, ["A man"]]
    for call in (
        lambda: list(translate_lines(model, wrong)),
        lambda: list(inspect_heads(model, wrong)),
        lambda: list(inspect_view("logits", model, wrong)),
        lambda: list(inspect_heads(model, ["A man"], targets=1 if wrong is None else wrong)),
        lambda: list(score_lines(open_model(model), *both)),
        lambda: list(score_lines(open_model(model), *both[::-1])),
        lambda: evaluate_model(model, wrong, [["A man"]]),
        lambda: evaluate_model(model, ["A man"], wrong),
        lambda: score_hypotheses(wrong, [["A man"]]),
        lambda: encode_lines(read_tokenizer(model), wrong),
    ):
        with pytest.raises(TypeError, match=message):
            call()


def test_a_file_is_not_translated_into_itself_or_the_model(model, tmp_path):
    source = tmp_path / "a.en"
    source.write_text("A man\n")
    config = (model / "config.json").read_bytes()
    for target, what in ((source, "is also the input"), (model / "config.json", "belongs to")):
        with pytest.raises(UsageError, match=f"^target: {target} {what}"):
            translate_file(model, source, target)
    assert source.read_text() == "A man\n"
    assert (model / "config.json").read_bytes() == config
