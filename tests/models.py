"""Model directories with random weights, for tests that need a shape of their own.

A kind of model as such is in `tests/zoo.py`.
"""

from pathlib import Path

import torch

from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.artifacts.model_directory import save_model_directory
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier, EncoderOnly
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

LINES = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A woman and a dog."]
SMALL = {"d_model": 16, "n_heads": 2, "d_ff": 16, "n_encoder_layers": 1, "n_decoder_layers": 1}


def tokenizer_of(lines=LINES * 3, vocab_size=300, algorithm="bpe"):
    """Trains a joint tokenizer."""
    return train_tokenizer(lines, TokenizerConfig(algorithm=algorithm, vocab_size=vocab_size))


def build(config, vocab_size, seed=1):
    """Makes the model that a shape is of, with random weights; it evaluates."""
    torch.manual_seed(seed)
    if config.n_decoder_layers:
        model = Transformer(config, vocab_size)
    else:
        model = (Classifier if config.n_labels else EncoderOnly)(config, vocab_size)
    return model.eval()


def save_random(
    path, lines=LINES * 3, *, algorithm="bpe", vocab_size=300, tokenizer=None, seed=1, scale=1.0,
    decoding=None, info=None, **shape,
):  # fmt: skip
    """Writes the directory of a model with random weights."""
    tokenizer = tokenizer or tokenizer_of(lines, vocab_size, algorithm)
    config = ModelConfig(**{**SMALL, **shape})
    weights = build(config, tokenizer.vocab_size, seed).state_dict()
    save_model_directory(
        Path(path),
        {name: scale * weight for name, weight in weights.items()},
        config=config,
        tokenizer=tokenizer,
        decoding=DecodingConfig(**(decoding or {})),
        info=ModelInfo(**(info or {})),
    )
    return Path(path)
