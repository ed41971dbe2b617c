"""Required and banned phrases at once: satisfied in the text, or reported."""

import itertools
import random

import pytest

from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.constraints import Constraints, constrained_search, holds, unsatisfied
from tformer_cli.search.hypothesis import longest_translation
from tformer_cli.search.torch_search import TorchSteps
from tformer_cli.text.tokenizer import EOS_ID

# Pieces of words: an "a" that goes on with a word, and the same at a word's beginning
PIECES = [b"", b"", b"", b"", b" a", b" b", b" c", b"a", b"b", b" ab", b"."]


def ids_of(phrase):
    """The longest pieces first, as a tokenizer would."""
    rest, ids = (" " + phrase).encode(), []
    while rest:
        piece = max((p for p in PIECES if p and rest.startswith(p)), key=len)
        ids.append(PIECES.index(piece))
        rest = rest[len(piece) :]
    return tuple(ids)


def text_of(tokens):
    return b"".join(PIECES[token] for token in tokens).decode().removeprefix(" ")


def search(model, batch, name, config, required, banned):
    constraints = Constraints(
        required=tuple(map(ids_of, required)), banned=banned, token_bytes=PIECES
    )
    source, source_mask = batch([name])
    limit = longest_translation(source.shape[1] - 1, config, model.max_positions)
    steps = TorchSteps(model, source, source_mask, limit + 1)
    return constrained_search(steps, limit, config, constraints)


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        ("the cat sat", "cat", True),
        ("the category", "cat", False),
        ("a bobcat", "cat", False),
        ("cat", "cat", True),
        ("l'animal.", "animal", True),
        ("one (two)", "(two)", True),
        ("two cats", "two cat", False),
    ],
)
def test_a_phrase_is_whole_words(text, phrase, expected):
    assert holds(text, phrase) is expected


def test_what_is_missing_and_what_should_be_is_named():
    assert unsatisfied("a dog ran", ["dog", "cat"], ["ran", "sat"]) == ["cat", "ran"]


def test_a_wide_beam_finds_the_best_of_all_that_satisfy(tabulated, batch):
    model = tabulated(vocab_size=9)  # " a", " b", " c", "a", "b"
    config = DecodingConfig(beam_size=900, n_best=3, max_length=4)
    required, banned = ("b",), ("a", "bb")
    found = search(model, batch, 5, config, required, banned)
    ranked = []
    for n in range(5):
        for tokens in itertools.product(range(EOS_ID + 1, 9), repeat=n):
            # at the very beginning "b" would be a word, too, but not by the token of one
            follows = zip(tokens, (*tokens, EOS_ID)[1:], strict=True)
            is_said = any(token == 5 and after not in (7, 8) for token, after in follows)
            if is_said and not unsatisfied(text_of(tokens), required, banned):
                total = sum(model.log_probabilities(5, tokens))
                ranked.append((total / ((5 + n + 1) / 6) ** 0.6, tokens))
    ranked.sort(reverse=True)
    assert [h.token_ids for h in found] == [tokens for _, tokens in ranked[:3]]
    assert [h.score for h in found] == pytest.approx([score for score, _ in ranked[:3]])
    assert found[0].token_log_probabilities == pytest.approx(
        model.log_probabilities(5, found[0].token_ids), abs=1e-5
    )


def fuzz(tabulated, batch, n_cases, seed):
    dice = random.Random(seed)
    phrases = ["a", "b", "c", "ab", "a b", "b c", "c a b", "ba", "aa", "c."]
    for _ in range(n_cases):
        model = tabulated(vocab_size=len(PIECES), spread=dice.choice([0.5, 2.0, 6.0]))
        required = tuple(dice.sample(phrases, dice.randint(0, 3)))
        banned = tuple(
            p
            for p in dice.sample(phrases, dice.randint(0, 3))
            if not any(holds(phrase, p) for phrase in required)
        )
        config = DecodingConfig(beam_size=dice.choice([1, 2, 5]), max_length=dice.randint(10, 14))
        name = dice.randint(4, 1000)
        yield (
            required,
            banned,
            search(model, batch, name, config, required, banned),
        )


def test_required_and_banned_phrases_are_satisfied_together(tabulated, batch):
    for required, banned, found in fuzz(tabulated, batch, 60, seed=1):
        assert found, (required, banned)
        for hypothesis in found:
            text = text_of(hypothesis.token_ids)
            assert unsatisfied(text, required, banned) == [], (text, required, banned)


@pytest.mark.slow
def test_ten_thousand_cases_are_satisfied_or_empty(tabulated, batch):
    n_empty = 0
    for required, banned, found in fuzz(tabulated, batch, 10_000, seed=2):
        n_empty += not found
        for hypothesis in found:
            text = text_of(hypothesis.token_ids)
            assert unsatisfied(text, required, banned) == [], (text, required, banned)
    assert n_empty < 100  # a search without a way is reported as empty


def test_what_does_not_fit_the_limit_has_no_way(tabulated, batch):
    config = DecodingConfig(beam_size=3, max_length=2)
    assert search(tabulated(vocab_size=11), batch, 4, config, ("a b c",), ()) == []
