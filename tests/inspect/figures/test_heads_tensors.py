import io
import json
import struct

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load

from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.figures.heads_tensors import render_npz, render_safetensors

SHAPES = {f"enc.{i}": (2, 5, 5) for i in range(3)}
SHAPES |= {f"dec.{i}": (2, 3, 3) for i in range(2)} | {f"cross.{i}": (2, 3, 5) for i in range(2)}


def test_safetensors_holds_every_layer(record, tmp_path):
    file = tmp_path / "heads.safetensors"
    file.write_bytes(render_safetensors(record))
    tensors = load(file.read_bytes())
    assert {name: array.shape for name, array in tensors.items()} == SHAPES
    assert all(array.dtype == np.float32 for array in tensors.values())
    np.testing.assert_array_equal(tensors["cross.1"], record.maps.cross[1].numpy())
    with safe_open(file, "numpy") as opened:
        metadata = opened.metadata()
    assert metadata["schema"] == "tformer.heads/1"
    assert json.loads(metadata["source"])["pieces"] == ["a", "b", "c", "d", "</s>"]
    assert "Row = query" in metadata["conventions"]


def test_a_reader_needs_nothing_but_the_header(record):
    data = render_safetensors(record)
    length = struct.unpack("<Q", data[:8])[0]
    assert length % 8 == 0
    header = json.loads(data[8 : 8 + length])
    start, end = header["dec.1"]["data_offsets"]
    array = np.frombuffer(data[8 + length + start : 8 + length + end], "<f4").reshape(2, 3, 3)
    np.testing.assert_array_equal(array, record.maps.dec[1].numpy())


def test_npz_holds_the_same_without_pickle(record):
    with np.load(io.BytesIO(render_npz(record)), allow_pickle=False) as arrays:
        assert {n: arrays[n].shape for n in arrays.files if n != "metadata"} == SHAPES
        np.testing.assert_array_equal(arrays["enc.2"], record.maps.enc[2].numpy())
        metadata = json.loads(str(arrays["metadata"]))
    assert json.loads(metadata["target"])["input_pieces"] == ["<s>", "x", "y"]


def test_selected_heads_are_stacked_and_named(make_record):
    record = make_record(heads=(HeadId("cross", 1, 1), HeadId("enc", 0, 0)))
    tensors = load(render_safetensors(record))
    assert set(tensors) == {"cross.1", "enc.0"}
    assert torch.equal(torch.tensor(tensors["cross.1"][0]), record.maps.cross[1][1])
    with np.load(io.BytesIO(render_npz(record))) as arrays:
        heads = json.loads(json.loads(str(arrays["metadata"]))["heads"])
    assert heads == {"cross.1": [1], "enc.0": [0]}


@pytest.mark.parametrize("render", [render_safetensors, render_npz])
def test_the_same_record_gives_the_same_bytes(render, make_record):
    assert render(make_record()) == render(make_record())
