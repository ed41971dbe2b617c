"""Position vectors of other tools: sines in one half, cosines in the other."""

import math

import numpy as np

from tformer_cli.foreign.formats.lazy_arrays import Array

MOST_NUMBERS = 1 << 25
"""Numbers of a table, far beyond any in use: a hostile file may ask for any."""


def paper_halves(n_positions: int, d_model: int) -> Array:
    """The paper's frequencies 10000^(-2i/D), as Hugging Face's Marian and Pegasus have them."""
    _check_size(n_positions, d_model)
    exponents = 2 * (np.arange(d_model) // 2) / d_model
    angles = np.arange(n_positions)[:, None] / np.power(10000, exponents)
    halves = [np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])]
    return np.concatenate(halves, axis=1).astype(np.float32)


def tensor2tensor_halves(n_positions: int, d_model: int, first: int = 0) -> Array:
    """The frequencies 10000^(-i/(D/2 - 1)) of tensor2tensor, fairseq, Marian and CTranslate2."""
    _check_size(n_positions, d_model)
    half = d_model // 2
    step = np.float32(-math.log(10000) / max(half - 1, 1))
    frequencies = np.exp(np.arange(half, dtype=np.float32) * step)
    places = np.arange(first, first + n_positions, dtype=np.float32)
    angles = places[:, None] * frequencies
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.pad(table, ((0, 0), (0, d_model - 2 * half)))


def _check_size(n_positions: int, d_model: int) -> None:
    if n_positions * d_model > MOST_NUMBERS:
        raise ValueError(
            f"{n_positions:,} positions of {d_model:,} numbers are more than any model has"
        )
