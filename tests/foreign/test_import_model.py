import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.commands import output_of, record_of, refused, run
from tests.plugins.interchange.marian.test_importing import (
    OPTIONS,
    VARIANTS,
    D,
    V,
    bergamot,
    weights,
    write,
)
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.foreign import import_model as workflow
from tformer_cli.foreign.import_model import import_model, resolve_model
from tformer_cli.info import model_details
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.interchange.export import export_int8

WEIGHTS_ASKED = ("float32", None, "float32")


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "marian", weights(OPTIONS), OPTIONS)


def content(path):
    return {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_model_is_imported_and_translates(tmp_path, source):
    before = content(source)
    result = run("import", source, "-o", tmp_path / "ours")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr.splitlines()[0].endswith("Marian model, float32 weights")
    assert content(source) == before
    translated = run("translate", tmp_path / "ours", "a cat", "--max-length", "5", "--quiet")
    assert translated.exit_code == 0
    assert translated.stdout.count("\n") == 1
    assert "origin" in json.loads((tmp_path / "ours" / "config.json").read_text())
    output_of("info", tmp_path / "ours")


def test_the_same_source_gives_the_same_bytes(tmp_path, source):
    for name in ("one", "two"):
        import_model(str(source), tmp_path / name)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_a_dry_run_writes_nothing(tmp_path, source):
    before = content(tmp_path)
    result = run("import", source, "--dry-run")
    assert result.exit_code == 0
    for part in ("Marian", "model.npz, vocab.spm", "2 encoder and 2 decoder layers", "float32"):
        assert part in result.stdout
    assert content(tmp_path) == before


def test_a_foreign_model_is_imported_once_into_the_cache(tmp_path, source, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    args = ("translate", source, "a cat", "--max-length", "5")
    first, second = run(*args), run(*args)
    assert first.exit_code == second.exit_code == 0
    assert first.stdout == second.stdout
    assert "imported a model of Marian into" in first.stderr
    assert "imported" not in second.stderr
    (source / "model.npz.decoder.yml").touch()  # the files may have changed
    assert "imported" in run(*args).stderr


def test_weights_that_were_exchanged_under_their_size_and_time_are_seen(
    tmp_path, source, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = resolve_model(source)
    file = source / "vocab.spm"
    about = file.stat()
    file.write_bytes(file.read_bytes().replace("▁a".encode(), "▁%".encode(), 1))
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert file.stat().st_size == about.st_size
    assert resolve_model(source) != before


def test_views_take_integers_as_float32(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = OPTIONS | VARIANTS["ssru"]
    source = bergamot(tmp_path / "student", weights(options), options)
    output_of("translate", source, "a cat", "--max-length", "5")
    shown = run("inspect-heads", source, "a cat", "--target", "a dog")
    assert shown.exit_code == 0, shown.stderr
    assert json.loads(shown.stdout)["model"]["name"] == "student"
    imported = sorted((tmp_path / "cache" / "tformer" / "models").glob("*/student/config.json"))
    assert len(imported) == 2  # one in integers
    run("import", source, "-o", tmp_path / "ours", "--quiet")
    again = run("inspect-heads", tmp_path / "ours", "a cat", "--target", "a dog")
    assert again.stdout == shown.stdout


def test_a_model_without_integers_is_imported_once_for_all_commands(tmp_path, source, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    in_float32 = resolve_model(source, weights="float32")
    assert resolve_model(source) == in_float32
    assert resolve_model(source / "model.npz") != in_float32  # a file is a source of its own
    options = OPTIONS | VARIANTS["ssru"]
    student = bergamot(tmp_path / "student", weights(options), options)
    kinds = [read_config(resolve_model(student, weights=w)).weight_type for w in WEIGHTS_ASKED]
    assert kinds == ["float32", "int8", "float32"]


@pytest.mark.usefixtures("source")
def test_a_foreign_model_keeps_the_name_that_was_typed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    shown = run("info", "marian")
    assert f"imported a model of Marian into {tmp_path}" in shown.stderr.replace("\n", "")
    assert re.search(r"Model +marian\n", shown.stdout)
    record = record_of("info", "marian", "--format", "json")
    assert record["named"] == "marian"
    assert Path(record["path"]).parent.parent == tmp_path / "cache/tformer/models"
    refused = run("classify", "marian", "a cat", "--quiet")
    assert refused.stderr.startswith("error: marian: is a translation model; use")


def test_functions_take_foreign_models_as_commands_do(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = OPTIONS | VARIANTS["ssru"]
    source = bergamot(tmp_path / "student", weights(options), options)
    said = []
    opened = open_model(source, device="cpu", max_length=5, tell=said.append)
    assert opened.precision == "int8"
    command = run("translate", source, "a cat", "--max-length", "5", "--quiet")
    assert opened.translator.translate(["a cat"])[0].text == command.stdout.rstrip("\n")
    assert [line for line in said if "imported a model of Bergamot" in line]
    assert open_model(source, device="cpu", precision="float32").precision == "float32"
    (heads,) = inspect_heads(source, ["a cat"], targets=["a dog"], device="cpu")
    assert heads.captured
    assert model_details(source).config.origin.kind == "Bergamot (Firefox)"
    before, after = export_int8(source, tmp_path / "int8")
    assert after < before
    output_of("translate", source, "a cat", "--precision", "float32", "--max-length", "5")
    assert not (source / "config.json").exists()


def test_other_paths_stay_as_they_are(tmp_path, model):
    said = []
    for path in (model, tmp_path, tmp_path / "none", tmp_path.relative_to(tmp_path) / "no" / "x"):
        if path.parent.exists():
            assert resolve_model(path, said.append) == path
    assert not said


def test_nothing_is_overwritten(tmp_path, source):
    output = tmp_path / "ours"
    output.mkdir()
    (output / "notes").write_text("mine")
    with pytest.raises(UsageError, match="is already there"):
        import_model(str(source), output)
    assert [file.name for file in output.iterdir()] == ["notes"]
    refused("import", source, "-o", source, says="--output")


def test_the_output_must_be_named(source):
    result = run("import", source)
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --output: must be given; name a new directory, or add --dry-run\n"
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none", "no such file or directory"),
        (".", "config.json is missing"),
        ("a", "is a file"),
        ("b/a.bin", "is a model of PyTorch"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path, monkeypatch, path, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("text")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a.bin").write_bytes(b"whatever others keep in such files")
    with pytest.raises(ArtifactError, match=message):
        import_model(path, None)


def test_our_own_model_is_not_imported(model):
    with pytest.raises(ArtifactError, match="is a model directory already"):
        import_model(str(model), None)


@pytest.fixture
def hub(source, monkeypatch):
    """A hub with one model; `here` of it: whether it can be reached, and was downloaded before."""
    state = {"here": False, "reached": True, "asked": []}

    def snapshot_download(name, *, allow_patterns, local_files_only=False):
        state["asked"].append((name, local_files_only))
        if not state["here"] and (local_files_only or not state["reached"]):
            raise OSError("Name or service\nnot known")
        if not state["reached"] and not local_files_only:
            raise OSError("Name or service\nnot known")
        state["here"] = True
        return str(source)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    return state


def test_a_name_on_the_hub_is_downloaded(hub):
    assert import_model("owner/name", None).kind == "Marian"
    assert import_model("owner/name/", None).kind == "Marian"
    assert hub["asked"] == [("owner/name", False)] * 2
    hub["reached"] = False  # what was downloaded before is used
    assert import_model("owner/name", None).kind == "Marian"


def test_the_hub_is_not_asked_for_a_model_that_is_imported_already(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    said = []
    first = resolve_model(Path("owner/name"), said.append)
    assert hub["asked"] == [("owner/name", True), ("owner/name", False)]
    assert resolve_model(Path("owner/name"), said.append) == first
    assert hub["asked"][2:] == [("owner/name", True)]
    assert len(said) == 1


def test_without_the_hub_the_files_to_download_are_named(hub):
    hub["reached"] = False
    with pytest.raises(ArtifactError) as error:
        import_model("Helsinki-NLP/opus-mt-en-de", None)
    message = str(error.value)
    assert "\n" not in message
    for part in ("config.json", "pytorch_model.bin", "source.spm", "vocab.json", "(Name or serv"):
        assert part.replace("source", "*") in message


def test_runs_of_ids_are_joined():
    assert list(workflow._runs([7, -1, -1, 0, 1, 2, 4, 5])) == [
        *((7, 1), (-1, 1), (-1, 1), (0, 3), (4, 2)),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Wemb": np.zeros((5, D))}, "but the vocabulary"),
        ({"Wemb": np.float32(1)}, "but the vocabulary"),
        ({"decoder_ff_logit_out_b": np.zeros((1, 3))}, "but the vocabulary"),
        ({"Wemb": np.full((V, D), np.nan)}, "source_embedding.weight would contain NaN"),
        ({"encoder_l1_ffn_b1": np.full((1, 24), np.inf)}, "would contain NaN or infinity"),
        ({"encoder_l1_self_Wq": np.zeros((D, 3))}, "would have the shape"),
        ({"encoder_l1_self_Wq": np.zeros((3, D))}, "damaged or not of one model"),
        ({"encoder_l1_self_Wq": np.float32(1)}, "damaged or not of one model"),
        ({"encoder_l1_self_Wq": np.zeros((2, 2, 2))}, "damaged or not of one model"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_nothing_is_left(tmp_path, change, message):
    changed = {**weights(OPTIONS), **{n: np.float32(array) for n, array in change.items()}}
    source = write(tmp_path / "marian", changed, OPTIONS)
    refused("import", source, "-o", tmp_path / "ours", says=message)
    assert [path.name for path in tmp_path.iterdir()] == ["marian"]


def test_a_token_of_probability_zero_is_never_written(tmp_path):
    changed = weights(OPTIONS)
    changed["decoder_ff_logit_out_b"][0, 7] = -np.inf
    model = import_model(str(write(tmp_path / "marian", changed, OPTIONS)), None)
    assert model.weights["output_bias"][model.ids.index(7)] == np.float32(-1e9)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    (tmp_path / "model").mkdir()
    os.mkfifo(tmp_path / "model" / "config.json")
    assert resolve_model(tmp_path / "model", print) == tmp_path / "model"
    refused("translate", tmp_path / "model", "a")


def test_a_name_that_cannot_be_is_no_model(tmp_path):
    for name in ("x" * 300, "x" * 300 + "/y", "x/" + "y" * 300):
        result = run("translate", name, "a") if "/" not in name else None
        assert result is None or result.exit_code == 2
    assert resolve_model(Path("x" * 300), print) == Path("x" * 300)


def test_an_import_that_another_process_makes_is_awaited(tmp_path, source, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    converted, found = [], []
    convert = workflow._convert_model

    def count(*args):
        converted.append(1)
        return convert(*args)

    monkeypatch.setattr(workflow, "_convert_model", count)
    threads = [
        threading.Thread(target=lambda: found.append(resolve_model(source, lambda _: None)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(converted) == 1
    assert len(set(found)) == 1
    assert len(found) == 4


def test_a_cache_that_cannot_be_written_is_named_with_a_way_out(tmp_path, source, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    message = f"set XDG_CACHE_HOME, or run `tformer import {source} -o DIR`"
    refused("translate", source, "a", says=message)


def test_a_file_is_imported_anew_when_one_beside_it_changes(tmp_path, source, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = source / "model.npz"
    first = resolve_model(file, lambda _: None)
    assert resolve_model(file, lambda _: None) == first
    os.utime(source / "vocab.spm", (1, 1))
    assert resolve_model(file, lambda _: None) != first


@pytest.mark.parametrize("name", ["", "model.npz"])
@pytest.mark.parametrize("taken", ["model.npz", "vocab.spm", "model.npz.decoder.yml"])
def test_an_output_replaces_no_file_of_a_foreign_model(source, name, taken):
    before = content(source)
    refused("translate", source / name, "a cat", "-o", source / taken, says="error: --output: ")
    assert content(source) == before


def test_a_part_of_a_hugging_face_directory_names_the_directory(tmp_path):
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text('{"model_type": "marian"}')
    (directory / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"pytorch_model\.bin: is damaged or not a PyTorch"):
        import_model(str(directory / "pytorch_model.bin"), None)
    (directory / "pytorch_model.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ArtifactError, match="run `git lfs pull`"):
        import_model(str(directory / "pytorch_model.bin"), None)


def test_an_import_needs_no_torch(tmp_path, source):
    program = (
        "import sys; from pathlib import Path; from tformer_cli.foreign.import_model import *;"
        "import_model(sys.argv[1], Path(sys.argv[2])); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, source, tmp_path / "ours"], check=True)
    assert load_model_directory(tmp_path / "ours").model.config.d_model == D


def test_names_that_are_not_unicode_are_imported(tmp_path, source):
    odd = source.rename(tmp_path / os.fsdecode(b"mod\xffl"))
    output_of("import", odd, "-o", tmp_path / "ours")
    output_of("info", tmp_path / "ours")


def test_info_names_the_model_that_was_imported(tmp_path, source):
    run("import", source, "-o", tmp_path / "ours")
    shown = run("info", tmp_path / "ours").stdout
    assert "Imported from" in shown
    assert "(Marian)" in shown
    assert "Training" not in shown
    record = record_of("info", tmp_path / "ours", "--format", "json")
    assert record["imported_from"] == {"kind": "Marian", "source": str(source)}
    assert record["started_from"] is None


def test_what_no_reader_foresaw_is_one_error(tmp_path):
    saved = {"args": None, "cfg": {"model": "x", "task": 3}, "model": {"a": torch.ones(1)}}
    torch.save(saved, tmp_path / "checkpoint_best.pt")
    refused("import", tmp_path / "checkpoint_best.pt", "--dry-run")


def test_a_code_that_is_none_is_left_out(tmp_path, source, monkeypatch):
    convert = workflow._convert_model

    def with_codes(*args):
        return replace(convert(*args), languages=("en", "x\n" * 1000000))

    monkeypatch.setattr(workflow, "_convert_model", with_codes)
    import_model(str(source), tmp_path / "ours")
    info = load_model_directory(tmp_path / "ours").info
    assert (info.source_language, info.target_language) == ("en", "")
