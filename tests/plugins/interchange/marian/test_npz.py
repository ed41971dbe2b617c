import io
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest

from tformer_cli.errors import ArtifactError
from tformer_cli.plugins.interchange.marian.binary import read_npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_those_that_were_saved(tmp_path, save):
    rng = np.random.default_rng(1)
    arrays = {
        "Wemb": rng.normal(size=(7, 4)).astype(np.float32),
        "turned": np.asfortranarray(rng.normal(size=(3, 5)).astype(np.float32)),
        "special:model.yml": np.frombuffer(b"type: transformer\0", np.int8),
        "half": rng.normal(size=3).astype(np.float16),
        "scalar": np.float32(2.5),
    }
    save(tmp_path / "model.npz", **arrays)
    found = read_npz(tmp_path / "model.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    assert found["half"].dtype == np.float32


def entry(path, content, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("a.npy", content)
    return path


def npy(shape, descr="<f4", data=bytes(16)):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": descr, "fortran_order": False, "shape": shape}
    )
    return stream.getvalue() + data


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy((1 << 40,)), "does not hold the"),
        (npy((1 << 62, 1 << 62)), "does not hold the"),
        (npy((5,)), "does not hold the"),
        (npy((4,), "|O", pickle.dumps([1])), "the type object"),
        (npy((-4,)), r"shape \[-4\]"),
        (b"\x93NUMPY\x09\x00" + bytes(20), "version"),
        (b"PK", "magic|NUMPY|read"),
    ],
)
def test_hostile_arrays_are_refused(tmp_path, content, message):
    arrays = read_npz(entry(tmp_path / "model.npz", content))
    tracemalloc.start()
    with pytest.raises(ArtifactError, match=message) as error:
        arrays["a"]
    assert "\n" not in str(error.value)
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()


def test_a_zip_bomb_is_refused_before_it_is_read(tmp_path):
    path = entry(tmp_path / "model.npz", bytes(1 << 25), zipfile.ZIP_DEFLATED)
    with pytest.raises(ArtifactError, match=r"bytes would become 33,554,432"):
        read_npz(path)


def test_a_size_that_lies_is_found(tmp_path):
    """A bomb whose directory promises few bytes gives no more than those."""
    path = entry(tmp_path / "model.npz", bytes(1 << 24), zipfile.ZIP_DEFLATED)
    whole = path.read_bytes()
    size = (1 << 24).to_bytes(4, "little")
    path.write_bytes(whole.replace(size, (100).to_bytes(4, "little")))
    tracemalloc.start()
    with pytest.raises(ArtifactError, match="damaged"):
        read_npz(path)["a"]
    assert tracemalloc.get_traced_memory()[1] < 1 << 22
    tracemalloc.stop()


def test_truncated_files_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, a=np.ones(40))
    whole = path.read_bytes()
    for length in range(0, len(whole), 13):
        path.write_bytes(whole[:length])
        with pytest.raises(ArtifactError, match="damaged"):
            read_npz(path)["a"]
