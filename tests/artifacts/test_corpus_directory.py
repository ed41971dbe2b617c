import json

import pytest

from tformer_cli.artifacts.corpus_directory import LOG, MANIFEST, begun_corpus, corpus_directory
from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import written_aside
from tformer_cli.files.regular_file import hash_file

ABOUT = {"schema": "x/1"}
ORIGIN = {"SOURCE": "a1", "beam_size": "4"}
FILES = [f"part-{number}.txt" for number in range(4)]
SHARDS = [{"file": file} for file in FILES]


def write(path, order, *, stop_after=None, origin=ORIGIN):
    """Writes the shards that are not done, in any order; is stopped after some of them."""
    with corpus_directory(path, ABOUT, origin, FILES) as directory:
        for place, number in enumerate(shard for shard in order if shard not in directory.done):
            if place == stop_after:
                raise KeyboardInterrupt
            with written_aside(path / FILES[number], among_machines=True) as aside:
                aside.write_text(f"text {number}\n")
                facts = {"sha256": hash_file(aside), "bytes": 7, "counts": {"lines": number}}
            directory.add(number, facts)
        directory.finish(SHARDS)


def files(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_a_directory_written_in_pieces_and_any_order_is_that_written_at_once(tmp_path):
    write(tmp_path / "whole", range(4))
    for stop_after in (0, 1, 2):
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "pieces", [2, 0, 3, 1], stop_after=stop_after)
    assert (tmp_path / "pieces" / LOG).read_text().count("\n") == 3
    assert not json.loads((tmp_path / "pieces" / MANIFEST).read_text())["is_complete"]
    write(tmp_path / "pieces", [2, 0, 3, 1])
    assert files(tmp_path / "pieces") == files(tmp_path / "whole")
    manifest = json.loads((tmp_path / "whole" / MANIFEST).read_text())
    assert manifest["is_complete"]
    assert [shard["file"] for shard in manifest["shards"]] == FILES
    write(tmp_path / "pieces", range(4))
    assert files(tmp_path / "pieces") == files(tmp_path / "whole")


def test_whatever_a_kill_has_left_half_is_done_again(tmp_path):
    write(tmp_path / "whole", range(4))
    path = tmp_path / "d"
    with pytest.raises(KeyboardInterrupt):
        write(path, range(4), stop_after=2)
    (path / "part-2.txt").write_text("renamed, but not in the log\n")
    (path / "part-3.txt.0a1b.partial").write_text("ha")
    with (path / LOG).open("a") as log:
        log.write('{"shard": 3, "sha2')
    assert sorted(begun_corpus(path, ABOUT, ORIGIN, FILES).done) == [0, 1]
    assert (path / "part-3.txt.0a1b.partial").exists()  # looking changes nothing
    write(path, range(4))
    assert files(path) == files(tmp_path / "whole")


@pytest.mark.parametrize("is_complete", [True, False])
def test_files_that_have_changed_are_named_and_done_again(tmp_path, is_complete):
    path = tmp_path / "d"
    write(path, range(4))
    expected = files(path)
    if not is_complete:
        (path / "part-3.txt").unlink()
        with pytest.raises(KeyboardInterrupt):
            write(path, range(4), stop_after=0)
    (path / "part-0.txt").write_text("TEXT 0\n")
    (path / "part-1.txt").unlink()
    begun = begun_corpus(path, ABOUT, ORIGIN, FILES)
    assert begun.damaged == ["part-0.txt", "part-1.txt"]
    assert sorted(begun.done) == ([2, 3] if is_complete else [2])
    write(path, range(4))
    assert files(path) == expected


def test_other_directories_are_refused_and_left_as_they_are(tmp_path):
    path = tmp_path / "d"
    write(path, range(4))
    before = files(path)
    with pytest.raises(ArtifactError, match=r"was started with a different SOURCE, seed; remove"):
        write(path, range(4), origin={**ORIGIN, "SOURCE": "b", "seed": "2"})
    (path / MANIFEST).write_text('{"schema": "y/1", "origin": {}, "shards": []}')
    with pytest.raises(ArtifactError, match=r"has another schema \(y/1\); name a new directory"):
        write(path, range(4))
    for damaged in ("[]", "{", '{"schema": "x/1"}', "null"):
        (path / MANIFEST).write_text(damaged)
        with pytest.raises(ArtifactError, match=r"manifest.json: is damaged"):
            write(path, range(4))
    assert {**files(path), MANIFEST: b""} == {**before, MANIFEST: b""}
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(ArtifactError, match=r"other: holds other files; name a new directory"):
        write(other, range(4))
    with pytest.raises(ArtifactError, match=r"thesis.txt: is a file; name a directory"):
        write(other / "thesis.txt", range(4))
    assert files(other) == {"thesis.txt": b"mine"}


def test_two_writers_do_not_meet(tmp_path):
    with (
        corpus_directory(tmp_path / "d", ABOUT, ORIGIN, FILES),
        pytest.raises(ArtifactError, match="another process is writing it"),
    ):
        write(tmp_path / "d", range(4))
