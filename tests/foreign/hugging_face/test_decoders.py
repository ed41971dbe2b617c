"""Language models exported for Hugging Face's library: its logits, tokens and weights are ours."""

import json

import pytest
import torch

from tests.foreign.own import LANGUAGE_MODEL, own_model
from tests.foreign.test_gpt2 import directory as gpt2_directory  # noqa: F401 - a fixture
from tests.foreign.test_gpt2 import logits_of
from tests.foreign.test_llama import directory as llama_directory  # noqa: F401 - a fixture
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.foreign.import_model import import_model
from tformer_cli.plugins.interchange.export import export_hugging_face
from tformer_cli.search.config import DecodingConfig

transformers = pytest.importorskip("transformers")

LLAMA = {
    "norm_kind": "rms",
    "activation": "swish",
    "gated": True,
    "positions": "rotary",
    "bias": False,
}
GPT2_VARIANTS = {
    "sinusoids, scaled, tied": {"tied_embeddings": "all"},
    "learned": {"positions": "learned", "scale_embeddings": False, "activation": "gelu-tanh"},
    "untied, no biases": {"tied_embeddings": "none", "bias": False, "activation": "swish"},
    "streams": {"target_bos": False, "target_eos": False, "norm_epsilon": 1e-3},
}
LLAMA_VARIANTS = {
    "scaled, tied": LLAMA,
    "shared keys": {**LLAMA, "n_key_heads": 2, "tied_embeddings": "none", "rotary_base": 500.0},
    "all heads share": {**LLAMA, "n_key_heads": 1, "scale_embeddings": False},
}
ROTARY = {"positions": "rotary"}
NEOX_VARIANTS = {
    "rotary, scaled, tied": ROTARY,
    "rotary, untied": {**ROTARY, "tied_embeddings": "none", "activation": "gelu-tanh"},
    "rotary, no biases": {**ROTARY, "bias": False, "rotary_base": 500.0, "norm_epsilon": 1e-3},
    "rotary streams": {**ROTARY, "target_bos": False, "target_eos": False, "activation": "gelu"},
}
CLASSES = {
    **dict.fromkeys(GPT2_VARIANTS, "GPT2LMHeadModel"),
    **dict.fromkeys(LLAMA_VARIANTS, "LlamaForCausalLM"),
    **dict.fromkeys(NEOX_VARIANTS, "GPTNeoXForCausalLM"),
}
VARIANTS = {**GPT2_VARIANTS, **LLAMA_VARIANTS, **NEOX_VARIANTS}
TEXTS = ["A dog in the street.", " Two </s> men", "naïve\u00a0漢字 <pad>", "a"]


def load(path):
    theirs = transformers.AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
    return theirs.eval(), transformers.AutoTokenizer.from_pretrained(path)


@pytest.fixture
def saved(model, tmp_path):
    """Writes a language model of random weights."""
    tokenizer = load_model_directory(model).tokenizer

    def make(change=None, **settings):
        own_model(
            tmp_path / "ours",
            tokenizer,
            {**LANGUAGE_MODEL, **settings},
            change=change,
            decoding=DecodingConfig(beam_size=1),
            info=ModelInfo(scores={"perplexity": 31.25}),
        )
        return tmp_path / "ours"

    return make


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_library_computes_the_same_logits_and_tokens(saved, tmp_path, variant):
    path = saved(**VARIANTS[variant])
    name = export_hugging_face(path, tmp_path / "hf")
    assert name == CLASSES[variant]
    theirs, tokenizer = load(tmp_path / "hf")
    assert type(theirs).__name__ == name
    ours = load_model_directory(path, tasks=("language-model",))
    ids = torch.randint(4, ours.model.vocab_size, (40,)).tolist()
    with torch.no_grad():
        logits = theirs(torch.tensor([ids])).logits[0]
    expected = logits_of(ours, ids)
    assert (logits - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))
    assert theirs.config.bos_token_id == 2
    start = [2] if ours.config.target_bos else []
    for text in TEXTS:
        assert tokenizer(text).input_ids == [*start, *ours.tokenizer.target.encode(text)]
        assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == text
    card = (tmp_path / "hf/README.md").read_text()
    assert "pipeline_tag: text-generation" in card
    assert "AutoModelForCausalLM" in card
    assert "| perplexity | 31.25 |" in card


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False, "n_inner": 20}], ids=str)
def test_gpt2_comes_back_as_it_was(gpt2_directory, tmp_path, changes):  # noqa: F811
    theirs, model, tokenizer = gpt2_directory(**changes)
    import_model(str(theirs), tmp_path / "ours")
    export_hugging_face(tmp_path / "ours", tmp_path / "hf")
    again, their_tokenizer = load(tmp_path / "hf")
    check_weights(again, model)
    for text in TEXTS:
        assert their_tokenizer(text).input_ids == tokenizer.encode(text).ids
    check_import(tmp_path)


@pytest.mark.parametrize(
    "changes", [{}, {"num_key_value_heads": 1, "tie_word_embeddings": True}], ids=str
)
def test_llama_comes_back_as_it_was(llama_directory, tmp_path, changes):  # noqa: F811
    theirs, model = llama_directory(**changes)
    import_model(str(theirs), tmp_path / "ours")
    export_hugging_face(tmp_path / "ours", tmp_path / "hf")
    again, their_tokenizer = load(tmp_path / "hf")
    check_weights(again, model)
    ours = load_model_directory(tmp_path / "ours", tasks=("language-model",))
    runs = ours.info.origin.ids
    foreign = [first + n if first >= 0 else -1 for first, length in runs for n in range(length)]
    tokens = ours.tokenizer.target.encode("a b cd e")
    assert their_tokenizer("a b cd e").input_ids == [1, *(foreign[n] for n in tokens)]
    expected = json.loads((theirs / "config.json").read_text())
    record = json.loads((tmp_path / "hf/config.json").read_text())
    assert {name: record[name] for name in ("bos_token_id", "eos_token_id", "rms_norm_eps")} == {
        name: expected[name] for name in ("bos_token_id", "eos_token_id", "rms_norm_eps")
    }
    check_import(tmp_path)


def check_weights(again, model):
    ours, theirs = again.state_dict(), model.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def check_import(tmp_path):
    """Imports an export again: the model is the same."""
    import_model(str(tmp_path / "hf"), tmp_path / "again")
    own, other = (
        load_model_directory(tmp_path / name, tasks=("language-model",))
        for name in ("ours", "again")
    )
    assert own.config == other.config
    assert own.tokenizer.to_json() == other.tokenizer.to_json()
    for name, tensor in own.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name


def test_a_bias_that_bans_tokens_is_what_generation_suppresses(saved, tmp_path):
    def ban(model):
        model.output_bias.data.zero_()
        model.output_bias.data[[1, 9]] = -1e9

    export_hugging_face(saved(ban, output_bias=True), tmp_path / "hf")
    generation = json.loads((tmp_path / "hf/generation_config.json").read_text())
    assert generation["suppress_tokens"] == [1, 9]
