import json
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.formats.weight_files import read_safetensors, read_weights_of

TENSORS = {
    "a": torch.arange(6.0).reshape(2, 3).half(),
    "b": torch.tensor([1.5, -3e30]).bfloat16(),
    "c": torch.tensor([[7]]),
    "d": torch.zeros(0, 4),
}


def check(arrays):
    assert set(arrays) == set(TENSORS)
    for name, tensor in TENSORS.items():
        wanted = tensor.float() if tensor.is_floating_point() else tensor
        np.testing.assert_array_equal(arrays[name], wanted.numpy(), strict=True)


def test_half_precision_is_read_as_float32(tmp_path):
    save_file(TENSORS, tmp_path / "model.safetensors", {"format": "pt"})
    check(read_safetensors(tmp_path / "model.safetensors"))


@pytest.mark.parametrize("ending", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("is_sharded", [False, True])
def test_weights_of_a_directory_are_found(tmp_path, ending, is_sharded):
    save = save_file if ending.endswith("safetensors") else torch.save
    if not is_sharded:
        save(TENSORS, tmp_path / ending)
        assert read_weights_of(tmp_path)[1] == [tmp_path / ending]
    else:
        names = {"a": "one.part", "b": "two.part", "c": "one.part", "d": "two.part"}
        for part in set(names.values()):
            save({n: t for n, t in TENSORS.items() if names[n] == part}, tmp_path / part)
        (tmp_path / f"{ending}.index.json").write_text(json.dumps({"weight_map": names}))
        assert read_weights_of(tmp_path)[1] == [tmp_path / "one.part", tmp_path / "two.part"]
    check(read_weights_of(tmp_path)[0])


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"weight_map": {"a": "../secret"}}, "another directory"),
        ({"weight_map": ["a"]}, "not an index"),
        ([], "not an index"),
    ],
)
def test_an_index_names_files_beside_it(tmp_path, index, message):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ArtifactError, match=message):
        read_weights_of(tmp_path)


def test_a_directory_without_weights_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="neither"):
        read_weights_of(tmp_path)


def test_a_header_of_very_many_tensors_is_refused(tmp_path):
    header = json.dumps(
        {f"a{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(150_000)}
    ).encode()
    (tmp_path / "m").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ArtifactError, match="damaged or not a safetensors file"):
        read_safetensors(tmp_path / "m")


@pytest.mark.parametrize("shape", [[1 << 40], [1 << 20, 1 << 20], [-1]])
def test_shapes_beyond_the_file_are_refused(tmp_path, shape):
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 8]}}).encode()
    (tmp_path / "m").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(ArtifactError, match="damaged") as error:
        read_safetensors(tmp_path / "m")
    assert "\n" not in str(error.value)
