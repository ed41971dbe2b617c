"""Views of models that label texts or images, against what the models themselves compute."""

import json
import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.numpy import load_file

from tests.commands import run
from tests.inspect.conftest import check_losses
from tests.inspect.test_other_tasks import saved
from tests.inspect.views.test_image import directory
from tests.models import LINES
from tests.oracles.vit import config
from tformer_cli.artifacts.model_directory import load_model_directory
from tformer_cli.heads.names import HeadId, attentions
from tformer_cli.inspect.ablation import (
    batch_of,
    gated,
    importance_sums,
    sentence_losses,
)
from tformer_cli.inspect.capture.forced import capture_batches, capture_pairs
from tformer_cli.inspect.capture.observed import observe
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.reader import CorpusInspector, open_for_inspection
from tformer_cli.inspect.jobs.report import inspect_report, inspect_view
from tformer_cli.inspect.walkthrough.step import Subject
from tformer_cli.inspect.walkthrough.walkthrough import explain
from tformer_cli.inspect.weighting.maps import Pooled
from tformer_cli.kinds.lines.classify import label_texts
from tformer_cli.kinds.opening import open_model
from tformer_cli.model.config import ModelConfig
from tformer_cli.model.encoder_only import Classifier
from tformer_cli.search.config import DecodingConfig
from tformer_cli.search.encoding import label_probabilities
from tformer_cli.text.config import TokenizerConfig
from tformer_cli.text.images.tokenizer import FIRST_PIXEL
from tformer_cli.text.label_tokenizer import FIRST_LABEL
from tformer_cli.text.train_tokenizer import train_tokenizer

NAMES = ["shapes:test:1#0", "shapes:test:1#1", "shapes:test:1#2"]
N_PIXELS = 12 * 8 * 3
POOLINGS = {
    "class": {"pooling": "first"},
    "mean": {"pooling": "mean", "class_token": False},
    "mean with class": {"pooling": "mean"},
    "both": {"pooling": "first-and-mean"},
    "post": {"pooling": "mean", "class_token": False, "norm": "post"},
    "pooler": {"pooling": "first", "pooler": "tanh"},
}


def image(number):
    """The values of the pixels of a made-up image, which are its name."""
    drawn = torch.Generator().manual_seed(number)
    return " ".join(map(str, torch.randint(256, (N_PIXELS,), generator=drawn).tolist()))


@pytest.fixture(scope="module", params=POOLINGS)
def digits(request, tmp_path_factory, one_thread):
    return drawn(tmp_path_factory, request.param)


def drawn(tmp_path_factory, name):
    from safetensors.torch import save_file

    path, model = directory(tmp_path_factory.mktemp("m") / "m", **POOLINGS[name])
    with torch.no_grad():  # what is 0 or 1 at first is as random as the rest
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    save_file(model.state_dict(), path / "model.safetensors")
    return path, model


@pytest.mark.parametrize("place", ["0", "1,1"])
def test_a_head_begins_with_pixels(digits, place):
    path, model = digits
    settings = {"head": "enc.0.1", "token": place}
    (record,) = inspect_view("step", path, [image(1)], settings=settings)
    assert record.difference < 1e-5
    assert record.steps[0].checks
    is_class = place == "0" and model.config.class_token
    formula = "x = c + PE(position)" if is_class else "x = W·p + b + PE(position)"
    assert record.steps[0].formulas[0] == formula
    if place == "1,1":
        # row 1, column 1 of patches: pixels 4 to 7 of rows and columns, channel by channel
        pixels = torch.tensor(list(map(int, image(1).split()))).view(12, 8, 3)[4:8, 4:8] / 255
        mean, std = torch.tensor(model.config.image_mean), torch.tensor(model.config.image_std)
        expected = ((pixels - mean) / std).permute(2, 0, 1).flatten()
        assert torch.allclose(record.table("pixels").values[0].float(), expected, atol=1e-5)


def test_rows_that_change_nothing_of_the_pooled_vector_are_none_of_its():
    settings = config(pooling="first-and-mean")
    rows = torch.eye(7)
    assert Pooled(settings).row(rows).tolist() == pytest.approx([0.5, *[1 / 12] * 6])


def pairs_of(model):
    """Two images, of the second and the fourth label."""
    names = (image(1), image(2))
    labels = ((FIRST_LABEL + 1,), (FIRST_LABEL + 3,))
    return [
        ([int(value) + FIRST_PIXEL for value in name.split()], label)
        for name, label in zip(names, labels, strict=True)
    ]


class Labeled(NamedTuple):
    """A model that gives labels, and two inputs with their ids and right labels."""

    path: Path
    model: Classifier
    items: tuple[str, str]
    pairs: list[tuple[list[int], tuple[int]]]
    names: tuple[str, ...]


@pytest.fixture(scope="module", params=["text mean", "text first", *POOLINGS])
def labeled(request, tmp_path_factory, one_thread):
    if request.param.startswith("text"):
        tokenizer = train_tokenizer(LINES * 3, TokenizerConfig(vocab_size=300))
        settings = ModelConfig(
            d_model=32, n_heads=2, d_ff=64, n_encoder_layers=2, n_decoder_layers=0, n_labels=3,
            max_positions=40, pooling=request.param[5:], norm="pre", norm_kind="rms", gated=True,
        )  # fmt: skip
        names = ("fair", "good", "no\tgood")
        path = saved(tmp_path_factory, Classifier, settings, tokenizer, DecodingConfig(), names)
        model = load_model_directory(path, tasks=("classify",)).classifier
        pairs = [([10, 11, 12], (FIRST_LABEL + 1,)), ([20, 21], (FIRST_LABEL,))]
        return Labeled(path, model, ("Two dogs run in the street", "Two dogs"), pairs, names)
    path, model = drawn(tmp_path_factory, request.param)
    names = load_model_directory(path, tasks=("image",)).info.labels
    return Labeled(path, model, (image(1), image(2)), pairs_of(model), names)


@pytest.mark.parametrize("head", ["enc.0.1", "enc.1.0"])
def test_a_head_is_worked_through_to_the_label(labeled, head):
    (record,) = inspect_view(
        "step", labeled.path, labeled.items[:1], settings={"head": head, "token": "2"}
    )
    (found,) = label_texts(open_model(labeled.path, "classify", device="cpu"), labeled.items[:1])
    assert record.difference < 1e-5
    assert {step.number for step in record.steps if step.checks} >= {1, 2, 3, 4, 6, 7, 8, 9, 10}
    assert record.steps[10].name == "label"
    assert record.steps[10].formulas[0] == Pooled(labeled.model.config).formula(
        len(record.sentence.source_pieces)
    )
    words = record.table("words")
    assert words.rows[words.marked_row] == found.label
    shares = dict(zip(words.rows, words.values[:, 2].tolist(), strict=True))
    assert shares == pytest.approx(dict(found.labels), abs=1e-6)


def test_states_that_are_not_the_models_fail_the_last_step(labeled):
    model = labeled.model
    (record,) = inspect_heads(labeled.path, labeled.items[:1])
    subject = Subject(sentence=record, head=HeadId("enc", 0, 0), row=1, output_labels=labeled.names)
    (observed,) = observe(model, record.captured.source_ids, (), [("enc", 0)])
    assert explain(model, subject, observed).difference < 1e-5
    tampered = explain(model, subject, replace(observed, states=1.1 * observed.states + 0.01))
    assert {step.number for step in tampered.steps if (step.difference or 0) > 1e-4} == {10}


def test_each_layer_has_labels(labeled):
    (record,) = inspect_view("logits", labeled.path, labeled.items[1:], settings={"lens": True})
    (found,) = label_texts(open_model(labeled.path, "classify", device="cpu"), labeled.items[1:])
    (position,) = record.positions
    is_image = labeled.model.config.reads_images
    assert position.read == ("the image" if is_image else "the text")
    assert position.chosen.piece == found.label
    top = {one.piece: one.probability for one in position.top}
    assert top == pytest.approx(dict(found.labels), abs=1e-5)
    assert position.lens[-1].probability == pytest.approx(position.chosen.probability, abs=1e-6)
    assert len(position.lens) == 2
    # a model cut after its first layer says what the lens of that layer says
    shorter = deepcopy(labeled.model)
    shorter.encoder.layers = shorter.encoder.layers[:1]
    ids = torch.tensor([record.sentence.captured.source_ids])
    with torch.inference_mode():
        cut = shorter(ids, torch.ones_like(ids, dtype=torch.bool))[0].double().softmax(-1)
    number = labeled.names.index(found.label)
    assert position.lens[0].probability == pytest.approx(cut[number].item(), abs=1e-6)
    given = (labeled.path, labeled.items[1], "--lens", "--format", "text", "-q")
    shown = run("inspect-logits", *given).stdout
    assert "what each encoder layer would have labeled it" in shown


def test_flow_and_maps_are_of_what_the_model_pools(labeled):
    path, config = labeled.path, labeled.model.config
    first, items = int(config.class_token), labeled.items[:1]
    (record,) = inspect_view("flow", path, items)
    looked = next(iter(inspect_view("image", path, items))).looked if config.reads_images else ()
    for method in ("alti", "rollout"):
        (maps,) = inspect_heads(path, items, weights=method)
        rows = maps.captured.enc[-1][0]
        others = rows[first:].mean(dim=0)
        expected = {"first": rows[0], "mean": others, "first-and-mean": (rows[0] + others) / 2}
        assert torch.allclose(record.flows[method].source[0], expected[config.pooling])
        assert record.flows[method].source.sum().item() == pytest.approx(1.0, abs=1e-5)
        for way in (one for one in looked if one.kind == method):
            assert torch.allclose(way.shares.flatten(), record.flows[method].source[0, first:])
    (position,) = json.loads(run("inspect-flow", path, *items, "--format", "jsonl", "-q").stdout)[
        "positions"
    ]
    assert position["piece"] == record.sentence.target
    assert set(position["alti"]) == {"source"}
    shown = run("inspect-flow", path, *items, "--format", "text", "-q").stdout
    if config.reads_images:
        assert "row and column: patches" in shown
        assert ("the class token has" in shown) == config.class_token
    else:
        assert shown.count("\n") > len(record.sentence.source_pieces)


def test_losses_without_heads_are_those_of_the_model_without_them(labeled):
    rows = label_probabilities(labeled.model, [ids for ids, _ in labeled.pairs])
    right = [label - FIRST_LABEL for _, (label,) in labeled.pairs]
    expected = [-math.log(row[at]) for row, at in zip(rows, right, strict=True)]
    hits = [float(row.index(max(row)) == at) for row, at in zip(rows, right, strict=True)]
    check_losses(labeled.model, batch_of(labeled.model, labeled.pairs), expected, hits=hits)


def test_importance_is_the_change_by_a_little_less_of_a_head(digits):
    _, model = digits
    batch = batch_of(model, pairs_of(model)[:1])
    found = importance_sums(model, batch, "sentence")
    (_, _, attention), step = next(iter(attentions(model))), 0.02
    losses = []
    for gate in (1 - step, 1 + step):
        gates = torch.ones(attention.n_heads, 1, 1)
        gates[1] = gate
        with gated(model, {("enc", 0): gates}), torch.no_grad():
            losses.append(sentence_losses(model, batch).item())
    slope = (losses[1] - losses[0]) / (2 * step)
    assert found[HeadId("enc", 0, 1)] == pytest.approx(abs(slope), rel=0.02, abs=1e-4)


def test_metrics_of_a_corpus_of_one_image_are_its_own(digits):
    path, model = digits
    opened = open_for_inspection(path, tasks=("image",), device="cpu")
    inspector = CorpusInspector(opened, ())
    assert list(inspector.read([image(1)])) == [1]
    (record,) = inspect_heads(path, [image(1)], device="cpu")
    for summary in inspector.summaries():
        own = record.metrics[summary.head]
        for name in ("entropy", "confidence", "self"):
            assert summary.metrics[name] == pytest.approx(own[name], abs=1e-5)
    ids = [int(value) + FIRST_PIXEL for value in image(1).split()]
    ((_, maps),) = capture_pairs(model, [(ids, ())])
    for layer, rows in enumerate(maps.enc):
        assert torch.allclose(rows, record.captured.enc[layer], atol=1e-5)


def test_accuracy_without_heads_is_measured_by_command(digits, tmp_path):
    path, _ = digits
    labels = [
        one.label
        for one in label_texts(open_model(path, "classify", device="cpu"), [image(1), image(2)])
    ]
    table = tmp_path / "images.csv"
    rows = [f"{image(n).replace(' ', ',')},{labels[n - 1]}\n" for n in (1, 2)]
    table.write_text("".join(rows))
    given = ("inspect-ablate", path, "--format", "jsonl", "-q")
    done = run(*given, "--images", table)
    assert done.exit_code == 0, done.stderr
    whole, *others = map(json.loads, done.stdout.splitlines())
    assert (whole["lines"], whole["tokens"], whole["scores"]) == (2, 2, {"accuracy": 100.0})
    assert sum(one["record"] == "head" for one in others) == 6
    assert all("accuracy" in one["scores"] for one in others)
    (tmp_path / "names").write_text(f"{image(1)}\n{image(2)}\n")
    (tmp_path / "labels").write_text("\n".join([*labels, ""]))
    files = ("-i", tmp_path / "names", "--reference", tmp_path / "labels")
    assert run(*given, *files).stdout == done.stdout
    text = run("inspect-ablate", path, "--images", table, "--format", "text", "-q").stdout
    assert "2 lines, 2 labels" in " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--source: is missing; name the text, or --images of images"),
        (("--images", "x", "-i", "y"), "--images: the input is named already; omit one of the two"),
        (("--label-field", "first"), "--label-field: is of a table of pixels; add --images PATH"),
        (("--images", "nowhere.csv"), "nowhere.csv: no such file or folder; check the path"),
    ],
)
def test_a_wrong_choice_of_images_is_one_line(tmp_path, monkeypatch, options, message):
    path, _ = directory(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "y").touch()
    done = run("inspect-ablate", path, *options, "-q")
    assert (done.exit_code, done.stderr) == (2, f"error: {message}\n")


def test_images_are_not_for_models_of_texts(classifier, tmp_path):
    (tmp_path / "a.csv").write_text("1,2,x\n")
    done = run("inspect-ablate", classifier, "--images", tmp_path / "a.csv", "-q")
    assert (done.exit_code, done.stderr) == (2, "error: --images: MODEL reads texts; omit it\n")


def test_a_report_has_every_view(digits):
    path, _ = digits
    report = inspect_report(path, [image(1), "", image(2)], device="cpu")
    assert len(report.sentences) == 2
    for sentence in report.sentences:
        assert set(sentence.views) == {"step", "logits", "flow", "ablation", "image"}
        assert all(walk.difference < 1e-5 for walk in sentence.views["step"])
    assert set(report.views) == {"positions"}


def test_images_are_captured_together(digits):
    """Their ids are of pixels, and many more than the patches that attend."""
    path, _ = digits
    opened = open_for_inspection(path, device="cpu", tasks=("image",))
    encoded = opened.directory.tokenizer.source.encode_batch([image(n) for n in range(8)])
    pairs = [(tuple(ids), ()) for ids in encoded]
    sizes = [len(batch) for batch, _ in capture_batches(opened.directory.any_model, pairs)]
    assert sizes == [8]
    (alone,) = inspect_heads(path, [image(5)])
    together = dict(capture_pairs(opened.directory.any_model, pairs))[5]
    for rows, found in zip(alone.captured.enc, together.enc, strict=True):
        assert torch.allclose(rows, found, atol=1e-6)


def test_a_dump_holds_the_maps_of_images(digits, tmp_path):
    path, model = digits
    (tmp_path / "names").write_text(f"{image(1)}\n\n{image(2)}\n")
    dumped = run("inspect-heads", path, "-i", tmp_path / "names", "--dump", tmp_path / "d", "-q")
    assert dumped.exit_code == 0, dumped.stderr
    arrays = load_file(tmp_path / "d" / "part-00000.safetensors")
    n = model.config.n_positions
    assert arrays["index"].tolist() == [0, 2]
    assert arrays["src_len"].tolist() == [n, n]
    for place, number in enumerate((1, 2)):
        (record,) = inspect_heads(path, [image(number)])
        start, stop = arrays["enc.off"][place : place + 2]
        for layer, rows in enumerate(record.captured.enc):
            found = arrays[f"enc.{layer}.w"][:, start:stop].reshape(rows.shape)
            assert torch.allclose(torch.from_numpy(found).float(), rows, atol=1e-3)


def test_models_of_images_are_compared_patch_by_patch(digits, tmp_path):
    path, model = digits
    (tmp_path / "names").write_text(f"{image(1)}\n{image(2)}\n")
    names = ("-i", tmp_path / "names", "--format", "text", "-q")
    done = run("inspect-diff", path, path, *names)
    assert done.exit_code == 0, done.stderr
    assert "2,1" in done.stdout
    is_other = {"class_token": not model.config.class_token, "pooling": "mean"}
    other, _ = directory(tmp_path / "other", **is_other)
    done = run("inspect-diff", path, other, *names)
    assert done.exit_code == 2
    assert "differ in class_token, and so in the patches that heads look at" in done.stderr
