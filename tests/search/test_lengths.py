"""Limits of length: each is kept or refused by name, and none cuts a prefix."""

from itertools import product

import pytest
import torch

from tests.models import save_random
from tests.slowly import slowly
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import DataError, UsageError
from tformer_cli.fast.native_search import CompiledEngine
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.constraints import LineConstraints
from tformer_cli.search.torch_engine import TorchEngine
from tformer_cli.search.translator import Translator

POSITIONS = 40
PREFIX = "A man and a dog"
SOURCE = "A man and a dog run."
NO_DEMANDS = LineConstraints()
TORCH = TorchEngine(torch.device("cpu"))
SEARCHES = {
    "beam": {"beam_size": 3, "n_best": 2},
    "greedy": {"beam_size": 1},
    "samples": {"sampling": True, "n_best": 3},
    "groups": {"beam_size": 4, "diversity_groups": 2, "n_best": 2},
    "coverage": {"beam_size": 3, "coverage_penalty": 0.5},
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = save_random(tmp_path_factory.mktemp("random") / "model", max_positions=POSITIONS)
    return load_model_directory(path)


@pytest.fixture
def translate(directory):
    def translate(line, demands=NO_DEMANDS, engine=TORCH, split=None, **settings):
        translator = Translator(
            directory.model,
            directory.tokenizer,
            DecodingConfig(**settings),
            engines=[engine],
            split_sentences=split,
        )
        translator.check()
        return translator.translate([line], 0, [demands])[0]

    return translate


@pytest.mark.parametrize("name", ["beam", "groups", *slowly("greedy", "samples", "coverage")])
@pytest.mark.parametrize("demands", [{}, {"required": ("dog",)}, {"banned": ("house",)}], ids=str)
def test_no_limit_cuts_a_prefix_or_counts_it(kernels, translate, directory, name, demands):
    ids = directory.tokenizer.target.encode_phrases([PREFIX])[0]
    limits = {"max_length": 2, "max_length_ratio": 1e-3}
    for engine in (TORCH, CompiledEngine()):
        if engine.supports(DecodingConfig(**SEARCHES[name]), directory.model) is not None:
            continue
        found = translate(
            "A dog", LineConstraints(PREFIX, **demands), engine, **SEARCHES[name], **limits
        )
        for hypothesis in found.hypotheses:
            assert list(hypothesis.token_ids[: len(ids)]) == ids
            assert len(hypothesis.token_ids) <= len(ids) + 2
        assert PREFIX not in found.unsatisfied


def test_a_prefix_takes_all_positions_and_no_more(translate, directory):
    encode = directory.tokenizer.target.encode_phrases
    most = next(n for n in range(60) if len(encode(["dog " * n + "dog"])[0]) >= POSITIONS)
    fitting, longer = ("dog " * n + "dog" for n in (most - 1, most))
    assert translate("dog", LineConstraints(fitting)).text.startswith(fitting)
    with pytest.raises(DataError, match=r'line 1: "target_prefix" has \d+ tokens, .* at most 39'):
        translate("dog", LineConstraints(longer))


def test_the_last_word_of_a_prefix_that_ends_in_a_space_is_whole(translate):
    prefixes = ["A man", "A man ", "A man \t", "A ma "]
    open_, *whole = (translate(SOURCE, LineConstraints(prefix), beam_size=4) for prefix in prefixes)
    assert open_.text[5:6].strip(), "else it says nothing about the others"
    for prefix, translation in zip(prefixes[1:], whole, strict=True):
        assert translation.text.startswith(prefix.rstrip())
        assert translation.text.removeprefix(prefix.rstrip())[:1] in (" ", "")
        assert translation.unsatisfied == ()
    assert translate(SOURCE, LineConstraints(" \t ")) == translate(SOURCE)


def test_a_prefix_of_a_line_of_sentences_is_that_of_the_first_one(translate):
    def split(text):
        return [sentence + "." for sentence in text.split(".") if sentence]

    found = translate("A dog. A man.", LineConstraints("the street. "), split=split, max_length=3)
    assert found.n_parts == 2
    assert found.text.startswith("the street.")
    found = translate("A dog. A man.", LineConstraints("A. Two"), split=split, max_length=3)
    assert found.n_parts == 1
    assert found.text.startswith("A. Two")


VALUES = {
    "max_length": [3, 12, 500],
    "max_length_ratio": [0.5, 4.0],
    "min_length": [2, 8, 33, 39, 60],
    "min_length_ratio": [0.4, 3.0, 9.0],
}


@pytest.mark.parametrize("prefix", ["", PREFIX])
@pytest.mark.parametrize(
    "engine", [CompiledEngine(), *slowly(TORCH)], ids=lambda chosen: chosen.name
)
def test_limits_of_length_are_all_kept_or_refused_by_name(
    kernels, translate, directory, prefix, engine
):
    tokenizer = directory.tokenizer
    n_source = len(tokenizer.source.encode(SOURCE))
    n_prefix = len(tokenizer.target.encode_phrases([prefix])[0])
    n_kept = 0
    for values in product(*([None, *some] for some in VALUES.values())):
        limits = {
            name: value for name, value in zip(VALUES, values, strict=True) if value is not None
        }
        try:
            found = translate(SOURCE, LineConstraints(prefix), engine, beam_size=1, **limits)
        except (ValueError, DataError, UsageError) as error:
            # Two of them are in the way of each other
            message = str(error).replace("-", "_")
            names = [*VALUES, "positions"]
            assert sum(name in message for name in names) >= 2, message
            continue
        n_kept += 1
        n_written = len(found.hypotheses[0].token_ids) - n_prefix
        least = max(limits.get("min_length", 0), int(limits.get("min_length_ratio", 0) * n_source))
        by_ratio = int(limits.get("max_length_ratio", 99) * n_source) + 20
        assert least <= n_written <= min(limits.get("max_length", 99), by_ratio)
        assert len(found.hypotheses[0].token_ids) < POSITIONS
    assert n_kept > 50
