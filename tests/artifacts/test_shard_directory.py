import json

import pytest

from tformer_cli.artifacts.corpus_directory import MANIFEST, shard_directory
from tformer_cli.errors import ArtifactError

ORIGIN = {"input": "a1", "model": "b2"}


def write(path, n_shards, *, stop_at=None, origin=ORIGIN):
    """Writes a shard of two items for each number; fails half-way through the one at `stop_at`."""
    with shard_directory(path, {"schema": "x/1"}, origin) as directory:
        for number in range(n_shards):
            if 2 * number < directory.done:
                continue

            def content(stream, number=number):
                stream.write(b"half")
                if number == stop_at:
                    raise KeyboardInterrupt
                stream.write(b" of %d" % number)

            directory.add(content, 2, {"sentences": number})
        directory.finish()


def files(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_a_directory_written_in_pieces_is_that_written_at_once(tmp_path):
    write(tmp_path / "whole", 5)
    for stop_at in (0, 2, 2, 4):
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "pieces", 5, stop_at=stop_at)
        manifest = json.loads((tmp_path / "pieces" / MANIFEST).read_text())
        assert (manifest["items"], manifest["is_complete"]) == (2 * stop_at, False)
        assert len(list((tmp_path / "pieces").iterdir())) == stop_at + 1  # nothing half-written
    write(tmp_path / "pieces", 5)
    assert files(tmp_path / "pieces") == files(tmp_path / "whole")
    manifest = json.loads((tmp_path / "whole" / MANIFEST).read_text())
    assert manifest["schema"] == "x/1"
    assert manifest["is_complete"]
    assert [shard["sentences"] for shard in manifest["shards"]] == [0, 1, 2, 3, 4]


def test_a_shard_that_was_renamed_before_its_line_in_the_manifest_is_written_again(tmp_path):
    write(tmp_path / "whole", 3)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "d", 3, stop_at=1)
    (tmp_path / "d" / "part-00001.safetensors").write_bytes(b"not named")
    (tmp_path / "d" / "manifest.json.77.partial").write_bytes(b"{")
    write(tmp_path / "d", 3)
    assert files(tmp_path / "d") == files(tmp_path / "whole")


def test_two_writers_do_not_meet(tmp_path):
    with (
        shard_directory(tmp_path / "d", {}, ORIGIN),
        pytest.raises(ArtifactError, match="another process is writing it"),
        shard_directory(tmp_path / "d", {}, ORIGIN),
    ):
        pass


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ({**ORIGIN, "input": "c3"}, "was started with a different input;"),
        ({"input": "c3"}, "was started with a different input, model;"),
    ],
)
def test_a_partial_file_from_other_inputs_is_named(tmp_path, origin, message):
    write(tmp_path / "d", 1)
    with pytest.raises(ArtifactError, match=message):
        write(tmp_path / "d", 1, origin=origin)


def test_a_directory_that_differs_from_its_manifest_is_refused(tmp_path):
    write(tmp_path / "d", 2)
    shard, manifest = tmp_path / "d" / "part-00001.safetensors", tmp_path / "d" / MANIFEST
    before = shard.read_bytes()
    for damage in (lambda: shard.write_bytes(before[:-1]), shard.unlink):
        damage()
        with pytest.raises(ArtifactError, match=r"part-00001.*: does not match manifest\.json"):
            write(tmp_path / "d", 2)
    for text in ("{", "[]", '{"origin": {}, "is_complete": true, "shards": [1]}'):
        manifest.write_text(text)
        with pytest.raises(ArtifactError, match="is damaged"):
            write(tmp_path / "d", 2)


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ArtifactError, match="holds files that are not part of a dump"):
        write(tmp_path, 1)
    assert files(tmp_path) == {"thesis.tex": b"x"}
    with pytest.raises(ArtifactError, match="is a file"):
        write(tmp_path / "thesis.tex", 1)


def test_in_a_foreign_directory_nothing_is_removed(tmp_path):
    (tmp_path / "film.partial").write_text("mine")
    with (
        pytest.raises(ArtifactError, match="not part of a dump"),
        shard_directory(tmp_path, {}, {}),
    ):
        pass
    assert (tmp_path / "film.partial").read_text() == "mine"
