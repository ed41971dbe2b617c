import numpy as np
import pytest
import torch

from tests.zoo import recipe_of, tformer
from tformer_cli.errors import RecipeError
from tformer_cli.fast.native.training import use_native_operations
from tformer_cli.model.config import PRESETS, ModelConfig
from tformer_cli.model.transformer import Transformer
from tformer_cli.train import train
from tformer_cli.trainer import batch_budget, hardware
from tformer_cli.trainer.batch_budget import (
    KEPT_BYTES,
    PairLengths,
    expected_budget,
    largest_budget,
    settle_tokens_per_batch,
)
from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.trainer.hardware import recompute_layers
from tformer_cli.trainer.memory import free_memory
from tformer_cli.trainer.optimizers.optimizer import make_optimizer, optimizer_tensors
from tformer_cli.trainer.optimizers.schedule import largest_share

LENGTHS = PairLengths(source=20, target=30, least=(2, 3), shortest=5, total=10**6)


def model():
    torch.manual_seed(4)
    config = ModelConfig(d_model=16, n_heads=2, d_ff=24, n_encoder_layers=1, n_decoder_layers=1)
    return Transformer(config, 50)


def settle(trained, config, lengths=LENGTHS):
    optimizer = make_optimizer(trained, config)
    return settle_tokens_per_batch(trained, config, lengths, "float32", optimizer)


class Corpus:
    def __init__(self, source, target):
        self._lengths = np.array([source, target], np.int32)

    def __len__(self):
        return self._lengths.shape[1]

    def lengths(self, rows):
        return self._lengths[:, rows]


@pytest.mark.parametrize("limit", [30, 31, 100, 5000, 123_456, 10**9])
def test_the_search_stays_below_what_fits_and_near_it(limit):
    tried = []
    budget = largest_budget(lambda n: tried.append(n) or n <= limit, 30, 10**6, 0.9)
    assert 30 <= budget <= limit
    assert budget >= min(0.8 * limit, 10**6)
    assert len(tried) < 30


def test_what_does_not_fit_at_all_is_found_out_at_once():
    assert largest_budget(lambda n: False, 30, 1000, 0.9) == 0


def test_lengths_count_the_end_of_the_sentence_over_all_corpora():
    lengths = PairLengths.of([Corpus([3, 1], [2, 9]), Corpus([], []), Corpus([4], [1])])
    assert lengths == PairLengths(source=5, target=10, least=(2, 2), shortest=4, total=15)


def test_extremes_hold_the_longest_and_the_most_pairs_within_the_budget():
    assert list(LENGTHS.extremes(600)) == [(20, 20, 30), (30, 20, 20), (120, 5, 5)]
    assert next(LENGTHS.extremes(7))[0] == 1


@pytest.mark.parametrize(
    ("lengths", "shapes"),
    [
        ({"source": 20, "target": 2, "least": (3, 2)}, [(3, 20, 2), (20, 3, 2), (15, 4, 2)]),
        ({"source": 17, "target": 2, "least": (17, 2)}, [(3, 17, 2)] * 3),
        ({"source": 1, "target": 9, "least": (1, 8)}, [(6, 1, 9), (7, 1, 8), (7, 1, 8)]),
    ],
    ids=["labels of texts", "labels of images", "blocks of a text"],
)
def test_extremes_keep_the_length_of_a_side_that_has_one(lengths, shapes):
    assert list(PairLengths(**lengths, shortest=4, total=99).extremes(60)) == shapes


@pytest.mark.parametrize("name", ["memory", "classifier", "masked", "images", "tagger"])
def test_largest_batches_of_every_kind_are_batches(zoo, tmp_path, monkeypatch, name):
    """A GPU has no kernels, which look over targets that are too many."""
    tried = []

    def try_all(recipe, prepared):
        for shape in PairLengths.of(prepared.corpora).extremes(300):
            batch_budget._add_gradients(prepared.trainer.model, recipe.training, shape, "float32")
            tried.append(shape)
        return prepared.started

    monkeypatch.setattr(train, "settle_batches", try_all)
    monkeypatch.setattr(hardware, "has_fast", lambda: False)
    (tmp_path / "recipe.toml").write_text(recipe_of(name, zoo.inputs))
    tformer("train", tmp_path / "recipe.toml", "-o", tmp_path / "run", "-q", "--device", "cpu")
    assert len(tried) == 3


def test_a_budget_for_the_cpu_grows_with_what_is_free_and_leaves_the_model_alone(monkeypatch):
    trained, config = model(), TrainingConfig(tokens_per_batch=0)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    budgets = []
    for free in (2_000_000, 4_000_000, 10**15):
        monkeypatch.setattr(batch_budget, "free_memory", lambda free=free: free)
        budgets.append(settle(trained, config))
    assert 30 < budgets[0] < budgets[1] / 1.9
    assert budgets[1] < budgets[2] == LENGTHS.total
    assert torch.equal(torch.get_rng_state(), before)
    assert all(weight.grad is None for weight in trained.parameters())
    monkeypatch.setattr(batch_budget, "free_memory", lambda: 1000)
    with pytest.raises(RecipeError, match=r"data\.max_length: a batch of the longest pair, 30"):
        settle(trained, config)


def test_layers_that_are_computed_again_leave_room_for_larger_batches(monkeypatch):
    monkeypatch.setattr(batch_budget, "free_memory", lambda: 10**8)
    budgets = []
    for recomputes in (False, True):
        trained = Transformer(
            ModelConfig(d_model=16, n_heads=2, d_ff=64, n_encoder_layers=4, n_decoder_layers=4), 50
        )
        recompute_layers(trained, recomputes=recomputes)
        config = TrainingConfig(tokens_per_batch=0, activation_checkpointing=recomputes)
        budgets.append(settle(trained, config))
        assert trained.encoder.recomputes == recomputes
    assert budgets[1] > 2 * budgets[0]


@pytest.mark.parametrize("longest", [5, 20, 65, 128])
def test_what_rows_are_filled_up_with_makes_no_budget_small(monkeypatch, longest, kernels):
    monkeypatch.setattr(batch_budget, "free_memory", lambda: 10**8)
    lengths = PairLengths(source=longest, target=longest, least=(3, 3), shortest=3, total=10**6)
    budgets = []
    for library in (None, kernels):
        trained = model()
        if library is not None:
            use_native_operations(trained, library)
        config = TrainingConfig(tokens_per_batch=0)
        budgets.append(settle(trained, config, lengths))
    assert budgets[1] > 0.7 * budgets[0]


@pytest.mark.parametrize(
    ("settings", "n_processes", "share"),
    [
        ({}, 1, 1.0),
        ({}, 8, 1 / 8),
        ({"accumulate": 3}, 8, 3 / 8),
        ({"accumulate": 8}, 8, 1.0),
        ({"accumulate": 3}, 2, 1.0),
        ({"batch_growth": ((0.5, 4),), "max_steps": 9}, 8, 1 / 2),
    ],
)
def test_a_gpu_tries_its_share_of_the_recipes_batches(monkeypatch, settings, n_processes, share):
    config = TrainingConfig(tokens_per_batch=2400, **settings)
    assert largest_share(config, n_processes) == share
    tried = []
    monkeypatch.setattr(
        batch_budget, "_fits", lambda *arguments: tried.append(arguments[2]) or True
    )
    trained = model().to("meta")
    arguments = LENGTHS, "float32", make_optimizer(trained, config), share
    assert settle_tokens_per_batch(trained, config, *arguments) == 2400
    assert tried == list(LENGTHS.extremes(round(2400 * share)))


def test_a_budget_of_the_recipe_is_taken_on_a_cpu():
    config = TrainingConfig(tokens_per_batch=77)
    assert settle(model(), config) == 77


def test_free_memory_is_the_least_of_system_and_group(tmp_path):
    proc, group = tmp_path / "proc", tmp_path / "group"
    for directory in (proc, group):
        directory.mkdir()
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    5000 kB\n")
    assert free_memory(proc, group) == 5000 * 1024
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("1000\n")
    assert free_memory(proc, group) == 5000 * 1024
    (group / "memory.max").write_text("1001000\n")
    assert free_memory(proc, group) == 1_000_000
    assert free_memory(tmp_path, tmp_path) > 1 << 20
    assert free_memory() >= 0


@pytest.mark.parametrize("name", ["adam", "muon"])
def test_a_trial_reserves_the_state_that_the_optimizer_will_keep(monkeypatch, name):
    for function in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, function, lambda: None)
    trained = model()
    next(trained.parameters()).requires_grad_(requires_grad=False)
    config = TrainingConfig(optimizer=name)
    optimizer = make_optimizer(trained, config)
    reserved, initial_state = [], optimizer.initial_state

    def reserve(parameter):
        reserved.append(initial_state(parameter))
        return reserved[-1]

    monkeypatch.setattr(optimizer, "initial_state", reserve)
    assert batch_budget._fits(trained, config, (3, 5, 6), "float32", optimizer)
    n_reserved = sum(value.numel() for state in reserved for value in state.values())
    batch_budget._add_gradients(trained, config, (3, 5, 6), "float32")
    optimizer.step()
    kept = optimizer_tensors(optimizer, trained)
    assert n_reserved == sum(value.numel() for value in kept.values()) > 0


@pytest.mark.gpu
def test_a_budget_found_on_a_gpu_fits_and_one_that_does_not_is_refused():
    trained = model().cuda()
    budget = settle(trained, TrainingConfig(tokens_per_batch=0))
    assert budget >= 30
    config = TrainingConfig(tokens_per_batch=10**11)
    with pytest.raises(RecipeError, match="do not fit in the GPU's memory"):
        settle(trained, config)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_estimate_for_a_gpu_counts_what_a_forward_pass_keeps(precision):
    config = ModelConfig(d_model=128, n_heads=4, d_ff=512, n_encoder_layers=2, n_decoder_layers=2)
    shape = n_pairs, _, length = 100, 29, 29
    kept = batch_budget._kept_bytes(Transformer(config, 50), TrainingConfig(), shape, precision)
    expected = KEPT_BYTES[precision] * n_pairs * length * config.d_model * 4
    assert 0.8 * expected < kept < 1.1 * expected


def test_the_estimate_for_a_gpu_grows_with_memory_and_falls_with_the_model():
    base, big = (ModelConfig(**PRESETS[name]) for name in ("base", "big"))
    small, large = (expected_budget(base, 37_000, "bfloat16", n << 30) for n in (12, 24))
    assert 20_000 < small < large / 2
    assert expected_budget(big, 37_000, "bfloat16", 24 << 30) < large / 2
    assert expected_budget(base, 37_000, "float32", 24 << 30) < 0.7 * large
    assert expected_budget(big, 37_000, "bfloat16", 1 << 30) == 0
