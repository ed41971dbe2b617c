import contextlib

import pytest

from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import (
    directory_aside,
    make_directory,
    remove_tree,
    write_text,
    written_aside,
)


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with contextlib.suppress(RuntimeError), written_aside(path) as aside:
        aside.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]
    write_text(path, "new\r\n")
    assert path.read_bytes() == b"new\r\n"


def test_a_directory_replaces_the_old_one_whole_or_not_at_all(tmp_path):
    path = tmp_path / "step"
    with directory_aside(path) as aside:
        (aside / "one").write_text("1")
    with contextlib.suppress(RuntimeError), directory_aside(path) as aside:
        (aside / "two").write_text("2")
        raise RuntimeError
    assert [entry.name for entry in path.iterdir()] == ["one"]
    with directory_aside(path) as aside:
        (aside / "three").write_text("3")
    assert [entry.name for entry in path.iterdir()] == ["three"]
    remove_tree(path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_a_directory_stays(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("dear")
    with pytest.raises(ArtifactError, match=r": is a file; "), directory_aside(path):
        pass
    assert path.read_text() == "dear"
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written_are_errors_of_one_line(tmp_path):
    with pytest.raises(ArtifactError, match=r"missing.*: cannot be written \(no such file"):
        write_text(tmp_path / "missing" / "a.txt", "text")
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"file: is a file; name a directory"):
        make_directory(tmp_path / "file")
    with pytest.raises(ArtifactError, match="cannot be written"):
        make_directory(tmp_path / "file" / "below")
    with pytest.raises(ArtifactError, match=r"a\.txt: cannot be written \(not a directory\)"):
        write_text(tmp_path / "file" / "a.txt", "text")


def test_of_a_link_the_directory_that_it_leads_to_is_written(tmp_path):
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place")
    with directory_aside(tmp_path / "link") as aside:
        (aside / "file").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "place" / "file").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "place"]


def test_a_name_too_long_for_a_directory_is_refused(tmp_path):
    with (
        pytest.raises(ArtifactError, match="file name too long"),
        directory_aside(tmp_path / ("x" * 300)),
    ):
        pass
