"""Models of OpenNMT-py and Eole, imported: the logits of torch's own layers with the same weights.

The names and settings are those that the tools themselves save.
"""

import argparse
import json
import types
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from tests.foreign.against_torch import logits_differ
from tests.foreign.spm import MERGES, PIECES, spm
from tests.oracles.torch_translation import (
    TorchTranslation,
    halves,
    interleave_sines,
    layer_tensors,
)
from tformer_cli.foreign.import_model import import_model
from tformer_cli.plugins.legacy import opennmt, torch_family

SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
SOURCE = [*SPECIAL, *PIECES[3:]]
TARGET = [*SPECIAL, *PIECES[3:40]]
N_POSITIONS = 1030
START = 2
OPENNMT = {
    "model_type": "text",
    "model_task": "seq2seq",
    "encoder_type": "transformer",
    "decoder_type": "transformer",
    "enc_layers": 2,
    "dec_layers": 3,
    "enc_hid_size": 16,
    "dec_hid_size": 16,
    "src_word_vec_size": 16,
    "tgt_word_vec_size": 16,
    "heads": 2,
    "transformer_ff": 24,
    "position_encoding": True,
    "max_relative_positions": 0,
    "self_attn_type": "scaled-dot-flash",
    "pos_ffn_activation_fn": "relu",
    "share_embeddings": False,
    "share_decoder_embeddings": True,
    "copy_attn": False,
    "generator_function": "softmax",
}
EOLE = {
    "architecture": "transformer",
    "layers": 3,
    "hidden_size": 16,
    "heads": 2,
    "transformer_ff": 24,
    "share_decoder_embeddings": True,
    "encoder": {"encoder_type": "transformer", "layers": 2, "n_positions": None},
    "decoder": {"decoder_type": "transformer", "with_cross_attn": True},
    "embeddings": {"position_encoding_type": "SinusoidalInterleaved", "word_vec_size": 16},
}
MODULES = {
    "opennmt": {
        "inner": "feed_forward.w_1",
        "outer": "feed_forward.w_2",
        "self_norm": "layer_norm_1",
        "cross_norm": "layer_norm_2",
        "feed_norm": "feed_forward.layer_norm",
    },
    "eole": {
        "inner": "mlp.gate_up_proj",
        "outer": "mlp.down_proj",
        "self_norm": "input_layernorm",
        "cross_norm": "precontext_layernorm",
        "feed_norm": "post_attention_layernorm",
    },
}
ATTENTION = {"q": "linear_query", "k": "linear_keys", "v": "linear_values", "out": "final_linear"}
WITHOUT_BIASES = {"attention": ("in_proj", "out_proj"), "feed-forward": ("linear1", "linear2")}
PROJECTIONS = {"attention": ("linear_", "final_linear"), "feed-forward": (".w_", "mlp.")}


def oracle(settings, vocabularies, without=(), **changed):
    """The same model in torch."""
    is_joint, is_tied = (settings.get(f"share_{n}embeddings", False) for n in ("", "decoder_"))
    if is_joint and not is_tied:
        raise NotImplementedError
    options = {
        "norm_first": True,
        "epsilon": 1e-6,
        "output_bias": True,
        "tied": "all" if is_joint else "decoder" if is_tied else "none",
        "without_biases": [part for kind in without for part in WITHOUT_BIASES[kind]],
        **changed,
    }
    positions = [options.pop("positions", interleave_sines(N_POSITIONS, 16))] * 2
    return TorchTranslation(*map(len, vocabularies), positions, **options)


def layer_names(model, tool, without=()):
    """The weights of layers under a tool's names, biases that there are none of left out."""
    found = {}
    for side, layer, module, part, tensor in layer_tensors(model):
        first, _, letter = module.partition(".")
        if layer is None:
            name = f"{side}.layer_norm"
        else:
            stack = (
                "transformer" if (tool, side) == ("opennmt", "encoder") else "transformer_layers"
            )
            inner = MODULES[tool].get(module) or f"{first}_attn.{ATTENTION[letter]}"
            inner = inner.replace("cross_attn", "context_attn")
            if stack == "transformer":
                inner = inner.replace("layer_norm_1", "layer_norm")
            name = f"{side}.{stack}.{layer}.{inner}"
        skipped = [word for kind in without for word in PROJECTIONS[kind]]
        if part == "bias" and any(word in name for word in skipped):
            assert not tensor.any()
            continue
        found[f"{name}.{part}"] = tensor
    return found


def torchtext(entries):
    """A vocabulary as torchtext's fields have it."""
    vocabulary, field, whole = (types.SimpleNamespace() for _ in range(3))
    vocabulary.itos, vocabulary.stoi = list(entries), {entry: n for n, entry in enumerate(entries)}
    field.vocab, field.sequential = vocabulary, True
    whole.fields = [("src", field)]
    return whole


def opennmt_model(path, settings=(), *, version=3, beside=False, without=(), **changed):
    """Writes a checkpoint; returns the model and its vocabularies."""
    settings = {**OPENNMT, **dict(settings)}
    source = SOURCE if version == 3 else [e for e in SOURCE if e not in ("<s>", "</s>")]
    vocabularies = (SOURCE, SOURCE) if settings["share_embeddings"] else (source, TARGET)
    model = oracle(settings, vocabularies, without, **changed)
    found = layer_names(model, "opennmt", without)
    for side, table in (("encoder", model.source), ("decoder", model.target)):
        around = f"{side}.embeddings.make_embedding"
        found[f"{around}.emb_luts.0.weight"] = table.weight.detach()
        found[f"{around}.pe.pe"] = model.positions[0][:, None]
    generator = {name: tensor.detach() for name, tensor in model.output.state_dict().items()}
    names = dict(zip(("src", "tgt"), vocabularies, strict=True))
    saved = {**names, "data_task": "seq2seq", "decoder_start_token": "<s>"}
    if version == 1:
        old = {".weight": ".a_2", ".bias": ".b_2"}
        for name in [name for name in found if "layer_norm" in name]:
            stem, _, part = name.rpartition(".")
            found[f"{stem}{old[f'.{part}']}"] = found.pop(name)
        settings["enc_rnn_size"] = settings["dec_rnn_size"] = settings.pop("enc_hid_size")
        del settings["dec_hid_size"]
    if version < 3:
        generator = {f"0.{name}": tensor for name, tensor in generator.items()}
        saved = {side: torchtext(entries) for side, entries in names.items()}
    checkpoint = {"vocab": saved, "opt": argparse.Namespace(**settings), "optim": {}}
    path.mkdir()
    if beside:
        whole = found | {f"generator.{name}": tensor for name, tensor in generator.items()}
        save_file({n: t.clone() for n, t in whole.items()}, path / "model_step_5.safetensors")
    else:
        checkpoint |= {"model": found, "generator": generator}
    torch.save(checkpoint, path / "model_step_5.pt")
    return model, vocabularies


def eole_model(path, settings=(), *, without=(), has_bias=True, **changed):
    """Writes a directory; returns the model and its vocabularies."""
    settings = {**EOLE, **dict(settings)}
    vocabularies = (SOURCE, SOURCE if settings.get("share_embeddings") else TARGET)
    model = oracle(settings, vocabularies, without, **{"epsilon": 1e-5, **changed})
    found = layer_names(model, "eole", without)
    for side, table in (("src", model.source), ("tgt", model.target)):
        found[f"{side}_emb.embeddings.weight"] = table.weight.detach()
        found[f"{side}_emb.pe.pe"] = model.positions[0][:, None]
    for layer in range(3):
        found[f"decoder.transformer_layers.{layer}.layer_scalar"] = torch.ones(1)
    if has_bias:
        found["generator.bias"] = model.output.bias.detach()
    else:
        model.output.bias.data.zero_()
    if not settings["share_decoder_embeddings"]:
        found["generator.weight"] = model.output.weight.detach()
    elif settings.get("share_embeddings"):
        del found["tgt_emb.embeddings.weight"]
    path.mkdir()
    save_file(
        {name: tensor.clone() for name, tensor in found.items()}, path / "model.00.safetensors"
    )
    names = dict(zip(("src", "tgt"), vocabularies, strict=True))
    (path / "vocab.json").write_text(json.dumps({**names, "decoder_start_token": "<s>"}))
    (path / "config.json").write_text(json.dumps({"seed": 1, "model": settings, "training": {}}))
    return model, vocabularies


VARIANTS = {
    "version 3": {},
    "version 3, no biases": {"without": ("attention", "feed-forward")},
    "version 3, joint": {"settings": {"share_embeddings": True}},
    "version 2, separate": {"settings": {"share_decoder_embeddings": False}, "version": 2},
    "version 1": {"version": 1},
    "safetensors, gelu": {
        "settings": {"pos_ffn_activation_fn": "gelu", "norm_eps": 1e-3},
        "beside": True,
        "activation": "gelu",
        "epsilon": 1e-3,
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_of_opennmt_are_those_of_torch(tmp_path, variant):
    model, pieces = opennmt_model(tmp_path / "model", **VARIANTS[variant])
    assert logits_differ(tmp_path / "model", model, pieces, START, tmp_path / "ours") <= 2e-5


EOLE_VARIANTS = {
    "plain": {"without": ("attention", "feed-forward")},
    "joint, silu": {
        "settings": {"share_embeddings": True, "mlp_activation_fn": "silu", "add_ffnbias": True},
        "activation": "swish",
    },
    "separate, concatenated": {
        "settings": {
            "share_decoder_embeddings": False,
            "norm_eps": 1e-6,
            "embeddings": {"position_encoding_type": "SinusoidalConcat"},
        },
        "epsilon": 1e-6,
        "positions": halves(N_POSITIONS, 16, 0),
    },
    "no bias of the output": {"has_bias": False, "without": ("feed-forward",)},
}


@pytest.mark.parametrize("variant", EOLE_VARIANTS)
def test_logits_of_eole_are_those_of_torch(tmp_path, variant):
    model, pieces = eole_model(tmp_path / "model", **EOLE_VARIANTS[variant])
    assert logits_differ(tmp_path / "model", model, pieces, START, tmp_path / "ours") <= 2e-5


def test_one_matrix_may_embed_both_sides_alone(tmp_path):
    eole_model(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    config["model"] |= {"share_embeddings": True, "share_decoder_embeddings": False}
    file.write_text(json.dumps(config))
    names = {"src": SOURCE, "tgt": SOURCE, "decoder_start_token": "<s>"}
    (tmp_path / "model" / "vocab.json").write_text(json.dumps(names))
    weights = tmp_path / "model" / "model.00.safetensors"
    from safetensors.torch import load_file

    tensors = load_file(weights)
    del tensors["tgt_emb.embeddings.weight"]
    tensors |= {
        "generator.weight": torch.randn(len(SOURCE), 16),
        "generator.bias": torch.randn(58 - 1),
    }
    save_file(tensors, weights)
    model = import_model(str(tmp_path / "model"), None)
    assert (model.config.tied_embeddings, model.config.source_vocab_size) == ("none", 0)
    same = model.weights["source_embedding.weight"] == model.weights["target_embedding.weight"]
    assert same.all()


def test_what_is_wrong_on_purpose_is_noticed(tmp_path, monkeypatch):
    """Each detail, done wrong, moves the logits far more than rounding does."""
    model, pieces = opennmt_model(tmp_path / "model")

    def difference(name):
        return logits_differ(tmp_path / "model", model, pieces, START, tmp_path / name)

    make = opennmt.model_config
    wrong = {
        "scale": {"scale_embeddings": False},
        "epsilon": {"norm_epsilon": 1e-2},
        "activation": {"activation": "gelu"},
    }
    for name, change in wrong.items():
        with monkeypatch.context() as patch:
            patch.setattr(opennmt, "model_config", lambda p, c=change, **v: make(p, **v | c))
            assert difference(name) > 1e-3, name
    with monkeypatch.context() as patch:
        bias = torch_family.output_bias
        patch.setattr(torch_family, "output_bias", lambda rows, _: bias(rows, None))
        assert difference("bias") > 1e-3
    with monkeypatch.context() as patch:
        take = opennmt.Reader.take
        patch.setattr(
            opennmt.Reader,
            "take",
            lambda self, name: take(self, name)[1 if name.endswith("pe.pe") else 0 :],
        )
        assert difference("offset") > 1e-3
    for module in ("self_attention.in_projection", "cross_attention.in_projection"):
        swapped = {**opennmt.TABLE, module: opennmt.TABLE[module][::-1]}
        with monkeypatch.context() as patch:
            patch.setattr(opennmt, "NAMES", replace(opennmt.NAMES, layers=swapped))
            assert difference(module) > 1e-3


def test_sources_have_no_end_of_sentence(tmp_path):
    opennmt_model(tmp_path / "model")
    eole_model(tmp_path / "eole")
    for name, kind in (("model", "OpenNMT-py"), ("eole", "Eole")):
        model = import_model(str(tmp_path / name), None)
        assert model.kind == kind
        assert not model.config.source_eos
        assert [model.ids[n] for n in model.tokenizer.target.encode("▁a b zz")] == [5, 32, 0]
        assert "no SentencePiece model" in model.notes[0]


def test_a_sentencepiece_model_beside_it_cuts_text(tmp_path):
    eole_model(tmp_path / "model")
    (tmp_path / "model" / "en.spm.model").write_bytes(spm(PIECES))
    model = import_model(str(tmp_path / "model"), None)
    ids = model.tokenizer.source.encode("a b")
    assert model.tokenizer.source.pieces(ids) == ["▁a", "▁b"]
    assert "en.spm.model" in [file.name for file in model.files]


def test_merges_may_be_called_a_model(tmp_path):
    eole_model(tmp_path / "model")
    (tmp_path / "model" / "bpe.model").write_text(f"#version: 0.2\n{MERGES}a b\n")
    model = import_model(str(tmp_path / "model"), None)
    assert model.tokenizer.source.codes.cut("abb") == ("ab@@", "b")


REFUSED = {
    "decoder_type = ": {"decoder_type": "rnn"},
    'model_task = "lm"': {"model_task": "lm"},
    "self_attn_type = ": {"self_attn_type": "average"},
    "pos_ffn_activation_fn = ": {"pos_ffn_activation_fn": "gated-gelu"},
    "max_relative_positions = -1": {"max_relative_positions": -1},
    "layer_norm = ": {"layer_norm": "rms"},
    "copy_attn = true": {"copy_attn": True},
    "position_encoding = false": {"position_encoding": False},
    "lora_layers = ": {"lora_layers": ["linear_query"]},
    "num_experts = 2": {"num_experts": 2},
    "generator_function = ": {"generator_function": "sparsemax"},
    "must have one width": {"src_word_vec_size": 32},
    "norm_eps = a dict is not a number": {"norm_eps": {}},
    "heads is not a whole number": {"heads": None},
    r"has no tensor encoder\.transformer_layers\.2": {"enc_layers": 3},
    r"not supported: decoder\.transformer_layers\.2": {"dec_layers": 2},
    "would have the shape": {"transformer_ff": 32},
    "differs from encoder": {"share_embeddings": True},
}


REFUSED_VOCABULARIES = {
    "has an unknown format": {"src": 3},
    "57 rows, but its vocabulary has 56 entries": {"src": SOURCE[:-1]},
    "lacks </s>": {"tgt": TARGET[:3] + TARGET[4:]},
    "has an entry twice": {"src": [*SOURCE, SOURCE[-1]]},
    "lacks <x>": {"decoder_start_token": "<x>"},
    'data_task = "lm"': {"data_task": "lm"},
    "src_feats = ": {"src_feats": [["a"]]},
}


EOLE_REFUSED = {
    "new_feature = false is unknown": {"new_feature": False},
    "layer_norm = ": {"layer_norm": "rms"},
    "heads_kv = 1": {"heads_kv": 1},
    "position_encoding_type = ": {"embeddings": {"position_encoding_type": "Rotary"}},
    "mlp_activation_fn = ": {"mlp_activation_fn": "gated-silu"},
    "with_cross_attn = false": {"decoder": {"with_cross_attn": False}},
    "encoder_layer_style = ": {"encoder": {"layers": 2, "encoder_layer_style": "postnorm"}},
    "differ in heads": {"decoder": {"heads": 4}},
    "num_experts = 4": {"num_experts": 4},
    "encoder = ": {"encoder": "None"},
    "norm_eps = ": {"norm_eps": "small"},
    "layers is not a whole number": {"decoder": {"layers": "many"}},
}
