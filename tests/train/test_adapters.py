import json
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch.nn import functional
from typer.testing import CliRunner

from tests.kinds.test_without_torch import without_torch
from tests.slowly import slowly
from tests.watched_training import crash_at, sha256
from tformer_cli.artifacts.config_file import read_config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.artifacts.tensors import load_tensors, save_tensors
from tformer_cli.cli.app import app
from tformer_cli.errors import ArtifactError
from tformer_cli.evaluate.evaluate import evaluate_model
from tformer_cli.fast.native.training import use_native_operations
from tformer_cli.model.adapter_config import AdapterConfig, adaptable_parts, adapted_parts
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.operations import Linear
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.jobs.diff import open_model_or_checkpoint
from tformer_cli.recipe import make_recipe
from tformer_cli.train.data import validation_pairs
from tformer_cli.train.train import prepare, train
from tformer_cli.trainer.adapters import MergedAdapters, add_low_ranks, merged_weights
from tformer_cli.trainer.processes.group import Processes

ALL = ("query", "key", "value", "out_projection", "inner", "outer")
SOURCE, MASK = torch.tensor([[5, 6, 7, 3]]), torch.ones(1, 4, dtype=torch.bool)
TARGET = torch.tensor([[2, 8, 9]])


@pytest.fixture(scope="module", autouse=True)
def every_test_on_one_thread(one_thread):
    """Trainings here are small, and compared bit for bit."""


def adapt_model(targets=ALL, changes=None, **options):
    """A small model whose adapters are not 0 any more."""
    torch.manual_seed(1)
    config = ModelConfig(
        d_model=16,
        n_heads=2,
        d_ff=24,
        n_encoder_layers=2,
        n_decoder_layers=1,
        dropout=0.0,
        **changes or {},
    )
    model = Transformer(config, 20)
    adapter = AdapterConfig(rank=3, alpha=6.0, targets=targets, **options)
    add_low_ranks(model, adapter)
    for name, weight in model.named_parameters():
        if name.endswith("lora_B"):
            torch.nn.init.normal_(weight, std=0.2)
    return model, adapter


def test_adapters_add_what_the_paper_says():
    """Hu et al. 2021, section 4.1, written out beside the rows that are adapted."""
    model, adapter = adapt_model(("*.query", "value"))
    linear = model.encoder.layers[0].self_attention.in_projection
    values = torch.randn(2, 5, 16)
    expected = functional.linear(values, linear.weight, linear.bias)
    for name, first in (("query", 0), ("value", 32)):
        low_rank = linear.low_ranks[name]
        expected[..., first : first + 16] += 2.0 * (values @ low_rank.lora_A.T @ low_rank.lora_B.T)
    torch.testing.assert_close(linear(values), expected)
    torch.testing.assert_close(linear.part(values, slice(16, None)), expected[..., 16:])
    torch.testing.assert_close(linear.part(values, slice(16)), expected[..., :16])
    with torch.no_grad():
        torch.testing.assert_close(linear(values), expected)
    assert adapter.scale == 2.0


@pytest.mark.parametrize(
    "changes",
    [{}, {"n_key_heads": 1, "gated": True, "similarity": "additive", "positions": "relative"}],
    ids=str,
)
@pytest.mark.parametrize("by_kernels", [False, True])
def test_an_adapted_model_computes_and_learns_as_the_merged_one(kernels, by_kernels, changes):
    """The gradient of B and A is that of the merged matrix, by the chain rule."""
    model, adapter = adapt_model(changes=changes)
    plain = Transformer(model.config, 20)
    plain.load_state_dict(merged_weights(model.state_dict(), model.config, adapter))
    if by_kernels:
        assert use_native_operations(model, kernels)
    model.train()
    results = [network(SOURCE, MASK, TARGET) for network in (model, plain)]
    near = {"rtol": 1e-4, "atol": 1e-5} if changes else {}  # more sums, which round otherwise
    torch.testing.assert_close(*results, **near)
    for result in results:
        result.square().sum().backward()
    for part in adapted_parts(model.config, ALL):
        whole = plain.get_submodule(part.module).weight.grad[part.first : part.last]
        a, b = (model.get_parameter(part.weight(letter)) for letter in "AB")
        torch.testing.assert_close(b.grad, 2.0 * whole @ a.T, **near)
        torch.testing.assert_close(a.grad, 2.0 * b.T @ whole, **near)
    trained = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if ".lora_" in name}


def test_dropout_is_of_what_adapters_read_alone():
    model, _ = adapt_model(("outer",), dropout=0.5)
    linear = model.encoder.layers[0].feed_forward.outer
    values = torch.randn(4, 24)
    model.eval()
    whole = linear(values)
    model.train()
    assert not torch.equal(linear(values), whole)
    linear.low_ranks["outer"].lora_B.data.zero_()
    plain = functional.linear(values, linear.weight, linear.bias)
    assert torch.equal(linear(values), plain)


def test_merged_matrices_lie_where_they_lay_and_are_written_again():
    """Engines look at place and version to find out that weights have changed."""
    model, adapter = adapt_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    adapters = MergedAdapters(model)
    seen = []
    for _ in range(2):
        with adapters.merge_adapters():
            linears = [module for module in model.modules() if isinstance(module, Linear)]
            assert not any(linear.adapters for linear in linears)
            seen.append([(linear.weight.data_ptr(), linear.weight._version) for linear in linears])
            expected = merged_weights(before, model.config, adapter)
            weights = model.state_dict()
            assert weights.keys() == expected.keys()
            assert all(torch.equal(weights[name], expected[name]) for name in expected)
    for (place, version), (place_again, later) in zip(*seen, strict=True):
        assert place == place_again
        assert later > version
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_parts_are_chosen_by_the_end_of_their_names():
    config = ModelConfig(n_encoder_layers=2, n_decoder_layers=1)
    assert len(adaptable_parts(config)) == 3 * 6 + 4
    names = [part.name for part in adapted_parts(config, ("query", "cross_attention.*"))]
    assert names == [
        "encoder.layers.0.self_attention.query",
        "encoder.layers.1.self_attention.query",
        "decoder.layers.0.cross_attention.query",
        "decoder.layers.0.cross_attention.key",
        "decoder.layers.0.cross_attention.value",
        "decoder.layers.0.cross_attention.out_projection",
        "decoder.layers.0.self_attention.query",
    ]


def test_parts_of_heads_that_share_keys_are_as_many_rows_as_there_are():
    config = ModelConfig(n_encoder_layers=1, n_decoder_layers=1, n_key_heads=2, gated=True)
    (query,) = adapted_parts(config, ("encoder.*.query",))
    (value,) = adapted_parts(config, ("encoder.*.value",))
    assert (query.first, query.last, value.first, value.last) == (0, 512, 640, 768)
    assert len(adapted_parts(config, ("gate",))) == 2
    with pytest.raises(ValueError, match='no matrix fits "query"; the model has inner, outer in'):
        adapted_parts(ModelConfig(projections=False), ("query",))


VALID = {"data__valid": [{"built_in": "valid", "pairs": 200}]}
RANK = {"adapter__rank": 2}


def recipe_of(make, model, run, **changes):
    changes = {"training__max_steps": 4, "training__learning_rate": 1e-2, **RANK, **changes}
    return make(model, run, **changes)


def translate_text(*args):
    result = CliRunner().invoke(app, ["translate", *map(str, args), "A dog.", "a man", "-q"])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_adapters_alone_are_trained_saved_and_merged(make, tmp_path, model):
    run = tmp_path / "run"
    train(recipe_of(make, model, run), run)
    before, after = (load_tensors(path / "model.safetensors") for path in (model, run))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {n for n in before if n.endswith("in_projection.weight")}
    for name in changed:
        rows = len(after[name]) // 3
        assert torch.equal(before[name][rows : 2 * rows], after[name][rows : 2 * rows])
    state = load_tensors(run / "checkpoints/step-000004/optimizer.safetensors")
    trained = {name.rpartition(":")[0] for name in state if ":" in name}
    assert len(trained) == 4 * 2 * 2
    assert all(".low_ranks." in name for name in trained)
    (run / "adapter").rename(tmp_path / "apart")
    merged = load_model_directory(model, adapter=tmp_path / "apart").model.state_dict()
    assert all(torch.equal(merged[name], tensor) for name, tensor in after.items())
    assert translate_text(model, "--adapter", tmp_path / "apart") == translate_text(run)
    assert read_config(run).start.model == str(model)


@pytest.mark.parametrize(
    "changes",
    [
        {
            "adapter__dropout": 0.2,
            "adapter__targets": ["out_projection", "inner", "key"],
            "training__average": "ema",
        },
        {"training__optimizer": "muon"},
    ],
    ids=["dropout and ema", "muon"],
)
@pytest.mark.parametrize("by_kernels", ["1", *slowly("0")])
def test_the_run_resumes_exactly_without_the_model(
    make, tmp_path, model, monkeypatch, changes, by_kernels
):
    monkeypatch.setenv("TFORMER_NATIVE", by_kernels)
    whole, run, origin = tmp_path / "whole", tmp_path / "run", tmp_path / "origin"
    shutil.copytree(model, origin)
    train(recipe_of(make, origin, whole, **changes), whole)
    crash_at(recipe_of(make, origin, run, **changes), run, 3)
    shutil.rmtree(origin)
    train(recipe_of(make, origin, run, **changes), run)
    for name in ("model.safetensors", "adapter/adapter_model.safetensors"):
        assert sha256(run / name) == sha256(whole / name)


def test_what_is_validated_is_what_is_published(make, tmp_path, model):
    run = tmp_path / "run"
    values = recipe_of(make, model, run).to_mapping()
    values["data"]["valid"] = [{"built_in": "valid", "pairs": 200}]
    values["validation"] |= {"every": 2, "max_sentences": 8, "metric": "loss"}
    values["training"]["average"] = "none"
    train(make_recipe(values, "test"), run)
    record = read_config(run)
    assert record.step == 4
    pairs = validation_pairs(make_recipe(values, "test"))
    evaluation = evaluate_model(
        run, [p.source for p in pairs], [[p.target for p in pairs]], device="cpu"
    )
    assert evaluation.loss == pytest.approx(record.scores["loss"], rel=1e-5)


def test_a_rollback_without_checkpoint_returns_to_the_models_weights(make, tmp_path, model):
    """Not to random ones."""
    recipe = recipe_of(make, model, tmp_path / "run")
    trainer = prepare(recipe, tmp_path / "run", torch.device("cpu"), Processes()).trainer
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    with torch.no_grad():
        for weight in trainer.model.parameters():
            weight.fill_(torch.nan)
    trainer.saver.go_back(0, [])
    after = trainer.model.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    stored = load_tensors(model / "model.safetensors")
    assert all(torch.equal(after[name], tensor) for name, tensor in stored.items())


def test_a_checkpoint_is_looked_into_with_its_adapters(make, tmp_path, model):
    run = tmp_path / "run"
    train(recipe_of(make, model, run, training__average="none"), run)
    weights = open_model_or_checkpoint(run / "checkpoints/step-000004").model.state_dict()
    stored = load_tensors(run / "model.safetensors")
    assert weights.keys() == stored.keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in stored.items())


def test_commands_take_the_adapter(make, tmp_path, model):
    run = tmp_path / "run"
    train(recipe_of(make, model, run), run)
    source, target = tmp_path / "a.en", tmp_path / "a.fr"
    source.write_text("A dog.\n")
    target.write_text("a man\n")

    def out(*args):
        result = CliRunner().invoke(app, [*map(str, args), "-q"])
        assert result.exit_code == 0, result.stderr
        heads = re.search(r'"heads":\[.*', result.stdout)  # without the model's name
        return heads[0] if heads else result.stdout

    for command in (
        ("score", "-i", source, "--target-file", target),
        ("evaluate", "--source", source, "--reference", target, "--format", "json"),
        ("inspect-heads", "-i", source, "--format", "jsonl"),
        ("translate", "-i", source, "--precision", "int8", "--engine", "tformer"),
        ("translate", "-i", source, "--engine", "torch"),
    ):
        name, *options = command
        whole = out(name, run, *options)
        assert out(name, model, *options, "--adapter", run / "adapter") == whole
        assert out(name, model, *options, "--adapter", run) == whole
        assert out(name, model, *options) != whole
    without_torch("translate", model, "--adapter", run, "A dog.")
    out("export", model, "--adapter", run, "--format", "tformer", "-o", tmp_path / "whole")
    assert sha256(tmp_path / "whole/model.safetensors") == sha256(run / "model.safetensors")
    out("export", model, "--adapter", run, "--format", "int8", "-o", tmp_path / "int8")
    out("export", run, "--format", "int8", "-o", tmp_path / "int8-of-run")
    paths = [tmp_path / name / "model.safetensors" for name in ("int8", "int8-of-run")]
    assert sha256(paths[0]) == sha256(paths[1])


def other_base(path, adapter):
    weights = load_tensors(path / "model.safetensors")
    weights["source_embedding.weight"][5] += 1.0
    save_tensors(path / "model.safetensors", weights)


def no_settings(path, adapter):
    (adapter / "adapter_config.json").unlink()


def bad_settings(path, adapter):
    (adapter / "adapter_config.json").write_text('{"r": "two"}')


def no_rank(path, adapter):
    (adapter / "adapter_config.json").write_text('{"r": 0, "lora_alpha": 1}')


def other_rank(path, adapter):
    (adapter / "adapter_config.json").write_text('{"r": 3, "lora_alpha": 1}')


def cut_off(path, adapter):
    file = adapter / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])


def change_file(change):
    def spoil(path, adapter):
        file = adapter / "adapter_model.safetensors"
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata()
        tensors = load_tensors(file)
        change(tensors)
        save_tensors(file, tensors, metadata)

    return spoil


def with_nan(tensors):
    next(iter(tensors.values()))[0, 0] = np.nan


def with_bfloat16(tensors):
    for name in tensors:
        tensors[name] = tensors[name].bfloat16()


def with_more(tensors):
    tensors["base_model.model.model.encoder.layers.9.fc1.lora_A.weight"] = torch.ones(1)


def with_one_less(tensors):
    del tensors[next(iter(tensors))]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (other_base, "was not trained for the weights in"),
        (no_settings, "no such file; name an adapter's directory"),
        (bad_settings, "is not the settings of an adapter"),
        (no_rank, "has no rank and alpha above 0"),
        (other_rank, "its tensors of .* do not fit"),
        (cut_off, "is damaged"),
        (change_file(with_nan), "is not float32, or not finite"),
        (change_file(with_bfloat16), "is not float32"),
        (change_file(with_more), "has an unknown tensor base_model.*9"),
        (change_file(with_one_less), "its tensors of .* do not fit"),
    ],
)
def test_adapters_that_do_not_fit_are_refused_in_one_line(make, tmp_path, model, spoil, message):
    run, base = tmp_path / "run", tmp_path / "base"
    train(recipe_of(make, model, run, training__max_steps=1), run)
    shutil.copytree(model, base)
    load_model_directory(base, adapter=run / "adapter")
    spoil(base, run / "adapter")
    with pytest.raises(ArtifactError, match=message) as caught:
        load_model_directory(base, adapter=run / "adapter")
    assert "\n" not in str(caught.value)


def test_names_are_those_of_the_library(make, tmp_path, model):
    run = tmp_path / "run"
    train(recipe_of(make, model, run, training__max_steps=1, adapter__targets=["inner"]), run)
    names = load_tensors(run / "adapter/adapter_model.safetensors").keys()
    layers = ("encoder.layers.0", "encoder.layers.1", "decoder.layers.0")
    assert names == {
        f"base_model.model.model.{layer}.fc1.lora_{letter}.weight"
        for layer in layers
        for letter in "AB"
    }
    settings = json.loads((run / "adapter/adapter_config.json").read_text())
    assert settings["target_modules"] == [f"model.{layer}.fc1" for layer in layers]
    assert (settings["r"], settings["lora_alpha"]) == (2, 16.0)


def test_the_learning_rate_is_the_usual_one(make, tmp_path, model):
    training = make(model, tmp_path / "run", **RANK).training
    assert (training.learning_rate, training.warmup_steps) == (1e-3, 1)
