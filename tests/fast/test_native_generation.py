"""Texts of language models: the kernels against torch's search, and which of them is used."""

import subprocess
import sys

import pytest
import torch

from tformer_cli.artifacts.model_directory import read_model_directory
from tformer_cli.fast.native_search import CompiledEngine
from tformer_cli.kinds.opening import open_model
from tformer_cli.kinds.stored_model import DirectoryModel
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.engine import Sentence
from tformer_cli.search.generator import Generator
from tformer_cli.search.torch_engine import TorchEngine

PROMPTS = ["A man", "", "the street", "Two dogs run", "A", "a dog", "x " * 60]


@pytest.fixture(scope="module")
def generator_of(language_model):
    """Makes a generator of stored weights, whose search is the kernels', or torch's alone."""
    directory, weights = read_model_directory(language_model, tasks=("language-model",))

    def make(*, is_compiled=True, n_threads=1, stops=(), **settings):
        engines = [TorchEngine("cpu")]
        if is_compiled:
            engines.insert(0, CompiledEngine(n_threads=n_threads))
        return Generator(
            DirectoryModel(directory, weights, in_integers=False),
            directory.tokenizer,
            DecodingConfig(**{"sampling": True, "max_length": 10, **settings}),
            engines=engines,
            stops=stops,
        )

    return make


def engine_of(generator):
    return generator._searcher.choice(generator.config, Sentence(tokens=(5,)))


@pytest.mark.parametrize(
    "settings",
    [
        {"n_best": 3},
        {"top_k": 3, "temperature": 0.7},
        {"top_p": 0.6},
        {"sampling": False, "beam_size": 1, "min_length": 4},
        {"sampling": False, "beam_size": 3, "n_best": 2, "no_repeat_ngram": 2},
        {"max_length": 100, "min_length": 30},
    ],
    ids=str,
)
def test_the_kernels_write_what_torch_writes(kernels, generator_of, settings):
    generator, plain = generator_of(**settings), generator_of(is_compiled=False, **settings)
    assert engine_of(generator).name == "compiled"
    found = generator.generate(PROMPTS)
    for ours, theirs in zip(found, plain.generate(PROMPTS), strict=True):
        assert (ours.index, ours.prompt, ours.is_truncated) == (
            theirs.index,
            theirs.prompt,
            theirs.is_truncated,
        )
        for hypothesis, other in zip(ours.texts, theirs.texts, strict=True):
            assert (hypothesis.text, hypothesis.token_ids, hypothesis.is_finished) == (
                other.text,
                other.token_ids,
                other.is_finished,
            )
            assert hypothesis.log_probability == pytest.approx(other.log_probability, abs=1e-4)
            assert hypothesis.score == pytest.approx(other.score, abs=1e-4)
    for n_threads in (1, 3):
        for batch_tokens in (1, 50):
            other = generator_of(n_threads=n_threads, batch_tokens=batch_tokens, **settings)
            assert other.generate(PROMPTS) == found
    for number, prompt in enumerate(PROMPTS):
        assert generator.generate([prompt], [number]) == found[number : number + 1]


@pytest.mark.parametrize("settings", [{}, {"sampling": False, "beam_size": 1}], ids=str)
@pytest.mark.parametrize("stops", [(), ("e",)])
def test_a_text_is_told_as_it_is_written(kernels, generator_of, settings, stops):
    told = []
    generator = generator_of(stops=stops, max_length=30, min_length=30, **settings)
    (found,) = generator.generate(["A"], on_text=told.append)
    assert "".join(told) == found.texts[0].text
    assert len(told) > 1 or stops
    (whole,) = generator.generate(["A"])
    assert whole.texts[0].text == found.texts[0].text


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_what_telling_raises_ends_the_text(kernels, generator_of, error):
    def tell(text):
        raise error

    with pytest.raises(error):
        generator_of(max_length=30).generate(["A"], on_text=tell)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"repetition_penalty": 1.3}, "more than plain beam search"),
        ({"sampling": False, "diversity_groups": 2, "beam_size": 4}, "more than plain"),
    ],
    ids=str,
)
def test_what_the_kernels_do_not_know_is_for_torch(generator_of, settings, reason):
    generator, plain = generator_of(**settings), generator_of(is_compiled=False, **settings)
    choice = engine_of(generator)
    assert choice.name == "torch"
    assert reason in choice.reasons["compiled"]
    assert generator.generate(PROMPTS[:2]) == plain.generate(PROMPTS[:2])


@pytest.mark.parametrize(
    ("setting", "value"),
    [("positions", "relative"), ("positions", "alibi"), ("similarity", "cosine")],
)
def test_models_that_the_kernels_do_not_know_are_named(setting, value):
    shape = {"d_model": 16, "n_heads": 2, "d_ff": 16, "n_decoder_layers": 1, "max_positions": 20}
    config = ModelConfig(n_encoder_layers=0, **shape, **{setting: value})
    model = Transformer(config, 30).eval()
    from tformer_cli.search.engine import PromptedModel

    reason = CompiledEngine().supports(DecodingConfig(), PromptedModel(model))
    assert f'they do not know {setting} = "{value}"' in reason


def test_language_models_are_not_searched_as_translators():
    from tformer_cli.search.engine import PromptedModel

    shape = {"d_model": 16, "n_heads": 2, "d_ff": 16, "n_decoder_layers": 1, "max_positions": 20}
    alone = Transformer(ModelConfig(n_encoder_layers=0, **shape), 30).eval()
    whole = Transformer(ModelConfig(n_encoder_layers=1, **shape), 30).eval()
    engine, config = CompiledEngine(), DecodingConfig()
    assert engine.supports(config, PromptedModel(alone)) is None
    assert "continue prompts" in engine.supports(config, alone)
    assert "continue prompts" in engine.supports(config, PromptedModel(whole))
    assert engine.supports(config, whole) is None


def test_weights_that_change_are_packed_again(kernels, language_model):
    opened = open_model(language_model, "generate", max_length=5, beam_size=1)
    first = opened.generator.generate(PROMPTS[:3])
    made = opened.directory.model
    assert opened.generator.generate(PROMPTS[:3]) == first
    with torch.no_grad():
        made.output_matrix.neg_()
    assert opened.generator.generate(PROMPTS[:3]) != first


def test_generating_and_evaluating_do_not_import_torch(kernels, language_model):
    code = (
        "import sys; from tformer_cli.kinds.lines.generate import generate_texts;"
        "from tformer_cli.evaluate.evaluate import evaluate_texts;"
        "from tformer_cli.kinds.opening import open_model;"
        f"generate_texts({str(language_model)!r}, ['A'], device='cpu');"
        f"opened = open_model({str(language_model)!r}, 'generate', device='cpu');"
        "assert evaluate_texts(opened, ['A man', 'the street']).scores.n_tokens > 3;"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
