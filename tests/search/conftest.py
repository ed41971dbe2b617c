"""Models whose probabilities are a table, and small random ones."""

import itertools
import math
import random
from dataclasses import dataclass, field

import pytest
import torch

from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.runtime import prepare_cpu
from tformer_cli.search.hypothesis import length_penalty
from tformer_cli.text.tokenizer import EOS_ID


@dataclass
class PrefixCache:
    """Remembers the target prefix of every row and the sentence it belongs to."""

    sentences: list[int]
    prefixes: list[tuple[int, ...]]
    beam_size: int

    def reorder(self, rows, sentences):
        names = [self.sentences[row // self.beam_size] for row in rows.tolist()]
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]
        self.beam_size = len(rows) // len(sentences)
        self.sentences = [self.sentences[i] for i in sentences]
        assert names == [s for s in self.sentences for _ in range(self.beam_size)]


@dataclass
class TabulatedModel:
    """Looks up logits by (first source token, target prefix); they are drawn by seed."""

    vocab_size: int
    max_positions: int = 64
    spread: float = 2.0
    rows_per_step: list[int] = field(default_factory=list)
    source_eos: bool = True

    def encode(self, source, source_mask):
        return source.unsqueeze(-1).float()

    def start_cache(self, memory, source_mask, beam_size, max_length):
        names = [int(name) for name in memory[:, 0, 0].tolist()]
        return PrefixCache(names, [()] * (len(names) * beam_size), beam_size)

    def decode_step(self, tokens, cache):
        assert len(tokens) == len(cache.prefixes) == len(cache.sentences) * cache.beam_size
        self.rows_per_step.append(len(tokens))
        cache.prefixes = [
            (*prefix, token) for prefix, token in zip(cache.prefixes, tokens.tolist(), strict=True)
        ]
        return torch.stack(
            [
                self.logits(cache.sentences[row // cache.beam_size], prefix[1:])
                for row, prefix in enumerate(cache.prefixes)
            ]
        )

    def logits(self, sentence, prefix):
        dice = random.Random(repr((sentence, prefix)))
        return torch.tensor([dice.gauss(0.0, self.spread) for _ in range(self.vocab_size)])

    def log_probabilities(self, sentence, tokens):
        """log p of each token, the end of sentence included."""
        return [
            self.logits(sentence, tuple(tokens[:i])).log_softmax(-1)[token].item()
            for i, token in enumerate([*tokens, EOS_ID])
        ]

    def exhaustive(self, sentence, longest, exponent):
        """Every sequence of up to `longest` tokens with its score, best first."""
        ranked = []
        for n_tokens in range(longest + 1):
            for tokens in itertools.product(range(EOS_ID + 1, self.vocab_size), repeat=n_tokens):
                total = math.fsum(self.log_probabilities(sentence, tokens))
                ranked.append((total / length_penalty(n_tokens + 1, exponent), tokens))
        return sorted(ranked, reverse=True)


def batch_of(*sentences):
    """Sources as (B, S) tokens and mask; each sentence is a list of ids, the end is added."""
    longest = max(map(len, sentences)) + 1
    rows = [[*s, EOS_ID, *[0] * (longest - len(s) - 1)] for s in sentences]
    mask = [[i <= len(s) for i in range(longest)] for s in sentences]
    return torch.tensor(rows), torch.tensor(mask)


@pytest.fixture(autouse=True, scope="module")
def repeatable_products():
    """Computes as the commands do, on one thread; says whether oneDNN is to be had."""
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision, torch.get_num_threads()
    torch.set_num_threads(1)
    yield prepare_cpu.__wrapped__()
    matmul.fp32_precision = before[0]
    torch.set_num_threads(before[1])


@pytest.fixture
def tabulated():
    return TabulatedModel


@pytest.fixture
def batch():
    return batch_of


@pytest.fixture(scope="session")
def random_model():
    """A model of the size that a lone row of it is still a product worth a kernel."""
    torch.manual_seed(5)
    config = ModelConfig(
        d_model=64, n_heads=2, d_ff=128, n_encoder_layers=2, n_decoder_layers=2, max_positions=80
    )
    return Transformer(config, 60).eval()
