""""""

import io
import json
import struct
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load

from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.views.heads import (
    LABELLED_PANELS,
    _even_columns,
    render_npz,
    render_safetensors,
    render_svg,
)
from tformer_cli.inspect.weighting import WEIGHTINGS
from tformer_cli.show.palette import hex_color
from tformer_cli.show.png import render_png
from tformer_cli.show.svg import display_width

SVG = "{http://www.w3.org/2000/svg}"


HOSTILE = ("</script>", "<img onerror=x>", "&amp;\"'", "]]>", "\x00\x0b\ufffe\ud800", "🙂", "שלום")


def parse_svg(text):
    return ET.fromstring(text)  # noqa: S314 - it was written just before


def words_of(root, attribute):
    """The labels that have an attribute: rows end at their map, columns are turned."""
    texts = [element for element in root.iter(f"{SVG}text") if element.get(attribute)]
    return ["".join(element.itertext()) for element in texts if element.get("font-size") != "10"]


def cells_of(root):
    """The colors of the maps, without those of the scales."""
    scales = [group for group in root.iter(f"{SVG}g") if "scale(8 9)" in group.get("transform", "")]
    colors = {path for scale in scales for path in scale}
    assert scales
    return [path for path in root.iter(f"{SVG}path") if path not in colors]


def test_a_picture_names_its_heads_and_labels_rows_and_columns(make_record):
    root = parse_svg(render_svg(make_record(heads=(HeadId("cross", 1, 0),))))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert "cross.1.0" in texts
    assert "Cross-attention" in texts
    assert words_of(root, "text-anchor") == ["x", "y", "</s>"]
    assert words_of(root, "transform") == ["a", "b", "c", "d", "</s>"]


def test_a_word_keeps_its_mark(make_record):
    record = make_record(source=("▁a", "▁", "b▁"), heads=(HeadId("cross", 1, 0),))
    root = parse_svg(render_svg(record))
    assert words_of(root, "transform") == ["▁a", "▁", "b▁", "</s>"]
    (mark, word) = next(e for e in root.iter(f"{SVG}text") if "".join(e.itertext()) == "▁a")
    # raised by as much as the word is lowered again, and smaller
    assert float(mark.get("dy")) == -float(word.get("dy")) < 0
    assert mark.get("font-size")


def test_a_scale_shows_the_colors_from_0_to_the_largest_number(make_record):
    root = parse_svg(render_svg(make_record(heads=(HeadId("cross", 0, 1),))))
    (scale,) = [g for g in root.iter(f"{SVG}g") if "scale(8 9)" in g.get("transform", "")]
    colors = [path.get("fill") for path in scale]  # white, the ground, is not drawn
    expected = [hex_color("cross", round(64 * step / 10) / 64) for step in range(1, 11)]
    assert colors == expected
    ends = [e.text for e in root.iter(f"{SVG}text") if e.get("font-size") == "10"]
    assert ends[-2:] == ["0", "1"]


@pytest.mark.parametrize(
    ("n_panels", "most", "rows"),
    [(1, 4, [1]), (3, 3, [3]), (4, 4, [4]), (4, 3, [2, 2]), (5, 3, [3, 2]), (8, 4, [4, 4])],
)
def test_panels_stand_in_even_rows(n_panels, most, rows):
    n_columns = _even_columns(n_panels, most)
    places = [place // n_columns for place in range(n_panels)]
    assert [places.count(row) for row in sorted(set(places))] == rows


def test_every_visible_weight_is_one_cell_of_its_shade(make_record):
    record = make_record(heads=(HeadId("cross", 0, 1),))
    root = parse_svg(render_svg(record))
    cells = sum(path.get("d").count("M") for path in cells_of(root))
    weights = record.maps.cross[0][1]
    assert cells == int(((weights * 64).round() > 0).sum())
    darkest = cells_of(root)[-1].get("d")
    row, column = divmod(int(weights.argmax()), 5)
    assert f"M{column} {row}h1v1h-1z" in darkest


def test_hostile_tokens_stay_text(make_record):
    heads = (HeadId("enc", 0, 0), HeadId("dec", 0, 0))
    text = render_svg(make_record(source=HOSTILE, target=HOSTILE, heads=heads))
    root = parse_svg(text.encode("utf-8"))
    assert {element.tag for element in root.iter()} <= {
        SVG + tag for tag in ("svg", "title", "desc", "rect", "text", "g", "path")
    }
    assert "🙂" in text


def test_many_heads_are_thumbnails_that_share_labels(make_record):
    record = make_record()
    heads = record.heads * 2
    assert len(heads) > LABELLED_PANELS
    root = parse_svg(render_svg(make_record(heads=heads)))
    kinds = dict.fromkeys(head.kind for head in heads)
    rows, columns = words_of(root, "text-anchor"), words_of(root, "transform")
    # once for a line of panels, and once for a column
    assert set(rows) == {label for kind in kinds for label in record.row_labels(kind)}
    assert set(columns) == {label for kind in kinds for label in record.column_labels(kind)}
    assert len(rows) < len(heads) * len(record.row_labels("cross"))


def test_nothing_is_fetched(record):
    text = render_svg(record).replace("http://www.w3.org/2000/svg", "")
    assert "http" not in text
    assert "href" not in text


@pytest.mark.parametrize("name", WEIGHTINGS)
@pytest.mark.parametrize("source", [("a",) * 4, ("long",) * 60, ("漢" * 60,)])
def test_no_text_ends_right_of_the_figure(make_record, name, source):
    record = make_record(source=source, heads=(HeadId("cross", 1, 0),))
    root = parse_svg(render_svg(replace(record, weighting=WEIGHTINGS[name])))
    lines = [
        (element.text, float(element.get("x")), float(element.get("font-size")))
        for element in root.iter(f"{SVG}text")
        if element.text and not element.get("transform") and not element.get("text-anchor")
    ]
    for words, x, size in lines:
        assert x + display_width(words) * 0.58 * size <= float(root.get("width")), words
    notes = [element.text for element in root if element.tag == f"{SVG}desc"]
    assert set(" ".join(notes).split()) <= set(" ".join(words for words, *_ in lines).split())


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("漢字", 4), ("e\u0301", 1)])
def test_width_counts_columns(text, width):
    assert display_width(text) == width


@pytest.mark.needs("png")
def test_a_png_is_the_same_every_time_whatever_the_tokens(make_record):
    heads = (HeadId("enc", 0, 0), HeadId("cross", 1, 1))
    record = make_record(source=("$x$", "漢", "\\frac{"), target=("שלום",), heads=heads)
    picture = render_png(render_svg(record))
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    assert width > 200
    assert height > 200
    assert render_png(render_svg(record)) == picture


SHAPES = {f"enc.{i}": (2, 5, 5) for i in range(3)}


SHAPES |= {f"dec.{i}": (2, 3, 3) for i in range(2)} | {f"cross.{i}": (2, 3, 5) for i in range(2)}


def test_safetensors_holds_every_layer(record, tmp_path):
    file = tmp_path / "heads.safetensors"
    file.write_bytes(render_safetensors(record))
    tensors = load(file.read_bytes())
    assert {name: array.shape for name, array in tensors.items()} == SHAPES
    assert all(array.dtype == np.float32 for array in tensors.values())
    np.testing.assert_array_equal(tensors["cross.1"], record.maps.cross[1])
    with safe_open(file, "numpy") as opened:
        metadata = opened.metadata()
    assert metadata["schema"] == "tformer.heads/1"
    assert json.loads(metadata["source"])["pieces"] == ["a", "b", "c", "d", "</s>"]
    assert "Row = query" in metadata["conventions"]


def test_a_reader_needs_nothing_but_the_header(record):
    data = render_safetensors(record)
    length = struct.unpack("<Q", data[:8])[0]
    assert length % 8 == 0
    header = json.loads(data[8 : 8 + length])
    start, end = header["dec.1"]["data_offsets"]
    array = np.frombuffer(data[8 + length + start : 8 + length + end], "<f4").reshape(2, 3, 3)
    np.testing.assert_array_equal(array, record.maps.dec[1])


def test_npz_holds_the_same_without_pickle(record):
    with np.load(io.BytesIO(render_npz(record)), allow_pickle=False) as arrays:
        assert {n: arrays[n].shape for n in arrays.files if n != "metadata"} == SHAPES
        np.testing.assert_array_equal(arrays["enc.2"], record.maps.enc[2])
        metadata = json.loads(str(arrays["metadata"]))
    assert json.loads(metadata["target"])["input_pieces"] == ["<s>", "x", "y"]


def test_selected_heads_are_stacked_and_named(make_record):
    record = make_record(heads=(HeadId("cross", 1, 1), HeadId("enc", 0, 0)))
    tensors = load(render_safetensors(record))
    assert set(tensors) == {"cross.1", "enc.0"}
    np.testing.assert_array_equal(tensors["cross.1"][0], record.maps.cross[1][1])
    with np.load(io.BytesIO(render_npz(record))) as arrays:
        heads = json.loads(json.loads(str(arrays["metadata"]))["heads"])
    assert heads == {"cross.1": [1], "enc.0": [0]}


@pytest.mark.parametrize("render", [render_safetensors, render_npz])
def test_the_same_record_gives_the_same_bytes(render, make_record):
    assert render(make_record()) == render(make_record())
