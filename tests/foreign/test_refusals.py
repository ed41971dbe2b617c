"""Files that are damaged, or ask for what is not computed here, are refused by name, in one line.

A row names a family, one of its files, a change of it, and words of the message. The keys that a
table lacks are refused in `test_keys`.
"""

import pickle
import shutil
from functools import partial

import pytest
import torch

pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file
from transformers import T5Tokenizer, ViTConfig, ViTImageProcessorPil, ViTModel

from tests.foreign import encoders, test_gpt2, test_llama, test_qwen2, test_vit
from tests.foreign.hugging_face import test_importing as translators
from tests.foreign.spm import PIECES, pad_rows, spm
from tests.foreign.t5 import test_importing as test_t5
from tests.foreign.test_bert import write_pipeline
from tests.foreign.test_odd_models import edit
from tests.plugins.legacy import test_fairseq, test_mingpt, test_opennmt
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.import_model import import_model

CONFIG, WHOLE, MADE = "config.json", "tokenizer.json", "preprocessor_config.json"
GENERATION, TOKENIZER = "generation_config.json", "tokenizer_config.json"
GONE = object()


def sentences(path):
    encoders.write_directory(path, "bert", "Model")
    write_pipeline(path)


def gpt2(path, *, whole=False):
    path.mkdir()
    tokenizer = test_gpt2.write_tokenizer(path)
    test_gpt2.random_gpt2(pad_rows(tokenizer.get_vocab_size())).save_pretrained(path)
    if whole:
        (path / "vocab.json").unlink()
        tokenizer.save(str(path / WHOLE))


def llama(path):
    test_llama.random_llama(len(PIECES)).save_pretrained(path)
    (path / "tokenizer.model").write_bytes(spm(PIECES, algorithm=2))


def marian(path):
    translators.marian(path)
    (path / GENERATION).unlink()


def t5(path, *, whole=False):
    test_t5.write(path, *test_t5.random_t5()[1:])
    if whole:
        extra = test_t5.N_SENTINELS
        T5Tokenizer.from_pretrained(path, extra_ids=extra).save_pretrained(path)
        (path / "spiece.model").unlink()


def vit(path, *, prepared=True):
    processor = ViTImageProcessorPil(size={"height": 12, "width": 12}) if prepared else None
    config = ViTConfig(**test_vit.SHAPE, intermediate_size=40)
    test_vit.save_model(ViTModel, config, path, processor)


def timm(path):
    test_vit.as_timm(path, test_vit.vit_for_timm(path.with_name("vit")))


def nano(path):
    path.mkdir()
    test_gpt2.nano_gpt(path / "ckpt.pt")


def llama2(path):
    path.mkdir()
    test_llama.write_file(path / "model.bin", test_llama.random_llama(265), is_tied=False)


def encoder(kind, head, **changes):
    return partial(encoders.write_directory, kind=kind, head=head, **changes)


def tensors(**changes):
    """Changes tensors; None removes one."""

    def change(file):
        found = load_file(file) | changes
        save_file({name: tensor for name, tensor in found.items() if tensor is not None}, file)

    return change


def save_changed(part, **changes):
    """Changes a part of a checkpoint: its settings, or a dictionary."""

    def change(file):
        checkpoint = torch.load(file, weights_only=False)
        inner = checkpoint[part] if isinstance(checkpoint[part], dict) else vars(checkpoint[part])
        inner.update(changes)
        for name in [name for name, value in changes.items() if value is GONE]:
            del inner[name]
        torch.save(checkpoint, file)

    return change


def cut(start, end=b""):
    """Cuts bytes off at the end, or adds some."""
    return lambda file: file.write_bytes(file.read_bytes()[:start] + end)


KINDS = {
    "masked": encoder("bert", "ForMaskedLM"),
    "bert": encoder("bert", "Model"),
    "one label": encoder("bert", "ForSequenceClassification", num_labels=1),
    "spaced label": encoder("bert", "ForTokenClassification", id2label={0: "O", 1: "a place"}),
    "narrow electra": encoder("electra", "Model", embedding_size=8),
    "electra of texts": encoder("electra", "ForSequenceClassification"),
    "roberta of words": encoder("roberta", "ForTokenClassification"),
    "sentences": sentences,
    "gpt2": gpt2,
    "whole gpt2": partial(gpt2, whole=True),
    "llama": llama,
    "qwen2": test_qwen2.write,
    "marian": marian,
    "first mbart": translators.first_mbart,
    "mbart of 25": partial(translators.first_mbart, config=translators.CLASS_25),
    "t5": t5,
    "whole t5": partial(t5, whole=True),
    "vit": vit,
    "vit without": partial(vit, prepared=False),
    "timm": timm,
    "opennmt": test_opennmt.opennmt_model,
    "eole": test_opennmt.eole_model,
    "fairseq": test_fairseq.fairseq_model,
    "pre-norm fairseq": partial(
        test_fairseq.fairseq_model, settings=test_fairseq.both(normalize_before=True)
    ),
    "mingpt": test_mingpt.write_run,
    "nanogpt": nano,
    "llama2.c": llama2,
}
FILES = {"llama2.c": "model.bin"}
"""What is imported in place of a directory."""
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
BEFORE = "tensors that are not supported: "
ROWS = [
    ("masked", CONFIG, {"position_embedding_type": "relative_key"},
     'position_embedding_type = "relative_key"'),
    ("masked", CONFIG, {"is_decoder": True}, "is_decoder = true is not supported"),
    ("masked", CONFIG, {"add_cross_attention": True}, "add_cross_attention = true is not supp"),
    ("masked", CONFIG, {"pruned_heads": {"0": [1]}}, "pruned_heads = a dict is not supported"),
    ("masked", CONFIG, {"hidden_act": "gelu_10"}, 'hidden_act = "gelu_10" is not supported'),
    ("masked", CONFIG, {"problem_type": "multi_label_classification"}, "problem_type ="),
    ("masked", CONFIG, {"architectures": ["BertForQuestionAnswering"]},
     "BertForQuestionAnswering is not supp"),
    ("masked", CONFIG, {"architectures": ["BertForTokenClassification"]},
     "has no tensor classifier.weight"),
    ("masked", CONFIG, {"hidden_size": 24}, "would have the shape"),
    ("masked", CONFIG, {"num_hidden_layers": 1}, f"{BEFORE}bert.encoder.layer.1"),
    ("masked", CONFIG, {"model_type": "albert"}, r"is a Hugging Face model \(albert\)"),
    ("narrow electra", CONFIG, {}, "embedding_size = 8, but hidden_size = 16: a projection"),
    ("electra of texts", CONFIG, {}, "ElectraForSequenceClassification is not supported"),
    ("roberta of words", CONFIG, {}, "RobertaForTokenClassification is not supported"),
    ("spaced label", CONFIG, {}, 'the label "a place" has a space.*; rename it in id2label'),
    ("one label", CONFIG, {}, "has one output, a number and no label"),
    ("bert", WHOLE, {"normalizer": {"type": "Lowercase"}},
     "has no normalizer"),
    ("bert", WHOLE, {"pre_tokenizer": {"type": "Whitespace"}},
     'pre_tokenizer.type = "Whitespace" is not'),
    ("bert", WHOLE, {"normalizer": None}, "normalizer.type = null is not supported"),
    ("sentences", "1_Pooling/config.json",
     {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True},
     "pooling .pooling_mode_max_tokens. is not supported"),
    ("sentences", "modules.json",
     lambda file: file.write_text(file.read_text().replace("Normalize", "Dense")),
     "modules Transformer, Pooling, Dense are supported only"),
    ("whole gpt2", WHOLE, {"normalizer": {"type": "Lowercase"}}, 'normalizer.type = "Lowercase"'),
    ("whole gpt2", WHOLE, {"pre_tokenizer__add_prefix_space": True}, "add_prefix_space = true"),
    ("whole gpt2", WHOLE, {"pre_tokenizer__use_regex": False}, "use_regex = false"),
    ("whole gpt2", WHOLE, {"pre_tokenizer__type": "Sequence"}, 'pre_tokenizer.type = "Sequence"'),
    ("whole gpt2", WHOLE, {"pre_tokenizer": None}, "has no pre_tokenizer"),
    ("whole gpt2", WHOLE, {"model__type": "Unigram"}, 'model.type = "Unigram"'),
    ("whole gpt2", WHOLE, {"model__ignore_merges": True}, "ignore_merges = true"),
    ("gpt2", CONFIG, {"scale_attn_by_inverse_layer_idx": True},
     "scale_attn_by_inverse_layer_idx = true"),
    ("gpt2", CONFIG, {"n_embd": "x"}, r'n_embd is not a whole number \(found "x"\)'),
    ("gpt2", CONFIG, {"activation_function": "mish"}, 'activation_function = "mish" is not supp'),
    *(("gpt2", "vocab.json", content, r"own files|download it again")
      for content in (b"[]", b'{"a": -1}', b'{"a": 1}')),
    *(("gpt2", "merges.txt", content, r"own files|download it again")
      for content in (b"a b c\n", b"never there\n")),
    *(("nanogpt", "meta.pkl", content, "prepare the data again")
      for content in (b"", b"garbage", pickle.dumps([1]), pickle.dumps({"stoi": 3}))),
    ("llama", CONFIG, {"rope_scaling": {"type": "linear"}},
     "rope_scaling = a dict is not supported"),
    ("llama", CONFIG, {"attention_bias": True}, "attention_bias = true is not supported"),
    ("llama", CONFIG, {"head_dim": 8}, "head_dim is not hidden_size / heads"),
    ("llama", CONFIG, {"vocab_size": 3, "bos_token_id": 900}, "use this model's own files"),
    ("llama2.c", "model.bin", cut(-4), r"model\.bin: "),
    ("llama2.c", "tok265.bin", cut(-3), "is not a tokenizer of 265 pieces"),
    ("llama2.c", "tok265.bin", cut(None, b"abc"), "has more than 265 pieces"),
    ("llama2.c", "tok265.bin", None, "its tokenizer is missing; put tok265.bin or tokenizer.bin"),
    ("qwen2", CONFIG, {"use_sliding_window": True}, "use_sliding_window = true is not supported"),
    ("qwen2", CONFIG, {"layer_types": ["sliding_attention"]}, r"layer_types = \[\"sliding_att"),
    ("qwen2", CONFIG, {"hidden_act": "gelu"}, 'hidden_act = "gelu" is not supported'),
    ("qwen2", WHOLE, {"normalizer": None}, "normalizer.type = null is not supported"),
    ("qwen2", WHOLE, {"pre_tokenizer": BYTES}, "pre_tokenizer does not cut text as Qwen2 does"),
    ("marian", CONFIG, {"d_model": 1 << 31}, "d_model"),
    ("marian", CONFIG, {"d_model": 32}, "would have the shape"),
    ("marian", CONFIG, {"encoder_layers": 3}, "has no tensor"),
    ("marian", CONFIG, {"decoder_layers": 2}, f"{BEFORE}model.decoder.layers.2"),
    ("marian", CONFIG, {"activation_function": "gelu_new"}, "activation_function = "),
    ("marian", CONFIG, {"encoder_attention_heads": "many"}, "is not a whole number"),
    ("marian", CONFIG, {"decoder_ffn_dim": 48}, "differ in ffn_dim"),
    ("marian", CONFIG, {"eos_token_id": 4000}, "special tokens have the ids"),
    ("marian", CONFIG, {"vocab_size": 5}, "does not fit"),
    ("marian", CONFIG, {"add_bias_logits": True}, "add_bias_logits"),
    *(("marian", name, None, name.replace(".", r"\."))
      for name in ("source.spm", "vocab.json", "model.safetensors")),
    ("first mbart", TOKENIZER, {"tokenizer_class": "MBart50Tokenizer"},
     "tokenizer of mBART-50, but begins .* with ro_RO"),
    ("first mbart", GENERATION, {"decoder_start_token_id": 2}, "names no language tokens"),
    ("first mbart", GENERATION, {"decoder_start_token_id": 7}, "decoder_start_token_id is not one"),
    ("mbart of 25", GENERATION, {"decoder_start_token_id": 2},
     r"mBART of 25 languages.*set it in config\.json .* such as \d+ for ar_AR"),
    ("t5", CONFIG, {"architectures": ["T5EncoderModel"]},
     r'architectures = \["T5EncoderModel"\] is not supported'),
    ("t5", CONFIG, {"feed_forward_proj": "gated-tanh"},
     'feed_forward_proj = "gated-tanh" is not supported'),
    ("t5", CONFIG, {"is_encoder_decoder": False}, "is_encoder_decoder = false is not supported"),
    ("t5", CONFIG, {"num_heads": 0}, "n_heads: must be 1 to 1024"),
    ("t5", CONFIG, {"d_kv": "x"}, "d_kv is not a whole number"),
    ("t5", CONFIG, {"relative_attention_num_buckets": 10**9}, "relative_buckets: must be 4 to"),
    ("t5", CONFIG, {"relative_attention_max_distance": "far"}, "use this model's own settings"),
    ("t5", CONFIG, {"num_layers": 3},
     r"has no tensor encoder\.block\.2\.layer\.0\.SelfAttention\.q\.weight"),
    ("t5", CONFIG, {"num_decoder_layers": 2}, f"{BEFORE}decoder.block.2."),
    ("t5", CONFIG, {"d_ff": 25}, "feed_forward.inner.weight would have the shape"),
    ("t5", CONFIG, {"vocab_size": 20}, "the vocabulary has .* entries, but the model 20 rows"),
    ("t5", CONFIG, {"vocab_size": 200_000_000},
     "does not fit into the 200,000,000 rows of the model"),
    ("t5", CONFIG, {"tie_word_embeddings": False}, "the weights have no lm_head.weight"),
    ("t5", CONFIG, {"pad_token_id": 900}, "use this model's own files"),
    ("t5", "spiece.model", None, r"has neither spiece\.model nor tokenizer\.json"),
    *(("t5", CONFIG, {"model_type": kind}, rf"is a Hugging Face model \({kind}\)")
      for kind in ("umt5", "longt5", "switch_transformers")),
    ("whole t5", WHOLE, {"model": {"type": "BPE", "vocab": {}, "merges": []}},
     'model.type = "BPE" is not'),
    ("whole t5", WHOLE, {"normalizer": {"type": "Lowercase"}},
     'normalizer.type = "Lowercase" is not supported'),
    ("whole t5", WHOLE, {"pre_tokenizer": {"type": "ByteLevel"}},
     'pre_tokenizer.type = "ByteLevel" is not'),
    *(("whole t5", WHOLE, {"added_tokens": [{"id": n, "content": "x"}]},
       "added tokens have other ids than its") for n in (3, -1)),
    ("vit", CONFIG, {"model_type": "deit"}, 'model_type = "deit" has a distillation token'),
    ("vit", CONFIG, {"model_type": "dinov2_with_registers"},
     "has register tokens; import a DINOv2 without"),
    ("vit", CONFIG, {"qkv_bias": False}, "qkv_bias = false is not supported"),
    ("vit", CONFIG, {"hidden_act": "quick_gelu"}, 'hidden_act = "quick_gelu" is not supported'),
    ("vit", CONFIG, {"use_swiglu_ffn": True}, "use_swiglu_ffn = true is not supported"),
    ("vit", CONFIG, {"num_attention_heads": 5}, "n_heads: 5 does not divide d_model = 24"),
    ("vit", CONFIG, {"architectures": ["ViTForMaskedImageModeling"]},
     "ViTForMaskedImageModeling is not"),
    ("vit", CONFIG, {"image_size": "big"}, 'image_size = "big" is not supported'),
    ("vit without", CONFIG, {"image_size": 16}, "has 10 positions, but images of 4×4 patches"),
    ("vit", CONFIG, {"num_hidden_layers": 1}, "num_hidden_layers = 1, but its tensors say 2"),
    ("vit", CONFIG, {"made_up": "x"}, 'config.json: made_up = "x" is unknown'),
    ("vit", MADE, {"resample": 1}, "resample = 1 is not supported"),
    ("vit", MADE, {"do_rescale": False}, "do_rescale = false is not supported"),
    ("vit", MADE, {"do_resize": "no"}, 'do_resize = "no" is not supported'),
    ("vit", MADE, {"size": {"height": 9, "width": 9}},
     "images have 9×9 pixels, but config.json says 12×12"),
    ("vit", MADE, {"image_mean": 0.5}, "image_mean is not a list of numbers"),
    ("vit", MADE, {"image_mean": [0.5]}, "image_mean: must be one number for each of 3 channels"),
    ("vit", MADE, {"size": {"longest_edge": 12}}, "size = .* is not supported"),
    ("vit", MADE, {"do_center_crop": True, "crop_size": 30},
     "crops .30, 30. out of images of .12, 12."),
    ("vit", MADE, {"size": {"shortest_edge": 12}},
     "images have different sizes without do_center_crop"),
    ("vit", MADE, {"image_processor_type": "ConvNextImageProcessor"},
     'type = "ConvNextImageProcessor" is'),
    ("vit", MADE, {"made_up": "x"}, 'preprocessor_config.json: made_up = "x" is unknown'),
    ("timm", "model.safetensors", tensors(reg_token=torch.zeros(1, 4, 24)),
     "has register tokens; import one without"),
    ("timm", "model.safetensors", tensors(dist_token=torch.zeros(1, 1, 24)),
     "has a distillation token"),
    ("timm", "model.safetensors", tensors(**{"fc_norm.weight": torch.zeros(24)}),
     r"normalizes its pooled states \(fc_norm\)"),
    ("timm", "model.safetensors", tensors(**{"norm_pre.weight": torch.zeros(24)}),
     f"{BEFORE}norm_pre.weight"),
    ("timm", CONFIG, {"architecture": "vit_so400m_patch14_siglip_gap_224", "model_args": {}},
     "give its number of heads"),
    ("timm", CONFIG, {"architecture": "vit_base_patch16_clip_quickgelu_224", "model_args": {}},
     "architecture = .* not"),
    ("timm", CONFIG, {"global_pool": "map"}, 'global_pool = "map" is not supported'),
    ("timm", CONFIG, {"global_pool": "avg"}, 'global_pool = "avg", but .* is built with "token"'),
    ("timm", CONFIG, {"model_args__act_layer": "quick_gelu"}, 'act_layer = "quick_gelu" is not'),
    ("timm", CONFIG, {"model_args__qk_norm": True}, "model_args.qk_norm = true is not supported"),
    ("timm", CONFIG, {"model_args__img_size": 16}, "model_args.img_size = 16, which is not"),
    ("timm", CONFIG, {"model_args__depth": 3}, "depth = 3, but its tensors say 2"),
    ("timm", CONFIG, {"model_args__made_up": 1}, "model_args.made_up = 1 is unknown"),
    ("timm", CONFIG, {"pretrained_cfg": {"made_up": 1}}, "pretrained_cfg.made_up = 1 is unknown"),
    ("timm", CONFIG, {"pretrained_cfg": {"crop_mode": "border"}}, 'crop_mode = "border" is not'),
    ("timm", CONFIG, {"made_up": [1]}, r"config.json: made_up = \[1\] is unknown"),
    *(("opennmt", "model_step_5.pt", save_changed("opt", **change), said)
      for said, change in test_opennmt.REFUSED.items()),
    *(("opennmt", "model_step_5.pt", save_changed("vocab", **change), said)
      for said, change in test_opennmt.REFUSED_VOCABULARIES.items()),
    *(("eole", CONFIG, {f"model__{name}": value for name, value in change.items()}, said)
      for said, change in test_opennmt.EOLE_REFUSED.items()),
    *(("eole", "model.00.safetensors", tensors(**{name: tensor}), said) for name, tensor, said in (
        ("decoder.transformer_layers.0.layer_scalar", 2 * torch.ones(1), "layer_scalar is not 1"),
        ("encoder.extra", torch.ones(1), r"not supported: encoder\.extra"),
        ("encoder.transformer_layers.1.mlp.down_proj.bias", None, "has no tensor"),
        ("src_emb.pe.pe", None, r"has no tensor src_emb\.pe\.pe"))),
    *(("fairseq", "checkpoint_best.pt", save_changed("args", **change), said)
      for said, change in test_fairseq.REFUSED.items()),
    ("pre-norm fairseq", "checkpoint_best.pt",
     save_changed("model", **{"decoder.layers.0.w_resid": torch.ones(16)}),
     r"not supported: decoder\.layers\.0\.w_resid"),
    ("pre-norm fairseq", "checkpoint_best.pt",
     save_changed("model", **{"decoder.version": GONE}), r"decoder\.version is not 3"),
    ("fairseq", "dict.de.txt", b"a 1\nb\n", "line 2 is not an entry and its count"),
    ("fairseq", "dict.de.txt", b"a 1\na 2\n", "has an entry twice"),
    ("fairseq", "dict.de.txt", b"a 1\n", "its vocabulary has 5 entries"),
    ("fairseq", "dict.de.txt", b"\xff 1\n", "is not UTF-8 text"),
    ("mingpt", CONFIG, None, "config.json: "),
    ("mingpt", CONFIG, b"{}", "has no settings of a model"),
    ("mingpt", CONFIG, b'{"model": {"model_type": "gpt-huge"}}', "n_head is not a whole number"),
    ("mingpt", CONFIG, b'{"model": {"n_head": 4, "n_embd": 32}}', "weights are 16 wide"),
    ("mingpt", CONFIG, b'{"model": {"n_head": 3}}', "does not divide"),
    ("mingpt", "input.txt", b"abc", "3 different characters, but the model 12"),
]  # fmt: skip


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """Directories of all kinds, each made once."""
    made = {}

    def directory(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("kinds") / "theirs"
            KINDS[kind](made[kind])
        return made[kind]

    return directory


@pytest.mark.parametrize(("kind", "name", "change", "message"), ROWS)
def test_what_cannot_be_computed_is_refused_by_name(
    directories, tmp_path, kind, name, change, message
):
    path = shutil.copytree(directories(kind), tmp_path / "theirs")
    if change is None:
        (path / name).unlink()
    elif isinstance(change, dict):
        edit(path, name, **change)
    elif isinstance(change, bytes):
        (path / name).write_bytes(change)
    else:
        change(path / name)
    with pytest.raises(ArtifactError, match=message) as error:
        import_model(str(path / FILES.get(kind, "")), tmp_path / "ours")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ours").exists()
