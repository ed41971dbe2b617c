"""CTranslate2's models, imported: translations and scores of the engine itself.

Random models are made with the specifications of the engine's package, in all variants that are
supported; the engine then says what they translate to, and how probable that is.
"""

import json
import os
import shutil
import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tests.foreign.own import TRANSLATION, own_model
from tests.foreign.spm import PIECES, spm
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.artifacts.tensors import load_tensors
from tformer_cli.cli.app import app
from tformer_cli.errors import ArtifactError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.interchange.export import export

ctranslate2 = pytest.importorskip("ctranslate2")
specs = ctranslate2.specs

TRANSLITERATION = "TFORMER_AREN_TRANSLITERATION"
"""Folder of the model of CTranslate2's own tests, for the slow test of it."""
PUBLISHED = {"آ ت ز م و ن": "a t z m o n", "آ ت ش ي س و ن": "a c h i s o n"}
"""Names, and what the engine's tests say of them."""

D, F, HEADS = 32, 48, 4
VOCABULARY = ["<blank>", "<s>", "</s>", *PIECES[3:], "<unk>"]
OTHERS = ["</s>", "<s>", *reversed(PIECES[3:40]), "<unk>"]
LONGEST = 8
LIKE_THE_ENGINE = {
    "device": "cpu",
    "max_length": LONGEST,
    "length_penalty": 0.0,
    "length_normalization": "gnmt",
}
LINES = [
    "a cat",
    "the old house is small",
    "x",
    "dogs and cats and mice ran over there " * 2,
    *(f"{a}{b} {b}{a} now" for a in "bdg" for b in "aou"),
]
VARIANTS = {
    "pre-norm": {},
    "post-norm": {"pre_norm": False},
    "final norms": {"pre_norm": False, "final_norms": True},
    "gelu": {"activation": specs.Activation.GELU},
    "swish, without </s>": {
        "activation": specs.Activation.SWISH,
        "config": {"add_source_eos": False},
    },
    "norms of embeddings": {"layernorm_embedding": True},
    "tables": {"tables": True},
    "small embeddings": {"scale_embeddings": False},
    "root of the width": {"scale_embeddings": D**0.5},
    "no biases": {"biases": False},
    "epsilon": {"config": {"layer_norm_epsilon": 1e-2}},
    "from zero": {"from_zero": True, "config": {"add_source_eos": True}},
    "from the end": {"config": {"decoder_start_token": "</s>", "add_source_eos": True}},
    "untied": {"tied": "none"},
    "two vocabularies": {"tied": "decoder", "source": OTHERS},
    "two vocabularies, without </s>": {
        "tied": "none",
        "source": [piece for piece in OTHERS if piece != "</s>"],
        "config": {"add_source_eos": False},
    },
}


def write_model(path, variant=None, quantization="float32", texts=True):
    """Writes a random model as the package's converters do."""
    known = {"config": {}, "tied": "all", "tables": False, "biases": True, "from_zero": False}
    known |= {
        "source": VOCABULARY,
        "target": VOCABULARY,
        "scale_embeddings": True,
        "final_norms": False,
    }
    given = VARIANTS.get(variant, {}) if isinstance(variant, str | None) else variant
    options = {name: given.get(name, default) for name, default in known.items()}
    rest = {name: value for name, value in given.items() if name not in known}
    spec = specs.TransformerSpec.from_config((2, 3), HEADS, **{"pre_norm": True} | rest)
    fill(spec, np.random.default_rng(7), options)
    spec.register_source_vocabulary(options["source"])
    spec.register_target_vocabulary(options["target"])
    for name, value in ({"add_source_eos": True} | options["config"]).items():
        spec.config.add_attribute(name, value)
    spec.validate()
    spec.optimize(quantization)
    path.mkdir()
    spec.save(str(path))
    if texts:
        (path / "sentencepiece.model").write_bytes(spm(PIECES))
    return path


def fill(spec, rng, options):
    """Gives every part of a specification random numbers of its shape."""

    def draw(*shape, around=0.0):
        return (around + 0.35 * rng.normal(size=shape)).astype(np.float32)

    def linear(matrix, n, k, has_bias=True):
        matrix.weight = draw(n, k)
        if has_bias:
            matrix.bias = draw(n)

    def norm(module):
        module.gamma = draw(D, around=1.0)
        if hasattr(module, "beta"):
            module.beta = draw(D) if options["biases"] else np.zeros(D, np.float32)

    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = options["scale_embeddings"]
        if options["tables"]:
            side.position_encodings.encodings = draw(300, D)
        if options["final_norms"]:
            side.__dict__["layer_norm"] = specs.common_spec.LayerNormSpec()
        for name in ("layer_norm", "layernorm_embedding"):
            if hasattr(side, name):
                norm(getattr(side, name))
        for layer in side.layer:
            attentions = [layer.self_attention]
            if side is spec.decoder:
                attentions.append(layer.attention)
            for attention in attentions:
                widths = (3 * D, D) if attention is layer.self_attention else (D, 2 * D, D)
                for matrix, width in zip(attention.linear, widths, strict=True):
                    linear(matrix, width, D, options["biases"])
                norm(attention.layer_norm)
                for name in attention.__dict__:
                    if name.startswith("relative_") and getattr(attention, name) is None:
                        setattr(attention, name, draw(5, D // HEADS))
            linear(layer.ffn.linear_0, F, D, options["biases"])
            linear(layer.ffn.linear_1, D, F, options["biases"])
            if hasattr(layer.ffn, "linear_0_noact"):
                linear(layer.ffn.linear_0_noact, F, D)
            norm(layer.ffn.layer_norm)
    spec.decoder.start_from_zero_embedding = options["from_zero"]
    spec.encoder.embeddings[0].weight = 0.5 * draw(len(options["source"]), D)
    pieces = options["target"]
    spec.decoder.embeddings.weight = 0.5 * draw(len(pieces), D)
    if options["tied"] == "all":
        spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight
    spec.decoder.projection.weight = 0.5 * draw(len(pieces), D)
    spec.decoder.projection.bias = draw(len(pieces))
    # some translations end, and none holds special tokens, which tformer never writes
    for piece, more in (("</s>", 2.5), ("<blank>", -9.0), ("<s>", -9.0), ("<unk>", -9.0)):
        if piece in pieces:
            spec.decoder.projection.bias[pieces.index(piece)] += more
    if options["tied"] != "none":
        spec.decoder.projection.weight = spec.decoder.embeddings.weight


def pieces_of(model, text, side):
    """The pieces of a text, as the foreign vocabulary names them."""
    chosen = getattr(model.tokenizer, side)
    return [chosen.vocabulary.pieces[n] for n in chosen.encode(text)]


def check(source, ours, model, lines=LINES, tolerance=2e-4):
    """Compares translations and scores of the engine with those of an import."""
    engine = ctranslate2.Translator(str(source), compute_type="float32", inter_threads=1)
    end = [] if engine_ends(source) or not model.config.source_eos else ["</s>"]
    sources = [[*pieces_of(model, line, "source"), *end] for line in lines]
    for beam_size in (1, 3):
        theirs = engine.translate_batch(
            sources,
            beam_size=beam_size,
            max_decoding_length=LONGEST,
            min_decoding_length=0,
            length_penalty=0.0,  # with another the two searches rank otherwise
            return_scores=True,
        )
        opened = open_model(ours, beam_size=beam_size, **LIKE_THE_ENGINE)
        for translation, result in zip(opened.translator.translate(lines), theirs, strict=True):
            pieces, best = result.hypotheses[0], translation.hypotheses[0]
            assert best.text == join_pieces(model, pieces)
            if len(pieces) < LONGEST:  # tformer scores an end at the limit, too
                assert best.score == pytest.approx(result.scores[0], abs=tolerance)
    targets = [pieces_of(model, line, "target") for line in reversed(lines)]
    side = model.tokenizer.target
    scores = opened.translator.score(
        [model.tokenizer.source.encode(line) for line in lines],
        [side.encode(line) for line in reversed(lines)],
    )
    for score, expected in zip(scores, engine.score_batch(sources, targets), strict=True):
        assert score.token_log_probabilities == pytest.approx(expected.log_probs, abs=tolerance)


def join_pieces(model, pieces):
    if model.tokenizer.algorithm == "pieces":
        return " ".join(pieces)
    return "".join(pieces).replace("▁", " ").strip()


def engine_ends(source):
    """Whether the engine itself puts the end behind a source."""
    return json.loads((source / "config.json").read_text())["add_source_eos"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_translations_and_scores_are_the_engines(tmp_path, variant):
    source = write_model(tmp_path / "foreign", variant)
    model = import_model(str(source), tmp_path / "ours")
    check(source, tmp_path / "ours", model)
    assert model.config.source_eos == VARIANTS[variant].get("config", {}).get(
        "add_source_eos", True
    )


@pytest.mark.parametrize("variant", ["untied", "pre-norm", "two vocabularies"])
@pytest.mark.parametrize("quantization", ["float16", "bfloat16", "int16", "int8", "int8_float16"])
def test_every_type_of_numbers_is_read_as_the_engine_reads_it(tmp_path, quantization, variant):
    source = write_model(tmp_path / "foreign", variant, quantization)
    model = import_model(str(source), tmp_path / "ours", weights="float32")
    check(source, tmp_path / "ours", model)
    if quantization.startswith("int8"):
        kept = import_model(str(source), tmp_path / "int8")
        assert kept.weight_type == "int8"
        opened = open_model(tmp_path / "int8", device="cpu", max_length=LONGEST)
        assert opened.precision == "int8"
        assert any(translation.text for translation in opened.translator.translate(LINES))
        again = load_tensors(tmp_path / "int8" / "model.safetensors")
        for name, array in model.weights.items():
            if f"{name}_scale" in kept.weights:
                real = again[name].float() * again[f"{name}_scale"][:, None]
                assert torch.equal(real, torch.from_numpy(array)), name


@pytest.mark.parametrize(
    ("variant", "layer", "n_heads", "heads"),
    [
        ({}, -1, 1, None),  # what converters write of models that were not trained to align, too
        ({"from_zero": True}, -1, 1, "cross.2.0"),
        ({}, 0, 1, "cross.0.0"),
        ({}, -3, 0, "cross.0"),
        ({}, 1, 2, "cross.1.0-1"),
    ],
)
def test_words_are_aligned_by_the_heads_that_the_engine_hands_out(
    tmp_path, variant, layer, n_heads, heads
):
    alignment = {"alignment_layer": layer, "alignment_heads": n_heads}
    model = import_model(
        str(write_model(tmp_path / "foreign", variant | alignment)), tmp_path / "ours"
    )
    assert model.alignment == load_model_directory(tmp_path / "ours").info.alignment
    assert (model.alignment and model.alignment.heads) == heads


@pytest.mark.parametrize("alignment", [{"alignment_layer": 3}, {"alignment_heads": HEADS + 1}])
def test_alignments_of_heads_that_are_not_there_are_refused(tmp_path, alignment):
    source = write_model(tmp_path / "foreign", {"alignment_layer": 0} | alignment)
    with pytest.raises(ArtifactError, match="its alignments use"):
        import_model(str(source), None)


def test_without_a_tokenizer_text_is_pieces(tmp_path):
    source = write_model(tmp_path / "foreign", "two vocabularies", texts=False)
    model = import_model(str(source), tmp_path / "ours")
    assert any("with spaces between them" in note for note in model.notes)
    check(source, tmp_path / "ours", model, ["▁a c a t", "▁ o l d", "▁x zzz"])
    tokenizer = load_model_directory(tmp_path / "ours").tokenizer
    assert tokenizer.to_json() == model.tokenizer.to_json()
    assert tokenizer.source.encode("▁a </s> zzz") == [tokenizer.source.vocabulary.ids["▁a"], 1, 1]
    ((ids, spans),) = tokenizer.source.encode_with_spans([" ▁a  c"])
    assert (len(ids), spans) == (2, [(1, 3), (5, 6)])


def test_merges_of_subword_nmt_cut_words(tmp_path):
    pieces = ["<blank>", "<s>", "</s>", "c@@", "at", "dog", "the", "<unk>"]
    variant = {"source": pieces, "target": pieces, "config": {"add_source_eos": False}}
    source = write_model(tmp_path / "foreign", variant, texts=False)
    (source / "bpe.model").write_text("#version: 0.2\na t</w>\nd o\ndo g</w>\nt h\nth e</w>\n")
    model = import_model(str(source), tmp_path / "ours")
    assert any("by Moses" in note for note in model.notes)
    check(source, tmp_path / "ours", model, ["the cat", "dog", "cat the dog"])


NLLB = ["<s>", "<pad>", "</s>", "<unk>", *PIECES[3:], "eng_Latn", "fra_Latn"]


def test_languages_of_nllb_are_chosen(tmp_path):
    """As the converter of Hugging Face's models leaves it: the caller adds languages and end."""
    settings = {"decoder_start_token": "</s>", "add_source_eos": False}
    variant = {"source": NLLB, "target": NLLB, "config": settings}
    source = write_model(tmp_path / "foreign", variant)
    import_model(str(source), tmp_path / "ours")
    opened = open_model(
        tmp_path / "ours",
        beam_size=1,
        source_language="eng_Latn",
        target_language="fra_Latn",
        **LIKE_THE_ENGINE,
    )
    engine = ctranslate2.Translator(str(source), compute_type="float32")
    result = engine.translate_batch(
        [["eng_Latn", "▁a", "▁c", "a", "t", "</s>"]],
        target_prefix=[["fra_Latn"]],
        beam_size=1,
        max_decoding_length=LONGEST,
        min_decoding_length=0,
    )[0]
    assert result.hypotheses[0][0] == "fra_Latn"
    pieces = [piece for piece in result.hypotheses[0] if piece not in NLLB[-2:]]
    text = "".join(pieces).replace("▁", " ").strip()
    assert text
    assert opened.translator.translate(["a cat"])[0].text == text


CONFIGS = [
    {},
    {"norm": "pre", "activation": "gelu", "positions": "learned", "tied_embeddings": "none"},
    {"tied_embeddings": "decoder", "norm_epsilon": 1e-3, "source_eos": False},
    {"norm": "pre", "positions": "rotary", "activation": "swish", "rotary_base": 500.0},
    {"positions": "table", "output_bias": True, "scale_embeddings": False},
    {"norm": "pre", "embedding_norm": True, "bias": False, "n_decoder_layers": 3},
]


@pytest.mark.parametrize("settings", CONFIGS)
def test_an_export_comes_back_with_the_same_bits(tmp_path, model, settings):
    tokenizer = load_model_directory(model).tokenizer
    layers = {"n_encoder_layers": 2, "n_decoder_layers": 2}
    before = own_model(tmp_path / "before", tokenizer, {**TRANSLATION, **layers, **settings})
    config = before.config
    export(tmp_path / "before", tmp_path / "exported")
    import_model(str(tmp_path / "exported"), tmp_path / "after")
    after = load_model_directory(tmp_path / "after")
    assert after.tokenizer.to_json() == tokenizer.to_json()
    fixed = "rotary" if config.positions == "rotary" else "table"
    assert after.config == replace(config, positions=fixed, dropout=0.0)
    source, target = torch.tensor([[5, 9, 7, 3]]), torch.tensor([[2, 11, 6, 8]])
    mask = torch.ones_like(source).bool()
    with torch.no_grad():
        assert torch.equal(before(source, mask, target), after.model(source, mask, target))


@pytest.mark.parametrize("variant", ["two vocabularies", "two vocabularies, without </s>"])
def test_an_import_is_exported_again(tmp_path, variant):
    model = import_model(str(write_model(tmp_path / "foreign", variant)), tmp_path / "ours")
    check(export(tmp_path / "ours"), tmp_path / "ours", model)
    again = import_model(str(tmp_path / "ours" / "ctranslate2"), None)
    first = load_tensors(tmp_path / "ours" / "model.safetensors")
    assert again.config == load_model_directory(tmp_path / "ours").config
    assert all(np.array_equal(first[name].numpy(), again.weights[name]) for name in first)


def argos(path, variant="two vocabularies, without </s>", root="translate-en_fr-1_9/", **metadata):
    """Writes a package."""
    folder = write_model(path.with_suffix(".d"), variant, texts=False)
    (folder.parent / "sentencepiece.model").write_bytes(spm(PIECES))
    known = {"from_code": "en", "to_code": "fr", "package_version": "1.9", "type": "translate"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr(f"{root}metadata.json", json.dumps(known | metadata))
        package.writestr(f"{root}README.md", "# en-fr")
        package.writestr(f"{root}stanza/en/tokenize/ewt.pt", b"never read")
        package.write(folder.parent / "sentencepiece.model", f"{root}sentencepiece.model")
        for file in folder.iterdir():
            package.write(file, f"{root}model/{file.name}")
    return folder


def test_packages_of_argos(tmp_path):
    folder = argos(tmp_path / "en_fr.argosmodel")
    model = import_model(str(tmp_path / "en_fr.argosmodel"), tmp_path / "ours")
    assert (model.kind, model.languages) == ("Argos", ("en", "fr"))
    assert not model.config.source_eos
    check(folder, tmp_path / "ours", model)
    with zipfile.ZipFile(tmp_path / "en_fr.argosmodel") as package:
        package.extractall(tmp_path / "unpacked")
    again = import_model(str(tmp_path / "unpacked" / "translate-en_fr-1_9"), tmp_path / "second")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("ours", "second")]
    assert weights[0] == weights[1]
    assert again.tokenizer.to_json() == model.tokenizer.to_json()


def test_a_package_names_the_first_token_of_translations(tmp_path):
    folder = argos(tmp_path / "a.argosmodel", "pre-norm", target_prefix="▁b")
    import_model(str(tmp_path / "a.argosmodel"), tmp_path / "ours")
    opened = open_model(tmp_path / "ours", beam_size=3, **LIKE_THE_ENGINE)
    engine = ctranslate2.Translator(str(folder), compute_type="float32")
    result = engine.translate_batch(
        [["▁a", "▁c", "a", "t"]],
        target_prefix=[["▁b"]],
        beam_size=3,
        max_decoding_length=LONGEST,
        min_decoding_length=0,
        length_penalty=0.0,
    )[0]
    text = "".join(result.hypotheses[0][1:]).replace("▁", " ").strip()
    assert opened.translator.translate(["a cat"])[0].text == text


def test_a_package_is_a_model_to_every_command(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    argos(tmp_path / "en_fr.argosmodel")
    args = ["translate", str(tmp_path / "en_fr.argosmodel"), "a cat", "--max-length", "5"]
    first, second = (CliRunner().invoke(app, args, prog_name="tformer") for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0), first.stderr
    assert "imported a model of Argos into" in first.stderr
    assert "imported" not in second.stderr
    assert first.stdout == second.stdout


def refusal_of(source, output):
    """The message of an import that writes nothing."""
    before = {file: file.stat().st_size for file in output.parent.rglob("*")}
    result = CliRunner().invoke(
        app, ["import", str(source), "-o", str(output)], prog_name="tformer"
    )
    assert result.exit_code == 2, result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert {file: file.stat().st_size for file in output.parent.rglob("*")} == before
    return result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"with_relative_position": True}, "self_attention/relative_position_keys"),
        ({"relative_attention_bias": True}, "self_attention/relative_attention_bias"),
        ({"ffn_glu": True}, "ffn/linear_0_noact/weight"),
        ({"rms_norm": True}, "has no tensor encoder/layer_0/self_attention/layer_norm/beta"),
        ({"multi_query_attention": True}, "multi_query_attention = true"),
        ({"activation": specs.Activation.GELUTanh}, "activation = 1"),
        ({"no_final_norm": True}, "without final norms"),
        ({"scale_embeddings": 3.0}, "scale_embeddings is 3"),
        ({"config": {"add_source_bos": True}}, "add_source_bos = true"),
        ({"config": {"decoder_start_token": None}}, "leaves its decoder_start_token"),
        ({"config": {"decoder_start_token": "<go>"}}, "lacks <go>"),
        ({"config": {"a_new_setting": 3}}, "a_new_setting = 3"),
        ({"config": {"layer_norm_epsilon": "small"}}, "layer_norm_epsilon is not a number"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path, options, message):
    source = write_model(tmp_path / "foreign", options)
    assert message in refusal_of(source, tmp_path / "ours")


def test_other_kinds_of_models_are_named(tmp_path):
    content = (
        struct.pack("<I", 6) + struct.pack("<H", 12) + b"WhisperSpec\0" + struct.pack("<2I", 3, 0)
    )
    (tmp_path / "model.bin").write_bytes(content + bytes(4))
    assert "is a WhisperSpec" in refusal_of(tmp_path / "model.bin", tmp_path / "ours")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.bin", lambda b: b[: len(b) // 2], "it ends at byte"),
        ("model.bin", lambda b: b[:40], "is damaged or not a model file of CTranslate2"),
        ("config.json", lambda b: b[:-9], "is not readable JSON"),
        ("config.json", lambda b: b"[]", "is not a JSON object"),
        ("shared_vocabulary.json", lambda b: b"[1]", "is not a list of pieces"),
        ("shared_vocabulary.json", lambda b: b"\xff\xfe", "is damaged"),
        ("shared_vocabulary.json", lambda b: b'["a", "a"]', "has a piece twice"),
        (
            "shared_vocabulary.json",
            lambda b: b'["<s>", "</s>", "x"]',
            "but the vocabulary 4 pieces",
        ),
        ("sentencepiece.model", lambda b: b[:31], "sentencepiece.model"),
        ("sentencepiece.model", lambda b: b"#version: 0.3\nt h\n", "unknown version"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, change, message):
    source = write_model(tmp_path / "foreign")
    (source / name).write_bytes(change((source / name).read_bytes()))
    assert message in refusal_of(source, tmp_path / "ours")


def test_files_that_are_missing_are_named(tmp_path):
    source = write_model(tmp_path / "foreign")
    (source / "shared_vocabulary.json").unlink()
    assert "has no shared_vocabulary.json" in refusal_of(source, tmp_path / "ours")
    shutil.rmtree(source)
    write_model(tmp_path / "foreign")
    (source / "other.spm").write_bytes(spm(PIECES))
    assert "it is unclear which of them" in refusal_of(source, tmp_path / "ours")
    (source / "config.json").unlink()
    assert "config.json: no such file" in refusal_of(source, tmp_path / "ours")


def text(value):
    return struct.pack("<H", len(value) + 1) + value.encode() + b"\0"


def test_hostile_numbers_are_refused(tmp_path):
    source = write_model(tmp_path / "foreign", quantization="int8")
    content = (source / "model.bin").read_bytes()
    place = content.index(text("encoder/num_heads")) + len(text("encoder/num_heads")) + 6
    for heads in (0, 3, -1):
        changed = bytearray(content)
        changed[place : place + 2] = struct.pack("<h", heads)
        (source / "model.bin").write_bytes(changed)
        refusal_of(source, tmp_path / "ours")
    changed = bytearray(content)
    changed[place - 5] = 6  # the first number that no type has
    (source / "model.bin").write_bytes(changed)
    assert "has the unknown type 6" in refusal_of(source, tmp_path / "ours")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"p/../../evil/metadata.json": b"{}"}, "a file outside of itself"),
        ({"/p/metadata.json": b"{}"}, "a file outside of itself"),
        ({"p/metadata.json": b"{}", "q/metadata.json": b"{}"}, "metadata.json twice"),
        ({"p/other.json": b"{}"}, "it has no metadata.json"),
        ({"p/metadata.json": b"{}"}, "holds no model.bin"),
        ({"p/metadata.json": b"{}", "p/model/model.bin": bytes(1 << 26)}, "bytes would become"),
        ({"p/metadata.json": b'{"type": "sbd"}'}, 'type = "sbd" is not supported'),
        ({"p/metadata.json": b"[" * 9999}, "is not readable JSON"),
    ],
)
def test_hostile_packages_are_refused(tmp_path, files, message):
    with zipfile.ZipFile(tmp_path / "a.argosmodel", "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in files.items():
            package.writestr(name, content)
    refusal = refusal_of(tmp_path / "a.argosmodel", tmp_path / "ours")
    assert message in refusal
    assert str(tmp_path / "a.argosmodel") in refusal
    assert "tformer-" not in refusal


def test_packages_that_are_no_zip_or_cut_off_are_refused(tmp_path):
    argos(tmp_path / "a.argosmodel")
    content = (tmp_path / "a.argosmodel").read_bytes()
    for changed in (content[: len(content) // 2], b"PK", b"", content.replace(b"spm", b"mps")):
        (tmp_path / "b.argosmodel").write_bytes(changed[: len(content) - (len(changed) > 999) * 7])
        assert "is damaged or not a package" in refusal_of(
            tmp_path / "b.argosmodel", tmp_path / "ours"
        )


def as_old(content, version, scalars):
    """The file of an older version, which holds settings among its arrays."""
    head = 4 + 2 + len("TransformerSpec\0") + 4
    count = struct.unpack_from("<I", content, head)[0] + len(scalars)
    arrays = b"".join(
        text(name)
        + struct.pack("<BI", 1, len(value))
        + struct.pack("<BI", 1, len(value))
        + bytes(value)
        for name, value in scalars.items()
    )
    start = struct.pack("<I", version) + content[4:head] + struct.pack("<I", count)
    return start + arrays + content[head + 4 :]


def test_older_formats_hold_their_settings_themselves(tmp_path):
    source = write_model(tmp_path / "foreign", "from the end")
    new = import_model(str(source), tmp_path / "new")
    weights = {name: array.copy() for name, array in new.weights.items()}  # they are mapped
    content = (source / "model.bin").read_bytes()
    (source / "config.json").unlink()
    scalars = {"with_source_eos": b"\1", "with_target_bos": b"\0", "unk_token": b"<unk>"}
    (source / "model.bin").write_bytes(as_old(content, 5, scalars))
    old = import_model(str(source), tmp_path / "old")
    assert old.config == new.config
    assert old.tokenizer.to_json() == new.tokenizer.to_json()
    assert all(np.array_equal(old.weights[name], array) for name, array in weights.items())
    (source / "model.bin").write_bytes(as_old(content, 5, {"with_source_bos": b"\1"}))
    assert "with_source_bos = 1 is not supported" in refusal_of(source, tmp_path / "ours")
    (source / "model.bin").write_bytes(as_old(content, 5, {"unk_token": b"\xff"}))
    assert "unk_token is not text" in refusal_of(source, tmp_path / "ours")


@pytest.mark.long
@pytest.mark.parametrize("name", ["آ ت ز م و ن", "آ ت ش ي س و ن"])
def test_a_published_model_transliterates(tmp_path, name):
    folder = Path(os.environ.get(TRANSLITERATION, ""))
    if not (folder / "source_vocabulary.txt").is_file():
        pytest.skip(f"{TRANSLITERATION} does not name the folder aren-transliteration")
    import_model(str(folder), tmp_path / "ours")
    opened = open_model(tmp_path / "ours", device="cpu")
    assert opened.translator.translate([name])[0].text == PUBLISHED[name]
