"""A trained model made as large as a preset without changing what it computes.

    python tests/benchmarks/widen.py MODEL OUTPUT PRESET

Speed depends on the shape of a model and on the lengths of what it writes. Random weights write
nothing with an end, and a large model takes long to train, so a small one is grown as in Net2Net
(Chen et al. 2016): every unit is repeated and what reads it takes the mean of its copies, and
behind each layer come others whose outputs are zero. Sentences, lengths, and so BLEU stay; all
matrices have the large model's shape, and every engine multiplies them in full.
"""

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from tformer_cli.artifacts.model_directory import load_model_directory, save_model_directory
from tformer_cli.errors import TformerError
from tformer_cli.model.config import PRESETS
from tformer_cli.model.transformer import Transformer
from tformer_cli.text.tokenizer import EOS_ID

LARGEST_DIFFERENCE = 1e-3
"""Of a log-probability; sums of float32 in another order differ by some 1e-5."""


def main():
    parser = argparse.ArgumentParser(description="Makes a model as large as a preset.")
    parser.add_argument("model", type=Path, help="a model directory of tformer")
    parser.add_argument("output", type=Path, help="the model directory to write")
    parser.add_argument("preset", choices=tuple(PRESETS))
    arguments = parser.parse_args()
    try:
        widen_directory(arguments.model, arguments.output, arguments.preset)
    except (TformerError, ValueError) as error:
        sys.stderr.write(f"error: no larger model ({arguments.model}): {error}\n")
        sys.exit(2)


def widen_directory(model, output, preset):
    """Writes the model directory of a grown model."""
    directory = load_model_directory(model)
    wide = widened(directory.model, preset)
    check_equal(directory.model, wide)
    save_model_directory(
        output,
        wide.state_dict(),
        config=wide.config,
        tokenizer=directory.tokenizer,
        decoding=directory.decoding,
        info=directory.info,
    )


def widened(model, preset):
    """Makes the larger model.

    With c copies of every dimension, √(c·D)·embedding must be what √D·embedding was, so embeddings
    are divided by √c; the output matrix, which is the same, then gives √c times the logits, and the
    norm before it makes up for that.
    """
    config = wide_config(model.config, preset)
    wide = Transformer(config, model.vocab_size).eval().requires_grad_(requires_grad=False)
    root = math.sqrt(config.d_model // model.config.d_model)
    _repeat(wide.source_embedding.weight, model.source_embedding.weight)
    wide.source_embedding.weight.div_(root)
    for large, small in (
        (wide.encoder_input, model.encoder_input),
        (wide.decoder_input, model.decoder_input),
    ):
        table = small.positions.rows(0, config.max_positions, torch.device("cpu"))
        _repeat(large.positions.rows(0, config.max_positions, torch.device("cpu")), table)
    for wide_stack, stack in ((wide.encoder, model.encoder), (wide.decoder, model.decoder)):
        _fill_layers(wide_stack.layers, stack.layers)
        _fill(wide_stack.final_norm, stack.final_norm)
    for parameter in wide.decoder.final_norm.parameters():
        parameter.div_(root)
    return wide


def wide_config(config, preset):
    """Returns the larger model's shape; its positions are a table."""
    shape = {name: size for name, size in PRESETS[preset].items() if name != "dropout"}
    if config.norm != "pre" or config.tied_embeddings != "all":
        raise ValueError("only a model with norms before its sub-layers and one embedding grows")
    if {n for layers in config.layer_heads for n in layers} != {config.n_heads}:
        raise ValueError("a model whose layers have lost heads does not grow")
    for name, size in shape.items():
        if size % getattr(config, name):
            raise ValueError(f"{name} = {size} is no multiple of {getattr(config, name)}")
    wide = replace(config, **shape, positions="learned")
    if wide.head_width != config.head_width:
        raise ValueError(f"heads are {wide.head_width} wide instead of {config.head_width}")
    return wide


def check_equal(model, wide):
    """Compares log-probabilities on random tokens."""
    draw = torch.Generator().manual_seed(1)
    length = min(24, model.config.max_positions)
    shape = (4, length)
    source, target = (
        torch.randint(EOS_ID, model.vocab_size, shape, generator=draw) for _ in range(2)
    )
    mask = torch.ones(shape, dtype=torch.bool)
    with torch.inference_mode():
        expected, found = (one(source, mask, target).log_softmax(-1) for one in (model, wide))
    difference = (found - expected).abs().max().item()
    if not difference <= LARGEST_DIFFERENCE:
        raise ValueError(f"its log-probabilities differ by {difference:g}")


def _fill_layers(wide, layers):
    """Fills layers; of those that come of one, all but the first add nothing to the residual."""
    n_each = len(wide) // len(layers)
    for i, layer in enumerate(wide):
        for name, module in layer.named_children():
            _fill(module, getattr(layers[i // n_each], name))
            if i % n_each:
                for part in ("out_projection", "outer"):
                    for parameter in getattr(module, part, nn.Identity()).parameters():
                        parameter.zero_()


def _fill(wide, module):
    """Fills a sub-layer or a norm with copies."""
    for name, large in wide.named_parameters():
        small = module.get_parameter(name)
        if name.startswith("in_projection"):
            # (3·D, D) or (3·D): queries, keys and values are repeated each by itself
            for large_part, small_part in zip(large.chunk(3), small.chunk(3), strict=True):
                _repeat(large_part, small_part)
        else:
            _repeat(large, small)
        if large.dim() == 2:
            large.div_(large.shape[1] // small.shape[1])  # the mean over copies of an input


def _repeat(large, small):
    """Writes a matrix or vector as often as it goes in."""
    times = [n // m for n, m in zip(large.shape, small.shape, strict=True)]
    large.copy_(small.repeat(times))


if __name__ == "__main__":
    main()
