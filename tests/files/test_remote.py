"""Corpora and models at URLs: the results of those on this machine, from copies that are kept."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import refused
from tests.zoo import recipe_of, tformer
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.files import remote
from tformer_cli.files.atomic import await_directory
from tformer_cli.files.cache import cache_directory
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


def test_urls_are_told_from_paths(tmp_path, monkeypatch):
    assert remote_url("s3://bucket/a b/c") == "s3://bucket/a b/c"
    assert remote_url(Path("s3://bucket/model")) == "s3://bucket/model"  # which takes a slash
    assert path_in(tmp_path, "x.en") == tmp_path / "x.en"
    assert remote_url("S3://Bucket/Model/") == "s3://Bucket/Model"
    assert remote_url("abfs://container@account/x@y") == "abfs://container@account/x@y"
    assert remote_url("hdfs://node:8020/x@y") == "hdfs://node:8020/x@y"
    for name in ("runs/mine", "c:/model", "C:/model", "org/name", "s3:", "/a:/b", "a:b", "ab:c/d"):
        assert not remote_url(name)
    monkeypatch.chdir(tmp_path)
    Path("s3:/here").mkdir(parents=True)
    assert not remote_url("s3://here")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("file:///tmp/x", "file:///tmp/x: is on this machine; name the path itself"),
        (Path("file:///tmp/x"), "file://tmp/x: is on this machine; name the path itself"),
        ("hdfs:///x", "hdfs:///x: has a part that is empty"),
        ("s3://b//x", "s3://b//x: has a part that is empty"),
        ("s3://b/..", 's3://b/..: has a part that is empty, "." or ".."'),
        ("s3://b/.", "s3://b/.: has a part"),
        ("memory://", "memory://: has a part"),
        ("s3://me:pw@b/x", "s3://***@b/x: holds a user or a password; leave them to the env"),
        ("sftp://me:p@w/s@host/x", "sftp://***@host/x: holds a user"),
        (Path("sftp://me@host/x"), "sftp://***@host/x: holds a user"),
        ("abfs://c:pw@a/x", "abfs://***@a/x: holds a user"),
        ("HTTPS://h/c?" + 300 * "x", "https://h/c?"),
        ("simplecache::s3://b/c", "simplecache::s3://b/c: pages of the web and chained URLs (::)"),
    ],
)
def test_urls_that_cannot_be_read_with_certainty_are_refused(name, problem):
    with pytest.raises(UsageError) as error:
        remote_url(name)
    assert str(error.value).startswith(problem)
    assert "pw" not in str(error.value)
    assert "p@w" not in str(error.value)


def test_a_model_at_a_url_translates_as_it_does_here(zoo, memory):
    pytest.importorskip("torch")
    url = memory(zoo["translate"], "memory://models/mine")
    memory(zoo.inputs, "memory://models/mine/checkpoints/1")  # of a run: not needed
    shown = tformer("info", url)
    assert shown.stderr == f"{url}: copying to the cache\n"
    assert re.search(rf"Model +{url}\n", shown.stdout)
    lines = ["-i", zoo.inputs / "text.en", "--device", "cpu", "--quiet"]
    assert tformer("translate", url, *lines).stdout == (
        tformer("translate", zoo["translate"], *lines).stdout
    )
    copy = local_copy(url)
    assert {path.name for path in copy.iterdir()} >= {"config.json", "model.safetensors"}
    assert not (copy / "checkpoints").exists()


@pytest.mark.parametrize("has_directory", [True, False])
def test_a_training_reads_corpora_at_a_url(zoo, memory, tmp_path, has_directory):
    pytest.importorskip("torch")
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
    second = local_copy(memory(file, "memory://b/a.en"))
    assert second.read_text() == "two\n"
    assert first.read_text() == "one\n"  # this process uses it
    os.close(remote._held.pop(first.parent))
    local_copy.cache_clear()
    assert local_copy("memory://b/a.en") == second
    assert not first.parent.exists()


def test_copying_is_said_once_and_awaits_no_other_url(memory, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(remote, "say", said.append)
    (tmp_path / "a.en").write_text("one\n")
    for name in "ab":
        memory(tmp_path / "a.en", f"memory://said/{name}.en")
    first = local_copy("memory://said/a.en")
    local_copy.cache_clear()
    with await_directory(first.parents[1]):  # as another process that copies it
        assert local_copy("memory://said/b.en").is_file()
    assert local_copy("memory://said/a.en") == first
    assert said == [f"memory://said/{name}.en: copying to the cache" for name in "ab"]


def test_a_recipe_is_checked_without_copies(zoo, memory, tmp_path, monkeypatch):
    url = memory(zoo.inputs, "memory://checked/in")
    recipe, file = recipe_of("translate", zoo.inputs), tmp_path / "r.toml"
    monkeypatch.setattr(fsspec.filesystem("memory"), "get_file", None)
    file.write_text(recipe.replace(f'"{zoo.inputs}/', f'"{url}/'))
    tformer("recipes", "check", file)
    file.write_text(recipe.replace(f'"{zoo.inputs}/', f'"{url}/not-'))
    refused("recipes", "check", file, says=f"no such file {url}/not-")


def test_causes_are_told_apart(memory, tmp_path, monkeypatch):
    (tmp_path / "x").write_text("")
    url, system = memory(tmp_path / "x", "memory://causes/x"), fsspec.filesystem("memory")

    def fill_disk(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(system, "get_file", fill_disk)
        with pytest.raises(ArtifactError, match=r"cannot be written \(no space left") as error:
            local_copy(url)
        assert error.value.exit_status == 1
    monkeypatch.setattr(system, "find", lambda root: [f"{root}/y", f"{root}/y/z"])
    monkeypatch.setattr(system, "ukey", lambda path: "1")
    with pytest.raises(ArtifactError, match=f"^{url}: is a file and also a directory; rename"):
        local_copy(url)
    monkeypatch.setattr(system, "isfile", lambda root: False)
    with pytest.raises(ArtifactError, match=f"^{url}/y: is a file and also a directory; rename"):
        local_copy(url)


def test_a_copy_that_was_cut_off_is_no_copy(memory, zoo, monkeypatch):
    pytest.importorskip("torch")
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
    with pytest.raises(
        ArtifactError, match=r"^foo://x/y: cannot be read \(Protocol not known: foo"
    ):
        local_copy("foo://x/y")
    for module, package in (("s3fs", "s3fs"), ("fsspec.core", "fsspec")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(
            UsageError, match=f"^s3://b/x: needs the package {package}; install it$"
        ):
            local_copy("s3://b/x")


def test_no_name_leads_out_of_the_copy(memory, tmp_path, monkeypatch):
    (tmp_path / "x").write_text("")
    url = memory(tmp_path / "x", "memory://bad/x")
    system = fsspec.filesystem("memory")
    monkeypatch.setattr(system, "find", lambda root: [f"{root}/../../x"])
    monkeypatch.setattr(system, "ukey", lambda path: "1")
    with pytest.raises(ArtifactError, match=r"holds /bad/x/../../x, which cannot be copied"):
        local_copy(url)
    assert cache_directory().is_absolute()


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
