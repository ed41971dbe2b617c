"""A view is one file: this one adds a command, a tab of the report and a page, and nothing else."""

import json
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from tests.oracles.unpacked import page_data, unpack_json
from tformer_cli.cli.inspect.inspect_view import view_command
from tformer_cli.heads.names import HeadId
from tformer_cli.inspect import views
from tformer_cli.inspect.alignment import AlignedWords, HeadChoice
from tformer_cli.inspect.data import json_line, pack_for_page, round6, to_json
from tformer_cli.inspect.pages import render_report
from tformer_cli.inspect.record import HeadsRecord
from tformer_cli.inspect.view import SentenceView
from tformer_cli.inspect.views.heads import VIEW
from tformer_cli.plugins.instruments.jobs.report import inspect_report
from tformer_cli.settings import Option
from tformer_cli.show.document import text


def render_json(record, **options):
    return json_line(VIEW.json(record, **options))


def test_an_object_holds_what_the_contract_names(record):
    data = json.loads(render_json(record))
    assert data["schema"] == "tformer.heads/1"
    assert data["source"]["pieces"] == ["a", "b", "c", "d", "</s>"]
    assert data["source"]["ids"] == [10, 11, 12, 13, 3]
    assert data["target"]["pieces"] == ["x", "y", "</s>"]
    assert data["target"]["input_pieces"] == ["<s>", "x", "y"]
    assert data["target"]["ids"] == [30, 31, 3]
    assert data["target"]["score"] == -1.23457
    assert data["residual"] == 3e-7
    assert [head["id"] for head in data["heads"]] == [str(head) for head in record.heads]
    assert "weights" not in data["heads"][0]
    assert "\n" not in render_json(record)


def test_an_object_says_how_it_was_captured_and_what_is_aligned(make_record):
    data = json.loads(render_json(make_record()))
    assert (data["mode"], data["target"]["rank"], data["align"]) == ("forced", None, None)
    choice = HeadChoice(
        heads="cross.1.0", members=(HeadId("cross", 1, 0),), convention="shift", reason="stored"
    )
    aligned = AlignedWords(
        choice=choice,
        convention="shift",
        order=(
            HeadId("cross", 1, 0),
            HeadId("cross", 1, 1),
            HeadId("cross", 0, 0),
            HeadId("cross", 0, 1),
        ),
        source=("a", "b"),
        target=("x",),
        links=frozenset({(1, 0), (0, 0)}),
    )
    assert json.loads(render_json(make_record(aligned=aligned)))["align"] == {
        "heads": "cross.1.0",
        "convention": "shift",
        "is_stored": True,
        "source_words": ["a", "b"],
        "target_words": ["x"],
        "pharaoh": "0-0 1-0",
    }


def test_axes_name_lists_as_long_as_the_weights(record):
    data = json.loads(render_json(record, with_weights=True))
    for head in data["heads"]:
        lists = [
            data[side][key] for side, key in (a.split(".") for a in data["axes"][head["kind"]])
        ]
        assert torch.tensor(head["weights"]).shape == tuple(map(len, lists))


def test_weights_keep_six_digits_and_exact_zeros(record):
    data = json.loads(render_json(record, with_weights=True))
    for head in data["heads"]:
        expected = record.maps.weights(HeadId(head["kind"], head["layer"], head["head"]))
        weights = np.array(head["weights"])
        np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=0)
        np.testing.assert_array_equal(weights == 0, expected == 0)


def test_a_line_of_names_makes_data_of_attributes(record):
    fields = to_json(record, "index n=model.n_heads *model score")
    assert list(fields)[:4] == ["index", "n", "name", "n_encoder_layers"]
    assert (fields["n"], fields["name"], fields["score"]) == (2, "m", -1.23457)
    with pytest.raises(AttributeError, match="rnk"):
        to_json(record, "index rnk")


@pytest.mark.parametrize(("value", "expected"), [(1 / 3, 0.333333), (1.5e-9, 1.5e-9), (0.0, 0.0)])
def test_numbers_have_six_significant_digits(value, expected):
    assert round6(value) == expected


def test_a_blank_line_has_empty_lists(make_blank_record):
    data = json.loads(render_json(make_blank_record(4)))
    assert data["index"] == 4
    assert data["heads"] == data["source"]["pieces"] == data["target"]["ids"] == []
    assert data["residual"] is None


@pytest.mark.parametrize("bits", [8, 16, 24])
def test_packed_data_come_back_within_half_a_step(bits):
    data = {
        "rows": [{"id": n, "p": n / 7, "more": [{"a": "x", "b": [n / 3] * n}]} for n in range(20)],
        "table": [[n * m / 9 - 1 for m in range(n)] for n in range(9)],
        "ids": list(range(40)),
        "few": [0.5, 1.5],
        "other": [{"a": 1}, {"b": 2}, None, [], {}],
    }
    small = pack_for_page(data, bits)
    assert len(json.dumps(small)) < len(json.dumps(data))
    values = unpack_json(json.loads(json.dumps(small)))
    assert [values[name] for name in ("ids", "few", "other")] == [
        data[name] for name in ("ids", "few", "other")
    ]
    assert [row["id"] for row in values["rows"]] == list(range(20))
    assert [row["p"] for row in values["rows"]] == pytest.approx(
        [row["p"] for row in data["rows"]], abs=20 / 7 / 65534
    )
    assert [len(row["more"][0]["b"]) for row in values["rows"]] == list(range(20))
    for row, expected in zip(values["table"], data["table"], strict=True):
        assert row == pytest.approx(expected, abs=7 / (2**bits - 2) + 1e-9)


def test_nothing_and_zeros_are_packed_too():
    for value in ([], [[]], [0.0] * 40, [[0.0] * 40, []]):
        assert unpack_json(pack_for_page(value)) == value


LINE = "A man sleeps."


@dataclass(frozen=True)
class Lengths:
    sentence: HeadsRecord
    letters: tuple[int, ...]


@dataclass(frozen=True)
class LengthOptions:
    least: Annotated[int, Option(help="Only tokens of N letters or more.", metavar="N", min=1)] = 1


class LengthView(SentenceView[Lengths]):
    name = "lengths"
    title = "Lengths"
    help = "Count the letters of each source token."
    Options = LengthOptions
    script = """addTab({ id: "lengths", title: "Lengths", show(panel, one) {
      panel.append(card("Letters", viewOf(one, "lengths").letters.join(" ")));
    } });"""

    def read(self, subject, sentence, options):
        letters = (len(piece) for piece in sentence.source_pieces)
        return Lengths(sentence, tuple(n for n in letters if n >= options.least))

    def json(self, record):
        return {"schema": "made.lengths/1", "letters": list(record.letters)}

    def blocks(self, record, options, room):
        yield text(f"letters: {' '.join(map(str, record.letters))}")


@pytest.fixture
def view(monkeypatch):
    lengths = LengthView()
    monkeypatch.setitem(views.VIEWS.shipped, lengths.name, lengths)
    return lengths


@pytest.fixture
def run(view, model):
    app = typer.Typer()
    app.command("inspect-lengths")(view_command(view))
    app.command("other")(lambda: None)
    return lambda *options: CliRunner().invoke(app, ["inspect-lengths", str(model), *options, "-q"])


def test_its_command_has_its_options_and_all_formats(run, tmp_path):
    (data,) = map(json.loads, run(LINE, "--format", "jsonl").stdout.splitlines())
    assert data["schema"] == "made.lengths/1"
    assert data["letters"] == [len(piece) for piece in data["source"]["pieces"]]
    assert "letters: " in run(LINE, "--format", "text").stdout
    few = json.loads(run(LINE, "--format", "jsonl", "--least", "4").stdout)["letters"]
    assert few == [n for n in data["letters"] if n >= 4] != data["letters"]
    assert run(LINE, "--least", "0").exit_code == 2
    assert run(LINE, "-o", str(tmp_path / "a.html")).exit_code == 0
    assert "<title>Lengths</title>" in (tmp_path / "a.html").read_text("utf-8")


def test_the_report_has_its_tab(view, model):
    report = inspect_report(model, [LINE], device="cpu")
    page = render_report(report)
    (sentence,) = page_data(page)["sentences"]
    assert sentence["views"]["lengths"]["letters"] == [len(p) for p in sentence["sourcePieces"]]
    assert view.script.splitlines()[0] in page
