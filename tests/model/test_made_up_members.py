"""A similarity and a method of positions cost one class and one name each, and all views have them.

What is added here is in no other file: models train, decode and are looked at with it, and whatever
computes models by itself refuses it.
"""

import pytest
import torch

from tests.model.conftest import small_model
from tests.plugins.instruments.walkthrough.test_walkthrough import HEADS, made_model, subject_of
from tformer_cli.fast.native_search import CompiledEngine
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.inspect.record import ModelSummary
from tformer_cli.model.methods import POSITIONS, SIMILARITIES, PositionRow, SimilarityRow
from tformer_cli.model.positions import Positions
from tformer_cli.model.similarity import Similarity
from tformer_cli.plugins.instruments.ablation import prune_heads
from tformer_cli.plugins.instruments.views.positions import VIEW, read_positions
from tformer_cli.plugins.instruments.walkthrough.walkthrough import walk_through
from tformer_cli.search.config import DecodingConfig


class Manhattan(Similarity):
    """The negative sum of absolute differences."""

    formulas = ("s_j = −Σ_i |q_i − k_ji|",)

    def __init__(self, n_heads, head_width):
        super().__init__(n_heads, head_width)
        self.scale = 0.0

    def bias(self, query, key):
        return -(query.unsqueeze(-2) - key.unsqueeze(-3)).abs().sum(dim=-1)


class Parity(Positions):
    """Keys at an odd distance count less."""

    biases = True
    formulas = ("b_j = −(j − i mod 2)",)

    def bias(self, queries, keys):
        odd = ((keys - queries.unsqueeze(-1)) % 2).float().unsqueeze(-3)
        return -odd.expand(*odd.shape[:-3], 4, -1, -1)


@pytest.fixture(params=["similarity", "positions"])
def made_up(request, monkeypatch):
    """Names a made-up member and gives the setting."""
    monkeypatch.setitem(SIMILARITIES, "made up", SimilarityRow(f"{__name__}:Manhattan"))
    monkeypatch.setitem(POSITIONS, "made up", PositionRow(f"{__name__}:Parity", sees="distance"))
    return {request.param: "made up"}


def test_it_trains_and_decodes_step_by_step_as_in_full(made_up, sentences):
    source, source_mask, target = sentences
    model = small_model(**made_up)
    with torch.inference_mode():
        full = model(source, source_mask, target)
        cache = model.start_cache(model.encode(source, source_mask), source_mask, 1, 6)
        steps = [model.decode_step(target[:, i], cache) for i in range(6)]
        assert torch.equal(torch.stack(steps, dim=1), full)
        assert not torch.allclose(full, small_model()(source, source_mask, target), atol=1e-3)
    optimizer, losses = torch.optim.Adam(model.train().parameters(), 0.01), []
    for _ in range(20):
        logits = model(source, source_mask, target[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.mT, target[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_its_heads_are_seen_and_explained(made_up, head):
    model = made_model("post", **made_up)
    record = walk_through(model, subject_of(model, head, 2))
    assert record.difference < 1e-5
    shown = [line for step in record.steps[2:4] for line in step.formulas]
    expected = Manhattan.formulas if "similarity" in made_up else Parity.formulas
    is_used = "similarity" in made_up or head.kind != "cross"
    assert set(expected) <= set(shown) if is_used else not set(expected) & set(shown)
    maps = capture_maps(model, [5, 6, 3], [20, 21])
    assert max(maps.residuals.values()) < 1e-5


def test_its_heads_are_pruned(made_up, sentences):
    source, source_mask, target = sentences
    model = small_model(**made_up)
    pruned = prune_heads(model, [HeadId("enc", 0, 1), HeadId("dec", 1, 0), HeadId("cross", 2, 3)])
    for layer, head in (
        (model.encoder.layers[0].self_attention, 1),
        (model.decoder.layers[1].self_attention, 0),
        (model.decoder.layers[2].cross_attention, 3),
    ):
        layer.gate = torch.ones(4, 1, 1)
        layer.gate[head] = 0.0
    with torch.inference_mode():
        expected = model(source, source_mask, target)
        assert torch.allclose(pruned(source, source_mask, target), expected, atol=1e-5)


def test_the_view_of_positions_says_its_name(made_up):
    summary = ModelSummary(name="m", n_encoder_layers=2, n_decoder_layers=3, n_heads=4, step=1)
    record = read_positions(small_model(**made_up), summary, 9)
    kind = made_up.get("positions", "sinusoidal")
    assert VIEW.json(record)["kind"] == kind


def test_whatever_computes_models_by_itself_refuses_it(made_up):
    model, config = small_model(**made_up), DecodingConfig()
    (name,) = made_up
    assert f'{name} = "made up"' in CompiledEngine().supports(config, model)
