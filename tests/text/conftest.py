"""A small parallel corpus, and tokenizers trained on it."""

import pytest

from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.joint_tokenizer import ALGORITHMS
from tformer_cli.text.train_tokenizer import train_tokenizer

NOUNS = [("dog", "Hund"), ("man", "Mann"), ("car", "Wagen"), ("boy", "Junge"), ("tree", "Baum")]
VERBS = [("sees", "sieht"), ("finds", "findet"), ("wants", "will"), ("buys", "kauft")]
TAILS = [("", ""), (" in the street", " auf der Straße"), (" again", " wieder")]


def make_pairs() -> list[tuple[str, str]]:
    return [
        (f"The {a} {verb} the {b}{tail}.", f"Der {x} {tut} den {y}{ende}.")
        for a, x in NOUNS
        for verb, tut in VERBS
        for b, y in NOUNS
        for tail, ende in TAILS
    ]


@pytest.fixture(scope="session")
def pairs() -> list[tuple[str, str]]:
    return make_pairs()


@pytest.fixture(scope="session")
def tokenizers():
    lines = [line for pair in make_pairs() for line in pair]
    return {
        name: train_tokenizer(lines, TokenizerConfig(algorithm=name, vocab_size=320))
        for name in ALGORITHMS
    }
