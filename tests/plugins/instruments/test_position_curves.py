"""Curves of dimensions of position vectors, and their sum with the embeddings of a text."""

import io
import json
import math
import xml.etree.ElementTree as ET

import pytest
import torch
from rich.console import Console

from tests.commands import run
from tests.oracles.unpacked import page_data
from tformer_cli.inspect.pages import render_view
from tformer_cli.inspect.record import ModelSummary
from tformer_cli.inspect.view import Subject
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import EncoderOnly
from tformer_cli.model.transformer import Transformer
from tformer_cli.plugins.instruments.views.positions import VIEW, PositionsOptions

SUMMARY = ModelSummary(name="m", n_encoder_layers=1, n_decoder_layers=1, n_heads=2, step=1)
WIDTH = 16


class Words:
    """A tokenizer whose words are their ids."""

    @property
    def source(self):
        return self

    target = source

    def encode(self, text):
        return [int(word) for word in text.split()]

    def pieces(self, ids):
        return [f"<{i}>" for i in ids]


def read(positions="sinusoidal", *, sentence=None, dimension=(4, 5), n_positions=20, **changes):
    torch.manual_seed(1)
    config = ModelConfig(
        **{"d_model": WIDTH, "n_heads": 2, "d_ff": 8, "max_positions": 30, "positions": positions}
        | {"n_encoder_layers": 1, "n_decoder_layers": 1}
        | changes
    )
    model = Transformer(config, 10).eval()
    subject = Subject(lambda: model, SUMMARY, (), tokenizer=Words())
    options = PositionsOptions(positions=n_positions, dimension=dimension, sentence=sentence)
    return model, VIEW.read(subject, options)


def test_curves_are_the_papers_waves():
    _, record = read(dimension=(0, 4, 5, 4))
    assert [curve.dimension for curve in record.curves] == [0, 4, 5]
    for curve, wave in zip(record.curves, (math.sin, math.sin, math.cos), strict=True):
        angle = 10000 ** (-(curve.dimension // 2) * 2 / WIDTH)
        expected = [wave(p * angle) for p in range(20)]
        assert curve.values.tolist() == pytest.approx(expected, abs=1e-6)
        assert curve.wavelength == pytest.approx(2 * math.pi / angle)
    assert [curve.formula for curve in record.curves] == [
        "sin(p)",
        "sin(p / 10000^(4/16))",
        "cos(p / 10000^(4/16))",
    ]


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("scales", [False, True])
def test_the_sum_is_the_input_of_the_model(scales, norm):
    model, record = read(
        *("learned",), sentence="7 4 9 5", scale_embeddings=scales, embedding_norm=norm
    )
    ids = torch.tensor([[7, 4, 9, 5, 3]])
    embedded = torch.nn.functional.embedding(ids, model.source_embedding.weight)
    embedded = embedded * (math.sqrt(WIDTH) if scales else 1.0)
    expected = (embedded + model.encoder_input.positions.table[:5])[0].double()
    summed = record.sum
    assert summed.pieces == ("<7>", "<4>", "<9>", "<5>", "<3>")
    torch.testing.assert_close(summed.sum, expected[:, [4, 5]], atol=1e-6, rtol=0)
    torch.testing.assert_close(summed.embedding, embedded[0].double()[:, [4, 5]])
    assert summed.is_normalized == norm
    if not norm:
        models = model.encoder_input(ids, model.source_embedding.weight)[0].double()
        torch.testing.assert_close(summed.sum, models[:, [4, 5]], atol=1e-6, rtol=0)
    assert [curve.stack for curve in record.curves] == ["encoder", "encoder", "decoder", "decoder"]
    assert {(curve.formula, curve.wavelength) for curve in record.curves} == {("", None)}


def test_a_language_model_adds_positions_to_what_its_decoder_reads():
    model, record = read(sentence="7 4", n_encoder_layers=0)
    ids = torch.tensor([[2, 7, 4]])
    models = model.decoder_input(ids, model.target_matrix)[0].double()
    assert (record.sum.stack, record.sum.pieces) == ("decoder", ("<2>", "<7>", "<4>"))
    torch.testing.assert_close(record.sum.sum, models[:, [4, 5]], atol=1e-6, rtol=0)


def test_an_encoder_of_texts_adds_them_as_well():
    torch.manual_seed(1)
    config = ModelConfig(
        d_model=WIDTH, n_heads=2, d_ff=8, n_encoder_layers=1, n_decoder_layers=0, head="none"
    )
    model = EncoderOnly(config, 10).eval()
    subject = Subject(lambda: model, SUMMARY, (), tokenizer=Words())
    record = VIEW.read(subject, PositionsOptions(dimension=(3,), sentence="7 4"))
    models = model.encoder_input(torch.tensor([[7, 4, 3]]), model.source_embedding.weight)[0]
    torch.testing.assert_close(record.sum.sum[:, 0], models[:, 3].double(), atol=1e-6, rtol=0)


def test_rotary_positions_are_waves_of_a_heads_angles():
    _, record = read("rotary", dimension=(2,), rotary_base=500.0)
    (curve,) = record.curves
    assert curve.formula == "sin(p / 500^(2/8))"
    expected = [math.sin(p / 500**0.25) for p in range(20)]
    assert curve.values.tolist() == pytest.approx(expected, abs=1e-6)


def draw(record, *, width=60, encoding="utf-8"):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    VIEW.text(Console(file=file, width=width, color_system=None), record, PositionsOptions())
    file.flush()
    return file.buffer.getvalue().decode(encoding)


def test_a_terminal_shows_curves_and_the_sum_of_each_token():
    _, record = read(sentence="7 4")
    text = draw(record)
    assert max(map(len, text.splitlines())) <= 60
    assert "dimension 5: cos(p / 10000^(4/16)), repeats after 62.8" in " ".join(text.split())
    numbers = [record.sum.embedding[1, 1], record.sum.position[1, 1], record.sum.sum[1, 1]]
    line = [line for line in text.splitlines() if line.startswith("1  <4>")][1]
    assert line.split()[2:] == [f"{value:.3f}" for value in numbers]
    ascii_lines = draw(record, encoding="ascii").partition("dimension 4")[2]
    assert "4 * E[token]" in ascii_lines
    assert "?" not in ascii_lines


def test_a_curve_rises_and_falls_where_the_wave_does():
    _, record = read(dimension=(2,))
    curve = draw(record).partition("dimension 2")[2].splitlines()
    lines = [line.partition("┤")[2] for line in curve if line.strip().startswith(("1 ", "-1 "))]
    places = [[n for n, dots in enumerate(line) if not dots.isspace()] for line in lines]
    top, bottom = ((each[0] + each[-1]) / 2 for each in places)
    # the sine of p / √10 is 1 at p = 4.97 of 19 and -1 at p = 14.9, on 51 characters
    assert top == pytest.approx(51 * 4.97 / 19, abs=1)
    assert bottom == pytest.approx(51 * 14.9 / 19, abs=1)


def test_figure_json_and_page_have_the_curves():
    _, record = read(sentence="7 4")
    root = ET.fromstring(VIEW.figure(record))  # noqa: S314 - ours
    texts = [element for element in root.iter() if element.tag.endswith("text")]
    words = " ".join(element.text or "" for element in texts)
    # From above: the model's name, then the curves
    first, second, *_ = sorted(texts, key=lambda element: float(element.get("y")))
    assert "".join(first.itertext()) == record.model.name
    assert "".join(second.itertext()).startswith("Curves")
    assert "dimension 5: cos(p / 10000^(4/16))" in words
    assert "Dimension 4 of “7 4”: embedding + position = sum" in words
    data = VIEW.json(record)
    assert data["curves"][0]["values"] == pytest.approx(record.curves[0].values.tolist(), abs=1e-5)
    assert list(data["sum"]) == [
        *("text", "stack", "pieces", "factor", "dimensions", "embedding", "position", "sum")
    ]
    page = page_data(render_view(VIEW, [record], PositionsOptions()))["views"]["positions"]
    assert [curve["title"] for curve in page["curves"]] == [curve.title for curve in record.curves]
    assert page["sum"] == data["sum"]
    assert not {"curves", "sum"} & VIEW.json(read(dimension=())[1]).keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dimension", "64"], "--dimension: the vectors have dimensions 0 to 63, but 64 was"),
        (["--text", "A man."], "--text: shows chosen dimensions; add --dimension"),
        (["--dimension", "4", "--text", " "], "--text: is blank; give a sentence"),
        (["--dimension", "4", "--text", "a " * 300], "--text: has "),
        (["--dimension", "x"], "--dimension"),
    ],
)
def test_what_cannot_be_drawn_is_refused(model, options, message):
    result = run("inspect-positions", model, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    shown = run("inspect-positions", model, "--dimension", "4", "--text", "A man.")
    assert json.loads(shown.stdout)["sum"]["pieces"][0] == "▁A"


@pytest.mark.parametrize("positions", ["alibi", "relative", "none", "segments"])
def test_positions_without_vectors_are_refused_by_name(positions):
    with pytest.raises(Exception, match=f"{positions} positions have no vectors"):
        read(positions)


def test_rotary_positions_have_no_sum():
    with pytest.raises(Exception, match="rotary positions add nothing to embeddings"):
        read("rotary", sentence="7 4")
