"""The tab of a report that has maps over an image, in a browser."""

import re

import pytest
import torch

from tests.inspect.test_image_models import image
from tests.inspect.views.test_image import directory
from tformer_cli.inspect.jobs.report import inspect_report
from tformer_cli.inspect.page.report_page import render_report
from tformer_cli.inspect.view import ReportOptions

SELFTEST = """
  const shown = document.createElement("pre");
  shown.id = "selftest";
  update({ tab: "image" });
  const all = selector => [...document.querySelectorAll(`#panel-image ${selector}`)];
  const names = all("figcaption").map(one => one.firstChild.textContent);
  const largest = all("canvas").map(one => one.getAttribute("aria-label"));
  const given = viewOf(sentence, "image").maps.map(one => one.weights);
  document.querySelector("#panel-image figcaption button").click();
  const texts = ["guide-says", "source-label", "source-name"].map(id => byId(id).textContent);
  update({ tab: "flow" });
  const flow = document.querySelector("#panel-flow canvas").getAttribute("aria-label");
  const found = { names, largest, given, texts, flow, hash: location.hash };
  shown.textContent = encodeURIComponent(JSON.stringify(found));
  document.body.append(shown);
"""


@pytest.mark.parametrize("has_class", [True, False])
def test_a_report_shows_maps_over_the_image(tmp_path, visit, has_class):
    pooling = "first" if has_class else "mean"
    path, _ = directory(tmp_path / "m", class_token=has_class, pooling=pooling)
    options = ReportOptions(ablation=False)
    report = inspect_report(path, [image(1)], device="cpu", options=options)
    visited = visit(render_report(report), script=SELFTEST)
    assert visited.console == []
    found = visited.selftest
    looked = report.sentences[0].views["image"].looked
    guide, *labels = found["texts"]
    assert labels == ["Image", "Patches"]
    ways = ["the image", "attention rollout", "ALTI"]
    assert found["names"] == [*ways, *(one.name for one in looked[:-2])]
    ordered = [*looked[-2:], *looked[:-2]]
    expected = ["{}: most at row {}, column {}".format(one.label, *one.peak) for one in ordered]
    assert found["largest"] == expected
    for given, one in zip(found["given"], looked, strict=True):
        assert torch.allclose(torch.tensor(given), one.shares, atol=1 / 254 + 1e-6)
    assert "head=enc.0.0" in found["hash"]
    assert re.match(r"When the model reads (patch \d,\d|class), head enc.0.0 ", guide)
    assert found["flow"] == expected[1].replace("ALTI", "ALTI+")
