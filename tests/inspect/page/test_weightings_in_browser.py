"""The page of norms, rollout and ALTI as a browser runs it."""

import csv
import io

import numpy as np
import pytest

from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.page.heads_data import render_html

LOOK = """
const seen = {
  heading: document.querySelector("h1").textContent,
  ids: sentence.heads.map(head => head.id),
  thumbs: document.querySelectorAll(".thumb").length,
  head: byId("head").textContent,
  reading: byId("reading").textContent,
  largest: byId("largest").textContent,
  role: byId("role").textContent,
  links: [...byId("links").rows].map(row => row.cells[3].textContent),
  csv: csvFile("one"),
  scopes: document.querySelectorAll("span:not([hidden]) > [data-scope]").length,
};
press("o");
press("m");
showTip("one", { row: 0, column: 0 }, { clientX: 10, clientY: 10 });
update({ q: "cross" });
seen.tip = byId("tip").textContent;
seen.passing = byId("filter-count").textContent;
document.body.append(make("pre", { id: "selftest" }, encodeURIComponent(JSON.stringify(seen))));
"""


@pytest.mark.parametrize("weighting", ["norm", "rollout", "alti"])
def test_the_page_shows_the_numbers_of_the_weighting(model, visit, weighting):
    record = next(inspect_heads(model, ["A man sleeps."], weights=weighting, targets=["dogs run"]))
    visited = visit(render_html([record]), script=LOOK)
    assert visited.console == []
    seen = visited.selftest
    assert seen["ids"] == [str(head) for head in record.heads]
    assert seen["thumbs"] == len(record.heads)
    chosen = record.first_head()
    assert seen["head"] == str(chosen)
    assert record.weighting.sums in seen["reading"]

    rows = list(csv.reader(io.StringIO(seen["csv"])))
    assert rows[0] == [str(chosen), *record.source_pieces]
    found = np.array([row[1:] for row in rows[1:]], dtype=float)
    expected = record.captured.weights(chosen).numpy()
    # 16 bits of the largest, and five digits of the file
    np.testing.assert_allclose(found, expected, atol=0.5 / 65535 * record.largest + 6e-6)
    strongest = [float(text) for text in seen["links"]]
    np.testing.assert_allclose(strongest, expected.max(axis=1), rtol=0.01, atol=6e-4)
    first = float(expected[0, 0])
    if weighting == "norm":
        assert seen["heading"] == "Attention heads: norm"
        assert float(seen["largest"]) == pytest.approx(record.largest, rel=0.01)
        assert seen["scopes"] == 2
        assert "takes from" in seen["tip"]
        assert float(seen["tip"].split("predicting")[0]) == pytest.approx(first, rel=1e-3)
        assert seen["passing"] == "2 of 8"
    else:
        assert seen["heading"] == f"Layers: {weighting}"
        assert seen["largest"] == "1"
        assert seen["scopes"] == 0
        assert seen["role"].startswith("All heads of the layer")
        assert "is made of" in seen["tip"]
        assert seen["passing"] == "1 of 4"
