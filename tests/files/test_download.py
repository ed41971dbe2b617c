"""Downloads from a server on this machine."""

import gzip
import hashlib

import pytest

from tests.file_server import file_server
from tformer_cli.errors import ArtifactError
from tformer_cli.files import download as module
from tformer_cli.files.download import RemoteFile, download

CONTENT = bytes(range(256)) * 2000
PACKED = gzip.compress(CONTENT, 0)


@pytest.fixture
def server():
    with file_server() as state:
        state.files["/a.bin.gz"] = PACKED
        yield state


def file_of(server, **changes):
    row = {
        "name": "a.bin",
        "url": f"{server.url}/a.bin.gz",
        "size": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
    }
    return RemoteFile(**row | changes)


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_packed_file_is_unpacked_and_checked_and_not_asked_for_again(server, tmp_path):
    for _ in range(2):
        download((file_of(server),), tmp_path, print)
        assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert names_in(tmp_path) == ["a.bin"]
    assert server.requests == [("/a.bin.gz", None)]


def test_a_file_that_the_server_unpacks_is_taken_as_it_is(server, tmp_path):
    server.files["/a.bin.gz"] = CONTENT
    download((file_of(server),), tmp_path, print)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_broken_download_is_resumed(server, tmp_path, has_ranges):
    server.has_ranges = has_ranges
    server.breaks_after = [100_000, 200_000]
    download((file_of(server),), tmp_path, print)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    begun = [100_000, 300_000] if has_ranges else [100_000, 200_000]
    assert [wanted for _, wanted in server.requests] == [None, *(f"bytes={n}-" for n in begun)]


@pytest.mark.parametrize("n_bytes", [70_000, len(PACKED)])
def test_the_part_of_an_earlier_process_is_resumed(server, tmp_path, n_bytes):
    (tmp_path / "a.bin.part").write_bytes(PACKED[:n_bytes])
    download((file_of(server),), tmp_path, print)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.requests == [("/a.bin.gz", f"bytes={n_bytes}-")]


@pytest.mark.parametrize(
    ("changes", "packed"),
    [
        ({"sha256": "0" * 64}, PACKED),
        ({"size": len(CONTENT) - 1}, PACKED),  # one that would unpack to more than it may
        ({"size": len(CONTENT) + 1}, PACKED),
        ({}, PACKED[:-20]),
        ({}, PACKED[:5000] + b"damaged" + PACKED[5007:]),
        ({}, b"<html>not found</html>"),
    ],
)
def test_another_file_is_refused_and_nothing_is_left(server, tmp_path, changes, packed):
    server.files["/a.bin.gz"] = packed
    with pytest.raises(ArtifactError, match="is damaged or another file") as error:
        download((file_of(server, **changes),), tmp_path, print)
    assert "\n" not in str(error.value)
    assert names_in(tmp_path) == []


def test_a_server_out_of_reach_is_told_at_once(server, tmp_path):
    with pytest.raises(ArtifactError, match=r"cannot be downloaded \(HTTP Error 404: Not Found\)"):
        download((file_of(server, url=f"{server.url}/b.gz"),), tmp_path, print)
    assert len(server.requests) == 1  # a second attempt would be no better
    with pytest.raises(ArtifactError, match="cannot be downloaded"):
        download((file_of(server, url="http://127.0.0.1:9/a.gz"),), tmp_path, print)
    assert names_in(tmp_path) == []


def test_progress_is_said_now_and_then(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_REPORTS", 0.0)
    said = []
    download((file_of(server),), tmp_path, said.append)
    assert said[-1] == "downloaded 1 of 1 MB"
