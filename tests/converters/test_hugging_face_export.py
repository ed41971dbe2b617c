"""Exports for Hugging Face's library: it computes what the model computes, with random weights."""

import json
from dataclasses import replace

import pytest
import torch

from tests.artifacts.test_ctranslate2_export import randomised
from tests.converters.test_hugging_face import marian, multilingual
from tformer_cli.artifacts.model_directory import (
    ModelInfo,
    load_model_directory,
    save_model_directory,
)
from tformer_cli.decoding.config import DecodingConfig
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.model.config import ModelConfig
from tformer_cli.workflows.export import export_hugging_face
from tformer_cli.workflows.import_model import import_model
from tformer_cli.workflows.translate import translate_lines

transformers = pytest.importorskip("transformers")

SHAPE = {"d_model": 32, "n_heads": 4, "d_ff": 48, "n_encoder_layers": 2, "n_decoder_layers": 3}
VARIANTS = {
    "post": {},
    "pre": {"norm": "pre"},
    "two matrices": {"tied_embeddings": "decoder", "activation": "swish"},
    "learned": {"positions": "learned", "scale_embeddings": False},
    "pre, table": {"norm": "pre", "positions": "table", "output_bias": True, "activation": "gelu"},
    "no biases": {"bias": False, "output_bias": True},
    "pre, no biases": {"norm": "pre", "bias": False},
}
TEXTS = ["A dog in the street.", " Two </s> men", "naïve\u00a0漢字 <pad>", "a"]


@pytest.fixture
def exported(model, tmp_path):
    """Writes a model with random weights and exports it."""
    tokenizer = load_model_directory(model).tokenizer

    def make(**changed):
        config = ModelConfig(**{**SHAPE, "max_positions": 40, **changed})
        save_model_directory(
            tmp_path / "ours",
            randomised(config, tokenizer.vocab_size).state_dict(),
            config=config,
            tokenizer=tokenizer,
            decoding=DecodingConfig(beam_size=3, max_length=12),
            info=ModelInfo(source_language="en", target_language="no", scores={"bleu": 31.25}),
        )
        name = export_hugging_face(tmp_path / "ours", tmp_path / "hf")
        return load_model_directory(tmp_path / "ours"), tmp_path / "hf", name

    return make


def load(path):
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(path)
    return theirs.eval(), transformers.AutoTokenizer.from_pretrained(path)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_library_computes_the_same_logits(exported, variant):
    ours, path, name = exported(**VARIANTS[variant])
    theirs, _ = load(path)
    assert type(theirs).__name__ == name
    lengths = torch.tensor([1, 9, 40])
    source = torch.randint(4, ours.model.vocab_size, (3, 40))
    mask = torch.arange(40) < lengths[:, None]
    source[~mask] = 0
    target = torch.randint(4, ours.model.vocab_size, (3, 40))
    target[:, 0] = 2
    with torch.no_grad():
        found = theirs(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target)
        wanted = ours.model(source, mask, target)
    assert (found.logits - wanted).abs().max() <= 1e-5


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_library_translates_the_same(exported, norm):
    ours, path, _ = exported(norm=norm)
    theirs, tokenizer = load(path)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    rows = [row[mask.bool()].tolist() for row, mask in zip(*batch.values(), strict=True)]
    assert rows == [[*ids, 3] for ids in ours.tokenizer.source.encode_batch(TEXTS)]
    for row, text in zip(rows, TEXTS, strict=True):
        assert tokenizer.decode(row, skip_special_tokens=True) == text
    assert theirs.generation_config.num_beams == 3
    output = theirs.generate(**batch, num_beams=1)
    found = list(translate_lines(path.parent / "ours", TEXTS, beam_size=1))
    assert [list(one.hypotheses[0].token_ids) for one in found] == [
        [token for token in row[1:].tolist() if token not in (0, 3)] for row in output
    ]
    assert tokenizer.batch_decode(output, skip_special_tokens=True) == [one.text for one in found]


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_import_of_the_export_has_the_same_weights(exported, tmp_path, variant):
    ours, path, _ = exported(**VARIANTS[variant])
    import_model(str(path), tmp_path / "back")
    back = load_model_directory(tmp_path / "back")
    found, wanted = back.model.state_dict(), ours.model.state_dict()
    assert set(wanted) <= set(found)
    for name, tensor in found.items():
        if name in wanted:
            assert torch.equal(tensor, wanted[name]), name
        elif name.endswith("positions.table"):
            assert torch.equal(tensor, ours.model.encoder_input.positions.rows(0, 40, "cpu"))
        else:
            assert not tensor.any(), name
    assert back.tokenizer.to_json() == ours.tokenizer.to_json()
    assert (back.decoding.beam_size, back.decoding.max_length) == (3, 12)


def test_the_model_card_says_what_is_known(exported, tmp_path):
    exported()
    (tmp_path / "ours" / "recipe.toml").write_text('name = "mine"\n')
    export_hugging_face(tmp_path / "ours", tmp_path / "again")
    card = (tmp_path / "again" / "README.md").read_text()
    for said in ('- "no"', "# license: fill in", "| bleu | 31.25 |", 'name = "mine"', "en → no"):
        assert said in card
    assert "recipe" not in (tmp_path / "hf" / "README.md").read_text()
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert settings["architectures"] == ["MarianMTModel"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"positions": "rotary"}, 'MarianMTModel of Hugging Face has no positions = "rotary"'),
        ({"decoder_cell": "ssru"}, 'decoder_cell = "ssru"'),
        ({"encoder_heads": (4, 3)}, "some heads are pruned"),
        ({"tied_embeddings": "none"}, 'tied_embeddings = "none"'),
        ({"norm": "pre", "tied_embeddings": "decoder"}, "PegasusForConditional.* tied_embeddings"),
        ({"norm_epsilon": 1e-6}, "norm_epsilon = 1e-06"),
        ({"embedding_norm": True}, "embedding_norm = True"),
        ({"final_norm": "always"}, "final_norm"),
    ],
)
def test_what_the_class_cannot_hold_is_refused_by_name(exported, tmp_path, changed, said):
    with pytest.raises(UsageError, match=said) as error:
        exported(**changed)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "hf").exists()


def test_an_export_with_other_special_ids_is_refused(exported, tmp_path):
    _, path, _ = exported()
    file = path / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": 9}))
    with pytest.raises(ArtifactError, match=r"tokenizer\.json: the ids of special tokens"):
        import_model(str(path), tmp_path / "back")


def test_defaults_of_the_search_are_those_of_the_model(model, tmp_path):
    ours = load_model_directory(model)
    made = replace(ours.decoding, length_normalization="average", no_repeat_ngram=2, max_length=0)
    save_model_directory(
        tmp_path / "ours",
        ours.model.state_dict(),
        config=ours.config,
        tokenizer=ours.tokenizer,
        decoding=made,
        info=ours.info,
    )
    export_hugging_face(tmp_path / "ours", tmp_path / "hf")
    found = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert (found["length_penalty"], found["no_repeat_ngram_size"]) == (1.0, 2)
    assert found["max_length"] == ours.config.max_positions


@pytest.mark.parametrize("kind", ["opus", "tc-big"])
def test_an_imported_marian_model_gets_its_own_ids_back(tmp_path, kind):
    theirs, _, _ = marian(tmp_path / "first", kind)
    import_model(str(tmp_path / "first"), tmp_path / "ours")
    assert export_hugging_face(tmp_path / "ours", tmp_path / "hf") == "MarianMTModel"
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / "hf" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()
    first, again = (
        json.loads((tmp_path / place / "vocab.json").read_text()) for place in ("first", "hf")
    )
    assert again == first
    found = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    pad = theirs.config.pad_token_id
    wanted = theirs.state_dict()
    wanted["final_logits_bias"][0, pad] = 0  # the tool never writes it
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, wanted[name]), name
    batch = torch.tensor([[8, 9, 30, theirs.config.eos_token_id]])
    options = {"num_beams": 1, "max_length": 12}
    allowed = {"suppress_tokens": found.generation_config.suppress_tokens}
    written = found.generate(batch, **options)
    assert torch.equal(written, theirs.generate(batch, **options, **allowed))
    assert found.generation_config.renormalize_logits
    import_model(str(tmp_path / "hf"), tmp_path / "back")
    for name in ("tokenizer.json", "model.safetensors"):
        before, after = ((tmp_path / place / name).read_bytes() for place in ("ours", "back"))
        assert before == after, name


def test_other_sentencepiece_tokenizers_are_refused(tmp_path):
    marian(tmp_path / "first", shared=False)
    multilingual(tmp_path / "second", "nllb")
    for name in ("first", "second"):
        import_model(str(tmp_path / name), tmp_path / f"{name} ours")
        with pytest.raises(UsageError, match=r"source_vocab_size|SentencePiece tokenizer"):
            export_hugging_face(tmp_path / f"{name} ours", tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_the_library_cuts_texts_as_the_imported_model_does(tmp_path):
    pytest.importorskip("sentencepiece")
    marian(tmp_path / "first")
    import_model(str(tmp_path / "first"), tmp_path / "ours")
    export_hugging_face(tmp_path / "ours", tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    first = transformers.AutoTokenizer.from_pretrained(tmp_path / "first")
    for text in (">>fra<< ab é", "the old house"):
        assert tokenizer(text).input_ids == first(text).input_ids
