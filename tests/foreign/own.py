"""Models of one's own: of any shape, with random weights, for what exports make of them."""

import torch

from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import save_model_directory
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import model_of
from tformer_cli.search.config import DecodingConfig

TRANSLATION = {"d_model": 32, "n_heads": 4, "d_ff": 48, "n_encoder_layers": 2,
               "n_decoder_layers": 3, "max_positions": 40}  # fmt: skip
LANGUAGE_MODEL = {**TRANSLATION, "n_encoder_layers": 0, "n_decoder_layers": 2, "norm": "pre"}
T5 = {"d_model": 16, "n_heads": 2, "d_head": 6, "d_ff": 24, "n_encoder_layers": 1,
      "n_decoder_layers": 2, "norm": "pre", "norm_kind": "rms", "positions": "relative",
      "bias": False, "scale_embeddings": False, "max_positions": 64}  # fmt: skip


def own_model(path, tokenizer, settings, *, change=None, decoding=None, info=None):
    """Writes a model directory.

    Args:
        path: the directory.
        tokenizer: its tokenizer.
        settings: of its `ModelConfig`.
        change: called with the model before it is written.
        decoding: its defaults of the search.
        info: facts about it.

    Returns:
        The model, in which no parameter has the value that a mistake would have.
    """
    config = ModelConfig(**settings)
    torch.manual_seed(5)
    model = model_of(config, tokenizer.vocab_size).eval()
    with torch.no_grad():
        for parameter in (*model.parameters(), *model.buffers()):
            parameter.add_(torch.randn_like(parameter) * 0.1)
    if change is not None:
        change(model)
    save_model_directory(
        path,
        model.state_dict(),
        config=config,
        tokenizer=tokenizer,
        decoding=decoding or DecodingConfig(),
        info=info or ModelInfo(),
    )
    return model
