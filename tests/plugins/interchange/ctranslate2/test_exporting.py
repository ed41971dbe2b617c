import sys

import pytest
import torch

from tests.foreign.own import TRANSLATION, own_model
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import UsageError
from tformer_cli.plugins.interchange.ctranslate2.exporting import export_ctranslate2
from tformer_cli.text.tokenizer import BOS_ID, EOS_ID

VARIANTS = [
    {"norm": "pre", "activation": "gelu", "positions": "learned", "tied_embeddings": "none"},
    {"norm": "post", "tied_embeddings": "decoder", "norm_epsilon": 1e-3},
    {"norm": "pre", "positions": "rotary", "activation": "swish"},
    {"norm": "pre", "positions": "rotary", "rotary_base": 500.0},
    {"positions": "table", "output_bias": True, "scale_embeddings": False},
    {"norm": "pre", "embedding_norm": True},
    {"source_eos": False},
    {"norm": "pre", "bias": False, "n_encoder_layers": 1, "n_decoder_layers": 3},
]


def forced_log_probabilities(model, source, target):
    source_ids = torch.tensor([[*source, EOS_ID] if model.source_eos else source])
    with torch.inference_mode():
        logits = model.eval()(
            source_ids, torch.ones_like(source_ids, dtype=torch.bool), torch.tensor([target[:-1]])
        )
    chosen = torch.tensor(target[1:])
    return logits[0].log_softmax(-1).gather(1, chosen[:, None]).squeeze(1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_engine_gives_every_token_the_models_own_probability(model, tmp_path, variant):
    ctranslate2 = pytest.importorskip("ctranslate2")
    tokenizer = load_model_directory(model).tokenizer
    layers = {"n_encoder_layers": 2, "n_decoder_layers": 2}
    weights = own_model(tmp_path / "m", tokenizer, {**TRANSLATION, **layers, **variant})
    export_ctranslate2(load_model_directory(tmp_path / "m"), tmp_path / "e", "float32")
    engine = ctranslate2.Translator(str(tmp_path / "e"), compute_type="float32")
    source, target = tokenizer.encode("A dog in the street."), tokenizer.encode("Two men")
    scored = engine.score_batch([tokenizer.pieces(source)], [tokenizer.pieces(target)])[0]
    expected = forced_log_probabilities(weights, source, [BOS_ID, *target, EOS_ID])
    assert scored.tokens == [*tokenizer.pieces(target), "</s>"]
    assert torch.allclose(torch.tensor(scored.log_probs), expected, atol=1e-4)


def test_without_the_package_an_error_names_the_install_command(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(UsageError, match=r"pip install 'tformer\[ctranslate2\]'"):
        export_ctranslate2(load_model_directory(model), tmp_path / "e", "float32")
    assert not any(tmp_path.iterdir())
