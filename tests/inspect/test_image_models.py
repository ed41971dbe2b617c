"""Heads of models of images: pixels, gates, tables of images; see `test_kinds_and_views`."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.commands import output_of, records_of, refused
from tests.inspect.cases import POOLINGS, of, pixels_of
from tests.oracles.vit import config
from tests.plugins.instruments.views.test_image import directory
from tformer_cli.heads.gates import set_gates
from tformer_cli.heads.names import HeadId, attentions
from tformer_cli.inspect.capture.forced import capture_batches, capture_pairs
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.reader import open_for_inspection
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.kinds.lines.classify import label_texts
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.instruments.ablation import batch_of, importance_sums, sentence_losses
from tformer_cli.plugins.instruments.observed import observe
from tformer_cli.plugins.instruments.walkthrough.step import Subject
from tformer_cli.plugins.instruments.walkthrough.walkthrough import explain
from tformer_cli.plugins.instruments.weighting import Pooled
from tformer_cli.text.label_tokenizer import FIRST_LABEL


@of(*POOLINGS)
@pytest.mark.parametrize("place", ["0", "1,1"])
def test_a_head_begins_with_pixels(case, place):
    path, model = case.path, case.model
    settings = {"head": "enc.0.1", "token": place}
    (record,) = inspect_view("step", path, [pixels_of(1)], settings=settings)
    assert record.difference < 1e-5
    assert record.steps[0].checks
    is_class = place == "0" and model.config.class_token
    formula = "x = c + PE(position)" if is_class else "x = W·p + b + PE(position)"
    assert record.steps[0].formulas[0] == formula
    if place == "1,1":
        # row 1, column 1 of patches: pixels 4 to 7 of rows and columns, channel by channel
        pixels = torch.tensor(list(map(int, pixels_of(1).split()))).view(12, 8, 3)[4:8, 4:8] / 255
        mean, std = torch.tensor(model.config.image_mean), torch.tensor(model.config.image_std)
        expected = ((pixels - mean) / std).permute(2, 0, 1).flatten()
        assert torch.allclose(record.table("pixels").values[0].float(), expected, atol=1e-5)


def test_rows_that_change_nothing_of_the_pooled_vector_are_none_of_its():
    settings = config(pooling="first-and-mean")
    rows = torch.eye(7)
    assert Pooled(settings).row(rows).tolist() == pytest.approx([0.5, *[1 / 12] * 6])


@of("text mean", "text first", *POOLINGS)
def test_states_that_are_not_the_models_fail_the_last_step(case):
    model, labels = case.model, case.directory.info.labels
    record = case.read()
    subject = Subject(sentence=record, head=HeadId("enc", 0, 0), row=1, output_labels=labels)
    (observed,) = observe(model, record.captured.source_ids, (), [("enc", 0)])
    assert explain(model, subject, observed).difference < 1e-5
    tampered = explain(model, subject, replace(observed, states=1.1 * observed.states + 0.01))
    assert {step.number for step in tampered.steps if (step.difference or 0) > 1e-4} == {11}


@of(*POOLINGS)
def test_importance_is_the_change_by_a_little_less_of_a_head(case):
    model = case.model
    batch = batch_of(model, [(case.read().captured.source_tokens, (FIRST_LABEL + 1,))])
    importance = importance_sums(model, batch, "sentence")
    (_, _, attention), step = next(iter(attentions(model))), 0.02
    losses = []
    for gate in (1 - step, 1 + step):
        gates = torch.ones(attention.n_heads, 1, 1)
        gates[1] = gate
        with set_gates(model, {("enc", 0): gates}), torch.no_grad():
            losses.append(sentence_losses(model, batch).item())
    slope = (losses[1] - losses[0]) / (2 * step)
    assert importance[HeadId("enc", 0, 1)] == pytest.approx(abs(slope), rel=0.02, abs=1e-4)


@of(*POOLINGS)
def test_accuracy_without_heads_is_measured_by_command(case, tmp_path):
    path = case.path
    labels = [
        label.label
        for label in label_texts(
            open_model(path, "classify", device="cpu"), [pixels_of(1), pixels_of(2)]
        )
    ]
    table = tmp_path / "images.csv"
    rows = [f"{pixels_of(n).replace(' ', ',')},{labels[n - 1]}\n" for n in (1, 2)]
    table.write_text("".join(rows))
    command = ("inspect-ablate", path, "--format", "jsonl", "-q")
    whole, *others = records_of(*command, "--images", table)
    assert (whole["lines"], whole["tokens"], whole["scores"]) == (2, 2, {"accuracy": 100.0})
    assert sum(record["record"] == "head" for record in others) == 6
    assert all("accuracy" in record["scores"] for record in others)
    (tmp_path / "names").write_text(f"{pixels_of(1)}\n{pixels_of(2)}\n")
    (tmp_path / "labels").write_text("\n".join([*labels, ""]))
    files = ("-i", tmp_path / "names", "--reference", tmp_path / "labels")
    assert records_of(*command, *files) == [whole, *others]
    text = output_of("inspect-ablate", path, "--images", table, "--format", "text", "-q")
    assert "2 lines, 2 labels" in " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--source: is missing; name the text, or --images for an image model"),
        (("--images", "x", "-i", "y"), "--images: the input is already given; omit one of the two"),
        (
            ("--label-field", "first"),
            "--label-field: only for a table of pixels; add --images PATH",
        ),
        (("--images", "nowhere.csv"), "nowhere.csv: no such file or folder; check the path"),
    ],
)
def test_a_wrong_choice_of_images_is_one_line(tmp_path, monkeypatch, options, message):
    path, _ = directory(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "y").touch()
    refused("inspect-ablate", path, *options, "-q", says=f"error: {message}\n")


def test_images_are_not_for_models_of_texts(classifier, tmp_path):
    (tmp_path / "a.csv").write_text("1,2,x\n")
    says = "error: --images: MODEL reads texts; omit it\n"
    refused("inspect-ablate", classifier, "--images", tmp_path / "a.csv", "-q", says=says)


@of(*POOLINGS)
def test_images_are_captured_together(case):
    """Their ids are of pixels, and many more than the patches that attend."""
    path = case.path
    opened = open_for_inspection(path, device="cpu", tasks=("image",))
    encoded = opened.directory.tokenizer.source.encode_batch([pixels_of(n) for n in range(8)])
    pairs = [(tuple(ids), ()) for ids in encoded]
    sizes = [len(batch) for batch, _ in capture_batches(opened.directory.any_model, pairs)]
    assert sizes == [8]
    (alone,) = inspect_heads(path, [pixels_of(5)])
    together = dict(capture_pairs(opened.directory.any_model, pairs))[5]
    for rows, batch_rows in zip(alone.captured.enc, together.enc, strict=True):
        np.testing.assert_allclose(rows, batch_rows, atol=1e-6)
