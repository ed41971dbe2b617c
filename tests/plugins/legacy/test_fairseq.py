"""Checkpoints of fairseq, imported: the logits of torch's own layers with the same weights."""

import argparse
from dataclasses import replace

import pytest
import torch

from tests.foreign.against_torch import logits_differ
from tests.foreign.spm import MERGES, PIECES, spm
from tests.oracles.torch_translation import TorchTranslation, halves, layer_tensors
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.plugins.legacy import fairseq

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
SOURCE = [*SPECIAL, *PIECES[3:], "madeupword0000"]
TARGET = [*SPECIAL, *PIECES[3:40]]
N_POSITIONS = 310
SMALL = {
    "embed_dim": 16,
    "ffn_embed_dim": 24,
    "attention_heads": 2,
    "normalize_before": False,
    "learned_pos": False,
}
SETTINGS = {
    "arch": "transformer_iwslt_de_en",
    "task": "translation",
    "source_lang": "de",
    "target_lang": "en",
    "encoder_layers": 2,
    "decoder_layers": 3,
    **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SMALL.items()},
    "decoder_output_dim": 16,
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": True,
    "activation_fn": "relu",
    "max_source_positions": N_POSITIONS,
    "max_target_positions": N_POSITIONS + 1,
    "lr": [0.0005],
}
MODULES = {
    "self": "self_attn",
    "cross": "encoder_attn",
    "inner": "fc1",
    "outer": "fc2",
    "self_norm": "self_attn_layer_norm",
    "cross_norm": "encoder_attn_layer_norm",
    "feed_norm": "final_layer_norm",
}
NUMBERS = {
    "encoder": {"self_attn_layer_norm": 0, "final_layer_norm": 1},
    "decoder": {"self_attn_layer_norm": 0, "encoder_attn_layer_norm": 1, "final_layer_norm": 2},
}


def both(**changed):
    return {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in changed.items()
    }


def module_name(module):
    first, _, letter = module.partition(".")
    last = {"": "", "out": ".out_proj"}.get(letter, f".{letter}_proj")
    return f"{MODULES[first]}{last}"


def tensors(model, settings, *, is_old=False):
    """The weights under fairseq's names."""
    found = {}
    for side, layer, module, part, tensor in layer_tensors(model):
        if layer is None:
            found[f"{side}.layer_norm.{part}"] = tensor
            continue
        name = module_name(module)
        if is_old and name in NUMBERS[side]:
            name = f"layer_norms.{NUMBERS[side][name]}"
        found[f"{side}.layers.{layer}.{name}.{part}"] = tensor
    if is_old:  # queries, keys and values in one matrix
        for name in [name for name in found if ".q_proj." in name]:
            thirds = [found.pop(name.replace(".q_", f".{letter}_")) for letter in "qkv"]
            found[name.replace("q_proj.", "in_proj_")] = torch.cat(thirds)
    for side, norm in (("encoder", model.source_norm), ("decoder", model.target_norm)):
        found[f"{side}.version"] = torch.tensor([3.0])
        if settings["encoder_learned_pos"]:
            rows = model.positions[side == "decoder"]
            found[f"{side}.embed_positions.weight"] = torch.cat([torch.randn(2, 16), rows])
        else:
            found[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        if norm is not None:
            for part, tensor in norm.state_dict().items():
                found[f"{side}.layernorm_embedding.{part}"] = tensor
    found["encoder.embed_tokens.weight"] = model.source.weight.detach()
    found["decoder.embed_tokens.weight"] = model.target.weight.detach()
    output = "decoder.embed_out" if is_old else "decoder.output_projection.weight"
    if not is_old or not settings["share_decoder_input_output_embed"]:
        found[output] = model.output.weight.detach()
    return found


def fairseq_model(path, settings=(), *, is_old=False, in_tables=False, half=False):
    """Writes a checkpoint with its dictionaries; returns the model and its vocabularies."""
    settings = {**SETTINGS, **dict(settings)}
    is_joint = settings["share_all_embeddings"]
    is_tied = is_joint or settings["share_decoder_input_output_embed"]
    vocabularies = (SOURCE, SOURCE if is_joint else TARGET)
    torch.manual_seed(9)
    positions = [halves(N_POSITIONS, 16, 2)] * 2
    if settings["encoder_learned_pos"]:
        positions = [torch.randn(N_POSITIONS + n, 16) for n in (0, 5)]
    model = TorchTranslation(
        *map(len, vocabularies),
        positions,
        norm_first=settings["encoder_normalize_before"],
        embedding_norm=settings.get("layernorm_embedding", False),
        activation=settings["activation_fn"],
        scale=not settings.get("no_scale_embedding", False),
        tied="all" if is_joint else "decoder" if is_tied else "none",
    )
    if half:
        model = model.half().float()
    found = tensors(model, settings, is_old=is_old)
    if half:
        found = {name: tensor.half() for name, tensor in found.items()}
    checkpoint = {
        "args": argparse.Namespace(**settings),
        "model": found,
        "extra_state": {"epoch": 3, "train_iterator": {"epoch": 3}},
        "last_optimizer_state": {"state": {0: {"exp_avg": torch.zeros(2)}}},
    }
    if in_tables:  # as of fairseq 0.10.1 on
        model_settings = {k: v for k, v in settings.items() if k not in ("task", "source_lang")}
        checkpoint |= {
            "args": None,
            "cfg": {
                "_name": None,
                "model": argparse.Namespace(_name=settings["arch"], **model_settings),
                "task": {"_name": "translation", "source_lang": "de", "target_lang": "en"},
            },
        }
    path.mkdir()
    torch.save(checkpoint, path / "checkpoint_best.pt")
    names = ("dict.de.txt", "dict.en.txt")
    for name, pieces in zip(names, vocabularies, strict=True):
        lines = [f"{piece} {n}\n" for n, piece in enumerate(pieces[4:])]
        (path / name).write_text("".join(lines), encoding="utf-8")
    return model, vocabularies


VARIANTS = {
    "post-norm": ({}, {}),
    "pre-norm, joint": (
        {**both(normalize_before=True), "share_all_embeddings": True, "arch": "transformer"},
        {},
    ),
    "gelu, three matrices": (
        {"share_decoder_input_output_embed": False, "activation_fn": "gelu"},
        {},
    ),
    "learned": (
        {**both(learned_pos=True), "layernorm_embedding": True, "no_scale_embedding": True},
        {},
    ),
    "half": ({"activation_fn": "swish"}, {"half": True}),
    "old names": ({}, {"is_old": True}),
    "old names, three matrices": ({"share_decoder_input_output_embed": False}, {"is_old": True}),
    "settings in tables": ({}, {"in_tables": True}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_torch(tmp_path, variant):
    settings, how = VARIANTS[variant]
    model, pieces = fairseq_model(tmp_path / "model", settings, **how)
    assert logits_differ(tmp_path / "model", model, pieces, 2, tmp_path / "ours") <= 2e-5


def test_what_is_wrong_on_purpose_is_noticed(tmp_path, monkeypatch):
    """Each detail, done wrong, moves the logits far more than rounding does."""
    model, pieces = fairseq_model(tmp_path / "model")

    def difference(name):
        return logits_differ(tmp_path / "model", model, pieces, 2, tmp_path / name)

    make, table = fairseq.model_config, fairseq.tensor2tensor_halves
    wrong = {
        "scale": {"scale_embeddings": False},
        "epsilon": {"norm_epsilon": 1e-2},
        "activation": {"activation": "gelu"},
    }
    for name, change in wrong.items():
        with monkeypatch.context() as patch:
            patch.setattr(fairseq, "model_config", lambda p, c=change, **v: make(p, **v | c))
            assert difference(name) > 1e-3, name
    tables = {
        "offset": lambda n, d, first: table(n, d, first - 1),
        "layout": lambda *a: table(*a).reshape(-1, 2, 8).swapaxes(1, 2).reshape(-1, 16),
    }
    for name, change in tables.items():
        with monkeypatch.context() as patch:
            patch.setattr(fairseq, "tensor2tensor_halves", change)
            assert difference(name) > 1e-3, name
    swapped = dict(fairseq.TABLE)
    swapped["self_attention.in_projection"] = swapped["self_attention.in_projection"][::-1]
    monkeypatch.setattr(fairseq, "NAMES", replace(fairseq.NAMES, layers=swapped))
    assert difference("order") > 1e-3


def test_without_a_tokenizer_texts_are_pieces(tmp_path):
    fairseq_model(tmp_path / "model")
    model = import_model(str(tmp_path / "model"), None)
    assert model.kind == "fairseq"
    assert model.languages == ("de", "en")
    assert model.tokenizer.algorithm == "pieces"
    assert [model.ids[n] for n in model.tokenizer.target.encode("▁a b zz")] == [5, 32, 3]
    assert "no SentencePiece model" in model.notes[0]
    assert [file.name for file in model.files] == [
        *("checkpoint_best.pt", "dict.de.txt", "dict.en.txt")
    ]


def test_codes_beside_it_cut_words(tmp_path):
    fairseq_model(tmp_path / "model")
    (tmp_path / "model" / "bpecodes").write_text(f"a b 7\nab c</w> 5\n{MERGES}")
    model = import_model(str(tmp_path / "model"), None)
    assert model.tokenizer.source.pieces(model.tokenizer.source.encode("x abc")) == ["x", "<unk>"]
    assert model.tokenizer.source.codes.cut("abcd") == ("ab@@", "c@@", "d")
    assert "words" in model.notes[0]


def test_a_sentencepiece_model_beside_it_cuts_text(tmp_path):
    fairseq_model(tmp_path / "model")
    (tmp_path / "model" / "sentencepiece.bpe.model").write_bytes(spm(PIECES))
    model = import_model(str(tmp_path / "model"), None)
    ids = model.tokenizer.source.encode("a b")
    assert model.tokenizer.source.pieces(ids) == ["▁a", "▁b"]
    assert model.tokenizer.target.decode(model.tokenizer.target.encode("a b")) == "a b"
    assert not model.notes


def test_each_language_may_have_its_own(tmp_path):
    fairseq_model(tmp_path / "model")
    for code in ("de", "en"):
        (tmp_path / "model" / f"spm.{code}.model").write_bytes(
            spm(PIECES if code == "de" else PIECES[:40])
        )
    model = import_model(str(tmp_path / "model"), None)
    assert model.tokenizer.source.file is not model.tokenizer.target.file
    (tmp_path / "model" / "other.model").write_bytes(spm(PIECES))
    (tmp_path / "model" / "spm.de.model").unlink()
    with pytest.raises(ArtifactError, match="it is unclear which of them"):
        import_model(str(tmp_path / "model"), None)


REFUSED = {
    "arch = ": {"arch": "transformer_lm"},
    'task = "multilingual_translation"': {"task": "multilingual_translation"},
    'multilingual model .task = "multilingual.* import it from Hugging Face': {
        "task": "multilingual_translation"
    },
    r"translation_multi_simple_epoch.*whose language tokens depend": {
        "task": "translation_multi_simple_epoch",
        "langs": "de,en",
    },
    'task = "denoising" is not supported': {"task": "denoising"},
    "activation_fn = ": {"activation_fn": "gelu_fast"},
    "encoder_layers_to_keep = ": {"encoder_layers_to_keep": "0,2"},
    "no_cross_attention = ": {"no_cross_attention": True},
    "adaptive_softmax_cutoff = ": {"adaptive_softmax_cutoff": [1, 2]},
    "scale_fc = ": {"scale_fc": True},
    "encoder_add_adapters = ": {"encoder_add_adapters": True},
    "quant_noise_scalar = ": {"quant_noise_scalar": 0.5},
    "prepend_bos = ": {"prepend_bos": True},
    "lang_pairs = ": {"lang_pairs": "de-en,en-de"},
    "decoder_output_dim = ": {"decoder_output_dim": 8},
    "differ in embed_dim": {"decoder_embed_dim": 32},
    "differ in learned_pos": {"decoder_learned_pos": True},
    "differ in normalize_before": {"decoder_normalize_before": True},
    "has no tensor encoder.layers.2.": {"encoder_layers": 3},
    r"not supported: decoder\.layers\.2\.": {"decoder_layers": 2},
    "has no tensor encoder.layer_norm": both(normalize_before=True),
    "has no tensor encoder.layernorm_embedding": {"layernorm_embedding": True},
    "is not a whole number": {"encoder_layers": "many"},
    'layernorm_embedding = "yes" is not supported': {"layernorm_embedding": "yes"},
    "would have the shape": both(ffn_embed_dim=32),
    r"dict\.fr\.txt: no such file": {"target_lang": "fr"},
}


def test_several_checkpoints_must_be_told_apart(tmp_path):
    fairseq_model(tmp_path / "model")
    folder = tmp_path / "model"
    (folder / "checkpoint7.pt").write_bytes(b"")
    assert import_model(str(folder), None).kind == "fairseq"  # the best one
    (folder / "checkpoint_best.pt").rename(folder / "checkpoint8.pt")
    with pytest.raises(ArtifactError, match="holds 2 checkpoints; name the file of one of them"):
        import_model(str(folder), None)
    assert import_model(str(folder / "checkpoint8.pt"), None).kind == "fairseq"


class Harmful:
    def __reduce__(self):
        return (exec, ("raise SystemExit(99)",))


def test_nothing_in_a_checkpoint_is_executed(tmp_path):
    fairseq_model(tmp_path / "model")
    file = tmp_path / "model" / "checkpoint_best.pt"
    checkpoint = torch.load(file, weights_only=False)
    checkpoint["extra_state"] = Harmful()
    torch.save(checkpoint, file)
    assert import_model(str(file), None).kind == "fairseq"
