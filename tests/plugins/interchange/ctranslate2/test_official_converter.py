"""Models as the package's own converter of Hugging Face's models writes them, in all numbers."""

import json
from pathlib import Path

import pytest

from tests.foreign.hugging_face.test_importing import marian, multilingual
from tests.plugins.interchange.ctranslate2.test_importing import engine_ends
from tformer_cli.foreign.import_model import import_model
from tformer_cli.kinds.opening import open_model

ctranslate2 = pytest.importorskip("ctranslate2")


def m2m(path):
    multilingual(path, "m2m")
    settings = {"num_madeup_words": 3}  # of the vocabulary, so that its size is the model's
    (path / "tokenizer_config.json").write_text(json.dumps(settings))


MODELS = {
    "tied": marian,
    "untied": lambda path: marian(path, tie_word_embeddings=False),
    "multilingual": m2m,
}
QUANTIZATIONS = ["int8", "int8_float32", "int8_float16", "int16", "float16"]
LINES = ["a cat", "the old house is small", "dogs and cats"]


def has_vnni():
    return "vnni" in Path("/proc/cpuinfo").read_text()


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("official") / "hf"
    MODELS[request.param](path)
    return path


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_scores_are_the_engines(tmp_path, model, quantization):
    foreign = tmp_path / "ct2"
    files = [file.name for file in model.glob("*.spm")] or ["sentencepiece.bpe.model"]
    converter = ctranslate2.converters.TransformersConverter(str(model), copy_files=files)
    converter.convert(str(foreign), quantization=quantization)
    is_int8 = quantization.startswith("int8")
    imported = import_model(str(foreign), tmp_path / "ours")
    assert imported.weight_type == ("int8" if is_int8 else "float32")
    languages = {}
    if "en" in imported.tokenizer.language_codes:
        languages = {"source_language": "en", "target_language": "fr"}
    sides = (imported.tokenizer.source, imported.tokenizer.target)
    sources, targets = (side.encode_phrases(LINES) for side in sides)
    source_pieces, target_pieces = (
        [[side.vocabulary.pieces[i] for i in ids] for ids in texts]
        for side, texts in zip(sides, (sources, targets), strict=True)
    )
    end = [] if engine_ends(foreign) or not imported.config.source_eos else ["</s>"]
    # Without VNNI the engine adds pairs of 8-bit products in 16 bits, which saturate: its numbers
    # are not those of the weights then. Our kernels are exact at every level.
    for weights in ("float32", "int8") if is_int8 and has_vnni() else ("float32",):
        import_model(str(foreign), tmp_path / weights, weights=weights)
        opened = open_model(tmp_path / weights, device="cpu", **languages)
        engine = ctranslate2.Translator(str(foreign), compute_type=weights)
        wanted = engine.score_batch([[*pieces, *end] for pieces in source_pieces], target_pieces)
        for score, expected in zip(opened.translator.score(sources, targets), wanted, strict=True):
            assert score.log_probability == pytest.approx(sum(expected.log_probs), rel=1e-5)
