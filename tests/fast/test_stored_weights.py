"""Weights that are read from a file and have pages of their own, as those of large models do."""

import pytest

from tests.foreign.own import TRANSLATION, own_model
from tformer_cli.artifacts import weights_file
from tformer_cli.kinds.lines.translate import translate_lines
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer


@pytest.mark.parametrize("tied", ["all", "none"])
def test_matrices_that_are_read_in_place_are_never_given_back(tmp_path, monkeypatch, tied):
    lines = ["a dog", "two men in the street"]
    tokenizer = train_tokenizer(lines, TokenizerConfig(vocab_size=300))
    settings = {**TRANSLATION, "tied_embeddings": tied}
    own_model(tmp_path / "model", tokenizer, settings)

    def scores(engine):
        found = translate_lines(tmp_path / "model", lines, engine=engine, max_length=6)
        return [translation.hypotheses[0].score for translation in found]

    wanted = scores("torch")
    monkeypatch.setattr(weights_file, "_BLOCK", 8)  # so that every array is large
    assert scores("compiled") == pytest.approx(wanted, abs=1e-4)
