"""Every trait of every method is right or refused: positions, similarities, norms, activations.

A method is a row of `model/methods.py`. "scaled sinusoids" is no method of tformer: its class and
its row are here, so that whatever is asked of a new method is asked of one.
"""

import json
import math
import re
from functools import cache
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import pytest
import torch
from torch import nn

import tformer_cli
from tests.commands import record_of, run
from tests.foreign.own import LANGUAGE_MODEL, T5, TRANSLATION, own_model
from tests.foreign.test_round_trips import EXPORTS, LINES, assert_same, outputs_of
from tests.models import build, tokenizer_of
from tests.plugins.instruments.walkthrough.test_walkthrough import HEADS, made_model, subject_of
from tests.slowly import slowly
from tformer_cli import structure
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.errors import TformerError
from tformer_cli.fast import unpadded
from tformer_cli.fast.native.weights import unsupported_shape
from tformer_cli.foreign.hugging_face.families import FAMILIES
from tformer_cli.foreign.import_model import import_model
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.inspect.record import ModelSummary
from tformer_cli.model import methods
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import EncoderOnly
from tformer_cli.model.methods import POOLINGS, POSITIONS, PositionRow, load_method
from tformer_cli.model.positions import SinusoidalPositions
from tformer_cli.model.weight_shapes import is_fixed, parameter_count, parameter_shapes
from tformer_cli.plugins.instruments.ablation import prune_heads
from tformer_cli.plugins.instruments.views.positions import facts_of, read_positions
from tformer_cli.plugins.instruments.walkthrough.walkthrough import walk_through
from tformer_cli.plugins.instruments.weighting import Pooled
from tformer_cli.search.pooled import pool_states
from tformer_cli.settings import types_of

PACKAGE = Path(tformer_cli.__file__).parent
TABLES = {
    "positions": (methods.PositionKind, methods.POSITIONS),
    "similarity": (methods.SimilarityKind, methods.SIMILARITIES),
    "norm_kind": (methods.NormKind, methods.NORMS),
    "norm": (methods.Norm, methods.IS_BEFORE),
    "activation": (methods.Activation, methods.ACTIVATIONS),
    "pooling": (methods.Pooling, methods.POOLINGS),
}
COMPARISON = re.compile(
    rf"""(?<!for )\b(?:{"|".join(TABLES)})\b["'\]]*\s+(?:[=!]=|in|not in)\s+[(\[{{]*["']"""
    rf"""|(?:match\s+[\w.]*\.(?:{"|".join(TABLES)}):)"""
)
ADDED = "scaled sinusoids"
KINDS = (*get_args(methods.PositionKind), ADDED)
METHODS = [
    ("positions", ADDED),
    *((name, value) for name in list(TABLES)[:-1] for value in get_args(TABLES[name][0])),
]
SOME = [*METHODS[:2], *slowly(*METHODS[2:])]
"""Of those, two that the default suite tries where each costs more than a moment."""
SOURCE = torch.tensor([[5, 6, 7, 8], [9, 5, 6, 0]])
TARGET = torch.tensor([[2, 5, 6, 7, 8, 9], [2, 9, 8, 7, 0, 0]])
SUMMARY = ModelSummary(name="m", n_encoder_layers=2, n_decoder_layers=3, n_heads=4, step=1)


class ScaledSinusoids(SinusoidalPositions):
    """Sinusoids times a learned number (Li et al. 2019, "Neural Speech Synthesis", section 3.2)."""

    def __init__(self, max_positions, d_model):
        super().__init__(max_positions, d_model)
        self.scale = nn.Parameter(torch.ones(1))

    def rows(self, start, stop, device):
        return self.scale.to(device) * super().rows(start, stop, device)


@pytest.fixture(autouse=True)
def _added(monkeypatch):
    """Adds the row of a method, and its name to the type."""
    row = PositionRow(
        f"{__name__}:ScaledSinusoids",
        lambda config, _: {"max_positions": config.n_positions, "d_model": config.d_model},
        lambda _: {"scale": (1,)},
        sees="place",
        needs_even_width=True,
    )
    monkeypatch.setitem(methods.POSITIONS, ADDED, row)
    types = {**types_of(ModelConfig), "positions": Literal[KINDS]}
    monkeypatch.setattr(
        structure, "types_of", lambda kind: types if kind is ModelConfig else types_of(kind)
    )


def perturb(model):
    """The model, without a weight that has the value that a mistake would have."""
    with torch.no_grad():
        for weight in model.state_dict().values():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


def logits_of(model):
    source = SOURCE[:, :0] if model.config.is_decoder_only else SOURCE
    return model(source, source > 0, TARGET)


def refusal_of(**settings):
    """The one line that refuses settings; None: they are those of a model, which computes."""
    try:
        config = ModelConfig(**{**TRANSLATION, **settings})
    except ValueError as error:
        return str(error)
    assert logits_of(perturb(build(config, 12))).isfinite().all()
    return None


@pytest.mark.parametrize("name", TABLES)
def test_each_name_of_a_type_has_a_row_that_loads(name, monkeypatch):
    monkeypatch.delitem(methods.POSITIONS, ADDED)
    kind, table = TABLES[name]
    assert set(get_args(kind)) == set(table)
    assert all(callable(load_method(row)) for row in table.values() if hasattr(row, "made_by"))
    assert types_of(ModelConfig)[name] == kind


def test_only_rows_compare_names():
    """Ask the row: `POSITIONS[config.positions].sees`, not `config.positions == "rotary"`."""
    assert COMPARISON.search('if config.positions not in ("learned", "table"):')
    for file in PACKAGE.rglob("*.py"):
        assert COMPARISON.search(file.read_text(encoding="utf-8")) is None, file


@pytest.mark.parametrize(("name", "value"), METHODS)
def test_weights_are_counted_and_all_of_them_are_trained(name, value):
    config = ModelConfig(**{**TRANSLATION, name: value})
    model = perturb(build(config, 12))
    shapes = {part: tuple(weight.shape) for part, weight in model.state_dict().items()}
    assert parameter_shapes(config, 12) == shapes
    parameters = dict(model.named_parameters())
    assert parameter_count(config, 12) == sum(weight.numel() for weight in parameters.values())
    assert {part for part in shapes if is_fixed(config, part)} == shapes.keys() - parameters.keys()
    logits_of(model).square().sum().backward()
    assert all(weight.grad is not None for weight in parameters.values())


@pytest.mark.parametrize(("name", "value"), METHODS)
def test_a_new_model_is_drawn_whole(name, value):
    model = build(ModelConfig(**{**TRANSLATION, name: value}), 12)
    assert all(weight.isfinite().all() for weight in model.state_dict().values())
    assert logits_of(model).isfinite().all()


@cache
def tokenizer():
    return tokenizer_of()


@pytest.mark.parametrize(("name", "value"), METHODS)
def test_a_model_is_saved_and_loaded(tmp_path, name, value):
    model = own_model(tmp_path / "m", tokenizer(), {**TRANSLATION, name: value})
    again = load_model_directory(tmp_path / "m").model
    assert getattr(again.config, name) == value
    assert torch.equal(logits_of(again), logits_of(model))


@pytest.mark.parametrize("kind", KINDS)
def test_an_odd_width_is_computed_or_refused(kind):
    row = POSITIONS[kind]
    refused = refusal_of(positions=kind, d_model=33, n_heads=3, d_head=4)
    assert (refused or "").startswith("d_model: ") == row.needs_even_width
    heads = refusal_of(positions=kind, d_model=20, n_heads=4)
    assert (heads or "").startswith("n_heads: ") == row.needs_even_heads


@pytest.mark.parametrize("kind", KINDS)
def test_memory_and_a_recurrent_decoder_are_computed_or_refused(kind):
    """A row says what is so: vectors are added by place, or else nothing of it is seen."""
    row = POSITIONS[kind]
    positions = build(ModelConfig(**TRANSLATION, positions=kind), 12).encoder_input.positions
    assert (positions.rows(0, 3, torch.device("cpu")) is not None) == (row.sees == "place")
    refused = refusal_of(**{**LANGUAGE_MODEL, "positions": kind, "memory": 8})
    assert (refused or "").startswith("memory: ") == (row.sees == "place")
    refused = refusal_of(positions=kind, decoder_cell="ssru")
    assert (refused or "").startswith("positions: ") == row.needs_self_attention


@pytest.mark.parametrize(("kind", "similarity"), [*product(KINDS, methods.SIMILARITIES)])
def test_positions_and_similarities_go_together_or_are_refused(kind, similarity):
    refused = refusal_of(positions=kind, similarity=similarity)
    needs_another = POSITIONS[kind].needs_product
    needs_another = needs_another and not methods.SIMILARITIES[similarity].is_product
    assert (refused is not None) == needs_another


@pytest.mark.parametrize("kind", KINDS)
def test_settings_of_other_positions_are_refused(kind):
    for name in {name for row in POSITIONS.values() for name in row.settings}:
        refused = refusal_of(positions=kind, **{name: 64})
        assert (refused is None) == (name in POSITIONS[kind].settings)


@pytest.mark.parametrize("kind", KINDS)
def test_the_view_of_positions_says_what_is_so(kind):
    model = perturb(build(ModelConfig(**TRANSLATION, positions=kind), 12))
    record = read_positions(model, SUMMARY, 9)
    assert record.kind == kind
    assert bool(record.biases) == model.encoder_input.positions.biases
    assert bool(record.scores) == model.encoder_input.positions.turns
    stacks = [table.stack for table in record.tables]
    # Only a formula gives both stacks the same vectors
    assert stacks in ([], ["both"], ["encoder", "decoder"])
    for table in record.tables:
        is_formula = math.isclose(table.distance_from_sinusoids, 0.0, abs_tol=1e-6)
        assert table.is_formula == is_formula == (table.stack == "both")
        assert ("from the formula" in dict(facts_of(table))) == is_formula


@pytest.mark.parametrize(("name", "value"), METHODS)
def test_heads_are_explained_and_add_up(name, value):
    norm = value if name == "norm" else "post"
    model = made_model(norm, **({} if name == "norm" else {name: value}))
    for head in HEADS[:3]:
        assert walk_through(model, subject_of(model, head, 2)).difference < 1e-5
    maps = capture_maps(model, [5, 6, 3], [20, 21])
    assert max(maps.residuals.values()) < 1e-5


@pytest.mark.parametrize(("name", "value"), METHODS)
def test_a_pruned_head_is_one_that_is_shut(name, value):
    model = perturb(build(ModelConfig(**{**TRANSLATION, name: value}), 12))
    pruned = prune_heads(model, [HeadId("enc", 0, 1), HeadId("dec", 1, 0)])
    shapes = {part: tuple(weight.shape) for part, weight in pruned.state_dict().items()}
    assert shapes == parameter_shapes(pruned.config, 12)
    for layer, head in ((model.encoder.layers[0], 1), (model.decoder.layers[1], 0)):
        layer.self_attention.gate = torch.ones(4, 1, 1)
        layer.self_attention.gate[head] = 0.0
    with torch.inference_mode():
        assert torch.allclose(logits_of(pruned), logits_of(model), atol=1e-5)


@pytest.mark.parametrize(("name", "value"), SOME)
def test_every_inspection_works_or_is_refused(tmp_path, name, value):
    path, shown = tmp_path / "m", ["A man sleeps.", "--target", "the street", "-q", "--format"]
    own_model(path, tokenizer(), {**TRANSLATION, name: value})
    assert record_of("inspect-positions", path, "--format", "json")["tables"] or name == "positions"
    for command in (
        ("inspect-step", *shown, "json", "--token", 0, "--verify", 1e-4),
        *(("inspect-heads", *shown, "jsonl", "--weights", of) for of in ("norm", "alti")),
        *((f"inspect-{view}", *shown, "jsonl") for view in ("logits", "flow", "layers")),
    ):
        done = run(command[0], path, *command[1:])
        assert (done.exit_code, done.stderr.count("\n")) in ((0, 0), (2, 1)), done.stderr


@pytest.mark.parametrize(("name", "value"), METHODS)
def test_kernels_compute_it_or_refuse_it_by_name(tmp_path, request, name, value):
    config = ModelConfig(**{**TRANSLATION, name: value})
    reason = unsupported_shape(config, 12, in_integers=False)
    if reason is not None:
        assert reason == f'they do not know {name} = "{value}"'
        return
    request.getfixturevalue("kernels")
    own_model(tmp_path / "m", tokenizer(), {**TRANSLATION, name: value})
    command = ["translate", tmp_path / "m", *LINES, "-q", "--max-length", 8, "--format", "jsonl"]
    found, wanted = (run(*command, "--engine", engine) for engine in ("compiled", "torch"))
    assert (found.exit_code, wanted.exit_code) == (0, 0), (found.stderr, wanted.stderr)
    assert_same(*([*map(json.loads, done.stdout.splitlines())] for done in (found, wanted)))


def export_refused(form, ours, theirs):
    """Exports a model; returns the line that refuses it, or nothing."""
    try:
        EXPORTS[form](ours, theirs)
    except TformerError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("form", EXPORTS)
@pytest.mark.parametrize(("name", "value"), SOME)
def test_exports_hold_it_or_refuse_it_by_name(tmp_path, name, value, form):
    ours, theirs, back = (tmp_path / part for part in ("ours", "theirs", "back"))
    own_model(ours, tokenizer(), {**TRANSLATION, name: value})
    if refused := export_refused(form, ours, theirs):
        # Positions choose T5's class, which then names what else it lacks
        assert value in refused or value in FAMILIES["t5"].known[name]
        assert not theirs.exists()
        return
    import_model(str(theirs), back)
    assert_same(outputs_of(back, "translate"), outputs_of(ours, "translate"))


@pytest.mark.parametrize(("name", "value"), SOME)
def test_t5_holds_it_or_refuses_it(tmp_path, name, value):
    transformers = pytest.importorskip("transformers")
    ours = own_model(tmp_path / "ours", tokenizer(), {**T5, name: value})
    if refused := export_refused("huggingface", tmp_path / "ours", tmp_path / "theirs"):
        assert value in refused or name == "positions"  # which choose another class
        return
    library = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs").eval()
    with torch.inference_mode():
        found = library(input_ids=SOURCE[:1], decoder_input_ids=TARGET[:1]).logits
        assert torch.allclose(found, ours(SOURCE[:1], SOURCE[:1] > 0, TARGET[:1]), atol=1e-5)


@pytest.mark.parametrize("pooling", get_args(methods.Pooling))
def test_all_poolings_of_an_encoder_are_the_same(monkeypatch, pooling):
    shape = {**TRANSLATION, "n_decoder_layers": 0, "head": "none"}
    if POOLINGS[pooling].is_joined:
        with pytest.raises(ValueError, match="class_token"):
            ModelConfig(**shape, pooling=pooling)
        with pytest.raises(ValueError, match="is not for texts"):
            pool_states(torch.zeros(3, 4).numpy(), pooling)
        return
    model = perturb(EncoderOnly(ModelConfig(**shape, pooling=pooling), 12).eval())
    hidden = model.encode(SOURCE, SOURCE > 0)
    vectors = model.pool(hidden, SOURCE > 0)
    monkeypatch.setattr(unpadded, "_memory", lambda *_: hidden[SOURCE > 0][None])
    found = unpadded.pooled_unpadded(model, unpadded.remove_padding(SOURCE, SOURCE > 0))
    assert torch.allclose(found, vectors, atol=1e-5)
    for states, mask, vector in zip(hidden, SOURCE > 0, vectors, strict=True):
        found = torch.from_numpy(pool_states(states[mask].detach().numpy(), pooling))
        assert torch.allclose(found, vector, atol=1e-5)
        assert torch.allclose(Pooled(model.config).of(states[mask]), vector, atol=1e-5)


def test_the_width_and_the_words_of_pooled_images():
    shape = {**TRANSLATION, "n_decoder_layers": 0, "head": "none", "patch_size": 2}
    shape |= {"image_size": (4, 4, 1), "class_token": True, "max_positions": 1024}
    states = torch.randn(5, 32)
    for pooling, row in POOLINGS.items():
        config = ModelConfig(**shape, pooling=pooling)
        pooled = Pooled(config)
        assert pooled.of(states).shape == (config.pooled_width,)
        assert config.pooled_width == 32 * (row.has_first + row.has_mean)
        assert ("class token" in pooled.row_name) == row.has_first
        assert ("mean" in pooled.says(5)) == ("Σ" in pooled.formula(5)) == row.has_mean
