"""Models of T5's family, exported again: tensors, tokens and logits are those of the imported."""

import pytest
import torch
from safetensors.torch import load_file

from tests.foreign.own import T5, own_model
from tests.foreign.t5.test_importing import (
    TEXTS,
    VARIANTS,
    random_t5,
    write,
)
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.foreign.import_model import import_model
from tformer_cli.plugins.interchange.export import export_hugging_face

transformers = pytest.importorskip("transformers")


def logits_of(model, source, target):
    with torch.inference_mode():
        return model(input_ids=source, decoder_input_ids=target).logits


@pytest.mark.parametrize("variant", VARIANTS)
def test_tensors_and_tokens_return(tmp_path, variant):
    model, raw, tensors = random_t5(**VARIANTS[variant])
    write(tmp_path / "theirs", raw, tensors)
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert export_hugging_face(tmp_path / "ours", tmp_path / "back") == (
        "T5ForConditionalGeneration"
    )
    original = load_file(tmp_path / "theirs/model.safetensors")
    written = load_file(tmp_path / "back/model.safetensors")
    assert original.keys() == written.keys()
    for name, tensor in original.items():
        assert torch.equal(tensor, written[name]), name
    back = transformers.T5ForConditionalGeneration.from_pretrained(
        tmp_path / "back", attn_implementation="eager"
    ).eval()
    source, target = torch.randint(3, 50, (2, 150)), torch.randint(3, 50, (2, 140))
    # all rows of the start are alike
    expected, found = (logits_of(network, source, target) for network in (model, back))
    assert (expected - found).abs().max() <= 1e-6
    again = import_model(str(tmp_path / "back"), tmp_path / "again")
    first, second = (load_model_directory(tmp_path / name) for name in ("ours", "again"))
    assert again.config == first.config
    for name, weight in first.model.state_dict().items():
        assert torch.equal(weight, second.model.state_dict()[name]), name
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    for text in TEXTS:
        ids = second.tokenizer.source.encode(text)
        assert ids == first.tokenizer.source.encode(text)
        assert [again.ids[n] for n in ids] == theirs(text).input_ids[:-1]


def test_bytes_return(tmp_path):
    _, raw, tensors = random_t5(**VARIANTS["1.1"], vocab_size=384)
    write(tmp_path / "theirs", {**raw, "tokenizer_class": "ByT5Tokenizer"}, tensors)
    for file in ("spiece.model", "tokenizer_config.json"):
        (tmp_path / "theirs" / file).unlink()
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    export_hugging_face(tmp_path / "ours", tmp_path / "back")
    written = load_file(tmp_path / "back/model.safetensors")
    for name, tensor in load_file(tmp_path / "theirs/model.safetensors").items():
        assert torch.equal(tensor, written[name]), name
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    assert tokenizer("a cat").input_ids == [byte + 3 for byte in b"a cat"] + [1]


@pytest.mark.parametrize(
    "settings",
    [
        {"tied_embeddings": "inputs", "gated": True, "activation": "gelu-tanh"},
        {"similarity": "dot", "activation": "swish"},
    ],
    ids=str,
)
def test_a_model_of_ones_own_computes_the_same(model, tmp_path, settings):
    tokenizer = load_model_directory(model).tokenizer
    ours = own_model(tmp_path / "ours", tokenizer, {**T5, **settings})
    export_hugging_face(tmp_path / "ours", tmp_path / "back")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "back").eval()
    cut = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    ids = [*tokenizer.encode("A dog runs in the street."), 3]
    assert cut("A dog runs in the street.").input_ids == ids
    source, target = torch.tensor([ids]), torch.tensor([[2, 7, 9, 5]])
    with torch.inference_mode():
        found = ours(source, source > 0, target)
    assert (found - logits_of(theirs, source, target)).abs().max() <= 1e-5
