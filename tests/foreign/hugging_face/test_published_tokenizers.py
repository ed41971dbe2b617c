"""Published OPUS-MT models with random weights: imported whole, beside Hugging Face's library."""

import json
import os
import shutil
import warnings
from pathlib import Path

import pytest
import torch

from tests.foreign.hugging_face.test_importing import logits_differ, randomize_weights
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.kinds.lines.translate import translate_lines

TOKENIZERS = os.environ.get("TFORMER_OPUS_TOKENIZERS")
"""A folder with a folder for each model: config.json, source.spm, target.spm and vocab.json."""
MODELS = sorted(p.name for p in Path(TOKENIZERS).iterdir() if p.is_dir()) if TOKENIZERS else []
SMALL = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}
TEXTS = [
    "The old house is green, and it has 3 doors.",
    "Ein «Wort», naïve cafés – 漢字 and 😀.",
    "  spaces   and\ttabs  ",
]
TAG = ">>por<< "
"""Begins a text for models that know it; for others it is text, where the library reads `<unk>`."""
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not TOKENIZERS, reason="TFORMER_OPUS_TOKENIZERS names no folder"),
]
transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("name", MODELS)
def test_a_published_model_is_imported(tmp_path, name):
    folder = tmp_path / "hf"
    shutil.copytree(Path(TOKENIZERS) / name, folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    published = json.loads((folder / "config.json").read_text())
    config = transformers.MarianConfig.from_dict({**published, **SMALL, "dtype": "float32"})
    config._attn_implementation = "eager"
    model = transformers.MarianMTModel(config)
    tables = [m.weight.clone() for n, m in model.named_modules() if "embed_positions" in n]
    model = randomize_weights(model)
    model.model.shared.weight.data[config.pad_token_id] = 0
    for part in (model.model.encoder, model.model.decoder):
        part.embed_positions.weight.data = tables[0]
    model.save_pretrained(folder)
    assert logits_differ(folder, model, tmp_path / "ours", (1, 30, 7)) <= 2e-5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # recommends a package
        theirs = transformers.MarianTokenizer.from_pretrained(folder)
    ours = load_model_directory(tmp_path / "ours")
    has_tag = ours.tokenizer.languages.tokens
    texts = [*TEXTS, f"{TAG}Yes."] if has_tag else TEXTS
    runs = ours.info.origin.ids
    ids = [n for first, length in runs for n in range(first, first + length)]
    expected = theirs(texts).input_ids
    encoded = [[ids[n] for n in (*row, 3)] for row in ours.tokenizer.source.encode_batch(texts)]
    assert encoded == expected
    options = {"max_new_tokens": 9, "max_length": None, "num_beams": 1}
    unk = theirs.unk_token_id
    translated = list(translate_lines(tmp_path / "ours", texts, beam_size=1, max_length=8))
    for row, translation in zip(expected, translated, strict=True):
        output = model.generate(torch.tensor([row]), suppress_tokens=[unk], **options)[0, 1:]
        tokens = [n for n in output.tolist() if n != config.eos_token_id][:8]
        assert [ids[n] for n in translation.hypotheses[0].token_ids] == tokens
        assert translation.text == theirs.decode(tokens, skip_special_tokens=True)
