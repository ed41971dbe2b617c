"""Models by their short names and by pairs; everything is served by this machine."""

import gzip
import hashlib
import re
from pathlib import Path

import pytest

from tests.commands import output_of, record_of, refused, run
from tests.file_server import file_server
from tests.plugins.interchange.marian.test_importing import OPTIONS, bergamot, weights
from tformer_cli.errors import ArtifactError
from tformer_cli.files.download import RemoteFile
from tformer_cli.foreign import known_models as table
from tformer_cli.foreign.import_model import resolve_model
from tformer_cli.foreign.known_models import (
    KnownModel,
    check_pair,
    find_known,
    known_models,
    languages_of,
    models_for,
    through_english,
)
from tformer_cli.kinds.opening import open_model
from tformer_cli.wording import remember_name


def test_every_row_is_whole_and_has_a_name_of_its_own():
    rows = known_models()
    assert len({row.name for row in rows}) == len(rows) > 800
    for row in rows:
        assert row.license, row.name
        assert bool(row.hub) != bool(row.files), row.name
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", row.hub or "a/b"), row.name
        assert all(table.PAIR.fullmatch(pair) for pair in row.pairs), row.name
        for file in row.files:
            assert re.fullmatch("[0-9a-f]{64}", file.sha256), row.name
            assert file.url.startswith("https://")
            assert file.size > 100_000
    # A digit dropped while a hash was copied would make two vocabularies of a pair differ
    assert len({file.sha256 for row in rows for file in row.files[:1]}) == 63


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("en-de", "firefox-en-de"),
        ("opus-mt-en-de", "opus-mt-en-de"),
        ("de-fr", "opus-mt-de-fr"),
        ("en-ja", "opus-mt-en-jap"),
        ("oc-en", "opus-mt-tc-big-cat_oci_spa-en"),
        ("zu-uk", "m2m100_418M"),
        ("gpt2", "gpt2"),
        ("bert-base-uncased", "bert-base-uncased"),
        ("all-MiniLM-L6-v2", "all-MiniLM-L6-v2"),
        ("vit-base-patch16-224", "vit-base-patch16-224"),
    ],
)
def test_a_name_stands_for_a_model(name, meant):
    assert find_known(name).name == meant


@pytest.mark.parametrize("name", ["de-de", "en-qq", "runs/en-de", "owner/gpt2", "a text", "EN-DE"])
def test_other_words_stand_for_none(name):
    assert find_known(name) is None


def test_all_models_of_a_pair_are_found_the_meant_one_first():
    assert [model.family for model in models_for("en-fi")][:4] == [
        *("Firefox", "OPUS-MT", "OPUS-MT tc-big", "M2M-100"),
    ]
    assert languages_of("en-fi") is None  # the first model translates nothing else
    assert languages_of("zu-uk") == ("zu", "uk")
    assert languages_of("m2m100_418M") is None
    assert through_english("de-ja") == ("de-en", "en-ja")
    assert through_english("en-ja") is through_english("zu-uk") is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("en-qq", "no known model translates en to qq; near are en-sq, "),
        ("de-gv", "; through English: de-en and en-gv; `tformer models` lists models by pair"),
        ("EN-FR", "EN-FR: no such directory, and pairs are written as en-fr; `tformer models`"),
        ("en_de", "en_de: no such directory, and pairs are written as en-de; `tformer models`"),
        ("en-en", "en-en: no such directory, and a pair has two languages, such as en-de; `tf"),
        ("bert-base-uncase", "no model has this short name; did you mean bert-base-uncased?"),
    ],
)
def test_an_unknown_pair_or_name_gets_the_nearest_ones(name, message):
    with pytest.raises(ArtifactError, match=re.escape(message)):
        check_pair(name)
    refused("translate", name, "a cat", says=message)


def test_other_words_are_left_to_the_messages_about_paths():
    for name in ("nosuch", "xx-yy", "runs/en-qq", "a text"):
        check_pair(name)


@pytest.fixture
def firefox(tmp_path, monkeypatch):
    """A table of one model, for xx-yy; its files, and the server on this machine that has them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    source = bergamot(tmp_path / "bergamot", weights(OPTIONS), OPTIONS)
    with file_server() as server:
        rows = []
        for path in sorted(source.iterdir()):
            server.files[f"/{path.name}.gz"] = gzip.compress(path.read_bytes())
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            url, size = f"{server.url}/{path.name}.gz", path.stat().st_size
            rows.append(RemoteFile(name=path.name, url=url, size=size, sha256=sha256))
        model = KnownModel(
            name="firefox-xx-yy",
            family="Firefox",
            license="MPL-2.0",
            pairs=("xx-yy",),
            size=22_000_000,
            files=tuple(rows),
        )
        monkeypatch.setattr(table, "known_models", lambda: (model,))
        yield source, server


def test_a_pair_is_downloaded_once_and_translates_as_its_files(firefox):
    source, server = firefox
    expected = output_of("translate", source, "a cat", "--quiet")
    first = run("translate", "xx-yy", "a cat")
    assert first.stdout == expected
    assert "xx-yy: firefox-xx-yy (Firefox, MPL-2.0, 22 MB)\n" in first.stderr
    assert len(server.requests) == 2
    again = run("translate", "firefox-xx-yy", "a cat")
    assert (again.stdout, again.stderr) == (expected, "computing on cpu in int8\n")
    assert len(server.requests) == 2  # one import, whatever the model is called
    assert output_of("info", "xx-yy").splitlines()[0].split() == ["Model", "xx-yy"]
    opened = open_model("xx-yy", precision="int8")
    assert [translation.text for translation in opened.translator.translate(["a cat"])] == [
        expected.strip()
    ]


def test_a_pair_is_imported_by_name(firefox):
    output_of("import", "xx-yy", "-o", "ours")
    source, _ = firefox
    assert output_of("translate", "ours", "a cat", "-q") == output_of(
        "translate", source, "a cat", "-q"
    )


def test_a_directory_of_the_name_goes_first(firefox):
    source, server = firefox
    Path("xx-yy").symlink_to(source)
    output_of("translate", "xx-yy", "a cat", "--quiet")
    assert server.requests == []


def test_without_a_network_the_files_and_their_place_are_named(firefox, tmp_path):
    source, server = firefox
    files = dict(server.files)
    server.files.clear()
    message = run("translate", "xx-yy", "a cat", "--quiet").stderr
    place = tmp_path / "cache/tformer/downloads/firefox-xx-yy"
    assert message.count("\n") == 1
    for part in (place, server.url, *(file.strip("/").removesuffix(".gz") for file in files)):
        assert str(part) in message
    for path in source.iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    output_of("translate", "xx-yy", "a cat", "--quiet")


def test_the_hub_is_asked_for_the_repository_of_a_short_name(firefox, monkeypatch):
    source, _ = firefox
    asked, said = [], []

    def snapshot_download(name, *, allow_patterns, local_files_only=False):
        asked.append(name)
        if local_files_only:
            raise OSError("not here")
        return str(source)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    row = {"license": "CC-BY-NC-4.0", "family": "NLLB", "hub": "owner/many"}
    many = KnownModel(name="many", codes={"xx": "xx", "yy": "yy"}, **row)
    monkeypatch.setattr(table, "known_models", lambda: (many,))
    path = resolve_model(Path("xx-yy"), said.append)
    assert asked == ["owner/many", "owner/many"]
    assert path.name == "many"
    assert said[0] == "xx-yy: many is licensed for non-commercial use only (CC-BY-NC-4.0)"
    assert said[1] == "xx-yy: many (NLLB, CC-BY-NC-4.0)"


def test_a_pair_says_the_languages_of_a_model_for_many(foreign, monkeypatch):
    many = KnownModel(
        name="many", family="M2M", license="MIT", hub="a/b", codes={"en": "eng", "fr": "fra"}
    )
    monkeypatch.setattr(table, "known_models", lambda: (many,))
    with pytest.raises(Exception, match="none is chosen"):
        open_model(foreign)
    expected = open_model(foreign, source_language="eng", target_language="fra")
    remember_name(foreign, "en-fr")
    try:
        opened = open_model(foreign)
    finally:
        remember_name(foreign, "")
    texts = [
        [translation.text for translation in each.translator.translate(["The dog"])]
        for each in (expected, opened)
    ]
    assert texts[0] == texts[1]


def test_the_table_is_listed(firefox):
    lines = output_of("models", "xx-yy").splitlines()
    assert lines == [
        *("name\tfor\tlicense\tMB\there", "firefox-xx-yy\txx-yy\tMPL-2.0\t22\tno"),
    ]
    output_of("translate", "xx-yy", "a cat", "--quiet")
    assert record_of("models", "--format", "json")[0]["downloaded"]
    assert "yes" in output_of("models", "xx-yy", "--format", "text")
    refused("models", "nonsense", says="LANG-LANG: nonsense is not a pair of languages")


def test_what_the_hub_has_sent_is_listed_as_here(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert table.downloaded_models() == set()
    folder = tmp_path / "hub/models--openai-community--gpt2"
    for path in ("snapshots/1a/config.json", "blobs/2b.incomplete"):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).touch()
    assert table.downloaded_models() == set()
    (folder / "blobs/2b.incomplete").unlink()  # another file, and the weights were never begun
    (folder / "snapshots/1a/model.safetensors").symlink_to(folder / "blobs/2b")
    assert table.downloaded_models() == set()
    (folder / "blobs/2b").touch()
    assert table.downloaded_models() == {"gpt2"}
    (folder / "blobs/3c.incomplete").touch()
    assert table.downloaded_models() == set()
    (folder / "blobs/3c.incomplete").unlink()
    record = record_of("models", "gpt2", "--format", "json")[0]
    assert (record["hub"], record["downloaded"]) == ("openai-community/gpt2", True)
