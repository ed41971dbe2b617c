"""Qwen2 models imported and exported: the same tokens, logits and weights as in transformers."""

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from tests.foreign.hugging_face.test_decoders import check_import, check_weights, load
from tests.foreign.spm import pad_rows
from tests.foreign.test_gpt2 import SAMPLES, TEXT, check_logits, import_both
from tformer_cli.artifacts.model_directory import load_model_directory, save_model_directory
from tformer_cli.errors import UsageError
from tformer_cli.foreign.hugging_face.byte_pieces import END
from tformer_cli.foreign.import_model import import_model
from tformer_cli.plugins.interchange.export import export_hugging_face
from tformer_cli.text.foreign_pieces import QWEN2_WORDS

transformers = pytest.importorskip("transformers")

TEXTS = [*SAMPLES, "It'S 1234 cafe\u0301\n\n  x!?\r\n"]
SHAPE = {
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 48,
    "rms_norm_eps": 1e-3,
}


def write_tokenizer(path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN2_WORDS), "isolated")
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, in_bytes])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_special_tokens([END, "<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(path / "tokenizer.json"))
    return tokenizer


def write(path, **changes):
    """Writes a directory with settings changed; returns the model and its tokenizer."""
    path.mkdir()
    tokenizer = write_tokenizer(path)
    end = tokenizer.token_to_id(END)
    options = {**SHAPE, "eos_token_id": end, "tie_word_embeddings": False, **changes}
    config = transformers.Qwen2Config(
        vocab_size=pad_rows(tokenizer.get_vocab_size()), attn_implementation="eager", **options
    )
    torch.manual_seed(3)
    model = transformers.Qwen2ForCausalLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.tie_weights()
    model.save_pretrained(path)
    return model, tokenizer


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True, "num_key_value_heads": 4},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ],
    ids=str,
)
def test_tokens_logits_and_weights_are_theirs_both_ways(tmp_path, changes):
    theirs, tokenizer = write(tmp_path / "theirs", **changes)
    found, ours = import_both(tmp_path / "theirs", tmp_path)
    assert found.kind == "Hugging Face Qwen2"
    for text in TEXTS:
        ids = ours.tokenizer.target.encode(text)
        foreign = [found.ids[n] for n in ids]
        assert foreign == tokenizer.encode(text).ids
        with torch.no_grad():
            expected = theirs(torch.tensor([foreign])).logits[0]
        check_logits(found, ours, expected, ids, tokenizer.get_vocab_size())
    assert export_hugging_face(tmp_path / "ours", tmp_path / "hf") == "Qwen2ForCausalLM"
    again, read = load(tmp_path / "hf")
    check_weights(again, theirs)
    for text in TEXTS:
        assert read(text).input_ids == tokenizer.encode(text).ids
    check_import(tmp_path)


def test_a_bias_that_the_class_lacks_is_named(tmp_path):
    write(tmp_path / "theirs")
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    ours = load_model_directory(tmp_path / "ours", tasks=("language-model",))
    weights = ours.model.state_dict()
    weights["decoder.layers.1.feed_forward.outer.bias"][3] = 0.5
    save_model_directory(
        tmp_path / "trained",
        weights,
        config=ours.config,
        tokenizer=ours.tokenizer,
        decoding=ours.decoding,
        info=ours.info,
    )
    with pytest.raises(UsageError, match=r"layers\.1\.feed_forward\.outer\.bias is not zero"):
        export_hugging_face(tmp_path / "trained", tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
