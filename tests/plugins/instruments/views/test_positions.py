import io
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from tformer_cli.inspect.pages import render_view
from tformer_cli.inspect.record import ModelSummary
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.positions import sinusoids
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.views.positions import (
    VIEW,
    PositionsOptions,
    facts_of,
    read_positions,
)
from tformer_cli.text.tokenizer import BOS_ID

SUMMARY = ModelSummary(name="<m&>", n_encoder_layers=1, n_decoder_layers=1, n_heads=2, step=1)


def make_model(positions, d_model=64):
    torch.manual_seed(1)
    config = ModelConfig(
        d_model=d_model,
        n_heads=2,
        d_ff=8,
        n_encoder_layers=1,
        n_decoder_layers=1,
        positions=positions,
        max_positions=50,
    )
    return Transformer(config, 10)


def test_similarity_of_sinusoids_depends_on_the_offset_alone_and_the_norm_is_half_the_width():
    record = read_positions(make_model("sinusoidal"), SUMMARY, 50)
    (table,) = record.tables
    assert (record.kind, table.stack) == ("sinusoidal", "both")
    assert table.squared_norms.tolist() == pytest.approx([32.0] * 50, abs=1e-5)
    for row in table.by_offset:
        assert row.largest - row.smallest < 1e-5
        frequencies = 10000 ** (-torch.arange(0, 64, 2, dtype=torch.float64) / 64)
        assert row.mean == pytest.approx(torch.cos(row.offset * frequencies).sum().item(), abs=1e-4)
    assert table.share_by_offset == pytest.approx(1)
    assert table.distance_from_sinusoids == 0


def test_rotary_positions_are_seen_as_where_an_arrow_ends_up():
    record = read_positions(make_model("rotary"), SUMMARY, 50)
    (table,) = record.tables
    assert (record.kind, table.stack, table.table.shape) == ("rotary", "both", (50, 32))
    assert table.squared_norms.tolist() == pytest.approx([16.0] * 50, abs=1e-5)
    assert table.share_by_offset == pytest.approx(1)


def test_learned_positions_are_measured_for_each_stack():
    model = make_model("learned")
    with torch.no_grad():
        model.decoder_input.positions.table.copy_(2 * sinusoids(50, 64))
    encoder, decoder = read_positions(model, SUMMARY, 40).tables
    model.requires_grad_(False)  # as of a loaded model
    assert not read_positions(model, SUMMARY, 40).tables[0].is_formula
    assert (encoder.stack, decoder.stack) == ("encoder", "decoder")
    assert abs(encoder.cosine_with_sinusoids) < 0.1
    assert encoder.share_by_offset < 0.9
    assert decoder.cosine_with_sinusoids == pytest.approx(1)
    assert decoder.distance_from_sinusoids == pytest.approx(1)
    assert decoder.share_by_offset == pytest.approx(1)
    assert "cosine 1.000" in facts_of(decoder)[-1][1]


def show_record(record):
    console = Console(file=io.StringIO(), width=60, color_system=None)
    VIEW.text(console, record, PositionsOptions())
    return console.file.getvalue()


@pytest.mark.parametrize("kind", ["relative", "alibi"])
def test_biases_are_shown_by_offset_as_the_model_adds_them(kind):
    model = make_model(kind)
    record = read_positions(model, SUMMARY, 20)
    assert record.tables == ()
    encoder, decoder = record.biases
    assert encoder.offsets == tuple(range(-19, 20))
    assert decoder.offsets == tuple(range(-19, 1))
    for stack, read in (("encoder", encoder), ("decoder", decoder)):
        attention = getattr(model, stack).layers[0].self_attention
        whole = (
            attention.position_bias(torch.empty(0), torch.arange(20), torch.arange(20))
            .detach()
            .double()
        )
        for offset, values in zip(read.offsets, read.biases.T, strict=True):
            for diagonal in whole.diagonal(offset, dim1=1, dim2=2).unbind(-1):
                assert torch.equal(diagonal, values)
    data = VIEW.json(record)
    assert [biases["stack"] for biases in data["biases"]] == ["encoder", "decoder"]
    text = show_record(record)
    line = next(line for line in text.splitlines() if line.startswith("    -16"))
    assert [float(word) for word in line.split()[1:]] == pytest.approx(
        encoder.biases[:, 3].tolist(), abs=6e-4
    )
    ET.fromstring(VIEW.figure(record))  # noqa: S314 - ours
    arrays = np.load(io.BytesIO(VIEW.file(record, "npz")))
    assert set(arrays) == {f"{s}.{n}" for s in ("encoder", "decoder") for n in ("bias", "offsets")}
    assert '"biases":' in render_view(VIEW, [record], PositionsOptions())


def test_scores_of_rotary_positions_are_measured_by_offset():
    """Where all tokens have one query and one key, a score depends on the offset alone."""
    model = make_model("rotary")
    generator, drawn = torch.Generator().manual_seed(3), {}
    with torch.no_grad():
        for kind, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
            projection = stack.layers[0].self_attention.in_projection
            projection.weight.zero_()
            projection.bias.copy_(torch.randn(projection.bias.shape, generator=generator))
            drawn[kind] = projection.bias.double().view(3, 2, 2, 16)[:2]  # halves of the heads
    record = read_positions(model, SUMMARY, 20)
    frequencies = 10000 ** (-torch.arange(0, 32, 2, dtype=torch.float64) / 32)
    encoder, decoder = record.scores
    assert (encoder.name, decoder.name) == ("encoder, layer 0", "decoder, layer 0")
    assert (encoder.offsets, decoder.offsets) == (tuple(range(-19, 20)), tuple(range(-19, 1)))
    for side in (encoder, decoder):
        (a, b), (c, d) = (drawn[side.stack][part].unbind(1) for part in (0, 1))
        angles = torch.tensor(side.offsets, dtype=torch.float64)[:, None, None] * frequencies
        # |q||k|·cos of pairs whose angle is that of the offset: Re of q*·k·e^(i·angle)
        expected = (a * c + b * d) * angles.cos() + (b * c - a * d) * angles.sin()
        expected = expected.sum(dim=-1).T / 32**0.5
        expected -= expected.mean(dim=1, keepdim=True)
        assert torch.allclose(side.biases, expected, atol=1e-5)
    data = VIEW.json(record)
    assert [(scores["stack"], scores["layer"]) for scores in data["scores"]] == [
        ("encoder", 0),
        ("decoder", 0),
    ]
    assert "scores by offset, decoder, layer 0" in show_record(record)
    ET.fromstring(VIEW.figure(record))  # noqa: S314 - ours
    arrays = np.load(io.BytesIO(VIEW.file(record, "npz")))
    assert arrays["decoder.0.score"].shape == (2, 20)
    assert '"scores":' in render_view(VIEW, [record], PositionsOptions())


def test_the_begin_of_sentence_is_no_random_token():
    """It would count at the last offset alone, and heads may like it more than all others."""
    model = make_model("rotary").eval()
    _, before = read_positions(model, SUMMARY, 20).scores
    with torch.no_grad():
        model.source_embedding.weight[BOS_ID] *= -50
    _, after = read_positions(model, SUMMARY, 20).scores
    assert torch.allclose(before.biases, after.biases, atol=1e-6)


def test_a_query_needs_room_on_both_sides():
    record = read_positions(make_model("rotary"), SUMMARY, 50)
    assert record.scores[0].offsets == tuple(range(-24, 25))
    assert read_positions(make_model("sinusoidal"), SUMMARY, 50).scores == ()


def test_heads_that_do_not_fit_are_counted():
    model = make_model("alibi")
    record = read_positions(model, SUMMARY, 20)
    many = replace(record.biases[0], biases=record.biases[0].biases.repeat(5, 1))
    assert "5 more heads" in show_record(replace(record, biases=(many,)))


def test_a_model_without_positions_says_so():
    record = read_positions(make_model("none"), SUMMARY, 20)
    assert "<m&>  has no position vectors" in show_record(record)
    assert "biases" not in VIEW.json(record)
    render_view(VIEW, [record], PositionsOptions())


@pytest.mark.parametrize(
    ("kind", "width"), [("sinusoidal", 64), ("learned", 10), ("rotary", 32), ("table", 10)]
)
def test_every_rendering_is_well_formed_and_the_same_each_time(kind, width):
    record = read_positions(make_model(kind, width), SUMMARY, 20)
    ET.fromstring(VIEW.figure(record))  # noqa: S314 - ours
    data = VIEW.json(record)
    assert data["schema"] == "tformer.positions/1"
    assert len(data["tables"][0]["by_offset"]) == 20
    page = render_view(VIEW, [record], PositionsOptions())
    assert "<m&>" not in page
    assert '"kind":"' + kind in page
    again = read_positions(make_model(kind, width), SUMMARY, 20)
    assert page == render_view(VIEW, [again], PositionsOptions())
