import errno
import os

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tformer_cli.artifacts import weights_file
from tformer_cli.artifacts.weights_file import (
    SCALE,
    StoredArrays,
    free_pages,
    read_header,
    read_weights,
    tensor_shapes,
)
from tformer_cli.errors import ArtifactError, ModelMemoryError
from tformer_cli.fast.products import quantized_matrices
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer

CONFIG = ModelConfig(
    d_model=16, n_heads=2, d_ff=24, n_encoder_layers=1, n_decoder_layers=2, cross_heads=(0, 2)
)


@pytest.fixture
def tensors():
    torch.manual_seed(3)
    return Transformer(CONFIG, 30).state_dict()


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_numbers_of_every_width_are_read_as_float32(tmp_path, tensors, kind):
    stored = {name: tensor.to(kind) for name, tensor in tensors.items()}
    save_file(stored, tmp_path / "weights")
    weights = read_weights(tmp_path / "weights", CONFIG, 30)
    assert weights.keys() == tensors.keys()
    for name, tensor in stored.items():
        np.testing.assert_array_equal(weights[name], tensor.float().numpy(), strict=True)


def test_integers_are_read_with_their_scales(tmp_path, tensors):
    matrices = quantized_matrices(tensors)
    stored = dict(tensors)
    for name, matrix in matrices.items():
        stored[name], stored[name + SCALE] = matrix
    save_file(stored, tmp_path / "weights")
    arrays = read_weights(tmp_path / "weights", CONFIG, 30, "int8")
    name = "decoder.layers.1.feed_forward.inner.weight"
    np.testing.assert_array_equal(arrays[name], matrices[name].integers.numpy(), strict=True)
    np.testing.assert_array_equal(arrays[name + SCALE], matrices[name].scale.numpy(), strict=True)
    pruned = "decoder.layers.0.cross_attention.out_projection.weight"
    assert arrays[pruned].dtype == np.float32
    assert pruned + SCALE not in arrays


def test_memory_that_is_given_back_is_read_again(tmp_path):
    large = np.arange(1 << 19, dtype=np.float32)
    save_file({"large": torch.from_numpy(large), "small": torch.ones(3)}, tmp_path / "weights")
    arrays = StoredArrays(tmp_path / "weights")
    header, start = read_header(tmp_path / "weights")
    for name, shape in tensor_shapes(tmp_path / "weights").items():
        arrays.add(name, "<f4", start + header[name]["data_offsets"][0], shape)
        array, again = arrays[name], arrays[name]
        free_pages(array)
        assert name == "small" or not array.any(), "its pages are gone"
        np.testing.assert_array_equal(again, arrays[name])
    free_pages(np.ones(3))  # of no file
    np.testing.assert_array_equal(again, large if name == "large" else np.ones(3))


def spoil(file, change):
    """Writes over a file, as `cp` does, or cuts it; its time is another then."""
    with file.open("r+b") as stream:
        change(stream)
    os.utime(file, ns=(0, 1))


@pytest.mark.parametrize(
    "change", [lambda file: file.truncate(0), lambda file: (file.seek(-8, 2), file.write(b"x" * 8))]
)
def test_what_is_written_over_later_changes_no_number(tmp_path, tensors, change):
    file = tmp_path / "weights"
    save_file(tensors, file)
    weights = read_weights(file, CONFIG, 30)
    before = dict(weights)
    spoil(file, change)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(before[name], tensor.numpy())
    with pytest.raises(ArtifactError, match="was changed while in use; write a new model"):
        dict(weights)


def test_a_file_that_was_replaced_or_removed_is_still_read(tmp_path, tensors):
    file = tmp_path / "weights"
    save_file(tensors, file)
    weights = read_weights(file, CONFIG, 30)
    (tmp_path / "other").write_bytes(b"")
    for change in ((tmp_path / "other").replace, lambda file: file.unlink()):
        change(file)
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(weights[name], tensor.numpy())


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate")])
def test_weights_that_do_not_fit_into_memory_say_what_they_need(
    tmp_path, tensors, monkeypatch, error
):
    def none(*_):
        raise error

    file = tmp_path / "weights"
    save_file(tensors, file)
    arrays = StoredArrays(file)
    arrays.add("a", "<f4", 0, (1,))
    monkeypatch.setattr(weights_file, "_empty", none)
    with pytest.raises(ModelMemoryError, match="weights: needs at least 1 MB of memory, and there"):
        arrays["a"]


def test_arrays_at_odd_places_are_read(tmp_path, tensors):
    save_file(tensors, tmp_path / "weights")
    whole = (tmp_path / "weights").read_bytes()
    length = int.from_bytes(whole[:8], "little")
    for more in (1, 2, 3):
        header = whole[8 : 8 + length] + b" " * more
        moved = len(header).to_bytes(8, "little") + header + whole[8 + length :]
        (tmp_path / "weights").write_bytes(moved)
        arrays = read_weights(tmp_path / "weights", CONFIG, 30)
        assert all(array.flags.aligned for array in arrays.values())
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(arrays[name], tensor.numpy())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused_and_what_only_sums_to_it_is_not(tmp_path, tensors, value):
    weight = tensors["encoder.layers.0.feed_forward_norm.bias"]
    weight.fill_(3e38)
    save_file(tensors, tmp_path / "weights")
    read_weights(tmp_path / "weights", CONFIG, 30)
    weight[5] = value
    save_file(tensors, tmp_path / "weights")
    with pytest.raises(ArtifactError, match=r"feed_forward_norm.bias contains NaN or infinity"):
        read_weights(tmp_path / "weights", CONFIG, 30)


def test_other_types_are_refused(tmp_path, tensors):
    tensors["encoder.layers.0.feed_forward_norm.bias"] = torch.ones(16, dtype=torch.int32)
    save_file(tensors, tmp_path / "weights")
    with pytest.raises(ArtifactError, match=r"feed_forward_norm.bias is not floating-point"):
        read_weights(tmp_path / "weights", CONFIG, 30)
    with pytest.raises(ArtifactError, match=r"has no tensor .*_scale"):
        read_weights(tmp_path / "weights", CONFIG, 30, "int8")
