import numpy as np
import pytest
from safetensors.numpy import save_file

from tformer_cli.artifacts.config_file import SHORTLIST
from tformer_cli.artifacts.shortlist_file import read_shortlist, save_shortlist
from tformer_cli.errors import ArtifactError
from tformer_cli.search.engine import Shortlist

WHOLE = {
    "offsets": np.array([0, 0, 2, 3]),
    "targets": np.array([5, 7, 6], np.int32),
    "first": np.array([5]),
}


def test_a_shortlist_is_read_as_it_was_written(tmp_path):
    path = tmp_path / SHORTLIST
    save_shortlist(path, Shortlist(5, WHOLE["offsets"], WHOLE["targets"]))
    read = read_shortlist(path, 3, 8)
    assert read.candidates([1]) == (0, 1, 2, 3, 4, 5, 7)
    assert read.candidates([2]) == (0, 1, 2, 3, 4, 6)
    before = path.read_bytes()
    save_shortlist(path, read)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"offsets": np.array([0, 3, 2, 3])}, "is damaged"),
        ({"offsets": np.array([1, 1, 2, 3])}, "is damaged"),
        ({"offsets": np.array([0, 2**63 - 1, -2, 3])}, "is damaged"),  # differences overflow
        ({"offsets": np.array([0, 0, 2, 4])}, "is damaged"),
        ({"offsets": np.array([], np.int64)}, "is damaged"),
        ({"offsets": np.array([0.0, 0.0, 2.0, 3.0])}, "is damaged"),
        ({"first": np.array([5, 5])}, "is damaged"),
        ({"targets": np.array([[5, 7, 6]], np.int32)}, "is damaged"),
        ({"targets": np.array([5, 8, 6], np.int32)}, "other vocabularies"),
        ({"targets": np.array([5, -1, 6], np.int32)}, "other vocabularies"),
        ({"first": np.array([9])}, "other vocabularies"),
        ({"first": np.array([-1])}, "other vocabularies"),
        ({"offsets": np.array([0, 0, 3])}, "other vocabularies"),
        ({"more": np.array([1])}, "is not a shortlist"),
    ],
    ids=repr,
)
def test_what_would_leave_an_array_is_refused(tmp_path, wrong, message):
    save_file({**WHOLE, **wrong}, tmp_path / SHORTLIST)
    with pytest.raises(ArtifactError, match=f"{SHORTLIST}: .*{message}"):
        read_shortlist(tmp_path / SHORTLIST, 3, 8)


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / SHORTLIST).write_bytes(b"no")
    with pytest.raises(ArtifactError, match="not a safetensors file"):
        read_shortlist(tmp_path / SHORTLIST, 3, 8)


def test_hostile_bytes_are_read_or_refused_in_one_line(tmp_path):
    path, rng, said = tmp_path / SHORTLIST, np.random.default_rng(3), []
    save_shortlist(path, Shortlist(5, WHOLE["offsets"], WHOLE["targets"]))
    data = path.read_bytes()
    for number in range(300):
        changed = np.frombuffer(data, np.uint8).copy()
        changed[rng.integers(len(data), size=3)] = rng.integers(0, 256, 3)
        path.write_bytes(changed[: rng.integers(len(data)) if number % 3 == 0 else None].tobytes())
        try:
            read = read_shortlist(path, 3, 8)
        except ArtifactError as error:
            said.append(str(error))
        else:
            assert all(set(read.candidates([token])) <= {*range(8)} for token in range(3))
    assert len(said) > 100
    assert all(message.startswith(str(path)) and "\n" not in message for message in said)
