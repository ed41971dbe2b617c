"""The model that a run publishes: an average, a moving one or the best."""

import pytest
import torch

from tformer_cli.artifacts.tensors import load_tensors, save_tensors
from tformer_cli.errors import ArtifactError
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.recipe import make_recipe
from tformer_cli.trainer.best_model import BestModelPublisher, average_weights
from tformer_cli.trainer.config import TrainingConfig, ValidationConfig
from tformer_cli.trainer.optimizers.optimizer import MovingAverage, decay_at, make_optimizer
from tformer_cli.trainer.processes.group import Processes
from tformer_cli.trainer.processes.signals import StopRequest
from tformer_cli.trainer.resuming.checkpoints import MODEL, Checkpoints
from tformer_cli.trainer.resuming.saving import RunSaver
from tformer_cli.trainer.resuming.state import TrainingState
from tformer_cli.trainer.validation import Validation


class FixedScores:
    """A validator that has made up its mind."""

    def __init__(self, loss, bleu):
        self.scores = {"loss": loss, "bleu": bleu}
        self.n_validations = 0

    def validate(self, model, sample, before_batch=None):
        self.n_validations += 1
        return Validation(scores=self.scores, signatures={}, sample=("", "", ""), seconds=0.0)


@pytest.fixture
def finished(tmp_path):
    """Returns a function that ends a run of three checkpoints, of which step 2 was the best."""

    def finish(metric, loss, bleu, damaged=False):
        torch.manual_seed(1)
        shape = ModelConfig(d_model=8, n_heads=2, d_ff=8, n_encoder_layers=1, n_decoder_layers=1)
        model = Transformer(shape, 20)
        config = TrainingConfig(
            max_steps=3, checkpoint_every=1, average="last", average_checkpoints=3
        )
        validation = ValidationConfig(metric=metric)
        saver = RunSaver(
            model, make_optimizer(model, config), Checkpoints(tmp_path), config, validation
        )
        state = TrainingState()
        for state.step, (its_loss, its_bleu) in enumerate(((3.0, 10.0), (2.0, 30.0)), start=1):
            state.add_validation({"loss": its_loss, "bleu": its_bleu}, validation)
            saver.save(state)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter += 1.0
        state.step = 3
        saver.save(state)
        if damaged:
            path = saver.checkpoints.path(2) / MODEL
            path.write_bytes(path.read_bytes()[:-1])
        published = []
        judge = BestModelPublisher(
            model,
            FixedScores(loss, bleu),
            validation,
            lambda weights, step, scores: published.append((dict(weights), step, dict(scores))),
            Processes(),
        )
        average = judge.publish_average(saver, state, StopRequest())
        assert len(published) == 1
        return average, *published[0], saver.checkpoints

    return finish


@pytest.mark.parametrize(
    ("metric", "loss", "bleu"), [("bleu", 9.0, 30.0), ("bleu", 9.0, 31.0), ("loss", 2.0, 0.0)]
)
def test_an_average_as_good_as_the_best_checkpoint_is_the_final_model(finished, metric, loss, bleu):
    average, weights, step, scores, checkpoints = finished(metric, loss, bleu)
    assert (average.steps, average.better_step, step) == ([1, 2, 3], 0, 3)
    assert scores == {"loss": loss, "bleu": bleu}
    middle = load_tensors(checkpoints.path(2) / MODEL)  # each step added 1 to every weight
    assert all(torch.allclose(weights[name], middle[name], atol=1e-6) for name in middle)


@pytest.mark.parametrize(("metric", "loss", "bleu"), [("bleu", 0.0, 29.9), ("loss", 2.1, 99.0)])
def test_a_checkpoint_that_scores_better_takes_its_place(finished, metric, loss, bleu):
    average, weights, step, scores, checkpoints = finished(metric, loss, bleu)
    assert (average.steps, average.better_step, step) == ([], 2, 2)
    assert scores == {"loss": 2.0, "bleu": 30.0}, "those of the weights that are published"
    assert average.report.scores == {"loss": loss, "bleu": bleu}, "the average's own are told"
    best = load_tensors(checkpoints.path(2) / MODEL)
    assert all(torch.equal(weights[name], best[name]) for name in best)


def test_a_better_checkpoint_that_is_damaged_leaves_the_average(finished):
    average, _, step, _, _ = finished("bleu", 0.0, 1.0, damaged=True)
    assert (average.steps, average.better_step, step) == ([1, 3], 0, 3)
    assert "step-000002" in average.damaged[0]


@pytest.mark.parametrize(("n_averaged", "final", "better"), [(1, 3, 0), (2, 2, 2)])
def test_one_checkpoint_is_never_validated_twice(tmp_path, n_averaged, final, better):
    torch.manual_seed(1)
    shape = ModelConfig(d_model=8, n_heads=2, d_ff=8, n_encoder_layers=1, n_decoder_layers=1)
    model = Transformer(shape, 20)
    config = TrainingConfig(
        max_steps=3, checkpoint_every=1, average="best", average_checkpoints=n_averaged
    )
    validation = ValidationConfig(metric="loss")
    saver = RunSaver(
        model, make_optimizer(model, config), Checkpoints(tmp_path), config, validation
    )
    state = TrainingState()
    for state.step, loss in ((1, 3.0), (2, 2.5 - n_averaged), (3, 1.0)):
        state.add_validation({"loss": loss}, validation)
        saver.save(state)
    published = []
    validator = FixedScores(9.0, 0.0)
    judge = BestModelPublisher(
        model, validator, validation, lambda *arguments: published.append(arguments), Processes()
    )
    average = judge.publish_average(saver, state, StopRequest())
    assert validator.n_validations == n_averaged - 1
    assert (average.report is None, average.better_step) == (n_averaged == 1, better)
    ((_, step, scores),) = published
    assert (step, scores) == (final, {"loss": 1.0 if n_averaged == 1 else 0.5})


def test_the_average_is_the_mean_of_each_tensor_in_any_order(tmp_path):
    files = []
    for number, value in enumerate((1.0, 2.0, 6.0)):
        files.append(tmp_path / f"{number}.safetensors")
        save_tensors(files[-1], {"a": torch.full((2, 3), value), "b": torch.tensor([value**2])})
    average = average_weights(files)
    assert torch.equal(average["a"], torch.full((2, 3), 3.0))
    assert torch.allclose(average["b"], torch.tensor([41 / 3]))
    backwards = average_weights(files[::-1])
    assert all(torch.equal(average[name], backwards[name]) for name in average)


def test_a_damaged_file_and_no_file_are_errors(tmp_path):
    damaged = tmp_path / "x.safetensors"
    damaged.write_bytes(b"not tensors")
    with pytest.raises(ArtifactError, match="is damaged or not a safetensors file"):
        average_weights([damaged])
    with pytest.raises(ValueError, match="no checkpoint to average"):
        average_weights([])


def transformer(seed=1):
    torch.manual_seed(seed)
    shape = ModelConfig(d_model=8, n_heads=2, d_ff=16, n_encoder_layers=1, n_decoder_layers=1)
    return Transformer(shape, vocab_size=12)


def disturb(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))


def test_equals_the_sum_of_all_weights_times_what_each_later_step_left_of_them():
    model, decay, n_steps = transformer(), 0.4, 9
    average = MovingAverage(model, decay)
    seen = []
    for step in range(1, n_steps + 1):
        disturb(model, step)
        average.update(step)
        seen.append({name: value.double() for name, value in model.state_dict().items()})
    decays = [min(decay, (1 + t) / (10 + t)) for t in range(1, n_steps + 1)]
    assert decays[0] == 2 / 11, "the rule's first value"
    assert decays[-1] == decay, "the largest is reached in between"
    initial = {name: value.double() for name, value in transformer().state_dict().items()}
    for name, tensor in average.tensors().items():
        expected = torch.tensor(decays, dtype=torch.float64).prod() * initial[name]
        for place, weights in enumerate(seen):
            left = torch.tensor([1.0, *decays[place + 1 :]], dtype=torch.float64).prod()
            expected = expected + (1.0 - decays[place]) * left * weights[name]
        assert torch.allclose(tensor.double(), expected, atol=1e-5), name


def test_the_decay_rises_to_the_largest_and_stays():
    rates = [decay_at(0.999, step) for step in (1, 10, 100, 8_989, 8_990, 1_000_000)]
    assert rates == sorted(rates)
    assert rates[1] == 11 / 20
    assert rates[3] < 0.999 == rates[4] == rates[5]


def test_weights_that_stay_are_their_own_average_and_tied_ones_stay_tied():
    model = transformer()
    average = MovingAverage(model, 0.9)
    for step in range(1, 4):
        average.update(step)
    for ours, theirs in zip(average.model.parameters(), model.parameters(), strict=True):
        assert ours is not theirs
        assert torch.allclose(ours, theirs, atol=1e-7)
    assert len(list(average.model.parameters())) == len(list(model.parameters()))
    assert average.model.output_matrix is next(
        p for p in average.model.parameters() if p.shape == model.output_matrix.shape
    )


def test_the_average_is_neither_trained_nor_dropped_from():
    average = MovingAverage(transformer(), 0.9)
    assert not average.model.training
    assert not any(parameter.requires_grad for parameter in average.model.parameters())


def test_what_was_kept_goes_on_bit_for_bit():
    model = transformer()
    average = MovingAverage(model, 0.9)
    disturb(model, 1)
    average.update(1)
    kept = {name: value.clone() for name, value in average.tensors().items()}
    resumed = MovingAverage(model, 0.9)
    resumed.load(kept)
    disturb(model, 2)
    for moving in (average, resumed):
        moving.update(2)
    for name, value in average.tensors().items():
        assert torch.equal(resumed.tensors()[name], value)
    average.restart()
    for name, value in average.tensors().items():
        assert torch.equal(value, model.state_dict()[name])


def test_a_decay_without_a_moving_average_is_an_error():
    with pytest.raises(ValueError, match='ema_decay: needs average = "ema", but average is "last"'):
        TrainingConfig(ema_decay=0.99)
    with pytest.raises(ValueError, match=r"ema_decay: must be at least 0 and below 1, but is 1\.0"):
        TrainingConfig(average="ema", ema_decay=1.0)
    recipe = make_recipe(
        {
            "data": {"train": [{"tsv": "x"}]},
            "training": {"max_steps": 1, "average": "ema", "ema_decay": 0.99},
        },
        "test",
    )
    assert recipe.training.ema_decay == 0.99
