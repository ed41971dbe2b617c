import argparse
import collections
import io
import os
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.formats import pickles
from tformer_cli.foreign.formats.weight_files import (
    StoredTensor,
    named_tensors,
    plain,
    read_checkpoint,
)

KINDS = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8]


@pytest.fixture
def state():
    torch.manual_seed(1)
    whole = torch.randn(6, 8)
    return {
        "whole": whole,
        "shared": whole,
        "part": whole[1:4, 2:5],
        "turned": whole.T,
        "empty": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "scalar": torch.tensor(2.5),
        **{f"of {kind}": (torch.randn(5) * 9).to(kind) for kind in KINDS},
    }


@pytest.mark.parametrize("is_zip", [True, False])
def test_tensors_are_those_that_torch_saved(tmp_path, state, is_zip):
    saved = collections.OrderedDict(state)
    torch.save(saved, tmp_path / "model.pt", _use_new_zipfile_serialization=is_zip)
    arrays = named_tensors(read_checkpoint(tmp_path / "model.pt"))
    assert arrays.keys() == state.keys()
    for name, tensor in state.items():
        tensor = tensor.float() if tensor.is_floating_point() else tensor
        np.testing.assert_array_equal(arrays[name], tensor.detach().numpy(), strict=True)


@pytest.mark.parametrize("is_zip", [True, False])
def test_objects_become_their_attributes(tmp_path, is_zip):
    options = argparse.Namespace(layers=3, share=True, names=["en", "fr"], rate=1e-9)
    saved = {"args": options, "model": {"w": torch.ones(2)}, "counts": collections.Counter("aab")}
    torch.save(saved, tmp_path / "model.pt", _use_new_zipfile_serialization=is_zip)
    found = read_checkpoint(tmp_path / "model.pt")
    assert plain(found["args"]) == vars(options)
    assert isinstance(found["model"]["w"], StoredTensor)
    assert found["model"]["w"].shape == (2,)
    assert plain({"a": 1}) == {"a": 1}


class Caller:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("is_zip", [True, False])
def test_nothing_is_called(tmp_path, is_zip):
    mark = tmp_path / "called"
    torch.save({"x": Caller(mark)}, tmp_path / "m.pt", _use_new_zipfile_serialization=is_zip)
    found = read_checkpoint(tmp_path / "m.pt")["x"]
    assert found.path.endswith("system")
    assert found.arguments == (f"touch {mark}",)
    assert not mark.exists()


def write_checkpoint(path, content, storage=b"\0" * 64, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("m/data.pkl", content)
        archive.writestr("m/data/0", storage)
    return path


class Storage:
    """Pickles as a reference to a storage."""

    def __init__(self, count, kind="FloatStorage"):
        self.count, self.kind = count, kind


class Raw:
    def __init__(self, count, shape, strides, offset=0):
        self.arguments = (Storage(count), offset, shape, strides, False, {})

    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, self.arguments


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, Storage):
            return ("storage", getattr(torch, value.kind), "0", "cpu", value.count)
        return None


def pickle_value(value):
    stream = io.BytesIO()
    Pickler(stream, 2).dump(value)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Raw(16, (1 << 20, 1 << 20), (1 << 20, 1)), "beyond its storage"),
        (Raw(16, (1 << 40,), (0,)), "beyond its storage"),
        (Raw(16, (4, 4), (4, 1), 1), "beyond its storage"),
        (Raw(16, (4, -4), (4, 1)), "not made of numbers"),
        (Raw(1 << 40, (4,), (1,)), "too few for"),
        (Raw(16, (4, 4), (4,)), "without a storage"),
        (Raw(16, (1,) * 70, (1,) * 70), "not made of numbers"),
        (Raw(16, (1 << 61, 0), (1, 1)), "not made of numbers"),
    ],
)
def test_shapes_beyond_the_file_are_refused(tmp_path, value, message):
    path = write_checkpoint(tmp_path / "m.pt", pickle_value(value))
    with pytest.raises(ArtifactError, match=message):
        read_checkpoint(path)
    read_checkpoint(write_checkpoint(path, pickle_value(Raw(16, (4, 4), (4, 1)))))


def text(characters):
    return b"X" + struct.pack("<I", len(characters)) + characters


STORAGE_NAME = b"(" + text(b"storage") + b"ctorch\nFloatStorage\n"
LAUGHS = b"\x80\x02)" + b"2\x86" * 200  # a pair of pairs of pairs of …


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02r\xff\xff\xff\xff.", "list index|pop from"),  # the memo's last place
        (b"\x80\x02]r\xff\xff\xff\xff0" + b"2" * 99, "empty|out of range|pop"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"ab.", "bytes8"),
        (b"\x80\x02X" + struct.pack("<I", (1 << 31) - 1) + b"ab.", "string|unicode"),
        (b"\x80\x02}" + LAUGHS[2:] + b"K\x01s.", None),
        (b"\x80\x02" + b"]" * 100, "STOP|exhausted|pickle"),
        (b"\x80\x02t.", "mark"),
        (b"\x80\x02Pid\n.", "not known"),
        (b"\x80\x02K\x01K\x02K\x03s.", "not a dictionary"),
        (b"\x80\x02K\x01K\x02a.", "not a list"),
        (b"", "STOP|exhausted|pickle"),
        (b"I" + b"9" * 5000 + b"\n.", "digits"),
        (b"\x80\x02(X\x01\0\0\0aQ.", "not a storage"),
        (b"\x80\x02" + STORAGE_NAME + LAUGHS[2:] + text(b"cpu") + b"K\x10tQ.", "is not a text"),
        (b"\x80\x02c" + b"a" * 2000 + b"\nb\n.", "a name of more than"),
        (b"\x80\x04" + text(b"a" * 2000) + b"\x8c\x01b\x93.", "a name of more than"),
    ],
)
def test_hostile_pickles_are_refused_in_bounded_memory(tmp_path, content, message):
    path = write_checkpoint(tmp_path / "m.pt", content)
    tracemalloc.start()
    if message is None:
        assert read_checkpoint(path) == {}
    else:
        with pytest.raises(ArtifactError, match=message) as error:
            read_checkpoint(path)
        assert "\n" not in str(error.value)
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()


def test_calls_count_as_much_as_they_take(tmp_path, monkeypatch):
    """A list of the memo costs two bytes each time that a dictionary is made of it."""
    monkeypatch.setattr(pickles, "MOST_OPERATIONS", 1 << 16)
    pairs = b"".join(text(b"%d" % n) + b"N\x86" for n in range(1000))
    ordered = b"\x80\x02(ccollections\nOrderedDict\nq\x01](" + pairs + b"e\x85q\x02"
    path = write_checkpoint(tmp_path / "m.pt", ordered + b"h\x01h\x02R" * 30 + b"t.")
    assert len(read_checkpoint(path)) == 32
    path = write_checkpoint(tmp_path / "m.pt", ordered + b"h\x01h\x02R" * 70 + b"t.")
    with pytest.raises(ArtifactError, match="more than 65,536 operations"):
        read_checkpoint(path)


def test_names_and_containers_count_as_much_as_they_take(tmp_path, monkeypatch):
    monkeypatch.setattr(pickles, "MOST_OPERATIONS", 1 << 12)
    for unit in (b"cA\nB\n\x94", b"}\x94", b"]\x94"):
        with pytest.raises(ArtifactError, match="more than 4,096 operations"):
            read_checkpoint(write_checkpoint(tmp_path / "m.pt", b"\x80\x04" + unit * 1000 + b"."))


def test_keys_with_equal_hashes_are_no_keys(tmp_path):
    keys = [n * ((1 << 61) - 1) for n in range(1, 4000)]
    path = write_checkpoint(
        tmp_path / "m.pt", pickle.dumps({**dict.fromkeys(keys), 7: 8, "a": 1}, 2)
    )
    assert read_checkpoint(path) == {7: 8, "a": 1}


@pytest.mark.parametrize("is_zip", [True, False])
def test_truncated_files_are_refused(tmp_path, is_zip):
    path = tmp_path / "m.pt"
    saved = {"w": torch.ones(300), "b": torch.zeros(7)}
    torch.save(saved, path, _use_new_zipfile_serialization=is_zip)
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(ArtifactError, match="damaged"):
            read_checkpoint(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "x")
    with pytest.raises(ArtifactError, match=r"without data.pkl"):
        read_checkpoint(path)
    write_checkpoint(path, pickle_value({}), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ArtifactError, match="is compressed"):
        read_checkpoint(path)
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ArtifactError, match="does not begin as one"):
        read_checkpoint(path)
    with pytest.raises(ArtifactError, match="no such file"):
        read_checkpoint(tmp_path / "none.pt")
    assert not named_tensors([1])


def test_big_endian_numbers_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/data.pkl", pickle_value({}))
        archive.writestr("m/byteorder", "big")
    with pytest.raises(ArtifactError, match="big-endian"):
        read_checkpoint(tmp_path / "m.pt")
