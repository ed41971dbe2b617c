"""Exports for Hugging Face's library: it computes what the model computes, with random weights."""

import json
from dataclasses import replace

import pytest
import torch

from tests.foreign.hugging_face import test_decoders
from tests.foreign.hugging_face.test_importing import marian, multilingual
from tests.foreign.own import LANGUAGE_MODEL, T5, TRANSLATION, own_model
from tests.foreign.spm import PIECES
from tests.oracles import vit
from tformer_cli.artifacts.config_file import ModelInfo, StartOrigin
from tformer_cli.artifacts.model_directory import load_model_directory, save_model_directory
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.foreign.hugging_face.layout import layout_of
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.plugins.interchange.export import export_hugging_face
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.images.decoding import Scaling
from tformer_cli.text.images.tokenizer import ImageTokenizer
from tformer_cli.text.sentencepiece.tokenizer import SentencePieceTokenizer

transformers = pytest.importorskip("transformers")

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
        own_model(
            tmp_path / "ours",
            tokenizer,
            {**TRANSLATION, **changed},
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
        assert tokenizer.decode(row, skip_special_tokens=True) == text.replace("\u00a0", " ")
    assert theirs.generation_config.num_beams == 3
    output = theirs.generate(**batch, num_beams=1)
    translations = list(translate_lines(path.parent / "ours", TEXTS, beam_size=1))
    assert [list(translation.hypotheses[0].token_ids) for translation in translations] == [
        [token for token in row[1:].tolist() if token not in (0, 3)] for row in output
    ]
    assert tokenizer.batch_decode(output, skip_special_tokens=True) == [
        translation.text for translation in translations
    ]


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
    for part in ('- "no"', "# license: fill in", "| bleu | 31.25 |", 'name = "mine"', "en → no"):
        assert part in card
    assert "recipe" not in (tmp_path / "hf" / "README.md").read_text()
    settings = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert settings["architectures"] == ["MarianMTModel"]


GPT2, LLAMA = LANGUAGE_MODEL, {**LANGUAGE_MODEL, **test_decoders.LLAMA}
IMAGES = vars(vit.config())
REFUSED = [
    (TRANSLATION, {"positions": "rotary"}, 'MarianMTModel of Hugging Face has no positions = "rot'),
    (TRANSLATION, {"decoder_cell": "ssru"}, 'decoder_cell = "ssru"'),
    (TRANSLATION, {"encoder_heads": (4, 3)}, "some heads are pruned"),
    (TRANSLATION, {"tied_embeddings": "none"}, 'tied_embeddings = "none"'),
    (TRANSLATION, {"norm": "pre", "tied_embeddings": "decoder"},
     "PegasusForConditional.* tied_embeddings"),
    (TRANSLATION, {"norm_epsilon": 1e-6}, "norm_epsilon = 1e-06"),
    (TRANSLATION, {"embedding_norm": True}, "embedding_norm = True"),
    (TRANSLATION, {"final_norm": "always"}, "final_norm"),
    (GPT2, {"similarity": "cosine"}, 'GPT2LMHeadModel of Hugging Face has no similarity = "co'),
    (GPT2, {"positions": "alibi"}, 'has no positions = "alibi"'),
    (GPT2, {"norm": "post"}, 'has no norm = "post"'),
    (GPT2, {"n_key_heads": 2}, "has no n_key_heads = 2"),
    (LLAMA, {"activation": "gelu"}, 'LlamaForCausalLM of Hugging Face has no activation = "'),
    (GPT2, {"positions": "rotary", "gated": True},
     'GPTNeoXForCausalLM of .* has no gated = True; train with gated = false, or use it here$'),
    (GPT2, {"decoder_heads": (4, 3)}, "some heads are pruned, but GPT2LMHeadModel"),
    (GPT2, {"output_bias": True}, "its logits have biases, which GPT2LMHeadModel"),
    (T5, {"bias": True}, "T5ForConditionalGeneration of Hugging Face has no bias = True"),
    (T5, {"gated": True, "activation": "gelu"}, 'has no activation = "gelu" with a gate'),
    (T5, {"output_bias": True},
     "its logits have biases, which T5ForConditionalGeneration of Hugging Face lacks"),
    (T5, {"tied_embeddings": "none"}, 'has no tied_embeddings = "none"'),
    (T5, {"encoder_heads": (1,), "bias_heads": (0, 0, 1, 0, 1)}, "some heads are pruned"),
    (IMAGES, {"pooling": "mean"}, 'ViTForImageClassification of Hugging Face has no pooling = "me'),
    (IMAGES, {"class_token": False, "pooling": "mean"},
     "ViTForImageClassification of Hugging Face has no .*; use it here"),
    (IMAGES, {"norm": "post"}, 'has no norm = "post"; use it here'),
    (IMAGES, {"positions": "rotary"}, 'has no positions = "rotary"'),
    (IMAGES, {"bias": False}, "has no bias = False"),
    (IMAGES, {"pooling": "first-and-mean"}, "Dinov2ForImageClassification of .* has square images"),
    (IMAGES, {"encoder_heads": (3, 2)}, "some heads are pruned"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "changed", "message"), REFUSED)
def test_what_a_class_cannot_hold_is_refused_by_name(model, tmp_path, shape, changed, message):
    settings, info, tokenizer = {**shape, **changed}, None, load_model_directory(model).tokenizer
    if shape is IMAGES:
        tokenizer = ImageTokenizer(Scaling(size=settings["image_size"]), settings["patch_size"])
        info = ModelInfo(labels=tuple("abcde"))
    own_model(tmp_path / "ours", tokenizer, settings, info=info)
    with pytest.raises(UsageError, match=message) as error:
        export_hugging_face(tmp_path / "ours", tmp_path / "hf")
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
    record = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert (record["length_penalty"], record["no_repeat_ngram_size"]) == (1.0, 2)
    assert record["max_length"] == ours.config.max_positions


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


def assert_same_directory(first, second):
    for name in ("tokenizer.json", "model.safetensors"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


@pytest.mark.parametrize("kind", ["opus", "tc-big"])
def test_two_vocabularies_are_written(tmp_path, kind):
    theirs, source, target = marian(tmp_path / "first", kind, shared=False)
    import_model(str(tmp_path / "first"), tmp_path / "ours")
    assert export_hugging_face(tmp_path / "ours", tmp_path / "hf") == "MarianMTModel"
    for name, pieces in (("vocab.json", source), ("target_vocab.json", target)):
        found = json.loads((tmp_path / "hf" / name).read_text())
        assert found == {piece: number for number, piece in enumerate(pieces)}
    found = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    wanted = theirs.state_dict()
    wanted["final_logits_bias"][0, theirs.config.pad_token_id] = 0  # the tool never writes it
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, wanted[name]), name
    assert_same_greedy(theirs, found)
    import_model(str(tmp_path / "hf"), tmp_path / "back")
    assert_same_directory(tmp_path / "ours", tmp_path / "back")


def assert_same_greedy(theirs, exported, **options):
    """Both models write the same, with the same tokens banned."""
    batch = torch.tensor([[8, 9, 30, theirs.config.eos_token_id]])
    options |= {"num_beams": 1, "max_length": 12}
    allowed = {"suppress_tokens": exported.generation_config.suppress_tokens}
    written = exported.generate(batch, **options)
    assert written.shape[1] > 3
    assert torch.equal(written, theirs.generate(batch, **options, **allowed))


CLASSES = {
    "m2m": "M2M100ForConditionalGeneration",
    "nllb": "M2M100ForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
}


@pytest.mark.parametrize("kind", CLASSES)
def test_a_multilingual_model_gets_its_own_ids_back(tmp_path, kind):
    theirs = multilingual(tmp_path / "first", kind)
    import_model(str(tmp_path / "first"), tmp_path / "ours")
    assert export_hugging_face(tmp_path / "ours", tmp_path / "hf") == CLASSES[kind]
    spm = "sentencepiece.bpe.model"
    assert (tmp_path / "hf" / spm).read_bytes() == (tmp_path / "first" / spm).read_bytes()
    assert (tmp_path / "hf" / "vocab.json").exists() == (kind == "m2m")
    if kind == "m2m":
        first, again = ((tmp_path / place / "vocab.json").read_text() for place in ("first", "hf"))
        assert json.loads(again) == json.loads(first)
    found = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    wanted = theirs.state_dict()
    for name, tensor in found.state_dict().items():
        if "embed_positions" in name:  # the first two rows are of no position
            assert torch.equal(tensor[2:], wanted[name][2:]), name
        else:
            assert torch.equal(tensor, wanted[name]), name
    assert_same_greedy(theirs, found, forced_bos_token_id=len(PIECES) + 2)
    import_model(str(tmp_path / "hf"), tmp_path / "back")
    assert_same_directory(tmp_path / "ours", tmp_path / "back")
    card = (tmp_path / "hf" / "README.md").read_text()
    token = "__fr__" if kind == "m2m" else "fr_XX"
    assert f'src_lang="{"en" if kind == "m2m" else "en_XX"}"' in card
    assert f'convert_tokens_to_ids("{token}")' in card


def change_weights(path, change, **info):
    """Changes a model directory as training from it would."""
    directory = load_model_directory(path)
    state = directory.model.state_dict()
    change(state)
    save_model_directory(
        path,
        state,
        config=directory.config,
        tokenizer=directory.tokenizer.for_languages(**info) if info else directory.tokenizer,
        decoding=directory.decoding,
        info=ModelInfo(start=StartOrigin(model="their/model", weights_hash="")),
    )
    return load_model_directory(path)


def logits_of(ours, theirs, layout_ids):
    """Largest difference of the logits of one sentence."""
    source, target = [5, 9, 3], [2, 7, 11]
    with torch.no_grad():
        wanted = ours.model(torch.tensor([source]), torch.ones(1, 3).bool(), torch.tensor([target]))
        logits = theirs(
            input_ids=torch.tensor([[layout_ids[n] for n in source]]),
            decoder_input_ids=torch.tensor([[layout_ids[n] for n in target]]),
        ).logits
    written = [n for n in range(3, len(layout_ids)) if layout_ids[n] != layout_ids[2]]
    return (logits[..., [layout_ids[n] for n in written]] - wanted[..., written]).abs().max()


@pytest.mark.parametrize("kind", ["opus", "separate", "m2m", "nllb", "mbart"])
def test_a_model_trained_from_an_import_is_written(tmp_path, kind):
    """Training knows no origin and makes of a start that was another token one of its own."""
    if kind in CLASSES:
        multilingual(tmp_path / "first", kind)
    else:
        marian(tmp_path / "first", shared=kind == "opus")
    import_model(str(tmp_path / "first"), tmp_path / "ours")

    def change(state):
        name = "target_embedding.weight"
        state[name if name in state else "source_embedding.weight"][2] += 0.1

    ours = change_weights(tmp_path / "ours", change)
    name = export_hugging_face(tmp_path / "ours", tmp_path / "hf")
    assert name == CLASSES.get(kind, "MarianMTModel")
    layout = layout_of(ours, "marian" if kind not in CLASSES else "m2m_100")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    assert theirs.config.decoder_start_token_id == layout.ids[2] != theirs.config.eos_token_id
    assert theirs.generation_config.renormalize_logits
    if kind != "separate":
        assert logits_of(ours, theirs, layout.ids) <= 2e-5
    import_model(str(tmp_path / "hf"), tmp_path / "back")
    back = load_model_directory(tmp_path / "back")
    # `<s>`, whose row a start of its own takes, is no other token any more
    rows = {piece: n for n, piece in enumerate(ours.tokenizer.target.vocabulary.pieces)}
    kept = [n for n, piece in enumerate(back.tokenizer.target.vocabulary.pieces) if n not in (0, 2)]
    assert len(kept) >= len(rows) - 3
    places = [rows[back.tokenizer.target.vocabulary.pieces[n]] for n in kept]
    assert torch.equal(back.model.target_matrix[kept], ours.model.target_matrix[places])
    assert torch.equal(back.model.target_matrix[2], ours.model.target_matrix[2])
    assert "their/model" in (tmp_path / "hf" / "README.md").read_text()


def test_the_library_numbers_languages_as_the_model_does(tmp_path):
    multilingual(tmp_path / "first", "nllb")
    import_model(str(tmp_path / "first"), tmp_path / "ours")
    export_hugging_face(tmp_path / "ours", tmp_path / "hf")
    ours = load_model_directory(tmp_path / "ours")
    layout = layout_of(ours, "m2m_100")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf", src_lang="en_XX")
    chosen = ours.tokenizer.for_languages("en_XX", "fr_XX")
    ids = [*chosen.source.encode("a cat"), 3]
    assert tokenizer("a cat").input_ids[0] == layout.ids[ids[0]]
    assert tokenizer("a cat").input_ids[-1] == layout.ids[3]
    assert tokenizer.convert_tokens_to_ids("fr_XX") == layout.ids[chosen.target.start[0]]


def test_a_trained_output_bias_makes_another_class_of_m2m(tmp_path):
    multilingual(tmp_path / "first", "nllb")
    import_model(str(tmp_path / "first"), tmp_path / "ours")
    ours = change_weights(
        tmp_path / "ours",
        lambda state: state["output_bias"][9].fill_(0.5),
        source="en_XX",
        target="fr_XX",
    )
    name = export_hugging_face(tmp_path / "ours", tmp_path / "hf")
    assert name == "PegasusForConditionalGeneration"
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    layout = layout_of(ours, "pegasus")
    assert logits_of(ours, theirs, layout.ids) <= 2e-5
    french = ours.tokenizer.target.start[0]
    assert theirs.generation_config.forced_bos_token_id == layout.ids[french]
    settings = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert (settings["src_lang"], settings["tgt_lang"]) == ("en_XX", "fr_XX")


def test_tokenizers_that_no_class_has_are_refused(tmp_path):
    multilingual(tmp_path / "first", "nllb")
    import_model(str(tmp_path / "first"), tmp_path / "ours")
    ours = load_model_directory(tmp_path / "ours")
    with pytest.raises(UsageError, match="SentencePiece tokenizer that no marian model"):
        layout_of(ours, "marian")
    tokenizer = SentencePieceTokenizer.build(
        ours.tokenizer.source.file.data,
        None,
        [p.replace("<foreign <s>>", "other") for p in ours.tokenizer.source.vocabulary.pieces],
        languages=ours.tokenizer.languages,
    )
    trained = replace(ours, tokenizer=tokenizer)
    with torch.no_grad():
        trained.model.source_embedding.weight[2] += 1
    with pytest.raises(UsageError, match="special tokens share rows"):
        layout_of(trained, "m2m_100")


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
