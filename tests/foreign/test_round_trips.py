"""Models that tformer exports and imports again: the same texts and numbers, or a refusal."""

import json

import pytest

from tests.foreign.own import LANGUAGE_MODEL, TRANSLATION, own_model
from tests.models import tokenizer_of
from tests.slowly import slowly
from tests.zoo import MODELS, STARS, tformer
from tformer_cli.artifacts.config_file import ModelInfo
from tformer_cli.errors import TformerError
from tformer_cli.foreign.import_model import import_model
from tformer_cli.plugins.interchange.export import (
    export,
    export_hugging_face,
    export_int8,
    export_marian,
)
from tformer_cli.search.config import DecodingConfig

ALGORITHMS = ("bpe", "unigram", "word", "char", "byte")
EXPORTS = {"huggingface": export_hugging_face, "ctranslate2": export, "marian": export_marian}
LINES = ["A man sleeps.", "Two  dogs </s> run", "naïve street,\u00a0x"]
# how each kind writes what it computes; what other tools have no defaults for is set
SEARCH = ["--beam-size", 2, "--length-penalty", 0.6, "--length-normalization", "gnmt",
          "--max-length", 8, "--format", "jsonl"]  # fmt: skip
VERBS = {
    "translate": ["translate", *SEARCH],
    "language-model": ["generate", "--format", "jsonl"],
    "classify": ["classify", "--format", "jsonl"],
    "tag": ["tag", "--format", "jsonl"],
    "masked": ["fill", "--format", "jsonl"],
    "embed": ["embed", "--format", "jsonl"],
    "image": ["classify", "--format", "jsonl"],
}
ENCODER = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 2, "n_decoder_layers": 0,
           "max_positions": 40, "norm": "pre"}  # fmt: skip
ROTARY = {**LANGUAGE_MODEL, "positions": "rotary"}
LLAMA = {**ROTARY, "norm_kind": "rms", "activation": "swish", "gated": True, "bias": False}
LABELS = {**ENCODER, "n_labels": 3}
POST = {"norm": "post", "embedding_norm": True, "scale_embeddings": False}
SHAPES = {
    "translate": ("translate", TRANSLATION),
    "translate, pre-norm": ("translate", {**TRANSLATION, "norm": "pre"}),
    "language model, sinusoids": ("language-model", LANGUAGE_MODEL),
    "language model, learned": (
        "language-model",
        {**LANGUAGE_MODEL, "positions": "learned", "tied_embeddings": "none"},
    ),
    "language model, rotary": ("language-model", ROTARY),
    "language model, no ends": ("language-model", {**ROTARY, "target_eos": False}),
    "language model, no beginning": ("language-model", {**ROTARY, "target_bos": False}),
    "language model, llama": ("language-model", {**LLAMA, "n_key_heads": 2}),
    "ratings": ("classify", LABELS),
    "ratings, pooler": ("classify", {**LABELS, "pooler": "relu"}),
    "ratings, no biases": ("classify", {**LABELS, "pooler": "tanh", "bias": False}),
    "ratings, class": ("classify", {**LABELS, "pooling": "first", "pooler": "tanh"}),
    "ratings, post-norm": ("classify", {**LABELS, **POST, "pooling": "first"}),
    "tags": ("tag", {**LABELS, "head": "tags"}),
    "masked": ("masked", {**ENCODER, "head": "tokens"}),
    "masked, untied": ("masked", {**ENCODER, **POST, "head": "tokens", "tied_embeddings": "none"}),
    "vectors": ("embed", {**ENCODER, "head": "none", "unit_length": True, "pooling": "first"}),
}
CASES = [
    *((shape, "bpe") for shape in SHAPES),
    *(("language model, rotary", algorithm) for algorithm in ALGORITHMS[1:]),
    *slowly(
        *(
            (shape, algorithm)
            for shape in SHAPES
            for algorithm in ALGORITHMS[1:]
            if "rotary" not in shape
        )
    ),
]


def outputs_of(path, task, lines=LINES):
    """What a model writes of some lines: parsed JSON."""
    lines = [line.replace(" ", " [MASK] ", 1) for line in lines] if task == "masked" else lines
    done = tformer(*VERBS[task], path, *lines, "-q", "--threads", 1)
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_same(actual, wanted):
    """Texts are equal, and numbers to 1e-5."""
    if isinstance(wanted, dict):
        assert actual.keys() == wanted.keys()
        for name, value in wanted.items():
            assert_same(actual[name], value)
    elif isinstance(wanted, list):
        assert len(actual) == len(wanted)
        for item, expected in zip(actual, wanted, strict=True):
            assert_same(item, expected)
    elif isinstance(wanted, float):
        assert actual == pytest.approx(wanted, rel=1e-5, abs=1e-5)
    else:
        assert actual == wanted


REMEDY = r"; export with --format|; train with|; use `tformer translate`$|; name the model"


@pytest.mark.parametrize(("shape", "algorithm"), CASES)
def test_an_own_model_comes_back(tmp_path, shape, algorithm):
    task, settings = SHAPES[shape]
    tokenizer = tokenizer_of(algorithm=algorithm)
    sampled = {"sampling": True, "temperature": 0.7, "top_k": 9, "max_length": 8}
    own_model(
        tmp_path / "ours",
        tokenizer.with_mask() if task == "masked" else tokenizer,
        settings,
        decoding=DecodingConfig(**sampled) if task == "language-model" else None,
        info=ModelInfo(labels=tuple(STARS) if settings.get("n_labels") else ()),
    )
    export_hugging_face(tmp_path / "ours", tmp_path / "theirs")
    import_model(str(tmp_path / "theirs"), tmp_path / "back")
    assert_same(outputs_of(tmp_path / "back", task), outputs_of(tmp_path / "ours", task))


TASKS = {"language_model": "language-model", "gpt": "language-model", "llama": "language-model",
         "memory": "language-model", "classifier": "classify", "bert_classifier": "classify",
         "masked": "masked", "images": "image", "tagger": "tag", "sentences": "embed"}  # fmt: skip
"""Of models of the zoo; the others translate."""
REFUSED = {
    *((name, form) for name in TASKS for form in ("ctranslate2", "marian")),
    *(("variant", form) for form in EXPORTS),
    ("memory", "huggingface"),
    ("int8", "huggingface"),
    ("int8", "ctranslate2"),
}


@pytest.mark.parametrize("form", EXPORTS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_zoo_comes_back_or_is_refused(zoo, tmp_path, name, form):
    task = TASKS.get(name, "translate")
    lines = sorted(map(str, zoo.inputs.glob("photos/*/*.png")))[:3] if name == "images" else LINES
    if (name, form) not in REFUSED:
        EXPORTS[form](zoo[name], tmp_path / "theirs")
        import_model(str(tmp_path / "theirs"), tmp_path / "back")
        found, wanted = (outputs_of(path, task, lines) for path in (tmp_path / "back", zoo[name]))
        if (
            name != "int8"
        ):  # whose products round, which Marian's numbers of the same matrices do not
            assert_same(found, wanted)
        return
    with pytest.raises(TformerError, match=REMEDY) as error:
        EXPORTS[form](zoo[name], tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()
    if "; export with --format int8" in str(error.value):
        export_int8(zoo[name], tmp_path / "theirs")
    elif (name, "huggingface") not in REFUSED:
        assert "; export with --format huggingface" in str(error.value)
