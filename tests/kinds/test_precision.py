"""Opened models: their precision, and encoders of sentences."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.recipes import SHAPE
from tformer_cli.artifacts.config_file import ImportOrigin, ModelInfo, read_config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import ArtifactError, UsageError
from tformer_cli.evaluate.evaluate import evaluate_model
from tformer_cli.fast.products import RoundedProduct
from tformer_cli.inspect.jobs.reader import open_for_inspection
from tformer_cli.kinds.lines.score import score_lines
from tformer_cli.kinds.opening import open_model
from tformer_cli.kinds.stored_model import computing_in
from tformer_cli.kinds.translate import trained_on_sentences
from tformer_cli.plugins.interchange.export import export_int8
from tformer_cli.recipe import make_recipe
from tformer_cli.search.models import Ensemble
from tformer_cli.train.train import train

LINES = ["A man sleeps.", "Two dogs run in the snow.", "the street", "A woman and a dog.", "", "a"]


@pytest.fixture(scope="module")
def int8(model, tmp_path_factory):
    """The model, exported."""
    path = tmp_path_factory.mktemp("int8") / "model"
    export_int8(model, path)
    return path


def translate_texts(model, **options):
    """Texts with their scores, which show every bit."""
    translations = open_model(model, **options).translator.translate(LINES)
    return [
        [(h.text, h.score, h.token_log_probabilities) for h in t.hypotheses] for t in translations
    ]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_an_int8_directory_translates_as_int8_on_the_fly(model, int8, beam_size):
    on_the_fly = translate_texts(model, precision="int8", beam_size=beam_size)
    assert translate_texts(int8, beam_size=beam_size) == on_the_fly
    assert translate_texts(int8, precision="int8", beam_size=beam_size) == on_the_fly
    assert on_the_fly != translate_texts(model, beam_size=beam_size)


def test_a_line_in_integers_does_not_depend_on_its_neighbors(int8):
    translator = open_model(int8).translator
    together = translator.translate(LINES)
    assert list(translator.stream(LINES, buffer_lines=1)) == together


def test_the_directory_names_its_type_and_is_a_quarter_of_the_size(model, int8):
    config = json.loads((int8 / "config.json").read_text())
    before = json.loads((model / "config.json").read_text())
    assert (config.pop("weight_type"), config.pop("format_version")) == ("int8", 2)
    assert "weight_type" not in before
    assert {**config, "format_version": 1} == {**before, "scores": {}}
    assert sorted(file.name for file in int8.iterdir()) == sorted(f.name for f in model.iterdir())
    tensors = load_file(int8 / "model.safetensors")
    assert tensors["encoder.layers.0.feed_forward.inner.weight"].dtype == torch.int8
    assert tensors["encoder.layers.0.feed_forward.inner.weight_scale"].shape == (96,)
    with safe_open(int8 / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    sizes = [(path / "model.safetensors").stat().st_size for path in (model, int8)]
    assert 0.25 < sizes[1] / sizes[0] < 0.35


def test_evaluation_scores_and_ensembles_compute_in_integers(model, int8):
    references = [list(LINES)]
    losses = [
        evaluate_model(path, LINES, references, precision=precision).loss
        for path, precision in ((model, "float32"), (model, "int8"), (int8, "auto"))
    ]
    assert losses[1] == losses[2] != losses[0]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    scored = [
        [pair.result.log_probability for pair in score_lines(open_model(path), LINES, LINES)]
        for path in (model, int8)
    ]
    assert scored[1] == pytest.approx(scored[0], rel=0.02)
    assert scored[1] != scored[0]
    joined = open_model(int8, ensemble=[model], precision="int8").translator
    assert isinstance(joined._model, Ensemble)
    alone = open_model(int8).translator.translate(LINES)
    assert [t.text for t in joined.translate(LINES)] == [t.text for t in alone]


def test_a_model_that_was_handed_over_keeps_its_weights(model):
    directory = load_model_directory(model)
    before = {name: tensor.clone() for name, tensor in directory.model.state_dict().items()}
    opened = open_model(directory, precision="int8")
    assert opened.directory.weight_type == "int8"
    after = directory.model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert translate_texts(directory) == translate_texts(model)


def test_commands_that_need_float32_refuse_int8(model, int8):
    for opening in (
        lambda: open_model(int8, precision="float32"),
        lambda: open_model(int8, precision="bfloat16"),
        lambda: open_model(model, ensemble=[int8]),
        lambda: open_for_inspection(int8),
        lambda: load_model_directory(int8),
        lambda: export_int8(int8, model.parent / "again"),
    ):
        with pytest.raises(
            ArtifactError, match=r"holds int8 weights, .* that they were exported from$"
        ):
            opening()
    assert not (model.parent / "again").exists()


def test_an_export_goes_where_nothing_is(model, int8):
    with pytest.raises(UsageError, match=r"--output: .* is already there; name a new directory"):
        export_int8(model, int8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("source_embedding.weight_scale"), "has no tensor source_embedding"),
        (lambda t: t.update(extra=torch.zeros(1)), "has an unknown tensor extra"),
        (
            lambda t: t.update({n: v.float() for n, v in t.items() if v.dtype == torch.int8}),
            "is not int8",
        ),
        (lambda t: t.update({n: v.short() for n, v in t.items() if v.dim() == 1}), "is not "),
        (
            lambda t: t.update({"source_embedding.weight_scale": torch.ones(3)}),
            "has shape",
        ),
    ],
)
def test_damaged_integers_are_one_line(int8, tmp_path, change, message):
    copied = shutil.copytree(int8, tmp_path / "copy")
    tensors = load_file(copied / "model.safetensors")
    change(tensors)
    save_file(tensors, copied / "model.safetensors")
    with pytest.raises(ArtifactError, match=message) as raised:
        open_model(copied)
    assert "\n" not in str(raised.value)
    assert str(copied) in str(raised.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
def test_integers_are_for_the_cpu(model, int8):
    with pytest.raises(UsageError, match="add --device cpu"):
        open_model(model, precision="int8", device="cuda")
    with pytest.raises(ArtifactError, match="add --device cpu"):
        open_model(int8, device="cuda")


def test_off_the_cpu_bfloat16_is_rounded_once_and_float32_is_plain(model):
    directory = load_model_directory(model)
    directory.model.to("meta")  # any other device

    def is_rounded(model):
        products = [m.product for m in model.modules() if hasattr(m, "product")]
        return {isinstance(product, RoundedProduct) for product in products}

    rounded = computing_in(directory.model, "bfloat16", may_change=True)
    assert rounded is directory.model
    assert is_rounded(rounded) == {True}
    assert isinstance(rounded.output_product, RoundedProduct)
    # who shares the model goes on with what it computes by
    plain = computing_in(directory.model, "float32", may_change=False)
    assert is_rounded(plain) == {False}
    assert plain.output_product is None
    assert is_rounded(directory.model) == {True}
    assert computing_in(plain, "float32", may_change=False) is plain
    assert is_rounded(computing_in(directory.model, "float32", may_change=True)) == {False}


ONE, SEVERAL = "the house is green.", "The house is green. It is old."


def origin(kind):
    return ImportOrigin(kind=kind, source="a", files={}, ids=())


@pytest.mark.parametrize(
    ("info", "is_of_sentences"),
    [
        ({}, False),
        ({"several_sentences": 0.0}, True),
        ({"several_sentences": 0.2}, True),
        ({"several_sentences": 0.3}, False),
        ({"origin": origin("Bergamot (Firefox)")}, True),
        ({"origin": origin("Hugging Face Marian (OPUS-MT)")}, True),
        ({"origin": origin("Hugging Face M2M-100 / NLLB")}, True),
        ({"origin": origin("Argos")}, True),
        ({"origin": origin("Hugging Face T5")}, False),
        ({"origin": origin("CTranslate2")}, False),
        ({"origin": origin("Marian"), "several_sentences": 0.9}, False),  # trained further
    ],
)
def test_it_is_known_by_statistics_or_kind(model, info, is_of_sentences):
    directory = replace(load_model_directory(model), info=ModelInfo(**info))
    assert trained_on_sentences(directory) is is_of_sentences


@pytest.mark.parametrize(
    ("recipe", "is_of_sentences"),
    [
        ('[[data.train]]\nbuilt_in = "train"\n', True),
        ('[[data.train]]\nbuilt_in = "train"\n[[data.train]]\nbuilt_in = ""\n', False),
        ('[[data.train]]\nsource = "a"\n', False),
        ("[data]\ntrain = []\n", False),
        ("[data]\ntrain = 1\n", False),
        ("\x00", False),
    ],
)
def test_a_run_from_before_is_known_by_its_recipe(model, tmp_path, recipe, is_of_sentences):
    (tmp_path / "recipe.toml").write_text(recipe)
    directory = replace(load_model_directory(model), path=tmp_path)
    assert trained_on_sentences(directory) is is_of_sentences


def test_a_classifier_takes_texts(classifier):
    directory = load_model_directory(classifier, tasks=("classify",))
    directory = replace(directory, info=replace(directory.info, several_sentences=0.0))
    assert not trained_on_sentences(directory)


@pytest.mark.parametrize(("n_several", "share"), [(0, 0.0), (10, 0.25), (40, 1.0)])
def test_training_stores_the_share_of_lines_and_the_words(tmp_path, n_several, share):
    lines = [SEVERAL] * n_several + [ONE] * (40 - n_several)
    text = tmp_path / "a"
    text.write_text("\n".join(lines) + "\n")
    too_long = tmp_path / "b"
    too_long.write_text("house " * 5000)
    recipe = make_recipe(
        {
            "data": {
                "train": [{"source": str(file), "target": str(file)} for file in (text, too_long)],
                "cache_directory": str(tmp_path),
            },
            "tokenizer": {"vocab_size": 300},
            "model": {**SHAPE, "n_encoder_layers": 1, "n_decoder_layers": 1},
            "training": {"max_steps": 1, "precision": "float32"},
        },
        "test",
    )
    run = train(recipe, tmp_path / "run").run
    assert read_config(run).several_sentences == share
    words = json.loads((run / "frequencies.json").read_text())["words"]
    assert words == sorted({"the", "house", "is", "green", *(["it", "old"] if n_several else [])})
