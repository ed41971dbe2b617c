"""Files of tensors, apart from what the model directory asks of them."""

import json
import os
import stat

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from tformer_cli.artifacts import tensors
from tformer_cli.artifacts.tensors import load_tensors, save_tensors, shapes_alone
from tformer_cli.artifacts.weights_file import tensor_shapes
from tformer_cli.errors import ArtifactError
from tformer_cli.files.atomic import ASIDE
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such modes")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o007, 0o660), (0o077, 0o600)])
def test_the_umask_decides_who_may_read_the_weights(tmp_path, umask, mode):
    path = tmp_path / "model.safetensors"
    before = os.umask(umask)
    try:
        save_tensors(path, {"weight": torch.ones(2)})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert load_tensors(path)["weight"].tolist() == [1, 1]


def test_leftovers_of_a_kill_are_known_by_their_names(tmp_path, monkeypatch):
    seen = []

    def observe_save(named, path, metadata):
        path.with_name(".tmpX1y2Z3").touch()  # as safetensors 0.8 does before it renames its file
        seen.extend(entry.name for entry in tmp_path.iterdir())
        save_file(named, path, metadata=metadata)

    monkeypatch.setattr(tensors, "save_file", observe_save)
    save_tensors(tmp_path / "model.safetensors", {"weight": torch.ones(2)})
    assert seen
    assert all(name.endswith(ASIDE) for name in seen)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


def test_where_nothing_can_be_written_the_message_names_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / "missing" / "model.safetensors"
    with pytest.raises(ArtifactError, match=r"/missing/model.safetensors: cannot be written"):
        save_tensors(path, {"weight": torch.ones(2)})
    assert not list(tmp_path.iterdir())


def test_a_file_has_the_length_that_its_header_promises(tmp_path, spoil):
    path = tmp_path / "model.safetensors"
    save_tensors(path, {"weight": torch.ones(2)})
    whole = path.read_bytes()
    for other in (whole[:-1], whole + bytes(8), whole[:20], b"", b"{}", bytes(80), b"\xff" * 80):
        path.write_bytes(other)
        with pytest.raises(ArtifactError, match=f"^{path}: is damaged"):
            tensor_shapes(path)
    path.write_bytes(whole)
    with path.open("r+b") as file:
        file.truncate(40_000_000_000)
    with pytest.raises(ArtifactError, match="has 40,000,000,000 bytes, but its header promises "):
        load_tensors(path)
    spoil(path)
    with pytest.raises(ArtifactError, match=r"cannot be read \(not an ordinary|is damaged or no"):
        load_tensors(path)


@pytest.mark.parametrize(
    "options", [{}, {"positions": "learned", "tied_embeddings": "none", "activation": "gelu"}]
)
def test_a_model_of_shapes_alone_has_them_all_and_draws_nothing(options):
    config = ModelConfig(
        d_model=32, n_heads=2, d_ff=48, n_encoder_layers=1, n_decoder_layers=2, **options
    )
    before = torch.get_rng_state()
    with shapes_alone():
        shapes = Transformer(config, 50).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert {tensor.device.type for tensor in shapes.values()} == {"meta"}
    whole = Transformer(config, 50).state_dict()
    assert {name: (v.shape, v.dtype) for name, v in shapes.items()} == {
        name: (v.shape, v.dtype) for name, v in whole.items()
    }


def test_outside_of_it_models_have_values_again():
    with shapes_alone():
        pass
    torch.manual_seed(1)
    layer = torch.nn.Linear(4, 4)
    assert layer.weight.device.type == "cpu"
    assert layer.weight.std() > 0


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [3]},
        {"shape": [-2]},
        {"shape": [True, 2]},
        {"shape": 2},
        {"dtype": "F16"},
        {"dtype": "X32"},
        {"dtype": 32},
        {"data_offsets": [4, 12]},
        {"data_offsets": [8]},
        {"data_offsets": None},
    ],
    ids=str,
)
def test_a_header_that_the_library_refuses_is_refused(tmp_path, change):
    path, entry = tmp_path / "model", {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for record in (entry, {**entry, **change}):
        header = json.dumps({"weight": record}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
        if record is entry:
            assert tensor_shapes(path) == {"weight": (2,)}
    with pytest.raises(SafetensorError), safe_open(path, "np"):
        pass
    with pytest.raises(ArtifactError, match=r"is damaged"):
        tensor_shapes(path)
