"""Exports for Marian: its files, imported again, are the same model."""

import shutil
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from tests.foreign.own import TRANSLATION, own_model
from tests.foreign.spm import PIECES, spm
from tests.plugins.interchange.marian.test_importing import (
    OPTIONS,
    VARIANTS,
    VOCABULARY,
    bergamot,
    reference,
    weights,
    write,
)
from tests.test_allow_lists import made_up_values
from tformer_cli.artifacts.config_file import SHORTLIST, read_config
from tformer_cli.artifacts.model_directory import load_model_directory, save_model_directory
from tformer_cli.artifacts.shortlist_file import save_shortlist
from tformer_cli.artifacts.weights_file import read_weights
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.model.config import ModelConfig
from tformer_cli.plugins.interchange.export import export_marian
from tformer_cli.plugins.interchange.marian.binary import (
    parse_yaml,
    read_npz,
    read_yaml,
    write_yaml,
)
from tformer_cli.plugins.interchange.marian.exporting import KNOWN
from tformer_cli.search.engine import Shortlist
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID


def stored_weights(path):
    """Weights of a model directory by their names."""
    record = read_config(path)
    file = path / "model.safetensors"
    return read_weights(file, record.model, record.vocab_size, record.weight_type)


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
        assert given == [str(item).lower() for item in wanted], name
    decoder = read_yaml(tmp_path / "again" / "decoder.yml")
    assert decoder["vocabs"] == ["vocab.spm", "vocab.spm"]
    assert (decoder["beam-size"], decoder["normalize"]) == ("6", "1.0")
    assert (tmp_path / "again" / "vocab.spm").read_bytes() == spm(
        VOCABULARY, {"</s>": 3, "<unk>": 2}
    )
    import_model(str(tmp_path / "again"), tmp_path / "back")
    assert_same(stored_weights(tmp_path / "back"), stored_weights(tmp_path / "ours"))
    for name in ("tokenizer.json", "model.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "ours" / name).read_bytes()


def test_integers_become_the_numbers_that_they_stand_for(tmp_path):
    options = OPTIONS | VARIANTS["ssru"]
    source = bergamot(tmp_path / "bergamot", weights(options), options)
    import_model(str(source), tmp_path / "int8")
    import_model(str(source), tmp_path / "float32", weights="float32")
    export_marian(tmp_path / "int8", tmp_path / "again")
    import_model(str(tmp_path / "again"), tmp_path / "back")
    assert_same(stored_weights(tmp_path / "back"), stored_weights(tmp_path / "float32"))


ODD = ['"', "'", "null", "yes", "1e3", "?", "- a", "\u2028", "\x85", "😀", "a: b", "#", " "]
"""Pieces that YAML takes for something else where they are not quoted."""


@pytest.mark.parametrize("is_joint", [True, False])
def test_pieces_that_sentencepiece_numbers_otherwise_are_listed(tmp_path, is_joint):
    options = OPTIONS | VARIANTS["separate"]
    source = write(tmp_path / "marian", weights(options), options)
    (source / "vocab.spm").unlink()
    for side in ("source", "target"):
        pieces = [*VOCABULARY[:40], *ODD] if is_joint or side == "target" else VOCABULARY
        (source / f"{side}.spm").write_bytes(spm(PIECES))
        (source / f"{side}.yml").write_text(write_yaml({p: n for n, p in enumerate(pieces)}))
    (source / "model.npz.decoder.yml").write_text("vocabs: [source.yml, target.yml]\n")
    import_model(str(source), tmp_path / "ours")
    export_marian(tmp_path / "ours", tmp_path / "again")
    stem = "vocab" if is_joint else "target"
    found = read_yaml(tmp_path / "again" / f"{stem}.yml")
    assert found == {piece: str(n) for n, piece in enumerate([*VOCABULARY[:40], *ODD])}
    assert sorted(p.name for p in (tmp_path / "again").glob("*.spm")) == (
        ["vocab.spm"] if is_joint else ["source.spm", "target.spm"]
    )
    import_model(str(tmp_path / "again"), tmp_path / "back")
    for name in ("tokenizer.json", "model.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "ours" / name).read_bytes()


def change_model(path, config=None, arrays=None):
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
    ("change", "message"),
    [
        ({"config": {"norm_epsilon": 1e-6}}, "Marian has no norm_epsilon = 1e-06"),
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
def test_what_marian_cannot_hold_is_refused_by_name(tmp_path, change, message):
    import_model(str(write(tmp_path / "marian", weights(OPTIONS), OPTIONS)), tmp_path / "ours")
    change_model(tmp_path / "ours", **change)
    with pytest.raises(UsageError, match=message) as error:
        export_marian(tmp_path / "ours", tmp_path / "again")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "again").exists()


OWN = {
    "sinusoids": {},
    "swish, no biases": {"bias": False, "activation": "swish", "tied_embeddings": "decoder"},
    "learned, pre-norm, three matrices": {
        "positions": "learned",
        "norm": "pre",
        "tied_embeddings": "none",
        "output_bias": True,
    },
    "final norms": {"final_norm": "always", "scale_embeddings": False},
    "no positions": {"positions": "none"},
    "ssru, norm of embeddings": {"decoder_cell": "ssru", "embedding_norm": True},
}
"""Models of tformer's own."""


def logits(path, source, target):
    """Logits of a model directory of each position of a target."""
    model = load_model_directory(path).model
    with torch.no_grad():
        mask = torch.ones(1, len(source)).bool()
        return model(torch.tensor([source]), mask, torch.tensor([[BOS_ID, *target]]))[0].numpy()


@pytest.mark.parametrize("variant", OWN)
def test_models_of_tformers_own_compute_the_same_in_marian(model, tmp_path, variant):
    tokenizer = load_model_directory(model).tokenizer
    own_model(tmp_path / "ours", tokenizer, {**TRANSLATION, "max_positions": 30, **OWN[variant]})
    export_marian(tmp_path / "ours", tmp_path / "again")
    arrays = dict(read_npz(tmp_path / "again" / "model.npz"))
    settings = parse_yaml(arrays.pop("special:model.yml").tobytes()[:-1], "")
    assert settings["type"] == "transformer-new"
    numbers = ("dim-emb", "transformer-heads", "enc-depth", "dec-depth", "max-length")
    options = settings | {name: int(settings[name]) for name in numbers}
    options["tied-embeddings-all"] = settings["tied-embeddings-all"] == "true"
    assert len(arrays["TransformerBatchDecoder->decoder->positionEmbedding->embeddings"]) == 30
    assert options["max-length"] == 30

    ids = {piece: int(n) for piece, n in read_yaml(tmp_path / "again" / "vocab.yml").items()}
    pieces = tokenizer.target.pieces(range(tokenizer.vocab_size))
    assert sorted(ids) == sorted(pieces)
    assert (ids["</s>"], ids["<unk>"]) == (0, 1)
    source, target = [7, 30, 31, 60, 40, 3], [9, 59, 11, 50]
    foreign = [[ids[pieces[token]] for token in some] for some in (source, target)]
    wanted = logits(tmp_path / "ours", source, target)
    found = reference(arrays, options, *foreign)
    np.testing.assert_allclose(found[:, [ids[piece] for piece in pieces]], wanted, atol=1e-5)

    import_model(str(tmp_path / "again"), tmp_path / "back")
    np.testing.assert_allclose(logits(tmp_path / "back", source, target), wanted, atol=1e-5)
    again, before = (load_model_directory(tmp_path / name) for name in ("back", "ours"))
    assert again.tokenizer.to_json() == before.tokenizer.to_json()
    assert again.config.max_positions == 30


def random_shortlist(path, first=9):
    """Gives a model directory a shortlist of random targets; returns it."""
    tokenizer, rng = load_model_directory(path).tokenizer, np.random.default_rng(6)
    n_sources, n_targets = tokenizer.source.vocab_size, tokenizer.target.vocab_size
    # a token may be copied: Marian adds it to the list where both sides have one vocabulary
    lists = [
        np.unique([token, *rng.integers(4, n_targets, rng.integers(0, 7))])
        for token in range(n_sources)
    ]
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    shortlist = Shortlist(first, offsets, np.concatenate(lists).astype(np.int32))
    save_shortlist(path / SHORTLIST, shortlist)
    return shortlist


def test_the_shortlist_of_a_model_comes_along(model, tmp_path):
    path = shutil.copytree(model, tmp_path / "ours")
    shortlist = random_shortlist(path)
    export_marian(path, tmp_path / "again")
    assert read_yaml(tmp_path / "again" / "decoder.yml")["shortlist"] == ["lex.s2t.bin", "0"]
    found = import_model(str(tmp_path / "again"), tmp_path / "back").shortlist
    assert found.first == shortlist.first
    for token in range(load_model_directory(path).tokenizer.source.vocab_size):
        assert found.candidates([token]) == shortlist.candidates([token])


HOSTILE = [
    lambda data, rng: data[: rng.integers(len(data))],
    lambda data, rng: data + rng.bytes(40),
    lambda data, rng: rng.bytes(len(data)),
    lambda data, rng: b"",
]


def flip_bytes(data, rng):
    """Bytes of which some are others."""
    found = np.frombuffer(data, np.uint8).copy()
    found[rng.integers(len(found), size=8)] ^= rng.integers(1, 256, 8).astype(np.uint8)
    return found.tobytes()


NAMES = ("decoder.yml", "lex.s2t.bin", "model.npz", "tokenizer.json", "vocab.yml")


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_file_is_imported_or_refused_in_one_line(model, tmp_path, name):
    path = shutil.copytree(model, tmp_path / "ours")
    random_shortlist(path)
    export_marian(path, tmp_path / "again")
    file, rng = tmp_path / "again" / name, np.random.default_rng(7)
    assert sorted(path.name for path in file.parent.iterdir()) == sorted(NAMES)
    data, said = file.read_bytes(), []
    for change in [*HOSTILE, *[flip_bytes] * 20]:
        file.write_bytes(change(data, rng))
        try:
            foreign = import_model(str(tmp_path / "again"), None)
        except ArtifactError as error:
            said.append(str(error))
        else:
            assert all(np.isfinite(array).all() for array in foreign.weights.values())
    assert said
    assert all(message.startswith(str(tmp_path)) and "\n" not in message for message in said)


def test_models_with_sentencepiece_keep_its_files(tmp_path):
    import_model(str(write(tmp_path / "marian", weights(OPTIONS), OPTIONS)), tmp_path / "ours")
    start = {"source_embedding.weight": lambda table: table[BOS_ID].fill_(0.1)}
    change_model(tmp_path / "ours", {"norm_epsilon": 1e-5}, start)
    export_marian(tmp_path / "ours", tmp_path / "again")
    files = sorted(path.name for path in (tmp_path / "again").iterdir())
    assert files == ["decoder.yml", "model.npz", "vocab.spm"]
    import_model(str(tmp_path / "again"), tmp_path / "back")
    first, second = (load_model_directory(tmp_path / name) for name in ("ours", "back"))
    assert first.tokenizer.to_json() == second.tokenizer.to_json()
    source, target = [7, 20, 31, EOS_ID], [9, 40, 5]
    found = [logits(tmp_path / name, source, target) for name in ("ours", "back")]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"positions": "rotary"}, 'Marian has no positions = "rotary"'),
        ({"similarity": "cosine"}, 'Marian has no similarity = "cosine"'),
        ({"activation": "gelu"}, 'Marian has no activation = "gelu"'),
        ({"cross_heads": (3, 2)}, "Marian has no pruned heads"),
        ({"norm_epsilon": 1e-9}, 'Marian has no positions = "sinusoidal"'),
    ],
)
def test_what_marian_cannot_hold_of_other_models_is_refused(model, tmp_path, settings, message):
    tokenizer = load_model_directory(model).tokenizer
    own_model(tmp_path / "ours", tokenizer, {**TRANSLATION, "n_decoder_layers": 2, **settings})
    with pytest.raises(UsageError, match=message):
        export_marian(tmp_path / "ours", tmp_path / "again")
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "mine").write_text("")
    with pytest.raises(UsageError, match="already there"):
        export_marian(tmp_path / "ours", tmp_path / "again")


def test_vocabularies_of_another_model_are_refused(model, tmp_path):
    export_marian(model, tmp_path / "again")
    vocabulary = tmp_path / "again" / "vocab.yml"
    text = vocabulary.read_text()
    for change, message in (
        (text.replace("<pad>: 2", "no-such-piece: 2"), "has pieces that tokenizer.json"),
        (text.replace("</s>: 0", "no-such-piece: 0"), "lacks </s>"),
        (f"{text}another: {len(text.splitlines())}\n", r"has \d+ pieces, but the model \d+"),
    ):
        vocabulary.write_text(change)
        with pytest.raises(ArtifactError, match=message):
            import_model(str(tmp_path / "again"), None)


@pytest.mark.parametrize("kind", KNOWN)
def test_the_allow_list_has_every_setting_and_no_made_up_value(kind):
    assert set(KNOWN[kind]) == {field.name for field in fields(ModelConfig)}
    for name, value in made_up_values(ModelConfig):
        assert value not in KNOWN[kind][name]
