import math
import shutil
from dataclasses import replace

import pytest
import torch

from tests.screens import draw_text
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.inspect.jobs.heads import subject_of
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.views.logits import (
    VIEW,
    LogitsOptions,
    layer_logits,
    read_smoothing,
)

SOURCE, TARGET_INPUT = (5, 9, 7, 3), (2, 20, 24)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_lens_of_the_last_layer_is_the_models_output_bit_for_bit(norm):
    torch.manual_seed(3)
    config = ModelConfig(
        d_model=32, n_heads=4, d_ff=48, n_encoder_layers=1, n_decoder_layers=3, norm=norm
    )
    model = Transformer(config, 40).eval()
    with torch.no_grad():  # a final norm that is not neutral
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    logits, lens = layer_logits(model, SOURCE, TARGET_INPUT)
    source, target = torch.tensor([SOURCE]), torch.tensor([TARGET_INPUT])
    with torch.inference_mode():
        expected = model(source, torch.ones_like(source, dtype=torch.bool), target)[0]
    assert torch.equal(logits, expected)
    assert torch.equal(lens[-1], expected)
    assert lens.shape == (3, 3, 40)
    # a model cut after a layer says what the lens of that layer says
    model.decoder.layers = model.decoder.layers[:2]
    shorter, _ = layer_logits(model, SOURCE, TARGET_INPUT)
    assert torch.equal(shorter, lens[1])
    assert not any(layer._forward_hooks for layer in model.decoder.layers)


def test_logits_are_the_models_and_their_softmax_the_probabilities(model):
    (record,) = inspect_view("logits", model, ["A man."], settings={"lens": True, "top_k": 7})
    maps = record.sentence.captured
    directory = load_model_directory(model)
    source, target = torch.tensor([maps.source_ids]), torch.tensor([maps.target_input_ids])
    with torch.inference_mode():
        mask = torch.ones_like(source, dtype=torch.bool)
        logits = directory.any_model(source, mask, target)[0]
    for position, expected in zip(record.positions, logits.double(), strict=True):
        total = torch.logsumexp(expected, 0)
        for candidate in (position.chosen, *position.top):
            assert candidate.logit == pytest.approx(expected[candidate.id].item(), abs=1e-5)
            probability = math.exp(candidate.logit - total.item())
            assert candidate.probability == pytest.approx(probability, rel=1e-4)
        assert position.lens[-1].top.logit == pytest.approx(expected.max().item(), abs=1e-5)
    data = VIEW.json(record)["positions"][0]
    assert data["logit"] == pytest.approx(record.positions[0].chosen.logit, rel=1e-5)
    assert set(data["top"][0]) == {"piece", "id", "probability", "logit"}
    text = draw_text(lambda console: VIEW.text(console, record, LogitsOptions()), width=80)
    first = text.splitlines()[4].split()
    assert f"{record.positions[0].chosen.logit:.2f}" in first
    assert record.smoothing is None


@pytest.fixture
def smoothed(model, tmp_path):
    """Copies the model into a run with a recipe, and says how sure each token is."""
    run = shutil.copytree(model, tmp_path / "run")

    def read(recipe, *probabilities):
        (run / "recipe.toml").write_text(recipe)
        (record,) = inspect_view("logits", run, ["A man."])
        positions = tuple(
            replace(position, top=(replace(position.top[0], probability=probability),))
            for position, probability in zip(record.positions, probabilities, strict=False)
        )
        directory = load_model_directory(run)
        explained = read_smoothing(subject_of(directory), positions)
        return replace(record, positions=positions, smoothing=explained)

    return read


RECIPE = "[training]\nlabel_smoothing = 0.2\n"


def test_a_probability_that_label_smoothing_holds_down_is_explained(smoothed):
    record = smoothed(RECIPE, 0.81, 0.4, 0.99)
    n_tokens = record.smoothing.n_targets
    assert record.smoothing.positions == (0,)
    # KL(q ‖ p) is 0 for p = q alone: torch's loss has its least value there
    weights = torch.zeros(n_tokens, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        weights[3] = math.log(
            record.smoothing.peak / ((1 - record.smoothing.peak) / (n_tokens - 1))
        )
    loss = torch.nn.functional.cross_entropy(weights, torch.tensor(3), label_smoothing=0.2)
    loss.backward()
    assert weights.grad.abs().max() < 1e-12
    text = draw_text(lambda console: VIEW.text(console, record, LogitsOptions()), width=400)
    assert (
        f"0.80 because of label smoothing 0.2: training asked for 1 − 0.2 + 0.2/{n_tokens}" in text
    )
    assert "is near that at 1 of 3 positions" in text
    data = VIEW.json(record)["smoothing"]
    assert data == {
        "label_smoothing": 0.2,
        "peak": pytest.approx(0.8 + 0.2 / n_tokens, rel=1e-5),
        "positions": [0],
    }


@pytest.mark.parametrize(
    "recipe",
    [
        "[training]\nlabel_smoothing = 0.0\n",
        "[training]\nlabel_smoothing = 'x'\n",
        "training = 1\n",
        "[training\n",
        "",
    ],
)
def test_without_a_known_label_smoothing_nothing_is_said(smoothed, recipe):
    assert smoothed(recipe, 0.81, 0.4).smoothing is None


def test_far_from_the_peak_nothing_is_said(smoothed):
    assert smoothed(RECIPE, 0.77, 0.83).smoothing is None
