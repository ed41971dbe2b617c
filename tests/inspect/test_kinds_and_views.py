"""Kinds × views: what each view reads of each kind, against what the model itself computes."""

import json
from copy import deepcopy

import numpy as np
import pytest
import torch

from tests.commands import output_of, record_of, refused, run
from tests.inspect.cases import ONE_A_KIND, PREDICTING, TEXT, of
from tests.inspect.conftest import check_losses
from tformer_cli.inspect.capture.forced import capture_maps
from tformer_cli.inspect.jobs.heads import inspect_heads
from tformer_cli.inspect.jobs.views import inspect_view
from tformer_cli.inspect.pages import render_report
from tformer_cli.kinds.lines.classify import label_texts
from tformer_cli.kinds.lines.fill import GapFiller
from tformer_cli.kinds.opening import open_model
from tformer_cli.plugins.instruments.ablation import (
    batch_of,
    batch_of_gaps,
    losses_and_hits,
    losses_of,
)
from tformer_cli.plugins.instruments.jobs.report import inspect_report
from tformer_cli.plugins.instruments.weighting import Pooled
from tformer_cli.search.scoring import score_texts
from tformer_cli.text.label_tokenizer import FIRST_LABEL
from tformer_cli.text.tokenizer import EOS_ID


@pytest.mark.parametrize("weights", ["alpha", "norm", "rollout", "alti"])
def test_maps_are_of_what_is_read_and_add_up(case, weights):
    maps = case.read(weights=weights).captured
    layers = maps.layers(case.kind)
    assert maps.residual < (1e-5 if weights == "alpha" else 1e-4)
    assert len(layers) == len(case.model.encoder.layers if case.kind == "enc" else maps.dec) > 1
    assert not any(maps.layers(other) for other in ("enc", "dec", "cross") if other != case.kind)
    if weights != "norm":
        np.testing.assert_allclose(layers[-1].sum(axis=-1), 1.0, atol=1e-5)
    if weights == "rollout":
        product = np.eye(layers[-1].shape[-1])
        for layer in case.read().captured.layers(case.kind):
            product = (layer.mean(axis=0) + np.eye(len(product))) / 2 @ product
        np.testing.assert_allclose(layers[-1][0], product, atol=1e-5)


@of("classifier", "language_model")
def test_weights_are_the_models_own(case):
    is_text = case.kind == "dec"
    maps = capture_maps(case.model, *(((), (10, 11, 12)) if is_text else ((10, 11, 12), ())))
    model, (first, *_) = case.model, maps.layers(case.kind)
    with torch.inference_mode():  # post-norm: the first layer reads the embedded tokens
        if is_text:
            layer, tokens = model.decoder.layers[0], torch.tensor([maps.target_input_ids])
            hidden = model.decoder_input(tokens, model.target_matrix)
        else:
            layer, tokens = model.encoder.layers[0], torch.tensor([maps.source_ids])
            hidden = model.encoder_input(tokens, model.source_embedding.weight)
        projected = layer.self_attention.in_projection(hidden)
        query, key, _ = projected.view(4, 3, 2, 16).permute(1, 2, 0, 3)
        scores = query @ key.transpose(1, 2) / 4.0
        if is_text:
            scores = scores.masked_fill(torch.ones(4, 4).triu(1) > 0, -torch.inf)
    np.testing.assert_allclose(first, scores.softmax(-1), atol=1e-5)


def test_records_are_of_the_text_and_what_was_found(case):
    first, blank = inspect_heads(case.path, [case.items[0], " "])
    name = "image" if case.task == "image" else "text"
    assert first.texts[0][0] == name
    assert (blank.maps, blank.texts, blank.probability) == (None, [(name, " ")], None)
    (chosen,) = inspect_heads(case.path, case.items[:1], heads=[f"{case.kind}.1.0"])
    assert [str(head) for head in chosen.heads] == [f"{case.kind}.1.0"]
    if case.kind == "dec":
        assert first.texts == [("text", TEXT)]
        assert first.captured.source_ids == first.source_pieces == ()
        ids = case.directory.tokenizer.target.encode(TEXT)
        assert list(first.captured.target_input_ids[case.model.config.target_bos :]) == ids
        # where texts have no end, the last row is what the model would write next
        rows, _ = case.rows(first)
        end = EOS_ID if case.model.config.target_eos else int(rows[-1].argmax())
        assert first.captured.next_id == end
    elif case.task == "masked":
        (result,) = GapFiller(open_model(case.path, "fill", device="cpu")).fill(case.items[:1])
        assert first.target == result.filled
        assert [gap.piece for gap in first.gaps] == [gap[0].piece for gap in result.gaps]
    elif case.task != "embed":
        model = open_model(case.path, "classify", device="cpu")
        (result,) = label_texts(model, case.items[:1])
        assert first.target == result.label
        assert first.probability == pytest.approx(result.labels[0][1], abs=5e-6)
        assert [name for name, _ in first.texts][1] == "label"
        assert (first.target_pieces, first.is_forced) == ((), False)


@of("language_model", "stream")
def test_as_many_tokens_fit_as_the_model_has_positions(case):
    tokenizer, config = case.directory.tokenizer.target, case.model.config
    room = config.max_positions - config.target_bos
    text = tokenizer.decode((tokenizer.encode(TEXT) * room)[:room])
    assert len(tokenizer.encode(text)) == room
    (record,) = inspect_heads(case.path, [text], heads=["dec.0.0"])
    assert len(record.input_pieces) == config.max_positions
    refused("inspect-heads", case.path, f"{text} dogs run", "-q", says=f"the model takes {room}")


@of("stream", "language_model")
def test_heads_that_share_keys_are_told(case):
    n_shared = case.model.config.n_key_heads
    says = "heads 0-1, 2-3 share keys and values" if n_shared else ""
    record = case.read()
    assert (record.model.n_key_heads, record.model.sharing) == (n_shared, says)
    shown = output_of("inspect-heads", case.path, TEXT, "--format", "text", "-q")
    assert (f"({says})" in " ".join(shown.split())) == bool(n_shared)
    page = output_of("inspect-heads", case.path, TEXT, "--format", "html", "-q")
    assert f'"n_key_heads":{n_shared}' in page


@of(*PREDICTING)
def test_logits_and_the_lens_are_those_of_the_model(case):
    record = case.read("logits", item=1, lens=True, top_k=3)
    rows, chosen = case.rows(record.sentence)
    shorter = deepcopy(case.model)  # the lens reads a layer as a model that ends with it
    stack = shorter.decoder if case.kind == "dec" else shorter.encoder
    stack.layers = stack.layers[:1]
    cut, _ = case.rows(record.sentence, shorter)
    assert len(record.positions) == len(rows)
    for position, row, first, token in zip(record.positions, rows, cut, chosen, strict=True):
        assert position.log_probability == pytest.approx(row[token].item(), abs=1e-5)
        assert position.rank == int((row > row[token]).sum()) + 1
        theirs = row.exp().sort(descending=True).values[:3].tolist()
        assert [top.probability for top in position.top] == pytest.approx(theirs, abs=1e-5)
        final = position.lens[-1].probability
        assert final == pytest.approx(position.chosen.probability, abs=1e-6)
        assert position.lens[0].probability == pytest.approx(first[token].exp().item(), abs=1e-6)
    shown = output_of("inspect-logits", case.path, case.items[1], "--lens", "--format", "text")
    if case.is_pooled:
        assert record.positions[0].read == f"the {'image' if case.task == 'image' else 'text'}"
        assert "what each encoder layer would have labeled it" in shown


def check_flow_output(case, record):
    """The JSON and the text tell of what the positions are and of what they read."""
    data = record_of("inspect-flow", case.path, case.items[0], "--format", "jsonl", "-q")
    shown = output_of("inspect-flow", case.path, case.items[0], "--format", "text", "-q")
    side = "prefix" if case.kind == "dec" else "source"
    for place, position in enumerate(data["positions"]):
        assert set(position["alti"]) == {side}
        assert sum(position["alti"][side]) == pytest.approx(1.0, abs=1e-4)
        assert case.kind == "enc" or len(position["alti"][side]) == place + 1
    if case.kind == "dec":
        assert "from the text" in shown
        assert "source" not in shown
    elif case.task == "masked":
        places = [gap.position for gap in record.sentence.gaps]
        assert [read["position"] for read in data["positions"]] == places
        assert {read["read"] for read in data["positions"]} == {"[MASK]"}
        assert "fills in" in shown
    elif case.task == "image":
        assert "row and column: patches" in shown
        assert ("the class token has" in shown) == case.model.config.class_token
    else:
        assert shown.count("\n") > len(record.sentence.source_pieces)
    assert ("reads most" in shown) == (case.kind == "enc")
    (written, *_) = (read["piece"] for read in data["positions"])
    assert written == record.written[0]
    assert not case.is_pooled or written == (record.sentence.target or "the vector")


def test_flow_is_of_what_the_last_states_are_made_of(case):
    record, config = case.read("flow"), case.model.config
    places = [gap.position for gap in record.sentence.gaps]
    for method, flow in record.flows.items():
        maps = case.read(weights=method).captured
        if case.kind == "dec":
            assert np.array_equal(flow.prefix, maps.dec[-1][0])
            continue
        rows = torch.from_numpy(maps.enc[-1][0])
        others = rows[int(config.class_token) :].mean(dim=0)
        pooled = {"first": rows[0], "mean": others, "first-and-mean": (rows[0] + others) / 2}
        expected = rows[places] if case.task == "masked" else pooled[config.pooling][None]
        assert torch.allclose(flow.source, expected)
        sums = flow.source.sum(dim=-1)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5)
        if case.task == "image":
            looked = {layer.kind: layer for layer in case.read("image").looked}
            shares = looked[method].shares.flatten()
            assert torch.allclose(shares, flow.source[0, int(config.class_token) :])
    norms = case.read(weights="norm").captured
    for reading in record.readings:
        rows = norms.weights(reading.head)[places or slice(None)].sum(axis=0)
        np.testing.assert_allclose(reading.shares, rows / rows.sum(), atol=1e-6)
    check_flow_output(case, record)


@pytest.mark.parametrize("head", ["0.1", "1.0"])
def test_a_head_is_worked_through_to_what_comes_out(case, head):
    settings = {"head": f"{case.kind}.{head}", "token": "2"}
    record = case.read("step", **settings)
    assert record.difference < 1e-5
    assert {step.number for step in record.steps if step.checks} >= {1, 2, 3, 4, 6, 7, 8, 9, 10, 11}
    last = record.steps[11]
    if case.is_pooled:
        pooled = Pooled(case.model.config).formula(len(record.sentence.source_pieces))
        assert last.formulas[0] == pooled
    if case.task == "embed":
        ids = torch.tensor([record.sentence.captured.source_ids])
        with torch.inference_mode():
            vector = case.model(ids, torch.ones_like(ids, dtype=torch.bool))[0].double()
        assert (last.name, last.formulas[1]) == ("vector", "v = m / |m|")
        assert torch.allclose(record.table("pooled").values[-1], vector, atol=1e-5)
        return
    rows, chosen = case.rows(record.sentence)
    place = {"dec": record.row}.get(case.kind, 0)
    words = record.table("words")
    assert last.name == ("label" if case.is_pooled else "word")
    assert words.values[words.marked_row, 2].item() == pytest.approx(
        rows[place, chosen[place]].exp().item(), abs=1e-6
    )
    if case.kind == "dec":
        assert words.rows[words.marked_row] == record.sentence.target_pieces[2]
        assert record.where.startswith("decoder position 2, which has read")
    elif case.task == "masked":
        assert words.rows[words.marked_row] == record.sentence.gaps[0].piece
    else:
        assert words.rows[words.marked_row] == record.sentence.target


@of("masked")
def test_a_text_without_gaps_is_worked_through_at_its_own_place(case):
    settings = {"head": "enc.1.0", "token": "1"}
    (record,) = inspect_view("step", case.path, ["Two dogs"], settings=settings)
    assert record.difference < 1e-5
    assert "position 1" in record.steps[11].says
    assert record.steps[11].formulas[0] == "t = RMS(relu(W·h + b))"
    for name in ("logits", "flow"):
        says = "line 1: has no gap to fill; write [MASK] in place of a word"
        refused(f"inspect-{name}", case.path, "Two dogs", "-q", says=says)


@of(*PREDICTING)
def test_losses_without_heads_are_those_of_the_model_without_them(case):
    if case.kind == "dec":
        ids = case.directory.tokenizer.target.encode(TEXT)
        both = [ids, ids[:4]]
        scored = score_texts(
            case.model, both, window=40, stride=40, batch_tokens=4096, device="cpu"
        )
        batch = batch_of(case.model, [((), tokens) for tokens in both])
        expected = [-sum(steps) for steps in scored]
        check_losses(case.model, batch, expected, measure=losses_of, atol=1e-4)
        values = [position.log_probability for position in case.read("logits").positions]
        assert values[: len(scored[0])] == pytest.approx(scored[0], abs=1e-5)
        assert len(values) == len(scored[0]) + (not case.model.config.target_eos)
        return
    records = list(inspect_heads(case.path, case.items))
    if case.task == "masked":
        rows, chosen = case.rows(records[0])
        fills = {gap.position: gap.id for gap in records[0].gaps}
        batch = batch_of_gaps(records[0].captured.source_ids, fills)
        expected = [-sum(row[token].item() for row, token in zip(rows, chosen, strict=True))]
        hits = [sum(int(row.argmax()) == token for row, token in zip(rows, chosen, strict=True))]
    else:  # the right labels need not be those that are given
        values, right = [case.rows(record)[0][0] for record in records], [1, 0]
        pairs = [
            (record.captured.source_tokens, (FIRST_LABEL + at,))
            for record, at in zip(records, right, strict=True)
        ]
        batch = batch_of(case.model, pairs)
        expected = [-row[at].item() for row, at in zip(values, right, strict=True)]
        hits = [float(int(row.argmax()) == at) for row, at in zip(values, right, strict=True)]
    check_losses(case.model, batch, expected, hits=hits, measure=losses_and_hits)


def test_a_report_has_what_there_is_to_show(case):
    lines = [case.items[0], "", "the soup" if case.task == "masked" else case.items[1]]
    report = inspect_report(case.path, lines, device="cpu")
    first, last = report.sentences
    expected = {"step", "flow"} if case.task == "embed" else {"step", "logits", "flow", "ablation"}
    expected |= {"image"} if case.task == "image" else set()
    # Of both texts where they part, else of each; an encoder alone decides nothing
    shared = {"decision"} & set(report.views)
    assert not shared or case.task not in ("masked", "embed")
    expected |= {"decision"} - shared if case.task != "embed" else set()
    assert set(first.views) == expected
    assert set(last.views) == ({"step"} if case.task == "masked" else expected)
    for sentence in report.sentences:
        assert all(walk.difference < 1e-5 for walk in sentence.views["step"])
    stack = {"dec": "decoder", "enc": "encoder"}[case.kind]
    tables = report.views["positions"].tables
    assert {table.stack for table in tables} <= {stack}
    assert set(report.views) == {"positions", *shared}
    assert "Candidates for the gaps" in render_report(report)


@of("language_model", "stream", "classifier")
def test_positions_of_the_only_stack_are_shown(case):
    (record,) = inspect_view("positions", case.path)
    stack = "encoder" if case.kind == "enc" else "decoder"
    assert [table.stack for table in record.tables] == [stack]


FIGURES = ["svg", *(pytest.param(name, marks=pytest.mark.needs(name)) for name in ("png", "pdf"))]


@of(*ONE_A_KIND)
@pytest.mark.parametrize("form", ["text", "jsonl", "html", "npz", "safetensors", *FIGURES])
def test_every_format_is_written(case, tmp_path, form):
    file = tmp_path / f"heads.{'txt' if form == 'text' else form}"
    weights = ["--weights"] if form == "jsonl" else []
    output_of("inspect-heads", case.path, case.items[0], "--format", form, *weights, "-o", file)
    assert file.stat().st_size > 500
    record, n = case.read(), len(case.read().captured.layers(case.kind)[0][0])
    if form == "npz":
        assert np.load(file)[f"{case.kind}.0"].shape == (case.model.config.n_heads, n, n)
    if form == "text":
        shown = file.read_text()
        assert "recurrent" not in shown
        assert {"classify": "label", "masked": "filled"}.get(case.task, "") in shown
    if form == "jsonl":
        data = json.loads(file.read_text())
        side = data["source" if case.kind == "enc" else "target"]
        assert side["text"] == case.items[0]
        assert case.task == "image" or side["ids"][-1] == EOS_ID
        assert case.task != "image" or (side["ids"], len(side["pieces"])) == ([], n)
        assert {head["kind"] for head in data["heads"]} == {case.kind}
        assert np.array(data["heads"][0]["weights"]).shape == (n, n)
        assert ("label" in data) == case.is_pooled
        if case.is_pooled:
            assert data["label"] == record.target
            assert data["probability"] == pytest.approx(record.probability, rel=1e-5)
        if case.task == "masked":
            assert data["gaps"][0]["piece"] == record.gaps[0].piece
            assert data["target"]["text"] == record.target


@of(*ONE_A_KIND)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "live"], "--mode live: only for translation models"),
        (["--rank", "2"], "--rank: only for translation models"),
        (["--target", "x"], "reads one text"),
        (["--heads", "cross.0"], "--heads"),
    ],
)
def test_what_is_of_translations_is_one_line(case, options, message):
    named = {
        "classify": "a classifier", "language-model": "a language model",
        "masked": "a masked language model", "image": "a classifier of images",
    }[case.task]  # fmt: skip
    says = refused("inspect-heads", case.path, case.items[0], *options, "-q", says=message)
    assert named in says or options[0] == "--heads"


@of("language_model", "encoder")
def test_other_views_name_the_right_command(case):
    if case.task == "embed":
        for name, arguments in (("logits", [TEXT]), ("ablate", ["-i", case.path / "config.json"])):
            says = "is an encoder, which turns texts into vectors"
            refused(f"inspect-{name}", case.path, *arguments, "-q", says=says)
        return
    says = "is a language model, which continues texts; use `tformer generate`"
    assert says in run("inspect-align", case.path, TEXT).stderr


@of("masked")
def test_a_gap_is_a_word_of_its_own(case):
    (record,) = inspect_heads(case.path, ["a[MASK] [MASK]b"], for_page=True)
    words = record.extras.source_words
    assert words.texts.count("[MASK]") == 2
    places = [gap.position for gap in record.gaps]
    assert [words.texts[words.of_token[place]] for place in places] == ["[MASK]"] * 2
