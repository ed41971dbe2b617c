import itertools
import math
import random
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tformer_cli.errors import DataError
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search import torch_search
from tformer_cli.search.config import TORCH_BATCH_TOKENS, DecodingConfig
from tformer_cli.search.constraints import LineConstraints, Term, read_glossary, with_terms
from tformer_cli.search.hypothesis import Hypothesis
from tformer_cli.search.sentences import split_line, split_sentences
from tformer_cli.search.source_batches import Room, gpu_room
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.search.torch_search import TorchSearch
from tformer_cli.search.translator import (
    GPU_BUFFER_LINES,
    LINE_ENDS,
    LONGEST_PART,
    Translator,
    best_sums,
    expected_utilities,
)
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.train_tokenizer import train_tokenizer

ENGINES = [TorchEngine(torch.device("cpu"))]
LINES = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A woman, a dog and a street."]
NASTY = ["", " \t ", "\x00", "a\u2028b", "x\ry", "\x0c", "ünïcödé", "🙂", "</s> <pad>", "\ufffd"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(LINES * 3, TokenizerConfig(vocab_size=300))


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(2)
    config = ModelConfig(
        d_model=64, n_heads=2, d_ff=96, n_encoder_layers=1, n_decoder_layers=1, max_positions=40
    )
    return Transformer(config, tokenizer.vocab_size).eval()


@pytest.fixture(scope="module")
def translator_of(model, tokenizer):
    def make(too_long="split", split_sentences=None, **settings):
        config = DecodingConfig(**{"beam_size": 2, "max_length": 8, **settings})
        return Translator(
            model,
            tokenizer,
            config,
            engines=ENGINES,
            too_long=too_long,
            split_sentences=split_sentences,
        )

    return make


def test_there_is_one_translation_a_line_in_order(translator_of):
    lines = [*LINES, *NASTY, *LINES]
    found = translator_of().translate(lines, first_index=7)
    assert [t.source for t in found] == lines
    assert [t.index for t in found] == list(range(7, 7 + len(lines)))
    assert [t.text for t in found[:4]] == [t.text for t in found[-4:]]


def test_blank_lines_have_blank_translations_without_the_model(tokenizer):
    found = Translator(_Untouchable(), tokenizer, DecodingConfig(), engines=ENGINES).translate(
        ["", "  ", "\t\x0c\u2028"]
    )
    assert [(t.text, t.n_parts) for t in found] == [("", 0)] * 3


class _Untouchable:
    vocab_size = 10
    max_positions = 8


def test_a_translation_holds_no_line_end(tokenizer, translator_of, monkeypatch):
    monkeypatch.setattr(
        type(tokenizer), "decode_batch", lambda self, ids: ["one\ntwo\r\nthree" for _ in ids]
    )
    assert translator_of().translate(["A man"])[0].text == "one two  three"


def test_buffers_are_yielded_as_soon_as_they_are_full(translator_of):
    taken = []

    def lines():
        for line in itertools.cycle(LINES):
            taken.append(line)
            yield line

    stream = translator_of().stream(lines(), buffer_lines=3)
    next(stream)
    assert len(taken) == 3


@pytest.mark.parametrize("buffer_lines", [1, 3, 100])
@pytest.mark.parametrize("batch_tokens", [1, 64])
def test_translations_do_not_depend_on_buffers_and_budgets(
    translator_of, buffer_lines, batch_tokens
):
    lines = [*LINES, *NASTY, " ".join(LINES * 4)]
    expected = [t.text for t in translator_of().translate(lines)]
    stream = translator_of(batch_tokens=batch_tokens).stream(lines, buffer_lines)
    assert [t.text for t in stream] == expected


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {}, {"sampling": True, "n_best": 2}])
@pytest.mark.parametrize("free_memory", [1_000, 10**9])
def test_a_gpus_memory_makes_batches_larger_and_changes_nothing(
    translator_of, model, monkeypatch, settings, free_memory
):
    lines = [f"{line} {number}" for number in range(400) for line in LINES]
    translator = translator_of(**settings, batch_tokens=TORCH_BATCH_TOKENS)
    expected = list(translator.stream(lines))
    monkeypatch.setattr(torch_search, "free_gpu_memory", lambda device: free_memory)
    sizes = []
    batch_of = TorchSearch._batch
    monkeypatch.setattr(
        TorchSearch, "_batch", lambda self, lines: sizes.append(len(lines)) or batch_of(self, lines)
    )
    found = list(translator_of(**settings).stream(lines, GPU_BUFFER_LINES))
    assert found == expected
    assert (max(sizes) > TORCH_BATCH_TOKENS // 16) == (free_memory > 10**6)


def test_the_room_on_a_gpu_follows_memory_model_and_beam():
    base = ModelConfig()
    # (1 + 6 W) · 24,576 bytes of keys and values a token, in a quarter of the memory
    assert [gpu_room(base, 4, n << 30).tokens for n in (1, 24, 80)] == [4096, 10_485, 32_768]
    assert gpu_room(base, 1, 24 << 30).tokens == 32_768
    assert gpu_room(base, 40, 80 << 30).tokens == 4096
    assert gpu_room(base, 4, 1 << 30).logits == Room().logits
    assert gpu_room(base, 4, 64 << 30).logits == 1 << 30


def test_a_batch_that_does_not_fit_is_searched_in_halves(translator_of, monkeypatch):
    expected = translator_of().translate(LINES * 3)
    search, tried = torch_search.search, []

    def short_of_memory(model, sentences, *rest):
        tried.append(len(sentences))
        if len(sentences) > 2:
            raise torch.OutOfMemoryError
        return search(model, sentences, *rest)

    monkeypatch.setattr(torch_search, "search", short_of_memory)
    assert translator_of().translate(LINES * 3) == expected
    assert max(tried) > 2 >= min(tried)
    monkeypatch.setattr(torch_search, "search", lambda *_: short_of_memory(None, [1, 2, 3]))
    with pytest.raises(torch.OutOfMemoryError):
        translator_of().translate(LINES[:1])


def test_buffers_are_larger_where_a_gpu_searches(model, tokenizer):
    sizes = [
        Translator(model, tokenizer, DecodingConfig(), engines=[TorchEngine(name)]).usual_buffer
        for name in ("cpu", "cuda", "cuda:1")
    ]
    assert sizes == [1024, 8192, 8192]


def test_a_long_line_is_translated_in_parts(translator_of, model, tokenizer):
    line = " ".join(LINES * 5)
    translation = translator_of().translate([line])[0]
    assert translation.n_parts > 1
    assert not translation.is_truncated
    parts = split_line(
        line,
        min(LONGEST_PART, model.config.max_positions // 2),
        lambda texts: [len(ids) for ids in tokenizer.encode_batch(texts)],
    )
    texts = [t.text for t in translator_of().translate(parts)]
    assert translation.text == " ".join(texts)


def test_a_line_of_fifty_thousand_characters_without_spaces_is_one_line(model, tokenizer):
    config = DecodingConfig(beam_size=1, max_length=1)
    translation = Translator(model, tokenizer, config, engines=ENGINES).translate(["q" * 50_000])[0]
    assert translation.n_parts > 50_000 // LONGEST_PART
    assert len(translation.source_ids) >= 50_000
    assert "\n" not in translation.text


def test_truncating_reads_what_fits(translator_of, model, tokenizer):
    line = " ".join(LINES * 5)
    translation = translator_of(too_long="truncate").translate([line])[0]
    assert translation.is_truncated
    assert list(translation.source_ids) == tokenizer.encode(line)[: model.config.max_positions - 1]


def test_too_long_can_be_an_error_that_names_the_line(translator_of):
    with pytest.raises(DataError, match=r"line 2: has \d+ tokens, but the model takes 39"):
        translator_of(too_long="error").translate(["A man", " ".join(LINES * 5)])


def test_several_translations_of_a_line_are_ranked(translator_of):
    found = translator_of(beam_size=3, n_best=3).translate([LINES[0], "", " ".join(LINES * 5)])
    assert [len(t.hypotheses) for t in found] == [3, 1, 3]
    scores = [h.score for h in found[0].hypotheses]
    assert scores == sorted(scores, reverse=True)
    best = translator_of(beam_size=3).translate([LINES[0]])[0]
    assert best.hypotheses[0] == found[0].hypotheses[0]


def hypothesis(n_tokens, log_probability):
    ids = (5,) * (n_tokens - 1)
    score = log_probability / ((5 + n_tokens) / 6)
    return Hypothesis(ids, log_probability, score, (), is_finished=True)


def test_translations_of_a_line_in_parts_are_ranked_too(translator_of, monkeypatch):
    """Each part's are in order; with the penalty of all tokens their joined scores were not."""
    long_first = [hypothesis(10, -50.0), hypothesis(1, -20.04), hypothesis(1, -20.1)]
    others = [hypothesis(10, -4.9), hypothesis(10, -5.0), hypothesis(4, -3.1)]

    def search(self, parts, config, before_batch):
        return [(others if number else long_first)[: config.n_best] for number in range(len(parts))]

    monkeypatch.setattr(TorchSearch, "search", search)
    line = " ".join(LINES * 5)
    settings = {"beam_size": 3, "length_penalty": 1.0}
    (several,) = translator_of(n_best=3, **settings).translate([line])
    (alone,) = translator_of(n_best=1, **settings).translate([line])
    assert several.n_parts > 1
    scores = [found.score for found in several.hypotheses]
    assert scores == sorted(scores, reverse=True)
    assert several.hypotheses[0] == alone.hypotheses[0]
    whole = hypothesis(10 * several.n_parts, -50.0 - 4.9 * (several.n_parts - 1))
    assert scores[0] == pytest.approx(whole.score)


def test_all_texts_of_a_buffer_are_decoded_at_once(tokenizer, translator_of, monkeypatch):
    decode, calls = type(tokenizer).decode_batch, []

    def count_decoded(self, ids):
        calls.append(len(ids))
        return decode(self, ids)

    monkeypatch.setattr(type(tokenizer), "decode_batch", count_decoded)
    lines = ["a man", "", "A dog runs in the snow. " * 30, "the street"]
    found = translator_of(beam_size=3, n_best=2, max_length=6).translate(lines)
    assert len(calls) == 1
    assert [t.n_parts > 1 for t in found] == [False, False, True, False]
    for hypothesis in (h for t in found for h in t.hypotheses):
        ids = iter(hypothesis.token_ids)
        parts = [[next(ids) for _ in range(n)] for n in hypothesis.part_lengths]
        text = " ".join(decode(tokenizer, [part])[0] for part in parts)
        assert hypothesis.text == text.replace("\n", " ").replace("\r", " ")


def test_bfloat16_translates_too(model, tokenizer):
    config = DecodingConfig(beam_size=2, max_length=4)
    engines = [TorchEngine(torch.device("cpu"), "bfloat16")]
    translator = Translator(model, tokenizer, config, engines=engines)
    assert len(translator.translate(LINES)) == len(LINES)


def test_the_candidate_the_others_agree_with_comes_first():
    texts = ["a red car goes home", "the dog sleeps", "the dog sleeps now", "the dog sleeps here"]
    for utility in ("chrf", "bleu"):
        worth = expected_utilities(texts, utility)
        assert min(worth) == worth[0] < worth[1]
        assert len(worth) == 4


def test_what_was_drawn_often_counts_as_often():
    texts = ["the cat sat", "a dog ran", "a dog ran"]
    worth = expected_utilities(texts, "chrf")
    assert worth[1] == worth[2] > worth[0]


def test_worth_is_the_mean_over_all_others():
    from sacrebleu.metrics import CHRF

    texts = ["one two three", "one two four", "five six", "one"]
    worth = [
        sum(CHRF().sentence_score(a, [b]).score for j, b in enumerate(texts) if j != i) / 3
        for i, a in enumerate(texts)
    ]
    assert expected_utilities(texts, "chrf") == pytest.approx(worth)


def test_sentences_are_translated_one_by_one_and_keep_their_blanks(translator_of):
    sentences = [LINES[0], LINES[1], LINES[3]]
    blanks = ["   ", " "]
    line = f"{LINES[0]}{blanks[0]}{LINES[1]}{blanks[1]}{LINES[3]}  "
    alone = [t.text for t in translator_of().translate(sentences)]
    split = translator_of(split_sentences=split_sentences).translate([line, "", LINES[3]])
    assert split[0].text == alone[0] + blanks[0] + alone[1] + blanks[1] + alone[2]
    assert (split[0].n_parts, split[0].is_too_long) == (3, False)
    assert split[0].parts == tuple(sentences)
    assert split[1].text == ""
    assert (split[2].n_parts, split[2].parts) == (1, ())
    assert split[0].text != translator_of().translate([line])[0].text


def test_a_line_of_one_sentence_is_what_it_was(translator_of):
    lines = [*LINES, *NASTY, f"  {LINES[0]}  ", *LINES]
    whole = translator_of().translate(lines)
    assert translator_of(split_sentences=split_sentences).translate(lines) == whole


def test_sentences_do_not_depend_on_what_is_beside_them(translator_of):
    lines = [f"{LINES[0]} {LINES[1]}", LINES[3], "", f"{LINES[1]}  {LINES[3]} {LINES[0]}"]
    translator = translator_of(split_sentences=split_sentences, n_best=2, batch_tokens=20)
    together = translator.translate(lines)
    assert [t.n_sentences for t in together] == [2, 1, 1, 3]
    for index, line in enumerate(lines):
        assert translator.translate([line], index) == [together[index]]


def test_a_prefix_of_several_sentences_keeps_the_line_whole(translator_of):
    line = f"{LINES[0]} {LINES[1]}"
    translator = translator_of(split_sentences=split_sentences)
    short, long = (LineConstraints(target_prefix=text) for text in ("A man", f"{LINES[0]} A dog"))
    first, whole = translator.translate([line, line], demands=[short, long])
    assert (first.n_sentences, whole.n_sentences) == (2, 1)
    assert first.text.startswith("A man")
    assert whole.text.startswith(f"{LINES[0]} A dog")


def test_demands_in_other_forms_of_letters_and_spaces_are_the_same(translator_of):
    required = "e\u0301te\u0301"
    terms = read_glossary([f"A man\t{required}"], "")
    alone = translator_of(max_length=20)
    expected, phrase, term, prefix = alone.translate(
        ["A man sleeps."] * 4,
        demands=[
            LineConstraints(required=("\xe9t\xe9",)),
            LineConstraints(required=(required,)),
            with_terms(LineConstraints(), "A\xa0man sleeps.", terms),
            LineConstraints(target_prefix=required, banned=("\xe8",)),
        ],
    )  # fmt: skip
    assert expected.text == phrase.text == term.text
    assert prefix.text.startswith("\xe9t\xe9")
    assert not any(translation.unsatisfied for translation in (expected, phrase, term, prefix))


@pytest.mark.parametrize("n_best", [1, 2])
def test_a_phrase_changes_nothing_about_how_many_are_returned(translator_of, n_best):
    translator = translator_of(n_best=n_best, beam_size=4, max_length=20)
    demands = [LineConstraints(required=("snow",)), LineConstraints(banned=("a",))]
    for found in translator.translate(LINES[:2], demands=demands):
        assert len(found.hypotheses) == n_best


def test_a_glossary_demands_what_can_be_seen():
    with pytest.raises(DataError, match="g, line 2: is not a glossary entry"):
        read_glossary(["a\tb", "a\t\u200b"], "g")


def test_special_spaces_between_sentences_cut_no_words(model):
    old = train_tokenizer(LINES * 3, TokenizerConfig(vocab_size=300, normalization="none"))
    translator = Translator(
        model,
        old,
        DecodingConfig(max_length=2),
        engines=ENGINES,
        split_sentences=split_sentences,
    )
    apart, within = translator.translate(["A man sleeps.\xa0A man sleeps.", "A\xa0man sleeps."])
    assert (apart.n_sentences, apart.untrained) == (2, {})
    assert within.untrained == {"no-break spaces": 1}


def test_a_prefix_keeps_the_special_space_that_the_model_knows(model):
    quoted = train_tokenizer(["A \xab\xa0man\xa0\xbb."] * 9, TokenizerConfig(vocab_size=280))
    prefixes = ["\xab\xa0", "\xab ", "\xab\u3000", "\u200b", "\u3000"]
    translator = Translator(model, quoted, DecodingConfig(), engines=ENGINES)
    prepared = translator.prepare(
        ["A man"] * 5, demands=[LineConstraints(target_prefix=text) for text in prefixes]
    )
    forced = [quoted.decode_batch([line.sentences[0].prefix])[0] for line in prepared]
    assert forced == ["\xab\xa0", "\xab", "\xab", "", ""]


def test_required_phrases_go_to_the_sentences_that_call_for_them(translator_of):
    line = f"{LINES[0]} {LINES[1]} {LINES[3]}"
    terms = [Term("dogs", "snow", False), Term("man", "street", False), Term("", "Two", False)]
    demands = with_terms(LineConstraints(required=("woman",)), line, terms)
    translator = translator_of(split_sentences=split_sentences, max_length=20)
    (found,) = translator.translate([line], demands=[demands])
    alone = translator.translate(
        [LINES[0], LINES[1], LINES[3]],
        demands=[
            LineConstraints(required=phrases)
            for phrases in (("street",), ("snow", "Two"), ("woman",))
        ],
    )
    assert found.text == " ".join(translation.text for translation in alone)
    assert not found.unsatisfied


def test_a_sentence_may_be_too_long_by_itself(translator_of):
    long = " ".join(LINES[0].rstrip(".") for _ in range(20)) + "."
    found = translator_of(split_sentences=split_sentences).translate([f"{LINES[0]} {long}"])[0]
    assert found.is_too_long
    assert found.n_parts > 2
    assert found.parts[0] == LINES[0]
    with pytest.raises(DataError, match="line 1"):
        translator_of("error", split_sentences=split_sentences).translate([f"{LINES[0]} {long}"])


def test_sentences_without_blanks_between_them_get_a_space(translator_of):
    found = translator_of(split_sentences=lambda line: [line[:3], line[3:]]).translate(["我爱你"])
    assert found[0].n_parts == 1  # the rest is blank
    parts = translator_of().translate(["我爱", "你"])
    both = translator_of(split_sentences=lambda line: [line[:2], line[2:]]).translate(["我爱你"])
    assert both[0].text == f"{parts[0].text} {parts[1].text}"


@pytest.mark.parametrize("settings", [{}, {"n_best": 2}, {"sampling": True, "top_k": 9}])
def test_sentences_of_many_calls_may_be_searched_in_any_batches(translator_of, settings):
    translator = translator_of(split_sentences=split_sentences, **settings)
    lines = [*LINES, "", "A man sleeps. Two dogs run.", "dog " * 60, *LINES]
    wishes = [LineConstraints()] * len(lines)
    wishes[1] = LineConstraints(banned=("a", "e"))
    wishes[2] = LineConstraints(target_prefix="the")
    wishes[5] = LineConstraints(required=("dog",))
    if settings:  # sampling takes no required phrases
        wishes[5] = LineConstraints(banned=("o",))
    prepared = [
        prepared_line
        for index, (line, wish) in enumerate(zip(lines, wishes, strict=True))
        for prepared_line in translator.prepare([line], index, [wish])
    ]
    places = [(i, k) for i, line in enumerate(prepared) for k in range(len(line.sentences))]
    random.Random(3).shuffle(places)
    found = {}
    for start in range(0, len(places), 3):
        batch = places[start : start + 3]
        results = translator.search([prepared[i].sentences[k] for i, k in batch])
        found |= zip(batch, results, strict=True)
    finished = [
        translator.finish(line, [found[i, k] for k in range(len(line.sentences))])
        for i, line in enumerate(prepared)
    ]
    assert finished == translator.translate(lines, demands=wishes)


def test_the_seed_of_one_call_takes_the_place_of_the_translators(translator_of, model, tokenizer):
    config = DecodingConfig(sampling=True, max_length=8)
    other = Translator(model, tokenizer, config, engines=ENGINES, seed=5)
    drawn = translator_of(sampling=True)
    prepared = drawn.prepare(LINES, seed=5)
    assert prepared == other.prepare(LINES)
    assert prepared != drawn.prepare(LINES)


@given(st.lists(st.lists(st.integers(-9, 0), min_size=1, max_size=5), min_size=1, max_size=4))
def test_the_largest_sums_of_lists_come_first(rows):
    rows = [sorted(row, reverse=True) for row in rows]
    every = set(itertools.product(*(range(len(row)) for row in rows)))
    found = list(best_sums(rows))
    sums = [sum(row[place] for row, place in zip(rows, places, strict=True)) for places in found]
    assert sums == sorted(sums, reverse=True)
    assert len(found) == len(every)
    assert set(found) == every


LISTS = {
    "beam": {"beam_size": 4},
    "more than the beam finds": {"beam_size": 4, "max_length": 1},
    "by utility": {"beam_size": 4, "risk": "chrf"},
    "samples by utility": {"sampling": True, "risk": "chrf", "candidates": 6},
    "texts once": {"beam_size": 4, "distinct_texts": True},
    "average": {"beam_size": 4, "length_normalization": "average"},
}


@pytest.mark.parametrize("settings", LISTS.values(), ids=LISTS)
def test_an_n_best_list_of_sentences_has_the_best_combinations(translator_of, settings):
    make = partial(translator_of, split_sentences=split_sentences, n_best=4, **settings)
    translator, sentences = make(), [LINES[0], LINES[1], LINES[3]]
    prepared = translator.prepare([" ".join(sentences), *sentences])
    parts = translator.search(prepared[0].sentences)
    (found,) = translator.translate([" ".join(sentences)])
    shares = translator._shares([part[0][0].n_tokens for part in parts])
    rows = [
        (
            sum(
                share * hypothesis.score if hypothesis.utility is None else hypothesis.utility
                for share, (hypothesis, _) in zip(shares, some, strict=True)
            ),
            " ".join(text for _, text in some).translate(LINE_ENDS),
            math.fsum(hypothesis.log_probability for hypothesis, _ in some),
        )
        for some in itertools.product(*parts)
    ]
    rows.sort(key=lambda row: -row[0])
    texts = [text for _, text, _ in rows]
    expected = list(dict.fromkeys(texts))[:4] if "distinct_texts" in settings else texts[:4]
    assert [hypothesis.text for hypothesis in found.hypotheses] == expected
    assert len(expected) == 4
    if "risk" not in settings:
        assert [hypothesis.score for hypothesis in found.hypotheses] == pytest.approx(
            [score for score, text, _ in rows if text in expected][:4]
        )
    # each hypothesis has the numbers of the sentences that it is made of
    for hypothesis in found.hypotheses:
        assert math.fsum(hypothesis.token_log_probabilities) == pytest.approx(
            hypothesis.log_probability
        )
        assert len(hypothesis.part_lengths) == 3
    # the first is that of any other n-best
    assert make(n_best=1).translate([" ".join(sentences)])[0].text == found.text


def test_samples_of_sentences_are_samples_of_the_line(translator_of):
    settings = {"split_sentences": split_sentences, "sampling": True, "n_best": 3}
    line = f"{LINES[0]} {LINES[1]}"
    translator = translator_of(**settings)
    (prepared,) = translator.prepare([line])
    parts = translator.search(prepared.sentences)
    (found,) = translator.translate([line])
    expected = [" ".join(text for _, text in some) for some in zip(*parts, strict=True)]
    assert [hypothesis.text for hypothesis in found.hypotheses] == [
        text.translate(LINE_ENDS) for text in expected
    ]


def test_distinct_samples_of_sentences_are_as_many_as_asked_for(translator_of):
    translator = translator_of(
        split_sentences=split_sentences,
        sampling=True,
        n_best=3,
        distinct_texts=True,
        top_k=2,
        max_length=2,
    )
    (found,) = translator.translate([" ".join(LINES[:2] * 2)])
    assert len({hypothesis.text for hypothesis in found.hypotheses}) == 3


def test_a_blank_line_has_no_unseen_words(model, tokenizer):
    translator = Translator(model, tokenizer, DecodingConfig(), engines=ENGINES, seen_words={"man"})
    blank, unseen = translator.translate(["\u3164", "xyz"])  # Hangul's filler is a letter
    assert (blank.unseen, unseen.unseen) == ((), ("xyz",))
