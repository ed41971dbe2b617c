"""Exports for Marian: its files, imported again, are the same model."""

from dataclasses import fields, replace

import numpy as np
import pytest

from tests.converters.hugging_face.test_importing import marian
from tests.converters.spm import PIECES, spm
from tests.converters.test_marian import (
    OPTIONS,
    VARIANTS,
    VOCABULARY,
    bergamot,
    weights,
    write,
)
from tests.test_allow_lists import made_up_values
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.artifacts.model_directory import load_model_directory, save_model_directory
from tformer_cli.artifacts.weights_file import read_weights
from tformer_cli.converters.formats.npz import read_npz
from tformer_cli.converters.formats.yaml_text import parse_yaml, read_yaml, write_yaml
from tformer_cli.converters.marian_export import KNOWN
from tformer_cli.errors import UsageError
from tformer_cli.model.config import ModelConfig
from tformer_cli.workflows.export import export_marian
from tformer_cli.workflows.import_model import import_model


def stored(path):
    """Weights of a model directory by their names."""
    record = read_config(path)
    file = path / "model.safetensors"
    return read_weights(file, record.model, record.vocab_size, record.weight_type).arrays


def assert_same(first, second):
    assert set(first) == set(second)
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_export_has_the_arrays_that_were_imported(tmp_path, variant):
    options = OPTIONS | VARIANTS[variant]
    arrays = weights(options)
    import_model(str(write(tmp_path / "marian", arrays, options)), tmp_path / "ours")
    export_marian(tmp_path / "ours", tmp_path / "again")
    found = dict(read_npz(tmp_path / "again" / "model.npz"))
    settings = parse_yaml(found.pop("special:model.yml").tobytes()[:-1], "")
    assert_same(found, arrays)
    for name, value in options.items():
        wanted = value if isinstance(value, list) else [value]
        given = settings[name] if isinstance(value, list) else [settings[name]]
        assert given == [str(one).lower() for one in wanted], name
    decoder = read_yaml(tmp_path / "again" / "decoder.yml")
    assert decoder["vocabs"] == ["vocab.spm", "vocab.spm"]
    assert (decoder["beam-size"], decoder["normalize"]) == ("6", "1.0")
    assert (tmp_path / "again" / "vocab.spm").read_bytes() == spm(
        VOCABULARY, {"</s>": 3, "<unk>": 2}
    )
    import_model(str(tmp_path / "again"), tmp_path / "back")
    assert_same(stored(tmp_path / "back"), stored(tmp_path / "ours"))
    for name in ("tokenizer.json", "model.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "ours" / name).read_bytes()


def test_integers_become_the_numbers_that_they_stand_for(tmp_path):
    options = OPTIONS | VARIANTS["ssru"]
    source = bergamot(tmp_path / "bergamot", weights(options), options)
    import_model(str(source), tmp_path / "int8")
    import_model(str(source), tmp_path / "float32", weights="float32")
    export_marian(tmp_path / "int8", tmp_path / "again")
    import_model(str(tmp_path / "again"), tmp_path / "back")
    assert_same(stored(tmp_path / "back"), stored(tmp_path / "float32"))


ODD = ['"', "'", "null", "yes", "1e3", "?", "- a", "\u2028", "\x85", "😀", "a: b", "#", " "]
"""Pieces that YAML takes for something else where they are not quoted."""


@pytest.mark.parametrize("is_joint", [True, False])
def test_pieces_that_sentencepiece_numbers_otherwise_are_listed(tmp_path, is_joint):
    options = OPTIONS | VARIANTS["separate"]
    source = write(tmp_path / "marian", weights(options), options)
    (source / "vocab.spm").unlink()
    for side in ("source", "target"):
        pieces = [*VOCABULARY[:20], *ODD] if is_joint or side == "target" else VOCABULARY
        (source / f"{side}.spm").write_bytes(spm(PIECES))
        (source / f"{side}.yml").write_text(write_yaml({p: n for n, p in enumerate(pieces)}))
    (source / "model.npz.decoder.yml").write_text("vocabs: [source.yml, target.yml]\n")
    import_model(str(source), tmp_path / "ours")
    export_marian(tmp_path / "ours", tmp_path / "again")
    stem = "vocab" if is_joint else "target"
    found = read_yaml(tmp_path / "again" / f"{stem}.yml")
    assert found == {piece: str(n) for n, piece in enumerate([*VOCABULARY[:20], *ODD])}
    assert sorted(p.name for p in (tmp_path / "again").glob("*.spm")) == (
        ["vocab.spm"] if is_joint else ["source.spm", "target.spm"]
    )
    import_model(str(tmp_path / "again"), tmp_path / "back")
    for name in ("tokenizer.json", "model.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "ours" / name).read_bytes()


def changed(path, config=None, arrays=None):
    """Writes a model directory with other settings or weights."""
    directory = load_model_directory(path)
    state = directory.model.state_dict()
    for name, change in (arrays or {}).items():
        change(state[name])
    save_model_directory(
        path,
        state,
        config=replace(directory.config, **(config or {})),
        tokenizer=directory.tokenizer,
        decoding=directory.decoding,
        info=directory.info,
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config": {"norm_epsilon": 1e-5}}, "Marian has no norm_epsilon = 1e-05"),
        ({"config": {"activation": "gelu"}}, 'Marian has no activation = "gelu"'),
        ({"config": {"scale_embeddings": False}}, "scale_embeddings = False"),
        ({"config": {"positions": "learned"}}, 'positions = "learned"'),
        (
            {"arrays": {"decoder_input.positions.table": lambda table: table.mul_(1.001)}},
            "positions other than its own",
        ),
        (
            {"arrays": {"source_embedding.weight": lambda table: table[2].fill_(0.1)}},
            "embedding of <s>",
        ),
        ({"arrays": {"output_bias": lambda bias: bias.zero_()}}, "probability of <pad> and <s>"),
    ],
)
def test_what_marian_cannot_hold_is_refused_by_name(tmp_path, change, said):
    import_model(str(write(tmp_path / "marian", weights(OPTIONS), OPTIONS)), tmp_path / "ours")
    changed(tmp_path / "ours", **change)
    with pytest.raises(UsageError, match=said) as error:
        export_marian(tmp_path / "ours", tmp_path / "again")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "again").exists()


def test_models_of_other_origins_are_refused(model, tmp_path):
    marian(tmp_path / "hf")
    import_model(str(tmp_path / "hf"), tmp_path / "ours")
    for path in (model, tmp_path / "ours"):
        with pytest.raises(UsageError, match=r"Marian has no .* models that were imported from"):
            export_marian(path, tmp_path / "again")
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "mine").write_text("")
    with pytest.raises(UsageError, match="already there"):
        export_marian(tmp_path / "ours", tmp_path / "again")


def test_the_allow_list_has_every_setting_and_no_made_up_value():
    assert set(KNOWN) == {one.name for one in fields(ModelConfig)}
    for name, value in made_up_values(ModelConfig):
        assert value not in KNOWN[name]
