"""Random-everything models of Hugging Face's library, imported: the same logits and translations.

Every parameter is random, biases and norms too, so that nothing can be left out unnoticed.
"""

import json

import pytest
import torch

from tests.foreign.spm import PIECES, spm
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.hugging_face import tokenizers
from tformer_cli.foreign.hugging_face import translators as hugging_face
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.kinds.opening import open_model

transformers = pytest.importorskip("transformers")

SMALL = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 320,
    "dropout": 0.0,
    "attn_implementation": "eager",
}
MARIAN = {"opus": {"pad": -1, "eos": 0}, "tc-big": {"pad": -1, "eos": 44}}


def randomize_weights(model, zero_row=None):
    """Makes every weight random; padding's embedding stays zero where the tool keeps it so."""
    torch.manual_seed(7)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            with torch.no_grad():
                tensor.copy_(torch.randn(tensor.shape) * 0.3)
    for name, module in model.named_modules():
        if "norm" in name and hasattr(module, "weight"):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
        if isinstance(module, torch.nn.Embedding) and zero_row is not None:
            with torch.no_grad():
                module.weight[zero_row] = 0
    return model.eval()


def marian(path, kind="opus", shared=True, safe=True, renormalize=True, **changed):
    """Writes a directory as Helsinki-NLP's are; returns the model and its vocabularies."""
    ids = MARIAN[kind]
    pieces = [p for p in PIECES if p not in ("<s>", "</s>")]
    pieces.insert(ids["eos"], "</s>")
    source = [*pieces, ">>fra<<", "<pad>"]
    target = source if shared else [*pieces[: ids["eos"] + 3], "<pad>"]
    if not shared:
        target = [*pieces[:50], "<pad>"]
        source = [*pieces[:50], "<pad>", *pieces[50:]]
    pad = target.index("<pad>")
    options = {"scale_embedding": True, "activation_function": "swish", **SMALL, **changed}
    config = transformers.MarianConfig(
        vocab_size=len(source),
        decoder_vocab_size=len(target),
        share_encoder_decoder_embeddings=shared,
        pad_token_id=pad,
        eos_token_id=ids["eos"],
        bos_token_id=0,
        forced_eos_token_id=None,
        decoder_start_token_id=pad,
        **options,
    )
    model = transformers.MarianMTModel(config)
    positions = [m.weight.clone() for n, m in model.named_modules() if "embed_positions" in n]
    model = randomize_weights(model, pad)
    for name, module in model.named_modules():
        if "embed_positions" in name:
            module.weight.data = positions[0]
    model.generation_config = transformers.GenerationConfig(
        pad_token_id=pad,
        eos_token_id=ids["eos"],
        decoder_start_token_id=pad,
        bad_words_ids=[[pad]],
        num_beams=3,
        max_length=40,
        renormalize_logits=renormalize,
    )
    path.mkdir()
    model.save_pretrained(path)
    if not safe:
        state = {k: v.half().float() for k, v in model.state_dict().items()}
        model.load_state_dict(state)
        torch.save({k: v.half() for k, v in state.items()}, path / "pytorch_model.bin")
        (path / "model.safetensors").unlink()
    (path / "source.spm").write_bytes(spm(PIECES))
    (path / "target.spm").write_bytes(spm(PIECES))
    (path / "vocab.json").write_text(json.dumps({p: n for n, p in enumerate(source)}))
    if not shared:
        (path / "target_vocab.json").write_text(json.dumps({p: n for n, p in enumerate(target)}))
    tokenizer = {"source_lang": "en", "target_lang": "fr", "separate_vocabs": not shared}
    (path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return model, source, target


LANGUAGES = ["en_XX", "fr_XX"]


def multilingual(path, kind, **changed):
    """Writes a directory of M2M-100, NLLB or mBART."""
    fairseq = ["<s>", "<pad>", "</s>", "<unk>", *PIECES[3:]]
    names = [f"__{x[:2]}__" for x in LANGUAGES] if kind == "m2m" else LANGUAGES
    pieces = [*fairseq, *names, "<mask>"]
    special = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    special |= {"decoder_start_token_id": 2, "forced_eos_token_id": None}
    make = {
        "mbart": (transformers.MBartConfig, transformers.MBartForConditionalGeneration),
        "m2m": (transformers.M2M100Config, transformers.M2M100ForConditionalGeneration),
        "nllb": (transformers.M2M100Config, transformers.M2M100ForConditionalGeneration),
    }[kind]
    size = len(pieces) + 2 * (kind != "mbart")
    config = make[0](vocab_size=size, **special, **{**SMALL, **changed})
    model = randomize_weights(make[1](config), None)
    for module in model.modules():  # which the library recomputes, and does not save
        if hasattr(module, "make_weights"):
            module.make_weights(module.weights.shape[0], module.embedding_dim, 1)
    model.generation_config = transformers.GenerationConfig(**special, num_beams=2)
    path.mkdir()
    model.save_pretrained(path)
    (path / "sentencepiece.bpe.model").write_bytes(spm(PIECES, algorithm=1))
    tokens = json.dumps({"additional_special_tokens": names})
    (path / "special_tokens_map.json").write_text(tokens)
    if kind == "m2m":
        (path / "vocab.json").write_text(json.dumps({p: n for n, p in enumerate(fairseq)}))
    return model


def logits_differ(path, model, output, lengths=(1, 7, 300, 20)):
    """Largest difference of the logits of random sentences, padding in the batch included."""
    converted = import_model(str(path), output)
    ours = load_model_directory(output)
    ids = torch.tensor(converted.ids)
    config = ours.config
    n_sources = config.source_vocab_size or len(ids)
    torch.manual_seed(3)
    pad, start = model.config.pad_token_id, model.config.decoder_start_token_id
    # ordinary tokens of both vocabularies: their order behind the special ones is the tool's
    low = 4
    source = torch.full((len(lengths), max(lengths)), 0)
    for row, length in enumerate(lengths):
        source[row, :length] = torch.randint(low, min(n_sources, len(ids)), (length,))
    target = torch.randint(low, len(ids), (len(lengths), 9))
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    theirs_source = torch.where(mask, _foreign(converted, source, model), pad)
    theirs_target = torch.cat([torch.full((len(lengths), 1), start), ids[target]], dim=1)
    with torch.no_grad():
        wanted = model(
            input_ids=theirs_source,
            attention_mask=mask.long(),
            decoder_input_ids=theirs_target,
        ).logits
        first = torch.full((len(lengths), 1), 2)
        found = ours.model(source, mask, torch.cat([first, target], dim=1))
    columns = [n for n in range(len(ids)) if found[0, 0, n] > -1e8]
    assert len(columns) >= len(ids) - 2
    return (found[..., columns] - wanted[..., ids[columns]]).abs().max().item()


def _foreign(converted, source, model):
    """Foreign ids of source tokens."""
    if not converted.config.source_vocab_size:
        return torch.tensor(converted.ids)[source]
    pad, eos = model.config.pad_token_id, model.config.eos_token_id
    first = [pad, 1, pad, eos]
    rest = [n for n in range(model.config.vocab_size) if n not in first]
    return torch.tensor([*first, *rest])[source]


VARIANTS = {
    "opus": {},
    "tc-big, relu": {"kind": "tc-big", "activation_function": "relu"},
    "gelu, unscaled": {"activation_function": "gelu", "scale_embedding": False},
    "checkpoint": {"safe": False},
    "separate": {"shared": False},
    "not renormalized": {"renormalize": False},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_marian_logits_are_equal(tmp_path, variant):
    model, _, _ = marian(tmp_path / "hf", **VARIANTS[variant])
    assert logits_differ(tmp_path / "hf", model, tmp_path / "ours") <= 1e-5


@pytest.mark.parametrize("kind", ["m2m", "nllb", "mbart"])
def test_multilingual_logits_are_equal(tmp_path, kind):
    model = multilingual(tmp_path / "hf", kind)
    assert logits_differ(tmp_path / "hf", model, tmp_path / "ours") <= 2e-5


def pegasus(path):
    """Writes a directory of Pegasus as Google's are."""
    pieces = ["<pad>", "</s>", "<unk>", *PIECES[3:]]
    size = len(pieces) + 103
    options = {"activation_function": "relu", "scale_embedding": True}
    config = transformers.PegasusConfig(vocab_size=size, **{**SMALL, **options})
    model = transformers.PegasusForConditionalGeneration(config)
    positions = {n: m.weight.clone() for n, m in model.named_modules() if "embed_positions" in n}
    model = randomize_weights(model, None)
    for name, module in model.named_modules():
        if name in positions:
            module.weight.data = positions[name]
    path.mkdir()
    model.save_pretrained(path)
    types = {"<pad>": 3, "</s>": 3, "<unk>": 2}
    (path / "spiece.model").write_bytes(spm(pieces, types, special_score=0.0))
    return model


def test_pegasus_has_the_logits_and_ids_of_the_library(tmp_path):
    model = pegasus(tmp_path / "hf")
    assert logits_differ(tmp_path / "hf", model, tmp_path / "ours") <= 2e-5
    theirs = transformers.PegasusTokenizer.from_pretrained(tmp_path / "hf")
    directory = load_model_directory(tmp_path / "ours")
    runs = directory.info.origin.ids
    foreign = [n for first, length in runs for n in range(first, first + length)]
    for text in ("a cat", "the old house is green", "é"):
        ids = directory.tokenizer.source.encode(text)
        assert [*(foreign[n] for n in ids), 1] == theirs(text).input_ids
    assert theirs.convert_ids_to_tokens(foreign[4:]) == directory.tokenizer.target.pieces(
        range(4, len(foreign))
    )
    (tmp_path / "hf" / "tokenizer_config.json").write_text('{"offset": 0}')
    with pytest.raises(ArtifactError, match="offset = 0 is not supported"):
        import_model(str(tmp_path / "hf"), None)


def test_what_is_wrong_on_purpose_is_noticed(tmp_path, monkeypatch):
    """Each detail, done wrong, moves the logits far more than rounding does."""
    model, _, _ = marian(tmp_path / "hf")
    wrong = {
        "scale": {"scale_embeddings": False},
        "epsilon": {"norm_epsilon": 1e-2},
        "activation": {"activation": "relu"},
    }
    make = hugging_face.model_config
    for name, change in wrong.items():
        monkeypatch.setattr(
            hugging_face, "model_config", lambda path, change=change, **v: make(path, **v | change)
        )
        assert logits_differ(tmp_path / "hf", model, tmp_path / name) > 1e-3, name
    monkeypatch.setattr(hugging_face, "model_config", make)
    halves = hugging_face.paper_halves
    tables = {
        "offset": lambda n, d: halves(n + 1, d)[1:],
        "frequencies": hugging_face.tensor2tensor_halves,
        "layout": lambda n, d: halves(n, d).reshape(n, 2, -1).swapaxes(1, 2).reshape(n, d),
    }
    for name, table in tables.items():
        monkeypatch.setattr(hugging_face, "paper_halves", table)
        assert logits_differ(tmp_path / "hf", model, tmp_path / name) > 1e-3, name
    monkeypatch.setattr(hugging_face, "paper_halves", halves)
    bias = hugging_face.output_bias
    monkeypatch.setattr(hugging_face, "output_bias", lambda rows, _: bias(rows, None))
    assert logits_differ(tmp_path / "hf", model, tmp_path / "bias") > 1e-3


@pytest.mark.parametrize("kind", ["opus", "tc-big"])
def test_greedy_translations_are_those_of_generate(tmp_path, kind):
    model, _, _ = marian(tmp_path / "hf", kind)
    converted = import_model(str(tmp_path / "hf"), tmp_path / "ours")
    ours = load_model_directory(tmp_path / "ours")
    for text in ("a cat", "the old house is green", ">>fra<< no"):
        ids = ours.tokenizer.source.encode(text)
        foreign = [converted.ids[n] for n in [*ids, 3]]
        output = model.generate(torch.tensor([foreign]), num_beams=1, max_length=12)
        wanted = output[0, 1:].tolist()
        found = [2]
        with torch.no_grad():
            for _ in wanted:
                mask = torch.ones(1, len(ids) + 1, dtype=torch.bool)
                logits = ours.model(torch.tensor([[*ids, 3]]), mask, torch.tensor([found]))
                found.append(int(logits[0, -1].argmax()))
        assert [converted.ids[n] for n in found[1:]] == wanted


def test_language_tokens_and_texts_have_the_foreign_ids(tmp_path):
    _, source, _ = marian(tmp_path / "hf")
    converted = import_model(str(tmp_path / "hf"), tmp_path / "ours")
    tokenizer = load_model_directory(tmp_path / "ours").tokenizer
    encoded = [source[converted.ids[n]] for n in tokenizer.source.encode(">>fra<< ab é")]
    assert encoded == [">>fra<<", "▁a", "b", "▁", "<unk>"]
    assert (
        tokenizer.target.decode([converted.ids.index(source.index(p)) for p in ("▁a", "b")]) == "ab"
    )
    chosen = tokenizer.for_languages(None, "fra").source.encode("a")
    assert [source[converted.ids[n]] for n in chosen] == [">>fra<<", "▁a"]
    info = load_model_directory(tmp_path / "ours").info
    assert (info.source_language, info.target_language) == ("en", "fr")
    assert info.origin.kind == "Hugging Face Marian (OPUS-MT)"
    ids = [n for first, length in info.origin.ids for n in range(first, first + length)]
    assert ids == list(converted.ids)
    assert converted.decoding.beam_size == 3
    assert converted.decoding.max_length == 39


def test_multilingual_models_take_codes(tmp_path):
    multilingual(tmp_path / "hf", "nllb")
    converted = import_model(str(tmp_path / "hf"), None)
    chosen = converted.tokenizer.for_languages("en_XX", "fr_XX")
    first = 4 + len(PIECES) - 3
    assert [converted.ids[n] for n in chosen.source.encode("a")] == [first, 5]
    assert [converted.ids[n] for n in chosen.target.start] == [first + 1]


def test_older_prompts_of_nllb_end_with_the_language(tmp_path):
    folder = tmp_path / "hf"
    multilingual(folder, "nllb")
    settings = {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    import_model(str(folder), tmp_path / "ours")
    ours = load_model_directory(tmp_path / "ours")
    assert not ours.config.source_eos
    source = ours.tokenizer.for_languages("en_XX", "fr_XX").source
    ids = source.encode("a b")
    assert source.pieces(ids)[2:] == ["</s>", "en_XX"]
    assert source.encode("") == []
    with_spans, spans = source.encode_with_spans(["a b"])[0]
    assert with_spans == ids
    assert spans[2:] == [(3, 3), (3, 3)]
    theirs = transformers.NllbTokenizer.from_pretrained(
        folder, src_lang="en_XX", extra_special_tokens=LANGUAGES
    )
    runs = ours.info.origin.ids
    foreign = [n for first, length in runs for n in range(first, first + length)]
    *others, last = theirs("a b").input_ids  # its languages have other ids
    assert [foreign[n] for n in ids[:-1]] == others
    assert theirs.convert_ids_to_tokens(last) == "en_XX"
    text = " ".join(["a"] * 400)  # longer than the model takes
    options = {"source_language": "en_XX", "target_language": "fr_XX", "max_length": 3}
    opened = open_model(tmp_path / "ours", too_long="truncate", **options)
    (sentence,) = opened.translator.prepare([text])[0].sentences
    assert sentence.tokens[-2:] == tuple(ids[-2:])
    assert len(sentence.tokens) == ours.config.max_positions - 1
    (line,) = translate_lines(tmp_path / "ours", ["a b"], **options)
    assert line.hypotheses[0].token_ids


def first_mbart(path, **changed):
    """Writes a directory of the mBART of 25 languages that writes Romanian, as its makers do."""
    codes = tokenizers._MBART_25
    fairseq = ["<s>", "<pad>", "</s>", "<unk>", *PIECES[3:], *codes, "<mask>"]
    start = fairseq.index("ro_RO")
    special = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    special |= {"decoder_start_token_id": start, "forced_eos_token_id": None}
    config = transformers.MBartConfig(vocab_size=len(fairseq), **special, **SMALL)
    model = randomize_weights(transformers.MBartForConditionalGeneration(config))
    model.generation_config = transformers.GenerationConfig(**special, num_beams=1)
    path.mkdir()
    model.save_pretrained(path)
    (path / "sentencepiece.bpe.model").write_bytes(spm(PIECES))
    for name, values in changed.items():
        file = path / f"{name}.json"
        stored = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(stored | values))
    return model, fairseq


def test_the_first_mbart_ends_sources_and_begins_translations_with_languages(tmp_path):
    model, pieces = first_mbart(tmp_path / "hf")
    assert logits_differ(tmp_path / "hf", model, tmp_path / "ours") <= 2e-5
    ours = load_model_directory(tmp_path / "ours")
    assert not ours.config.source_eos
    assert (ours.info.target_language, ours.tokenizer.target.start) == ("ro_RO", ())
    assert "ro_RO" not in ours.tokenizer.language_codes
    source = ours.tokenizer.for_languages("en_XX", None).source
    runs = ours.info.origin.ids
    foreign = [n for first, length in runs for n in range(first, first + length)]
    ids = [foreign[n] for n in source.encode("a b")]
    assert [pieces[n] for n in ids] == ["▁a", "▁b", "</s>", "en_XX"]
    theirs = transformers.MBartTokenizer.from_pretrained(tmp_path / "hf", src_lang="en_XX")
    assert theirs.convert_ids_to_tokens(theirs("a b").input_ids) == [pieces[n] for n in ids]
    options = {"source_language": "en_XX", "beam_size": 1, "max_length": 8}
    (line,) = translate_lines(tmp_path / "ours", ["a b"], **options)
    written = model.generate(torch.tensor([ids]), num_beams=1, max_length=9)[0].tolist()
    assert written[0] == pieces.index("ro_RO")
    found = [foreign[n] for n in line.hypotheses[0].token_ids]
    assert found == [n for n in written[1:] if n != 2]


CLASS_25 = {"tokenizer_class": "MBartTokenizer"}


def test_the_first_mbart_is_known_by_its_start_where_its_languages_are_listed(tmp_path):
    """As the library saves it: what mBART-50's files say, too."""
    codes = {"additional_special_tokens": list(tokenizers._MBART_25)}
    first_mbart(tmp_path / "hf", special_tokens_map=codes, tokenizer_config=CLASS_25)
    converted = import_model(str(tmp_path / "hf"), None)
    assert not converted.config.source_eos
    assert converted.languages == ("", "ro_RO")
