import xml.etree.ElementTree as ET

import pytest

from tformer_cli.heads.names import HeadId
from tformer_cli.inspect.figures.heads_svg import LABELLED_PANELS, display_width, render_svg

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = ("</script>", "<img onerror=x>", "&amp;\"'", "]]>", "\x00\x0b\ufffe\ud800", "🙂", "שלום")


def parsed(text):
    return ET.fromstring(text)  # noqa: S314 - it was written just before


def test_a_picture_names_its_heads_and_labels_rows_and_columns(make_record):
    root = parsed(render_svg(make_record(heads=(HeadId("cross", 1, 0),))))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert "cross.1.0" in texts
    assert "Cross-attention" in texts
    rows = [e.text for e in root.iter(f"{SVG}text") if e.get("text-anchor") == "end"]
    assert rows == ["x", "y", "</s>"]
    columns = [e.text for e in root.iter(f"{SVG}text") if e.get("transform")]
    assert columns == ["a", "b", "c", "d", "</s>"]


def test_every_visible_weight_is_one_cell_of_its_shade(make_record):
    record = make_record(heads=(HeadId("cross", 0, 1),))
    root = parsed(render_svg(record))
    cells = sum(path.get("d").count("M") for path in root.iter(f"{SVG}path"))
    weights = record.maps.cross[0][1]
    assert cells == int(((weights * 64).round() > 0).sum())
    darkest = list(root.iter(f"{SVG}path"))[-1].get("d")
    row, column = divmod(int(weights.argmax()), 5)
    assert f"M{column} {row}h1v1h-1z" in darkest


def test_hostile_tokens_stay_text(make_record):
    heads = (HeadId("enc", 0, 0), HeadId("dec", 0, 0))
    text = render_svg(make_record(source=HOSTILE, target=HOSTILE, heads=heads))
    root = parsed(text.encode("utf-8"))
    assert {element.tag for element in root.iter()} <= {
        SVG + tag for tag in ("svg", "title", "desc", "rect", "text", "g", "path")
    }
    assert "🙂" in text


def test_many_heads_are_thumbnails_that_share_labels(make_record):
    record = make_record()
    heads = record.heads * 2
    assert len(heads) > LABELLED_PANELS
    root = parsed(render_svg(make_record(heads=heads)))
    kinds = dict.fromkeys(head.kind for head in heads)
    rows = [e.text for e in root.iter(f"{SVG}text") if e.get("text-anchor") == "end"]
    columns = [e.text for e in root.iter(f"{SVG}text") if e.get("transform")]
    # once for a line of panels, and once for a column
    assert set(rows) == {label for kind in kinds for label in record.row_labels(kind)}
    assert set(columns) == {label for kind in kinds for label in record.column_labels(kind)}
    assert len(rows) < len(heads) * len(record.row_labels("cross"))


def test_nothing_is_fetched(record):
    text = render_svg(record).replace("http://www.w3.org/2000/svg", "")
    assert "http" not in text
    assert "href" not in text


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("漢字", 4), ("e\u0301", 1)])
def test_width_counts_columns(text, width):
    assert display_width(text) == width
