import json

import pytest
from typer.testing import CliRunner

from tests.converters.test_marian import OPTIONS, VARIANTS, bergamot, weights, write
from tformer_cli.cli.app import app
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.workflows import import_model as workflow
from tformer_cli.workflows.import_model import import_model, resolve_model


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "marian", weights(OPTIONS), OPTIONS)


def run(*args):
    return CliRunner().invoke(app, [*map(str, args)], prog_name="tformer")


def content(path):
    return {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_model_is_imported_and_translates(tmp_path, source):
    before = content(source)
    result = run("import", source, "-o", tmp_path / "ours")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr.endswith("Marian model, float32 weights\n")
    assert content(source) == before
    translated = run("translate", tmp_path / "ours", "a cat", "--max-length", "5", "--quiet")
    assert translated.exit_code == 0
    assert translated.stdout.count("\n") == 1
    assert "origin" in json.loads((tmp_path / "ours" / "config.json").read_text())
    assert run("info", tmp_path / "ours").exit_code == 0


def test_the_same_source_gives_the_same_bytes(tmp_path, source):
    for name in ("one", "two"):
        import_model(str(source), tmp_path / name)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_a_dry_run_writes_nothing(tmp_path, source):
    before = content(tmp_path)
    result = run("import", source, "--dry-run")
    assert result.exit_code == 0
    for said in ("Marian", "model.npz, vocab.spm", "2 encoder and 2 decoder layers", "float32"):
        assert said in result.stdout
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


def test_views_take_integers_as_float32(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = OPTIONS | VARIANTS["ssru"]
    source = bergamot(tmp_path / "student", weights(options), options)
    assert run("translate", source, "a cat", "--max-length", "5").exit_code == 0
    shown = run("inspect-heads", source, "a cat", "--target", "a dog")
    assert shown.exit_code == 0, shown.stderr
    assert json.loads(shown.stdout)["model"]["name"] == "student"
    imported = sorted((tmp_path / "cache" / "tformer" / "models").glob("*/student/config.json"))
    assert len(imported) == 2  # one in integers
    run("import", source, "-o", tmp_path / "ours", "--quiet")
    refused = run("inspect-heads", tmp_path / "ours", "a cat")
    assert refused.exit_code == 2
    assert refused.stderr.endswith(f"import {source} again with --weights float32\n")


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
    result = run("import", source, "-o", source)
    assert result.exit_code == 2
    assert "--output" in result.stderr


def test_the_output_must_be_named(source):
    result = run("import", source)
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --output: must be given; name a new directory, or add --dry-run\n"
    )


@pytest.mark.parametrize(
    ("path", "said"),
    [("none", "no such file or directory"), (".", "config.json is missing"), ("a", "is a file")],
)
def test_what_is_no_model_is_refused(tmp_path, monkeypatch, path, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("text")
    with pytest.raises(ArtifactError, match=said):
        import_model(path, None)


def test_our_own_model_is_not_imported(model):
    with pytest.raises(ArtifactError, match="is a model directory already"):
        import_model(str(model), None)


def test_a_name_on_the_hub_is_downloaded_if_it_was_not(source, monkeypatch):
    asked = []

    def snapshot_download(name, *, allow_patterns, local_files_only=False):
        asked.append((name, local_files_only))
        if local_files_only:
            raise OSError("not there")
        return str(source)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    assert import_model("owner/name", None).kind == "Marian"
    assert asked == [("owner/name", True), ("owner/name", False)]


def test_without_the_hub_the_files_to_download_are_named(monkeypatch):
    def snapshot_download(*_, **__):
        raise OSError("Name or service\nnot known")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
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
