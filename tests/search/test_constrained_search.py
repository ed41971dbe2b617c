"""Required phrases by an independent check: kept where they stand, and never at a needless cost.

Models are tiny and random. Phrases are cut from what these say freely, so they are nested, overlap,
repeat each other, and begin and end at any mark; all of them must leave the translation as it is.
Phrases of other hypotheses must cost no more than the best of these that holds them.
"""

import random
import re
from dataclasses import replace

import pytest
import torch

from tests.models import build, tokenizer_of
from tests.phrases import cut_phrases, stands_in
from tests.text.sentencepiece.conftest import SPECIAL, train_spm
from tformer_cli.fast.native_search import CompiledEngine
from tformer_cli.model.config import ModelConfig
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.constraints import LineConstraints
from tformer_cli.search.hypothesis import length_penalty
from tformer_cli.search.models import Ensemble
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.search.translator import Translator
from tformer_cli.text.sentencepiece.spm_file import read_spm
from tformer_cli.text.sentencepiece.tokenizer import Languages, SentencePieceTokenizer

TEXT = """
    le la chat chats vieille maison maisons a dormi l'animal l’été peut-être (rouge) « neuf » 雪
    雪が降る。 猫在睡觉。 قطة نائمة، हिन्दी का काम แมว นอน ein_wort 3.5 . , ! 'a' don't
"""
WORDS = TEXT.split()
ENGINES = {"compiled": CompiledEngine(), "torch": TorchEngine(torch.device("cpu"))}
N_BEST = 4


def split_at_bars(line):
    """The sentences of a line, each with the bar behind it."""
    return re.findall(r"[^|]+(?:\|\s*)?", line)


def lines_of(seed):
    dice = random.Random(seed)
    return [" ".join(dice.choices(WORDS, k=6)) for _ in range(200)]


def join_twice(model):
    return Ensemble([model, model], space="log")


def translator_of(tokenizer, seed, engine="compiled", join=lambda model: model, **settings):
    shape = ModelConfig(
        d_model=16, n_heads=2, d_ff=16, n_encoder_layers=1, n_decoder_layers=1, max_positions=40,
        source_vocab_size=tokenizer.source.vocab_size, tied_embeddings="none",
    )  # fmt: skip
    return Translator(
        join(build(shape, tokenizer.vocab_size, seed)),
        tokenizer,
        DecodingConfig(**{"beam_size": N_BEST, "max_length": 12} | settings),
        engines=[ENGINES[engine]],
        split_sentences=split_at_bars,
    )


def sources_of(dice, n):
    lines = [" ".join(dice.choices(WORDS, k=dice.randint(1, 5))) for _ in range(n)]
    return [f"{line} | {lines[0]}" if dice.random() < 0.3 else line for line in lines]


def meets(text, phrases):
    return all(stands_in(text, phrase) for phrase in phrases)


def check_kept(translator, dice, n):
    """Phrases of the free translation change nothing."""
    sources = sources_of(dice, n)
    free = translator.translate(sources)
    demands = [
        LineConstraints(required=cut_phrases(dice, translation.text, dice.randint(1, 4)))
        for translation in free
    ]
    assert translator.translate(sources, demands=demands) == free
    for found, expected, asked in zip(
        of_several(translator).translate(sources, demands=demands), free, demands, strict=True
    ):
        assert found.hypotheses[0].token_ids == expected.hypotheses[0].token_ids
        check_list(found, asked.required, translator.config)


def check_never_worse(translator, dice, n):
    """Phrases of any free hypothesis cost no more than the best hypothesis that holds them."""
    sources = sources_of(dice, n)
    lists = of_several(translator).translate(sources)
    demands = [
        LineConstraints(
            required=cut_phrases(dice, dice.choice(translation.hypotheses).text, dice.randint(1, 3))
        )
        for translation in lists
    ]
    found = translator.translate(sources, demands=demands)
    several = of_several(translator).translate(sources, demands=demands)
    for translation, other, free, asked in zip(found, several, lists, demands, strict=True):
        missing = [phrase for phrase in asked.required if not stands_in(translation.text, phrase)]
        assert list(translation.unsatisfied) == missing
        assert other.hypotheses[0].token_ids == translation.hypotheses[0].token_ids
        if free.n_parts == 1:  # of several parts a list has but some of the combinations
            assert not missing
            scores = [row.score for row in free.hypotheses if meets(row.text, asked.required)]
            if translator.config.risk == "none":
                assert translation.hypotheses[0].score >= max(scores) - 1e-4
            check_list(other, asked.required, translator.config)


def of_several(translator):
    return translator.with_config(replace(translator.config, n_best=N_BEST))


def check_list(translation, required, config):
    assert meets(translation.text, required)
    if translation.n_parts == 1:
        assert all(meets(hypothesis.text, required) for hypothesis in translation.hypotheses)
    if config.risk == "none":
        scores = [hypothesis.score for hypothesis in translation.hypotheses]
        assert scores == sorted(scores, reverse=True)


CHECKS = [check_kept, check_never_worse]
ALGORITHMS = ["bpe", "unigram", "word", "char", "byte"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("check", CHECKS)
def test_phrases_of_free_hypotheses(kernels, check, algorithm):
    tokenizer = tokenizer_of(lines_of(5), 400, algorithm)
    check(translator_of(tokenizer, seed=5), random.Random(algorithm), 4)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("check", CHECKS)
def test_ten_thousand_lines(kernels, check, algorithm):
    for seed in range(50):
        tokenizer = tokenizer_of(lines_of(seed), 400, algorithm)
        check(translator_of(tokenizer, seed), random.Random(f"{algorithm} {seed}"), 20)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"engine": "torch"},
        {"engine": "torch", "coverage_penalty": 0.3},
        {"engine": "torch", "repetition_penalty": 1.3},
        {"engine": "torch", "diversity_groups": 2},
        {"engine": "torch", "join": join_twice},
        {"length_normalization": "average", "no_repeat_ngram": 2},
        {"min_length": 4, "risk": "chrf"},
    ],
    ids=lambda settings: " ".join(settings) or "defaults",
)
@pytest.mark.parametrize("check", CHECKS)
def test_other_searches_keep_phrases(kernels, check, settings):
    check(translator_of(tokenizer_of(lines_of(5), 400), 5, **settings), random.Random(8), 4)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"model_type": "bpe", "vocab_size": 200},
        {"byte_fallback": True, "vocab_size": 400},
        {"remove_extra_whitespaces": False, "add_dummy_prefix": False},
        {"split_by_whitespace": False, "vocab_size": 300},
        {"normalization_rule_name": "nmt_nfkc_cf"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("check", CHECKS)
def test_pieces_of_imported_models_keep_phrases(kernels, check, settings):
    spm = train_spm(**settings)
    pieces = [*SPECIAL, *(piece for piece in read_spm(spm, "x.spm").pieces if piece not in SPECIAL)]
    tokenizer = SentencePieceTokenizer.build(spm, None, pieces, languages=Languages())
    check(translator_of(tokenizer, 5), random.Random(8), 5)


def test_samples_hold_what_is_required(kernels):
    tokenizer = tokenizer_of(lines_of(5), 400)
    translator = translator_of(tokenizer, 5, sampling=True, n_best=6, temperature=0.7)
    (free,) = translator.translate(["le chat"])
    phrases = cut_phrases(random.Random(2), free.hypotheses[1].text, 1)
    (found,) = translator.translate(["le chat"], demands=[LineConstraints(required=phrases)])
    for old, new in zip(free.hypotheses, found.hypotheses, strict=True):
        assert meets(new.text, phrases)
        assert new == old or not meets(old.text, phrases)


SENTENCES = ["le chat a dormi |", "vieille maison |", "(rouge) neuf"]


def score_of(translations):
    """The score of a line whose sentences are translated so."""
    best = [translation.hypotheses[0] for translation in translations]
    n_tokens = sum(len(hypothesis.token_ids) + 1 for hypothesis in best)
    return sum(hypothesis.log_probability for hypothesis in best) / length_penalty(n_tokens, 0.6)


def test_any_sentence_of_a_line_may_hold_a_phrase(kernels):
    translator, line = translator_of(tokenizer_of(lines_of(5), 400), 5), " ".join(SENTENCES)
    (free,), alone = translator.translate([line]), translator.translate(SENTENCES)
    assert free.text == " ".join(translation.text for translation in alone)
    crossing = f"{alone[0].text.split()[-1]} {alone[1].text.split()[0]}"
    for phrases in (
        (crossing,),
        *(cut_phrases(random.Random(3), translation.text, 3) for translation in alone),
    ):
        demands = [LineConstraints(required=phrases)]
        assert translator.translate([line], demands=demands) == [free]
        several = of_several(translator).translate([line], demands=demands)[0]
        assert all(meets(hypothesis.text, phrases) for hypothesis in several.hypotheses)


def test_a_phrase_goes_where_it_costs_a_line_least(kernels):
    translator, line = translator_of(tokenizer_of(lines_of(5), 400), 5), " ".join(SENTENCES)
    alone = translator.translate(SENTENCES)
    demands = [LineConstraints(required=("ein_wort 3.5",))]
    bound = translator.translate(SENTENCES, demands=demands * len(SENTENCES))
    (found,) = translator.translate([line], demands=demands)
    ways = [[*alone[:i], bound[i], *alone[i + 1 :]] for i in range(len(SENTENCES))]
    assert not found.unsatisfied
    assert found.hypotheses[0].score == pytest.approx(max(map(score_of, ways)))
    # Sentences may be searched in any batches
    (prepared,) = translator.prepare([line], demands=demands)
    parts = [translator.search([sentence])[0] for sentence in prepared.sentences]
    assert translator.finish(prepared, parts) == found


@pytest.mark.parametrize("settings", [{}, {"sampling": True}, {"engine": "torch"}])
def test_what_cannot_be_met_leaves_the_free_translation(kernels, settings):
    translator = translator_of(tokenizer_of(lines_of(5), 400), 5, n_best=3, **settings)
    asked = LineConstraints(required=(" chats maisons" * 9, "\ue000"))
    (free,) = translator.translate(["le chat"])
    (found,) = translator.translate(["le chat"], demands=[asked])
    assert found == replace(free, unsatisfied=asked.required)
