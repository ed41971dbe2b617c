import json

import pytest

from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import ArtifactError

OTHER = (
    "`tformer help import` names the models of other tools that can be imported; name one of them, "
    "or a tformer model directory"
)


def refusal_of(path):
    with pytest.raises(ArtifactError) as error:
        load_model_directory(path)
    return str(error.value)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return type(tmp_path)()


@pytest.fixture
def runs(here):
    for name in ("quickstart", "small", "tiny"):
        (here / "runs" / name).mkdir(parents=True)
        for part in ("config.json", "tokenizer.json", "model.safetensors"):
            (here / "runs" / name / part).write_text("{}")
    return here / "runs"


@pytest.mark.parametrize("name", ["Helsinki-NLP/opus-mt-en-fr", "facebook/nllb-200", "t/x_1.5"])
def test_a_name_of_the_hub_is_recognized(here, name):
    assert refusal_of(here / name) == (
        f"{name}: no such directory; a model of the Hugging Face hub becomes one by "
        f"`tformer import {name} -o DIR`"
    )


@pytest.mark.parametrize("name", ["a/b/c", "nothing", "../no/thing", "-x/y"])
def test_a_missing_path_is_reported_as_missing(here, name):
    message = "no such directory; name a model directory, or a model that `tformer models` lists"
    assert refusal_of(here / name) == f"{name}: {message}"


def test_a_text_in_the_place_of_the_model_is_recognized(here):
    message = "no such directory; MODEL comes first, then the text"
    assert refusal_of(here / "The cat is old.") == f"The cat is old.: {message}"


def test_a_misspelt_run_is_guessed_among_its_neighbors(runs):
    message = "no such directory; did you mean runs/quickstart?"
    assert refusal_of(runs / "quikstart") == f"runs/quikstart: {message}"
    assert refusal_of(runs / "quick") == f"runs/quick: {message}"


def test_the_parent_of_runs_names_them(runs):
    message = "is not a model but holds some; name one of them: "
    assert refusal_of(runs) == f"runs: {message}runs/quickstart, runs/small, runs/tiny"
    # A study has a folder of runs for each variant
    study = runs.with_name("study")
    study.mkdir()
    runs.rename(study / "base")
    assert refusal_of(study).startswith(f"study: {message}study/base/quickstart, ")


@pytest.mark.parametrize("part", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_file_of_a_model_names_its_directory(runs, part):
    message = "is a file of a model; name its directory runs/small"
    assert refusal_of(runs / "small" / part) == f"runs/small/{part}: {message}"


def test_a_part_of_a_run_names_it(runs):
    part = runs / "small" / "checkpoints"
    part.mkdir()
    message = f"is a part of a model or run; name its directory {(runs / 'small').resolve()}"
    assert refusal_of(part) == f"{part}: {message}"


def test_a_run_without_a_model_gets_advice(here):
    (here / "run").mkdir()
    (here / "run" / "recipe.toml").write_text("")
    says = (
        "is a run without a model yet; resume it until its first validation (`tformer train RECIPE "
        "-o run`)"
    )
    assert refusal_of(here / "run") == f"run: {says}"
    step = here / "run" / "checkpoints" / "step-5"
    step.mkdir(parents=True)
    (step / "model.safetensors").write_text("")
    assert refusal_of(step) == f"{step}: {says}"


@pytest.mark.parametrize(
    ("files", "owner"),
    [
        (["model.bin", "shared_vocabulary.json", "config.json"], "CTranslate2"),
        (["model.npz", "vocab.yml"], "Marian"),
        (["model.npz.best-bleu.npz.decoder.yml"], "Marian"),
        (["checkpoint_best.pt", "dict.en.txt", "dict.de.txt"], "fairseq"),
        (["model.pt", "dict.de.txt"], "fairseq"),
        (["model_step_10000.pt"], "OpenNMT"),
        (["params.best", "vocab.src.0.json"], "Sockeye"),
        (["best.ckpt", "config.yaml"], "JoeyNMT"),
        (["pytorch_model.bin", "source.spm"], "Hugging Face"),
        (["weights.pth"], "PyTorch"),
    ],
)
def test_models_of_other_tools_are_recognized_by_their_files(here, files, owner):
    (here / "other").mkdir()
    for name in files:
        (here / "other" / name).write_text("{}")
    assert refusal_of(here / "other") == f"other: is a model of {owner}; {OTHER}"
    if not files[0].endswith(".yml"):
        file = here / "other" / files[0]
        assert refusal_of(file) == f"{file}: is a model of {owner}; {OTHER}"


def test_a_hugging_face_model_is_recognized_by_its_config(here):
    (here / "other").mkdir()
    config = {"model_type": "marian", "architectures": ["MarianMTModel"], "d_model": 512}
    (here / "other" / "config.json").write_text(json.dumps(config))
    assert refusal_of(here / "other") == f"other: is a Hugging Face model (marian); {OTHER}"
    (here / "other" / "config.json").write_text(json.dumps({"model_type": ["odd"]}))
    assert refusal_of(here / "other") == f"other: is a Hugging Face model; {OTHER}"


def test_an_unknown_directory_is_reported_as_not_a_model(here):
    assert refusal_of(here) == ".: config.json is missing; name a tformer model directory"
    (here / "notes.txt").write_text("")
    assert refusal_of(here / "notes.txt") == "notes.txt: is a file; name a model directory"
    (here / "config.json").write_text("{}")
    message = "its config.json has no format_version; name a tformer model directory"
    assert refusal_of(here) == f".: {message}"


def test_a_name_too_long_for_the_system_is_one_line(here):
    assert refusal_of(here / ("x" * 300)).endswith("(file name too long); name a model directory")


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json", "tokenizer.model"])
def test_a_tokenizer_alone_is_recognized(here, name):
    (here / "pieces").mkdir()
    (here / "pieces" / name).write_text("{}")
    assert refusal_of(here / "pieces").startswith(
        "pieces: holds a tokenizer without a model; name a"
    )
    message = refusal_of(here / "pieces" / name)
    assert message.startswith(f"pieces/{name}: is a tokenizer without a model; name a")


def test_a_part_of_a_foreign_model_says_what_is_missing(here):
    (here / "config.json").write_text("{}")
    assert refusal_of(here / "config.json") == (
        "config.json: holds only a model's settings; put its weights next to it, and name the "
        "directory"
    )
    (here / "config.json").unlink()
    (here / "model.safetensors").write_text("")
    assert refusal_of(here / "model.safetensors") == (
        "model.safetensors: holds only weights; put their model's config.json next to them, and "
        "name the directory"
    )
    assert refusal_of(here) == (
        ".: holds weights without config.json, which describes their model; put it next to them"
    )
