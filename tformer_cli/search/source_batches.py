"""Source sentences as padded batches of one shape, by a budget of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tformer_cli.search.config import TORCH_BATCH_TOKENS
from tformer_cli.search.hypothesis import longest_translation
from tformer_cli.text.tokenizer import EOS_ID, PAD_ID, ended_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from tformer_cli.model.config import ModelConfig
    from tformer_cli.search.config import DecodingConfig

LENGTH_STEP = 16
"""Sources are padded to a multiple of this."""
LARGEST_LOGITS = 1 << 26
"""Most logits computed in one step, so that wide beams and large vocabularies fit in memory."""

GPU_BATCH_TOKENS = 1 << 15
"""Most source tokens of a batch on a GPU, unless the settings name more."""
_LOGIT_BYTES = 16
"""Bytes of a logit of a step: itself, its log-probability and scores, in float32."""


class Room(NamedTuple):
    """Limits of a batch of a search."""

    tokens: int = TORCH_BATCH_TOKENS
    """Source tokens, padding included."""
    logits: int = LARGEST_LOGITS
    """Logits of a step."""


def gpu_room(config: ModelConfig, n_rows: int, free_memory: int) -> Room:
    """Estimates the room for batches with W = `n_rows` hypotheses a line on a GPU."""
    # Half is left to what other programs take, and to the encoder
    a_position = 2 * 4 * config.d_model * config.n_decoder_layers  # keys and values, in float32
    # The source's, once; of W hypotheses twice as long three times as much: their room doubles as
    # they grow, and the old one is there while the new one is filled
    tokens = free_memory // 4 // (a_position * (1 + 3 * 2 * n_rows))
    logits = free_memory // 4 // _LOGIT_BYTES
    usual = Room()
    return Room(min(max(usual.tokens, tokens), GPU_BATCH_TOKENS), max(usual.logits, logits))


def padded_length(n_tokens: int) -> int:
    """Returns the length a source of this many tokens, end of sentence counted, is padded to."""
    return -(-n_tokens // LENGTH_STEP) * LENGTH_STEP


def plan_source_batches(
    lengths: Sequence[int], batch_tokens: int, most_sentences: int
) -> list[list[int]]:
    """Groups sentences of one padded length, within the budget, shortest first."""
    # One length only: the shapes a sentence is computed in follow from its own length and not
    # from its neighbors, which keeps its result the same to the last bit
    by_length: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        by_length.setdefault(padded_length(length), []).append(index)
    batches = []
    for length, indices in sorted(by_length.items()):
        # At least one: a sentence above the budget is translated all the same
        size = max(1, min(batch_tokens // length, most_sentences))
        batches += [indices[start : start + size] for start in range(0, len(indices), size)]
    return batches


def source_batch(
    sentences: Sequence[Sequence[int]],
    max_positions: int,
    device: torch.device | str,
    *,
    eos: bool = True,
) -> tuple[Tensor, Tensor]:
    """Pads sentences, each ended by its end of sentence: (B, S) ids and their mask."""
    import torch

    from tformer_cli.model.transfer import copy_to_device

    # padded by the length that `plan_source_batches` is given, whatever ends a sentence
    longest = min(padded_length(max(map(len, sentences)) + 1), max_positions)
    ended = [ended_source(sentence, eos=eos) for sentence in sentences]
    rows = [[*ids, *[PAD_ID] * (longest - len(ids))] for ids in ended]
    lengths = torch.tensor(list(map(len, ended)))
    mask = torch.arange(longest) < lengths.unsqueeze(1)
    ids, mask = copy_to_device([torch.tensor(rows), mask], torch.device(device))
    return ids, mask.bool()


def image_batch(
    images: Sequence[Sequence[int]], ids_per_token: int, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    """Puts images of one size together: (B, H·W·C) ids and the mask (B, N) of N patches."""
    import torch

    ids = torch.tensor(images, dtype=torch.int64)
    mask = torch.ones(len(ids), ids.shape[1] // ids_per_token, dtype=torch.bool)
    return ids.to(device), mask.to(device)


def longest_translations(
    source: Tensor,
    source_mask: Tensor,
    config: DecodingConfig,
    max_positions: int,
    n_prefixes: Sequence[int] = (),
) -> list[int]:
    """Returns the most tokens that the translation of each source (B, S) may have."""
    # Whether a model's sources end with it must not change the limit
    n_tokens = (source_mask & (source != EOS_ID)).sum(dim=1).tolist()
    lengths = zip(n_tokens, n_prefixes or [0] * len(n_tokens), strict=True)
    return [longest_translation(n, config, max_positions, before) for n, before in lengths]
