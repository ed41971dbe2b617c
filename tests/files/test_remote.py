"""Corpora and models at URLs: the results of those on this machine, from copies that are kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.zoo import recipe_of, tformer
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.files import remote
from tformer_cli.files.remote import local_copy, path_in, remote_url

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def memory():
    """Puts files and directories at memory://, as a new program sees them."""
    system = fsspec.filesystem("memory")
    local_copy.cache_clear()

    def put(path, url):
        system.put(str(path), url, recursive=True)
        local_copy.cache_clear()
        return url

    yield put
    system.rm("/", recursive=True)
    local_copy.cache_clear()


def test_urls_are_told_from_paths_and_web_pages(tmp_path, monkeypatch):
    assert remote_url("s3://bucket/a b/c") == "s3://bucket/a b/c"
    assert remote_url(Path("s3://bucket/model")) == "s3://bucket/model"  # which takes a slash
    assert path_in(tmp_path, "x.en") == tmp_path / "x.en"
    for name in ("runs/mine", "c:/model", "org/name", "https://example.org/model", "s3:", "/a:/b"):
        assert not remote_url(name)
    monkeypatch.chdir(tmp_path)
    Path("s3:/here").mkdir(parents=True)
    assert not remote_url("s3://here")


def test_a_model_at_a_url_translates_as_it_does_here(zoo, memory):
    url = memory(zoo["translate"], "memory://models/mine")
    memory(zoo.inputs, "memory://models/mine/checkpoints/1")  # of a run: not needed
    lines = ["-i", zoo.inputs / "text.en", "--device", "cpu", "--quiet"]
    assert tformer("translate", url, *lines).stdout == (
        tformer("translate", zoo["translate"], *lines).stdout
    )
    copy = local_copy(url)
    assert {path.name for path in copy.iterdir()} >= {"config.json", "model.safetensors"}
    assert not (copy / "checkpoints").exists()


@pytest.mark.parametrize("has_directory", [True, False])
def test_a_training_reads_corpora_at_a_url(zoo, memory, tmp_path, has_directory):
    url, recipe = memory(zoo.inputs, "memory://corpora/in"), recipe_of("translate", zoo.inputs)
    options = ["--set", "training.max_steps=2", "--set", "training.precision=float32", "--quiet"]
    options += ["--device", "cpu"]
    weights = []
    for name in ("here", "there"):
        if name == "there":
            recipe = recipe.replace(f'"{zoo.inputs}/', '"' if has_directory else f'"{url}/')
            options += ["--set", f"data.directory={url}"] if has_directory else []
        (tmp_path / f"{name}.toml").write_text(recipe)
        run = tmp_path / name
        tformer("train", tmp_path / f"{name}.toml", "-o", run, *options)
        weights.append((run / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    assert str(zoo.inputs) not in recipe


def test_a_copy_is_kept_until_the_file_changes(memory, tmp_path, monkeypatch):
    file = tmp_path / "a.en"
    file.write_text("one\n")
    first = local_copy(memory(file, "memory://b/a.en"))
    assert first.read_text() == "one\n"
    assert path_in("memory://b", "a.en") == first
    local_copy.cache_clear()
    with monkeypatch.context() as without:
        without.setattr(fsspec.filesystem("memory"), "get_file", None)
        assert local_copy("memory://b/a.en") == first
    file.write_text("two\n")
    assert local_copy(memory(file, "memory://b/a.en")).read_text() == "two\n"


def test_a_copy_that_was_cut_off_is_no_copy(memory, zoo, monkeypatch):
    url = memory(zoo["translate"], "memory://models/cut")
    system, fetched = fsspec.filesystem("memory"), []

    def cut_off(path, target):
        fetched.append(Path(target).write_bytes(b"half"))
        if len(fetched) > 1:
            raise ConnectionError("connection lost\nby the server")

    with monkeypatch.context() as broken:
        broken.setattr(system, "get_file", cut_off)
        with pytest.raises(ArtifactError, match=r"cut: cannot be read \(connection lost\); check"):
            local_copy(url)
    copy = local_copy(url)
    weights = (copy / "model.safetensors").read_bytes()
    assert weights == (zoo["translate"] / "model.safetensors").read_bytes()


def test_what_cannot_be_read_is_said_in_one_line(memory, monkeypatch):
    with pytest.raises(ArtifactError, match=r"^memory://none/x: no such file or directory; check"):
        local_copy("memory://none/x")
    with pytest.raises(UsageError, match=r"^foo://x/y: Protocol not known: foo; install fsspec"):
        local_copy("foo://x/y")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UsageError, match=r"^s3://b/x: .*; install fsspec and the package"):
        local_copy("s3://b/x")


def test_no_name_leads_out_of_the_copy(memory, tmp_path, monkeypatch):
    (tmp_path / "x").write_text("")
    url = memory(tmp_path / "x", "memory://bad/x")
    system = fsspec.filesystem("memory")
    monkeypatch.setattr(system, "find", lambda root: [f"{root}/../../x"])
    monkeypatch.setattr(system, "ukey", lambda path: "1")
    with pytest.raises(ArtifactError, match=r'holds a name with "\.\."'):
        local_copy(url)
    assert remote.cache_directory().is_absolute()


@pytest.mark.slow
def test_a_bucket_of_s3(zoo, tmp_path):
    server = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    try:
        host, port = running.get_host_and_port()
        environment = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "test"),
        }
        keys = dict.fromkeys(("key", "secret"), "test")
        bucket = s3fs.S3FileSystem(endpoint_url=environment["AWS_ENDPOINT_URL"], **keys)
        bucket.mkdir("texts")
        bucket.put(str(zoo["translate"]), "texts/model", recursive=True)
        bucket.put(str(zoo.inputs), "texts/in", recursive=True)
        recipe = recipe_of("translate", zoo.inputs).replace(f'"{zoo.inputs}/', '"')
        (tmp_path / "recipe.toml").write_text(recipe)

        def output_of(*arguments):
            command = [sys.executable, "-m", "tformer_cli", *map(str, arguments)]
            done = subprocess.run(
                [*command, "--device", "cpu", "--quiet"], check=False, capture_output=True,
                text=True, env={**os.environ, **environment},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return done.stdout

        lines = ["-i", zoo.inputs / "text.en"]
        expected = tformer("translate", zoo["translate"], *lines, "--quiet").stdout
        assert output_of("translate", "s3://texts/model", *lines) == expected
        steps = ["--set", "training.max_steps=2", "--processes", "2"]
        where = ["--set", "data.directory=s3://texts/in", "-o", tmp_path / "run"]
        output_of("train", tmp_path / "recipe.toml", *steps, *where)
        assert (tmp_path / "run" / "model.safetensors").is_file()
    finally:
        running.stop()
