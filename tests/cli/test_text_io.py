import pytest

from tformer_cli.cli.streams import results
from tformer_cli.errors import UsageError


@pytest.mark.parametrize(
    ("name", "program"), [("a.gz", "gzip"), ("b.de.xz", "xz"), ("c.bz2", "bzip2")]
)
def test_a_name_of_a_compressed_file_is_refused(tmp_path, name, program):
    with pytest.raises(UsageError, match=rf"add \| {program} > FILE"), results(tmp_path / name):
        pytest.fail("it was opened")
    assert not list(tmp_path.iterdir())


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out.gz.txt"

    def fail_halfway():
        with results(path) as stream:
            stream.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail_halfway()
    assert not list(tmp_path.iterdir())
    with results(path) as stream:
        stream.write(b"whole")
    assert path.read_bytes() == b"whole"
