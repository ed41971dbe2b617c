"""What a machine could do, and where a step's time goes."""

import copy
import math
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from tests.commands import assert_printed_alike
from tests.slowly import slowly
from tests.zoo import RECIPES, recipe_of, tformer
from tformer_cli.artifacts.tensors import load_tensors
from tformer_cli.errors import RecipeError
from tformer_cli.model import attention, operations
from tformer_cli.model.config import PRESETS, ModelConfig
from tformer_cli.model.methods import POSITIONS, SIMILARITIES
from tformer_cli.model.stacks import Layer
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.profiling import OTHER, category_of
from tformer_cli.text.batching import collate
from tformer_cli.trainer import hardware, loss
from tformer_cli.trainer.config import TrainingConfig
from tformer_cli.trainer.gradients import add_gradients
from tformer_cli.trainer.hardware import (
    compile_layers,
    disable_compiling,
    expected_minutes,
    settle_compiling,
    use_kernels,
)
from tformer_cli.trainer.report_interval import ReportInterval
from tformer_cli.trainer.speed import forward_flops, training_flops_per_token


def make_model():
    torch.manual_seed(1)
    config = ModelConfig(
        d_model=16, n_heads=2, d_ff=24, n_encoder_layers=2, n_decoder_layers=2, dropout=0.0
    )
    return Transformer(config, 30).train()


def compiled_layers(model):
    layers = [*model.encoder.layers, *model.decoder.layers]
    return [layer._compiled_call_impl is not None for layer in layers]


@pytest.mark.parametrize("compiles", [False, True])
def test_layers_are_compiled_off_the_cpu_where_that_is_asked_for(compiles):
    model = make_model().to("meta")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's compiler
        assert use_kernels(model, compiles=compiles) == []
        assert compiled_layers(model) == [compiles] * 4
        with disable_compiling(model):
            sources = torch.zeros(2, 5, dtype=torch.int64, device="meta")
            assert model(sources, sources.bool(), sources).shape == (2, 5, 30)


def test_exact_products_of_compiled_layers_are_no_warning():
    tell = ["TF32 is off", UserWarning, "compile_fx.py", 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # of what the compiler imports
        compile_layers(make_model())
        warnings.warn_explicit(*tell, module="torch._inductor.compile_fx")
        with pytest.raises(UserWarning):
            warnings.warn_explicit(*tell, module="torch.nn")


def test_on_the_cpu_they_are_not_and_a_note_says_so():
    model = make_model()
    notes = use_kernels(model, compiles=True)
    assert notes[0] == "training.compile has no effect without a GPU"
    assert not any(compiled_layers(model))


def run_of(**changes):
    return TrainingConfig(**{"tokens_per_batch": 4096, **changes})


@pytest.mark.parametrize(
    ("changes", "minutes"),
    [
        ({}, math.inf),
        ({"max_steps": 1000}, 1000 * 4 * 7e-4 / 60),  # the host's time for 4 layers
        ({"max_steps": 1000, "accumulate": 3, "r_drop": 5.0}, 6000 * 4 * 7e-4 / 60),
        ({"max_tokens": 4_096_000}, 1000 * 4 * 7e-4 / 60),
        ({"max_epochs": 5, "max_tokens": 10**9}, 5 * 40_960 / 4096 * 4 * 7e-4 / 60),
        ({"max_minutes": 3.0}, 3.0),
        ({"max_minutes": 3.0, "max_steps": 10}, 10 * 4 * 7e-4 / 60),
        ({"max_steps": 1000, "tokens_per_batch": 0}, 1000 * 4 * 7e-4 / 60),
    ],
)
def test_the_time_of_a_run_is_foreseen_by_its_first_limit(changes, minutes):
    expected = expected_minutes(make_model(), run_of(**changes), 40_960)
    assert expected == pytest.approx(minutes)


@pytest.mark.parametrize(
    ("changes", "world_size", "n_batches"),
    [
        ({"accumulate": 6}, 2, 3000),
        ({"accumulate": 2}, 8, 1000),  # a quarter of a batch keeps the host as busy
        ({"batch_growth": ((0.5, 2), (0.75, 6))}, 1, 500 + 250 * 2 + 250 * 6),
        ({"batch_growth": ((0.5, 3),), "accumulate": 2}, 2, 2000),
        ({"batch_growth": ((0.5, 3),), "max_tokens": 40_960}, 1, 10),
    ],
)
def test_steps_grow_and_processes_share_them(changes, world_size, n_batches):
    config = run_of(**{"max_steps": 1000, **changes})
    minutes = expected_minutes(make_model(), config, 0, world_size)
    assert minutes == pytest.approx(n_batches * 4 * 7e-4 / 60)


def test_large_models_take_the_time_of_their_operations():
    with torch.device("meta"):
        model = Transformer(ModelConfig(**PRESETS["base"]), 37_000)
    flops = training_flops_per_token(model.config, 37_000, 30, 30)
    expected = expected_minutes(model, run_of(max_steps=1000, tokens_per_batch=25_000), 0)
    assert expected == pytest.approx(1000 * 25_000 * flops / 1e14 / 60)


@pytest.mark.parametrize(
    ("device", "changes", "choice", "is_compiled", "note"),
    [
        ("meta", {}, "auto", True, "layers are compiled by torch at the first"),
        ("meta", {"max_steps": 10}, "auto", False, ""),
        ("meta", {"max_steps": 10}, True, True, ""),
        ("meta", {}, False, False, ""),
        ("cpu", {}, "auto", False, ""),
        ("cpu", {}, True, True, ""),
    ],
)
def test_long_runs_on_a_gpu_are_compiled(device, changes, choice, is_compiled, note):
    config = run_of(compile=choice, **changes)
    compiles, told = settle_compiling(make_model().to(device), config, 40_960)
    assert compiles is is_compiled
    assert told.startswith(note)
    assert bool(told) is bool(note)


def test_what_torch_cannot_compile_is_left_or_refused_by_name():
    shape = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 1, "n_decoder_layers": 1}
    model = Transformer(ModelConfig(**shape, decoder_cell="ssru"), 30).to("meta")
    obstacle = 'with model.decoder_cell = "ssru"'
    compiles, note = settle_compiling(model, run_of(), 0)
    assert not compiles
    assert note.endswith(obstacle)
    with pytest.raises(RecipeError, match=f"^training.compile: .* {obstacle}; omit it"):
        settle_compiling(model, run_of(compile=True), 0)
    assert settle_compiling(model, run_of(max_steps=1), 0) == (False, "")


def gradients(model, n_sentences, n_source, n_target):
    generator = torch.Generator().manual_seed(n_sentences)
    source = torch.randint(4, 30, (n_sentences, n_source), generator=generator)
    mask = torch.ones(n_sentences, n_source, dtype=torch.bool)
    mask[0, 2:] = False
    target = torch.randint(4, 30, (n_sentences, n_target), generator=generator)
    model.zero_grad()
    model(source, mask, target).logsumexp(dim=-1).mean().backward()
    return [weight.grad for weight in model.parameters()]


@pytest.mark.parametrize("by_kernels", [False, True])
@pytest.mark.parametrize("name", RECIPES)
def test_layers_that_are_computed_again_change_no_bit(zoo, tmp_path, monkeypatch, name, by_kernels):
    if not by_kernels:
        monkeypatch.setattr(hardware, "has_fast", lambda: False)
    computed = []
    forward = Layer.forward
    monkeypatch.setattr(Layer, "forward", lambda *a: computed.append(a[0].training) or forward(*a))
    (tmp_path / "recipe.toml").write_text(recipe_of(name, zoo.inputs))
    runs, counts = [], []
    for recomputes in ("false", "true"):
        run = tmp_path / recomputes
        tformer(
            "train", tmp_path / "recipe.toml", "-o", run, "-q", "--device", "cpu", "--max-steps", 3,
            "--set", "model.dropout=0.3", "--set", "training.average='none'",
            "--set", f"training.activation_checkpointing={recomputes}",
        )  # fmt: skip
        runs.append(run / "checkpoints/step-000003")
        counts.append(sum(computed))
        computed.clear()
    assert counts[1] == 2 * counts[0] > 0
    for file in ("model.safetensors", "optimizer.safetensors"):
        plain, again = (load_tensors(run / file) for run in runs)
        assert plain.keys() == again.keys()
        for key, tensor in plain.items():
            assert torch.equal(tensor, again[key]), key


@pytest.fixture
def gpu_attention(monkeypatch):
    """Attention as on a GPU, where torch asks for each width of a mask whether 8 divides it."""
    compute, sdpa = attention.fused_attention, functional.scaled_dot_product_attention

    def attend_aligned(query, key, value, mask=None, rate=0.0, *, bias=None, **options):
        if bias is not None:
            mask = bias if mask is None else torch.where(mask, bias, -math.inf)
            options["is_causal"] = False
        mask = mask if mask is None else attention._align_mask(mask, query)
        return compute(query, key, value, mask, rate, **options)

    def ask_alignment(query, key, value, attn_mask=None, **options):
        if attn_mask is not None and any(n % 8 for n in attn_mask.stride()[:-1]):
            attn_mask = attn_mask.clone()
        return sdpa(query, key, value, attn_mask=attn_mask, **options)

    monkeypatch.setattr(attention, "fused_attention", attend_aligned)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", ask_alignment)
    for name in ("FUSED_FROM_KEYS", "FUSED_FROM_QUERIES"):
        monkeypatch.setattr(attention, name, 0)
    monkeypatch.setattr(operations, "dropout", functional.dropout)


@pytest.mark.usefixtures("gpu_attention")
@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"},
        *slowly(
            {"norm": "post", "dropout": 0.1},
            {"n_encoder_layers": 0},
            {"gated": True, "n_key_heads": 1, "norm_kind": "rms"},
            *({"positions": name} for name, row in POSITIONS.items() if row.is_compilable),
            *({"similarity": name} for name in SIMILARITIES),
        ),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")  # of torch's compiler
def test_batches_of_all_shapes_have_four_graphs_and_no_breaks(monkeypatch, changes):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(1)
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 2, "n_decoder_layers": 2}
    model = Transformer(ModelConfig(**{**sizes, "dropout": 0.0, **changes}), 30).train()
    plain, graphs = copy.deepcopy(model), CompileCounterWithBackend("eager")
    compile_layers(model, graphs)
    compiled = torch.compile(loss._fusable_loss, backend=graphs)
    monkeypatch.setattr(loss, "_compile_loss", lambda: compiled)
    is_decoder = not model.config.n_encoder_layers
    # (B, S, T); the first ones are equal, and 1 is a size of its own to the compiler
    for n, s, t in ((8, 8, 8), (5, 7, 11), (1, 9, 6), (4, 16, 1), (6, 1, 5), (2, 13, 2)):
        batch = collate([[5] * (s - 1)] * n, [[6] * (t - 1)] * n)
        for trained in (model, plain):
            trained.zero_grad()
            interval = ReportInterval(0.0)
            add_gradients(trained, [batch], interval, label_smoothing=0.1, precision="float32")
        if not model.config.dropout:
            for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
                if theirs.grad is not None:
                    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    assert graphs.frame_count == (3 if is_decoder else 4)
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.long
def test_compiled_layers_have_the_same_gradients_for_all_shapes():
    model = make_model()
    faster = copy.deepcopy(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's compiler
        compile_layers(faster)
        for shape in ((8, 12, 10), (5, 20, 17), (3, 30, 33)):
            pairs = zip(gradients(faster, *shape), gradients(model, *shape), strict=True)
            for ours, theirs in pairs:
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
        once = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        gradients(faster, 7, 9, 14)
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == once


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"},
        {"norm": "post"},
        {"decoder_cell": "ssru"},
        {"gated": True, "n_key_heads": 2},
        {"d_head": 6},
        {"projections": False},
    ],
    ids=str,
)
def test_the_formula_counts_what_torch_counts(changes):
    config = ModelConfig(
        d_model=32, n_heads=4, d_ff=48, n_encoder_layers=3, n_decoder_layers=2, **changes
    )
    n_pairs, s, t, vocab_size = 3, 7, 5, 50
    model = Transformer(config, vocab_size).eval()
    source, target = (torch.randint(4, vocab_size, (n_pairs, n)) for n in (s, t))
    # with gradients: without them few rows are padded
    with FlopCounterMode(display=False) as counter:
        model(source, torch.ones(n_pairs, s, dtype=torch.bool), target)
    assert counter.get_total_flops() == n_pairs * forward_flops(config, vocab_size, s, t)


@pytest.mark.parametrize(("preset", "megaflops"), [("small", 45.2), ("base", 286.0)])
def test_a_training_step_costs_what_was_counted_by_hand(preset, megaflops):
    config = ModelConfig(**PRESETS[preset])
    flops = training_flops_per_token(config, 8000, 0.966 * 16.21, 16.21)
    assert flops / 1e6 == pytest.approx(megaflops, rel=1e-3)


def event(*names):
    """An event called by those after it."""
    parent = None
    for name in reversed(names):
        parent = SimpleNamespace(name=name, cpu_parent=parent)
    return parent


@pytest.mark.parametrize(
    ("names", "category"),
    [
        (("aten::addmm",), "matrix products"),
        (("aten::mm", "AddmmBackward0"), "matrix products"),
        (("aten::_log_softmax",), "loss"),
        (("aten::_log_softmax_backward_data",), "loss"),
        (("aten::_softmax",), "attention"),
        (("aten::bmm",), "attention"),
        (("aten::_scaled_dot_product_attention_math",), "attention"),
        (("aten::native_layer_norm_backward",), "norms"),
        (("aten::random_",), "dropout and random numbers"),
        (("aten::_fused_adam_",), "optimizer and clipping"),
        (("aten::mul", "Optimizer.step"), "optimizer and clipping"),
        (("aten::baddbmm", "Optimizer.step"), "optimizer and clipping"),
        (("aten::copy_", "aten::_to_copy"), "copies and fills"),
        (("aten::add", "autograd::engine::evaluate_function: AddBackward0"), OTHER),
        (("aten::sum", "NllLossBackward0"), "loss"),
        (("waiting for data",), "waiting for data"),
    ],
)
def test_operators_belong_where_a_reader_expects_them(names, category):
    assert category_of(event(*names)) == category


def test_numbers_are_as_close_as_their_printed_digits_show():
    close = {"rel": 1e-4, "abs": 1e-4}
    assert_printed_alike("a 0.123 b 7", "a 0.124 b 7", **close)
    assert_printed_alike("0.12 1.2e-5", "0.121 1.3e-5", **close)
    for ours, theirs in (("0.123", "0.125"), ("0.1234567", "0.1236567"), ("a 0.1", "b 0.1")):
        with pytest.raises(AssertionError):
            assert_printed_alike(ours, theirs, **close)
