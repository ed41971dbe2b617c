"""Prompts in, texts out: each as if it were alone, and cut where it is to stop."""

import math

import pytest
import torch

from tests.search.test_prompted_model import by_hand
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import UsageError
from tformer_cli.kinds.lines.job import computed_by_buffer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.generator import Generator
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.tokenizer import BOS_ID
from tformer_cli.text.train_tokenizer import train_tokenizer

PROMPTS = ["A man", "", "the street", "Two dogs run", "A", "a dog"]


@pytest.fixture(scope="module")
def directory(language_model):
    return load_model_directory(language_model, tasks=("language-model",))


@pytest.fixture
def make(directory):
    def make(stops=(), seed=1, target_bos=True, **settings):
        config = DecodingConfig(**{"sampling": True, "max_length": 8, **settings})
        return Generator(
            directory.model,
            directory.tokenizer,
            config,
            engines=[TorchEngine("cpu")],
            target_bos=target_bos,
            seed=seed,
            stops=stops,
        )

    return make


@pytest.mark.parametrize(
    "settings",
    [{"n_best": 2}, {"top_k": 3}, {"sampling": False, "beam_size": 1}, {"sampling": False}],
    ids=str,
)
def test_a_text_does_not_depend_on_its_neighbors(make, settings):
    generator = make(**settings)
    together = generator.generate(PROMPTS)
    assert [generation.index for generation in together] == list(range(6))
    assert [generation.prompt for generation in together] == PROMPTS
    for number, prompt in enumerate(PROMPTS):
        assert generator.generate([prompt], [number]) == [together[number]]


@pytest.mark.parametrize("target_bos", [True, False])
def test_log_probabilities_are_the_models(make, directory, target_bos):
    begin = (BOS_ID,) if target_bos else ()
    found = make(target_bos=target_bos, min_length=2).generate(PROMPTS)
    texts = [generation.texts[0] for generation in found]
    assert not all(text.is_finished for text in texts)
    for prompt, text in zip(PROMPTS, texts, strict=True):
        read = (*begin, *directory.tokenizer.target.encode(prompt)) or (BOS_ID,)
        with_end = by_hand(directory.model, read, text.token_ids)
        if text.is_finished:
            assert text.log_probability == pytest.approx(with_end, abs=1e-4)
        else:
            assert text.log_probability > with_end
        whole = [*directory.tokenizer.target.encode(prompt), *text.token_ids]
        assert prompt + text.text == directory.tokenizer.target.decode(whole)


def test_seeds_and_numbers_decide_what_is_drawn(make):
    texts = [generation.texts[0].text for generation in make().generate(["A"] * 4)]
    assert len(set(texts)) == 4
    assert texts == [generation.texts[0].text for generation in make().generate(["A"] * 4)]
    assert texts != [generation.texts[0].text for generation in make(seed=2).generate(["A"] * 4)]


def test_a_text_ends_before_what_stops_it(make):
    whole = make(max_length=30).generate(["A"])[0].texts[0]
    stop = whole.text[9:11]
    (text,) = make(max_length=30, stops=["never there", stop]).generate(["A"])[0].texts
    assert text.text == whole.text[: whole.text.index(stop)]
    assert not text.is_finished
    assert len(text.token_ids) < len(whole.token_ids)
    assert text.token_ids == whole.token_ids[: len(text.token_ids)]
    assert text.log_probability > whole.log_probability
    with pytest.raises(UsageError, match="--stop: is empty"):
        make(stops=[""])


@pytest.mark.parametrize("stops", [(), ("x", "is not there"), None])
def test_a_text_is_told_while_it_is_written(make, stops):
    whole = make(max_length=30).generate(["A"])[0].texts[0].text
    late = next(
        character for character in whole[7:] if character.isascii() and character not in whole[:7]
    )
    stops = (late,) if stops is None else stops
    told = []
    (generation,) = make(max_length=30, stops=stops).generate(["A"], on_text=told.append)
    assert len(told) > 2
    assert "".join(told) == generation.texts[0].text
    assert (
        generation.texts[0].text
        == make(max_length=30, stops=stops).generate(["A"])[0].texts[0].text
    )


def test_lengths_count_what_follows_the_prompt(make):
    found = make(min_length=5, max_length=5).generate(PROMPTS)
    assert {len(generation.texts[0].token_ids) for generation in found} == {5}
    # as many as the model has positions for: a prompt leaves room for the fewest, or they are
    # refused
    found = make(min_length=38, max_length=40, sampling=False).generate(["", "the street"])
    assert [generation.is_truncated for generation in found] == [False, True]
    assert all(38 <= len(generation.texts[0].token_ids) <= 39 for generation in found)
    with pytest.raises(UsageError, match=r"--min-length 40 requires 40 .* 40 positions .* 39"):
        make(min_length=40, max_length=40)


def test_of_a_long_prompt_the_end_is_read(make, directory):
    long = "A man sleeps. " * 30
    (generation,) = make().generate([long])
    assert generation.is_truncated
    assert generation.prompt == long
    ids = directory.tokenizer.target.encode(long)
    read = (BOS_ID, *ids[len(ids) - 31 :])
    expected = by_hand(directory.model, read, generation.texts[0].token_ids)
    assert generation.texts[0].log_probability >= expected - 1e-4
    assert math.isfinite(expected)


def test_blank_prompts_of_a_stream_stay_blank(make):
    lines = ["A man", "", "  ", "the street", "A"]
    for n_lines in (1, 2, 10):
        buffers = list(computed_by_buffer(iter(lines), make().continue_lines, n_lines))
        assert [len(buffer) for buffer in buffers] == {1: [1] * 5, 2: [2, 2, 1], 10: [5]}[n_lines]
        found = [generation for buffer in buffers for generation in buffer]
        assert [generation.index for generation in found] == list(range(5))
        assert [generation.texts[0].text for generation in found[1:3]] == ["", ""]
        assert [found[0], found[3], found[4]] == make().generate(
            ["A man", "the street", "A"], [0, 3, 4]
        )


@torch.inference_mode()
def test_a_search_that_the_engine_does_not_know_is_refused(make):
    with pytest.raises(UsageError, match="torch cannot search here"):
        make(sampling=False, length_normalization="made up")


def test_a_space_stands_behind_a_prompt_of_unknown_words_alone(directory):
    tokenizer = train_tokenizer(["the cat saw a dog"], TokenizerConfig(algorithm="word"))
    generator = Generator(
        directory.model, tokenizer, DecodingConfig(sampling=True), engines=[TorchEngine("cpu")]
    )
    encode = tokenizer.target.encode
    for prompt in ("zebra", "the zebra", "the cat", "zebra zebra"):
        assert generator.after(encode(prompt), encode("saw a dog")) == " saw a dog"
    assert generator.after((), encode("saw a dog")) == "saw a dog"
