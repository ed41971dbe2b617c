import pytest
import torch

from tformer_cli.artifacts.tensors import save_tensors
from tformer_cli.errors import ArtifactError
from tformer_cli.training.averaging import average_weights


def test_the_average_is_the_mean_of_each_tensor_in_any_order(tmp_path):
    files = []
    for number, value in enumerate((1.0, 2.0, 6.0)):
        files.append(tmp_path / f"{number}.safetensors")
        save_tensors(files[-1], {"a": torch.full((2, 3), value), "b": torch.tensor([value**2])})
    average = average_weights(files)
    assert torch.equal(average["a"], torch.full((2, 3), 3.0))
    assert torch.allclose(average["b"], torch.tensor([41 / 3]))
    backwards = average_weights(files[::-1])
    assert all(torch.equal(average[name], backwards[name]) for name in average)


def test_a_damaged_file_and_no_file_are_errors(tmp_path):
    damaged = tmp_path / "x.safetensors"
    damaged.write_bytes(b"not tensors")
    with pytest.raises(ArtifactError, match="is damaged or not a safetensors file"):
        average_weights([damaged])
    with pytest.raises(ValueError, match="no checkpoint to average"):
        average_weights([])
