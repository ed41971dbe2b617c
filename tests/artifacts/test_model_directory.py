import json
import math
import os
import pickle
import shutil
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from tformer_cli.artifacts.config_file import AlignmentInfo, ModelInfo
from tformer_cli.artifacts.model_directory import (
    load_model_directory,
    save_model_directory,
    store_alignment,
)
from tformer_cli.errors import ArtifactError, TformerError
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

SHAPE = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 2}
INFO = ModelInfo(source_language="en", target_language="fr", step=7, scores={"bleu": 0.1 + 0.2})


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["a b c", "the cat"] * 3, TokenizerConfig(vocab_size=280))


def save(path, tokenizer, **changes):
    torch.manual_seed(5)
    config = ModelConfig(**{**SHAPE, **changes})
    model = Transformer(config, tokenizer.vocab_size).eval()
    save_model_directory(
        path,
        model.state_dict(),
        config=config,
        tokenizer=tokenizer,
        decoding=DecodingConfig(beam_size=3),
        info=INFO,
    )
    return model


@pytest.fixture
def directory(tmp_path, tokenizer):
    save(tmp_path / "model", tokenizer)
    return tmp_path / "model"


def change_config(directory, **changes):
    path = directory / "config.json"
    values = json.loads(path.read_text())
    for key, value in changes.items():
        table, _, name = key.rpartition("__")
        (values[table] if table else values)[name] = value
    path.write_text(json.dumps(values))


def refusal_of(directory, kind=ArtifactError):
    """Loads a directory that must be refused; returns the message."""
    start = time.thread_time()
    with pytest.raises(kind) as raised:
        load_model_directory(directory)
    assert time.thread_time() - start < 5.0
    message = str(raised.value)
    assert "\n" not in message
    assert str(directory) in message
    assert raised.value.exit_status == 2
    return message


@pytest.mark.parametrize("tied", ["all", "decoder", "none"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_saved_weights_are_loaded_equal(tmp_path, tokenizer, tied, positions):
    changes = {"tied_embeddings": tied, "positions": positions, "norm": "pre", "max_positions": 64}
    model = save(tmp_path, tokenizer, **changes)
    found = load_model_directory(tmp_path)
    assert found.model.config == model.config
    assert found.decoding == DecodingConfig(beam_size=3)
    assert found.info == INFO
    assert found.tokenizer.to_json() == tokenizer.to_json()
    assert not found.model.training
    source = torch.tensor([[5, 6, 7]])
    arguments = (source, torch.ones_like(source, dtype=torch.bool), torch.tensor([[2, 9]]))
    with torch.no_grad():
        assert torch.equal(found.model(*arguments), model(*arguments))


def test_the_same_model_is_the_same_bytes_and_can_be_copied_alone(tmp_path, tokenizer):
    digests = set()
    for number in range(8):
        save(tmp_path / str(number), tokenizer)
        files = sorted((tmp_path / str(number)).iterdir())
        assert [file.name for file in files] == [
            "config.json",
            "model.safetensors",
            "tokenizer.json",
        ]
        digests.add(b"".join(file.read_bytes() for file in files))
    assert len(digests) == 1
    shutil.copytree(tmp_path / "0", tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "0")
    assert load_model_directory(tmp_path / "elsewhere").info == INFO


@pytest.mark.parametrize(("stored", "read"), [(4096, 0), (0, 0), (2048, 2048)])
def test_the_batch_size_that_earlier_versions_stored_is_no_choice(directory, stored, read):
    decoding = json.loads((directory / "config.json").read_text())["decoding"]
    change_config(directory, decoding=decoding | {"batch_tokens": stored})
    assert load_model_directory(directory).decoding.batch_tokens == read


def test_half_precision_weights_are_read(directory):
    path = directory / "model.safetensors"
    tensors = {name: tensor.half() for name, tensor in load_file(path).items()}
    name = next(iter(tensors))
    save_file(tensors, path)
    state = load_model_directory(directory).model.state_dict()
    assert torch.equal(state[name], tensors[name].float())
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_each_file_missing_empty_truncated_or_of_noise_is_one_line(directory, name):
    path = directory / name
    whole = path.read_bytes()
    damages = [whole[: len(whole) // 2], whole[:-1], b"", b"\xff" * 100, os.urandom(300)]
    for damage in damages:
        path.write_bytes(damage)
        if damage == whole[:-1] and whole.endswith(b"\n"):
            load_model_directory(directory)  # only the last line end is gone
        else:
            assert str(path) in refusal_of(directory, TformerError)
    path.unlink()
    refusal_of(directory, TformerError)
    path.mkdir()
    refusal_of(directory, TformerError)
    path.rmdir()
    os.mkfifo(path)
    refusal_of(directory, TformerError)


def test_a_path_that_is_not_a_directory_is_reported(tmp_path):
    assert "no such directory" in refusal_of(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    assert "is a file" in refusal_of(tmp_path / "file")
    assert "config.json is missing; name a tformer model directory" in refusal_of(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("decoder.layers.0.feed_forward.down.weight"), "has no tensor"),
        (lambda t: t.update(extra=torch.zeros(2)), "has an unknown tensor extra"),
        (lambda t: t.update({n: v[..., :-1].contiguous() for n, v in t.items()}), "has shape"),
        (lambda t: t.update({n: v.int() for n, v in t.items()}), "is not floating-point"),
        (
            lambda t: t.update({n: v.to(torch.complex64) for n, v in t.items()}),
            "is not floating-point",
        ),
        (lambda t: next(reversed(t.values())).fill_(math.nan), "contains NaN or infinity"),
        (lambda t: next(reversed(t.values()))[..., 0].fill_(-math.inf), "NaN or infinity"),
        (lambda t: t.clear(), "has too few tensors"),
    ],
)
def test_weights_of_another_model_are_refused(directory, change, message):
    path = directory / "model.safetensors"
    tensors = load_file(path)
    if "no tensor" in message:
        tensors.pop(sorted(tensors)[3])
    else:
        change(tensors)
    save_file(tensors, path)
    assert message in refusal_of(directory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__d_model": 65536, "model__n_heads": 1}, "has shape"),
        ({"model__d_model": 10**12}, "model.d_model: "),
        ({"model__n_encoder_layers": 10**9}, "model.n_encoder_layers: "),
        ({"model__n_encoder_layers": 1000}, "has too few tensors for 1002 layers"),
        ({"model__n_encoder_layers": 2}, "has no tensor"),
        ({"model__n_heads": 3}, "model.n_heads: 3 does not divide"),
        ({"model__d_ff": -4}, "model.d_ff: "),
        ({"model__d_ff": "24"}, "model.d_ff: must be a whole number"),
        ({"model__d_fff": 24}, 'model.d_fff: unknown key; did you mean "d_ff"?'),
        ({"model": None}, "model: "),
        ({"decoding__beam_size": 0}, "decoding.beam_size: "),
        ({"vocab_size": 281}, "restore this model's own tokenizer"),
        ({"vocab_size": True}, "vocab_size: "),
        ({"format_version": 3}, "newer than 2"),
        ({"format_version": "1"}, "has no format_version; name a tformer"),
        ({"format_version": 0}, "has no format_version; name a tformer"),
        ({"scores": {"bleu": "high"}}, "scores.bleu: "),
        ({"weight_type": "int4"}, "weight_type: "),
    ],
)
def test_hostile_and_contradictory_configs_are_refused_at_once(directory, changes, message):
    change_config(directory, **changes)
    assert message in refusal_of(directory)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"format_version": ' + '{"a": ' * 5000 + "1" + "}" * 5001,
        '{"format_version": 1, "model": ' + "[" * 900 + "]" * 900 + "}",
        '{"architectures": ["MarianMTModel"], "d_model": 512}',
        "[1, 2]",
        "null",
        '{"format_version": 1' + " " * (2 << 20) + "}",
        '{"format_version": ' + "9" * 5000 + "}",
    ],
)
def test_foreign_and_nested_json_is_refused(directory, text):
    (directory / "config.json").write_text(text)
    refusal_of(directory)


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_nothing_is_ever_unpickled(directory, tmp_path):
    sprung = tmp_path / "sprung"
    trap = pickle.dumps(Trap(sprung))
    for name in ("pytorch_model.bin", "model.pt", "training_args.bin"):
        (directory / name).write_bytes(trap)
    load_model_directory(directory)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        (directory / name).write_bytes(trap)
        refusal_of(directory, TformerError)
    (directory / "model.safetensors").unlink()
    refusal_of(directory, TformerError)
    assert not sprung.exists()
    pickle.loads(trap).close()  # noqa: S301
    assert sprung.exists(), "the trap works"


def test_the_tokenizer_of_another_model_is_refused(directory, tokenizer):
    other = train_tokenizer(["x y z"] * 3, TokenizerConfig(vocab_size=270))
    assert other.vocab_size != tokenizer.vocab_size
    (directory / "tokenizer.json").write_text(other.to_json())
    assert "restore this model's own tokenizer" in refusal_of(directory)


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path, tokenizer):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="is a file"):
        save(tmp_path / "file", tokenizer)


def test_storing_an_alignment_changes_nothing_else(directory):
    before = json.loads((directory / "config.json").read_text())
    store_alignment(directory, AlignmentInfo(heads="cross.1", convention="naive"))
    chosen = AlignmentInfo(heads="cross.1.0", convention="shift")
    store_alignment(directory, chosen)
    after = json.loads((directory / "config.json").read_text())
    assert after == {**before, "alignment": {"heads": "cross.1.0", "convention": "shift"}}
    assert load_model_directory(directory).info.alignment == chosen
    change_config(directory, alignment={"heads": "cross.1.0", "convention": "sideways"})
    with pytest.raises(ArtifactError, match=r"alignment\.convention: must be 'naive' or 'shift'"):
        load_model_directory(directory)
