"""Rules about tokens, and required and banned phrases at once: satisfied, or reported."""

import itertools
import math
import random
from unicodedata import name

import pytest
import torch

from tests.phrases import is_inside
from tformer_cli.search.beam_search import beam_search
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.constrained_search import constrained_search
from tformer_cli.search.constraints import Constraints, holds, joins, unsatisfied_phrases
from tformer_cli.search.hypothesis import length_divisor, longest_translation
from tformer_cli.search.processors import StepRows, make_processors
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
        # Scripts without spaces: anywhere, but no mark is cut from its character
        ("这只猫很大", "猫", True),
        ("雪が降る", "降る", True),
        ("プログラム", "ラム", False),
        ("แมวนอน", "นอน", True),
        ("แม่นอน", "แม", False),
        ("猫2", "2", True),
        ("๒๓", "๒", False),
        ("हिन्दी काम", "का", False),
        ("हिन्दी का काम", "का", True),
    ],
)
def test_a_phrase_is_whole_words(text, phrase, expected):
    assert holds(text, phrase) is expected


def test_characters_join_as_unicode_says():
    characters = [chr(n) for n in range(0x20000) if n % 16 < 3 and name(chr(n), "")]
    differ = {
        name(character)
        for neighbor in ("a", "猫", "\N{COMBINING ACUTE ACCENT}")
        for character in characters
        for pair in (character + neighbor, neighbor + character)
        if joins(*pair) != is_inside(pair, 1)
    }
    # To Unicode marks of repetition are no ideographs, and numerals of traders are
    rest = {
        character for character in differ if not character.startswith(("IDEOGRAPHIC", "HANGZHOU"))
    }
    assert rest <= {"TANGUT ITERATION MARK", "NUSHU ITERATION MARK"}


def test_what_is_missing_and_what_should_be_is_named():
    assert unsatisfied_phrases("a dog ran", ["dog", "cat"], ["ran", "sat"]) == ["cat", "ran"]


def test_a_wide_beam_finds_the_best_of_all_that_satisfy(tabulated, batch):
    model = tabulated(vocab_size=9)  # " a", " b", " c", "a", "b"
    config = DecodingConfig(beam_size=900, n_best=3, max_length=4)
    required, banned = ("b",), ("a", "bb")
    found = search(model, batch, 5, config, required, banned)
    ranked = []
    for n in range(5):
        for tokens in itertools.product(range(EOS_ID + 1, 9), repeat=n):
            if not unsatisfied_phrases(text_of(tokens), required, banned):
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
            assert unsatisfied_phrases(text, required, banned) == [], (text, required, banned)


@pytest.mark.long
def test_ten_thousand_cases_are_satisfied_or_empty(tabulated, batch):
    n_empty = 0
    for required, banned, found in fuzz(tabulated, batch, 10_000, seed=2):
        n_empty += not found
        for hypothesis in found:
            text = text_of(hypothesis.token_ids)
            assert unsatisfied_phrases(text, required, banned) == [], (text, required, banned)
    assert n_empty < 100  # a search without a way is reported as empty


def test_what_does_not_fit_the_limit_has_no_way(tabulated, batch):
    config = DecodingConfig(beam_size=3, max_length=2)
    assert search(tabulated(vocab_size=11), batch, 4, config, ("a b c",), ()) == []


LONGEST = 4
N_TOKENS = 2


def ngrams(tokens, n):
    return list(zip(*(tokens[i:] for i in range(n)), strict=False))


def exhaustive(model, sentence, config, is_allowed, total=math.fsum):
    ranked = []
    for n in range(LONGEST + 1):
        for tokens in itertools.product(range(EOS_ID + 1, EOS_ID + 1 + N_TOKENS), repeat=n):
            if is_allowed(tokens):
                steps = model.log_probabilities(sentence, tokens)
                value = total(steps) if total is math.fsum else total(steps, tokens)
                ranked.append((value / length_divisor(n + 1, config), tokens))
    return sorted(ranked, reverse=True)


def penalize(steps, tokens):
    said = [token in tokens[:i] for i, token in enumerate([*tokens, EOS_ID])]
    return math.fsum(
        step * (1.5 if again else 1.0) for step, again in zip(steps, said, strict=True)
    )


CASES = {
    "average": ({"length_normalization": "average"}, lambda tokens: True, math.fsum),
    "shortest": ({"min_length": 2}, lambda tokens: len(tokens) >= 2, math.fsum),
    "by ratio": ({"min_length_ratio": 1.5}, lambda tokens: len(tokens) >= 3, math.fsum),
    "no bigram twice": (
        {"no_repeat_ngram": 2},
        lambda tokens: len(set(ngrams(tokens, 2))) == max(0, len(tokens) - 1),
        math.fsum,
    ),
    "no token twice": (
        {"no_repeat_ngram": 1},
        lambda tokens: len(set(tokens)) == len(tokens),
        math.fsum,
    ),
    "repetition": ({"repetition_penalty": 1.5}, lambda tokens: True, penalize),
    "prefix": ({"prefixes": [(5, 4)] * 2}, lambda tokens: tokens[:2] == (5, 4), math.fsum),
}


@pytest.mark.parametrize("name", CASES)
def test_search_equals_exhaustive_search_under_every_rule(name, tabulated, batch):
    settings, is_allowed, total = CASES[name]
    settings = dict(settings)
    rules = {key: settings.pop(key) for key in ("prefixes",) if key in settings}
    model = tabulated(vocab_size=EOS_ID + 1 + N_TOKENS)
    config = DecodingConfig(beam_size=31, n_best=31, max_length=LONGEST, **settings)
    processors = make_processors(config, [2, 2], 64, torch.device("cpu"), **rules)
    found = beam_search(model, *batch([4, 4], [5, 5]), config, processors=processors)
    for sentence, hypotheses in zip((4, 5), found, strict=True):
        expected = exhaustive(model, sentence, config, is_allowed, total)
        assert [h.token_ids for h in hypotheses] == [tokens for _, tokens in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in expected])
        for hypothesis in hypotheses:  # what is reported stays the model's own
            assert hypothesis.token_log_probabilities == pytest.approx(
                model.log_probabilities(sentence, hypothesis.token_ids), abs=1e-5
            )


@pytest.mark.parametrize("name", CASES)
def test_stopping_early_changes_nothing_under_any_rule(name, tabulated, batch):
    settings = dict(CASES[name][0])
    rules = {key: settings.pop(key) for key in ("prefixes",) if key in settings}
    if "prefixes" in rules:
        rules["prefixes"] = [(5, 4)] * 12
    model = tabulated(vocab_size=8, spread=3.0)
    config = DecodingConfig(beam_size=4, n_best=2, max_length=9, **settings)
    processors = make_processors(config, [2] * 12, 64, torch.device("cpu"), **rules)
    sources = batch(*[[i, i] for i in range(4, 16)])
    late = beam_search(model, *sources, config, processors=processors, stops_early=False)
    assert beam_search(model, *sources, config, processors=processors) == late


def test_a_sentence_that_may_say_nothing_more_ends(tabulated, batch):
    config = DecodingConfig(beam_size=2, n_best=2, max_length=6, min_length=4, no_repeat_ngram=1)
    processors = make_processors(config, [1], 64, torch.device("cpu"))
    (found,) = beam_search(tabulated(vocab_size=6), *batch([4]), config, processors=processors)
    assert sorted(h.token_ids for h in found) == [(4, 5), (5, 4)]


def test_a_prefix_comes_before_other_rules():
    config = DecodingConfig(no_repeat_ngram=1)
    rules = make_processors(config, [1], 64, torch.device("cpu"), prefixes=[(4, 4)])
    own = torch.full((1, 6), -2.0)
    scores = own.clone()
    rows = StepRows(torch.tensor([[4]]), torch.tensor([0]), own)
    for rule in rules:
        scores = rule(scores, rows)
    assert scores.isfinite().nonzero().tolist() == [[0, 4]]
